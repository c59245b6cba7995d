//! unittest: its summary, the names of its tests, its failures.

use super::traceback::Traceback;
use crate::build::checks::failures::CauseGroups;
use crate::build::checks::summary::{
    NamedOutcome, StreamSummary, TestCounts, TestOutcome, count, is_duration,
};

/// The last `Ran 3 tests in 0.1s`, and the verdict after it. Without a verdict the run is not complete; without
/// unittest's ruler before it either, it is a line of another program.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut has_ruler = false;
    let mut lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        if let Some(ran) = tests_run(line) {
            let begun = StreamSummary {
                is_complete: false,
                ..StreamSummary::whole(TestCounts::new(ran, 0, 0))
            };
            let found = lines.peek().map_or(begun, |next| with_verdict(next, begun));
            if found.is_complete || has_ruler {
                last = Some(found);
            }
        }
        has_ruler = line.len() > 4 && line.bytes().all(|byte| byte == b'-');
    }
    last
}

fn tests_run(line: &str) -> Option<u32> {
    let (number, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    let time = rest
        .strip_prefix("tests in ")
        .or_else(|| rest.strip_prefix("test in "))?;
    count(number).filter(|_| is_duration(time))
}

/// `OK (skipped=1)`, `FAILED (failures=1, errors=2, expected failures=1)`.
fn with_verdict(line: &str, found: StreamSummary) -> StreamSummary {
    let word = line.split_once(" (").map_or(line, |(word, _)| word);
    let details = line
        .split_once(" (")
        .and_then(|(_, details)| details.strip_suffix(')'))
        .unwrap_or_default();
    let total = |names: &[&str]| -> u32 {
        let named = details
            .split(", ")
            .filter_map(|detail| detail.split_once('='));
        named
            .filter(|(name, _)| names.contains(name))
            .filter_map(|(_, number)| count(number))
            .fold(0, u32::saturating_add)
    };
    let skipped = total(&["skipped"]);
    let ran = found.counts.unwrap_or_default().executed;
    let failed = total(&["failures", "errors", "unexpected successes"]);
    let is_complete = matches!(word, "OK" | "FAILED" | "NO TESTS RAN");
    StreamSummary {
        is_complete,
        ..StreamSummary::whole(TestCounts::new(
            ran.saturating_sub(skipped),
            failed,
            skipped,
        ))
    }
}

/// `test_x (mod.Class.test_x) ... ok`, and `FAIL: test_x (mod.Class.test_x)`.
pub(super) fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    if let Some(name) = line
        .strip_prefix("FAIL: ")
        .or_else(|| line.strip_prefix("ERROR: "))
    {
        return Some((name, TestOutcome::Failed));
    }
    let (name, result) = line.rsplit_once(" ... ")?;
    match result.trim_end() {
        "ok" | "expected failure" => Some((name, TestOutcome::Passed)),
        "FAIL" | "ERROR" | "unexpected success" => Some((name, TestOutcome::Failed)),
        skipped if skipped.starts_with("skipped ") => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// The blocks of failures and errors.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut block: Option<(String, Traceback)> = None;
    let mut was_double_rule = false;
    for line in text.lines() {
        let is_double_rule = is_line_of(line, '=');
        let heading = line
            .strip_prefix("FAIL: ")
            .or_else(|| line.strip_prefix("ERROR: "));
        if let (true, Some(name)) = (was_double_rule, heading) {
            block = Some((name.to_owned(), Traceback::default()));
        } else if is_double_rule
            || (is_line_of(line, '-') && block.as_ref().is_some_and(|(_, found)| found.has_begun))
        {
            finish_block(block.take(), groups);
        } else if let Some((_, traceback)) = &mut block {
            traceback.take(line);
        }
        was_double_rule = is_double_rule;
    }
    finish_block(block, groups);
}

fn finish_block(block: Option<(String, Traceback)>, groups: &mut CauseGroups) {
    if let Some((name, traceback)) = block {
        groups.add(&name, &traceback.place(), &traceback.message.join("\n"));
    }
}

fn is_line_of(line: &str, character: char) -> bool {
    20 <= line.len() && line.chars().all(|found| found == character)
}
