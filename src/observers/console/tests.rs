//! The console as a whole: events in, bytes out.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Console, ConsoleOptions, TerminalSize};
use crate::events::bus::Bus;
use crate::events::{ConversationScope, Event, RequestPlace};
use crate::observers::event_text::line_before_result;
use crate::state::phase::Phase;
use crate::text::invisible::printable;

/// Sends each write as one message.
struct Sink(Sender<String>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct Fixture {
    pub(super) bus: Bus,
    pub(super) console: Console,
    pub(super) written: Receiver<String>,
}

impl Fixture {
    pub(super) fn new(quiet: bool, color: bool, terminal: Option<fn() -> TerminalSize>) -> Fixture {
        Fixture::attached(Console::attach, quiet, color, terminal)
    }

    pub(super) fn attached(
        attach: fn(&mut Bus, ConsoleOptions) -> Console,
        quiet: bool,
        color: bool,
        terminal: Option<fn() -> TerminalSize>,
    ) -> Fixture {
        let (sender, written) = channel();
        let mut bus = Bus::default();
        // No time has passed until an hour from now, however slow the machine is.
        let started = Instant::now() + Duration::from_secs(3600);
        let options = ConsoleOptions {
            quiet,
            result_follows: false,
            sees_streams: true,
            github: false,
            color: color && terminal.is_some(),
            terminal,
            started,
            sink: Box::new(Sink(sender)),
        };
        let console = attach(&mut bus, options);
        Fixture {
            bus,
            console,
            written,
        }
    }

    /// Emits the events, ends the console and returns everything it wrote.
    pub(super) fn written_for(mut self, events: &[Event]) -> String {
        events.iter().for_each(|event| self.bus.emit(event));
        self.console.finish();
        assert!(self.bus.take_failures().is_empty());
        self.written.try_iter().collect()
    }
}

/// What a terminal shows.
#[derive(Default)]
pub(super) struct Shown(String);

impl Shown {
    pub(super) fn after(&mut self, written: &Receiver<String>) -> &str {
        for (index, part) in written
            .try_iter()
            .collect::<String>()
            .split("\r\x1b[K")
            .enumerate()
        {
            if 0 < index {
                self.0.truncate(self.0.rfind('\n').map_or(0, |at| at + 1));
            }
            self.0 += part;
        }
        assert!(!self.0.contains(['\r', '\x1b']), "{:?}", self.0);
        &self.0
    }
}

pub(super) fn columns<const COLUMNS: u16>() -> TerminalSize {
    TerminalSize {
        columns: COLUMNS,
        rows: 24,
    }
}

fn plain(events: &[Event]) -> String {
    Fixture::new(false, true, None).written_for(events)
}

pub(super) fn main_agent() -> String {
    "main".to_owned()
}

pub(super) fn place(turn: u32) -> RequestPlace {
    RequestPlace {
        scope: ConversationScope::Phase {
            phase: Phase::Generating,
            retry_count: 0,
        },
        turn,
    }
}

pub(super) fn started(resumed: bool) -> Event {
    Event::WorkflowStarted {
        workflow_id: "r1".into(),
        scope_dir: "/root".into(),
        debug_dir: None,
        spec_file: "specs/a.yaml".into(),
        spec_hash: "sha256:0".into(),
        provider: "anthropic".into(),
        model: "claude-x".into(),
        resumed,
        version: "0".into(),
        max_retries: None,
        replaces: None,
        continues: None,
        budget: None,
        options: Vec::new(),
        start_state: None,
        input: None,
        folder: None,
    }
}

pub(super) fn phase(state_name: &str, attempt: u32) -> Event {
    Event::StateStarted {
        agent_id: main_agent(),
        state_name: state_name.into(),
        state_type: "model".into(),
        attempt: Some(attempt),
        of: Some(6),
        visit: None,
    }
}

pub(super) fn requested(turn: u32) -> Event {
    Event::ModelRequested {
        agent_id: main_agent(),
        place: place(turn),
        provider: "anthropic".into(),
        model: "claude-x".into(),
        hash: "h".into(),
        worst: Default::default(),
        continues: None,
        objection: None,
        request: Default::default(),
    }
}

pub(super) fn answered(cost_usd: Option<f64>) -> Event {
    Event::ModelAnswered {
        agent_id: main_agent(),
        place: place(0),
        hash: "h".into(),
        cost_usd,
        duration_ms: 1234,
        answer: None,
        error: None,
    }
}

fn checked(tool_name: &str, problem: Option<&str>, tests: Option<u32>) -> Event {
    Event::ScriptOutput {
        agent_id: main_agent(),
        state_name: "TESTING".into(),
        step_number: 1,
        tool_name: tool_name.into(),
        hidden: false,
        passed: problem.is_none(),
        problem: problem.map(str::to_owned),
        exit_code: 1,
        execution_time_ms: 300,
        tests: tests.map(|executed| crate::events::TestTotals {
            executed,
            ..Default::default()
        }),
        flaky: false,
        first_executed: Vec::new(),
        skipped_names: Vec::new(),
        causes: Vec::new(),
        stdout: String::new(),
        stdout_bytes: 0,
        stderr: String::new(),
        stderr_bytes: 0,
        env_vars: Vec::new(),
    }
}

fn note(note: &str) -> Event {
    Event::NoteAdded {
        agent_id: main_agent(),
        note: note.into(),
    }
}

pub(super) fn failed_request(is_retryable: bool) -> Event {
    Event::ErrorOccurred {
        agent_id: main_agent(),
        error_type: "overloaded".into(),
        error_message: "the provider is overloaded".into(),
        current_state: "GENERATING".into(),
        is_retryable,
        retry_count: 1,
        max_retries: 4,
        charge: None,
    }
}

fn ended(outcome: &str, reason: &str, message: &str) -> Event {
    Event::WorkflowCompleted {
        workflow_id: "r1".into(),
        total_cost_usd: Some(0.5),
        outcome: outcome.into(),
        reason: reason.into(),
        message: message.into(),
    }
}

fn whole_run() -> Vec<Event> {
    let paths = |paths: &[&str]| {
        paths
            .iter()
            .map(|path| path.to_string())
            .collect::<Vec<_>>()
    };
    vec![
        started(false),
        phase("GENERATING", 1),
        requested(0),
        failed_request(true),
        Event::ModelRetried {
            agent_id: main_agent(),
            place: place(0),
            attempt: 2,
        },
        answered(Some(0.0123)),
        requested(1),
        answered(None),
        Event::FilesApplied {
            agent_id: main_agent(),
            written: paths(&["a.py", "b.py"]),
            deleted: paths(&["c.py"]),
            hashes: Default::default(),
            unchanged: false,
        },
        phase("TESTING", 2),
        Event::ProtectedRestored {
            agent_id: main_agent(),
            restored: paths(&["t.py"]),
            removed: Vec::new(),
        },
        Event::ToolInvocation {
            timeout_s: Some(600.0),
            agent_id: main_agent(),
            tool_name: "unit".into(),
            detail: String::new(),
        },
        checked("unit", Some("exit code 1"), None),
        checked("lint", None, Some(1)),
        note("conftest.py is new"),
        Event::LogMended {
            agent_id: main_agent(),
            dropped_bytes: 12,
            dropped: String::new(),
            kept_as: "x.log.cut-1".into(),
        },
        ended("FAILED", "retries_exhausted", "checks failed"),
    ]
}

const WHOLE_RUN: &str = "\
run r1 started: specs/a.yaml, anthropic claude-x
generating (attempt 1 of 6)
the provider is overloaded (retry 1 of 4)
the model answered (1.2 s, $0.0123)
asking the model, turn 2
the model answered (1.2 s)
wrote 2 files: a.py, b.py; deleted 1 file: c.py
testing (attempt 2 of 6)
put back 1 protected file: t.py
check unit: failed, exit code 1, 0.3 s
check lint: passed, 1 test, 0.3 s
note: conftest.py is new
the end of the log could not be read and was cut off (12 bytes, kept as logs/x.log.cut-1)
failed after 0.0 s, $0.5000 (retries_exhausted): checks failed
";

#[test]
fn a_whole_run_in_plain_lines() {
    assert_eq!(plain(&whole_run()), WHOLE_RUN);
}

#[test]
fn quiet_keeps_warnings_notes_errors_and_a_failed_end() {
    let text = Fixture::new(true, true, Some(columns::<80>)).written_for(&whole_run());
    let text = printable(&text);
    let kept = [
        "the provider is overloaded (",
        "put back",
        "note:",
        "the end of the log",
        "failed after",
    ];
    assert_eq!(text.lines().count(), kept.len(), "{text}");
    assert!(
        text.lines()
            .zip(kept)
            .all(|(line, begin)| line.starts_with(begin)),
        "{text}"
    );
    let success = [
        started(true),
        ended("SUCCESS", "tests_passed", "all checks passed"),
    ];
    assert_eq!(Fixture::new(true, false, None).written_for(&success), "");
}

#[test]
fn the_ends_of_a_run() {
    let check = |event: Event, expected: &str| assert_eq!(plain(&[event]), format!("{expected}\n"));
    check(
        ended("SUCCESS", "tests_passed", "all passed"),
        "succeeded after 0.0 s, $0.5000: all passed",
    );
    let (workflow_id, reason, message) = (
        "r1".to_owned(),
        "interrupted".to_owned(),
        "by SIGINT".to_owned(),
    );
    let interrupted = Event::WorkflowInterrupted {
        workflow_id: workflow_id.clone(),
        reason,
        message: message.clone(),
    };
    check(
        interrupted,
        "interrupted after 0.0 s (interrupted): by SIGINT",
    );
    let reason = "provider_unavailable".to_owned();
    let paused = Event::WorkflowPaused {
        workflow_id,
        total_cost_usd: None,
        paused_agent_count: 1,
        reason,
        message,
    };
    check(
        paused,
        "paused after 0.0 s (provider_unavailable): by SIGINT",
    );
}

#[test]
fn errors_and_a_resume_have_a_line() {
    assert_eq!(
        plain(&[failed_request(false)]),
        "error: the provider is overloaded\n"
    );
    assert_eq!(
        plain(&[started(true)]),
        "run r1 resumed: specs/a.yaml, anthropic claude-x\n"
    );
}

#[test]
fn long_text_is_cut_and_cannot_pass_for_lines_of_the_console() {
    let text = plain(&[note(&"succeeded\n".repeat(100))]);
    assert_eq!(text.lines().count(), 7);
    assert!(
        text.lines().skip(1).all(|line| line.starts_with("  ")),
        "{text}"
    );
    assert!(text.ends_with("  ... 94 more lines\n"));
    let problem = "p\n".repeat(2);
    assert_eq!(
        plain(&[checked("u\n", Some(&problem), None)]),
        "check u\\n: failed, p, 0.3 s\n  p\n"
    );
    assert!(plain(&[note(&"x".repeat(1_000_000))]).len() < 400);
}

#[test]
fn hostile_names_are_escaped() {
    let written = vec!["\x1b]0;x\x07\n\u{202e}.py".to_owned()];
    let applied = Event::FilesApplied {
        agent_id: main_agent(),
        written,
        deleted: Vec::new(),
        hashes: Default::default(),
        unchanged: false,
    };
    assert_eq!(
        plain(&[applied]),
        "wrote 1 file: \\u{1b}]0;x\\u{7}\\n\\u{202e}.py\n"
    );
    assert_eq!(
        plain(&[phase("\x1b[31m", 1)]),
        "\\u{1b}[31m (attempt 1 of 6)\n"
    );
}

#[test]
fn the_error_of_a_request_is_said_once() {
    let refused = || Event::ModelAnswered {
        agent_id: main_agent(),
        place: place(0),
        hash: String::new(),
        cost_usd: None,
        duration_ms: 1200,
        answer: None,
        error: Some("HTTP 400: too long".into()),
    };
    assert_eq!(
        plain(&[
            refused(),
            ended(
                "FAILED",
                "generation_error",
                "no answer: HTTP 400: too long"
            )
        ]),
        "failed after 0.0 s, $0.5000 (generation_error): no answer: HTTP 400: too long\n"
    );
    let error = "error: HTTP 400: too long (1.2 s)\n";
    assert_eq!(
        plain(&[refused(), requested(1)]),
        format!("{error}asking the model, turn 2\n")
    );
    assert_eq!(plain(&[refused()]), error);
}

#[test]
fn an_error_that_is_the_same_again_is_not_spelled_out() {
    let failed = |message: &str, attempt: u32| {
        let mut event = failed_request(true);
        if let Event::ErrorOccurred {
            error_message,
            retry_count,
            ..
        } = &mut event
        {
            (*error_message, *retry_count) = (message.to_owned(), attempt);
        }
        event
    };
    let text = plain(&[
        failed("refused; next try in 1 s", 1),
        failed("refused; next try in 2 s", 2),
        failed("overloaded; next try in 4 s", 3),
        answered(None),
        failed("overloaded; next try in 1 s", 1),
    ]);
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "refused; next try in 1 s (retry 1 of 4)",
        "the same error again (retry 2 of 4)",
        "overloaded; next try in 4 s (retry 3 of 4)",
        "the model answered (1.2 s)",
        "overloaded; next try in 1 s (retry 1 of 4)",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn what_the_result_leaves_out_is_said_before_it() {
    let before = |message: &str| {
        let event = ended("FAILED", "retries_exhausted", message);
        line_before_result(&event, Duration::ZERO).unwrap().text
    };
    assert_eq!(before("checks fail"), "ended after 0.0 s, $0.5000");
    assert_eq!(
        before("checks fail\nbest: attempt 2"),
        "ended after 0.0 s, $0.5000\n  best: attempt 2"
    );
}

#[test]
fn only_a_terminal_that_wants_colours_gets_them() {
    let failed = || checked("unit", Some("exit code 1"), None);
    let colored = Fixture::new(false, true, Some(columns::<80>)).written_for(&[failed()]);
    assert_eq!(
        colored,
        "\x1b[31mcheck unit: failed, exit code 1, 0.3 s\x1b[0m\n"
    );
    assert!(
        !Fixture::new(false, false, Some(columns::<80>))
            .written_for(&[failed()])
            .contains('\x1b')
    );
}

#[test]
fn write_errors_are_ignored() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }
    let mut bus = Bus::default();
    let sink = Box::new(Full);
    let options = ConsoleOptions {
        quiet: false,
        result_follows: false,
        sees_streams: true,
        github: false,
        color: true,
        terminal: Some(columns::<80>),
        started: Instant::now(),
        sink,
    };
    let console = Console::attach(&mut bus, options);
    whole_run().iter().for_each(|event| bus.emit(event));
    console.finish();
    assert!(bus.take_failures().is_empty());
}

proptest! {
    #[test]
    fn no_text_puts_a_control_character_on_a_plain_console(text in any::<String>(), hostile in "[\\x00-\\x1f\\x7f-\\u{9f}]{0,9}") {
        let text = format!("{hostile}{text}{hostile}");
        let message = Event::ProgressMessage { agent_id: main_agent(), message: text.clone() };
        let events = [
            note(&text), message, checked(&text, Some(&text), None), phase(&text, 1), ended(&text, &text, &text),
            Event::ProtectedRestored { agent_id: main_agent(), restored: vec![text.clone()], removed: vec![text.clone()] },
        ];
        let written = plain(&events);
        prop_assert!(written.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", written);
    }
}
