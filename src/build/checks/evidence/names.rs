//! The names of tests in a runner's output, by what became of them: what it prints one line each for.
//!
//! They tell a test that was executed before and is skipped now, and what failed. A runner that names no test in its
//! output leaves them empty; then the counts alone are compared.

use std::collections::BTreeSet;

use super::super::xml::{XmlPiece, attribute, junit_document, pieces};
use super::go::{events, test_line};
use super::javascript::{is_file_name, report};
use super::runner::Runner;
use crate::text::shorten::first_bytes;

/// How many names of each kind are kept, and how long one may be.
const MAX_NAMES: usize = 20_000;
const MAX_LENGTH: usize = 300;

/// Names of tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestNames {
    pub executed: BTreeSet<String>,
    pub failed: BTreeSet<String>,
    pub skipped: BTreeSet<String>,
}

/// What became of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

impl TestNames {
    /// Adds a test.
    pub fn add(&mut self, name: &str, outcome: TestOutcome) {
        let name = first_bytes(name.trim(), MAX_LENGTH);
        let put = |names: &mut BTreeSet<String>| {
            if !name.is_empty() && names.len() < MAX_NAMES {
                names.insert(name.to_owned());
            }
        };
        match outcome {
            TestOutcome::Passed => put(&mut self.executed),
            TestOutcome::Skipped => put(&mut self.skipped),
            TestOutcome::Failed => {
                put(&mut self.executed);
                put(&mut self.failed);
            }
        }
    }
}

/// Returns the names in the output of a runner.
pub(super) fn read(runner: Runner, stdout: &str, stderr: &str) -> TestNames {
    let mut names = TestNames::default();
    for text in [stdout, stderr] {
        match runner {
            Runner::Pytest => lines(text, pytest, &mut names),
            Runner::Unittest => lines(text, unittest, &mut names),
            Runner::Cargo => lines(text, cargo, &mut names),
            Runner::Nextest => lines(text, nextest, &mut names),
            Runner::Go => go(text, &mut names),
            Runner::Jest | Runner::Vitest | Runner::Mocha => javascript(text, &mut names),
            Runner::Node | Runner::Tap => node(text, &mut names),
            Runner::Ctest => lines(text, ctest, &mut names),
            Runner::Junit => junit(text, &mut names),
        }
    }
    names
}

type NamedOutcome<'a> = Option<(&'a str, TestOutcome)>;

fn lines(text: &str, read: fn(&str) -> NamedOutcome<'_>, names: &mut TestNames) {
    text.lines()
        .filter_map(read)
        .for_each(|(name, outcome)| names.add(name, outcome));
}

/// `tests/test_a.py::test_x PASSED [ 50%]`, and `FAILED tests/test_a.py::test_x - assert ...` at the end.
fn pytest(line: &str) -> NamedOutcome<'_> {
    const WORDS: [(&str, TestOutcome); 6] = [
        ("PASSED", TestOutcome::Passed),
        ("XPASS", TestOutcome::Passed),
        ("XFAIL", TestOutcome::Passed),
        ("FAILED", TestOutcome::Failed),
        ("ERROR", TestOutcome::Failed),
        ("SKIPPED", TestOutcome::Skipped),
    ];
    for (word, outcome) in WORDS {
        if let Some(name) = line
            .strip_prefix(word)
            .and_then(|rest| rest.strip_prefix(' '))
        {
            let name = name.split_once(" - ").map_or(name, |(name, _)| name);
            return name.contains("::").then_some((name, outcome));
        }
        if let Some((name, rest)) = line
            .split_once(word)
            .filter(|(name, _)| name.contains("::") && name.ends_with(' '))
        {
            let is_end =
                rest.trim().is_empty() || rest.trim().ends_with("%]") || rest.starts_with(" (");
            return is_end.then_some((name, outcome));
        }
    }
    None
}

/// `test_x (mod.Class.test_x) ... ok`, and `FAIL: test_x (mod.Class.test_x)`.
fn unittest(line: &str) -> NamedOutcome<'_> {
    if let Some(name) = line
        .strip_prefix("FAIL: ")
        .or_else(|| line.strip_prefix("ERROR: "))
    {
        return Some((name, TestOutcome::Failed));
    }
    let (name, verdict) = line.rsplit_once(" ... ")?;
    match verdict.trim_end() {
        "ok" | "expected failure" => Some((name, TestOutcome::Passed)),
        "FAIL" | "ERROR" | "unexpected success" => Some((name, TestOutcome::Failed)),
        skipped if skipped.starts_with("skipped ") => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// `test name ... ok`, `test name - should panic ... ok`, `test name ... ignored, why`.
fn cargo(line: &str) -> NamedOutcome<'_> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match verdict.split([' ', ',']).next()? {
        "ok" | "bench:" => Some((name, TestOutcome::Passed)),
        "FAILED" => Some((name, TestOutcome::Failed)),
        "ignored" => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// `        PASS [   0.005s] (1/2) calc::it adds`.
fn nextest(line: &str) -> NamedOutcome<'_> {
    let (word, rest) = line.trim_start().split_once(' ')?;
    let (_, name) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    let name = name
        .trim_start()
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
        .map_or(name, |(_, name)| name);
    match word {
        "PASS" | "LEAK" => Some((name, TestOutcome::Passed)),
        "FAIL" | "ABORT" | "TIMEOUT" => Some((name, TestOutcome::Failed)),
        "SKIP" => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// `1/2 Test #1: adds .......   Passed    0.00 sec`.
fn ctest(line: &str) -> NamedOutcome<'_> {
    let (_, rest) = line
        .split_once(" Test ")
        .and_then(|(_, rest)| rest.split_once(": "))?;
    let (name, verdict) = rest.split_once(" ..").or_else(|| rest.split_once("  "))?;
    let verdict = verdict.trim_start_matches(['.', ' ']);
    if verdict.starts_with("***Skipped") {
        return Some((name, TestOutcome::Skipped));
    }
    let is_failed = verdict.starts_with("***");
    (is_failed || verdict.starts_with("Passed")).then_some((
        name,
        if is_failed {
            TestOutcome::Failed
        } else {
            TestOutcome::Passed
        },
    ))
}

fn go(text: &str, names: &mut TestNames) {
    let outcome = |word: &str| match word {
        "PASS" | "pass" => Some(TestOutcome::Passed),
        "FAIL" | "fail" => Some(TestOutcome::Failed),
        "SKIP" | "skip" => Some(TestOutcome::Skipped),
        _ => None,
    };
    for line in text.lines() {
        let test = line.trim_start().strip_prefix("--- ").and_then(test_line);
        if let Some((name, outcome)) = test.and_then(|(word, name)| Some((name, outcome(word)?))) {
            names.add(name, outcome);
        }
    }
    for event in events(text) {
        if let Some((name, outcome)) = event.test.zip(outcome(&event.action)) {
            names.add(&name, outcome);
        }
    }
}

/// TAP points at every level, and the marks of node's spec reporter. A failed test that only holds a failed one counts
/// as failed too.
fn node(text: &str, names: &mut TestNames) {
    for line in text.lines().map(str::trim_start) {
        let point = line
            .strip_prefix("not ok ")
            .map(|rest| (rest, TestOutcome::Failed));
        let point = point.or_else(|| {
            line.strip_prefix("ok ")
                .map(|rest| (rest, TestOutcome::Passed))
        });
        let mark = [
            ("✔ ", TestOutcome::Passed),
            ("✖ ", TestOutcome::Failed),
            ("﹣ ", TestOutcome::Skipped),
        ];
        let mark = mark
            .iter()
            .find_map(|(mark, outcome)| Some((line.strip_prefix(mark)?, *outcome)));
        let (name, outcome) = match (point, mark) {
            (Some((rest, outcome)), _) => {
                let Some((_, name)) = rest.split_once(" - ") else {
                    continue;
                };
                (name, outcome)
            }
            (None, Some((rest, outcome))) => {
                let Some((name, time)) = rest.rsplit_once(" (") else {
                    continue;
                };
                (
                    name,
                    if time.contains(") # SKIP") {
                        TestOutcome::Skipped
                    } else {
                        outcome
                    },
                )
            }
            (None, None) => continue,
        };
        let (name, directive) = name.split_once(" # ").unwrap_or((name, ""));
        let directive = directive.to_ascii_uppercase();
        match outcome {
            _ if is_file_name(name) => {}
            _ if directive.starts_with("SKIP") => names.add(name, TestOutcome::Skipped),
            TestOutcome::Failed if directive.starts_with("TODO") => {
                names.add(name, TestOutcome::Passed)
            }
            outcome => names.add(name, outcome),
        }
    }
}

/// The headings of failures in jest, the marks of verbose output, and the lists of JSON reports.
fn javascript(text: &str, names: &mut TestNames) {
    let marks = [
        ("✓ ", TestOutcome::Passed),
        ("✔ ", TestOutcome::Passed),
        ("✕ ", TestOutcome::Failed),
        ("○ ", TestOutcome::Skipped),
        ("↓ ", TestOutcome::Skipped),
    ];
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("  ● ") {
            names.add(name, TestOutcome::Failed);
            continue;
        }
        let words = line.trim_start();
        if let Some((rest, outcome)) = marks
            .iter()
            .find_map(|(mark, outcome)| Some((words.strip_prefix(mark)?, *outcome)))
        {
            let name = rest
                .rsplit_once(" (")
                .filter(|(_, time)| time.ends_with("ms)"))
                .map_or(rest, |(name, _)| name);
            names.add(
                name.strip_prefix("skipped ")
                    .filter(|_| outcome == TestOutcome::Skipped)
                    .unwrap_or(name),
                outcome,
            );
        }
    }
    let Some(report) = report(text) else { return };
    let files = report["testResults"].as_array().into_iter().flatten();
    for test in files.flat_map(|file| file["assertionResults"].as_array().into_iter().flatten()) {
        let outcome = match test["status"].as_str() {
            Some("passed") => TestOutcome::Passed,
            Some("failed") => TestOutcome::Failed,
            _ => TestOutcome::Skipped,
        };
        names.add(test["fullName"].as_str().unwrap_or_default(), outcome);
    }
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

fn junit(text: &str, names: &mut TestNames) {
    let Some(document) = junit_document(text) else {
        return;
    };
    let mut last: Option<(String, TestOutcome)> = None;
    for piece in pieces(document) {
        let XmlPiece::Open {
            name, attributes, ..
        } = piece
        else {
            continue;
        };
        match (name, &mut last) {
            ("testcase", last) => {
                if let Some((name, outcome)) = last.take() {
                    names.add(&name, outcome);
                }
                let part = |name| attribute(attributes, name).unwrap_or_default();
                *last = Some((
                    format!("{} {}", part("classname"), part("name")),
                    TestOutcome::Passed,
                ));
            }
            ("failure" | "error", Some((_, outcome))) => *outcome = TestOutcome::Failed,
            ("skipped", Some((_, outcome))) => *outcome = TestOutcome::Skipped,
            _ => {}
        }
    }
    if let Some((name, outcome)) = last {
        names.add(&name, outcome);
    }
}
