//! Replay: answers come from a log, without network and key, and the run ends the same way.

use std::fs;

use crate::support::project::{Project, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

/// Runs the spec with the answers to its end, and returns the project.
fn recorded(spec: &str, replies: Vec<reply::Reply>, code: i32) -> Project {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON).exits(code);
    project
}

/// A project with the log of another as `recorded.log`, without a key and without a server.
fn replaying_project(spec: &str, recorded: &Project) -> Project {
    let log = fs::read(recorded.path(&recorded.log_path())).unwrap();
    Project::new()
        .spec(spec)
        .file("recorded.log", log)
        .without("ANTHROPIC_API_KEY")
        .without("OPENAI_API_KEY")
}

const REPLAY: &[&str] = &[
    "run",
    "--spec",
    "specs/spec.yaml",
    "--json",
    "--replay",
    "recorded.log",
];

#[test]
fn a_replay_ends_in_the_same_state_with_the_same_files() {
    for (last, code) in [("42", 0), ("40", 1)] {
        let spec = answer_spec() + "max_retries: 1\n";
        let replies = vec![
            reply::text("no block"),
            reply::answer("41"),
            reply::answer(last),
        ];
        let first = recorded(&spec, replies, code);
        let second = replaying_project(&spec, &first);
        second.run(REPLAY).exits(code);
        assert_eq!(second.workspace_files(), first.workspace_files());
        assert_eq!(second.phases(), first.phases());
        assert_ne!(second.state()["run_id"], first.state()["run_id"]);
        for field in [
            "state",
            "reason",
            "retry_count",
            "last_test_output",
            "spec_hash",
            "attempt_files",
        ] {
            assert_eq!(second.state()[field], first.state()[field], "{field}");
        }
        second.nothing_left();
    }
}

#[test]
fn a_replay_of_a_replay_works_too() {
    let first = recorded(
        &answer_spec(),
        vec![reply::answer("41"), reply::answer("42")],
        0,
    );
    let second = replaying_project(&answer_spec(), &first);
    second.run(REPLAY).exits(0);
    let third = replaying_project(&answer_spec(), &second);
    third.run(REPLAY).exits(0);
    assert_eq!(third.workspace_files(), first.workspace_files());
}

#[test]
fn a_permanent_error_is_replayed() {
    let first = recorded(
        &answer_spec(),
        vec![reply::error(400, "invalid_request_error", "too-odd-for-me")],
        1,
    );
    let second = replaying_project(&answer_spec(), &first);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "generation_error".into())
    );
}

#[test]
fn times_ids_and_paths_are_ignored_in_the_comparison() {
    let script = "test \"$(cat answer.txt)\" = 42 && exit; date +'1 failed in 0.%Ns'; date +'at %Y-%m-%dT%H:%M:%S'; \
        pwd; mktemp; echo 'object at 0x7f'$(date +%N); exit 1";
    let spec = checked_by(script);
    let first = recorded(&spec, vec![reply::answer("41"), reply::answer("42")], 0);
    let second = replaying_project(&spec, &first);
    second.run(REPLAY).exits(0);
    assert_eq!(second.workspace_files(), first.workspace_files());
}

#[test]
fn a_different_prompt_is_a_mismatch_that_shows_the_difference() {
    let first = recorded(&answer_spec(), vec![reply::answer("42")], 0);
    let second = replaying_project(
        &answer_spec().replace("Write the answer", "Scribble the answer"),
        &first,
    );
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "replay_mismatch".into())
    );
    let message = ran.result()["message"].to_string() + &ran.stderr;
    assert!(message.contains("Scribble"), "{}", ran.transcript());
    assert_eq!(second.workspace_names(), [""; 0]);
}

#[test]
fn a_prompt_without_a_recorded_answer_is_a_mismatch() {
    let first = recorded(
        &answer_spec(),
        vec![reply::answer("41"), reply::answer("42")],
        0,
    );
    let second = replaying_project(&answer_spec(), &first);
    let log = second.read("recorded.log");
    let short: String = log
        .lines()
        .take_while(|line| !line.contains("PATCHING"))
        .flat_map(|line| [line, "\n"])
        .collect();
    second.write("recorded.log", short);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(ran.outcome_and_reason().1, "replay_mismatch");
    assert_eq!(second.workspace("answer.txt"), "41\n");
}

#[test]
fn model_and_limits_are_not_compared() {
    let first = recorded(&answer_spec(), vec![reply::answer("42")], 0);
    let second = replaying_project(&(answer_spec() + "generator: {max_tokens: 500}\n"), &first);
    second
        .run(&[REPLAY, &["--model", "another-model"]].concat())
        .exits(0);
}

#[test]
fn an_unreadable_log_is_reported_before_any_change() {
    let project = Project::new().spec(answer_spec());
    let ran = project.run(REPLAY);
    assert!(matches!(ran.code, Some(64 | 74)), "{}", ran.transcript());
    assert_eq!(ran.outcome_and_reason().0, "REFUSED");
    assert!(!project.exists("state.json"));
}

#[test]
fn a_difference_far_into_a_line_is_shown() {
    let spec = checked_by("echo \"$(cat long.txt)red\"; exit 1") + "max_retries: 1\n";
    let long = || reply::files(&[("long.txt", &"x".repeat(2000))]);
    let first = recorded(&spec, vec![long(), long()], 1);
    let second = replaying_project(&spec, &first);
    second.write(
        "recorded.log",
        second.read("recorded.log").replace("xred", "xblue"),
    );
    let message = second.run(REPLAY).exits(1).result()["message"].to_string();
    assert!(
        message.contains("xred") && message.contains("xblue") && message.len() < 1000,
        "{message}"
    );
}

#[test]
fn a_root_behind_a_link_replays_equally() {
    let spec = checked_by("grep -qx 42 answer.txt && exit; pwd -P; exit 1");
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let first = Project::with(&spec, &server).env("ORCHESTRATOR_ROOT", "../link");
    std::os::unix::fs::symlink("root", first.outside("link")).unwrap();
    first.run(RUN_JSON).exits(0);
    let second = replaying_project(&spec, &first).env("ORCHESTRATOR_ROOT", "../link");
    std::os::unix::fs::symlink("root", second.outside("link")).unwrap();
    second.run(REPLAY).exits(0);
    let started = &second.events("WorkflowStarted")[0];
    assert_eq!(
        started["scope_dir"],
        *second.root().canonicalize().unwrap().to_string_lossy()
    );
}

/// A spec with a visible check that always passes and a hidden one.
fn with_hidden(script: &str) -> String {
    let command = serde_json::json!(["sh", "-c", script]);
    checked_by("test -e answer.txt")
        + &format!("  - {{name: hidden, hidden: true, command: {command}}}\nmax_retries: 1\n")
}

/// Replays the log of a run whose end may differ; returns the message of the mismatch.
fn mismatch(spec: &str, first: &Project) -> String {
    let second = replaying_project(spec, first);
    let ran = second.run(REPLAY).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "replay_mismatch".into()),
        "{}",
        ran.transcript()
    );
    assert_eq!(second.state()["state"], "FAILED");
    second.phases();
    ran.result()["message"].as_str().unwrap().to_owned()
}

#[test]
fn an_unused_recorded_answer_is_a_mismatch() {
    let first = recorded(
        &with_hidden("grep -qx 42 answer.txt"),
        vec![reply::answer("41"), reply::answer("42")],
        0,
    );
    replaying_project(&with_hidden("grep -qx 42 answer.txt"), &first)
        .run(REPLAY)
        .exits(0);
    let message = mismatch(&with_hidden("true"), &first);
    assert!(
        message.contains("not asked for") && message.contains("PATCHING"),
        "{message}"
    );
}

#[test]
fn a_different_outcome_is_a_mismatch() {
    let first = recorded(
        &with_hidden("grep -qx 42 answer.txt"),
        vec![reply::answer("41"), reply::answer("42")],
        0,
    );
    let message = mismatch(&with_hidden("grep -qx 43 answer.txt"), &first);
    assert!(
        message.contains("recorded SUCCESS (tests_passed), now FAILED (retries_exhausted)"),
        "{message}"
    );
    let first = recorded(
        &with_hidden("grep -qx 43 answer.txt"),
        vec![reply::answer("41"), reply::answer("42")],
        1,
    );
    let message = mismatch(&with_hidden("grep -qx 42 answer.txt"), &first);
    assert!(
        message.contains("recorded FAILED (retries_exhausted), now SUCCESS"),
        "{message}"
    );
}

#[test]
fn durations_in_the_task_and_in_files_are_compared_literally() {
    let spec = |wait: &str| {
        answer_spec().replace(
            "Write the answer",
            &format!("Wait {wait}. Write the answer"),
        )
    };
    let first = recorded(&spec("5 seconds"), vec![reply::answer("42")], 0);
    replaying_project(&spec("5 seconds"), &first)
        .run(REPLAY)
        .exits(0);
    let message = mismatch(&spec("90 minutes"), &first);
    assert!(
        message.contains("5 seconds") && message.contains("90 minutes"),
        "{message}"
    );

    let spec = answer_spec() + "workspace: {copy: [given.txt]}\n";
    let server = Server::start([reply::answer("42")]);
    let first = Project::with(&spec, &server).file("specs/given.txt", "at 0x7f01, 2026-01-01\n");
    first.run(RUN_JSON).exits(0);
    for (given, code) in [
        ("at 0x7f01, 2026-01-01\n", 0),
        ("at 0x7f02, 2026-01-02\n", 1),
    ] {
        replaying_project(&spec, &first)
            .file("specs/given.txt", given)
            .run(REPLAY)
            .exits(code);
    }
}

#[test]
fn the_log_has_the_hashes_of_written_files() {
    let first = recorded(
        &answer_spec(),
        vec![reply::answer("41"), reply::answer("42")],
        0,
    );
    let applied = first.events("FilesApplied");
    let hashes: Vec<&str> = applied
        .iter()
        .map(|line| line["hashes"]["answer.txt"].as_str().unwrap())
        .collect();
    // The beginnings of `printf '41\n' | sha256sum` and of that of 42.
    assert_eq!(hashes, ["040316eca5e77dbb", "084c799cd551dd1d"]);
}

#[test]
fn a_log_of_an_older_version_is_replayed() {
    let spec = with_hidden("grep -qx 42 answer.txt");
    let first = recorded(&spec, vec![reply::answer("41"), reply::answer("42")], 0);
    let older: String = first
        .log()
        .into_iter()
        .map(|mut line| {
            line.as_object_mut().unwrap().remove("hashes");
            format!("{line}\n")
        })
        .collect();
    first.write(&first.log_path(), older);
    replaying_project(&spec, &first).run(REPLAY).exits(0);
    mismatch(&with_hidden("true"), &first);
}

#[test]
fn a_log_with_an_unreadable_line_is_replayed() {
    let spec = with_hidden("grep -qx 42 answer.txt");
    let first = recorded(&spec, vec![reply::answer("41"), reply::answer("42")], 0);
    let lines: Vec<Vec<u8>> = fs::read(first.path(&first.log_path()))
        .unwrap()
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    for (index, line) in lines.iter().enumerate().take(lines.len() - 2) {
        if line
            .windows(15)
            .any(|window| window == b"\"ModelAnswered\"")
        {
            continue;
        }
        let mut damaged = lines.clone();
        damaged[index][line.len() / 2] ^= 0x80;
        let second = replaying_project(&spec, &first).file("recorded.log", damaged.join(&b'\n'));
        let ran = second.run(REPLAY);
        assert_eq!(
            ran.code,
            Some(0),
            "line {}: {}",
            index + 1,
            ran.transcript()
        );
    }
}
