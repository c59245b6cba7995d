//! The checks run once before the first request, on what the spec takes in.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON};
use crate::support::reply;
use crate::support::server::{Received, Server};

const CHECK: &str = "echo \"seen: $(cat answer.txt)\"; grep -qx 42 answer.txt";

/// A spec that copies `answer.txt`; more fields replace or add to its own.
fn spec(script: &str, more: Value) -> String {
    let mut spec = json!({
        "name": "answer",
        "description": "Write the answer to answer.txt.",
        "workspace": {"copy": ["answer.txt"]},
        "baseline": true,
        "checks": [{"name": "unit", "command": ["sh", "-c", script]}],
    });
    for (name, value) in more.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec.to_string()
}

fn project(server: &Server, given: &str, more: Value) -> Project {
    Project::with(spec(CHECK, more), server).file("specs/answer.txt", given)
}

fn events_before_the_first_request(project: &Project) -> Vec<String> {
    let lines = project.log();
    let names = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap().to_owned());
    names.take_while(|name| name != "ModelRequested").collect()
}

#[test]
fn the_first_request_has_the_report_and_asks_to_make_the_checks_pass() {
    let server = Server::start([reply::answer("42")]);
    let project = project(&server, "40\n", json!({}));
    project
        .run(RUN)
        .exits(0)
        .says("running the checks before the first request");
    let before = events_before_the_first_request(&project);
    assert_eq!(
        before
            .iter()
            .filter(|name| *name == "BaselineFinished")
            .count(),
        1
    );
    assert!(before.contains(&"ScriptOutput".into()));
    let asked = server.requests()[0].text();
    for words in ["seen: 40", "make all checks pass", "This is attempt 1 of 6"] {
        assert!(asked.contains(words), "no {words:?} in {asked}");
    }
    for words in ["Write the project now", "those of the last attempt"] {
        assert!(!asked.contains(words), "{words:?} in {asked}");
    }
    assert_eq!(
        project.phases(),
        ["INIT", "GENERATING", "TESTING", "SUCCESS"]
    );
    assert_eq!(project.state()["reason"], "tests_passed");
}

#[test]
fn there_is_none_without_files_of_the_user_or_if_the_spec_turns_it_off() {
    for more in [json!({"workspace": {}}), json!({"baseline": false})] {
        let server = Server::start([reply::answer("42")]);
        let project = project(&server, "40\n", more);
        project.run(RUN).exits(0);
        assert!(project.events("BaselineFinished").is_empty());
        assert!(
            server.requests()[0]
                .text()
                .contains("Write the project now")
        );
    }
}

#[test]
fn nothing_is_asked_if_all_checks_pass() {
    let server = Server::start([]);
    let more = json!({"checks": [
        {"name": "unit", "command": ["sh", "-c", CHECK]},
        {"name": "held", "command": ["grep", "-qx", "42", "answer.txt"], "hidden": true},
    ]});
    let project = project(&server, "42\n", more);
    let ran = project.run(RUN_JSON).exits(0);
    assert_eq!(
        ran.outcome_and_reason(),
        ("SUCCESS".into(), "already_green".into())
    );
    assert!(
        ran.result()["message"]
            .as_str()
            .unwrap()
            .contains("without any work")
    );
    assert_eq!(
        (server.count(), project.state()["retry_count"].as_u64()),
        (0, Some(0))
    );
    assert_eq!(
        project.phases(),
        ["INIT", "GENERATING", "TESTING", "SUCCESS"]
    );
    // Once before, once in TESTING.
    assert_eq!(project.events("ScriptOutput").len(), 4);
    let again = project.run(RUN_JSON).exits(0);
    assert_eq!(
        again.outcome_and_reason(),
        ("SUCCESS".into(), "already_green".into())
    );
}

#[test]
fn a_check_that_passes_only_at_first_is_patched() {
    let script = "if test -e ../seen; then exit 1; fi; grep -qx 42 answer.txt";
    let server = Server::start([reply::answer("42")]);
    // Unsandboxed, so that the check can leave a mark outside of the workspace.
    let project = Project::with(
        spec(&format!("{script} && {{ test -e ../once && touch ../seen; touch ../once; grep -q x ../fixed || ! test -e ../seen; }}"), json!({"max_retries": 1})),
        &server,
    )
    .file("specs/answer.txt", "42\n");
    let ran = project
        .run(&["run", "--spec", "specs/spec.yaml", "--no-sandbox", "--json"])
        .exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "retries_exhausted".into())
    );
    assert_eq!(server.count(), 1);
}

#[test]
fn a_red_hidden_check_asks_the_model_and_shows_nothing() {
    let server = Server::start([reply::answer("42")]);
    let more = json!({"checks": [
        {"name": "unit", "command": ["test", "-e", "answer.txt"]},
        {"name": "held", "command": ["sh", "-c", "echo SECRET-OUTPUT; grep -qx 42 answer.txt"], "hidden": true},
    ]});
    let project = project(&server, "40\n", more);
    project.run(RUN).exits(0);
    let asked = server.requests()[0].text();
    assert!(
        asked.contains("A hidden check failed") && !asked.contains("SECRET-OUTPUT"),
        "{asked}"
    );
}

#[test]
fn what_the_checks_leave_is_undone_and_a_timeout_ends_nothing() {
    let script = "mkdir -p target; touch debris target/debris; echo 1 >> answer.txt; grep -qx 42 answer.txt || sleep 1000";
    let server = Server::answering(|_: &Received| reply::answer("42"));
    let more = json!({"checks": [{"name": "unit", "command": ["sh", "-c", script], "timeout": 1}], "on_timeout": "fail"});
    let project = Project::with(spec("", more), &server).file("specs/answer.txt", "40\n");
    project.run(RUN).exits(0);
    let asked = server.requests()[0].text();
    assert!(
        asked.contains("timed out") || asked.contains("timeout"),
        "{asked}"
    );
    assert!(asked.contains("answer.txt\">\n40\n</file>"), "{asked}");
    assert!(!asked.contains("path=\"debris\""), "{asked}");
    // What the same check left in TESTING stays.
    assert_eq!(project.workspace("answer.txt"), "42\n1\n");
}

#[test]
fn its_counts_are_not_those_of_an_earlier_round_and_it_is_no_attempt() {
    let tests = "import unittest, calc\nclass T(unittest.TestCase):\n    pass\nfor i in range(calc.MANY):\n    \
        setattr(T, 'test_%d' % i, lambda self: self.assertTrue(calc.GOOD))\n";
    let server = Server::start([reply::files(&[("calc.py", "MANY = 1\nGOOD = True\n")])]);
    let more = json!({
        "workspace": {"copy": ["calc.py"], "protect": ["tests/"]},
        "checks": [{"name": "unit", "command": ["python3", "-m", "unittest", "discover", "-s", "tests"]}],
    });
    let project = Project::with(spec("", more), &server)
        .file("specs/calc.py", "MANY = 5\nGOOD = False\n")
        .file("specs/tests/test_calc.py", tests);
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 0);
    let attempts = project.run(&["attempts", "--json"]).exits(0);
    assert_eq!(
        serde_json::from_str::<Vec<Value>>(&attempts.stdout)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_kill_during_it_loses_nothing() {
    let script = "grep -qx 42 answer.txt && exit; test -e began && exit 1; touch began; sleep 1000";
    let server = Server::start([reply::answer("42")]);
    let more = json!({"checks": [{"name": "unit", "command": ["sh", "-c", script], "timeout": 3}]});
    let project = Project::with(spec("", more), &server).file("specs/answer.txt", "40\n");
    let mut running = project.start(RUN);
    running.until("the check has begun", || project.exists("workspace/began"));
    assert_eq!(project.state()["state"], "INIT");
    let first = project.state_text("run_id");
    running.signal(Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
    assert_eq!((project.state_text("run_id"), server.count()), (first, 1));
    assert_eq!(project.workspace_names(), ["answer.txt"]);
    project.nothing_left();
}

#[test]
fn an_own_prompt_without_the_report_gets_it_at_its_end() {
    let server = Server::start([reply::answer("42")]);
    let more = json!({"generator": {"prompts": "prompts/"}});
    let project = project(&server, "40\n", more)
        .file("specs/prompts/generate.md", "OWN {{spec}}\n{{files}}\n");
    project.run(RUN).exits(0);
    let asked = server.requests()[0].text();
    assert!(
        asked.contains("OWN ") && asked.contains("seen: 40"),
        "{asked}"
    );
}

#[test]
fn in_agent_mode_the_opening_has_the_report() {
    let server = Server::start([reply::bash("echo 42 > answer.txt"), reply::text("done")]);
    let project = project(&server, "40\n", json!({"generator": {"mode": "agent"}}));
    project.run(RUN).exits(0);
    let asked = server.requests()[0].text();
    assert!(
        asked.contains("seen: 40") && asked.contains("make all checks pass"),
        "{asked}"
    );
}

#[test]
fn a_run_with_a_baseline_and_snapshots_is_replayed() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = project(&server, "40\n", json!({}));
    project.run(RUN).exits(0);
    let files = project.workspace_files();
    let log = project.log_path();
    project
        .run(&["run", "--spec", "specs/spec.yaml", "--replay", &log])
        .exits(0);
    assert_eq!((project.workspace_files(), server.count()), (files, 2));
    assert_eq!(project.events("BaselineFinished").len(), 1);
    assert_eq!(project.events("SnapshotKept").len(), 2);
}
