//! Rounds of checks: executed tests are recorded, a later round must not lose any, and failures can be run again.

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

/// Tests whose number depends on the code under test, and one that it can skip.
const TESTS: &str = "import unittest, calc\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
    self.assertEqual(calc.add(2, 3), 5)\n    @unittest.skipIf(calc.SKIPS, 'not now')\n    def test_much(self):\n        pass\n\
    def make(i):\n    def test(self):\n        self.assertEqual(calc.add(i, i), 2 * i)\n    return test\n\
    for i in range(calc.MANY):\n    setattr(T, 'test_%d' % i, make(i))\n";

fn code(many: u32, skips: &str, operator: &str) -> Reply {
    reply::files(&[(
        "calc.py",
        &format!("MANY = {many}\nSKIPS = {skips}\ndef add(a, b):\n    return a {operator} b\n"),
    )])
}

/// A project with one check of these tests; more fields of the check may be given.
fn project(server: &Server, more: Value) -> Project {
    let mut check = json!({"name": "unit", "command": ["python3", "-m", "unittest", "discover", "-s", "tests"]});
    for (name, value) in more.as_object().unwrap() {
        check[name] = value.clone();
    }
    let mut spec = json!({"name": "calc", "description": "Add.", "max_retries": 1, "baseline": false, "checks": [check]});
    if check["hidden"] != json!(true) {
        spec["workspace"] = json!({"protect": ["tests/"]});
    }
    Project::new()
        .model(server)
        .spec(spec.to_string())
        .file("specs/tests/test_calc.py", TESTS)
}

fn check(first: Reply, second: Reply, more: Value, expected: i32) -> Project {
    let server = Server::start([first, second]);
    let project = project(&server, more);
    project.run(RUN).exits(expected);
    project
}

#[test]
fn a_round_that_executes_fewer_tests_fails() {
    let project = check(code(5, "False", "-"), code(2, "False", "+"), json!({}), 1);
    let report = project.state_text("last_test_output");
    assert!(
        report.contains("exit code 0, but 4 tests were executed, and 7 in an earlier round"),
        "{report}"
    );
    check(code(2, "False", "-"), code(5, "False", "+"), json!({}), 0);
    check(
        code(5, "False", "-"),
        code(2, "False", "+"),
        json!({"min_tests": 2}),
        0,
    );
}

#[test]
fn a_test_that_is_newly_skipped_fails_the_check() {
    let project = check(code(5, "False", "-"), code(6, "True", "+"), json!({}), 1);
    let report = project.state_text("last_test_output");
    assert!(
        report.contains("skipped now: test_calc.T.test_much"),
        "{report}"
    );
    check(code(5, "True", "-"), code(5, "True", "+"), json!({}), 0);
}

/// The model gets the failure, but neither counts nor names.
#[test]
fn hidden_tests_are_counted_and_stay_hidden() {
    let hidden = json!({"hidden": true, "files": ["tests/"]});
    let project = check(code(5, "False", "-"), code(6, "True", "+"), hidden, 1);
    let report = project.state_text("last_test_output");
    assert!(
        report.contains("did not all run and pass") && !report.contains("test_much"),
        "{report}"
    );
}

/// What an earlier round executed is read from the log by any process that resumes.
#[test]
fn a_resumed_run_knows_what_earlier_rounds_executed() {
    for second in [code(2, "False", "+"), code(6, "True", "+")] {
        let server = Server::start([code(5, "False", "-"), reply::status(401), second]);
        let project = project(&server, json!({}));
        project.run(RUN).exits(4);
        project.run(RUN).exits(1);
        assert_eq!(project.state_text("reason"), "retries_exhausted");
    }
}

#[test]
fn counts_and_names_are_in_the_log_the_status_and_the_result() {
    let server = Server::start([code(1, "True", "-"), code(1, "True", "-")]);
    let project = project(&server, json!({}));
    let ran = project.run(RUN_JSON).exits(1);
    let tests = json!({"executed": 2, "passed": 1, "failed": 1, "skipped": 1, "failed_names": ["test_calc.T.test_add"]});
    let expected = json!([{"name": "unit", "passed": false, "flaky": false, "tests": tests}]);
    assert_eq!(ran.result()["checks"], expected);
    let lines = project.events("ScriptOutput");
    assert_eq!(
        (&lines[0]["tests"], &lines[0]["skipped_names"]),
        (&tests, &json!(["test_calc.T.test_much"]))
    );
    assert_eq!(
        lines[0]["first_executed"],
        json!(["test_calc.T.test_0", "test_calc.T.test_add"])
    );
    assert_eq!(
        lines[1]["first_executed"],
        Value::Null,
        "only what is new is written"
    );
    let report = project.state_text("last_test_output");
    assert!(
        report.contains("Tests: 2 executed, 1 passed, 1 failed, 1 skipped"),
        "{report}"
    );
    let status = project.run(&["status"]).exits(0).stdout;
    assert!(
        status.contains("unit: failed; tests: 2 executed, 1 passed, 1 failed, 1 skipped"),
        "{status}"
    );
    assert!(status.contains("failed: test_calc.T.test_add"), "{status}");
    // A finished run reports the same again.
    assert_eq!(project.run(RUN_JSON).exits(1).result()["checks"], expected);
}

/// A log of an earlier version has a number instead of the counts.
#[test]
fn logs_of_earlier_versions_are_read() {
    let server = Server::start([
        code(1, "False", "-"),
        reply::status(401),
        code(1, "False", "+"),
    ]);
    let project = project(&server, json!({}));
    project.run(RUN).exits(4);
    let log = project.read(&project.log_path());
    let (head, rest) = log.split_once("\"tests\":{").unwrap();
    let (_, tail) = rest.split_once("},").unwrap();
    project.write(&project.log_path(), format!("{head}\"tests\":9,{tail}"));
    project.run(RUN).exits(1);
    assert!(
        project
            .state_text("last_test_output")
            .contains("and 9 in an earlier round")
    );
}

fn rerun(passes_at: u32, reruns: u32) -> (Project, Value) {
    let script = format!("echo x >> runs; test $(wc -l < runs) -ge {passes_at}");
    let check = json!({"name": "wobbly", "command": ["sh", "-c", script], "rerun": reruns});
    let server = Server::start([reply::answer("42"), reply::answer("43")]);
    let spec = json!({"name": "x", "description": "x", "max_retries": 1, "checks": [check]});
    let project = Project::with(spec.to_string(), &server);
    let result = project.run(RUN_JSON).result();
    (project, result)
}

#[test]
fn a_failed_check_is_run_again_before_it_counts() {
    for (passes_at, reruns, code, runs) in [
        (2, 1, 0, 2),
        (3, 3, 0, 3),
        (1, 3, 0, 1),
        (9, 1, 1, 4),
        (2, 0, 0, 2),
    ] {
        let (project, result) = rerun(passes_at, reruns);
        assert_eq!(result["exit_code"], code, "{passes_at} {reruns}: {result}");
        assert_eq!(
            project.workspace("runs").lines().count(),
            runs,
            "{passes_at} {reruns}"
        );
    }
}

#[test]
fn a_pass_after_a_failure_is_reported_as_flaky() {
    let (project, result) = rerun(3, 2);
    assert_eq!(
        result["checks"],
        json!([{"name": "wobbly", "passed": true, "flaky": true, "tests": null}])
    );
    assert!(
        result["notes"]
            .to_string()
            .contains("check wobbly is flaky: it failed 2 times"),
        "{result}"
    );
    let flaky: Vec<Value> = project
        .events("ScriptOutput")
        .iter()
        .map(|line| line["flaky"].clone())
        .collect();
    assert_eq!(flaky, [false, false, true]);
    let (_, result) = rerun(2, 0);
    assert_eq!(result["checks"][0]["flaky"], false);
}

/// Without counts `min_tests` cannot be checked; the message says what to change.
#[test]
fn a_runner_without_counts_gets_a_hint() {
    let package = "{\"scripts\": {\"test\": \"mocha --reporter doc\"}}";
    let fake = "#!/bin/sh\necho '<section class=\"suite\">'\n";
    let server = Server::start([reply::answer("42"), reply::answer("43")]);
    let check = json!({"name": "js", "command": ["./mocha"], "min_tests": 1});
    let spec = json!({"name": "x", "description": "x", "max_retries": 1, "checks": [check], "workspace": {"copy": ["mocha", "package.json"]}});
    let project = Project::with(spec.to_string(), &server)
        .file("specs/mocha", fake)
        .file("specs/package.json", package);
    project.run_in_shell("chmod +x specs/mocha", &[]);
    project.run(RUN).exits(1);
    let report = project.state_text("last_test_output");
    assert!(
        report.contains("mocha: use the spec or json reporter"),
        "{report}"
    );
}
