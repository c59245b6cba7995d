//! `watch`: a run is followed from another process, which changes nothing.

use rustix::process::Signal;

use crate::support::project::{BINARY, Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;
use crate::support::terminal::Terminal;

/// The lines of a run as `run` prints them, without what differs by nature.
fn facts(stderr: &str) -> Vec<&str> {
    let is_fact = |line: &&str| {
        ["check", "wrote", "generating", "testing", "patching"]
            .iter()
            .any(|word| line.starts_with(word))
    };
    stderr.lines().filter(is_fact).collect()
}

#[test]
fn a_finished_run_is_shown_from_its_beginning_and_nothing_changes() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let ran = project.run(RUN).exits(0);
    let before = project.files();
    let watched = project.run(&["watch"]).exits(0);
    assert_eq!(facts(&watched.stderr), facts(&ran.stderr));
    assert!(4 < facts(&ran.stderr).len(), "{}", ran.transcript());
    assert_eq!(watched.stdout, "");
    assert_eq!(project.files(), before);
}

#[test]
fn a_run_is_followed_to_its_end() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let run = project.start(RUN_JSON);
    server.wait_for(1);
    let mut watch = project.start(&["watch"]);
    watch.until_stderr_has("generating (attempt 1 of 6)");
    server.release();
    let ran = run.wait().exits(0);
    let watched = watch.wait().exits(0);
    assert_eq!(facts(&watched.stderr), facts(&ran.stderr));
    assert!(watched.stderr.contains("check answer: passed"));
}

#[test]
fn a_run_that_is_killed_ends_the_watch_with_what_to_type() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let run = project.start(RUN);
    server.wait_for(1);
    let mut watch = project.start(&["watch"]);
    watch.until_stderr_has("generating");
    run.signal(Signal::KILL);
    run.wait();
    let run_id = project.state_text("run_id");
    watch
        .wait()
        .exits(0)
        .says(&format!("the run {run_id} is not running"))
        .says(&format!("orchestrator status --run {run_id}"));
}

#[test]
fn a_watch_is_interrupted_and_the_run_goes_on() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let run = project.start(RUN);
    server.wait_for(1);
    let mut watch = project.start(&["watch"]);
    watch.until_stderr_has("generating");
    watch.signal(Signal::INT);
    watch.wait().exits(130);
    server.release();
    run.wait().exits(0);
}

#[test]
fn at_a_terminal_the_watch_has_the_live_line() {
    let script = "mkfifo gate; read line < gate; rm gate; grep -qx 42 answer.txt";
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(checked_by(script), &server).env("TERM", "xterm-256color");
    let run = project.start(RUN);
    let gate = project.path("workspace/gate");
    crate::support::running::until("the check waits", || gate.exists());
    let mut terminal = Terminal::start(project.command(BINARY, &["watch"]));
    terminal.until(r"\r\x1b\[Ktesting \(attempt 1 of 6\), \d+ s[^\r\n]*check answer");
    std::fs::write(gate, "\n").unwrap();
    assert_eq!(terminal.wait().0, 0);
    run.wait().exits(0);
}

#[test]
fn a_watched_request_is_waited_for_without_a_word_about_its_tokens() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server).env("TERM", "xterm-256color");
    let run = project.start(RUN);
    server.wait_for(1);
    let mut terminal = Terminal::start(project.command(BINARY, &["watch"]));
    terminal.until(r"\r\x1b\[Kgenerating \(attempt 1 of 6\), waiting for the model, \d+ s");
    server.release();
    assert_eq!(terminal.wait().0, 0);
    run.wait().exits(0);
}

#[test]
fn an_older_run_is_named_by_the_beginning_of_its_id() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let first = project.state_text("run_id");
    let again = [RUN, &["--no-resume"]].concat();
    project.run(&again).exits(0);
    project
        .run(&["watch", &first[..8]])
        .exits(0)
        .says(&format!("run {first} started"));
}

#[test]
fn without_a_run_it_says_so() {
    let project = Project::new();
    project
        .run(&["watch"])
        .exits(64)
        .says("there is no run in")
        .says("orchestrator runs");
    project.run(&["watch", "6c1f"]).exits(64).says("6c1f");
}
