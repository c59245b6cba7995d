//! Summaries in formats that many runners write: JUnit XML and TAP.

use super::super::xml::{XmlPiece, attribute, junit_document, pieces};
use super::{StreamSummary, TestCounts, count};

/// The test cases that are listed and not skipped; where none is listed, what the suites say of themselves.
pub fn junit(text: &str) -> Option<StreamSummary> {
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

/// A plan and the points at its level. A plan alone is no sign of a test, unless it is one of no tests; a version and
/// points without a plan have not come to their end.
pub fn tap(text: &str) -> Option<StreamSummary> {
    let mut counts = TestCounts::default();
    let (mut plan, mut is_tap, mut has_version) = (None, false, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("1..") {
            plan = plan.or_else(|| count(rest.split(" #").next().unwrap_or(rest).trim()));
        } else if line.starts_with("TAP version ") {
            is_tap = true;
            has_version = true;
        } else if let Some((is_ok, directive)) = point(line) {
            is_tap = true;
            let skipped = u32::from(directive.starts_with("SKIP"));
            let failed = u32::from(!is_ok && !directive.starts_with("TODO"));
            counts = counts.plus(TestCounts::new(1 - skipped, failed, skipped));
        }
    }
    let planned = plan
        .filter(|tests| is_tap || *tests == 0)
        .map(|_| StreamSummary::whole(counts));
    planned.or(has_version.then_some(StreamSummary::BROKEN_OFF))
}

/// `not ok 3 - name # TODO later`: whether it is ok, and its directive in capitals.
fn point(line: &str) -> Option<(bool, String)> {
    let (is_ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let directive = rest
        .rsplit_once("# ")
        .map_or("", |(_, directive)| directive);
    Some((
        is_ok,
        directive
            .chars()
            .take(4)
            .collect::<String>()
            .to_ascii_uppercase(),
    ))
}
