//! Provider claude-code in agent mode: our environments over MCP, with a fake `claude` and with the real one.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::claude::{Claude, answers, real, says, stream};
use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::server::{Received, Server};

fn spec(more: &str) -> String {
    format!(
        "{}generator: {{provider: claude-code, mode: agent{more}}}\n",
        answer_spec()
    )
}

/// An MCP client: makes the calls given in its arguments, in order, and stores the results.
const CLIENT: &str = r#"
import json, os, subprocess, sys, time
here, calls = sys.argv[1], json.loads(sys.argv[2])
words = open(here + "/arguments").read().split("\0")
config = next(word.split("=", 1)[1] for word in words if word.startswith("--mcp-config="))
(server,) = json.loads(config)["mcpServers"].values()
relay = subprocess.Popen([server["command"], *server["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def say(line):
    relay.stdin.write(line + "\n")
    relay.stdin.flush()
def ask(number, method, **params):
    say(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
    return json.loads(relay.stdout.readline())
kept = [ask(0, "initialize", protocolVersion="2025-06-18"), ask(1, "tools/list")]
for number, call in enumerate(calls):
    if isinstance(call, str):
        say(call)
        kept.append(json.loads(relay.stdout.readline()))
    elif call[0] == "leave":
        say(json.dumps({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "bash", "arguments": call[1]}}))
        while not os.path.exists(call[2]):
            time.sleep(0.01)
    else:
        kept.append(ask(number + 10, "tools/call", name=call[0], arguments=call[1]))
    json.dump(kept, open(here + "/kept", "w"))
relay.stdin.close()
relay.wait()
"#;

/// A plan that makes these calls and then ends its turn.
fn works(calls: Value) -> String {
    format!(
        "python3 -c '{CLIENT}' \"$here/call$call\" '{calls}'\n{}",
        answers("done")
    )
}

fn with(more: &str, plans: &[String]) -> (Project, Claude) {
    Claude::fake(Project::new().spec(spec(more)), plans)
}

fn result_text(result: &Value) -> &str {
    result["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

fn bash(command: &str) -> Value {
    json!(["bash", {"command": command}])
}

#[test]
fn environments_are_offered_called_and_logged() {
    let calls = json!([
        bash("cd /tmp; X=4"),
        bash("echo ${X}1 in $PWD; cd - > /dev/null; echo 41 > answer.txt"),
        ["editor", {"command": "create ../evil\nx"}],
        ["nothing", {}],
        ["bash", [1]],
    ]);
    let (project, claude) = with(
        "",
        &[works(calls), works(json!([bash("echo 42 > answer.txt")]))],
    );
    project.run(RUN).exits(0);
    let kept = claude.stored(0);
    let names: Vec<&Value> = kept[1]["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["bash", "python", "editor"]);
    assert!(result_text(&kept[3]).starts_with("41 in /tmp\n"), "{kept}");
    for refused in [4, 5, 6] {
        assert_eq!(
            kept[refused]["result"]["isError"], true,
            "{}",
            kept[refused]
        );
    }
    assert!(!project.exists("evil"));
    assert_eq!(project.events("ToolReturned").len(), 6);
    let called = project.events("ToolCalled");
    assert_eq!(
        (
            &called[0]["turn"],
            &called[1]["call"],
            &called[1]["tool_name"]
        ),
        (&json!(0), &json!(1), &json!("bash"))
    );
    assert!(claude.call(1).stdin.contains("answer.txt says 41"));
    assert_eq!(claude.call(0).flag("--max-turns"), Some("50"));
    assert_eq!(
        claude.call(0).flag("--allowedTools"),
        Some("mcp__orchestrator")
    );
    project.nothing_left();
}

#[test]
fn invalid_mcp_messages_are_answered() {
    let calls = json!([
        "nonsense",
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"x\"}",
        bash("echo 42 > answer.txt")
    ]);
    let (project, claude) = with("", &[works(calls)]);
    project.run(RUN).exits(0);
    let kept = claude.stored(0);
    assert_eq!(
        (&kept[2]["error"]["code"], &kept[3]["error"]["code"]),
        (&json!(-32700), &json!(-32601))
    );
}

#[test]
fn an_abandoned_call_is_interrupted() {
    let (project, _) = with("", &[]);
    let leave = json!(["leave", {"command": format!("echo 42 > answer.txt; sleep {}", project.marker())},
                       project.path("workspace/answer.txt")]);
    let (project, _claude) = Claude::fake(project, &[works(json!([leave]))]);
    project.run(RUN).exits(0);
    assert_eq!(project.events("ToolReturned").len(), 1);
    project.nothing_left();
}

#[test]
fn ending_without_a_change_gets_a_reminder_in_the_same_session() {
    let (project, claude) = with(
        "",
        &[
            answers("done"),
            works(json!([bash("echo 42 > answer.txt")])),
        ],
    );
    project.run(RUN).exits(0);
    assert_eq!(
        claude.call(1).flag("--resume"),
        claude.call(0).flag("--session-id")
    );
    let said = claude.call(1).stdin;
    assert!(
        said.contains("nothing in the workspace has changed") && !said.contains("# Task"),
        "{said}"
    );
}

#[test]
fn checks_run_after_the_last_turn_of_claude() {
    let over = |command: &str| {
        let result =
            json!({"subtype": "error_max_turns", "is_error": true, "num_turns": 4, "result": null});
        let calls = json!([bash(command)]);
        let end = says(&stream("", &result));
        format!("python3 -c '{CLIENT}' \"$here/call$call\" '{calls}'\n{end}exit 1\n")
    };
    let (project, claude) = with(", max_turns: 3", &[over("echo 42 > answer.txt")]);
    project.run(RUN).exits(0);
    assert_eq!(claude.call(0).flag("--max-turns"), Some("3"));
    assert_eq!(project.state()["usage"]["llm_calls"], 4);
    let (project, claude) = with(", max_turns: 3", &[over("echo 41 > answer.txt")]);
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason(),
        ("FAILED".into(), "max_turns".into())
    );
    assert_eq!(claude.count(), 1);
}

#[test]
fn claude_ends_with_the_phase() {
    let (project, _) = with("", &[]);
    let plan = format!("sleep {}", project.marker());
    let (project, _claude) = Claude::fake(project.spec(spec(", phase_timeout: 0.5")), &[plan]);
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "phase_timeout"
    );
    project.nothing_left();
}

#[test]
fn a_run_killed_in_a_call_continues_the_session_without_repeating_it() {
    let (project, _) = with("", &[]);
    let stuck = works(json!([
        bash("echo before"),
        bash(&format!("echo once >> count; sleep {}", project.marker()))
    ]));
    let (project, claude) = Claude::fake(
        project,
        &[stuck, works(json!([bash("echo 42 > answer.txt")]))],
    );
    let mut running = project.start(RUN);
    running.until("the call is under way", || {
        project.exists("workspace/count")
    });
    running.signal(Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("count"), "once\n");
    assert_eq!(
        claude.call(1).flag("--resume"),
        claude.call(0).flag("--session-id")
    );
    let said = claude.call(1).stdin;
    assert!(
        said.contains("environments were restarted") && said.contains("outcome unknown"),
        "{said}"
    );
    assert!(
        said.contains("echo once") && !said.contains("echo before") && !said.contains("# Task"),
        "{said}"
    );
    let numbers: Vec<Value> = project
        .events("ToolCalled")
        .iter()
        .map(|line| line["call"].clone())
        .collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(
        project.state()["attempt_files"],
        json!(["answer.txt", "count"])
    );
    replays(project);
}

#[test]
fn a_lost_session_is_restarted_with_the_whole_history() {
    let gone = "echo 'No conversation found with session ID: x' >&2; exit 1".to_owned();
    let plans = [
        "exit 3".to_owned(),
        gone,
        works(json!([bash("echo 42 > answer.txt")])),
    ];
    let (project, claude) = with("", &plans);
    project.run(RUN).exits(0);
    let said = claude.call(2).stdin;
    assert!(said.contains("# Task"), "{said}");
}

/// Replays the run without the program, to the same end.
fn replays(project: Project) {
    let (log, files, usage) = (
        project.log_path(),
        project.workspace_files(),
        project.state()["usage"].clone(),
    );
    let project = project.env("PATH", "/usr/bin:/bin");
    let ran = project.run(&["run", "--spec", "specs/spec.yaml", "--replay", &log]);
    let transcript = ran.transcript();
    ran.exits(0);
    let mut now = project.workspace_files();
    // A call without a result is not run again, so its effect is missing.
    for (name, content) in files {
        if name != "count" {
            assert_eq!(now.remove(&name), Some(content), "{name}\n{transcript}");
        }
    }
    // A replay loses no request.
    for field in ["llm_calls", "input_tokens", "output_tokens", "cost_usd"] {
        assert_eq!(project.state()["usage"][field], usage[field], "{field}");
    }
}

#[test]
fn a_replay_needs_no_claude_in_agent_mode() {
    let first = works(json!([
        bash("X=4"),
        bash("echo ${X}1 > answer.txt"),
        ["nothing", {}]
    ]));
    let (project, _claude) = with(
        "",
        &[
            first,
            works(json!([bash("echo 42 > answer.txt; mkdir d; echo x > d/y")])),
        ],
    );
    project.run(RUN).exits(0);
    replays(project);
}

// The real program.

fn real_project(server: &Server, more: &str) -> Option<Project> {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", real()?.display());
    Some(Project::with(spec(more), server).env("PATH", &path))
}

fn asked(server: &Server) -> Vec<Received> {
    server
        .requests()
        .into_iter()
        .filter(|request| request.path.starts_with("/v1/messages"))
        .collect()
}

/// An answer that calls bash.
fn calls(id: &str, command: &str) -> Reply {
    let input = json!({"command": command}).to_string();
    let tool =
        json!({"type": "tool_use", "id": id, "name": "mcp__orchestrator__bash", "input": {}});
    let message = json!({"id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": "m", "content": [],
                         "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 1}});
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": tool}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": input}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null},
               "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ];
    let event = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    reply::raw(
        200,
        "text/event-stream",
        events.iter().map(event).collect::<String>(),
    )
}

#[test]
fn the_real_program_works_with_our_environments() {
    let replies = [
        calls("t1", "X=4; pwd"),
        calls("t2", "echo ${X}2 > answer.txt"),
        reply::text("It is done."),
    ];
    let server = Server::start(replies);
    let Some(project) = real_project(&server, "") else {
        return;
    };
    project.run(RUN).exits(0);
    let asked = asked(&server);
    assert_eq!(asked.len(), 3);
    let tools = asked[0].body["tools"].as_array().unwrap().iter();
    let mut tools: Vec<&str> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
    tools.sort_unstable();
    assert_eq!(
        tools,
        [
            "mcp__orchestrator__bash",
            "mcp__orchestrator__editor",
            "mcp__orchestrator__python"
        ]
    );
    assert!(asked[0].raw.len() < 20_000, "{} bytes", asked[0].raw.len());
    let said = asked[1].text();
    assert!(
        said.contains("/workspace\n") && said.contains("[screen of bash]"),
        "{said}"
    );
    assert_eq!(
        (
            project.events("ToolCalled").len(),
            &project.state()["usage"]["llm_calls"]
        ),
        (2, &json!(3))
    );
    assert_eq!(
        project.events("ConversationClosed")[0]["words"],
        "It is done."
    );
    project.nothing_left();
    replays(project);
}

#[test]
fn a_session_of_the_real_program_continues_after_a_kill_in_a_call() {
    let project = Project::new();
    let stuck = format!("echo once >> count; sleep {}", project.marker());
    let server = Server::start([
        calls("t1", &stuck),
        calls("t2", "echo 42 > answer.txt"),
        reply::text("Done."),
    ]);
    let Some(folder) = real() else { return };
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display());
    let project = project.spec(spec("")).model(&server).env("PATH", &path);
    let mut running = project.start(RUN);
    running.until("the call is under way", || {
        project.exists("workspace/count")
    });
    running.signal(Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
    let asked = asked(&server);
    let said = asked[1].text();
    assert!(
        said.contains("# Task") && said.contains("environments were restarted"),
        "{said}"
    );
    assert_eq!(project.workspace("count"), "once\n");
    project.nothing_left();
}

#[test]
fn the_real_program_respects_max_turns() {
    let server = Server::answering(|request| {
        let count = request.body["messages"].as_array().map_or(0, Vec::len);
        calls(&format!("t{count}"), "echo 41 >> answer.txt")
    });
    let Some(project) = real_project(&server, ", max_turns: 2") else {
        return;
    };
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "max_turns"
    );
    assert_eq!(asked(&server).len(), 2);
    project.nothing_left();
}
