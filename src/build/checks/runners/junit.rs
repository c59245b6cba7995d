//! JUnit XML on the output, which many runners write: its summary, the names of its tests, its failures.

use super::xml::{XmlPiece, attribute, decoded, junit_document, pieces};
use crate::build::checks::failures::{CauseGroups, clipped, push_line};
use crate::build::checks::summary::{StreamSummary, TestCounts, TestNames, TestOutcome, count};

/// Counts the listed test cases; where none is listed, takes the attributes of the suites.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut cases = TestCounts::default();
    let mut suites = TestCounts::default();
    let mut is_listed = false;
    for piece in pieces(junit_document(text)?) {
        let XmlPiece::Open {
            name, attributes, ..
        } = piece
        else {
            continue;
        };
        match name {
            "testsuite" => suites = suites.plus(suite(attributes)),
            "testcase" => {
                is_listed = true;
                cases.executed = cases.executed.saturating_add(1);
            }
            "skipped" => {
                cases.executed = cases.executed.saturating_sub(1);
                cases.skipped = cases.skipped.saturating_add(1);
            }
            "failure" | "error" => cases.failed = cases.failed.saturating_add(1),
            _ => {}
        }
    }
    let TestCounts {
        executed,
        failed,
        skipped,
        ..
    } = if is_listed { cases } else { suites };
    Some(StreamSummary::whole(TestCounts::new(
        executed, failed, skipped,
    )))
}

fn suite(attributes: &str) -> TestCounts {
    let number = |name| {
        attribute(attributes, name)
            .and_then(|value| count(&value))
            .unwrap_or(0)
    };
    let skipped = number("skipped").saturating_add(number("disabled"));
    let failed = number("failures").saturating_add(number("errors"));
    TestCounts::new(number("tests").saturating_sub(skipped), failed, skipped)
}

pub(super) fn names(text: &str, names: &mut TestNames) {
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

pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let Some(document) = junit_document(text) else {
        return;
    };
    let mut case = JunitCase::default();
    let mut failure: Option<JunitFailure> = None;
    for piece in pieces(document) {
        match piece {
            XmlPiece::Open {
                name: "testcase",
                attributes,
                ..
            } => case = JunitCase::read(attributes),
            XmlPiece::Open {
                name: "failure" | "error",
                attributes,
                is_empty,
            } => {
                failure = Some(JunitFailure::new(attributes));
                if is_empty {
                    finish(&mut failure, &case, groups);
                }
            }
            XmlPiece::Close {
                name: "failure" | "error",
            } => finish(&mut failure, &case, groups),
            XmlPiece::Text(text) => keep(&mut failure, &decoded(text)),
            XmlPiece::Verbatim(text) => keep(&mut failure, text),
            _ => {}
        }
    }
}

fn keep(failure: &mut Option<JunitFailure>, text: &str) {
    if let Some(failure) = failure {
        text.trim()
            .lines()
            .for_each(|line| push_line(&mut failure.text, line));
    }
}

#[derive(Default)]
struct JunitCase {
    name: String,
    place: String,
}

impl JunitCase {
    fn read(attributes: &str) -> Self {
        let value = |name| attribute(attributes, name).unwrap_or_default();
        let (class, name) = (value("classname"), value("name"));
        let name = if class.is_empty() {
            name
        } else {
            format!("{class}.{name}")
        };
        let (file, line) = (value("file"), value("line"));
        let place = if line.is_empty() {
            file
        } else {
            format!("{file}:{line}")
        };
        Self {
            name: clipped(&name).to_owned(),
            place: clipped(&place).to_owned(),
        }
    }
}

struct JunitFailure {
    message: String,
    text: Vec<String>,
}

impl JunitFailure {
    fn new(attributes: &str) -> JunitFailure {
        JunitFailure {
            message: attribute(attributes, "message").unwrap_or_default(),
            text: Vec::new(),
        }
    }
}

/// The text replaces a missing message.
fn finish(failure: &mut Option<JunitFailure>, case: &JunitCase, groups: &mut CauseGroups) {
    let Some(failure) = failure.take() else {
        return;
    };
    let message = if failure.message.trim().is_empty() {
        failure.text.join("\n")
    } else {
        failure.message
    };
    groups.add(&case.name, &case.place, &message);
}
