//! Replay of conversations: commands are run again for their effect, answers come from the log.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::agent_mode::{CHECK, PROVIDERS, agent_spec, done, solve};
use crate::support::project::{Project, RUN_JSON, checked_by};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::running::Ran;
use crate::support::server::Server;

const REPLAY: &[&str] = &[
    "run",
    "--spec",
    "specs/spec.yaml",
    "--json",
    "--replay",
    "recorded.log",
];

/// Runs the spec with the answers, and returns the project.
fn recorded(spec: &str, replies: Vec<Reply>, code: i32) -> Project {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON).exits(code);
    project
}

/// Replays the log of a project in another root, without a key and without a server.
fn replayed(spec: &str, first: &Project) -> (Project, Ran) {
    let log = fs::read(first.path(&first.log_path())).unwrap();
    let project = Project::new()
        .spec(spec)
        .file("recorded.log", log)
        .without("ANTHROPIC_API_KEY")
        .without("OPENAI_API_KEY");
    for (path, content) in first
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("env/"))
    {
        project.write(&path, content);
    }
    let ran = project.run(REPLAY);
    project.nothing_left();
    (project, ran)
}

/// Asserts that a replay ends as the recorded run did.
fn assert_same(spec: &str, first: &Project) -> (Project, Ran) {
    let (second, ran) = replayed(spec, first);
    for field in [
        "state",
        "reason",
        "retry_count",
        "attempt_files",
        "last_error",
    ] {
        assert_eq!(
            second.state()[field],
            first.state()[field],
            "{field}\n{}",
            ran.transcript()
        );
    }
    // A replay loses no request.
    for field in ["llm_calls", "input_tokens", "output_tokens", "cost_usd"] {
        assert_eq!(
            second.state()["usage"][field],
            first.state()["usage"][field],
            "{field}\n{}",
            ran.transcript()
        );
    }
    assert_eq!(second.workspace_files(), first.workspace_files());
    (second, ran)
}

#[test]
fn a_replay_ends_in_the_same_state_with_the_same_files() {
    for provider in PROVIDERS {
        let spec = agent_spec(&format!("provider: {provider}"));
        let replies = vec![
            bash("mkdir sub; cd sub; echo one > a.txt").with_text("Words."),
            call(
                "python",
                json!({"command": "open('b.txt', 'w').write('two')"}),
            )
            .and_call("editor", json!({"command": "create answer.txt\n41\n"})),
            call("telnet", json!({})),
            reply::text(""),
            bash("echo 42 > answer.txt; exit 3"),
            reply::text("Ended."),
        ];
        let first = recorded(&spec, replies, 0);
        assert_eq!(
            first.state()["retry_count"],
            1,
            "the empty answer ended the first phase"
        );
        assert_same(&spec, &first);
    }
}

#[test]
fn a_replay_of_a_replay_works_too() {
    let spec = agent_spec("");
    let first = recorded(
        &spec,
        vec![bash("echo 41 > answer.txt"), done(), solve(), done()],
        0,
    );
    let (second, _) = assert_same(&spec, &first);
    assert_same(&spec, &second);
}

#[test]
fn differing_tool_results_are_counted_but_are_not_a_mismatch() {
    let spec = agent_spec("");
    let vary = || bash("cat /proc/sys/kernel/random/uuid; echo $RANDOM$RANDOM");
    let first = recorded(
        &spec,
        vec![vary(), vary(), bash("echo same"), solve(), done()],
        0,
    );
    let (second, ran) = assert_same(&spec, &first);
    assert!(
        ran.stderr.contains("2 of 4 results differ"),
        "{}",
        ran.transcript()
    );
    let notes = ran.result()["notes"].clone();
    assert_eq!(
        notes.as_array().map(Vec::len),
        Some(1),
        "the first one is shown: {notes}"
    );
    assert!(notes.to_string().contains("turn 0"), "{notes}");
    assert_eq!(
        second.events("ToolReturned")[0]["output"],
        first.events("ToolReturned")[0]["output"]
    );
}

#[test]
fn a_log_of_a_run_killed_in_a_call_can_be_replayed() {
    let two = bash("echo 41 > answer.txt; touch begun; sleep 1000")
        .and_call("bash", json!({"command": "echo 40 > answer.txt"}));
    let spec = agent_spec("");
    let server = Server::start([
        bash("kept=yes"),
        two,
        bash("echo \"$kept\" > answer.txt"),
        solve(),
        done(),
    ]);
    let first = Project::with(&spec, &server);
    let mut running = first.start(RUN_JSON);
    running.until("the command runs", || first.exists("workspace/begun"));
    running.signal(Signal::KILL);
    running.wait();
    fs::remove_file(first.path("workspace/begun")).unwrap();
    first.run(RUN_JSON).exits(0);
    let (second, _) = replayed(&spec, &first);
    assert_eq!(
        (
            second.state_text("state").as_str(),
            second.workspace("answer.txt").as_str()
        ),
        ("SUCCESS", "42\n")
    );
    assert!(
        !second.exists("workspace/begun"),
        "a call without a result is not run"
    );
    assert_eq!(second.events("EnvironmentsRestarted").len(), 1);
}

#[test]
fn restarts_are_replayed() {
    let spec = agent_spec("");
    let server = Server::start([
        bash("kept=41"),
        done().held(),
        bash("echo \"4${kept:-2}\" > answer.txt"),
        done(),
    ]);
    let first = Project::with(&spec, &server);
    for request in [2, 3] {
        let running = first.start(RUN_JSON);
        server.wait_for(request);
        running.signal(Signal::KILL);
        running.wait();
    }
    drop(server);
    let server = Server::start([bash("echo \"4${kept:-2}\" > answer.txt"), done()]);
    let first = first.model(&server);
    first.run(RUN_JSON).exits(0);
    assert_same(&spec, &first);
}

#[test]
fn bounds_are_replayed() {
    let wrong = || bash("echo 41 > answer.txt");
    for (generator, replies, reason) in [
        ("max_turns: 2", vec![wrong(), wrong()], "max_turns"),
        (
            "phase_timeout: 2",
            vec![wrong(), done().held()],
            "phase_timeout",
        ),
        (
            "phase_timeout: 2",
            vec![bash("echo 41 > answer.txt; sleep 1000")],
            "phase_timeout",
        ),
        (
            "max_tokens: 1000",
            vec![wrong(), done().cut_after(0)],
            "budget",
        ),
    ] {
        let budget = if reason == "budget" {
            "budget: {tokens: 5000}\n"
        } else {
            ""
        };
        let spec = agent_spec(generator) + budget;
        let first = recorded(&spec, replies, 1);
        assert_eq!(first.state_text("reason"), reason);
        assert_same(&spec, &first);
    }
}

#[test]
fn a_note_about_a_running_command_is_replayed() {
    let spec = agent_spec("");
    let slow = call(
        "bash",
        json!({"command": "echo 41 > answer.txt; sleep 2; true", "timeout": 1}),
    );
    let first = recorded(&spec, vec![slow, done(), solve(), done()], 0);
    assert_same(&spec, &first);
}

#[test]
fn compaction_and_a_repeated_request_are_replayed() {
    let spec = agent_spec("context: 9000");
    let one = |turn: usize| {
        bash(&format!(
            "echo turn {turn}; head -c 2000 /dev/zero | tr '\\0' x"
        ))
    };
    let long = reply::error(400, "invalid_request_error", "prompt is too long");
    let first = recorded(
        &spec,
        (0..12).map(one).chain([long, solve(), done()]).collect(),
        0,
    );
    assert_same(&spec, &first);
}

#[test]
fn a_different_prompt_or_report_is_a_mismatch() {
    let spec = agent_spec("");
    let first = recorded(
        &spec,
        vec![bash("echo 41 > answer.txt"), done(), solve(), done()],
        0,
    );
    let (_, ran) = replayed(
        &spec.replace("Write the answer", "Scribble the answer"),
        &first,
    );
    assert_eq!(
        ran.outcome_and_reason().1,
        "replay_mismatch",
        "{}",
        ran.transcript()
    );
    let other = checked_by(&CHECK.replace("says", "shouts")) + "generator: {mode: agent}\n";
    let (_, ran) = replayed(&other, &first);
    assert_eq!(
        ran.outcome_and_reason().1,
        "replay_mismatch",
        "{}",
        ran.transcript()
    );
    let message = ran.result()["message"].to_string();
    assert!(
        message.contains("shouts") && message.contains("says"),
        "{message}"
    );
}

#[test]
fn a_missing_environment_changes_results_but_is_not_a_mismatch() {
    let class = "from orchestrator.types import CommandResponse, CommandText, ScreenSection\nimport os\n\
        assert not os.path.exists('/tmp/CUT')\n\nclass Own:\n    def handle_command(self, cmd: CommandText) -> \
        CommandResponse:\n        return CommandResponse('own', True)\n\n    def get_screen(self) -> ScreenSection:\n        \
        return ScreenSection('screen')\n";
    let spec = agent_spec("");
    let server = Server::start([call("own", json!({"command": "x"})), solve(), done()]);
    let first = Project::with(&spec, &server).file("env/own.py", class);
    first.run(RUN_JSON).exits(0);
    first.write("env/own.py", class.replace("assert not", "assert"));
    let (_, ran) = assert_same(&spec, &first);
    assert!(
        ran.stderr.contains("1 of 2 results differ"),
        "{}",
        ran.transcript()
    );
}

#[test]
fn different_content_written_by_a_tool_is_a_mismatch() {
    // The prompt names the given file and its size alone; what the command makes of it differs.
    let spec = agent_spec("") + "workspace: {copy: [given.txt]}\n";
    let server = Server::start([
        bash("cp given.txt out.txt; date +%N > when.txt; rm when.txt"),
        solve(),
        done(),
    ]);
    let first = Project::with(&spec, &server).file("specs/given.txt", "5 seconds\n");
    first.run(RUN_JSON).exits(0);
    let log = fs::read(first.path(&first.log_path())).unwrap();
    for (given, code) in [("5 seconds\n", 0), ("9 seconds\n", 1)] {
        let second = Project::new()
            .spec(&spec)
            .file("recorded.log", &log)
            .file("specs/given.txt", given);
        let ran = second.run(REPLAY).exits(code);
        let message = ran.result()["message"].to_string();
        assert_eq!(
            code == 1,
            message.contains("out.txt has another content"),
            "{message}"
        );
    }
}
