//! The names of tests in a runner's output, by what became of them: what it prints one line each for.
//!
//! They tell a test that was executed before and is skipped now, and what failed. A runner that names no test in its
//! output leaves them empty; then the counts alone are compared.

use std::collections::BTreeSet;

use super::super::xml::{Piece, attribute, junit_document, pieces};
use super::go::{events, test_line};
use super::javascript::{is_file_name, report};
use super::runner::Runner;

/// How many names of each kind are kept, and how long one may be.
const MAX_NAMES: usize = 20_000;
const MAX_LENGTH: usize = 300;

/// Names of tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    pub executed: BTreeSet<String>,
    pub failed: BTreeSet<String>,
    pub skipped: BTreeSet<String>,
}

/// What became of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Names {
    /// Adds a test.
    pub fn add(&mut self, name: &str, outcome: Outcome) {
        let name = name.trim();
        let name = &name[..name.floor_char_boundary(MAX_LENGTH)];
        let put = |names: &mut BTreeSet<String>| {
            if !name.is_empty() && names.len() < MAX_NAMES {
                names.insert(name.to_owned());
            }
        };
        match outcome {
            Outcome::Passed => put(&mut self.executed),
            Outcome::Skipped => put(&mut self.skipped),
            Outcome::Failed => {
                put(&mut self.executed);
                put(&mut self.failed);
            }
        }
    }
}

/// Returns the names in the output of a runner.
pub(super) fn read(runner: Runner, stdout: &str, stderr: &str) -> Names {
    let mut names = Names::default();
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

type Line<'a> = Option<(&'a str, Outcome)>;

fn lines(text: &str, read: fn(&str) -> Line<'_>, names: &mut Names) {
    text.lines()
        .filter_map(read)
        .for_each(|(name, outcome)| names.add(name, outcome));
}

/// `tests/test_a.py::test_x PASSED [ 50%]`, and `FAILED tests/test_a.py::test_x - assert ...` at the end.
fn pytest(line: &str) -> Line<'_> {
    const WORDS: [(&str, Outcome); 6] = [
        ("PASSED", Outcome::Passed),
        ("XPASS", Outcome::Passed),
        ("XFAIL", Outcome::Passed),
        ("FAILED", Outcome::Failed),
        ("ERROR", Outcome::Failed),
        ("SKIPPED", Outcome::Skipped),
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
fn unittest(line: &str) -> Line<'_> {
    if let Some(name) = line
        .strip_prefix("FAIL: ")
        .or_else(|| line.strip_prefix("ERROR: "))
    {
        return Some((name, Outcome::Failed));
    }
    let (name, verdict) = line.rsplit_once(" ... ")?;
    match verdict.trim_end() {
        "ok" | "expected failure" => Some((name, Outcome::Passed)),
        "FAIL" | "ERROR" | "unexpected success" => Some((name, Outcome::Failed)),
        skipped if skipped.starts_with("skipped ") => Some((name, Outcome::Skipped)),
        _ => None,
    }
}

/// `test name ... ok`, `test name - should panic ... ok`, `test name ... ignored, why`.
fn cargo(line: &str) -> Line<'_> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match verdict.split([' ', ',']).next()? {
        "ok" | "bench:" => Some((name, Outcome::Passed)),
        "FAILED" => Some((name, Outcome::Failed)),
        "ignored" => Some((name, Outcome::Skipped)),
        _ => None,
    }
}

/// `        PASS [   0.005s] (1/2) calc::it adds`.
fn nextest(line: &str) -> Line<'_> {
    let (word, rest) = line.trim_start().split_once(' ')?;
    let (_, name) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    let name = name
        .trim_start()
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
        .map_or(name, |(_, name)| name);
    match word {
        "PASS" | "LEAK" => Some((name, Outcome::Passed)),
        "FAIL" | "ABORT" | "TIMEOUT" => Some((name, Outcome::Failed)),
        "SKIP" => Some((name, Outcome::Skipped)),
        _ => None,
    }
}

/// `1/2 Test #1: adds .......   Passed    0.00 sec`.
fn ctest(line: &str) -> Line<'_> {
    let (_, rest) = line
        .split_once(" Test ")
        .and_then(|(_, rest)| rest.split_once(": "))?;
    let (name, verdict) = rest.split_once(" ..").or_else(|| rest.split_once("  "))?;
    let verdict = verdict.trim_start_matches(['.', ' ']);
    if verdict.starts_with("***Skipped") {
        return Some((name, Outcome::Skipped));
    }
    let is_failed = verdict.starts_with("***");
    (is_failed || verdict.starts_with("Passed")).then_some((
        name,
        if is_failed {
            Outcome::Failed
        } else {
            Outcome::Passed
        },
    ))
}

fn go(text: &str, names: &mut Names) {
    let outcome = |word: &str| match word {
        "PASS" | "pass" => Some(Outcome::Passed),
        "FAIL" | "fail" => Some(Outcome::Failed),
        "SKIP" | "skip" => Some(Outcome::Skipped),
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
fn node(text: &str, names: &mut Names) {
    for line in text.lines().map(str::trim_start) {
        let point = line
            .strip_prefix("not ok ")
            .map(|rest| (rest, Outcome::Failed));
        let point = point.or_else(|| line.strip_prefix("ok ").map(|rest| (rest, Outcome::Passed)));
        let mark = [
            ("✔ ", Outcome::Passed),
            ("✖ ", Outcome::Failed),
            ("﹣ ", Outcome::Skipped),
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
                        Outcome::Skipped
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
            _ if directive.starts_with("SKIP") => names.add(name, Outcome::Skipped),
            Outcome::Failed if directive.starts_with("TODO") => names.add(name, Outcome::Passed),
            outcome => names.add(name, outcome),
        }
    }
}

/// The headings of failures in jest, the marks of verbose output, and the lists of JSON reports.
fn javascript(text: &str, names: &mut Names) {
    let marks = [
        ("✓ ", Outcome::Passed),
        ("✔ ", Outcome::Passed),
        ("✕ ", Outcome::Failed),
        ("○ ", Outcome::Skipped),
        ("↓ ", Outcome::Skipped),
    ];
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("  ● ") {
            names.add(name, Outcome::Failed);
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
                    .filter(|_| outcome == Outcome::Skipped)
                    .unwrap_or(name),
                outcome,
            );
        }
    }
    let Some(report) = report(text) else { return };
    let files = report["testResults"].as_array().into_iter().flatten();
    for test in files.flat_map(|file| file["assertionResults"].as_array().into_iter().flatten()) {
        let outcome = match test["status"].as_str() {
            Some("passed") => Outcome::Passed,
            Some("failed") => Outcome::Failed,
            _ => Outcome::Skipped,
        };
        names.add(test["fullName"].as_str().unwrap_or_default(), outcome);
    }
    for (list, outcome) in [
        ("passes", Outcome::Passed),
        ("failures", Outcome::Failed),
        ("pending", Outcome::Skipped),
    ] {
        for test in report[list].as_array().into_iter().flatten() {
            names.add(test["fullTitle"].as_str().unwrap_or_default(), outcome);
        }
    }
}

fn junit(text: &str, names: &mut Names) {
    let Some(document) = junit_document(text) else {
        return;
    };
    let mut last: Option<(String, Outcome)> = None;
    for piece in pieces(document) {
        let Piece::Open {
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
                    Outcome::Passed,
                ));
            }
            ("failure" | "error", Some((_, outcome))) => *outcome = Outcome::Failed,
            ("skipped", Some((_, outcome))) => *outcome = Outcome::Skipped,
            _ => {}
        }
    }
    if let Some((name, outcome)) = last {
        names.add(&name, outcome);
    }
}
