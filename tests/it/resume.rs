//! Stopping at any instant and resuming: nothing is lost and no request is sent twice.
//!
//! The scripted model counts requests and holds one while the signal is sent, so nothing here depends on time.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::Ran;
use crate::support::server::Server;

/// Each signal with its exit code; SIGKILL has none.
const SIGNALS: [(Signal, Option<i32>); 4] = [
    (Signal::INT, Some(130)),
    (Signal::TERM, Some(143)),
    (Signal::HUP, Some(129)),
    (Signal::KILL, None),
];

/// The signals that a run receives: SIGHUP may be ignored in this process (`nohup`).
fn signals() -> impl Iterator<Item = (Signal, Option<i32>)> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap_or("0")
        .trim()
        .to_owned();
    let ignored = u64::from_str_radix(&ignored, 16).unwrap_or(0);
    SIGNALS
        .into_iter()
        .filter(move |(signal, _)| *signal != Signal::HUP || ignored & 1 == 0)
}

/// Starts a run, waits until the server has seen so many requests, and sends the signal.
fn stop_at_request(project: &Project, server: &Server, request: usize, signal: Signal) -> Ran {
    let running = project.start(RUN_JSON);
    server.wait_for(request);
    running.signal(signal);
    running.wait()
}

fn assert_stopped(ran: &Ran, code: Option<i32>) {
    assert_eq!(ran.code, code, "{}", ran.transcript());
    if code.is_some() {
        assert_eq!(
            ran.outcome_and_reason(),
            ("INTERRUPTED".into(), "interrupted".into())
        );
        let next = ran.result()["next"].to_string();
        assert!(next.contains("specs/spec.yaml"), "next is {next}");
    }
}

fn assert_no_place_answered_twice(project: &Project) {
    let mut places = BTreeSet::new();
    for line in project.events("ModelAnswered") {
        let place = format!("{} {} {}", line["phase"], line["retry_count"], line["turn"]);
        assert!(places.insert(place), "answered twice: {line}");
    }
}

#[test]
fn a_run_stopped_while_generating_continues() {
    for (signal, code) in signals() {
        let server = Server::start([
            reply::answer("41").held(),
            reply::answer("41"),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        assert_stopped(&stop_at_request(&project, &server, 1, signal), code);
        let before = project.state();
        assert_eq!(
            (&before["state"], &before["retry_count"]),
            (&json!("GENERATING"), &json!(0))
        );
        project.nothing_left();
        project.run(RUN).exits(0);
        assert_eq!(
            project.phases().join(" "),
            "INIT GENERATING TESTING PATCHING TESTING SUCCESS"
        );
        assert_eq!(project.state()["run_id"], before["run_id"]);
        assert_eq!(project.state()["created_at"], before["created_at"]);
        assert_eq!(server.count(), 3);
        assert_eq!(server.requests()[0].raw, server.requests()[1].raw);
    }
}

#[test]
fn a_run_stopped_while_an_answer_streams_continues() {
    for (signal, code) in signals() {
        let server = Server::start([reply::answer("42").stall_after(3), reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        assert_stopped(&stop_at_request(&project, &server, 1, signal), code);
        assert_eq!(project.workspace_names(), [""; 0]);
        project.run(RUN).exits(0);
        assert_eq!(
            (server.count(), project.events("ModelAnswered").len()),
            (2, 1)
        );
    }
}

#[test]
fn a_run_stopped_while_testing_continues() {
    for (signal, code) in signals() {
        let server = Server::start([reply::answer("42")]);
        let project = Project::new().model(&server);
        let script = format!(
            "test -e seen && exec grep -qx 42 answer.txt; touch seen; (sleep {0} & sleep {0})",
            project.marker()
        );
        let project = project.spec(checked_by(&script));
        let mut running = project.start(RUN_JSON);
        running.until("the check runs", || project.exists("workspace/seen"));
        running.signal(signal);
        assert_stopped(&running.wait(), code);
        assert_eq!(project.state()["state"], "TESTING");
        project.nothing_left();
        project.run(RUN).exits(0);
        assert_eq!(server.count(), 1);
        assert_eq!(
            project.phases().join(" "),
            "INIT GENERATING TESTING SUCCESS"
        );
    }
}

/// A power cut may take the name of the newest `state.json`; the log has the transition that it was about.
#[test]
fn a_log_that_leads_by_the_transition_to_testing_is_followed() {
    for answers in [&["42"][..], &["41", "42"]] {
        let server = Server::start(answers.iter().map(|line| reply::answer(line)));
        let project = Project::new().model(&server);
        let script = format!(
            "grep -qx 42 answer.txt || exit 1; test -e seen && exit; touch seen; sleep {}",
            project.marker()
        );
        let project = project.spec(checked_by(&script));
        let mut running = project.start(RUN_JSON);
        running.until("the check runs", || project.exists("workspace/seen"));
        running.signal(Signal::KILL);
        running.wait();
        let retries = answers.len() - 1;
        let mut state = project.state();
        assert_eq!(state["state"], "TESTING");
        assert_eq!(state["retry_count"], retries);
        let lost = state.clone();
        state["state"] = ["GENERATING", "PATCHING"][retries].into();
        state["retry_count"] = 0.into();
        state["attempt_files"] = json!([]);
        project.write("state.json", state.to_string());
        project.run(RUN).exits(0);
        assert_eq!(server.count(), answers.len());
        assert_no_place_answered_twice(&project);
        let patched = ["", "PATCHING TESTING "][retries];
        assert_eq!(
            project.phases().join(" "),
            format!("INIT GENERATING TESTING {patched}SUCCESS")
        );
        for field in ["retry_count", "attempt_files", "usage"] {
            assert_eq!(project.state()[field], lost[field], "{field}");
        }
    }
}

#[test]
fn a_run_stopped_while_patching_tests_again_with_the_same_count() {
    for (signal, code) in signals() {
        let server = Server::start([
            reply::answer("41"),
            reply::answer("40").held(),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        assert_stopped(&stop_at_request(&project, &server, 2, signal), code);
        assert_eq!(
            (&project.state()["state"], &project.state()["retry_count"]),
            (&json!("PATCHING"), &json!(0))
        );
        project.run(RUN).exits(0);
        let walk = "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING SUCCESS";
        assert_eq!(project.phases().join(" "), walk);
        assert_eq!(
            (&project.state()["retry_count"], server.count()),
            (&json!(1), 3)
        );
    }
}

#[test]
fn a_run_stopped_between_reminders_continues() {
    for (signal, code) in signals() {
        let server = Server::start([
            reply::text("no file here"),
            reply::answer("42").held(),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        assert_stopped(&stop_at_request(&project, &server, 2, signal), code);
        assert_eq!(project.state()["state"], "GENERATING");
        project.run(RUN).exits(0);
        assert_eq!(server.count(), 3);
        assert_eq!(
            server.requests()[1].raw,
            server.requests()[2].raw,
            "the reminder is the same"
        );
        assert_no_place_answered_twice(&project);
    }
}

#[test]
fn a_run_stopped_in_a_reminder_of_a_patch_continues() {
    let replies = [
        reply::answer("41"),
        reply::text("hm"),
        reply::answer("42").held(),
        reply::answer("42"),
    ];
    let server = Server::start(replies);
    let project = Project::with(answer_spec(), &server);
    assert_stopped(&stop_at_request(&project, &server, 3, Signal::KILL), None);
    project.run(RUN).exits(0);
    assert_eq!(server.count(), 4);
    assert_eq!(
        server.requests()[2].raw,
        server.requests()[3].raw,
        "the reminder is the same"
    );
    assert_eq!(project.state()["retry_count"], 1);
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING PATCHING TESTING SUCCESS"
    );
}

/// What was on disk when a run was killed right after an answer was recorded.
fn killed_after_the_answer(project: &Project, server: &Server, request: usize) {
    let running = project.start(RUN);
    server.wait_for(request);
    let picture = project.files();
    server.release();
    running.wait();
    let log = project.read(&project.log_path());
    let answered = project
        .log()
        .into_iter()
        .enumerate()
        .filter(|(_, line)| line["event"] == "ModelAnswered");
    let last = answered.map(|(index, _)| index).nth(request - 1).unwrap();
    let kept: String = log
        .lines()
        .take(last + 1)
        .flat_map(|line| [line, "\n"])
        .collect();
    let log_path = project.log_path();
    project.restore(&picture);
    project.write(&log_path, kept);
}

#[test]
fn a_recorded_answer_is_never_requested_again() {
    let replies = |held: usize| {
        let lines = ["41", "42"].into_iter().enumerate();
        lines.map(move |(index, line)| {
            if index + 1 == held {
                reply::answer(line).held()
            } else {
                reply::answer(line)
            }
        })
    };
    for (request, phase) in [(1, "GENERATING"), (2, "PATCHING")] {
        let server = Server::start(replies(request));
        let project = Project::with(answer_spec(), &server);
        killed_after_the_answer(&project, &server, request);
        assert_eq!(project.state()["state"], phase);
        let rest = Server::start(replies(0).skip(request));
        let project = project.model(&rest);
        project.run(RUN).exits(0);
        assert_eq!(rest.count(), 2 - request);
        assert_eq!(
            project.phases().join(" "),
            "INIT GENERATING TESTING PATCHING TESTING SUCCESS"
        );
        assert_eq!(project.state()["usage"]["llm_calls"], 2);
        assert_eq!(project.state()["retry_count"], 1);
        assert_no_place_answered_twice(&project);
    }
}

#[test]
fn a_paused_run_continues_with_the_same_command() {
    let faults = (0..5).map(|_| reply::status(503));
    let server = Server::start(
        [reply::answer("41")]
            .into_iter()
            .chain(faults)
            .chain([reply::answer("42")]),
    );
    let project = Project::with(answer_spec(), &server);
    let ran = project.run(RUN_JSON).exits(4);
    assert_eq!(
        ran.outcome_and_reason(),
        ("PAUSED".into(), "provider_unavailable".into())
    );
    assert!(ran.result()["next"].is_string());
    assert_eq!(
        (&project.state()["state"], &project.state()["reason"]),
        (&json!("PATCHING"), &Value::Null)
    );
    assert_eq!(server.count(), 6);
    project.run(RUN).exits(0);
    assert_eq!(
        (&project.state()["retry_count"], server.count()),
        (&json!(1), 7)
    );
}

#[test]
fn the_suggested_command_continues_the_run() {
    let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let ran = stop_at_request(&project, &server, 1, Signal::INT);
    let next = ran.result()["next"].as_str().unwrap().to_owned();
    let words = next.split_once(' ').unwrap().1;
    project
        .run_in_shell(&format!("exec \"$1\" {words}"), &[])
        .exits(0);
    assert_eq!(server.count(), 2);
}

/// Damages the log of a run that was killed in a reminder, and expects the run to end as if it were whole.
fn check_damage(what: &str, damage: impl FnOnce(&mut Vec<u8>)) {
    let server = Server::start([
        reply::text("hm"),
        reply::answer("42").held(),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 2, Signal::KILL);
    let path = project.log_path();
    let mut log = std::fs::read(project.path(&path)).unwrap();
    damage(&mut log);
    project.write(&path, &log);
    let ran = project.run(RUN);
    assert_eq!(ran.code, Some(0), "{what}\n{}", ran.transcript());
    assert_eq!(server.count(), 3, "{what}: an answer was asked for twice");
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING SUCCESS",
        "{what}"
    );
    assert_no_place_answered_twice(&project);
}

#[test]
fn a_damaged_tail_of_the_log_is_repaired() {
    check_damage("torn line", |log| {
        log.extend_from_slice(br#"{"ts":"2026-01-01T00:00:00Z","run_id":"#)
    });
    check_damage("no newline", |log| log.truncate(log.len() - 1));
    check_damage("NULs", |log| log.extend_from_slice(&[0; 4096]));
    check_damage("torn line and NULs", |log| {
        log.extend_from_slice(b"{\"ts\":\0\0\0\0\0\0")
    });
    check_damage("last line twice", |log| {
        let start = log[..log.len() - 1]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .unwrap()
            + 1;
        log.extend_from_within(start..);
    });
    check_damage("the last three lines twice", |log| {
        let ends: Vec<usize> = log
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at)
            .collect();
        log.extend_from_within(ends[ends.len() - 4] + 1..);
    });
    check_damage("not UTF-8", |log| {
        log.extend_from_slice(b"{\"event\":\"\xff\xfe\n")
    });
}

#[test]
fn repairing_the_log_is_reported() {
    let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 1, Signal::KILL);
    let path = project.log_path();
    project.write(&path, project.read(&path) + "{\"half");
    project.run(RUN).exits(0);
    assert_eq!(project.events("LogMended").len(), 1);
    assert!(project.log().iter().all(|line| line.is_object()));
}

/// Takes the last transition out of the log, and what came after it.
fn forget_the_last_transition(project: &Project) {
    let last = project
        .log()
        .iter()
        .rposition(|line| line["event"] == "TransitionOccurred")
        .unwrap();
    let path = project.log_path();
    let kept: String = project
        .read(&path)
        .lines()
        .take(last)
        .flat_map(|line| [line.to_owned(), "\n".to_owned()])
        .collect();
    project.write(&path, kept);
}

#[test]
fn a_transition_missing_in_the_log_is_added() {
    let server = Server::start([
        reply::answer("41"),
        reply::answer("42").held(),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 2, Signal::KILL);
    forget_the_last_transition(&project);
    project.run(RUN).exits(0);
    let walk = "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING SUCCESS";
    assert_eq!(project.phases().join(" "), walk);
}

#[test]
fn a_missing_first_transition_is_added() {
    let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 1, Signal::KILL);
    forget_the_last_transition(&project);
    project.run(RUN).exits(0);
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING SUCCESS"
    );
}

#[test]
fn a_missing_last_transition_is_added() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    forget_the_last_transition(&project);
    project.run(RUN).exits(0);
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING SUCCESS"
    );
}

#[test]
fn a_missing_log_does_not_prevent_a_resume() {
    for phase in 1..=2 {
        let server =
            Server::answering(
                |request| match request.text().contains("answer.txt says 41") {
                    true => reply::answer("42").held(),
                    false => reply::answer("41").held(),
                },
            );
        let project = Project::with(answer_spec(), &server);
        let running = project.start(RUN);
        server.wait_for(1);
        if phase == 2 {
            server.release();
            server.wait_for(2);
        }
        running.signal(Signal::KILL);
        running.wait();
        std::fs::remove_dir_all(project.path("logs")).unwrap();
        let again = project.start(RUN);
        for request in phase + 1..=3 {
            server.wait_for(request);
            server.release();
        }
        again.wait().exits(0);
        assert_eq!(project.state()["state"], "SUCCESS");
        assert_eq!(project.state()["retry_count"], 1);
    }
}

#[test]
fn a_second_signal_changes_nothing() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN);
    server.wait_for(1);
    running.signal(Signal::INT).signal(Signal::TERM);
    let ran = running.wait();
    assert!(matches!(ran.code, Some(130 | 143)), "{}", ran.transcript());
    assert_eq!(project.state()["state"], "GENERATING");
}

#[test]
fn a_resumed_run_appends_to_the_same_log() {
    let server = Server::start([
        reply::answer("41"),
        reply::answer("42").held(),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 2, Signal::KILL);
    let before = project.log();
    project.run(RUN).exits(0);
    let after = project.log();
    assert_eq!(after[..before.len()], before[..]);
    let files = std::fs::read_dir(project.path("logs")).unwrap().flatten();
    assert_eq!(files.filter(|entry| entry.path().is_file()).count(), 1);
}

#[test]
fn a_retry_limit_below_the_current_patch_is_raised_to_it() {
    let replies = ["41", "40", "39"].map(reply::answer).into_iter();
    let server = Server::start(replies.chain([
        reply::text("hm"),
        reply::answer("38").held(),
        reply::answer("38"),
    ]));
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 5, Signal::KILL);
    let ran = project
        .run(&[RUN_JSON, &["--max-retries", "1"]].concat())
        .exits(1);
    assert_eq!(ran.outcome_and_reason().1, "retries_exhausted");
    assert_eq!(
        (
            &project.state()["retry_count"],
            &project.state()["max_retries"]
        ),
        (&json!(3), &json!(3))
    );
    project.run(&["status"]).exits(0);
    project.run(RUN).exits(1);
}

#[test]
fn files_restored_before_a_stop_are_still_reported() {
    let first = reply::files(&[("answer.txt", "41\n"), ("given/a.txt", "mine\n")]);
    let server = Server::start([first, reply::answer("40").held(), reply::answer("42")]);
    let spec = answer_spec() + "workspace: {protect: [given/]}\n";
    let project = Project::with(spec, &server).file("specs/given/a.txt", "yours\n");
    stop_at_request(&project, &server, 2, Signal::KILL);
    project.run(RUN).exits(0);
    assert_eq!(server.requests()[1].raw, server.requests()[2].raw);
}

#[test]
fn a_state_with_many_file_names_is_read_back() {
    let folder = ["x".repeat(250).as_str(); 15].join("/");
    let names: Vec<String> = (0..1200)
        .map(|number| format!("{folder}/{number}"))
        .collect();
    let first = names
        .iter()
        .map(|name| reply::block(name, ""))
        .collect::<String>()
        + &reply::block("answer.txt", "41\n");
    let server = Server::start([
        reply::text(&first),
        reply::answer("42").held(),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    stop_at_request(&project, &server, 2, Signal::KILL);
    project.run(RUN).exits(0);
}
