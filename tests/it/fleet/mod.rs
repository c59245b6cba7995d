//! `fleet`: many specs, each in a root of its own, with one budget.

mod crash;
mod interrupts;
mod money;
mod plan;
mod progress;
mod report;
mod tasks;

use std::fs;

use serde_json::Value;

use crate::support::project::{Project, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

/// The fields of the scripted model: 3 and 15 USD per million tokens, at most 1,000 tokens of output.
const MODEL: &str =
    "generator: {model: scripted, price: {input: 3.0, output: 15.0}, max_tokens: 1000}\n";

/// A project with specs of these names, whose check passes with 42 in `answer.txt`.
fn project(specs: &[&str], server: &Server) -> Project {
    specs
        .iter()
        .fold(Project::new().model(server), |project, name| {
            let text = answer_spec().replace("name: answer\n", &format!("name: {name}\n")) + MODEL;
            project.file(&format!("specs/{name}.yaml"), text)
        })
}

/// A server that answers every request with 42.
fn always_right() -> Server {
    Server::answering(|_| right())
}

fn right() -> Reply {
    reply::answer("42").usage(100, 10)
}

/// A JSON file of the fleet in `fleet/`.
fn json(project: &Project, path: &str) -> Value {
    serde_json::from_str(&project.read(&format!("fleet/{path}"))).unwrap()
}

/// The names of the entries, in the order of the plan.
fn names(project: &Project) -> Vec<String> {
    let plan = json(project, "fleet.json");
    let entries = plan["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The name of the entry of a spec.
fn name_of(project: &Project, stem: &str) -> String {
    let prefix = format!("{stem}-");
    let names = names(project);
    let name = names.iter().find(|name| name.starts_with(&prefix));
    name.unwrap_or_else(|| panic!("{stem} is not in {names:?}"))
        .clone()
}

fn result(project: &Project, stem: &str) -> Value {
    json(project, &format!("results/{}.json", name_of(project, stem)))
}

/// The summary on standard output.
fn summary(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

#[test]
fn every_spec_is_run_once_in_a_root_of_its_own() {
    let server = always_right();
    let project = project(&["a", "b", "c"], &server);
    let ran = project.run(&["fleet", "run", "specs"]).exits(0);
    assert!(
        ran.stdout.starts_with("SUCCESS: 3 succeeded"),
        "{}",
        ran.transcript()
    );
    assert_eq!(ran.stdout.lines().count(), 1);
    assert_eq!(
        ran.stderr.matches("SUCCESS (tests_passed)").count(),
        3,
        "{}",
        ran.stderr
    );
    assert_eq!(server.count(), 3);
    let plan = json(&project, "fleet.json");
    let ledger = json(&project, "ledger.json");
    for (index, stem) in ["a", "b", "c"].into_iter().enumerate() {
        let name = name_of(&project, stem);
        assert_eq!(names(&project)[index], name);
        let result = result(&project, stem);
        assert_eq!(result["outcome"], "SUCCESS");
        assert_eq!(result["spec_hash"], plan["entries"][index]["spec_hash"]);
        assert_eq!(result["needs_usd"], Value::Null);
        // 100 * 3 + 10 * 15 micro-dollars.
        assert_eq!(ledger["reserved"][&name], 450);
        let answer = project.read(&format!("fleet/roots/{name}/workspace/answer.txt"));
        assert_eq!(answer, "42\n");
    }
    // The same command again asks for nothing.
    let again = project.run(&["fleet", "run", "specs", "--json"]).exits(0);
    let summary = summary(&again.stdout);
    assert_eq!(summary["counts"]["success"], 3);
    assert_eq!(summary["entries"][2]["starts"], 1);
    assert_eq!(
        summary["spent_usd"].as_f64().map(|usd| (usd * 1e6).round()),
        Some(1350.0)
    );
    assert_eq!(server.count(), 3);
    project.nothing_left();
}

#[test]
fn new_specs_join_and_changed_ones_start_afresh() {
    let server = always_right();
    let project = project(&["b", "c"], &server);
    project.run(&["fleet", "run", "specs"]).exits(0);
    let before = names(&project);
    let text = project.read("specs/b.yaml");
    project.write("specs/a.yaml", text.replace("name: b", "name: a"));
    project.write(
        "specs/b.yaml",
        text.replace("Write the answer", "Write the new answer"),
    );
    project.run(&["fleet", "run", "specs"]).exits(0);
    assert_eq!(server.count(), 4);
    // Entries keep their index; new ones are appended.
    assert_eq!(names(&project)[..2], before);
    assert!(names(&project)[2].starts_with("a-"));
    // What was spent before still counts.
    let ledger = json(&project, "ledger.json");
    assert_eq!(ledger["reserved"][name_of(&project, "b")], 900);
    // A spec that is gone is left out.
    fs::remove_file(project.path("specs/c.yaml")).unwrap();
    let ran = project.run(&["fleet", "resume", "fleet"]).exits(0);
    let ran = ran.says("is left out: ").says("c.yaml is gone");
    assert!(ran.stdout.contains("3 succeeded"), "{}", ran.transcript());
    assert_eq!(server.count(), 4);
}

#[test]
fn a_failed_entry_is_a_failed_fleet_and_can_be_continued() {
    let server = Server::answering(|request| match request.text().contains("says 41") {
        true => right(),
        false => reply::answer("41").usage(100, 10),
    });
    let project = project(&["a"], &server);
    let limit = ["--set", "max_retries=1"];
    let wrong = Server::answering(|_| reply::answer("41").usage(100, 10));
    let command = [&["fleet", "run", "specs"], &limit[..]].concat();
    let ran = project.run_with(&wrong, &command).exits(1);
    assert!(
        ran.stdout.starts_with("FAILED: 1 failed"),
        "{}",
        ran.transcript()
    );
    assert_eq!(result(&project, "a")["reason"], "retries_exhausted");
    assert_eq!(wrong.count(), 2);
    // Neither the same command nor a plain resume starts it again.
    let ran = project.run(&command).exits(1);
    ran.says("next: orchestrator fleet resume ")
        .says(" --failed");
    project.run(&["fleet", "resume", "fleet"]).exits(1);
    assert_eq!(server.count(), 0);
    let ran = project
        .run(&["fleet", "resume", "fleet", "--failed", "--json"])
        .exits(0);
    assert_eq!(summary(&ran.stdout)["outcome"], "SUCCESS");
    assert_eq!(result(&project, "a")["outcome"], "SUCCESS");
    let failed_run = &json(&project, "fleet.json")["entries"][0]["continues"];
    let root = format!("fleet/roots/{}", name_of(&project, "a"));
    let state: Value = serde_json::from_str(&project.read(&format!("{root}/state.json"))).unwrap();
    assert_eq!(state["continues"], *failed_run);
    // All three answers count.
    let ledger = json(&project, "ledger.json");
    assert_eq!(ledger["reserved"][name_of(&project, "a")], 3 * 450);
    // Once more changes nothing.
    project
        .run(&["fleet", "resume", "fleet", "--failed"])
        .exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn status_shows_every_entry_and_what_goes_on() {
    let server = always_right();
    let project = project(&["a", "b"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let ran = project.run(&["fleet", "status", "fleet"]).exits(0);
    assert_eq!(ran.stdout.matches(" waiting").count(), 3, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("next: orchestrator fleet resume "),
        "{}",
        ran.stdout
    );
    project.run(&["fleet", "resume", "fleet"]).exits(0);
    let ran = project
        .run(&["fleet", "status", "fleet", "--json"])
        .exits(0);
    let status = summary(&ran.stdout);
    assert_eq!(status["counts"]["success"], 2);
    assert_eq!(status["next"], Value::Null);
    for field in [
        "name",
        "spec",
        "variables",
        "outcome",
        "reason",
        "exit_code",
        "starts",
        "run_id",
        "usage",
        "seconds",
        "host",
        "root",
    ] {
        assert!(!status["entries"][0][field].is_null(), "{field}: {status}");
    }
    project
        .run(&["fleet", "status", "specs"])
        .exits(64)
        .says("there is no fleet in");
}

#[test]
fn a_directory_can_be_moved() {
    let server = always_right();
    let project = project(&["a"], &server);
    project.run(&["fleet", "run", "specs"]).exits(0);
    fs::rename(project.path("fleet"), project.path("moved")).unwrap();
    let ran = project.run(&["fleet", "resume", "moved"]).exits(0);
    assert!(ran.stdout.contains("1 succeeded"), "{}", ran.transcript());
    assert_eq!(server.count(), 1);
}

#[test]
fn a_fleet_is_never_copied_into_a_workspace() {
    let server = always_right();
    let spec =
        answer_spec() + "workspace: {copy: [{from: .., to: all}]}\nbaseline: false\n" + MODEL;
    let project = Project::new()
        .model(&server)
        .file("specs/a.yaml", spec)
        .file("kept.txt", "x");
    project.run(&["fleet", "run", "specs"]).exits(0);
    project.run(&["fleet", "run", "specs"]).exits(0);
    assert_eq!(server.count(), 1);
    let root = format!("fleet/roots/{}/workspace", name_of(&project, "a"));
    assert!(project.exists(&format!("{root}/all/kept.txt")));
    assert!(!project.exists(&format!("{root}/all/fleet")));
}
