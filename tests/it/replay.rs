//! Replay: a log answers in place of the model, with no network and no key, and the run ends the same way.

use std::fs;

use crate::project::{Project, RUN_JSON, answer_spec, checked_by};
use crate::reply;
use crate::server::Server;

/// Runs the spec with the answers to its end, and returns the project.
fn recorded(spec: &str, replies: Vec<reply::Reply>, code: i32) -> Project {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON).exits(code);
    project
}

/// Returns a project that has the log of another as `recorded.log`, no key, and nobody to ask.
fn player(spec: &str, recorded: &Project) -> Project {
    let log = fs::read(recorded.path(&recorded.log_path())).unwrap();
    Project::new().spec(spec).file("recorded.log", log).without("ANTHROPIC_API_KEY").without("OPENAI_API_KEY")
}

const REPLAY: &[&str] = &["run", "--spec", "specs/spec.yaml", "--json", "--replay", "recorded.log"];

#[test]
fn a_replay_ends_in_the_same_state_with_the_same_files() {
    for (last, code) in [("42", 0), ("40", 1)] {
        let spec = answer_spec() + "max_retries: 1\n";
        let replies = vec![reply::text("no block"), reply::answer("41"), reply::answer(last)];
        let first = recorded(&spec, replies, code);
        let second = player(&spec, &first);
        second.run(REPLAY).exits(code);
        assert_eq!(second.workspace_files(), first.workspace_files());
        assert_eq!(second.phases(), first.phases());
        assert_ne!(second.state()["run_id"], first.state()["run_id"]);
        for field in ["state", "reason", "retry_count", "last_test_output", "spec_hash", "attempt_files"] {
            assert_eq!(second.state()[field], first.state()[field], "{field}");
        }
        second.nothing_left();
    }
}

#[test]
fn a_replay_of_a_replay_works_too() {
    let first = recorded(&answer_spec(), vec![reply::answer("41"), reply::answer("42")], 0);
    let second = player(&answer_spec(), &first);
    second.run(REPLAY).exits(0);
    let third = player(&answer_spec(), &second);
    third.run(REPLAY).exits(0);
    assert_eq!(third.workspace_files(), first.workspace_files());
}

#[test]
fn a_permanent_error_is_replayed() {
    let first = recorded(&answer_spec(), vec![reply::error(400, "invalid_request_error", "too-odd-for-me")], 1);
    let second = player(&answer_spec(), &first);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(ran.verdict(), ("FAILED".into(), "generation_error".into()));
}

#[test]
fn what_varies_by_nature_is_no_difference() {
    let script = "test \"$(cat answer.txt)\" = 42 && exit; date +'1 failed in 0.%Ns'; date +'at %Y-%m-%dT%H:%M:%S'; \
        pwd; mktemp; echo 'object at 0x7f'$(date +%N); exit 1";
    let spec = checked_by(script);
    let first = recorded(&spec, vec![reply::answer("41"), reply::answer("42")], 0);
    let second = player(&spec, &first);
    second.run(REPLAY).exits(0);
    assert_eq!(second.workspace_files(), first.workspace_files());
}

#[test]
fn another_question_is_a_mismatch_that_shows_the_difference() {
    let first = recorded(&answer_spec(), vec![reply::answer("42")], 0);
    let second = player(&answer_spec().replace("Write the answer", "Scribble the answer"), &first);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(ran.verdict(), ("FAILED".into(), "replay_mismatch".into()));
    let message = ran.result()["message"].to_string() + &ran.stderr;
    assert!(message.contains("Scribble"), "{}", ran.story());
    assert_eq!(second.workspace_names(), [""; 0]);
}

#[test]
fn a_question_that_the_log_has_no_answer_for_is_a_mismatch() {
    let first = recorded(&answer_spec(), vec![reply::answer("41"), reply::answer("42")], 0);
    let second = player(&answer_spec(), &first);
    let log = second.read("recorded.log");
    let short: String =
        log.lines().take_while(|line| !line.contains("PATCHING")).flat_map(|line| [line, "\n"]).collect();
    second.write("recorded.log", short);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(ran.verdict().1, "replay_mismatch");
    assert_eq!(second.workspace("answer.txt"), "41\n");
}

#[test]
fn model_and_limits_are_not_compared() {
    let first = recorded(&answer_spec(), vec![reply::answer("42")], 0);
    let second = player(&(answer_spec() + "generator: {max_tokens: 500}\n"), &first);
    second.run(&[REPLAY, &["--model", "another-model"]].concat()).exits(0);
}

#[test]
fn a_log_that_cannot_be_read_is_said_before_anything_is_done() {
    let project = Project::new().spec(answer_spec());
    let ran = project.run(REPLAY);
    assert!(matches!(ran.code, Some(64 | 74)), "{}", ran.story());
    assert_eq!(ran.verdict().0, "REFUSED");
    assert!(!project.exists("state.json"));
}

#[test]
fn the_difference_is_shown_also_far_into_a_line() {
    let spec = checked_by("echo \"$(cat long.txt)red\"; exit 1") + "max_retries: 1\n";
    let long = || reply::files(&[("long.txt", &"x".repeat(2000))]);
    let first = recorded(&spec, vec![long(), long()], 1);
    let second = player(&spec, &first);
    second.write("recorded.log", second.read("recorded.log").replace("xred", "xblue"));
    let message = second.run(REPLAY).exits(1).result()["message"].to_string();
    assert!(message.contains("xred") && message.contains("xblue") && message.len() < 1000, "{message}");
}

#[test]
fn a_root_behind_a_link_is_the_root() {
    let spec = checked_by("grep -qx 42 answer.txt && exit; pwd -P; exit 1");
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let first = Project::with(&spec, &server).env("ORCHESTRATOR_ROOT", "../link");
    std::os::unix::fs::symlink("root", first.outside("link")).unwrap();
    first.run(RUN_JSON).exits(0);
    let second = player(&spec, &first).env("ORCHESTRATOR_ROOT", "../link");
    std::os::unix::fs::symlink("root", second.outside("link")).unwrap();
    second.run(REPLAY).exits(0);
    let started = &second.events("WorkflowStarted")[0];
    assert_eq!(started["scope_dir"], *second.root().canonicalize().unwrap().to_string_lossy());
}
