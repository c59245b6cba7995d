//! Output for GitHub Actions: a group per phase and an annotation per failed test.
//!
//! The runner reads commands (`::name::`, `##[name]`) from every line of output, so foreign text must not contain one.

use crate::events::{Event, FailureCause};
use crate::observers::event_text::{name, phase};

/// How many annotations a check has; the service shows ten per step and drops the others.
const MAX_ANNOTATIONS: usize = 10;

/// The command that opens the group of a phase, if the event begins one.
pub(super) fn group(event: &Event) -> Option<String> {
    let Event::StateStarted {
        state_name,
        attempt: Some(attempt),
        of: Some(of),
        ..
    } = event
    else {
        return None;
    };
    let title = phase(state_name, *attempt, *of);
    Some(format!("::group::{}", escaped_data(&title)))
}

/// Whether an event ends the last group.
pub(super) fn ends_group(event: &Event) -> bool {
    matches!(
        event,
        Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. }
    )
}

/// An annotation for each place of a failed check, one per line.
pub(super) fn annotations(event: &Event) -> String {
    let Event::ScriptOutput {
        passed: false,
        causes,
        ..
    } = event
    else {
        return String::new();
    };
    let commands = causes.iter().flat_map(annotations_of);
    commands.take(MAX_ANNOTATIONS).collect()
}

fn annotations_of(cause: &FailureCause) -> impl Iterator<Item = String> {
    let places = cause.places.iter().enumerate();
    places.filter_map(|(index, place)| {
        let (file, line) = file_and_line(place)?;
        let test = match cause.tests.len() == cause.places.len() {
            true => cause.tests.get(index),
            false => cause.tests.first(),
        };
        let title = test.map(|test| format!(",title={}", escaped_property(&name(test))));
        Some(format!(
            "::error file={},line={line}{}::{}\n",
            escaped_property(file),
            title.unwrap_or_default(),
            escaped_data(&name(&cause.message))
        ))
    })
}

/// Splits `path:line` or `path:line:column`.
fn file_and_line(place: &str) -> Option<(&str, u32)> {
    let (before, last) = place.rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    match before.rsplit_once(':') {
        Some((file, line)) => match line.parse() {
            Ok(line) => Some((file, line)),
            Err(_) => Some((before, last)),
        },
        None => Some((before, last)),
    }
}

/// The text of a command.
fn escaped_data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// The value of a command's property.
fn escaped_property(text: &str) -> String {
    escaped_data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Lines that the runner does not take for commands.
pub(super) fn without_commands(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let line = line.replace("##[", "## [");
        match line.trim_start().starts_with("::") {
            true => format!("| {line}"),
            false => line,
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_annotations_and_values_are_escaped() {
        let cause = FailureCause {
            message: "100 % wrong\n::error::x".into(),
            tests: vec!["a,b: c".into(), "d".into()],
            places: vec!["tests/t.py:12".into(), "src/x.rs:3:5".into(), "odd".into()],
        };
        let lines: Vec<String> = annotations_of(&cause).collect();
        assert_eq!(
            lines,
            [
                "::error file=tests/t.py,line=12,title=a%2Cb%3A c::100 %25 wrong\\n::error::x\n",
                "::error file=src/x.rs,line=3,title=a%2Cb%3A c::100 %25 wrong\\n::error::x\n",
            ]
        );
    }

    #[test]
    fn foreign_lines_are_not_commands() {
        let check = |text, expected| assert_eq!(without_commands(text), expected);
        check(
            "::error::x\n  ::set-env::y",
            "| ::error::x\n|   ::set-env::y",
        );
        check("a ##[group]b", "a ## [group]b");
        check("a::b\n", "a::b\n");
    }
}
