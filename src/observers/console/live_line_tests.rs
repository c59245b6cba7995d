//! The live line of a build: events in, what a terminal shows out.

use std::time::Duration;

use super::TerminalSize;
use super::tests::{
    Fixture, Shown, answered, columns, failed_request, main_agent, phase, place, requested, started,
};
use crate::events::{BudgetLimits, Event};

#[test]
fn a_terminal_gets_a_live_line_under_the_lines_and_none_at_the_end() {
    let Fixture {
        mut bus,
        console,
        written,
    } = Fixture::new(false, false, Some(columns::<80>));
    let mut shown = Shown::default();
    bus.emit(&started(false));
    bus.emit(&phase("TESTING", 2));
    let mut lines =
        "run r1 started: specs/a.yaml, anthropic claude-x\ntesting (attempt 2 of 6)\n".to_owned();
    assert_eq!(
        shown.after(&written),
        format!("{lines}testing (attempt 2 of 6), 0 s")
    );
    bus.emit(&answered(Some(0.25)));
    lines += "the model answered (1.2 s, $0.2500)\n";
    let live = "testing (attempt 2 of 6), 0 s, $0.2500";
    assert_eq!(shown.after(&written), format!("{lines}{live}"));
    bus.emit(&Event::ToolInvocation {
        timeout_s: Some(600.0),
        agent_id: main_agent(),
        tool_name: "unit".into(),
        detail: String::new(),
    });
    let live = "testing (attempt 2 of 6), 0 s of 10 min, $0.2500, check unit";
    assert_eq!(shown.after(&written), format!("{lines}{live}"));
    console.finish();
    assert_eq!(shown.after(&written), lines);
    bus.emit(&phase("PATCHING", 2));
    assert_eq!(shown.after(&written), lines + "patching (attempt 2 of 6)\n");
}

#[test]
fn the_live_line_is_redrawn_without_events() {
    let Fixture {
        mut bus,
        console,
        written,
    } = Fixture::new(false, false, Some(columns::<80>));
    bus.emit(&phase("TESTING", 1));
    written.recv().unwrap();
    let anew = written.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(
        anew.starts_with("\r\x1b[Ktesting (attempt 1 of 6), "),
        "{anew:?}"
    );
    console.finish();
}

#[test]
fn the_live_line_never_wraps() {
    let check = |width: fn() -> TerminalSize, name: &str, expected: &str| {
        let Fixture {
            mut bus,
            console: _console,
            written,
        } = Fixture::new(false, false, Some(width));
        bus.emit(&phase(name, 1));
        let mut shown = Shown::default();
        assert_eq!(shown.after(&written).split_once('\n').unwrap().1, expected);
    };
    check(columns::<40>, "TESTING", "testing (attempt 1 of 6), 0 s");
    check(columns::<27>, "TESTING", "testing 1/6, 0 s");
    check(columns::<13>, "TESTING", "testing 1/");
    check(columns::<3>, "TESTING", "");
    check(columns::<0>, "TESTING", "");
    check(columns::<9>, "漢字漢字", "漢字漢");
}

#[test]
fn a_narrow_terminal_shows_what_goes_on_rather_than_the_rest() {
    let check = |width: fn() -> TerminalSize, expected: &str| {
        let Fixture {
            mut bus,
            console: _console,
            written,
        } = Fixture::new(false, false, Some(width));
        let mut begin = started(false);
        if let Event::WorkflowStarted { budget, .. } = &mut begin {
            let usd = Some(1.0);
            *budget = Some(BudgetLimits { usd, tokens: None });
        }
        let called = Event::ToolCalled {
            agent_id: main_agent(),
            place: place(1),
            call: 0,
            tool_name: "bash".into(),
            arguments: serde_json::json!({"command": "grep -rn a_name_that_is_looked_for src tests\nls"}),
        };
        for event in [begin, phase("GENERATING", 1), answered(Some(0.25)), called] {
            bus.emit(&event);
        }
        let mut shown = Shown::default();
        let last = shown.after(&written).lines().last();
        assert_eq!(last, Some(expected));
    };
    let command = "bash: grep -rn a_name_that_is_looked_for src tests ...";
    check(
        columns::<120>,
        &format!("generating (attempt 1 of 6), 0 s, $0.2500 of $1.00, turn 2, {command}"),
    );
    check(
        columns::<95>,
        "generating 1/6, 0 s, $0.2500 of $1.00, turn 2, bash: grep -rn a_name_that_is_looked_for s...",
    );
    check(
        columns::<80>,
        "generating 1/6, 0 s, turn 2, bash: grep -rn a_name_that_is_looked_for src...",
    );
    check(columns::<40>, "generating 1/6, 0 s, bash: grep -r...");
}

#[test]
fn between_two_tries_the_live_line_says_so() {
    let Fixture {
        mut bus,
        console: _console,
        written,
    } = Fixture::new(false, false, Some(columns::<80>));
    let again = Event::ModelRetried {
        agent_id: main_agent(),
        place: place(0),
        attempt: 2,
    };
    let mut shown = Shown::default();
    let mut live = |event: Event| {
        bus.emit(&event);
        let lines = shown.after(&written).lines();
        lines.last().unwrap_or_default().to_owned()
    };
    let mut failed = failed_request(true);
    if let Event::ErrorOccurred { error_type, .. } = &mut failed {
        *error_type = "model".into();
    }
    live(phase("GENERATING", 1));
    let begin = "generating (attempt 1 of 6), ";
    let waiting = format!("{begin}waiting for the first token, 0 s");
    assert_eq!(live(requested(0)), waiting);
    let between = format!("{begin}0 s, waiting to ask the model again");
    assert_eq!(live(failed), between);
    assert_eq!(live(again), waiting);
}
