//! Resuming a workflow: after `kill -9`, Ctrl+C, failed and paused agents; what is not done twice, and what is refused.

use std::fs;
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{BINARY, Project, RUN, answer_spec};
use crate::support::reply::{self, bash};
use crate::support::running::Running;
use crate::support::server::{Received, Server};
use crate::support::workflow::{
    Answers, FLOW, FLOW_JSON, conversation, outcome, requests_for, text_of, workflow,
};

const END: (&str, &str) = ("END.sh", "echo '<result></result>'");

/// Starts `flow/`, waits until the server has this many requests, and kills the process.
fn kill_at_request(project: &Project, server: &Server, number: usize) {
    let running = project.start(FLOW);
    server.wait_for(number);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().signal, Some(9));
}

#[test]
fn an_answer_in_the_log_is_not_asked_again_after_a_kill() {
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::text("<result>never sent</result>").held(),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
    kill_at_request(&project, &server, 2);
    let run_id = project.state_text("run_id");
    assert_eq!(project.agent("main")["current_state"], "B.md");
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(project.state_text("run_id"), run_id);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[2].raw, requests[1].raw);
    // The request that broke off is charged with its worst case.
    let worst = project.events("ModelRequested")[1]["worst"]["cost_usd"].clone();
    assert_eq!(project.state()["usage"]["lost_usd"], worst);
}

#[test]
fn an_interrupted_script_runs_again_with_its_input() {
    let project = workflow(&[
        ("START.sh", "echo one >> steps; echo '<goto input=\"given\">B</goto>'"),
        (
            "B.sh",
            "echo \"two $ORCHESTRATOR_INPUT\" >> steps; test -e go || { mkfifo gate; read line < gate; }
             echo '<result>done</result>'",
        ),
    ]);
    let mut running = project.start(FLOW);
    let gate = project.path("workspace/gate");
    running.until("the script waits", || gate.exists());
    running.signal(Signal::KILL);
    running.wait();
    project.nothing_left();
    project.write("workspace/go", "");
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(project.workspace("steps"), "one\ntwo given\ntwo given\n");
    assert_eq!(
        project.path_of("main"),
        ["START.sh -goto-> B.sh", "B.sh -result-> end"]
    );
}

#[test]
fn a_tool_call_without_a_result_is_not_run_again_and_the_restart_is_reported() {
    let server = Server::start([
        bash("echo ran >> calls; mkfifo gate; read line < gate"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let mut running = project.start(FLOW);
    let gate = project.path("workspace/gate");
    running.until("the call waits", || gate.exists());
    running.signal(Signal::KILL);
    running.wait();
    project.nothing_left();
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(project.workspace("calls"), "ran\n");
    let request = conversation(&server.requests()[1]);
    assert_eq!(request[..2], ["user: One.", "call: bash"]);
    assert!(request[2].starts_with("result: "), "{request:#?}");
    assert!(
        request[3].contains("environments were restarted"),
        "{request:#?}"
    );
}

#[test]
fn after_a_resume_every_session_that_used_tools_is_told_once() {
    let states = [("START.md", "One."), ("B.md", "Two."), ("C.md", "Three.")];
    let server = Server::start([
        bash("x=1"),
        reply::text("<goto>B</goto>"),
        reply::text("never sent").held(),
        reply::text("<goto>C</goto>"),
        bash("echo \"[$x]\""),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&states).model(&server);
    kill_at_request(&project, &server, 3);
    assert_eq!(project.succeed(&[]), "done");
    let requests: Vec<Vec<String>> = server.requests().iter().map(conversation).collect();
    let notices = |lines: &[String]| {
        let is_notice = |line: &&String| line.contains("environments were restarted");
        lines.iter().filter(is_notice).count()
    };
    let counts: Vec<usize> = requests.iter().map(|lines| notices(lines)).collect();
    assert_eq!(counts, [0, 0, 0, 1, 1, 1]);
    assert!(
        requests[5]
            .iter()
            .any(|line| line.starts_with("result: []\n"))
    );
}

#[test]
fn a_branch_and_its_caller_are_each_told_of_the_restart() {
    let server = Server::start([
        bash("x=1"),
        reply::text("<call return=\"R\">C</call>"),
        reply::status(401),
        reply::text("<result>c</result>"),
        reply::text("<result>done</result>"),
    ]);
    let states = [("START.md", "One."), ("C.md", "Two."), ("R.md", "Three.")];
    let project = workflow(&states).model(&server);
    project.pause(&[]);
    assert_eq!(project.succeed(&[]), "done");
    let requests: Vec<Vec<String>> = server.requests().iter().map(conversation).collect();
    for (number, text) in [(3, "user: Two."), (4, "user: Three.")] {
        let [.., prompt, notice] = requests[number].as_slice() else {
            panic!("{:?}", requests[number]);
        };
        assert_eq!(prompt, text);
        assert!(notice.contains("environments were restarted"), "{notice}");
    }
}

#[test]
fn a_branch_waits_across_a_restart() {
    let server = Server::start([
        reply::text("<call return=\"R\">S</call>"),
        reply::text("<result>c</result>"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[
        ("START.md", "One."),
        ("S.sh", "test -e go || exit 1; echo '<goto>C</goto>'"),
        ("C.md", "Two."),
        ("R.md", "Three."),
    ])
    .model(&server);
    project.fail(&[]);
    let agent = project.agent("main");
    assert_eq!(agent["session_id"], Value::Null);
    assert_eq!(agent["branch_from"], agent["stack"][0]["session_id"]);
    assert!(agent["branch_from"].is_string());
    project.write("workspace/go", "");
    assert_eq!(project.succeed(&[]), "done");
    let requests: Vec<Vec<String>> = server.requests().iter().map(conversation).collect();
    assert_eq!(requests[1].last().unwrap(), "user: Two.");
    assert_eq!((requests[1].len(), requests[2].len()), (3, 3));
    assert_eq!(requests[2].last().unwrap(), "user: Three.");
}

#[test]
fn an_interrupt_keeps_the_state_and_the_next_run_goes_on() {
    // SIGHUP stays ignored where these tests are started with `nohup`.
    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::start([
            reply::text("<goto>B</goto>"),
            reply::text("<result>never sent</result>").held(),
            reply::text("<result>done</result>"),
        ]);
        let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
        let running = project.start(FLOW_JSON);
        server.wait_for(2);
        running.signal(signal);
        let ran = running.wait();
        let code = 128 + signal.as_raw();
        assert_eq!(ran.code, Some(code), "{}", ran.transcript());
        let result = ran.result();
        assert_eq!(result["outcome"], "INTERRUPTED");
        assert_eq!(result["result"], Value::Null);
        assert!(
            text_of(&result, "next").contains("--workflow flow"),
            "{result}"
        );
        assert_eq!(project.state_text("state"), "RUNNING");
        project.nothing_left();
        assert_eq!(project.succeed(&[]), "done");
        assert_eq!(server.count(), 3);
    }
}

#[test]
fn a_failed_agent_does_not_stop_the_others_and_is_tried_again() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">BAD</fork><fork>GOOD</fork>'",
        ),
        (
            "BAD.sh",
            "echo tried >> tries; test -e go || exit 1; echo '<result>bad</result>'",
        ),
        (
            "GOOD.sh",
            "echo good >> goods; echo '<result>good</result>'",
        ),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    for _ in 0..2 {
        let result = project.fail(&[]);
        assert_eq!(result["result"], Value::Null);
        let next = text_of(&result, "next");
        assert_eq!(next, "orchestrator run --workflow flow --json");
        assert_eq!(project.agents(), ["main waiting", "main_bad1 failed"]);
        assert_eq!(project.state_text("state"), "FAILED");
        assert_eq!(project.state_text("reason"), "agent_failed");
    }
    project.write("workspace/go", "");
    let payload = project.succeed(&[]);
    assert_eq!(payload, r#"{"main_bad1":"bad","main_good2":"good"}"#);
    assert_eq!(project.workspace("tries"), "tried\n".repeat(3));
    assert_eq!(project.workspace("goods"), "good\n");
}

#[test]
fn the_payload_of_main_is_reported_although_a_worker_failed() {
    let project = workflow(&[
        ("START.sh", "echo '<fork next=\"OWN\">BAD</fork>'"),
        ("BAD.sh", "exit 1"),
        ("OWN.sh", "echo '<result>main is done</result>'"),
    ]);
    let result = project.fail(&[]);
    assert_eq!(result["result"], "main is done");
    let ran = project.run(FLOW).exits(1);
    assert_eq!(ran.stdout, "");
}

#[test]
fn a_failed_markdown_state_is_a_new_visit_with_the_session_as_it_was() {
    let start = "---\nallowed_transitions: [{tag: goto, target: B}, {tag: result}]\n---\nOne.";
    let mistake = || reply::text("no tag");
    let replies = [
        reply::text("<goto>B</goto>"),
        mistake(),
        mistake(),
        mistake(),
        mistake(),
        mistake(),
        reply::text("<result>done</result>"),
    ];
    let server = Server::start(replies);
    let second = start.replace("One.", "Two.");
    let project = workflow(&[("START.md", start), ("B.md", &second)]).model(&server);
    let message = text_of(&project.fail(&[]), "message");
    assert!(message.contains("main failed: B.md"), "{message}");
    assert_eq!(project.succeed(&[]), "done");
    let requests: Vec<Vec<String>> = server.requests().iter().map(conversation).collect();
    assert_eq!(requests[4], requests[1]);
    assert_eq!(
        requests[4],
        ["user: One.", "assistant: <goto>B</goto>", "user: Two."]
    );
    assert_eq!(requests[6].len(), 7);
}

/// A workflow whose main asks at once and whose worker only runs a script.
fn asking_beside_a_worker(server: &Server) -> Project {
    workflow(&[
        ("START.sh", "echo '<fork next=\"M\">W</fork>'"),
        ("W.sh", "touch worked; echo '<result></result>'"),
        ("M.md", "One."),
    ])
    .model(server)
}

#[test]
fn a_transient_error_gets_three_attempts_and_then_pauses_the_agent() {
    let errors = (0..15).map(|number| match number % 3 {
        0 => reply::status(529),
        1 => reply::text("").reset(),
        _ => reply::status(500),
    });
    let server = Server::start(errors.chain([reply::text("<result>done</result>")]));
    let project = asking_beside_a_worker(&server);
    let result = project.pause(&[]);
    assert_eq!(result["reason"], "provider_unavailable");
    assert_eq!(server.count(), 15);
    assert!(project.exists("workspace/worked"));
    assert_eq!(project.agents(), ["main paused"]);
    assert_eq!(project.agent("main")["retry_count"], 3);
    assert_eq!(project.state_text("reason"), "provider_unavailable");
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(project.state()["agents"], json!([]));
}

#[test]
fn silence_is_one_attempt() {
    let silent = || reply::text("late").held();
    let server = Server::start([
        silent(),
        silent(),
        silent(),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "---\ntimeout: 0.2\n---\nOne.")]).model(&server);
    assert_eq!(
        project.pause(&["--timeout", "600"])["reason"],
        "provider_unavailable"
    );
    assert_eq!(server.count(), 3);
    assert_eq!(project.succeed(&[]), "done");
}

#[test]
fn a_usage_limit_and_a_refused_key_pause_at_once() {
    for (fault, reason) in [
        (
            reply::status(429).header("retry-after", "61"),
            "provider_unavailable",
        ),
        (reply::status(401), "provider_unauthorized"),
        (
            reply::error(
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the Anthropic API.",
            ),
            "provider_unauthorized",
        ),
    ] {
        let server = Server::start([fault, reply::text("<result>done</result>")]);
        let project = asking_beside_a_worker(&server);
        assert_eq!(project.pause(&[])["reason"], reason);
        assert_eq!(server.count(), 1);
        assert_eq!(project.state_text("reason"), reason);
        assert_eq!(project.succeed(&[]), "done");
    }
}

#[test]
fn a_permanent_error_fails_the_agent() {
    let server = Server::start([
        reply::error(400, "invalid_request_error", "too odd for me"),
        reply::text("<result>done</result>"),
    ]);
    let project = asking_beside_a_worker(&server);
    let message = text_of(&project.fail(&[]), "message");
    assert!(message.contains("too odd for me"), "{message}");
    assert_eq!(server.count(), 1);
    assert!(project.exists("workspace/worked"));
    assert_eq!(project.succeed(&[]), "done");
}

#[test]
fn a_failed_agent_decides_before_a_paused_one() {
    let server = Server::start([reply::status(401), reply::text("<result>done</result>")]);
    let project = workflow(&[
        ("START.sh", "echo '<fork next=\"M\">BAD</fork>'"),
        ("BAD.sh", "test -e go || exit 1; echo '<result></result>'"),
        ("M.md", "One."),
    ])
    .model(&server);
    project.fail(&[]);
    assert_eq!(project.agents(), ["main paused", "main_bad1 failed"]);
    project.write("workspace/go", "");
    assert_eq!(project.succeed(&[]), "done");
}

#[test]
fn the_first_paused_agent_gives_the_reason() {
    let server = Server::start([reply::status(401), reply::text("<result>done</result>")]);
    let project = workflow(&[
        ("START.sh", "echo '<fork next=\"M\">ASK</fork>'"),
        ("ASK.sh", "echo '<ask next=\"END\">x?</ask>'"),
        ("M.md", "One."),
        END,
    ])
    .model(&server);
    let result = project.pause(&[]);
    assert_eq!(project.agents(), ["main paused", "main_ask1 asking"]);
    assert_eq!(result["reason"], "provider_unauthorized");
    assert!(
        text_of(&result, "next").contains("--answer TEXT"),
        "{result}"
    );
    // Now only the question is open, and main has its payload.
    let result = project.pause(&[]);
    assert_eq!(result["reason"], "asking");
    assert_eq!(result["result"], "done");
    assert_eq!(project.succeed(&["--answer", "y"]), "done");
}

#[test]
fn a_joining_parent_ends_as_its_worker_does() {
    let server = Server::start([reply::status(401), reply::text("<result>w</result>")]);
    let project = workflow(&[
        ("START.sh", "echo '<fork join=\"END\">W</fork>'"),
        ("W.md", "One."),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ])
    .model(&server);
    assert_eq!(project.pause(&[])["reason"], "provider_unauthorized");
    assert_eq!(project.agents(), ["main waiting", "main_w1 paused"]);
    assert_eq!(project.succeed(&[]), r#"{"main_w1":"w"}"#);
}

/// The states of a run that has everything: tools, reminders, scripts, workers, a join, a call, a function and a question.
fn long_workflow(server: &Server) -> Project {
    let policy = "---\nallowed_transitions: [{tag: goto, target: SCRIPT}, {tag: result}]\n---\n";
    workflow(&[
        ("START.md", &format!("{policy}Start with {{{{input}}}}.")),
        ("SCRIPT.sh", "echo script >> steps; echo '<fork join=\"JOINED\" x=\"1\">W</fork><fork x=\"2\">WS</fork>'"),
        ("W.md", "Work on {{x}}."),
        ("WS.sh", "echo \"<result>script $ORCHESTRATOR_VAR_X</result>\""),
        ("JOINED.md", "Joined {{input}}."),
        ("C.md", "Called."),
        ("F.md", "Function."),
        ("FR.md", "Function gave {{input}}."),
        ("R.md", "Call gave {{input}}."),
        ("LAST.md", "The last one."),
    ])
    .model(server)
}

/// The model of `long_workflow`; its answers depend on the request alone.
fn long_server() -> Server {
    Server::answering(|request| {
        let lines = conversation(request);
        let has = |text: &str| lines.last().is_some_and(|line| line.contains(text));
        let restarted = has("[the environments were restarted");
        let before = lines
            .iter()
            .rev()
            .nth(usize::from(restarted))
            .cloned()
            .unwrap_or_default();
        let said = |text: &str| before.contains(text);
        match () {
            () if said("Start with") => reply::text("I forgot the tag."),
            () if said("not a valid transition") => reply::text("<goto>SCRIPT</goto>"),
            () if said("Work on 1") => bash("echo worked > worked; cat worked"),
            () if before.starts_with("result: ") => reply::text("<result>W</result>"),
            () if said("Joined") => reply::text("<call return=\"R\">C</call>"),
            () if said("Called.") => reply::text("<function return=\"FR\">F</function>"),
            () if said("Function.") => reply::text("<result>f</result>"),
            () if said("Function gave") => reply::text("<result>c</result>"),
            () if said("Call gave") => reply::text("<goto>LAST</goto>"),
            () if said("The last one") => reply::text("<result>all done</result>"),
            () => reply::error(400, "script_over", &format!("unexpected: {lines:?}")),
        }
    })
}

/// The lines of a log as they are written.
fn raw_lines(project: &Project) -> Vec<String> {
    let text = project.read(&project.log_path());
    text.lines().map(|line| format!("{line}\n")).collect()
}

fn count_events(lines: &[String], event: &str) -> usize {
    let word = format!("\"event\":\"{event}\"");
    lines.iter().filter(|line| line.contains(&word)).count()
}

/// A crash after any line of the log, with the oldest `state.json` that there was: the run ends as it would have, and no
/// answer is asked for twice.
#[test]
fn the_log_leads_and_a_crash_after_any_line_is_survived() {
    let server = long_server();
    let project = long_workflow(&server);
    let mut running = project.start(&[FLOW, &["--input", "it"]].concat());
    let mut first = Value::Null;
    running.until("the state is saved", || {
        let is_there = project.exists("state.json");
        if is_there && first.is_null() {
            first = project.state();
        }
        is_there
    });
    assert_eq!(running.wait().exits(0).stdout, "all done\n");
    let recorded = RecordedRun {
        lines: raw_lines(&project),
        log: project.log_path(),
        first,
        results: project.state()["results"].clone(),
    };
    let seq = recorded.first["seq"].as_u64().unwrap() as usize;
    let length = recorded.lines.len();
    assert!(length > 50 && seq < 20, "{length} {seq}");
    assert_eq!(count_events(&recorded.lines, "ModelAnswered"), 10);
    thread::scope(|scope| {
        for part in 0..4 {
            let recorded = &recorded;
            scope.spawn(move || {
                let lengths = (seq..length).filter(|length| length % 4 == part);
                lengths.for_each(|length| recorded.resume_after(length));
            });
        }
    });
}

/// A run of `long_workflow` with the oldest `state.json` that it had.
struct RecordedRun {
    lines: Vec<String>,
    log: String,
    first: Value,
    results: Value,
}

impl RecordedRun {
    /// Resumes with this many lines of the log, in a root of its own.
    fn resume_after(&self, length: usize) {
        let server = long_server();
        let project = long_workflow(&server)
            .file("state.json", self.first.to_string())
            .file(&self.log, self.lines[..length].concat());
        let ran = project.run(FLOW).exits(0);
        project.nothing_left();
        let what = || {
            let last = &self.lines[length - 1];
            format!("after line {length}: {last}\n{}", ran.transcript())
        };
        assert_eq!(ran.stdout, "all done\n", "{}", what());
        assert_eq!(project.state()["results"], self.results, "{}", what());
        let answers = |lines: &[String]| count_events(lines, "ModelAnswered");
        let left = answers(&self.lines) - answers(&self.lines[..length]);
        assert_eq!(server.count(), left, "{}", what());
        let lines = raw_lines(&project);
        for event in ["TransitionOccurred", "AgentSpawned", "AgentTerminated"] {
            let expected = count_events(&self.lines, event);
            assert_eq!(count_events(&lines, event), expected, "{event} {}", what());
        }
    }
}

#[test]
fn a_success_that_only_the_log_knows_is_reported() {
    let server = Server::start([reply::status(401), reply::text("<result>done</result>")]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    project.pause(&[]);
    let paused = project.read("state.json");
    assert_eq!(project.succeed(&[]), "done");
    project.write("state.json", paused);
    let lines = raw_lines(&project).len();
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!((server.count(), raw_lines(&project).len()), (2, lines));
    assert_eq!(project.state_text("state"), "SUCCESS");
}

#[test]
fn a_log_that_lacks_what_the_state_refers_to_is_refused_and_may_be_put_back() {
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::status(401),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
    project.pause(&[]);
    let (log, state) = (project.log_path(), project.read("state.json"));
    let lines = raw_lines(&project);
    let without = |event: &str| -> String {
        let word = format!("\"event\":\"{event}\"");
        let kept = lines.iter().filter(|line| !line.contains(&word));
        kept.map(String::as_str).collect()
    };
    let shorter = lines[..lines.len() / 2].concat();
    let damaged = lines
        .concat()
        .replace("\"event\":\"ModelAnswered\"", "\"event\":\"ModelAnswe");
    for text in [
        String::new(),
        shorter,
        without("ModelAnswered"),
        without("TransitionOccurred"),
        damaged,
    ] {
        project.write(&log, &text);
        let ran = project.run(FLOW_JSON).exits(3);
        assert_eq!(
            ran.result()["reason"],
            "state_corrupt",
            "{}",
            ran.transcript()
        );
        assert_eq!(project.read("state.json"), state, "{}", ran.transcript());
    }
    fs::remove_file(project.path(&log)).unwrap();
    project.run(FLOW).exits(3).says("put the log back");
    assert_eq!(project.read("state.json"), state);
    assert_eq!(server.count(), 2);
    project.write(&log, lines.concat());
    assert_eq!(project.succeed(&[]), "done");
}

#[test]
fn a_torn_last_line_of_the_log_is_repaired() {
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::text("never sent").held(),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
    kill_at_request(&project, &server, 2);
    let log = project.log_path();
    let text = project.read(&log);
    project.write(&log, text.clone() + "{\"ts\":\"20");
    assert_eq!(project.succeed(&[]), "done");
    project.log();
}

#[test]
fn a_changed_state_is_warned_about_and_its_new_text_is_used() {
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::status(401),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[
        ("START.md", "One."),
        ("B.md", "Two."),
        ("GONE.md", "x"),
        END,
    ])
    .model(&server);
    project.pause(&[]);
    project.write("flow/START.md", "Not used any longer.");
    project.write("flow/B.md", "Second.");
    project.write("flow/NEW.md", "Added.");
    fs::remove_file(project.path("flow/GONE.md")).unwrap();
    let ran = project.run(FLOW).exits(0);
    for file in ["START.md", "B.md", "NEW.md", "GONE.md"] {
        let warning = format!("the state file {file} has changed");
        assert!(ran.stderr.contains(&warning), "{}", ran.transcript());
    }
    assert!(!ran.stderr.contains("END.sh has changed"), "{}", ran.stderr);
    assert_eq!(
        conversation(&server.requests()[2]),
        ["user: One.", "assistant: <goto>B</goto>", "user: Second."]
    );
}

#[test]
fn a_step_with_an_answer_goes_on_with_the_prompt_it_began_with() {
    let server = Server::start([
        bash("echo one"),
        reply::text("never sent").held(),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    kill_at_request(&project, &server, 2);
    project.write("flow/START.md", "Changed.");
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(conversation(&server.requests()[2])[0], "user: One.");
    assert!(!server.requests()[2].raw.contains("Changed."));
}

#[test]
fn another_run_is_refused_while_one_is_unfinished() {
    let project = workflow(&[
        ("START.sh", "exit 1"),
        ("OTHER.sh", "echo '<result>other</result>'"),
    ])
    .file("other/START.sh", "echo '<result>another</result>'");
    fs::create_dir(project.path("folder")).unwrap();
    let run = |arguments: &[&str]| project.run(&[&["run", "--workflow"], arguments].concat());
    run(&["flow", "--input", "one"]).exits(1);
    let before = project.files();
    for arguments in [
        &["flow", "--input", "two"][..],
        &["flow/OTHER.sh", "--input", "one"],
        &["other"],
        &["flow", "--input", "one", "--project-dir", "folder"],
    ] {
        run(arguments).exits(64).says("--no-resume");
        assert_eq!(project.files(), before, "{arguments:?}");
    }
    std::os::unix::fs::symlink("flow", project.path("link")).unwrap();
    // The same one, also by another path; the input may be left out.
    let run_id = project.state_text("run_id");
    for arguments in [
        &["flow", "--input", "one"][..],
        &["flow"],
        &["link/START.sh"],
        &["./flow/../flow/START.sh"],
    ] {
        run(arguments).exits(1);
        assert_eq!(project.state_text("run_id"), run_id, "{arguments:?}");
        assert_eq!(project.state_text("input"), "one");
    }
    let ran = run(&["other", "--no-resume"]).exits(0);
    assert_eq!(ran.stdout, "another\n");
    assert!(
        ran.stderr
            .contains(&format!("[run] the run {run_id} is thrown away")),
        "{}",
        ran.stderr
    );
}

#[test]
fn after_a_success_another_input_and_changed_states_start_afresh() {
    let script = "echo \"<result>$ORCHESTRATOR_INPUT</result>\"";
    let project = workflow(&[("START.sh", script)]);
    assert_eq!(project.succeed(&["--input", "one"]), "one");
    let run_id = project.state_text("run_id");
    // The same again is reported, whatever is in the folder.
    project.write("workspace/changed", "");
    let ran = project
        .run(&[FLOW, &["--input", "one"]].concat())
        .exits(0)
        .says("this run is over");
    assert_eq!(ran.stdout, "one\n");
    assert_eq!(project.state_text("run_id"), run_id);
    let ran = project
        .run(&[FLOW, &["--input", "two"]].concat())
        .exits(0)
        .says("another input");
    assert_eq!(ran.stdout, "two\n");
    project.write("flow/START.sh", "echo '<result>changed</result>'");
    let ran = project
        .run(&[FLOW, &["--input", "two"]].concat())
        .exits(0)
        .says("content of its states");
    assert_eq!(ran.stdout, "changed\n");
    let runs = project.run(&["runs"]).exits(0).stdout;
    assert_eq!(runs.matches("SUCCESS").count(), 3, "{runs}");
}

#[test]
fn a_moved_root_is_resumed() {
    let server = Server::start([
        bash("echo one > file"),
        reply::text("<goto>S</goto>"),
        reply::status(401),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[
        ("START.md", "One."),
        ("S.sh", "mkdir sub; echo '<reset cd=\"sub\">B</reset>'"),
        ("B.md", "Two."),
    ])
    .model(&server);
    fs::create_dir(project.path("folder")).unwrap();
    project.pause(&["--project-dir", "folder"]);
    let moved = project.outside("moved");
    fs::rename(project.root(), &moved).unwrap();
    let mut command = project.command(BINARY, FLOW);
    command.current_dir(&moved);
    let ran = Running::start(command, moved.clone()).wait().exits(0);
    assert_eq!(ran.stdout, "done\n");
    assert!(!ran.stderr.contains("has changed"), "{}", ran.stderr);
    fs::rename(&moved, project.root()).unwrap();
    project.nothing_left();
}

#[test]
fn a_directory_that_is_gone_fails_the_agent() {
    let project = workflow(&[
        ("START.sh", "mkdir sub; echo '<reset cd=\"sub\">B</reset>'"),
        ("B.sh", "exit 1"),
    ]);
    project.fail(&[]);
    project.write("flow/B.sh", "echo '<result>done</result>'");
    fs::remove_dir(project.path("workspace/sub")).unwrap();
    let message = text_of(&project.fail(&[]), "message");
    assert!(message.contains("is gone"), "{message}");
    fs::create_dir(project.path("workspace/sub")).unwrap();
    assert_eq!(project.succeed(&[]), "done");
}

#[test]
fn an_answer_is_journaled_before_the_next_state_begins() {
    let project = workflow(&[
        ("START.sh", "echo '<ask next=\"B\">x?</ask>'"),
        (
            "B.sh",
            "test -e go || { mkfifo gate; read line < gate; }; echo \"<result>$ORCHESTRATOR_INPUT</result>\"",
        ),
    ]);
    project.pause(&[]);
    let mut running = project.start(&[FLOW, &["--answer", "the answer"]].concat());
    let gate = project.path("workspace/gate");
    running.until("the script waits", || gate.exists());
    running.signal(Signal::KILL);
    running.wait();
    project.write("workspace/go", "");
    // The question is answered already.
    let ran = project
        .run(&[FLOW_JSON, &["--answer", "again"]].concat())
        .exits(64);
    assert_eq!(outcome(&ran), "REFUSED usage");
    assert_eq!(project.succeed(&[]), "the answer");
}

#[test]
fn options_are_kept_for_a_resume_and_a_new_value_wins() {
    let server = Answers::new()
        .on(
            "One",
            [
                reply::status(401),
                reply::status(401),
                reply::text("<result>x</result>"),
            ],
        )
        .start();
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let first = [
        "--model",
        "haiku",
        "--budget",
        "3",
        "--jobs",
        "2",
        "--timeout",
        "50",
    ];
    project.pause(&[&first[..], &["--price", "x=1,2"]].concat());
    let options =
        json!({"model": "haiku", "budget": 3.0, "jobs": 2, "timeout": 50.0, "price": ["x=1,2"]});
    assert_eq!(project.state()["options"], options);
    project.pause(&[]);
    assert_eq!(project.state()["options"], options);
    assert_eq!(project.succeed(&["--model", "opus", "--budget", "4"]), "x");
    let models: Vec<String> = requests_for(&server, "One").iter().map(model_of).collect();
    assert_eq!(
        models,
        ["claude-haiku-5-5", "claude-haiku-5-5", "claude-opus-5-5"]
    );
    assert_eq!(project.state()["options"]["budget"], 4.0);
    assert_eq!(project.state()["options"]["jobs"], 2);
}

fn model_of(request: &Received) -> String {
    request.body["model"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_root_with_the_run_of_a_spec_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let project = workflow(&[("START.sh", "echo '<result></result>'")])
        .spec(answer_spec())
        .model(&server);
    project.run(RUN).exits(0);
    let before = project.files();
    project.run(FLOW).exits(64).says("the run of a spec");
    assert_eq!(project.files(), before);
}

#[test]
fn a_key_is_needed_only_where_there_is_a_markdown_state() {
    let keyless = |states: &[(&str, &str)]| workflow(states).without("ANTHROPIC_API_KEY");
    assert_eq!(
        keyless(&[("START.sh", "echo '<result>x</result>'")]).succeed(&[]),
        "x"
    );
    let project = keyless(&[
        ("START.sh", "echo '<result>x</result>'"),
        ("B.md", "Never asked."),
    ]);
    let ran = project.run(FLOW);
    assert_ne!(ran.code, Some(0), "{}", ran.transcript());
    assert!(ran.stderr.contains("ANTHROPIC_API_KEY"), "{}", ran.stderr);
    assert!(!project.exists("state.json"));
}
