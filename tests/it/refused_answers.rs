//! Refused answers: the refusal is in the log, and a resumed run does not check them again.

use std::collections::BTreeMap;

use serde_json::json;

use crate::crash::{disturbed, numbers};
use crate::support::needs::may_trace;
use crate::support::project::{Project, RUN, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::server::{Received, Server};

/// A model whose patch writes a file at the path of a folder; after the reminder it removes the folder.
fn in_conflict(request: &Received) -> Reply {
    match request.text() {
        said if said.contains("was not used") => reply::text(
            "<delete path=\"data\"/>\n<file path=\"answer.txt\">\n42\n</file>\n<file path=\"other.txt\">\no\n</file>\n",
        ),
        said if said.contains("answer.txt says 41") => {
            reply::files(&[("data", "a file\n"), ("answer.txt", "40\n")])
        }
        _ => reply::files(&[("data/x.txt", "x\n"), ("answer.txt", "41\n")]),
    }
}

fn expected() -> BTreeMap<String, Vec<u8>> {
    [("answer.txt", "42\n"), ("other.txt", "o\n")]
        .map(|(name, text)| (name.to_owned(), text.into()))
        .into()
}

#[test]
fn the_log_has_the_reason_of_a_refusal() {
    let server = Server::answering(in_conflict);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_files(), expected());
    let refused = project.events("AnswerRefused");
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (&refused[0]["phase"], &refused[0]["turn"]),
        (&json!("PATCHING"), &json!(0))
    );
    assert!(
        refused[0]["fault"].as_str().unwrap().contains("data"),
        "{refused:?}"
    );
    assert_eq!(refused[0]["had_a_block"], json!(true));
    assert!(
        server.requests()[2]
            .text()
            .contains(refused[0]["fault"].as_str().unwrap())
    );
}

fn killed_at_every(calls: &str) -> u32 {
    let mut killed = 0;
    for call in calls.split(' ') {
        for number in numbers(
            &Project::with(answer_spec(), &Server::answering(in_conflict)),
            call,
        ) {
            let server = Server::answering(in_conflict);
            let project = Project::with(answer_spec(), &server);
            killed += u32::from(
                disturbed(&project, call, &format!("signal=KILL:when={number}")).signal == Some(9),
            );
            let (asked, kept) = (server.count(), crate::crash::recorded(&project));
            let ran = project.run(RUN);
            assert_eq!(ran.code, Some(0), "{call} {number}\n{}", ran.transcript());
            assert_eq!(
                project.workspace_files(),
                expected(),
                "{call} {number}: the refused answer was applied"
            );
            assert_eq!(
                server.count() - asked,
                3 - kept,
                "{call} {number}: a paid answer was lost"
            );
            assert_eq!(project.events("ModelAnswered").len(), 3, "{call} {number}");
            assert_eq!(project.state()["retry_count"], 1, "{call} {number}");
        }
    }
    killed
}

#[test]
fn a_refused_answer_stays_refused_after_a_kill_at_any_change_of_the_disk() {
    if may_trace() {
        let killed = killed_at_every("unlinkat renameat mkdirat fsync fdatasync");
        assert!(10 < killed, "only {killed} kills");
    }
}

#[test]
fn a_refused_answer_stays_refused_after_a_kill_at_any_write() {
    if may_trace() {
        let killed = killed_at_every("write");
        assert!(10 < killed, "only {killed} kills");
    }
}

#[test]
fn a_refused_answer_is_not_checked_again() {
    let held = reply::answer("42").held();
    let server = Server::start([reply::text("no block"), held, reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN);
    server.wait_for(2);
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    assert_eq!(project.events("AnswerRefused").len(), 1);
    project.run(RUN).exits(0);
    assert_eq!(
        project.events("AnswerRefused").len(),
        1,
        "it is not judged again"
    );
    assert_eq!(
        server.requests()[1].raw,
        server.requests()[2].raw,
        "the reminder is the same"
    );
}
