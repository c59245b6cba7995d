//! Replaying a workflow: answers of models and people come from a log, scripts run again, and the end is compared.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply, bash};
use crate::support::server::Server;
use crate::support::workflow::{Answers, FLOW, FLOW_JSON, outcome, text_of, workflow};

const REPLAY: &[&str] = &["--replay", "recorded.log"];

/// A project with the log of another as `recorded.log` and its states, without keys and without a server.
fn replaying(recorded: &Project) -> Project {
    let log = fs::read(recorded.path(&recorded.log_path())).unwrap();
    let mut project = Project::new()
        .file("recorded.log", log)
        .without("ANTHROPIC_API_KEY")
        .without("OPENAI_API_KEY");
    for (path, content) in recorded.files() {
        if path.starts_with("flow/") {
            project = project.file(&path, content);
        }
    }
    project
}

/// Replays a run in another root, which ends with this exit code, as the recorded one did.
fn replay(recorded: &Project, options: &[&str], code: i32) -> Project {
    let project = replaying(recorded);
    let ran = project
        .run(&[FLOW_JSON, REPLAY, options].concat())
        .exits(code);
    project.nothing_left();
    assert_eq!(ran.result()["result"], recorded.state()["results"]["main"]);
    for field in ["state", "reason", "results", "fork_counters"] {
        assert_eq!(project.state()[field], recorded.state()[field], "{field}");
    }
    assert_eq!(
        sorted(project.transitions()),
        sorted(recorded.transitions())
    );
    assert_ne!(project.state()["run_id"], recorded.state()["run_id"]);
    project
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// Runs a workflow that succeeds with these answers.
fn recorded(states: &[(&str, &str)], server: &Server, options: &[&str]) -> Project {
    let project = workflow(states).model(server);
    project.succeed(options);
    project
}

#[test]
fn a_replay_of_calls_tools_and_scripts_ends_the_same() {
    let policy = "---\nallowed_transitions: [{tag: call}, {tag: result}]\n---\n";
    let states = [
        ("START.md", "Plan {{input}}."),
        ("S.sh", "cat made >> seen; echo '<goto>B</goto>'"),
        ("B.md", &*format!("{policy}Go on.")),
        ("R.md", "Back with {{input}}."),
    ];
    let server = Server::start([
        bash("date +%N; pwd; mktemp; echo made > made"),
        reply::text("<goto>S</goto>"),
        // The state C does not exist: the model is reminded.
        reply::text("<call return=\"R\">C</call>"),
        reply::text("<call return=\"R\">START</call>"),
        reply::text("<result>inner</result>"),
        reply::text("<result>end</result>"),
    ]);
    let first = recorded(&states, &server, &["--input", "it"]);
    assert_eq!(server.count(), 6);
    let second = replay(&first, &["--input", "it"], 0);
    assert_eq!(second.workspace_files(), first.workspace_files());
    assert_eq!(second.state_text("input"), "it");
    // A replay can be replayed.
    let third = replay(&second, &["--input", "it"], 0);
    assert_eq!(third.workspace("seen"), "made\n");
}

#[test]
fn a_replay_of_forks_does_not_depend_on_their_order() {
    let states = [
        (
            "START.sh",
            "echo '<fork join=\"J\" n=\"1\">W</fork><fork n=\"2\">W</fork><fork n=\"3\">S</fork>'",
        ),
        ("W.md", "Work on {{n}}."),
        ("W2.md", "Still on it."),
        (
            "S.sh",
            "echo \"<result>script $ORCHESTRATOR_VAR_N</result>\"",
        ),
        ("J.md", "Joined {{input}}."),
    ];
    let server = Answers::new()
        .on(
            "Work on 1",
            [bash("echo one > one"), reply::text("<goto>W2</goto>")],
        )
        .on("Work on 2", [reply::text("<goto>W2</goto>").held()])
        .on("Still", ["<result>w</result>", "<result>w</result>"])
        .on("Joined", ["<result>all</result>"])
        .start();
    let first = workflow(&states).model(&server);
    let running = first.start(FLOW);
    // The second worker goes on when the first one has ended.
    server.wait_for(4);
    server.release();
    running.wait().exits(0);
    let second = replay(&first, &[], 0);
    assert_eq!(second.workspace("one"), "one\n");
    assert_eq!(
        replay(&second, &["--jobs", "1"], 0).workspace("one"),
        "one\n"
    );
}

#[test]
fn answers_of_people_are_replayed() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\" x=\"1\">ASK</fork><fork x=\"2\">ASK</fork>'",
        ),
        (
            "ASK.sh",
            "echo \"<ask next='B'>What is $ORCHESTRATOR_VAR_X?</ask>\"",
        ),
        (
            "B.sh",
            "case $ORCHESTRATOR_INPUT in again) echo '<ask next=\"B\">And now?</ask>';; \
             *) echo \"<result>$ORCHESTRATOR_INPUT</result>\";; esac",
        ),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    project.pause(&[]);
    let answers = ["--answer", "main_ask2=again", "--answer", "main_ask1=one"];
    project.pause(&answers);
    // A replay of a run that asks ends with the open question.
    let asking = replay(&project, &[], 4);
    assert_eq!(asking.agents(), ["main waiting", "main_ask2 asking"]);
    assert_eq!(
        project.succeed(&["--answer", "two"]),
        r#"{"main_ask1":"one","main_ask2":"two"}"#
    );
    let second = replay(&project, &[], 0);
    assert_eq!(second.events("AgentAnswered").len(), 3);
}

#[test]
fn the_run_id_in_a_prompt_is_not_a_difference() {
    let states = [
        ("START.md", "I am {{run_id}}."),
        (
            "S.sh",
            "echo \"<goto input='$ORCHESTRATOR_RUN_ID'>B</goto>\"",
        ),
        ("B.md", "It is {{input}} in {{workflow_id}}."),
    ];
    let server = Server::start([
        reply::text("<goto>S</goto>"),
        reply::text("<result>x</result>"),
    ]);
    let first = recorded(&states, &server, &[]);
    replay(&first, &[], 0);
}

#[test]
fn what_varies_by_nature_in_an_input_is_not_a_difference() {
    let states = [
        (
            "START.sh",
            "{ date +'1 failed in 0.%Ns'; pwd; mktemp; } > $ORCHESTRATOR_OUTPUT_FILE; echo '<goto>B</goto>'",
        ),
        ("B.md", "Look:\n{{input}}\nand go on."),
    ];
    let server = Server::start([reply::text("<result>x</result>")]);
    let first = recorded(&states, &server, &[]);
    replay(&first, &[], 0);
}

#[test]
fn a_resumed_run_is_replayed_by_the_visits_that_its_transitions_came_from() {
    let policy = "---\nallowed_transitions: [{tag: goto, target: S}, {tag: result}]\n---\n";
    let states = [
        ("START.md", &*format!("{policy}One.")),
        ("S.sh", "test -e go || exit 1; echo '<goto>B</goto>'"),
        ("B.md", &*format!("{policy}Two.")),
    ];
    let mistake = || reply::text("no tag");
    let replies = [
        mistake(),
        mistake(),
        mistake(),
        mistake(),
        reply::text("<goto>S</goto>"),
        reply::status(401),
        reply::text("<result>x</result>"),
    ];
    let server = Server::start(replies);
    let first = workflow(&states).model(&server);
    first.fail(&[]);
    first.fail(&[]);
    first.write("workspace/go", "");
    first.pause(&[]);
    assert_eq!(first.succeed(&[]), "x");
    let second = replaying(&first).file("workspace/go", "");
    let ran = second.run(&[FLOW, REPLAY].concat()).exits(0);
    assert_eq!(ran.stdout, "x\n");
}

#[test]
fn restarts_of_the_tools_are_replayed() {
    let states = [("START.md", "One."), ("B.md", "Two."), ("R.md", "Three.")];
    let server = Server::start([
        bash("x=1; echo one > file"),
        reply::text("<call return=\"R\">B</call>"),
        reply::status(401),
        bash("echo \"[$x]\" >> file"),
        reply::text("<result>b</result>"),
        reply::text("<result>x</result>"),
    ]);
    let first = workflow(&states).model(&server);
    first.pause(&[]);
    assert_eq!(first.succeed(&[]), "x");
    assert_eq!(first.workspace("file"), "one\n[]\n");
    let second = replay(&first, &[], 0);
    assert_eq!(second.workspace_files(), first.workspace_files());
}

#[test]
fn a_killed_run_is_replayed_by_its_calls() {
    let states = [("START.md", "One.")];
    let server = Server::start([
        bash("echo one > file; mkfifo gate; read line < gate"),
        reply::text("<result>x</result>"),
    ]);
    let first = workflow(&states).model(&server);
    let mut running = first.start(FLOW);
    running.until("the call waits", || first.exists("workspace/gate"));
    running.signal(Signal::KILL);
    running.wait();
    fs::remove_file(first.path("workspace/gate")).unwrap();
    assert_eq!(first.succeed(&[]), "x");
    // The call has no result in the log, so it is not run.
    let second = replay(&first, &[], 0);
    assert!(!second.exists("workspace/gate"));
}

#[test]
fn failed_agents_are_replayed() {
    let check = |states: &[(&str, &str)], replies: Vec<Reply>| {
        let server = Server::start(replies);
        let project = workflow(states).model(&server);
        project.fail(&[]);
        replay(&project, &[], 1);
    };
    check(&[("START.sh", "exit 1")], Vec::new());
    check(&[("START.md", "One.")], vec![reply::text("no tag")]);
    check(
        &[("START.md", "One.")],
        vec![reply::text("No.").stop("refusal")],
    );
    let odd = reply::error(400, "invalid_request_error", "too odd for me");
    check(&[("START.md", "One.")], vec![odd]);
    let policy = "---\nallowed_transitions: [{tag: goto, target: S}, {tag: result}]\n---\nOne.";
    let states = [("START.md", policy), ("S.sh", "echo '<result></result>'")];
    let mistake = || reply::text("no tag");
    check(&states, vec![mistake(), mistake(), mistake()]);
}

#[test]
fn a_different_prompt_is_a_mismatch_that_shows_the_difference() {
    let states = [
        ("START.md", "Write it."),
        ("S.sh", "echo '<result>x</result>'"),
    ];
    let server = Server::start([reply::text("<goto>S</goto>")]);
    let first = recorded(&states, &server, &[]);
    let second = replaying(&first).file("flow/START.md", "Scribble it.");
    let ran = second.run(&[FLOW_JSON, REPLAY].concat()).exits(1);
    assert_eq!(outcome(&ran), "FAILED replay_mismatch");
    let message = text_of(&ran.result(), "message");
    assert!(
        message.contains("Scribble it.") && message.contains("Write it."),
        "{message}"
    );
    assert_eq!(second.state_text("reason"), "replay_mismatch");
    second.nothing_left();
}

#[test]
fn another_input_is_a_mismatch() {
    let server = Server::start([reply::text("<result>x</result>")]);
    let first = recorded(
        &[("START.md", "Do {{input}}.")],
        &server,
        &["--input", "this"],
    );
    let ran = replaying(&first).run(&[FLOW_JSON, REPLAY, &["--input", "that"]].concat());
    assert_eq!(outcome(&ran.exits(1)), "FAILED replay_mismatch");
}

#[test]
fn another_payload_or_outcome_is_a_mismatch() {
    let first = workflow(&[("START.sh", "echo '<result>then</result>'")]);
    first.succeed(&[]);
    for (script, message) in [
        ("echo '<result>now</result>'", "the payload of main differs"),
        ("exit 1", "ended as SUCCESS, the replay as FAILED"),
        (
            "echo '<ask next=\"START\">x?</ask>'",
            "ended as SUCCESS, the replay as PAUSED",
        ),
    ] {
        let second = replaying(&first).file("flow/START.sh", script);
        let ran = second.run(&[FLOW_JSON, REPLAY].concat()).exits(1);
        assert_eq!(outcome(&ran), "FAILED replay_mismatch", "{script}");
        let found = text_of(&ran.result(), "message");
        assert!(found.contains(message), "{found}");
        assert_eq!(ran.stdout.matches("\"result\"").count(), 1);
    }
}

#[test]
fn a_request_without_a_recorded_answer_is_a_mismatch() {
    let states = [("START.md", "One."), ("B.md", "Two.")];
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::text("<result>x</result>"),
    ]);
    let first = recorded(&states, &server, &[]);
    let second = replaying(&first);
    let log = second.read("recorded.log");
    let last = log
        .rfind("{\"")
        .map(|_| log.match_indices("ModelRequested").nth(1).unwrap().0);
    let end = log[..last.unwrap()].rfind('\n').unwrap() + 1;
    second.write("recorded.log", &log[..end]);
    let ran = second.run(&[FLOW_JSON, REPLAY].concat()).exits(1);
    assert_eq!(outcome(&ran), "FAILED replay_mismatch");
    assert_eq!(ran.result()["result"], Value::Null);
}

#[test]
fn neither_model_nor_budget_nor_price_counts() {
    let server = Server::start([reply::text("<result>x</result>")]);
    let first = recorded(
        &[("START.md", "---\nmodel: odd\n---\nOne.")],
        &server,
        &["--budget", "0"],
    );
    replay(
        &first,
        &["--model", "another-model", "--budget", "0.0001"],
        0,
    );
}

#[test]
fn a_replay_throws_the_run_of_its_root_away_and_can_use_its_log() {
    let server = Server::start([reply::text("<result>x</result>")]);
    let project = recorded(&[("START.md", "One.")], &server, &[]);
    let log = project.log_path();
    let before = project.read(&log);
    let ran = project.run(&[FLOW, &["--replay", &log]].concat()).exits(0);
    assert_eq!(ran.stdout, "x\n");
    assert!(ran.stderr.contains("is thrown away"), "{}", ran.stderr);
    assert_eq!(project.read(&log), before);
    assert_ne!(project.log_path(), log);
    assert_eq!(server.count(), 1);
}

#[test]
fn an_unreadable_log_is_refused_before_anything_is_changed() {
    let project = workflow(&[("START.sh", "echo '<result></result>'")]);
    let before = project.files();
    let ran = project.run(&[FLOW_JSON, REPLAY].concat());
    assert!(matches!(ran.code, Some(64 | 74)), "{}", ran.transcript());
    assert_eq!(project.files(), before);
}

#[test]
fn an_agent_that_used_up_its_requests_is_replayed() {
    let calls = (0..50).map(|_| reply::call("editor", serde_json::json!({"command": "x"})));
    let server = Server::start(calls);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    project.fail(&[]);
    replay(&project, &[], 1);
}

#[test]
fn other_workers_are_a_mismatch() {
    let fork = |count: usize| {
        let forks: String = (0..count).map(|_| "<fork next=\"W\">W</fork>").collect();
        format!("echo '{forks}'")
    };
    let worker = ("W.sh", "echo '<result>w</result>'");
    let first = workflow(&[("START.sh", &fork(2)), worker]);
    first.succeed(&[]);
    for count in [1, 3] {
        let second = replaying(&first).file("flow/START.sh", fork(count));
        let ran = second.run(&[FLOW_JSON, REPLAY].concat()).exits(1);
        assert_eq!(outcome(&ran), "FAILED replay_mismatch", "{count}");
    }
}
