//! `status`: running, interrupted, killed, paused and over are distinguished, with what was used, why it failed, and the
//! command that goes on.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::Running;
use crate::support::server::Server;
use crate::support::workflow::{FLOW, workflow};

const PRICE: &str = "model: scripted, price: {input: 3.0, output: 15.0}";

/// What `status` prints; it changes nothing.
fn status(project: &Project, arguments: &[&str]) -> String {
    let before = project.files();
    let ran = project.run(&[&["status"], arguments].concat()).exits(0);
    assert_eq!(project.files(), before);
    assert!(!ran.stdout.contains('\u{1b}'), "{:?}", ran.stdout);
    ran.stdout
}

/// The value of a row.
fn row(shown: &str, name: &str) -> Option<String> {
    let start = format!("{name:<12} ");
    let line = shown.lines().find_map(|line| line.strip_prefix(&start));
    line.map(str::to_owned)
}

#[track_caller]
fn assert_row(shown: &str, name: &str, expected: &str) {
    assert_eq!(row(shown, name).as_deref(), Some(expected), "{shown}");
}

#[track_caller]
fn assert_stopped(shown: &str, words: &str) {
    let status = row(shown, "status").unwrap_or_default();
    assert!(status.contains(words), "{shown}");
    assert!(!shown.to_lowercase().contains("running"), "{shown}");
    assert_row(shown, "next", "orchestrator run --spec specs/spec.yaml");
}

/// A run whose only check, in its first round, does not end.
fn held_check() -> (Project, Server, Running) {
    let server = Server::start([reply::answer("41")]);
    let project = Project::new();
    let script = format!("touch begun; exec sleep {}", project.marker());
    let project = project.spec(checked_by(&script)).model(&server);
    let mut running = project.start(RUN);
    let begun = project.path("workspace/begun");
    running.until("the check runs", || begun.exists());
    (project, server, running)
}

#[test]
fn a_run_that_works_is_shown_with_its_process_and_its_step() {
    let server = Server::start([reply::answer("41"), reply::answer("42").held()]);
    let project = Project::with(answer_spec() + "max_retries: 3\n", &server);
    let running = project.start(RUN);
    server.wait_for(2);
    let shown = status(&project, &[]);
    let line = row(&shown, "status").unwrap();
    let pid = running.id();
    assert!(
        line.starts_with(&format!("running (pid {pid}, since 20")),
        "{shown}"
    );
    assert!(
        line.ends_with(": waits for the model (attempt 2 of 4)"),
        "{shown}"
    );
    assert_row(&shown, "attempt", "2 of 4");
    assert!(row(&shown, "cause").unwrap().contains("answer"), "{shown}");
    assert_eq!(row(&shown, "next"), None, "{shown}");
    running.signal(Signal::KILL);
    running.wait();
    assert_stopped(&status(&project, &[]), "killed: the process ended without");
    let server = Server::start([reply::answer("42")]);
    project.run_with(&server, RUN).exits(0);
    let shown = status(&project, &[]);
    assert_row(&shown, "status", "over: SUCCESS (tests_passed)");
    assert_eq!(row(&shown, "next"), None, "{shown}");
    assert_eq!(row(&shown, "cause"), None, "{shown}");
}

#[test]
fn a_run_that_was_stopped_by_a_signal_says_which() {
    for (signal, name) in [
        (Signal::INT, "SIGINT"),
        (Signal::TERM, "SIGTERM"),
        (Signal::KILL, "killed: "),
    ] {
        let (project, _server, running) = held_check();
        let shown = status(&project, &[]);
        let doing = row(&shown, "status").unwrap();
        assert!(
            doing.ends_with(": runs check answer (attempt 1 of 6)"),
            "{shown}"
        );
        running.signal(signal);
        running.wait();
        let shown = status(&project, &[]);
        assert_stopped(&shown, name);
        let is_interrupt = row(&shown, "status").unwrap().starts_with("interrupted by");
        assert_eq!(is_interrupt, signal != Signal::KILL, "{shown}");
    }
}

#[test]
fn a_lock_that_another_root_holds_is_not_ours() {
    let (other, _server, running) = held_check();
    let project = Project::with(answer_spec(), &Server::start([reply::status(401)]));
    project.run(RUN).exits(4);
    fs::copy(
        other.path(".orchestrator.lock"),
        project.path(".orchestrator.lock"),
    )
    .unwrap();
    // Without an end in its log it would run if the process of the lock file did.
    let log = project.read(&project.log_path());
    let end = log.trim_end().rfind('\n').unwrap();
    project.write(&project.log_path(), &log[..=end]);
    assert_stopped(&status(&project, &[]), "killed: ");
    drop(running);
}

#[test]
fn a_pause_has_its_message() {
    let fault = reply::error(401, "authentication_error", "nope-4711");
    let server = Server::start([reply::answer("41"), fault]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let shown = status(&project, &[]);
    assert_stopped(&shown, "paused (provider_unauthorized): ");
    assert!(row(&shown, "status").unwrap().contains("nope-4711"));
    assert_row(&shown, "state", "PATCHING");
    assert_row(&shown, "attempt", "2 of 6");
}

#[test]
fn the_command_that_goes_on_names_root_and_options() {
    let server = Server::start([reply::status(401)]);
    let spec = answer_spec() + "generator: {price: {input: 1.0, output: 1.0}}\n";
    let project = Project::with(spec, &server);
    let options = ["--budget", "2.5", "--model", "a b", "--no-sandbox"];
    project.run(&[RUN, &options].concat()).exits(4);
    let shown = status(&project, &[]);
    assert_row(
        &shown,
        "next",
        "orchestrator run --spec specs/spec.yaml --budget 2.5 --model 'a b' --no-sandbox",
    );
    let root = project.root().display().to_string();
    let shown = status(&project, &["--root", &root]);
    let next = format!("orchestrator run --spec {root}/specs/spec.yaml --root {root} --budget 2.5");
    assert!(row(&shown, "next").unwrap().starts_with(&next), "{shown}");
}

#[test]
fn the_budget_counts_answers_and_requests_that_broke_off() {
    let server = Server::start([
        reply::answer("41").usage(100_000, 1000),
        reply::answer("42").held(),
    ]);
    let spec = answer_spec()
        + &format!(
            "generator: {{{PRICE}, max_tokens: 1000}}\nbudget: {{usd: 5.0, tokens: 300000}}\n"
        );
    let project = Project::with(spec, &server);
    let running = project.start(RUN);
    server.wait_for(2);
    running.signal(Signal::KILL);
    running.wait();
    let worst = &project.events("ModelRequested")[1]["worst"];
    let (usd, tokens) = (
        worst["cost_usd"].as_f64().unwrap(),
        worst["tokens"].as_u64().unwrap(),
    );
    let shown = status(&project, &[]);
    assert_row(&shown, "tokens", "100000 in, 1000 out");
    let cost = format!("0.3150 USD, and up to {usd:.4} USD for requests that broke off");
    assert_row(&shown, "cost", &cost);
    let (usd, tokens) = (5.0 - 0.315 - usd, 300_000 - 101_000 - tokens);
    let left = format!("{usd:.4} of 5.0000 USD left, {tokens} of 300000 tokens left");
    assert_row(&shown, "budget", &left);
}

#[test]
fn a_failed_run_shows_its_first_cause_uncut_and_how_to_continue() {
    for length in [600, 5000] {
        let long = format!("CAUSE-{}-END", "x".repeat(length));
        let test = format!(
            "import unittest\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.fail({long:?})\n"
        );
        let server = Server::start([reply::answer("1"), reply::answer("2")]);
        let spec = "name: a\ndescription: b\nmax_retries: 1\nworkspace: {protect: [tests/]}\n\
                    checks: [{name: unit, command: [python3, -m, unittest, discover, -s, tests]}]\n";
        let project = Project::with(spec, &server).file("specs/tests/test_it.py", test);
        project.run(RUN).exits(1);
        let shown = status(&project, &[]);
        assert_row(&shown, "status", "over: FAILED (retries_exhausted)");
        assert_row(&shown, "tests", "1 executed, 0 passed, 1 failed, 0 skipped");
        assert!(row(&shown, "cause").unwrap().contains(&long), "{shown}");
        assert_row(
            &shown,
            "next",
            "orchestrator run --spec specs/spec.yaml --continue",
        );
        // Of an older run the same is known, with the kept state and without it.
        let id = project.state_text("run_id");
        project.run(&["reset"]).exits(0);
        for _ in 0..2 {
            let shown = status(&project, &["--run", &id]);
            assert!(row(&shown, "cause").unwrap().contains(&long), "{shown}");
            assert_eq!(row(&shown, "next"), None);
            let _ = fs::remove_dir_all(project.path(&format!("logs/{id}")));
        }
    }
}

#[test]
fn a_failure_that_cannot_be_continued_has_no_next_command() {
    let server = Server::start([reply::files(&[("../escape", "x")])]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(2);
    let shown = status(&project, &[]);
    assert_row(&shown, "status", "over: FAILED (safety_violation)");
    assert_eq!(row(&shown, "next"), None, "{shown}");
}

#[test]
fn hostile_output_reaches_the_terminal_without_control_characters() {
    let script = r"printf 'E: \033]0;title\007\033[2J\r\nstatus       over: SUCCESS\n\302\233x\n' >&2; exit 1";
    let server = Server::start([reply::answer("1"), reply::answer("2")]);
    let project = Project::with(checked_by(script) + "max_retries: 1\n", &server);
    project.run(RUN).exits(1);
    let shown = status(&project, &[]);
    assert!(
        shown.chars().all(|c| c == '\n' || !c.is_control()),
        "{shown:?}"
    );
    let of_status = |line: &&str| line.starts_with("status");
    assert_eq!(shown.lines().filter(of_status).count(), 1, "{shown}");
}

#[test]
fn a_damaged_or_missing_log_is_no_obstacle() {
    let server = Server::start([reply::answer("41"), reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let log = project.log_path();
    let sound = fs::read(project.path(&log)).unwrap();
    for damaged in [
        b"".to_vec(),
        b"\0\0\0\n\xff\xfe{\"event\":\"WorkflowStarted\"\n{}\n[]\nnull\n".to_vec(),
        sound[..sound.len() / 2].to_vec(),
        sound
            .iter()
            .map(|byte| byte ^ u8::from(*byte == b':'))
            .collect(),
    ] {
        project.write(&log, &damaged);
        let shown = status(&project, &[]);
        assert!(!shown.contains("running"), "{shown}");
        assert_row(&shown, "state", "PATCHING");
        assert_row(&shown, "next", "orchestrator run --spec specs/spec.yaml");
    }
    fs::remove_file(project.path(&log)).unwrap();
    let shown = status(&project, &[]);
    assert!(shown.starts_with("status       stopped: "), "{shown}");
    fs::create_dir(project.path(&log)).unwrap();
    assert_eq!(status(&project, &[]), shown);
    fs::remove_dir_all(project.path("logs")).unwrap();
    assert_eq!(status(&project, &[]), shown);
}

#[test]
fn an_older_run_is_shown_however_it_was_replaced() {
    let replies = ["1", "2", "42", "42", "42"].map(reply::answer);
    let server = Server::start(replies);
    let project = Project::with(answer_spec() + "max_retries: 1\n", &server);
    project.run(RUN).exits(1);
    let mut states = vec![project.state()];
    project.run(&[RUN, &["--no-resume"]].concat()).exits(0);
    states.push(project.state());
    project.write("specs/spec.yaml", answer_spec().replace("Write", "Put"));
    project.run(RUN).exits(0);
    states.push(project.state());
    project.run(&["reset"]).exits(0);
    project.run(RUN).exits(0);
    let last = project.state_text("run_id");
    for (state, outcome) in states.iter().zip(["FAILED", "SUCCESS", "SUCCESS"]) {
        let id = state["run_id"].as_str().unwrap();
        for name in [id, &id[..8]] {
            let shown = status(&project, &["--run", name]);
            assert_row(&shown, "run", id);
            assert_row(&shown, "state", outcome);
            assert!(!shown.contains(&last) && !shown.contains("next  "));
            let json = status(&project, &["--run", name, "--json"]);
            assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), *state);
        }
        // Logs of earlier versions have no state beside them.
        fs::remove_file(project.path(&format!("logs/{id}/state.json"))).unwrap();
        let shown = status(&project, &["--run", id]);
        assert_row(&shown, "run", id);
        assert_row(&shown, "spec", "specs/spec.yaml");
        assert!(row(&shown, "status").unwrap().contains(outcome), "{shown}");
        assert_eq!(status(&project, &["--run", id, "--json"]), "null\n");
    }
    assert_eq!(status(&project, &["--run", &last]), status(&project, &[]));
}

#[test]
fn an_unknown_or_ambiguous_id_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let id = project.state_text("run_id");
    let unknown = "00000000-0000-4000-8000-000000000000";
    for name in [
        unknown,
        "0000",
        &id[..3],
        "",
        "../..",
        "\u{1b}[2J",
        &id[1..],
    ] {
        let ran = project.run(&["status", "--run", name]).exits(64);
        assert!(ran.stderr.contains("orchestrator runs"), "{}", ran.stderr);
        assert!(!ran.stderr.contains('\u{1b}'));
    }
    let last = if id.ends_with('0') { '1' } else { '0' };
    let twin = format!("{}{last}", &id[..35]);
    fs::copy(
        project.path(&project.log_path()),
        project.path(&format!("logs/{twin}.log")),
    )
    .unwrap();
    let ran = project.run(&["status", "--run", &id[..8]]).exits(64);
    assert!(ran.stderr.contains(&id) && ran.stderr.contains(&twin));
    project.run(&["status", "--run", &id]).exits(0);
    // An older run can be looked at while the state is corrupt.
    project.write("state.json", "{");
    project.run(&["status"]).exits(3);
    project.run(&["status", "--run", &twin]).exits(0);
}

#[test]
fn a_workflow_that_was_killed_does_not_say_that_it_works() {
    let gate = "mkfifo gate; read line < gate; echo '<result>x</result>'";
    let project = workflow(&[("START.sh", gate)]);
    let mut running = project.start(FLOW);
    let path = project.path("workspace/gate");
    running.until("the script waits", || path.exists());
    let shown = status(&project, &[]);
    let pid = running.id();
    let line = row(&shown, "status").unwrap();
    assert!(line.starts_with(&format!("running (pid {pid}")), "{shown}");
    assert!(line.ends_with(": main runs START.sh"), "{shown}");
    assert_row(&shown, "state", "RUNNING");
    running.signal(Signal::KILL);
    running.wait();
    let shown = status(&project, &[]);
    assert!(!shown.to_lowercase().contains("running"), "{shown}");
    assert_row(&shown, "state", "KILLED");
    assert_row(&shown, "agent", "main: stopped at START.sh");
    assert_row(&shown, "next", "orchestrator run --workflow flow/START.sh");
    let id = project.state_text("run_id");
    project.run(&["reset"]).exits(0);
    let kept = status(&project, &["--run", &id]);
    assert_row(&kept, "agent", "main: stopped at START.sh");
    fs::remove_dir_all(project.path(&format!("logs/{id}"))).unwrap();
    let logged = status(&project, &["--run", &id]);
    assert_row(&logged, "workflow", "flow/START.sh");
    assert!(row(&logged, "status").unwrap().starts_with("killed: "));
}
