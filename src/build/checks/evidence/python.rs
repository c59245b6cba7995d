//! The summaries of pytest and unittest.

use super::{StreamSummary, TestCounts, count, is_duration, items};

/// The last session counts. One that began and never summed up, or was left in the middle, has not come to its end.
pub fn pytest(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut is_left = false;
    for line in text.lines() {
        let words = line.trim_matches('=').trim();
        if words == "test session starts" && line.starts_with('=') {
            last = Some(StreamSummary::BROKEN_OFF);
            is_left = false;
        } else if line.starts_with("!!!") && line.contains("_pytest.outcomes.Exit: ") {
            is_left = true;
        } else if let Some(counts) = pytest_line(words) {
            last = Some(StreamSummary {
                is_complete: !is_left,
                ..StreamSummary::whole(counts)
            });
        }
    }
    last
}

fn pytest_line(words: &str) -> Option<TestCounts> {
    let (list, time) = words.rsplit_once(" in ")?;
    let (seconds, clock) = time.split_once(' ').unwrap_or((time, "()"));
    if !is_duration(seconds) || !clock.starts_with('(') || !clock.ends_with(')') {
        return None;
    }
    if list == "no tests ran" || list.starts_with("no tests collected") || is_collection(list) {
        return Some(TestCounts::default());
    }
    let items = items(list, ',')?;
    let mut counts = TestCounts::of(
        &items,
        &["passed", "xfailed", "xpassed"],
        &["failed"],
        &["skipped"],
        &PYTEST_BESIDE,
    )?;
    counts.failed = counts.failed.saturating_add(errors(list));
    Some(counts)
}

const PYTEST_BESIDE: [&str; 10] = [
    "deselected",
    "warning",
    "warnings",
    "error",
    "errors",
    "rerun",
    "subtests passed",
    "subtests failed",
    "subtests skipped",
    "subtests xfailed",
];

/// `7 tests collected`, `1/7 tests collected (6 deselected)`, `1 test collected, 1 error`.
fn is_collection(list: &str) -> bool {
    let Some((number, rest)) = list.split_once(' ') else {
        return false;
    };
    number.split('/').all(|part| count(part).is_some())
        && (rest.starts_with("tests collected") || rest.starts_with("test collected"))
}

/// An error in a fixture or while collecting is a failure in which no test was executed.
fn errors(list: &str) -> u32 {
    let items = items(list, ',').unwrap_or_default();
    items
        .iter()
        .filter(|(_, word)| matches!(*word, "error" | "errors"))
        .fold(0, |sum, (number, _)| sum.saturating_add(*number))
}

/// The last `Ran 3 tests in 0.1s`, less what the verdict after it says was skipped. Without a verdict it is not the end of
/// a run; where unittest's ruler does not stand before it either, it is a line of some other program.
pub fn unittest(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut has_ruler = false;
    let mut lines = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .peekable();
    while let Some(line) = lines.next() {
        if let Some(ran) = unittest_ran(line) {
            let begun = StreamSummary {
                is_complete: false,
                ..StreamSummary::whole(TestCounts::new(ran, 0, 0))
            };
            let found = lines.peek().map_or(begun, |next| verdict(next, begun));
            if found.is_complete || has_ruler {
                last = Some(found);
            }
        }
        has_ruler = line.len() > 4 && line.bytes().all(|byte| byte == b'-');
    }
    last
}

fn unittest_ran(line: &str) -> Option<u32> {
    let (number, rest) = line.strip_prefix("Ran ")?.split_once(' ')?;
    let time = rest
        .strip_prefix("tests in ")
        .or_else(|| rest.strip_prefix("test in "))?;
    count(number).filter(|_| is_duration(time))
}

/// `OK (skipped=1)`, `FAILED (failures=1, errors=2, expected failures=1)`.
fn verdict(line: &str, found: StreamSummary) -> StreamSummary {
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
