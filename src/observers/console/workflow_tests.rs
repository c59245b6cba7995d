//! The lines of a workflow on the console: events in, bytes out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{Fixture, columns};
use super::{Console, TerminalSize};
use crate::events::{ConversationScope, Event, Objection, RequestPlace};
use crate::observers::workflow_text::run_lines;
use crate::state::reason::Reason;

pub(super) fn fixture(quiet: bool, terminal: Option<fn() -> TerminalSize>) -> Fixture {
    Fixture::attached(Console::attach_workflow, quiet, false, terminal)
}

pub(super) fn plain(events: &[Event]) -> String {
    fixture(false, None).written_for(events)
}

pub(super) fn place(turn: u32) -> RequestPlace {
    ConversationScope::Visit { visit: 1 }.turn(turn)
}

pub(super) fn started(model: &str) -> Event {
    Event::WorkflowStarted {
        workflow_id: "r1".into(),
        scope_dir: "/root".into(),
        debug_dir: None,
        spec_file: "flow/START.md".into(),
        spec_hash: String::new(),
        provider: "anthropic".into(),
        model: model.into(),
        resumed: false,
        version: "0".into(),
        max_retries: None,
        replaces: None,
        continues: None,
        budget: None,
        options: Vec::new(),
        start_state: Some("START.md".into()),
        input: None,
        folder: None,
    }
}

pub(super) fn entered(agent: &str, file: &str, kind: &str) -> Event {
    Event::StateStarted {
        agent_id: agent.into(),
        state_name: file.into(),
        state_type: kind.into(),
        attempt: None,
        of: None,
        visit: Some(1),
    }
}

pub(super) fn requested(agent: &str, turn: u32, objection: Option<Objection>, text: &str) -> Event {
    Event::ModelRequested {
        agent_id: agent.into(),
        place: place(turn),
        provider: "anthropic".into(),
        model: "claude-x".into(),
        hash: "h".into(),
        worst: Default::default(),
        continues: None,
        objection,
        request: json!({"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
    }
}

pub(super) fn answered(agent: &str, cost_usd: Option<f64>) -> Event {
    Event::ModelAnswered {
        agent_id: agent.into(),
        place: place(0),
        hash: "h".into(),
        cost_usd,
        duration_ms: 1234,
        answer: None,
        error: None,
    }
}

pub(super) fn called(agent: &str, command: &str) -> Event {
    Event::ToolCalled {
        agent_id: agent.into(),
        place: place(0),
        call: 0,
        tool_name: "bash".into(),
        arguments: json!({"command": command}),
    }
}

pub(super) fn moved(
    agent: &str,
    from: &str,
    to: Option<&str>,
    tag: &str,
    metadata: Value,
) -> Event {
    Event::TransitionOccurred {
        agent_id: agent.into(),
        from_state: from.into(),
        to_state: to.map(str::to_owned),
        transition_type: tag.into(),
        metadata,
    }
}

pub(super) fn script(
    agent: &str,
    file: &str,
    problem: Option<&str>,
    exit_code: i32,
    stderr: &str,
) -> Event {
    Event::ScriptOutput {
        agent_id: agent.into(),
        state_name: file.into(),
        step_number: 1,
        tool_name: String::new(),
        hidden: false,
        passed: problem.is_none(),
        problem: problem.map(str::to_owned),
        exit_code,
        execution_time_ms: 300,
        tests: None,
        flaky: false,
        first_executed: Vec::new(),
        skipped_names: Vec::new(),
        causes: Vec::new(),
        stdout: String::new(),
        stdout_bytes: 0,
        stderr: stderr.into(),
        stderr_bytes: stderr.len() as u64,
        env_vars: Vec::new(),
    }
}

pub(super) fn print(agent: &str, text: &str) -> Event {
    Event::Print {
        agent_id: agent.into(),
        text: text.into(),
    }
}

pub(super) fn paused(agent: &str, reason: Reason, message: &str) -> Event {
    Event::AgentPaused {
        agent_id: agent.into(),
        reason,
        message: message.into(),
    }
}

pub(super) fn failed(agent: &str, message: &str) -> Event {
    Event::AgentFailed {
        agent_id: agent.into(),
        message: message.into(),
    }
}

pub(super) fn ended(agent: &str, payload: &str) -> Event {
    Event::AgentTerminated {
        agent_id: agent.into(),
        result_payload: payload.into(),
    }
}

pub(super) fn note(agent: &str, note: &str) -> Event {
    Event::NoteAdded {
        agent_id: agent.into(),
        note: note.into(),
    }
}

pub(super) fn sandbox(message: &str) -> Event {
    Event::SandboxFound {
        agent_id: "main".into(),
        mode: "full".into(),
        message: message.into(),
        is_note: false,
    }
}

fn failed_request() -> Event {
    Event::ErrorOccurred {
        agent_id: "main".into(),
        error_type: "model".into(),
        error_message: "the provider is overloaded".into(),
        current_state: "START.md".into(),
        is_retryable: true,
        retry_count: 1,
        max_retries: 4,
        charge: None,
    }
}

fn whole_run() -> Vec<Event> {
    let workers = json!([{"id": "main_w1", "state": "W.sh"}, {"id": "main_w2", "state": "W.sh"}]);
    vec![
        started("claude-x"),
        sandbox("sandbox: full\nno network"),
        note("run", "unknown key odd_key"),
        entered("main", "START.md", "markdown"),
        requested("main", 0, None, "Go."),
        failed_request(),
        answered("main", Some(0.0123)),
        requested(
            "main",
            1,
            Some(Objection::Reminder),
            "no tag\n<goto>B</goto>",
        ),
        called("main", "echo a\necho b"),
        answered("main", None),
        moved(
            "main",
            "START.md",
            Some("N.md"),
            "fork",
            json!({"visit": 1, "workers": workers, "join": true}),
        ),
        Event::AgentSpawned {
            parent_agent_id: "main".into(),
            new_agent_id: "main_w1".into(),
            initial_state: "W.sh".into(),
        },
        entered("main_w1", "W.sh", "script"),
        print("main_w1", "\na\n\nb\n"),
        script("main_w1", "W.sh", None, 0, "noise\n"),
        moved("main_w1", "W.sh", None, "result", json!({"payload": "w"})),
        ended("main_w1", "w\nmore"),
        script(
            "main_w2",
            "W.sh",
            Some("exit code 3"),
            3,
            "\u{1b}[31mboom\u{1b}[0m\u{1b}]0;t\u{7}\n\nlast\n",
        ),
        failed("main_w2", "the script ended with exit code 3"),
        moved(
            "main",
            "N.md",
            Some("C.md"),
            "call",
            json!({"return": "R.md", "implicit": true}),
        ),
        moved("main", "C.md", Some("D.md"), "reset", json!({"cwd": "sub"})),
        paused("main", Reason::ProviderUnavailable, "usage limit"),
        paused("main", Reason::Asking, "Which\none?"),
        Event::AgentAnswered {
            agent_id: "main".into(),
            text: "that".into(),
        },
        ended("main", ""),
        Event::WorkflowPaused {
            workflow_id: "r1".into(),
            total_cost_usd: Some(0.5),
            paused_agent_count: 1,
            reason: "asking".into(),
            message: "main asks".into(),
        },
    ]
}

const WHOLE_RUN: &str = "\
[run] run r1 started: flow/START.md, anthropic claude-x
[run] sandbox: full
[run] no network
[run] note: unknown key odd_key
[main] state START (markdown)
[main] the provider is overloaded (retry 1 of 4)
[main] the model answered (1.2 s, $0.0123)
[main] reminds the model: no tag ...
[main] bash: echo a ...
[main] the model answered (1.2 s)
[main] START -> N (fork, 2 workers to wait for: main_w1, main_w2)
[main_w1] state W (script)
[main_w1] a
[main_w1]
[main_w1] b
[main_w1] script W ended after 0.3 s, exit code 0
[main_w1] ends: w ...
[main_w2] script W failed after 0.3 s, exit code 3
[main_w2]   boom
[main_w2]   last
[main_w2] failed: the script ended with exit code 3
[main] N -> C (call, implicit, returns to R)
[main] C -> D (reset, in sub)
[main] paused (provider_unavailable): usage limit
[main] asks: Which
[main] one?
[main] is answered: that
[main] ends
[run] paused after 0.0 s, $0.5000 (asking): main asks
";

#[test]
fn a_whole_run_in_plain_lines() {
    assert_eq!(plain(&whole_run()), WHOLE_RUN);
}

#[test]
fn quiet_keeps_warnings_errors_pauses_and_questions() {
    let text = fixture(true, Some(columns::<80>)).written_for(&whole_run());
    let kept = [
        "[run] note:",
        "[main] the provider is overloaded",
        "[main_w2] script W failed",
        "[main_w2]   boom",
        "[main_w2]   last",
        "[main_w2] failed:",
        "[main] paused",
        "[main] asks: Which",
        "[main] one?",
        "[run] paused",
    ];
    assert_eq!(text.lines().count(), kept.len(), "{text}");
    let is_kept = |(line, begin): (&str, &str)| line.starts_with(begin);
    assert!(text.lines().zip(kept).all(is_kept), "{text}");
}

#[test]
fn a_question_is_written_once_and_whole() {
    let question = format!("Which?\n{}\nOr none?", "x".repeat(1000));
    let moved = moved(
        "main",
        "START.md",
        Some("N.md"),
        "ask",
        json!({"question": question}),
    );
    let asking = || paused("main", Reason::Asking, &question);
    let lines = format!(
        "[main] asks: Which?\n[main] {}\n[main] Or none?\n",
        "x".repeat(1000)
    );
    let whole = format!("[main] START -> N (ask)\n{lines}");
    assert_eq!(plain(&[moved.clone(), asking()]), whole);
    assert_eq!(plain(&[asking()]), lines);
    assert_eq!(fixture(true, None).written_for(&[moved]), whole);
}

#[test]
fn the_last_failure_of_a_request_is_left_to_what_it_leads_to() {
    let failed_step = |is_retryable| Event::ErrorOccurred {
        agent_id: "main".into(),
        error_type: "step".into(),
        error_message: "overloaded".into(),
        current_state: "START.md".into(),
        is_retryable,
        retry_count: 1,
        max_retries: 3,
        charge: None,
    };
    let written = plain(&[failed_step(true), failed_step(false)]);
    assert_eq!(written, "[main] overloaded (retry 1 of 3)\n");
}

#[test]
fn a_run_without_a_model_names_none() {
    assert_eq!(
        plain(&[started("")]),
        "[run] run r1 started: flow/START.md\n"
    );
}

#[test]
fn the_reason_of_a_failed_script_follows_its_exit_code() {
    let event = script("main", "S.sh", Some("no transition tag"), 0, "");
    let expected = "[main] script S failed after 0.3 s, exit code 0: no transition tag\n";
    assert_eq!(plain(&[event]), expected);
    let stderr: String = (0..100).map(|number| format!("{number}\n")).collect();
    let text = plain(&[script("main", "S.sh", Some("exit code 1"), 1, &stderr)]);
    assert_eq!(text.lines().count(), 7);
    assert!(text.ends_with("[main]   98\n[main]   99\n"), "{text}");
}

#[test]
fn lines_of_the_command_itself_belong_to_the_run() {
    assert_eq!(run_lines("next: a\n  b\n"), "[run] next: a\n[run]   b");
}

proptest! {
    #[test]
    fn no_text_can_leave_a_line_without_an_agent(text in any::<String>(), hostile in "[\\x00-\\x1f\\x7f-\\u{9f}\\u{2028}]{0,9}") {
        let text = format!("{hostile}{text}{hostile}");
        let events = [
            print("main", &text), paused("main", Reason::Asking, &text), failed("main", &text), ended("main", &text),
            script("main", &text, Some(&text), 1, &text), entered("main", &text, &text), note("main", &text),
            moved("main", &text, Some(&text), &text, json!({"cwd": text, "return": text, "workers": [{"id": text}]})),
            requested("main", 1, Some(Objection::Reminder), &text), called("main", &text),
        ];
        let written = plain(&events);
        prop_assert!(written.lines().all(|line| line.starts_with("[main]")), "{:?}", written);
        prop_assert!(written.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", written);
    }
}
