//! jest, vitest and mocha: their summaries, as text and as JSON, the names of their tests, failures of jest and vitest.

use serde_json::Value;

use super::generic::is_of_a_library;
use crate::build::checks::failures::{CauseGroups, push_line};
use crate::build::checks::summary::{
    NamedOutcome, StreamSummary, TestCounts, TestNames, TestOutcome, count, is_duration, items,
};

/// `Tests:       1 failed, 1 skipped, 2 passed, 4 total`.
pub(super) fn jest_summary(text: &str) -> Option<StreamSummary> {
    text.lines()
        .filter_map(jest_counts)
        .next_back()
        .map(StreamSummary::whole)
}

fn jest_counts(line: &str) -> Option<TestCounts> {
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
pub(super) fn vitest_summary(text: &str) -> Option<StreamSummary> {
    let found = text
        .lines()
        .filter_map(vitest_counts)
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

fn vitest_counts(line: &str) -> Option<TestCounts> {
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
pub(super) fn jest_json_summary(text: &str) -> Option<StreamSummary> {
    let report = report(text)?;
    number(&report["numTotalTests"])?;
    let pending = number(&report["numPendingTests"]).unwrap_or(0);
    let todo = number(&report["numTodoTests"]).unwrap_or(0);
    Some(json_counts(
        number(&report["numPassedTests"])?,
        number(&report["numFailedTests"])?,
        pending.saturating_add(todo),
    ))
}

/// The JSON of mocha, alone on its stream.
pub(super) fn mocha_json_summary(text: &str) -> Option<StreamSummary> {
    let report = report(text)?;
    let stats = &report["stats"];
    Some(json_counts(
        number(&stats["passes"])?,
        number(&stats["failures"])?,
        number(&stats["pending"])?,
    ))
}

fn number(value: &Value) -> Option<u32> {
    value
        .as_u64()
        .map(|number| u32::try_from(number).unwrap_or(u32::MAX))
}

fn json_counts(passed: u32, failed: u32, skipped: u32) -> StreamSummary {
    StreamSummary::whole(TestCounts {
        executed: passed.saturating_add(failed),
        passed,
        failed,
        skipped,
    })
}

/// The JSON object that a stream ends with and that begins at a line start.
fn report(text: &str) -> Option<Value> {
    let text = text.trim_end();
    let starts = text
        .starts_with('{')
        .then_some(0)
        .or_else(|| text.find("\n{").map(|place| place + 1))?;
    text.ends_with('}')
        .then(|| serde_json::from_str(&text[starts..]).ok())?
}

/// `3 passing (4ms)`, and after it `1 pending`, `1 failing`; pending tests were not executed.
pub(super) fn mocha_summary(text: &str) -> Option<StreamSummary> {
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

/// The tests that lines or a JSON report name.
pub(super) fn names(text: &str, names: &mut TestNames) {
    names.add_lines(text, test_name);
    if let Some(report) = report(text) {
        add_jest_json(&report, names);
        add_mocha_json(&report, names);
    }
}

/// The headings of failures in jest, and the marks of verbose output, which vitest prints for files, too.
fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    const MARKS: [(&str, TestOutcome); 6] = [
        ("✓ ", TestOutcome::Passed),
        ("✔ ", TestOutcome::Passed),
        ("✕ ", TestOutcome::Failed),
        ("× ", TestOutcome::Failed),
        ("○ ", TestOutcome::Skipped),
        ("↓ ", TestOutcome::Skipped),
    ];
    if let Some(name) = line.strip_prefix("  ● ") {
        return Some((name, TestOutcome::Failed));
    }
    let words = line.trim_start();
    let (rest, outcome) = MARKS
        .iter()
        .find_map(|(mark, outcome)| Some((words.strip_prefix(mark)?, *outcome)))?;
    let name = match rest.rsplit_once(" (") {
        Some((name, time)) if time.ends_with("ms)") => name,
        _ => match rest.rsplit_once(' ') {
            Some((name, time)) if is_duration(time) => name,
            _ => rest,
        },
    };
    if is_vitest_file(name) {
        return None;
    }
    let name = match outcome {
        TestOutcome::Skipped => name.strip_prefix("skipped ").unwrap_or(name),
        TestOutcome::Passed | TestOutcome::Failed => name,
    };
    Some((name, outcome))
}

/// `a.test.js (2 tests | 1 failed)`.
fn is_vitest_file(name: &str) -> bool {
    let Some((_, counts)) = name.rsplit_once(" (") else {
        return false;
    };
    let first = counts.trim_end_matches(')').split(" | ").next();
    first.is_some_and(|tests| tests.ends_with(" tests") || tests.ends_with(" test"))
}

fn add_jest_json(report: &Value, names: &mut TestNames) {
    let files = report["testResults"].as_array().into_iter().flatten();
    for test in files.flat_map(|file| file["assertionResults"].as_array().into_iter().flatten()) {
        let outcome = match test["status"].as_str() {
            Some("passed") => TestOutcome::Passed,
            Some("failed") => TestOutcome::Failed,
            _ => TestOutcome::Skipped,
        };
        names.add(test["fullName"].as_str().unwrap_or_default(), outcome);
    }
}

fn add_mocha_json(report: &Value, names: &mut TestNames) {
    for (list, outcome) in [
        ("passes", TestOutcome::Passed),
        ("failures", TestOutcome::Failed),
        ("pending", TestOutcome::Skipped),
    ] {
        for test in report[list].as_array().into_iter().flatten() {
            names.add(test["fullTitle"].as_str().unwrap_or_default(), outcome);
        }
    }
}

/// Failures of jest and vitest: a heading with the test, the message, the place.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut block: Option<FailureBlock> = None;
    let mut file = "";
    for line in text.lines() {
        file = line.strip_prefix("FAIL ").unwrap_or(file);
        if let Some(name) = jest_heading(line).or_else(|| vitest_heading(line)) {
            // Jest prints the file above the failure of a whole file.
            let name = if name == "Test suite failed to run" {
                file
            } else {
                name
            };
            finish(
                block.replace(FailureBlock {
                    name,
                    message: Vec::new(),
                    place: String::new(),
                    is_in_source: false,
                }),
                groups,
            );
        } else if is_end(line) {
            finish(block.take(), groups);
        } else if let Some(open) = &mut block
            && open.take(line)
        {
            finish(block.take(), groups);
        }
    }
    finish(block, groups);
}

fn finish(block: Option<FailureBlock>, groups: &mut CauseGroups) {
    if let Some(block) = block {
        groups.add(block.name, &block.place, &block.message.join("\n"));
    }
}

/// `  ● suite › adds`.
fn jest_heading(line: &str) -> Option<&str> {
    line.strip_prefix("  ● ")
        .filter(|name| !name.starts_with("Console") && !name.ends_with("Deprecation Warning:"))
}

/// ` FAIL  a.test.js > suite > adds`; jest writes `FAIL a.test.js`, which names no test.
fn vitest_heading(line: &str) -> Option<&str> {
    line.strip_prefix(" FAIL  ")
}

fn is_end(line: &str) -> bool {
    [
        "FAIL ",
        "PASS ",
        "Test Suites: ",
        "Tests: ",
        "Snapshot Summary",
    ]
    .iter()
    .any(|start| line.starts_with(start))
        || line.starts_with("⎯⎯⎯")
}

struct FailureBlock<'a> {
    name: &'a str,
    message: Vec<String>,
    place: String,
    is_in_source: bool,
}

impl FailureBlock<'_> {
    /// Takes a line; returns whether it was the last of interest.
    fn take(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        if let Some(place) = trimmed.strip_prefix("❯ ").or_else(|| thrown_at(trimmed)) {
            if self.place.is_empty() || !is_of_a_library(place) {
                place.clone_into(&mut self.place);
            }
            return !is_of_a_library(place);
        }
        if !self.place.is_empty() {
            return true;
        }
        self.is_in_source |= is_source(trimmed);
        if !self.is_in_source && (!trimmed.is_empty() || !self.message.is_empty()) {
            push_line(&mut self.message, line.strip_prefix("    ").unwrap_or(line));
        }
        false
    }
}

/// `at Object.toBe (a.test.js:2:32)`.
fn thrown_at(line: &str) -> Option<&str> {
    let frame = line.strip_prefix("at ")?;
    Some(
        frame
            .rsplit_once('(')
            .and_then(|(_, place)| place.strip_suffix(')'))
            .unwrap_or(frame),
    )
}

/// `> 2 | code`, `  3 | code`.
fn is_source(line: &str) -> bool {
    let line = line.strip_prefix("> ").unwrap_or(line);
    line.split_once(" |").is_some_and(|(number, _)| {
        !number.trim().is_empty() && number.trim().bytes().all(|byte| byte.is_ascii_digit())
    })
}
