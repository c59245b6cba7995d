//! ctest: its summary and the names of its tests.

use crate::build::checks::summary::{NamedOutcome, StreamSummary, TestCounts, TestOutcome, count};

/// `50% tests passed, 1 tests failed out of 2`.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut found = None;
    let mut skipped = 0;
    for line in text.lines() {
        if line.starts_with("Test project /") {
            found = Some(StreamSummary::BROKEN_OFF);
            skipped = 0;
        } else if line.trim() == "No tests were found!!!" {
            found = Some(StreamSummary::whole(TestCounts::default()));
        } else if let Some((failed, of)) = failed_of(line) {
            let executed = of.saturating_sub(skipped);
            found = Some(StreamSummary::whole(TestCounts::new(
                executed, failed, skipped,
            )));
        } else if line.contains(" Test ") && line.contains("***Skipped ") {
            skipped += 1;
        }
    }
    found
}

fn failed_of(line: &str) -> Option<(u32, u32)> {
    let (share, rest) = line.split_once("% tests passed, ")?;
    let (failed, of) = rest.trim_end().split_once(" tests failed out of ")?;
    count(share)?;
    Some((count(failed)?, count(of)?))
}

/// `1/2 Test #1: adds .......   Passed    0.00 sec`.
pub(super) fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    let (_, rest) = line
        .split_once(" Test ")
        .and_then(|(_, rest)| rest.split_once(": "))?;
    let (name, result) = rest.split_once(" ..").or_else(|| rest.split_once("  "))?;
    let result = result.trim_start_matches(['.', ' ']);
    let outcome = if result.starts_with("***Skipped") {
        TestOutcome::Skipped
    } else if result.starts_with("***") {
        TestOutcome::Failed
    } else if result.starts_with("Passed") {
        TestOutcome::Passed
    } else {
        return None;
    };
    Some((name, outcome))
}
