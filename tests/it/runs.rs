//! `runs`: the runs of a root with their outcomes, by their logs.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, RUN, answer_spec};
use crate::support::reply;
use crate::support::server::Server;
use crate::support::workflow::FLOW;

/// The list of `runs --json`; the command changes nothing.
fn runs(project: &Project) -> Vec<Value> {
    let before = project.files();
    let ran = project.run(&["runs", "--json"]).exits(0);
    assert_eq!(project.files(), before);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn outcomes(project: &Project) -> Vec<String> {
    let runs = runs(project);
    let outcomes = runs.iter().map(|run| run["outcome"].as_str().unwrap());
    outcomes.map(str::to_owned).collect()
}

/// Starts a run whose first request is not answered, and stops it.
fn stopped(project: &Project, signal: Signal) {
    let server = Server::start([reply::answer("42").held()]);
    let held = [RUN, &["--no-resume"]].concat();
    let mut command = project.command(&project.binary(), &held);
    command.env("ANTHROPIC_BASE_URL", server.url());
    let running = crate::support::running::Running::start(command, project.root());
    server.wait_for(1);
    assert_eq!(outcomes(project).last().unwrap(), "RUNNING");
    running.signal(signal);
    running.wait();
}

#[test]
fn a_root_without_runs_says_so_and_nothing_is_made() {
    let project = Project::new();
    let ran = project.run(&["runs"]).exits(0);
    assert!(ran.stdout.starts_with("no run in "), "{}", ran.stdout);
    assert_eq!(project.run(&["runs", "--json"]).exits(0).stdout, "[]\n");
    let entries = fs::read_dir(project.root()).unwrap();
    assert_eq!(entries.count(), 1, "specs/ alone");
    project.run(&["runs", "--root", "missing"]).exits(64);
}

#[test]
fn every_run_is_listed_with_its_outcome() {
    let server = Server::start([
        reply::answer("1").usage(1000, 100),
        reply::answer("2").usage(1000, 100),
        reply::answer("42"),
        reply::status(401),
    ]);
    let spec = answer_spec()
        + "max_retries: 1\ngenerator: {model: m, price: {input: 3.0, output: 15.0}}\n";
    let project = Project::with(&spec, &server);
    project.run(RUN).exits(1);
    let first = project.state_text("run_id");
    project.run(&["reset"]).exits(0);
    project.write("specs/other.yaml", spec.replace("Write", "Put"));
    project.run(&["run", "--spec", "specs/other.yaml"]).exits(0);
    project.run(&[RUN, &["--no-resume"]].concat()).exits(4);
    stopped(&project, Signal::INT);
    stopped(&project, Signal::KILL);
    let expected = ["FAILED", "SUCCESS", "PAUSED", "INTERRUPTED", "KILLED"];
    assert_eq!(outcomes(&project), expected);
    let runs = runs(&project);
    let log = project.read(&format!("logs/{first}.log"));
    let begun: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    let listed = json!({
        "run_id": first, "kind": "build", "spec_file": "specs/spec.yaml", "started_at": begun["ts"],
        "outcome": "FAILED", "reason": "retries_exhausted", "attempts": 2, "cost_usd": 0.009, "continues": null,
    });
    assert_eq!(runs[0], listed);
    let field = |name: &str| runs.iter().map(|run| run[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("attempts"), [2, 1, 0, 0, 0]);
    let reasons = json!([
        "retries_exhausted",
        "tests_passed",
        "provider_unauthorized",
        "interrupted",
        null
    ]);
    assert_eq!(json!(field("reason")), reasons);
    let shown = project.run(&["runs"]).exits(0).stdout;
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    for (line, run) in lines.iter().zip(&runs) {
        for name in ["run_id", "outcome", "spec_file"] {
            assert!(line.contains(run[name].as_str().unwrap()), "{line}");
        }
        let begun = run["started_at"].as_str().unwrap().replace('T', " ");
        assert!(line.contains(begun.split('.').next().unwrap()), "{line}");
    }
    assert!(lines[0].contains("0.0090 USD"), "{shown}");
    // Without any state the logs say the same.
    let kept = fs::read_dir(project.path("logs")).unwrap().flatten();
    for entry in kept.filter(|entry| entry.path().is_dir()) {
        fs::remove_dir_all(entry.path()).unwrap();
    }
    fs::remove_file(project.path("state.json")).unwrap();
    assert_eq!(outcomes(&project), expected);
}

#[test]
fn a_log_that_cannot_be_read_is_named_and_the_others_are_listed() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let first = project.state_text("run_id");
    project.run(&["reset"]).exits(0);
    project.run(RUN).exits(0);
    let unreadable = [
        "00000000-0000-4000-8000-000000000000",
        "00000000-0000-4000-8000-000000000001",
    ];
    fs::create_dir(project.path(&format!("logs/{}.log", unreadable[0]))).unwrap();
    project.write(&format!("logs/{}.log", unreadable[1]), "{}\n\0\n");
    project.write("logs/notes.txt", "mine");
    project.write("logs/mine.log", "mine");
    let ran = project.run(&["runs", "--json"]).exits(0);
    for id in unreadable {
        assert!(ran.stderr.contains(id), "{}", ran.transcript());
    }
    assert_eq!(runs(&project).len(), 2);
    // What is missing in a log is in the state, also in that of an older run.
    for id in [&first, &project.state_text("run_id")] {
        fs::remove_file(project.path(&format!("logs/{id}.log"))).unwrap();
    }
    let runs = runs(&project);
    let ids: BTreeSet<&str> = runs
        .iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    assert!(ids.contains(first.as_str()) && ids.len() == 2);
    for run in &runs {
        assert_eq!(
            (&run["outcome"], &run["attempts"]),
            (&json!("SUCCESS"), &json!(1))
        );
    }
}

#[test]
fn workflows_and_what_a_run_continues_are_shown() {
    let project = Project::new().file("flow/START.sh", "echo '<result>x</result>'");
    project.run(FLOW).exits(0);
    let listed = &runs(&project)[0];
    assert_eq!(
        (&listed["kind"], &listed["spec_file"], &listed["outcome"]),
        (
            &json!("workflow"),
            &json!("flow/START.sh"),
            &json!("SUCCESS")
        )
    );
    assert_eq!(listed["attempts"], 0);
    let earlier = "00000000-0000-4000-8000-000000000000";
    let log = project.read(&project.log_path());
    let continues = format!("\"continues\":\"{earlier}\",\"resumed\":false");
    project.write(
        &project.log_path(),
        log.replacen("\"resumed\":false", &continues, 1),
    );
    assert_eq!(runs(&project)[0]["continues"], earlier);
    let shown = project.run(&["runs"]).exits(0).stdout;
    assert!(shown.contains(&format!("(continues {earlier})")), "{shown}");
}
