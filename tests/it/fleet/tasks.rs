//! `fleet task`: what an engine starts, by hand.

use std::fs;
use std::path::PathBuf;

use super::{always_right, json, name_of, names, project, result, right};
use crate::support::server::Server;

#[test]
fn a_task_is_named_by_its_entry_or_its_index() {
    let server = always_right();
    let project = project(&["a", "b"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let a = name_of(&project, "a");
    let ran = project.run(&["fleet", "task", "fleet", &a]).exits(0);
    assert_eq!(ran.result()["outcome"], "SUCCESS");
    assert_eq!(ran.stderr, "");
    assert_eq!(server.count(), 1);
    // An entry that is over is left alone.
    let again = project.run(&["fleet", "task", "fleet", "0"]).exits(0);
    assert_eq!(again.result(), result(&project, "a"));
    assert_eq!(server.count(), 1);
    project.run(&["fleet", "task", "fleet", "1"]).exits(0);
    project
        .run(&["fleet", "task", "fleet", "2"])
        .exits(64)
        .says("no entry \"2\"");
    let ran = project.run(&["fleet", "status", "fleet"]).exits(0);
    assert!(ran.stdout.contains("2 succeeded"), "{}", ran.stdout);
}

#[test]
fn two_tasks_of_one_entry_ask_once() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let first = project.start(&["fleet", "task", "fleet", "0"]);
    server.wait_for(1);
    let root = format!("fleet/roots/{}", name_of(&project, "a"));
    let lock = project.read(&format!("{root}/.orchestrator.lock"));
    assert!(lock.contains(&format!("pid {} on ", first.id())), "{lock}");
    // One that does not wait names the process that works there.
    let ran = project.run(&["fleet", "task", "fleet", "0", "--wait-lock", "0"]);
    ran.exits(75)
        .says("is in use")
        .says(&format!("pid {}", first.id()));
    let second = project.start(&["fleet", "task", "fleet", "0"]);
    server.release();
    first.wait().exits(0);
    let second = second.wait().exits(0);
    assert_eq!(second.result(), result(&project, "a"));
    assert_eq!(server.count(), 1);
}

#[test]
fn a_changed_spec_is_refused_until_it_is_planned_again() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let text = project.read("specs/a.yaml");
    project.write(
        "specs/a.yaml",
        text.replace("Write the answer", "Write another answer"),
    );
    let ran = project.run(&["fleet", "task", "fleet", "0"]).exits(65);
    assert_eq!(
        ran.outcome_and_reason(),
        ("REFUSED".into(), "spec_changed".into())
    );
    assert_eq!(result(&project, "a")["outcome"], "REFUSED");
    assert_eq!(server.count(), 0);
    project.run(&["fleet", "resume", "fleet"]).exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn a_changed_spec_does_not_replace_a_result() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "run", "specs"]).exits(0);
    let before = result(&project, "a");
    let text = project.read("specs/a.yaml");
    project.write(
        "specs/a.yaml",
        text.replace("Write the answer", "Write another answer"),
    );
    let ran = project.run(&["fleet", "task", "fleet", "0"]).exits(65);
    assert_eq!(ran.outcome_and_reason().1, "spec_changed");
    assert_eq!(result(&project, "a"), before);
    let status = project.run(&["fleet", "status", "fleet"]).exits(0);
    assert!(status.stdout.contains("1 succeeded"), "{}", status.stdout);
}

#[test]
fn a_task_that_waits_does_not_begin_after_a_cancellation() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let first = project.start(&["fleet", "task", "fleet", "0"]);
    server.wait_for(1);
    let mut second = project.start(&["fleet", "task", "fleet", "0"]);
    let lock = format!("fleet/roots/{}/.orchestrator.lock", name_of(&project, "a"));
    let lock = project.path(&lock);
    let descriptors = PathBuf::from(format!("/proc/{}/fd", second.id()));
    second.until("it waits for the lock", || {
        let open = fs::read_dir(&descriptors).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|path| path == lock)
    });
    project.run(&["fleet", "cancel", "fleet"]).exits(0);
    first.wait().exits(130);
    let second = second.wait().exits(4);
    assert_eq!(second.outcome_and_reason().1, "cancelled");
    assert_eq!(server.count(), 1);
}

#[test]
fn a_root_of_a_fleet_is_run_by_its_task_alone() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "run", "specs"]).exits(0);
    let root = format!("fleet/roots/{}", name_of(&project, "a"));
    let ran = project.run(&["run", "--spec", "specs/a.yaml", "--root", &root]);
    ran.exits(64).says("orchestrator fleet task ");
    for command in [
        &["diff"][..],
        &["attempts"],
        &["status"],
        &["runs"],
        &["restore", "1"],
    ] {
        let words = [command, &["--root", &root]].concat();
        project.run(&words).exits(0);
    }
}

#[test]
fn a_missing_key_is_a_refused_entry() {
    let server = always_right();
    let project = project(&["a"], &server).without("ANTHROPIC_API_KEY");
    let ran = project.run(&["fleet", "run", "specs"]).exits(1);
    assert!(
        ran.stdout.starts_with("FAILED: 1 refused"),
        "{}",
        ran.transcript()
    );
    assert_eq!(result(&project, "a")["exit_code"], 64);
    let project = project.env("ANTHROPIC_API_KEY", "sk-test-anthropic-q7Rk2ZpLx0");
    project.run(&["fleet", "resume", "fleet"]).exits(0);
}

#[test]
fn a_crash_between_the_state_and_the_result_is_made_good() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "run", "specs"]).exits(0);
    let name = name_of(&project, "a");
    let path = project.path(&format!("fleet/results/{name}.json"));
    fs::remove_file(&path).unwrap();
    let mut ledger = json(&project, "ledger.json");
    ledger["reserved"][&name] = 999_999.into();
    project.write("fleet/ledger.json", ledger.to_string());
    project.run(&["fleet", "resume", "fleet"]).exits(0);
    assert_eq!(result(&project, "a")["outcome"], "SUCCESS");
    assert_eq!(json(&project, "ledger.json")["reserved"][&name], 450);
    assert_eq!((server.count(), names(&project).len()), (1, 1));
}

#[test]
fn files_of_a_fleet_that_cannot_be_read_are_reported() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let plan = project.read("fleet/fleet.json");
    project.write("fleet/fleet.json", &plan[..plan.len() / 2]);
    project
        .run(&["fleet", "task", "fleet", "0"])
        .exits(65)
        .says("fleet.json:");
    project
        .run(&["fleet", "status", "fleet"])
        .exits(65)
        .says("fleet.json:");
    project.write("fleet/fleet.json", plan);
    fs::remove_file(project.path("fleet/ledger.json")).unwrap();
    project
        .run(&["fleet", "resume", "fleet"])
        .exits(65)
        .says("the ledger of the fleet is missing");
    assert_eq!(server.count(), 0);
}
