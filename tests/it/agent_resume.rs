//! Conversations that are stopped at any instant and resumed: no request is sent twice, no command runs twice.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent_mode::{CHECK, PROVIDERS, agent_spec, done, solve};
use crate::crash::{disturbed, numbers, recorded, traced};
use crate::support::needs::may_trace;
use crate::support::project::{Project, RUN, RUN_JSON, checked_by};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::server::{Received, Server};

const UNKNOWN: &str = "outcome unknown";
const NOT_RUN: &str = "not run: the environments were restarted";
const RESTARTED: &str = "the environments were restarted, so";

/// Starts a run, and sends the signal once the file is there.
fn stop_when(project: &Project, file: &str, signal: Signal) {
    let mut running = project.start(RUN_JSON);
    running.until("the command runs", || project.exists(file));
    running.signal(signal);
    running.wait();
    project.nothing_left();
}

/// Starts a run and kills it after this many requests.
fn kill_at_request(project: &Project, server: &Server, request: usize) {
    let running = project.start(RUN_JSON);
    server.wait_for(request);
    running.signal(Signal::KILL);
    running.wait();
    project.nothing_left();
}

fn assert_no_answer_repeated(project: &Project) {
    let mut places = BTreeSet::new();
    for line in project.events("ModelAnswered") {
        let place = format!("{} {} {}", line["phase"], line["retry_count"], line["turn"]);
        assert!(places.insert(place), "answered twice: {line}");
    }
}

/// A model that appends two lines and repeats a call only when its outcome is reported as unknown;
/// it writes the answer only after the checks have failed.
fn appending(request: &Received) -> Reply {
    let words = ["one", "two"];
    let mut step = 0;
    let mut is_unsure = false;
    for result in request.results() {
        is_unsure = result.text.contains(UNKNOWN) || result.text.contains(NOT_RUN);
        step += usize::from(!is_unsure);
    }
    let is_patching = request.text().contains("The checks failed with");
    match words.get(step) {
        _ if is_patching && step == 0 => solve(),
        _ if is_patching => done(),
        Some(word) if is_unsure => bash(&format!("grep -qx {word} trace || echo {word} >> trace")),
        Some(word) => bash(&format!("echo {word} >> trace")),
        None => done(),
    }
}

fn killed_at_every(syscall: &str) -> usize {
    let server = Server::answering(appending);
    let numbers = numbers(&Project::with(agent_spec(""), &server), syscall);
    for number in &numbers {
        let server = Server::answering(appending);
        let project = Project::with(agent_spec(""), &server);
        disturbed(&project, syscall, &format!("signal=KILL:when={number}"));
        let (asked, kept) = (server.count(), recorded(&project));
        let ran = project.run(RUN);
        assert_eq!(
            ran.code,
            Some(0),
            "{syscall} {number}\n{}",
            ran.transcript()
        );
        assert_eq!(
            project.workspace("trace"),
            "one\ntwo\n",
            "{syscall} {number}"
        );
        let answers = project.events("ModelAnswered").len();
        assert_eq!(
            server.count() - asked,
            answers - kept,
            "{syscall} {number}: a paid answer was asked for again"
        );
        assert_no_answer_repeated(&project);
        let walk = project.phases().join(" ");
        let again = "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING SUCCESS";
        assert!(
            again.replace(" PATCHING TESTING PATCHING", " PATCHING") == walk || again == walk,
            "{number}: {walk}"
        );
        assert_eq!(project.state()["retry_count"], 1, "{syscall} {number}");
        assert_eq!(
            project.state()["attempt_files"],
            json!(["answer.txt"]),
            "{syscall} {number}"
        );
        assert_eq!(
            project.events("FilesApplied")[0]["written"],
            json!(["trace"]),
            "{syscall} {number}"
        );
        assert_eq!(
            project.state()["usage"]["llm_calls"],
            answers,
            "{syscall} {number}"
        );
        project.nothing_left();
    }
    numbers.len()
}

#[test]
fn a_run_killed_at_any_sync_ends_the_same() {
    if may_trace() {
        let count = killed_at_every("fsync") + killed_at_every("fdatasync");
        assert!(20 < count, "only {count} syncs");
    }
}

#[test]
fn a_run_killed_at_any_write_ends_the_same() {
    if may_trace() {
        let count = killed_at_every("write");
        assert!(20 < count, "only {count} writes");
    }
}

#[test]
fn an_interrupted_call_is_reported_as_unknown_and_not_repeated() {
    for provider in PROVIDERS {
        for signal in [Signal::KILL, Signal::INT] {
            let three = bash("echo first >> trace")
                .and_call(
                    "bash",
                    json!({"command": "echo second >> trace; touch begun; sleep 1000"}),
                )
                .and_call("bash", json!({"command": "echo third >> trace"}));
            let server = Server::start([three, solve(), done()]);
            let project = Project::with(agent_spec(&format!("provider: {provider}")), &server);
            stop_when(&project, "workspace/begun", signal);
            assert_eq!(project.state()["state"], "GENERATING");
            project.run(RUN).exits(0);
            assert_eq!(project.workspace("trace"), "first\nsecond\n");
            let results = server.requests()[1].results();
            assert!(results[0].text.starts_with("(no output)"), "{results:?}");
            assert!(results[1].text.starts_with(UNKNOWN), "{results:?}");
            assert!(results[2].text.starts_with(NOT_RUN), "{results:?}");
            let last = server.requests()[1].body["messages"]
                .as_array()
                .unwrap()
                .last()
                .unwrap()
                .clone();
            assert_eq!(
                (last["role"].as_str(), last.to_string().contains(RESTARTED)),
                (Some("user"), true)
            );
            if provider == "anthropic" {
                let kinds: Vec<&Value> = last["content"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|one| &one["type"])
                    .collect();
                assert_eq!(kinds, ["tool_result", "tool_result", "tool_result", "text"]);
            }
            assert_eq!(server.count(), 3);
        }
    }
}

#[test]
fn a_resumed_conversation_has_new_environments_and_the_whole_history() {
    let server = Server::start([
        bash("kept=yes; cd /tmp; echo heard").with_text("My first words."),
        bash("true").held(),
        bash("echo \"[$kept]\"; basename $PWD"),
        solve(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 2);
    project.run(RUN).exits(0);
    let requests = server.requests();
    assert!(
        requests[2].raw.contains("My first words.")
            && requests[2].result().text.starts_with("heard\n")
    );
    assert!(requests[2].text().contains(RESTARTED));
    assert!(
        requests[3].result().text.starts_with("[]\nworkspace\n"),
        "{:?}",
        requests[3].result()
    );
    assert_eq!(
        requests[4].text().matches(RESTARTED).count(),
        1,
        "it is said once"
    );
    for field in ["system", "tools"] {
        assert_eq!(requests[0].body[field], requests[4].body[field], "{field}");
    }
    assert_eq!(project.events("EnvironmentsRestarted").len(), 1);
}

#[test]
fn a_conversation_can_be_resumed_twice() {
    let server = Server::start([
        bash("echo one >> trace"),
        done().held(),
        done().held(),
        solve(),
        done().held(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    for request in [2, 3, 5] {
        kill_at_request(&project, &server, request);
    }
    project.run(RUN).exits(0);
    let requests = server.requests();
    assert_eq!(
        (requests.len(), project.workspace("trace").as_str()),
        (6, "one\n")
    );
    assert_eq!(requests[1].text().matches(RESTARTED).count(), 0);
    assert_eq!(
        requests[2].raw, requests[3].raw,
        "a request that got no answer is made again as it was"
    );
    assert_eq!(requests[5].text().matches(RESTARTED).count(), 2);
    assert_no_answer_repeated(&project);
}

#[test]
fn a_pause_keeps_the_conversation() {
    let server = Server::start([
        bash("echo one >> trace"),
        reply::status(401),
        solve(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    project.run(RUN_JSON).exits(4);
    project.nothing_left();
    project.run(RUN).exits(0);
    assert_eq!(
        (server.count(), project.workspace("trace").as_str()),
        (4, "one\n")
    );
    assert!(server.requests()[2].text().contains(RESTARTED));
}

#[test]
fn a_reminder_and_a_compaction_survive_a_kill() {
    let filled = |turn: usize| {
        bash(&format!(
            "echo turn {turn}; head -c 2000 /dev/zero | tr '\\0' x"
        ))
    };
    let script = |is_held: bool| {
        let last = if is_held {
            vec![done().held(), done()]
        } else {
            vec![done()]
        };
        (0..12)
            .map(filled)
            .chain(last)
            .chain([done(), solve(), done()])
            .collect::<Vec<_>>()
    };
    let spec = agent_spec("context: 9000, format_retries: 2");
    let whole = Server::start(script(false));
    Project::with(&spec, &whole).run(RUN).exits(0);
    let server = Server::start(script(true));
    let project = Project::with(&spec, &server);
    kill_at_request(&project, &server, 13);
    project.run(RUN).exits(0);
    let shortened = |request: &Received| request.raw.matches("[left out: ").count();
    let (whole, resumed) = (whole.requests(), server.requests());
    assert!(0 < shortened(&whole[12]), "a step was made");
    assert_eq!(shortened(&resumed[13]), shortened(&whole[12]));
    assert_eq!(
        resumed[15]
            .text()
            .matches("nothing in the workspace has changed")
            .count(),
        2
    );
}

#[test]
fn patching_stopped_before_its_first_answer_tests_again() {
    let first = [bash("echo 41 > answer.txt"), done()];
    let server = Server::start(first.into_iter().chain([done().held(), solve(), done()]));
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 3);
    assert_eq!(project.state()["state"], "PATCHING");
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 1);
    let walk = "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING SUCCESS";
    assert_eq!(project.phases().join(" "), walk);
    assert_eq!(server.requests()[2].raw, server.requests()[3].raw);
}

#[test]
fn patching_stopped_in_the_middle_continues() {
    let first = [bash("echo 41 > answer.txt"), done()];
    let server = Server::start(first.into_iter().chain([
        bash("echo one >> trace"),
        done().held(),
        solve(),
        done(),
    ]));
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 4);
    project
        .run(&[RUN, &["--max-retries", "1"]].concat())
        .exits(0);
    assert_eq!(
        (
            &project.state()["retry_count"],
            project.workspace("trace").as_str()
        ),
        (&json!(1), "one\n")
    );
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING PATCHING TESTING SUCCESS"
    );
    assert!(server.requests()[4].text().contains("answer.txt says 41"));
    assert_eq!(
        project.state()["attempt_files"],
        json!(["answer.txt", "trace"]),
        "those of the whole phase"
    );
}

#[test]
fn a_run_stopped_in_the_checks_after_a_bound_continues() {
    let server = Server::start([bash("echo 41 > answer.txt")]);
    let script = format!("test -e seen || {{ touch seen; sleep 1000; }}; {CHECK}");
    let project = Project::with(
        checked_by(&script) + "generator: {mode: agent, max_turns: 1}\n",
        &server,
    );
    stop_when(&project, "workspace/seen", Signal::KILL);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        (ran.outcome_and_reason().1.as_str(), server.count()),
        ("max_turns", 1)
    );
}

#[test]
fn a_run_stopped_after_a_conversation_continues() {
    for bound in [false, true] {
        let replies = if bound {
            vec![solve()]
        } else {
            vec![solve(), done()]
        };
        let server = Server::start(replies.clone());
        let project = Project::with(
            agent_spec(&format!("max_turns: {}", replies.len())),
            &server,
        );
        project.run(RUN).exits(0);
        let mut state = project.state();
        for (field, value) in [
            ("state", json!("GENERATING")),
            ("reason", Value::Null),
            ("test_passed", json!(false)),
        ] {
            state[field] = value;
        }
        project.write("state.json", state.to_string());
        let log = project.read(&project.log_path());
        let end = log.find("\"event\":\"ConversationClosed\"").unwrap();
        let end = end + log[end..].find('\n').unwrap() + 1;
        project.write(&project.log_path(), &log[..end]);
        project.run(RUN).exits(0);
        assert_eq!(server.count(), replies.len(), "nothing is asked");
        assert_eq!(project.state()["attempt_files"], json!(["answer.txt"]));
    }
}

#[test]
fn the_log_grows_linearly_with_the_conversation() {
    let one = |turn: usize| {
        bash(&format!(
            "echo turn {turn}; head -c 9000 /dev/zero | tr '\\0' x"
        ))
    };
    let server = Server::start((0..30).map(one).chain([solve(), done()]));
    let project = Project::with(agent_spec("context: 1000000"), &server);
    project.run(RUN).exits(0);
    let log = project.path(&project.log_path()).metadata().unwrap().len();
    assert!(log < 1_500_000, "{log} bytes");
    let requests = project.events("ModelRequested");
    for (before, request) in requests.iter().zip(&requests[1..]) {
        assert_eq!(request["continues"], before["seq"]);
        assert!(request["hash"].as_str().unwrap().starts_with("sha256:"));
        assert_eq!(
            request["request"]["messages"].as_array().unwrap().len(),
            1,
            "only what is new"
        );
    }
}

#[test]
fn a_call_is_logged_before_it_starts_and_with_its_result() {
    let server = Server::start([
        bash("grep -c '\"event\":\"ToolCalled\"' ../logs/*.log; echo 42 > answer.txt"),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    project.run(&[RUN, &["--no-sandbox"]].concat()).exits(0);
    assert!(
        server.requests()[1].result().text.starts_with("1\n"),
        "{:?}",
        server.requests()[1].result()
    );
    let names: Vec<String> = project
        .log()
        .iter()
        .map(|line| line["event"].as_str().unwrap().to_owned())
        .collect();
    let called = names.iter().position(|name| name == "ToolCalled").unwrap();
    assert_eq!(names[called + 1], "ToolReturned");
    let (call, result) = (
        &project.events("ToolCalled")[0],
        &project.events("ToolReturned")[0],
    );
    for field in ["phase", "retry_count", "turn", "call", "tool_name"] {
        assert_eq!(call[field], result[field], "{field}");
    }
    assert!(
        call["arguments"]["command"]
            .as_str()
            .unwrap()
            .starts_with("grep")
    );
}

/// The calls of a run with so many turns that sync something, write to the log, or send something.
fn traced_calls(turns: usize) -> Vec<String> {
    let calls = (0..turns).map(|turn| bash(&format!("echo begin-{turn}")));
    let server = Server::start(calls.chain([solve(), done()]));
    let project = Project::with(agent_spec(""), &server);
    let (file, calls) = (
        project.outside("calls"),
        "trace=fsync,fdatasync,syncfs,write,writev,sendto",
    );
    let file = file.display().to_string();
    traced(&project, &["-y", "-s", "300", "-o", &file, "-e", calls]).exits(0);
    let text = std::fs::read_to_string(file).unwrap();
    text.lines()
        .filter(|line| line.contains('('))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_turn_with_one_call_costs_two_syncs_of_the_log() {
    if may_trace() {
        let syncs = |turns| {
            let calls = traced_calls(turns);
            calls
                .iter()
                .filter(|call| call.contains(" fdatasync("))
                .count()
        };
        assert_eq!(syncs(9) - syncs(2), 2 * 7);
    }
}

#[test]
fn requests_and_commands_wait_until_the_log_is_durable() {
    if !may_trace() {
        return;
    }
    let (mut unsynced, mut requests, mut commands) = (Vec::new(), 0, 0);
    for call in traced_calls(3) {
        let is_line = call.contains(".log>") && call.contains(" write(");
        let is_request = call.contains("POST /");
        let is_command = call.contains(" sendto(") && call.contains("echo begin-");
        match () {
            () if call.contains(".log>") && call.contains(" fdatasync(") => unsynced.clear(),
            () if is_line => unsynced.push(call),
            () if is_request || is_command => {
                assert!(
                    unsynced.is_empty(),
                    "{call} before\n{}",
                    unsynced.join("\n")
                );
                requests += usize::from(is_request);
                commands += usize::from(is_command);
            }
            () => {}
        }
    }
    assert_eq!((requests, commands), (5, 3));
}

#[test]
fn usage_is_saved_after_each_answer() {
    let server = Server::start([solve(), done().held()]);
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 2);
    assert_eq!(project.state()["usage"]["llm_calls"], 1);
}

#[test]
fn an_answer_that_paused_its_turn_survives_a_kill() {
    let paused = reply::text("Searching on.").stop("pause_turn");
    let server = Server::start([paused, done().held(), solve(), done()]);
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 2);
    project.run(RUN).exits(0);
    assert!(server.requests()[2].raw.contains("Searching on."));
}

#[test]
fn a_signal_does_not_wait_for_an_environment_that_loads() {
    let server = Server::start([call("slow", json!({"command": "x"})), solve(), done()]);
    let project = Project::with(agent_spec(""), &server).file(
        "env/slow.py",
        "import time\nopen('loading', 'w')\ntime.sleep(1000)\n",
    );
    let mut running = project.start(RUN_JSON);
    running.until("it loads", || project.exists("workspace/loading"));
    running.signal(Signal::INT);
    running.wait().exits(130);
    project.nothing_left();
}

#[test]
fn no_temporary_directory_is_left() {
    for signal in [None, Some(Signal::INT), Some(Signal::KILL)] {
        let server = Server::answering(|request| match request.results().len() {
            0 => bash("mktemp -d; touch ~/mine; mkdir -p ~/.cache/x; touch begun; sleep 1000"),
            1 => bash("echo 42 > answer.txt"),
            _ => done(),
        });
        let project = Project::with(agent_spec(""), &server);
        let tmp = project.outside("tmp");
        std::fs::create_dir(&tmp).unwrap();
        let mut project = project.env("TMPDIR", &tmp.display().to_string());
        if let Some(signal) = signal {
            stop_when(&project, "workspace/begun", signal);
            project.run(RUN).exits(0);
        } else {
            let server = Server::start([bash("mktemp -d; touch ~/mine"), solve(), done()]);
            project = project.model(&server);
            project.run(RUN).exits(0);
        }
        for folder in std::fs::read_dir(&tmp).unwrap().flatten() {
            let left: Vec<_> = std::fs::read_dir(folder.path())
                .unwrap()
                .flatten()
                .map(|entry| entry.path())
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn a_resumed_conversation_lists_changed_files() {
    const UNCHANGED: &str = "the files are as they were";
    type Change = fn(&Project);
    let changes: [(&str, Change, Option<&str>); 5] = [
        ("nothing", |_| (), None),
        (
            "cut",
            |project| project.write("workspace/a.txt", ""),
            Some("a.txt (was 6 bytes, now 0 bytes)"),
        ),
        (
            "gone",
            |project| std::fs::remove_file(project.path("workspace/a.txt")).unwrap(),
            Some("a.txt (gone)"),
        ),
        (
            "new",
            |project| project.write("workspace/new.txt", "n"),
            Some("new.txt (new, 1 bytes)"),
        ),
        (
            "given",
            |project| project.write("workspace/given.txt", "other"),
            Some("given.txt (changed, now 5 bytes)"),
        ),
    ];
    for (what, change, told) in changes {
        let server = Server::start([bash("echo first > a.txt"), done().held(), solve(), done()]);
        let project = Project::with(agent_spec("") + "workspace: {copy: [given.txt]}\n", &server)
            .file("specs/given.txt", "given\n");
        kill_at_request(&project, &server, 2);
        change(&project);
        project.run(RUN).exits(0);
        let said = server.requests()[2].text();
        assert_eq!(said.contains(UNCHANGED), told.is_none(), "{what}: {said}");
        assert!(
            told.is_none_or(|told| said.contains(told)),
            "{what}: {said}"
        );
        let restarted = &project.events("EnvironmentsRestarted")[0];
        assert!(
            said.contains(restarted["words"].as_str().unwrap()),
            "{restarted}"
        );
        assert_eq!(
            restarted["changed"].as_array().unwrap().len(),
            usize::from(told.is_some()),
            "{restarted}"
        );
        // What was reported once is not reported again.
        assert_eq!(
            project.events("ToolReturned").last().unwrap()["changed"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    }
}

#[test]
fn changes_of_an_interrupted_call_are_listed() {
    let server = Server::start([
        bash("echo half > half.txt; touch begun; sleep 1000"),
        solve(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    stop_when(&project, "workspace/begun", Signal::KILL);
    project.run(RUN).exits(0);
    let said = server.requests()[1].text();
    assert!(
        said.contains("not as they were") && said.contains("half.txt (new, 5 bytes)"),
        "{said}"
    );
}

#[test]
fn a_log_without_file_hashes_lists_no_changes() {
    let server = Server::start([bash("echo first > a.txt"), done().held(), solve(), done()]);
    let project = Project::with(agent_spec(""), &server);
    kill_at_request(&project, &server, 2);
    let older: String = project
        .read(&project.log_path())
        .lines()
        .map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            line.as_object_mut().unwrap().remove("changed");
            format!("{line}\n")
        })
        .collect();
    project.write(&project.log_path(), older);
    project.run(RUN).exits(0);
    let said = server.requests()[2].text();
    assert!(
        !said.contains("the files are as they were]") && said.contains("is not known"),
        "{said}"
    );
}
