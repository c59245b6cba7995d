//! The summaries of jest, vitest, node's own runner and mocha.

use serde_json::Value;

use super::{StreamSummary, TestCounts, count, is_duration, items};

/// `Tests:       1 failed, 1 skipped, 2 passed, 4 total`.
pub fn jest(text: &str) -> Option<StreamSummary> {
    text.lines()
        .filter_map(jest_line)
        .next_back()
        .map(StreamSummary::whole)
}

fn jest_line(line: &str) -> Option<TestCounts> {
    let line = line.trim_end();
    if line == "No tests found" || line.starts_with("No tests found, exiting with code ") {
        return Some(TestCounts::default());
    }
    let items = items(line.strip_prefix("Tests:")?, ',')?;
    items.last().filter(|(_, word)| *word == "total")?;
    TestCounts::of(
        &items,
        &["passed"],
        &["failed"],
        &["skipped", "todo", "pending"],
        &["total"],
    )
}

/// ` Tests  2 failed | 1 passed | 1 skipped (4)`.
pub fn vitest(text: &str) -> Option<StreamSummary> {
    let found = text
        .lines()
        .filter_map(vitest_line)
        .next_back()
        .map(StreamSummary::whole);
    found.or_else(|| {
        text.lines()
            .any(is_vitest_header)
            .then_some(StreamSummary::BROKEN_OFF)
    })
}

/// ` RUN  v3.2.4 /project`.
fn is_vitest_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let version = |word: &str| {
        word.strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    words.next() == Some("RUN")
        && words.next().is_some_and(version)
        && words.next().is_some_and(|word| word.starts_with('/'))
}

fn vitest_line(line: &str) -> Option<TestCounts> {
    let line = line.trim();
    if line == "Tests  no tests" || line.starts_with("No test files found, exiting with code ") {
        return Some(TestCounts::default());
    }
    let (list, total) = line
        .strip_prefix("Tests ")?
        .trim()
        .strip_suffix(')')?
        .rsplit_once(" (")?;
    count(total)?;
    TestCounts::of(
        &items(list, '|')?,
        &["passed", "expected fail"],
        &["failed"],
        &["skipped", "todo"],
        &[],
    )
}

/// The JSON of jest and vitest, alone on its stream.
pub fn jest_json(text: &str) -> Option<StreamSummary> {
    let report = report(text)?;
    let number = |name: &str| {
        report[name]
            .as_u64()
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    let (passed, failed) = (number("numPassedTests")?, number("numFailedTests")?);
    number("numTotalTests")?;
    let skipped = number("numPendingTests")
        .unwrap_or(0)
        .saturating_add(number("numTodoTests").unwrap_or(0));
    Some(StreamSummary::whole(TestCounts {
        executed: passed.saturating_add(failed),
        passed,
        failed,
        skipped,
    }))
}

/// The JSON of mocha, alone on its stream.
pub fn mocha_json(text: &str) -> Option<StreamSummary> {
    let report = report(text)?;
    let number = |name: &str| {
        report["stats"][name]
            .as_u64()
            .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    let (passed, failed, skipped) = (number("passes")?, number("failures")?, number("pending")?);
    Some(StreamSummary::whole(TestCounts {
        executed: passed.saturating_add(failed),
        passed,
        failed,
        skipped,
    }))
}

/// Returns the object that a stream is, but for lines before it.
pub(super) fn report(text: &str) -> Option<Value> {
    let text = text.trim_end();
    let starts = text
        .starts_with('{')
        .then_some(0)
        .or_else(|| text.find("\n{").map(|place| place + 1))?;
    text.ends_with('}')
        .then(|| serde_json::from_str(&text[starts..]).ok())?
}

/// A block of `# tests 3`, `# pass 2`, ...; the spec reporter writes `ℹ` for `#`. Tape prints the same, with less.
pub fn node(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut block: Option<SummaryBlock> = None;
    let (mut has_inner, mut empty_files) = (false, 0);
    for line in text.lines() {
        let Some((name, number)) = node_line(line) else {
            let is_point = passed_point(line).is_some() || line.starts_with("not ok ");
            empty_files += u32::from(!has_inner && passed_point(line).is_some_and(is_file_name));
            has_inner = if is_point {
                false
            } else {
                has_inner || is_inner_point(line)
            };
            continue;
        };
        match (name, &mut block) {
            ("tests", _) => {
                block = Some(SummaryBlock {
                    tests: number.saturating_sub(empty_files),
                    skipped: 0,
                    failed: 0,
                });
                empty_files = 0;
            }
            ("skipped", Some(block)) => block.skipped = number,
            ("fail" | "cancelled", Some(block)) => {
                block.failed = block.failed.saturating_add(number)
            }
            _ => {}
        }
        // The word alone could be a comment; with what passed beside it, it is a summary.
        if let (Some(block), true) = (
            &block,
            matches!(name, "pass" | "fail" | "cancelled" | "skipped"),
        ) {
            let executed = block.tests.saturating_sub(block.skipped);
            last = Some(StreamSummary::whole(TestCounts::new(
                executed,
                block.failed,
                block.skipped,
            )));
        }
    }
    last
}

struct SummaryBlock {
    tests: u32,
    skipped: u32,
    failed: u32,
}

fn node_line(line: &str) -> Option<(&str, u32)> {
    let rest = line
        .strip_prefix("# ")
        .or_else(|| line.strip_prefix("ℹ "))?;
    let (name, number) = rest.trim_end().split_once(' ')?;
    Some((name, count(number.trim_start())?))
}

/// The name in `ok 1 - adds` or `✔ adds (0.4ms)` at the outermost level.
fn passed_point(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("✔ ") {
        return Some(rest.rsplit_once(" (").map_or(rest, |(name, _)| name));
    }
    line.strip_prefix("ok ")?
        .split_once(" - ")
        .map(|(_, name)| name.trim_end())
}

fn is_inner_point(line: &str) -> bool {
    let trimmed = line.trim_start();
    trimmed.len() < line.len() && (trimmed.starts_with("ok ") || trimmed.starts_with("not ok "))
}

/// Whether node names a file and not a test: one in which it found none counts as a test that passed.
pub(super) fn is_file_name(name: &str) -> bool {
    let endings = [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"];
    !name.contains(' ') && endings.iter().any(|ending| name.ends_with(ending))
}

/// `3 passing (4ms)`, and after it `1 pending`, `1 failing`; what is pending was not executed.
pub fn mocha(text: &str) -> Option<StreamSummary> {
    let mut last: Option<TestCounts> = None;
    for line in text.lines() {
        match (mocha_line(line), &mut last) {
            (Some(("passing", number)), _) => last = Some(TestCounts::new(number, 0, 0)),
            (Some(("pending", number)), Some(counts)) => counts.skipped = number,
            (Some((_, number)), Some(counts)) => {
                counts.executed = counts.executed.saturating_add(number);
                counts.failed = number;
            }
            _ => {}
        }
    }
    last.map(StreamSummary::whole)
}

fn mocha_line(line: &str) -> Option<(&str, u32)> {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let is_time = |text: &str| {
        text.strip_prefix('(')
            .and_then(|text| text.strip_suffix(')'))
            .is_some_and(is_duration)
    };
    match words.as_slice() {
        [number, "passing"] => Some(("passing", count(number)?)),
        [number, "passing", time] if is_time(time) => Some(("passing", count(number)?)),
        [number, "pending"] => Some(("pending", count(number)?)),
        [number, "failing"] => Some(("failing", count(number)?)),
        _ => None,
    }
}
