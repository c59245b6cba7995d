//! What `fleet plan` makes of specs, folders, globs, manifests, matrices and repetitions.

use serde_json::{Value, json as value};
use sha2::{Digest, Sha256};

use super::{always_right, json, names, project, right, summary};
use crate::support::project::Project;
use crate::support::reply;
use crate::support::server::Server;

/// The variables of the entries.
fn variables(project: &Project) -> Vec<Value> {
    let plan = json(project, "fleet.json");
    let entries = plan["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["variables"].clone()).collect()
}

#[test]
fn a_plan_starts_nothing_and_names_follow_the_rule() {
    let server = always_right();
    let project = project(&["b", "a"], &server);
    let ran = project
        .run(&["fleet", "plan", "specs", "--repeat", "2"])
        .exits(0);
    assert!(
        ran.stdout.starts_with("planned 4 entries in "),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), 0);
    assert!(!project.exists("fleet/results/a.json"));
    let root = project.root().canonicalize().unwrap();
    for (index, (stem, repeat)) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        .into_iter()
        .enumerate()
    {
        let mut sha = Sha256::new();
        sha.update(format!(
            "{}/specs/{stem}.yaml\0{{}}\0{repeat}",
            root.display()
        ));
        let digest = sha.finalize();
        let hex: String = digest
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(names(&project)[index], format!("{stem}-{hex}"));
    }
    let ledger = json(&project, "ledger.json");
    assert_eq!(ledger, value!({"budget": null, "reserved": {}}));
}

#[test]
fn matrices_and_settings_multiply() {
    let server = always_right();
    let project = project(&["a"], &server);
    let ran = project.run(&[
        "fleet",
        "plan",
        "specs/a.yaml",
        "--matrix",
        "model=small,large",
        "--matrix",
        "max_retries=1,2",
        "--set",
        "generator.temperature=0.5",
    ]);
    ran.exits(0);
    let status = project.run(&["fleet", "status", "fleet"]).exits(0).stdout;
    assert!(status.contains(" model=large max_retries=2 "), "{status}");
    let entry = |model: &str, retries: u32| value!({"generator.temperature": 0.5, "model": model, "max_retries": retries});
    let expected = [
        entry("small", 1),
        entry("small", 2),
        entry("large", 1),
        entry("large", 2),
    ];
    assert_eq!(variables(&project), expected);
}

#[test]
fn a_manifest_wins_over_the_command_line() {
    let server = always_right();
    let project = project(&["a", "b"], &server);
    let lines = [
        r#"{"spec": "a.yaml", "name": "first", "model": "mine", "set": {"generator.temperature": 0.1}}"#,
        r#"{"spec": "b.yaml", "repeat": 2, "max_retries": 3, "budget": 0.5}"#,
        r#"{"spec": "b.yaml", "max_retries": 3, "budget": 0.5}"#,
    ];
    project.write("specs/all.jsonl", lines.join("\n"));
    let ran = project.run(&[
        "fleet",
        "plan",
        "specs/all.jsonl",
        "--set",
        "model=other",
        "--set",
        "generator.temperature=0.9",
    ]);
    let ran = ran.exits(0);
    assert!(
        ran.stderr.contains("is asked for twice; it is taken once"),
        "{}",
        ran.transcript()
    );
    assert_eq!(names(&project).len(), 3);
    assert_eq!(names(&project)[0], "first");
    let variables = variables(&project);
    assert_eq!(
        variables[0],
        value!({"model": "mine", "generator.temperature": 0.1})
    );
    let of_command =
        value!({"model": "other", "generator.temperature": 0.9, "max_retries": 3, "budget": 0.5});
    assert_eq!(variables[1], of_command);
    assert_eq!(variables[2], of_command);
}

#[test]
fn every_faulty_file_is_reported_and_nothing_is_written() {
    let server = always_right();
    let project = project(&["good"], &server)
        .file("specs/one.yaml", "name: x\n")
        .file("specs/two.yaml", "name: [\n")
        .file("specs/three.yaml", "name: x\ndescription: y\nchecks: 5\n")
        .file(
            "specs/m.jsonl",
            "{\"spec\": \"good.yaml\", \"what\": 1}\n{\"spec\": \"good.yaml\", \"name\": \"-\"}\n",
        );
    let ran = project.run(&[
        "fleet",
        "run",
        "specs",
        "specs/m.jsonl",
        "specs/gone.yaml",
        "no*.yaml",
    ]);
    let ran = ran
        .exits(65)
        .says("specs/one.yaml:")
        .says("specs/two.yaml:")
        .says("specs/three.yaml:3:9")
        .says("specs/m.jsonl:1:")
        .says("specs/m.jsonl:2:")
        .says("specs/gone.yaml")
        .says("no*.yaml");
    assert!(!project.exists("fleet"), "{}", ran.transcript());
    assert_eq!(server.count(), 0);
}

#[test]
fn bad_command_lines_are_refused() {
    let server = always_right();
    let project = project(&["a"], &server).file("full/x.txt", "x");
    let check = |arguments: &[&str], code: i32, says: &str| {
        let words = [&["fleet"], arguments].concat();
        project.run(&words).exits(code).says(says);
    };
    check(&["run"], 64, "SPECS");
    check(
        &["run", "specs", "--out", "full"],
        64,
        "is not empty and not the directory of a fleet",
    );
    check(
        &["run", "specs", "--out", "specs/a.yaml"],
        64,
        "is not a directory",
    );
    check(&["run", "specs", "--jobs", "0"], 64, "--jobs");
    check(
        &["run", "specs", "--detach"],
        64,
        "--detach does not work with --engine local",
    );
    check(
        &["run", "specs", "--sbatch=-p x"],
        64,
        "--sbatch does not work with --engine local",
    );
    check(
        &["run", "specs", "--matrix", "model"],
        64,
        "expected KEY=V1,V2",
    );
    check(
        &["run", "specs", "--matrix", "provider=nobody"],
        65,
        "provider",
    );
    check(&["run", "specs", "--set", "nothing=1"], 65, "nothing");
    check(&["resume", "full"], 64, "there is no fleet in");
    check(&["task", "full", "0"], 64, "there is no fleet in");
    check(&["cancel", "full"], 64, "there is no fleet in");
    assert!(!project.exists("fleet"));
    assert_eq!(server.count(), 0);
}

#[test]
fn several_entries_of_one_name_are_refused() {
    let server = always_right();
    let line = |spec: &str| format!("{{\"spec\": \"{spec}.yaml\", \"name\": \"same\"}}\n");
    let project = project(&["a", "b"], &server);
    project.write("specs/m.jsonl", line("a") + &line("b"));
    project
        .run(&["fleet", "plan", "specs/m.jsonl"])
        .exits(65)
        .says("m.jsonl:2:1: the name \"same\" is given");
    project.write("specs/m.jsonl", line("a"));
    project
        .run(&["fleet", "plan", "specs/m.jsonl", "--repeat", "2"])
        .exits(65)
        .says("m.jsonl:1:1:");
}

#[test]
fn dry_run_prints_the_entries_and_writes_nothing() {
    let server = always_right();
    let project = project(&["a", "b"], &server);
    let ran = project
        .run(&[
            "fleet",
            "run",
            "specs",
            "--dry-run",
            "--matrix",
            "model=x,y",
        ])
        .exits(0);
    assert_eq!(ran.stdout.lines().count(), 4, "{}", ran.stdout);
    assert!(ran.stdout.contains("{\"model\":\"x\"}"), "{}", ran.stdout);
    assert!(!project.exists("fleet"));
}

#[test]
fn entries_that_are_not_asked_for_are_left_out() {
    let server = always_right();
    let project = project(&["a", "b"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let ran = project.run(&["fleet", "run", "specs/b.yaml"]).exits(0);
    assert!(
        ran.stdout.starts_with("SUCCESS: 1 succeeded, 1 left out"),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), 1);
    project.run(&["fleet", "run", "specs"]).exits(0);
    assert_eq!(server.count(), 2);
}

#[test]
fn a_name_does_not_depend_on_how_a_path_is_typed() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.write("lists/all.jsonl", "{\"spec\": \"../specs/./a.yaml\"}\n");
    let absolute = project.path("specs/a.yaml");
    let absolute = absolute.to_str().unwrap();
    let spellings = [
        "specs/a.yaml",
        "./specs",
        "specs//a.yaml",
        "lists/../specs/*.yaml",
        "lists/all.jsonl",
        absolute,
    ];
    let words = [&["fleet", "plan"], &spellings[..]].concat();
    let ran = project.run(&words).exits(0);
    assert_eq!(names(&project).len(), 1, "{:?}", names(&project));
    let entry = &json(&project, "fleet.json")["entries"][0];
    assert!(!entry["spec"].as_str().unwrap().contains("/."), "{entry}");
    assert_eq!(ran.stderr.matches("is asked for twice").count(), 1);
    // So does the directory of the fleet, which is part of messages and of paths below it.
    let moved = ["fleet", "plan", "fleet/a.yaml", "--out", "specs/../fleet"];
    project.write("fleet/a.yaml", project.read("specs/a.yaml"));
    project.run(&moved).exits(0);
    assert_eq!(json(&project, "fleet.json")["entries"][1]["spec"], "a.yaml");
}

#[test]
fn a_manifest_wins_also_where_an_option_is_given_as_a_field() {
    let server = always_right();
    let project = project(&["a"], &server);
    let lines = [
        r#"{"spec": "a.yaml", "set": {"generator.model": "mine", "budget.usd": 2}}"#,
        r#"{"spec": "a.yaml", "model": "mine", "budget": 3}"#,
    ];
    project.write("specs/all.jsonl", lines.join("\n"));
    let more = ["--matrix", "model=x", "--set", "budget.usd=9"];
    let plan = ["fleet", "plan", "specs/all.jsonl"];
    project.run(&[&plan[..], &more].concat()).exits(0);
    let expected = [
        value!({"generator.model": "mine", "budget.usd": 2}),
        value!({"model": "mine", "budget": 3}),
    ];
    assert_eq!(variables(&project), expected);
}

#[test]
fn a_matrix_is_given_once_and_has_values() {
    let server = always_right();
    let project = project(&["a"], &server);
    let plan = ["fleet", "plan", "specs", "--matrix"];
    let twice = ["model=a", "--matrix", "model=b"];
    project
        .run(&[&plan[..], &twice].concat())
        .exits(64)
        .says("`model` has a matrix already");
    project
        .run(&[&plan[..], &["model=a,,b"]].concat())
        .exits(64)
        .says("invalid --matrix \"model=a,,b\"");
    assert!(!project.exists("fleet"));
}

#[test]
fn with_json_there_is_an_object_whatever_happens() {
    let server = always_right();
    let project = project(&["a"], &server)
        .file("full/x.txt", "x")
        .file("bad.yaml", "name: x\n");
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let words = [&["fleet", "run", "--json"], arguments].concat();
        let ran = project.run(&words).exits(code).says(says);
        let object = summary(&ran.stdout);
        assert_eq!(object["outcome"], "REFUSED");
        assert_eq!(object["exit_code"], code);
        assert_eq!(object["entries"], value!([]));
        let note = object["notes"][0].as_str().unwrap();
        assert!(note.contains(says), "{object}");
    };
    refused(&["bad.yaml"], 65, "description");
    refused(&["specs", "--out", "full"], 64, "is not empty");
    let ran = project.run(&["fleet", "run", "specs", "--json", "--dry-run"]);
    let object = summary(&ran.exits(0).stdout);
    assert_eq!(object["fleet_id"], Value::Null);
    assert_eq!(object["entries"][0]["state"], "waiting");
    // Nothing is spent, and that is not less than nothing.
    assert!(object["spent_usd"].as_f64().unwrap().is_sign_positive());
    assert!(!project.exists("fleet"));
}

#[test]
fn an_entry_whose_name_begins_with_a_dash_is_an_entry() {
    let server = always_right();
    let project = project(&["-a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let name = names(&project)[0].clone();
    assert!(name.starts_with("-a-"), "{name}");
    project.run(&["fleet", "cancel", "fleet", &name]).exits(0);
    let ran = project.run(&["fleet", "task", "fleet", &name, "--wait-lock", "1"]);
    assert_eq!(ran.exits(4).outcome_and_reason().1, "cancelled");
}

#[test]
fn a_failure_whose_spec_is_gone_does_not_decide_how_the_fleet_ends() {
    let server = Server::answering(|request| match request.text().contains("wrong") {
        true => reply::answer("41").usage(100, 10),
        false => right(),
    });
    let project = project(&["a", "b"], &server);
    let text = project.read("specs/a.yaml");
    let text = text.replace("Write the answer", "Write the wrong answer");
    project.write("specs/a.yaml", text + "max_retries: 1\n");
    project.run(&["fleet", "run", "specs"]).exits(1);
    std::fs::remove_file(project.path("specs/a.yaml")).unwrap();
    let ran = project
        .run(&["fleet", "resume", "fleet", "--json"])
        .exits(0);
    let end = summary(&ran.stdout);
    assert_eq!(
        (&end["counts"]["left_out"], &end["counts"]["success"]),
        (&value!(1), &value!(1))
    );
    assert_eq!(end["entries"][0]["state"], "left_out");
    assert_eq!(end["entries"][0]["outcome"], "FAILED");
    // What was tried stays in the report.
    let report = project
        .run(&["fleet", "report", "fleet", "--json"])
        .exits(0);
    let solved = &summary(&report.stdout)["solved"][0];
    assert_eq!(
        (&solved["solved"], &solved["total"]),
        (&value!(1), &value!(2))
    );
}

#[test]
fn a_glob_has_no_files_of_a_fleet_and_may_have_none_left() {
    let server = always_right();
    let project = project(&["a"], &server);
    let run = ["fleet", "run", "./**/*.yaml", "specs"];
    project.run(&run).exits(0);
    project.write(
        "fleet/roots/x/workspace/made.yaml",
        "not: a spec of the user\n",
    );
    project.run(&run).exits(0);
    assert_eq!(names(&project).len(), 1);
    std::fs::remove_file(project.path("specs/a.yaml")).unwrap();
    let ran = project.run(&run).exits(0);
    assert!(
        ran.stderr.contains("a.yaml is gone"),
        "{}",
        ran.transcript()
    );
    project.run(&["fleet", "resume", "fleet"]).exits(0);
    assert_eq!(server.count(), 1);
}
