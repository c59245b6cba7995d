//! `env/NAME.mcp.yaml`: MCP servers as environments, odd ones by hand, real ones from the official packages.

use serde_json::json;

use crate::agent_mode::{agent_spec, done, solve};
use crate::support::mcp_client::McpClient;
use crate::support::needs;
use crate::support::project::{Project, RUN};
use crate::support::reply;
use crate::support::running::until;
use crate::support::serve_client::{Request, Serving, command, control};
use crate::support::server::Server;

const ODD: &str = include_str!("mcp_environment/odd_server.py");
const FAST: &str = include_str!("mcp_environment/fast_server.py");

fn odd(mode: &str) -> (Project, Serving) {
    let project = Project::new().file("odd.py", ODD).file(
        "env/odd.mcp.yaml",
        format!("command: python3 odd.py {mode}\n"),
    );
    let serving = Serving::start(&project);
    (project, serving)
}

#[test]
fn tools_are_called_by_name_with_json() {
    let (project, mut serving) = odd("");
    let first = serving.ask("odd", "echo {\"words\": \"hi\"}");
    assert_eq!(first.shows(), "hi\n");
    let screen = first.screen("odd");
    assert!(
        screen.starts_with("MCP server odd 1: 14 tools; "),
        "{screen}"
    );
    let echo = "\necho {\"words\"?: string}\n    does echo\n    words: what to say\n";
    assert!(
        screen.contains(echo) && screen.contains("\nescapes {"),
        "{screen}"
    );
    assert!(screen.ends_with("\nBe kind.\n"), "{screen}");
    assert!(50 <= first.max_lines("odd"));
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
    assert_eq!(
        serving
            .ask("odd", " echo\n{\n\"words\":\n\"a\\nb\"}\n")
            .shows(),
        "a\nb\n"
    );
    assert_eq!(serving.ask("odd", " ").shows(), screen);
    assert_eq!(serving.ask("odd", "error").fails(), "it went wrong\n");
    let refused = serving.ask("odd", "rpc_error");
    assert_eq!(
        refused.fails(),
        "rpc_error failed: no such argument (error -32602)\n"
    );
    let contents = serving.ask("odd", "contents");
    let expected = "[image: image/png, 5 bytes]\n[resource file:///x]\ninside\n";
    assert_eq!(contents.shows(), expected);
    assert_eq!(
        serving.ask("odd", "structured").shows(),
        "{\n  \"answer\": 42\n}\n"
    );
    assert_eq!(serving.ask("odd", "escapes").shows(), "red\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn of_a_hundred_tools_the_screen_has_the_calls_alone() {
    let (project, mut serving) = odd("many");
    let called = serving.ask("odd", "tool_99 {\"words\": \"hi\"}");
    assert_eq!(called.shows(), "hi\n");
    let screen = called.screen("odd");
    assert!(
        screen.starts_with("MCP server odd 1: 114 tools; "),
        "{screen}"
    );
    assert!(screen.contains("\ntool_99 {\"words\"?: string}\nTOOL ? describes one of them.\n"));
    assert!(screen.len() < 9000, "{}", screen.len());
    assert!(called.max_lines("odd") < 130);
    let described = serving.ask("odd", "tool_50 ?");
    let shown = described.shows();
    assert!(
        shown.starts_with("tool_50 {\"words\"?: string}\n    does tool_50 at length at"),
        "{shown}"
    );
    assert!(shown.ends_with("\n    words: what to say\n"), "{shown}");
    let unknown = serving.ask("odd", "fly ?");
    assert!(
        unknown
            .fails()
            .starts_with("there is no tool \"fly\"; there are echo, ")
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_model_calls_the_tools_of_a_server_in_agent_mode() {
    let server = Server::start([
        reply::call("odd", json!({"command": "echo {\"words\": \"hello\"}"})),
        reply::call("odd", json!({"command": "die"})),
        reply::call("odd", json!({"command": "error"})),
        solve(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server)
        .file("env/servers/odd.py", ODD)
        .file(
            "env/odd.mcp.yaml",
            "command: python3 ./env/servers/odd.py\n",
        );
    project.run(RUN).exits(0);
    let requests = server.requests();
    let offered = requests[0].body["tools"][3]["description"].as_str();
    assert!(
        offered
            .unwrap()
            .starts_with("The tools of the MCP server odd.")
    );
    let result = |number: usize| requests[number].result();
    let is_error = |number: usize| result(number).is_error;
    assert_eq!(
        [1, 2, 3].map(is_error),
        [Some(false), Some(true), Some(true)]
    );
    let text = result(1).text;
    assert!(
        text.starts_with("hello\n\n[screen of odd]\nMCP server odd 1: 14 tools; "),
        "{text}"
    );
    assert!(
        result(2)
            .text
            .starts_with("environment odd ended (exit status 3)")
    );
    assert!(result(3).text.starts_with("it went wrong\n"));
    project.nothing_left();
}

#[test]
fn invalid_commands_are_refused_with_the_reason() {
    let (_project, mut serving) = odd("");
    let unknown = serving.ask("odd", "fly {}");
    assert!(
        unknown
            .fails()
            .starts_with("there is no tool \"fly\"; there are echo, error, ")
    );
    for (text, words) in [
        ("echo {\"words\" 1}", "line 1, column 15: expected `:`"),
        ("echo\n{\"words\":\n x}", "line 3, column 2: expected value"),
        ("echo [1]", "expected a JSON object, found an array"),
        ("echo {} {}", "line 1, column 9: trailing characters"),
    ] {
        let answer = serving.ask("odd", text);
        let expected = format!("invalid arguments of echo: {words}");
        assert!(answer.fails().starts_with(&expected), "{}", answer.output());
    }
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
}

#[test]
fn what_the_server_asks_and_says_is_handled() {
    let (project, mut serving) = odd("");
    let asked = serving.ask("odd", "ask");
    let root = project.root().display().to_string();
    let expected = format!(
        "[{{}}, {{\"roots\": [{{\"uri\": \"file://{root}\", \"name\": \"project\"}}]}}, -32601, -32601]\n"
    );
    assert_eq!(asked.shows(), expected);
    assert_eq!(serving.ask("odd", "log").shows(), "logged\n");
    serving.until_stderr_has("[odd] warning: mind this");
    assert_eq!(serving.ask("odd", "garbage").shows(), "after garbage\n");
    serving.until_stderr_has("[odd] not a message of MCP: hello, I am not JSON");
    let grown = serving.ask("odd", "grow");
    assert!(
        grown.screen("odd").contains("\ngrown {"),
        "{}",
        grown.screen("odd")
    );
    assert_eq!(serving.ask("odd", "grown").shows(), "a new tool\n");
}

#[test]
fn a_call_can_be_waited_for_interrupted_and_restarted() {
    let (project, mut serving) = odd("");
    let late = serving.request(&command("odd", "progress").timeout(0.5));
    assert!(late.goes_on().is_empty() || late.goes_on() == "[progress 1 of 4: on it]\n");
    assert!(
        late.screen("odd").ends_with("Running: progress"),
        "{}",
        late.screen("odd")
    );
    assert!(serving.ask("odd", "echo").output().starts_with("Not run: "));
    let interrupted = serving.control("odd", "interrupt");
    let expected = "[interrupted: the server was asked to cancel progress]\n";
    assert_eq!(interrupted.fails(), expected);
    serving.until_stderr_has("[odd] cancelled ");
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
    serving.send(&command("odd", "never"));
    serving.send(&control("odd", "restart"));
    assert_eq!(serving.answer().fails(), "[ended by restart]\n");
    assert_eq!(serving.answer().shows(), "Restarted\n");
    assert_eq!(serving.control("odd", "wait").shows(), "Nothing is running");
    project.write("odd.py", ODD.replace("nothing", "changed"));
    serving.control("odd", "restart");
    assert_eq!(serving.ask("odd", "echo").shows(), "changed\n");
    assert!(
        serving
            .request(&command("odd", "never").timeout(0.0))
            .is_running()
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_server_that_dies_or_babbles_is_started_again() {
    let (project, mut serving) = odd("");
    let died = serving.ask("odd", "die");
    assert!(
        died.fails()
            .starts_with("environment odd ended (exit status 3); its state is lost")
    );
    assert!(
        died.output().ends_with("it printed:\n  my last words\n"),
        "{}",
        died.output()
    );
    assert_eq!(died.screen("odd"), "odd (ended: exit status 3)");
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
    let flooded = serving.ask("odd", "flood");
    assert!(
        flooded.fails().starts_with("environment odd was stopped: "),
        "{}",
        flooded.output()
    );
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_server_that_cannot_be_used_is_left_out_with_the_reason() {
    let project = Project::new()
        .file("odd.py", ODD)
        .file("env/old.mcp.yaml", "command: [python3, odd.py, old]\n")
        .file(
            "env/refusing.mcp.yaml",
            "command: python3 odd.py refusing\n",
        )
        .file(
            "env/missing.mcp.yaml",
            "command: there-is-no-such-program\n",
        )
        .file(
            "env/broken.mcp.yaml",
            "command: sh -c 'echo why >&2; exit 5'\n",
        )
        .file("env/quote.mcp.yaml", "command: sh 'x\n")
        .file("env/number.mcp.yaml", "command: 5\n")
        .file("env/nothing.mcp.yaml", "command: []\n")
        .file("env/field.mcp.yaml", "command: sh\ncolour: red\n")
        .file("env/variable.mcp.yaml", "command: sh\nenv: {A: [1]}\n")
        .file("env/bash.mcp.yaml", "command: sh\n")
        .file("env/twice.mcp.yaml", "command: sh\n")
        .file("env/twice.yaml", "command: cat\nprompt: x\n");
    let mut serving = Serving::start(&project);
    let answer = serving.bash("true");
    assert_eq!(answer.sections(), ["bash", "editor", "python", "twice"]);
    for (name, why) in [
        ("old", "unknown protocol version \"1999-01-01\""),
        ("refusing", "its server refused: not today (error -32603)"),
        ("missing", "its server ended (cannot start: "),
        (
            "broken",
            "its server ended (exit status 5); it printed:\n  why",
        ),
        ("quote", "command: a quote is not closed"),
        ("number", "command: expected a text or a list of texts"),
        ("nothing", "command: no program is named"),
        ("field", ""),
        ("variable", "env: expected a text for each variable"),
        (
            "bash",
            "the name belongs to a built-in environment (env/bash.mcp.yaml)",
        ),
    ] {
        serving.until_stderr_has(&format!("Failed to load environment '{name}': {why}"));
    }
    serving.until_stderr_has("Ignored env/twice.mcp.yaml: env/twice.yaml comes first");
    project.write("env/old.mcp.yaml", "command: python3 odd.py\n");
    assert_eq!(serving.control("old", "restart").shows(), "Restarted\n");
    assert_eq!(serving.ask("old", "echo").shows(), "nothing\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_silent_server_counts_as_loading_and_ends_with_the_others() {
    let (project, mut serving) = odd("");
    assert!(serving.bash("true").is_success());
    project.write("env/odd.mcp.yaml", "command: python3 odd.py silent\n");
    let answer = serving.control("odd", "restart");
    assert_eq!(answer.screen("odd"), "[loading]");
    let refused = serving.request(&command("odd", "echo").timeout(0.1));
    assert!(
        refused
            .output()
            .contains("still loading; use wait or restart")
    );
    assert!(serving.bash("echo others work").is_success());
    project.write("env/odd.mcp.yaml", "command: python3 odd.py\n");
    serving.control("odd", "restart");
    assert_eq!(serving.ask("odd", "echo").shows(), "nothing\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_server_of_the_official_python_package_works_inside_the_sandbox() {
    let Some(packages) = needs::mcp_python() else {
        return;
    };
    let python = packages.join("bin/python").display().to_string();
    let program = format!("command: ['{python}', fast.py]\nenv: {{GIVEN: 7}}\n");
    let project = Project::new()
        .file("fast.py", FAST)
        .file("env/fast.mcp.yaml", program);
    let read = packages.display().to_string();
    let mut serving = Serving::with(&project, &["--read", &read]);
    let answer = serving.ask("fast", "add {\"a\": 4}");
    assert_eq!(answer.shows(), "7\n");
    let screen = answer.screen("fast");
    assert!(
        screen.contains("\nadd {\"a\": integer, \"b\"?: integer = 3}\n    Adds two numbers.\n"),
        "{screen}"
    );
    assert!(serving.ask("fast", "fail").fails().contains("fail"));
    assert!(!serving.ask("fast", "add {\"a\": \"x\"}").is_success());
    let outside = project.outside("outside").display().to_string();
    let look = |path: &str| format!("look {}", json!({"path": path}));
    let looked = serving.ask("fast", &look("/usr/outside"));
    assert!(looked.shows().ends_with(" 7\n"), "{}", looked.output());
    serving.ask("fast", &look(&outside));
    assert!(!project.outside("outside").exists());
    serving.send(&command("fast", "slow {\"name\": \"begun\"}"));
    until("the tool has begun", || project.exists("begun"));
    serving.send(&control("fast", "interrupt"));
    assert!(!serving.answer().is_success());
    assert_eq!(serving.answer().output(), "Nothing is running");
    assert_eq!(
        serving.ask("fast", "add {\"a\": 1, \"b\": 1}").shows(),
        "2\n"
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn the_reference_server_of_npm_works_through_an_mcp_client() {
    let Some(packages) = needs::mcp_node() else {
        return;
    };
    let entry = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let entry = packages.join(entry).display().to_string();
    let project = Project::new().file(
        "env/every.mcp.yaml",
        format!("command: [node, '{entry}', stdio]\n"),
    );
    let read = packages.display().to_string();
    let mut client = McpClient::with(&project, &["--read", &read]);
    client.initialize("2025-06-18");
    let listed = client.request("tools/list", json!({}));
    let description = &listed["result"]["tools"][3]["description"];
    assert!(
        description
            .as_str()
            .unwrap()
            .starts_with("The tools of the MCP server every.")
    );
    let (text, is_error) = client.call(
        "every",
        json!({"command": "get-sum {\"a\": 20, \"b\": 22}"}),
    );
    assert!(
        !is_error && text.contains("42") && text.contains("\necho {\"message\": string}\n"),
        "{text}"
    );
    let (text, is_error) = client.call("every", json!({"command": "get-tiny-image"}));
    assert!(!is_error && text.contains("[image: image/png, "), "{text}");
    let (text, is_error) = client.call("every", json!({"command": "echo {}"}));
    assert!(is_error && text.contains("message"), "{text}");
    client.end().exits(0);
    project.nothing_left();
}
