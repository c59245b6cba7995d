//! Runs that lead nowhere end: equal failures in a row, and answers that change nothing.

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply::{self, Reply};
use crate::support::server::{Received, Server};

/// Answers that are all wrong, and differ from each other.
fn wrong(count: usize) -> Vec<Reply> {
    (0..count)
        .map(|number| {
            reply::files(&[
                ("answer.txt", "41\n"),
                ("other.txt", &format!("{number}\n")),
            ])
        })
        .collect()
}

fn check(spec: &str, replies: Vec<Reply>, reason: &str, requests: usize) -> (Project, Server) {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), reason.into()),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), requests, "{}", ran.transcript());
    (project, server)
}

#[test]
fn four_equal_failures_in_a_row_end_a_run() {
    let (project, server) = check(&answer_spec(), wrong(9), "stuck", 4);
    let state = project.state();
    assert_eq!(
        (&state["state"], &state["reason"]),
        (&json!("FAILED"), &json!("stuck"))
    );
    // The prompt mentions it from the third equal failure on.
    let told: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.text().contains("attempts failed in the same way"))
        .collect();
    assert_eq!(told, [false, false, false, true]);
    let last = server.requests()[3].text();
    assert!(
        last.contains("The last 3 attempts")
            && last.contains("- Attempt 3 wrote answer.txt, other.txt"),
        "{last}"
    );
}

#[test]
fn the_number_is_the_users_and_zero_turns_it_off() {
    let spec = |number: u32| answer_spec() + &format!("stuck_after: {number}\n");
    check(&spec(2), wrong(9), "stuck", 2);
    check(&spec(0), wrong(9), "retries_exhausted", 6);
    // Without retries left the run is over for want of them.
    check(
        &(spec(2) + "max_retries: 1\n"),
        wrong(9),
        "retries_exhausted",
        2,
    );
}

#[test]
fn another_failure_starts_the_count_again() {
    let answers = ["40", "41", "40", "41", "40", "41"].map(reply::answer);
    check(&answer_spec(), answers.into(), "retries_exhausted", 6);
}

#[test]
fn what_varies_by_nature_makes_no_other_failure() {
    let script = "echo \"failed after 0.$$ s at 0x$(date +%N | tr -d 89) in /tmp/x$$\"; exit 1";
    check(&checked_by(script), wrong(9), "stuck", 4);
    let script = "cat other.txt; exit 1";
    check(&checked_by(script), wrong(9), "retries_exhausted", 6);
}

#[test]
fn failed_tests_are_compared_by_name_and_cause() {
    let tests = "import unittest, calc\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(calc.f(), 1)\n";
    let spec = "name: x\ndescription: x\nworkspace: {protect: [tests/]}\nchecks:\n  - name: unit\n    command: [python3, -m, unittest, discover, -s, tests]\n";
    // The same failure at another line of the code.
    let code = |number: usize| {
        let text = format!("{}def f():\n    return 2\n", "# x\n".repeat(number));
        reply::files(&[("calc.py", &text)])
    };
    let server = Server::start((0..9).map(code));
    let project = Project::with(spec, &server).file("specs/tests/test_it.py", tests);
    project.run(RUN).exits(1).says("stuck");
    assert_eq!(server.count(), 4);
}

#[test]
fn two_answers_in_a_row_that_change_nothing_end_a_run() {
    let same = || reply::answer("41");
    check(&answer_spec(), vec![same(), same(), same()], "stuck", 3);
    let other = reply::files(&[("answer.txt", "41\n"), ("x", "x\n")]);
    check(
        &(answer_spec() + "stuck_after: 9\nmax_retries: 6\n"),
        vec![same(), same(), other.clone(), other, same()],
        "stuck",
        5,
    );
    check(
        &(answer_spec() + "stuck_after: 0\nmax_retries: 3\n"),
        vec![same(); 4],
        "retries_exhausted",
        4,
    );
}

#[test]
fn a_refused_answer_and_a_repeated_round_do_not_count() {
    // The second answer is refused for its format, then the run is paused and its round repeated.
    let replies = [
        reply::answer("41"),
        reply::text("no file"),
        reply::answer("40"),
        reply::status(401),
        reply::answer("41"),
        reply::answer("42"),
    ];
    let server = Server::start(replies);
    let project = Project::with(answer_spec() + "stuck_after: 2\n", &server);
    project.run(RUN).exits(4);
    project.run(RUN).exits(0);
    assert_eq!(server.count(), 6);
    let rows = project.run(&["attempts", "--json"]).exits(0);
    assert_eq!(
        serde_json::from_str::<Vec<Value>>(&rows.stdout)
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn in_agent_mode_equal_failures_are_told_and_end_the_run() {
    let mut turn = 0;
    let server = Server::answering(move |_: &Received| {
        turn += 1;
        match turn % 2 {
            1 => reply::bash(&format!("echo 41 > answer.txt; echo {turn} > other.txt")),
            _ => reply::text("done"),
        }
    });
    let project = Project::with(answer_spec() + "generator: {mode: agent}\n", &server);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "stuck".into()),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), 8);
    assert!(
        server.requests()[6]
            .text()
            .contains("The last 3 attempts failed in the same way")
    );
}
