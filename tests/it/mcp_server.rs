//! `serve --mcp`: by hand over raw lines, and with the official clients and the real `claude`.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::doc_commands::doc_commands;
use crate::support::claude;
use crate::support::mcp_client::{McpClient, outcome};
use crate::support::needs;
use crate::support::project::{BINARY, Project};
use crate::support::reply;
use crate::support::running::{Ran, Running};
use crate::support::serve_client::Gate;
use crate::support::server::Server;

const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn code(answer: &Value) -> i64 {
    let code = answer["error"]["code"].as_i64();
    code.unwrap_or_else(|| panic!("no error: {answer}"))
}

#[test]
fn every_known_version_is_spoken_and_another_gets_the_newest() {
    let project = Project::new();
    let mut client = McpClient::start(&project);
    for version in VERSIONS {
        assert_eq!(client.initialize(version), version);
    }
    assert_eq!(client.initialize("1999-01-01"), "2025-11-25");
    let pong = client.request("ping", json!({}));
    assert_eq!(pong["result"], json!({}));
    let mut newer = McpClient::start(&project);
    let meta =
        |version: &str| json!({"_meta": {"io.modelcontextprotocol/protocolVersion": version}});
    let found = newer.request("server/discover", meta("2026-07-28"));
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let listed = newer.request("tools/list", meta("2026-07-28"));
    assert_eq!(listed["result"]["resultType"], "complete");
    assert_eq!(
        code(&newer.request("tools/list", meta("2031-01-01"))),
        -32022
    );
}

#[test]
fn invalid_lines_get_errors_and_the_session_goes_on() {
    let project = Project::new();
    let mut client = McpClient::start(&project);
    assert_eq!(code(&client.request("tools/list", json!({}))), -32600);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.initialize("2025-06-18");
    let raw = |client: &mut McpClient, line: &[u8]| {
        client.write([line, b"\n"].concat());
        client.message()
    };
    let cases: [(&[u8], i64); 7] = [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"7", -32600),
        (b"{\"id\":1,\"method\":\"ping\"}", -32600),
        (b"[]", -32600),
        (
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"ping\"}",
            -32600,
        ),
    ];
    for (line, expected) in cases {
        let answer = raw(&mut client, line);
        assert_eq!(code(&answer), expected, "{answer}");
    }
    let cases = [
        ("prompts/list", json!({}), -32601),
        ("tools/call", json!({}), -32602),
        ("tools/list", json!({"cursor": "x"}), -32602),
        ("tools/list", json!([]), -32602),
        ("resources/read", json!({}), -32602),
        ("resources/read", json!({"uri": "screen://none"}), -32002),
        (
            "resources/subscribe",
            json!({"uri": "file:///etc/passwd"}),
            -32002,
        ),
    ];
    for (method, params, expected) in cases {
        let answer = client.request(method, params);
        assert_eq!(code(&answer), expected, "{answer}");
    }
    client.write("\n \n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/whatever\"}\n");
    assert!(client.bash("echo fine").0.starts_with("fine\n"));
    client.end().exits(0);
}

#[test]
fn a_batch_of_the_version_that_had_them_gets_one_answer() {
    let project = Project::new();
    let mut client = McpClient::start(&project);
    client.initialize("2025-03-26");
    let call = |id: &str, command: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": "bash", "arguments": {"command": command}}})
    };
    client.send(&json!([
        call("a", "echo one"),
        {"jsonrpc": "2.0", "method": "notifications/whatever"},
        {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": "x"}},
        5,
        call("b", "echo two"),
    ]));
    let Value::Array(answers) = client.message() else {
        panic!("not a batch")
    };
    let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!(7), &Value::Null, &json!("a"), &json!("b")]);
    assert!(outcome(&answers[3]).0.starts_with("two\n"));
    client.send(&json!([{"jsonrpc": "2.0", "method": "notifications/whatever"}]));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn results_are_those_of_agent_mode() {
    let project = Project::new().file("a.txt", "one\ntwo\n");
    let mut client = McpClient::ready(&project);
    let listed = client.request("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["bash", "python", "editor"]);
    let properties = tools[0]["inputSchema"]["properties"].as_object().unwrap();
    assert_eq!(
        properties.keys().collect::<Vec<_>>(),
        ["command", "action", "timeout"]
    );
    client.bash("word=kept");
    let root = project.root().display().to_string();
    assert_eq!(
        client.bash("echo $word; false"),
        (
            format!("kept\n\n[screen of bash]\nWorking directory: {root}\nLast exit code: 1\n"),
            true
        )
    );
    let view = json!({"command": "view a.txt /one/ /two/"});
    let (text, is_error) = client.call("editor", view);
    assert!(
        !is_error && text.contains("[screen of editor]") && text.contains("1  one"),
        "{text}"
    );
    assert!(
        text.find("[screen of editor]") < text.find("[screen of bash]"),
        "{text}"
    );
    let (text, is_error) = client.bash("seq 100000; false");
    assert!(
        is_error && text.contains("are missing here") && text.len() < 40_000,
        "{text:.300}"
    );
    for (tool, arguments, words) in [
        (
            "perl",
            json!({"command": "1"}),
            "there are bash, python, editor",
        ),
        ("bash", json!({}), "command is missing"),
        ("bash", json!([1]), "no JSON object"),
        (
            "bash",
            json!({"command": "x", "action": "fly"}),
            "unknown action",
        ),
        (
            "bash",
            json!({"command": "x", "timeout": "soon"}),
            "timeout must be",
        ),
    ] {
        let (text, is_error) = client.call(tool, arguments);
        assert!(
            is_error && text.starts_with("not run: ") && text.contains(words),
            "{text}"
        );
    }
    client.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_cancelled_command_is_interrupted_and_gets_no_answer() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let mut client = McpClient::ready(&project);
    let running = client.begin(
        "bash",
        json!({"command": "word=kept; cat gate; echo not reached"}),
    );
    let queued = client.begin("bash", json!({"command": "touch queued"}));
    let gate = gate.reached();
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    client.cancel(queued);
    client.cancel(12345);
    client.cancel(running);
    assert!(client.bash("echo $word $?").0.starts_with("kept 130\n"));
    assert!(!project.exists("queued"));
    drop(gate);
    client.end().exits(0);
}

#[test]
fn a_cancelled_command_that_does_not_end_keeps_running() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let mut client = McpClient::ready(&project);
    let command =
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); open('gate').read()";
    let id = client.begin("python", json!({"command": command}));
    let gate = gate.reached();
    client.cancel(id);
    assert!(client.bash("echo next").0.starts_with("next\n"));
    let (text, is_error) = client.call("python", json!({"command": "1"}));
    assert!(is_error && text.contains("still running"), "{text}");
    drop(gate);
    let (text, is_error) = client.call("python", json!({"action": "wait"}));
    assert!(!is_error, "{text}");
    client.end().exits(0);
}

#[test]
fn progress_increases_while_a_command_runs() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let mut client = McpClient::ready(&project);
    let params = json!({"name": "bash", "arguments": {"command": "cat gate"},
                        "_meta": {"progressToken": "token"}});
    let id = client.ask("tools/call", params);
    let mut last = 0.0;
    for _ in 0..2 {
        let message = client.message();
        let params = &message["params"];
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(params["progressToken"], "token");
        assert!(
            params["message"].as_str().unwrap().contains("bash"),
            "{message}"
        );
        let progress = params["progress"].as_f64().unwrap();
        assert!(last < progress, "{message}");
        last = progress;
    }
    gate.open();
    let answers = std::iter::from_fn(|| client.next());
    let mut answers = answers.filter(|message| message["method"] != "notifications/progress");
    assert_eq!(answers.next().unwrap()["id"], id);
    drop(answers);
    client.end().exits(0);
}

#[test]
fn actions_control_a_running_command() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let mut client = McpClient::ready(&project);
    let (text, is_error) = client.call(
        "bash",
        json!({"command": "echo begun; cat gate", "timeout": 1}),
    );
    assert!(
        is_error && text.starts_with("begun\n[still running after"),
        "{text}"
    );
    assert!(text.contains("wait, interrupt or restart") && text.contains("Running: echo begun"));
    let waiting = client.begin("bash", json!({"action": "wait"}));
    let interrupt = client.begin("bash", json!({"action": "interrupt"}));
    let answers = [client.message(), client.message()];
    assert_eq!(
        [&answers[0]["id"], &answers[1]["id"]],
        [&json!(waiting), &json!(interrupt)]
    );
    assert_eq!(
        outcome(&answers[1]).0.lines().next(),
        Some("Nothing is running")
    );
    client.bash("word=lost");
    let (text, is_error) = client.call("bash", json!({"action": "restart"}));
    assert!(!is_error && text.starts_with("Restarted\n"), "{text}");
    assert!(client.bash("echo [$word]").0.starts_with("[]\n"));
    drop(gate);
    client.end().exits(0);
}

#[test]
fn screens_are_resources_and_changes_are_told() {
    let project = Project::new();
    let mut client = McpClient::ready(&project);
    let listed = client.request("resources/list", json!({}));
    let uris: Vec<&Value> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| &resource["uri"])
        .collect();
    assert_eq!(
        uris,
        ["screen://bash", "screen://python", "screen://editor"]
    );
    let bash = json!({"uri": "screen://bash"});
    assert_eq!(
        client.request("resources/subscribe", bash.clone())["result"],
        json!({})
    );
    let id = client.begin("bash", json!({"command": "mkdir d; cd d"}));
    let messages = [client.message(), client.message()];
    assert_eq!(messages[0]["method"], "notifications/resources/updated");
    assert_eq!(
        (&messages[0]["params"], &messages[1]["id"]),
        (&bash, &json!(id))
    );
    let read = client.request("resources/read", bash.clone());
    let content = &read["result"]["contents"][0];
    assert_eq!(
        (&content["uri"], &content["mimeType"]),
        (&bash["uri"], &json!("text/plain"))
    );
    assert!(
        content["text"]
            .as_str()
            .unwrap()
            .contains("/d\nLast exit code: 0"),
        "{read}"
    );
    client.request("resources/unsubscribe", bash);
    client.bash("cd ..");
    client.end().exits(0);
}

#[test]
fn a_restart_finds_a_new_environment_and_the_lists_change() {
    let project = Project::new().file(
        "env/first.yaml",
        "command: cat\nprompt: x\ndescription: Says it\n",
    );
    let mut client = McpClient::ready(&project);
    let listed = client.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"][3]["description"], "Says it");
    project.write(
        "env/own.py",
        "from orchestrator.types import CommandResponse, CommandText, ScreenSection\nclass Own:\n    def handle_command(self, \
         cmd: CommandText) -> CommandResponse:\n        return CommandResponse('own ' + cmd.value, True)\n    def \
         get_screen(self) -> ScreenSection:\n        return ScreenSection('a screen')\n",
    );
    let (text, is_error) = client.call("own", json!({"command": "x"}));
    assert!(
        is_error && text.contains("there is no tool \"own\""),
        "{text}"
    );
    let id = client.begin("own", json!({"action": "restart"}));
    let messages = [client.message(), client.message(), client.message()];
    assert_eq!(messages[0]["method"], "notifications/tools/list_changed");
    assert_eq!(
        messages[1]["method"],
        "notifications/resources/list_changed"
    );
    assert_eq!(messages[2]["id"], id);
    let (text, _) = client.call("own", json!({"command": "x"}));
    assert!(
        text.starts_with("own x\n") && text.contains("a screen"),
        "{text}"
    );
    client.end().exits(0);
    project.nothing_left();
}

#[test]
fn requests_before_the_end_of_the_input_are_answered() {
    let project = Project::new();
    let mut client = McpClient::ready(&project);
    let id = client.begin(
        "bash",
        json!({"command": "sleep 0.2; echo done", "timeout": 5}),
    );
    client.write("{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"ping\"}");
    client.close_input();
    let mut ids = [
        client.message()["id"].clone(),
        client.message()["id"].clone(),
    ];
    ids.sort_by_key(Value::is_string);
    assert_eq!(ids, [json!(id), json!("last")]);
    assert_eq!(client.next(), None);
    client.wait().exits(0);
    project.nothing_left();
}

#[test]
fn a_signal_ends_everything() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let mut client = McpClient::ready(&project);
    client.bash(&format!(
        "setsid sleep {} >/dev/null 2>&1 &",
        project.marker()
    ));
    client.begin("bash", json!({"command": "trap '' TERM; cat gate"}));
    let gate = gate.reached();
    client.signal(Signal::TERM);
    assert_eq!(client.next(), None);
    client.wait().exits(143);
    drop(gate);
    project.nothing_left();
}

#[test]
fn commands_are_contained_as_in_serve() {
    let project = Project::new().env("MY_TOKEN", "secret").env("SHOWN", "yes");
    let mut client = McpClient::with(&project, &["--keep-env", "KEPT"]);
    client.initialize("2025-11-25");
    let (text, _) = client.bash("echo \"[$SHOWN$MY_TOKEN]\"; echo x > ../outside; echo x > /usr/x");
    assert!(text.starts_with("[yes]\n"), "{text}");
    assert!(!project.outside("outside").exists());
    client.end().exits(0).says("serve: sandbox: ");
    project
        .run(&["serve", "--mcp", "--project-dir", "missing"])
        .exits(64);
}

fn script(project: &Project, program: &str, arguments: &[&str]) -> (Ran, Value) {
    let ran = Running::start(project.command(program, arguments), project.root()).wait();
    let ran = ran.exits(0);
    let got = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| {
        panic!("{error}\n{}", ran.transcript());
    });
    (ran, got)
}

fn repository(path: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    repository.join(path).display().to_string()
}

/// What both official clients have to get.
fn check_client(got: &Value) {
    assert_eq!(got["tools"], json!(["bash", "python", "editor"]));
    let text = |name: &str| got[name][0][0].as_str().unwrap_or_default().to_owned();
    assert!(
        text("good").starts_with("kept\n\n[screen of bash]\n"),
        "{got}"
    );
    assert!(text("bad").starts_with("no\n\n[screen of bash]\n"), "{got}");
    assert_eq!(
        (&got["good"][1], &got["bad"][1]),
        (&json!(false), &json!(true))
    );
    assert!(!got["progress"].as_array().unwrap().is_empty(), "{got}");
    assert_eq!(
        got["resources"],
        json!(["screen://bash", "screen://python", "screen://editor"])
    );
    assert!(
        got["screen"][0]
            .as_str()
            .unwrap()
            .contains("Last exit code"),
        "{got}"
    );
}

#[test]
fn the_official_python_client_works_in_both_generations() {
    let Some(packages) = needs::mcp_python() else {
        return;
    };
    let project = Project::new();
    let python = packages.join("bin/python").display().to_string();
    let root = project.root().display().to_string();
    let client = repository("tests/it/mcp_server/client.py");
    let (_, got) = script(&project, &python, &[&client, &project.binary(), &root]);
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
        let got = &got[mode];
        check_client(got);
        assert_eq!(got["version"], version);
        assert_eq!(got["both"], json!([false, false]));
        let after = got["after"][0].as_str().unwrap();
        assert!(after.starts_with("kept 130\n"), "{after}");
    }
    project.nothing_left();
}

#[test]
fn the_official_typescript_client_works() {
    let Some(packages) = needs::mcp_node() else {
        return;
    };
    let project = Project::new();
    let root = project.root().display().to_string();
    let client = repository("tests/it/mcp_server/client.mjs");
    let packages = packages.display().to_string();
    let (_, got) = script(
        &project,
        "node",
        &[&client, &packages, &project.binary(), &root],
    );
    check_client(&got);
    assert_eq!(
        (&got["server"], &got["missing"]),
        (&json!("orchestrator"), &json!(-32002))
    );
    assert_eq!(got["updated"][0], "screen://bash");
    assert_eq!(
        (&got["aborted"], &got["templates"]),
        (&json!(true), &json!([]))
    );
    assert!(
        got["after"][0][0].as_str().unwrap().starts_with("kept\n"),
        "{got}"
    );
    project.nothing_left();
}

#[test]
fn the_real_claude_adds_checks_and_calls_it() {
    let Some(folder) = claude::real() else {
        return;
    };
    let server = Server::start([
        reply::call(
            "mcp__environments__bash",
            json!({"command": "echo made by a tool > made.txt; cat made.txt"}),
        ),
        reply::text("It is made."),
    ]);
    let program = folder.join("claude").display().to_string();
    let built = Path::new(BINARY).parent().unwrap().display();
    let path = format!("{}:{built}:/usr/local/bin:/usr/bin:/bin", folder.display());
    let project = Project::new().model(&server).env("PATH", &path);
    let claude = |arguments: &[&str]| {
        Running::start(project.command(&program, arguments), project.root())
            .wait()
            .exits(0)
    };
    let page = std::fs::read_to_string(repository("docs/environments.md")).unwrap();
    let lines: Vec<String> = doc_commands(&page)
        .into_iter()
        .map(|command| command.line)
        .filter(|line| line.starts_with("claude "))
        .collect();
    let [add, list] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    project.run_in_shell(add, &[]).exits(0);
    let listed = project.run_in_shell(list, &[]).exits(0).stdout;
    assert!(
        listed.contains("environments: ") && listed.contains("Connected"),
        "{listed}"
    );
    let asked = [
        "--print",
        "Make it.",
        "--tools",
        "",
        "--allowedTools",
        "mcp__environments",
    ];
    let said = claude(&asked).stdout;
    assert!(said.contains("It is made."), "{said}");
    assert_eq!(project.read("made.txt"), "made by a tool\n");
    let requests = server.requests();
    let last = requests
        .iter()
        .rfind(|request| !request.results().is_empty());
    assert!(
        last.unwrap()
            .raw
            .contains("made by a tool\\n\\n[screen of bash]")
    );
    project.nothing_left();
}
