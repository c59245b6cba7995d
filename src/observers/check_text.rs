//! Renders the end of a check: what failed, and the first cause with its place.

use std::time::Duration;

use super::event_text::{EventText, Tone, count, few_lines, name, names, seconds};
use crate::events::{Event, FailureCause, TestTotals};
use crate::text::terminal::rendered;

/// The exit code of a check that was ended for its time; those above it are signals.
const TIMED_OUT: i32 = 124;

/// The lines of a check that ended, such as `check unit: failed, 2 of 14 tests (test_add, test_neg), 0.8 s`.
pub(super) fn checked(event: &Event) -> Option<EventText> {
    let Event::ScriptOutput {
        tool_name,
        hidden,
        passed,
        problem,
        exit_code,
        execution_time_ms,
        tests,
        ..
    } = event
    else {
        return None;
    };
    let kind = if *hidden { "hidden check" } else { "check" };
    let result = match (*passed, problem, tests) {
        (true, _, None) => "passed".to_owned(),
        (true, _, Some(tests)) => format!("passed, {}", count(tests.executed as usize, "test")),
        // Tests that failed explain an ordinary exit code, but not a timeout or a signal.
        (false, _, Some(tests)) if 0 < tests.failed && *exit_code < TIMED_OUT => failed(tests),
        (false, Some(problem), _) => format!("failed, {}", few_lines(problem)),
        (false, None, _) => format!("failed, exit code {exit_code}"),
    };
    // A check that was ended for its time has it in its result.
    let result = match *exit_code {
        TIMED_OUT if !passed => result,
        _ => {
            let time = seconds(Duration::from_millis(*execution_time_ms));
            with_time(&result, &time)
        }
    };
    let mut text = format!("{kind} {}: {result}", name(tool_name));
    if let Some(cause) = first_cause(event) {
        text += &format!("\n  {cause}");
    }
    let tone = if *passed { Tone::Good } else { Tone::Bad };
    Some(tone.line(text))
}

/// Such as `failed, 2 of 14 tests (test_add, test_neg)`.
fn failed(tests: &TestTotals) -> String {
    let all = count(tests.executed.max(tests.failed) as usize, "test");
    let text = format!("failed, {} of {all}", tests.failed);
    let short: Vec<String> = tests
        .failed_names
        .iter()
        .map(|test| short_name(test))
        .collect();
    match short.as_slice() {
        [] => text,
        failed => format!("{text} ({})", names(failed)),
    }
}

/// The name of a test without its file, module or class.
fn short_name(test: &str) -> String {
    if test.contains(char::is_whitespace) {
        return test.to_owned();
    }
    let last = test.rsplit("::").next().unwrap_or(test);
    let has_parameters = last.contains(['[', '/']);
    let last = match last.rsplit_once('.') {
        Some((_, name)) if !has_parameters && !name.is_empty() => name,
        _ => last,
    };
    last.to_owned()
}

/// Why a check failed, on one line: the first cause that was found in its output, else the last line that it printed.
fn first_cause(event: &Event) -> Option<String> {
    let Event::ScriptOutput {
        passed: false,
        exit_code,
        causes,
        stdout,
        stderr,
        ..
    } = event
    else {
        return None;
    };
    if let Some(cause) = causes.first() {
        return Some(cause_line(cause));
    }
    // What a program prints before it exits with 0 is not why it failed.
    let mut streams = [stderr, stdout].into_iter().filter(|_| *exit_code != 0);
    streams.find_map(|stream| last_line(stream))
}

/// A cause on one line, with its first place.
fn cause_line(cause: &FailureCause) -> String {
    let message = name(cause.message.lines().next().unwrap_or_default());
    match cause.places.first() {
        Some(place) => format!("{message} at {}", name(place)),
        None => message,
    }
}

/// The last line of an output that is not empty, as a terminal shows it.
fn last_line(output: &str) -> Option<String> {
    let shown = rendered(output.as_bytes());
    let mut lines = shown.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).map(name)
}

/// Adds a time at the end of the first line.
fn with_time(text: &str, time: &str) -> String {
    match text.split_once('\n') {
        None => format!("{text}, {time}"),
        Some((first, rest)) => format!("{first}, {time}\n{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_test_is_short() {
        let check = |test, expected| assert_eq!(short_name(test), expected);
        check("tests/test_a.py::TestA::test_add", "test_add");
        check("tests/test_a.py::test_add[1.5-x.y]", "test_add[1.5-x.y]");
        check("test_roman.ToRoman.test_add", "test_add");
        check("parser::tests::reads", "reads");
        check("TestAdd/negative", "TestAdd/negative");
        check("adds 1.5 and 2", "adds 1.5 and 2");
    }

    #[test]
    fn the_last_line_of_an_output_is_found() {
        let check = |output, expected| assert_eq!(last_line(output).as_deref(), expected);
        check("a\nerror: b\n\n  \n", Some("error: b"));
        check(" 10 %\r 20 %\n\x1b[31mred\x1b[0m\n", Some("red"));
        check("\n\t\n", None);
    }
}
