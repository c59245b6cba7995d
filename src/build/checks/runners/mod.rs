//! What test runners print: a file for each, with its summary, the names of its tests and its failures.
//!
//! The tables here give the order in which formats are tried. To add a runner, add it to `Runner`, write its file, and
//! enter its readers in the tables.

mod cargo;
mod ctest;
mod generic;
mod go;
mod javascript;
mod junit;
mod node;
mod pytest;
mod tap;
#[cfg(test)]
mod tests;
mod traceback;
mod unittest;
mod xml;

use super::failures::{Cause, CauseGroups};
use super::runner::Runner;
use super::summary::{StreamSummary, TestNames, TestSummary};

pub(crate) use self::go::without_passed_tests;

/// Reads one runner's summary out of one stream.
type SummaryReader = fn(&str) -> Option<StreamSummary>;

/// The most specific format comes first: a jest run may print the TAP of what it loads; nothing else prints pytest's
/// line.
const SUMMARIES: [(Runner, SummaryReader); 15] = [
    (Runner::Pytest, pytest::summary),
    (Runner::Unittest, unittest::summary),
    (Runner::Nextest, cargo::nextest_summary),
    (Runner::Cargo, cargo::summary),
    (Runner::Go, go::json_summary),
    (Runner::Go, go::text_summary),
    (Runner::Jest, javascript::jest_summary),
    (Runner::Vitest, javascript::vitest_summary),
    (Runner::Node, node::summary),
    (Runner::Mocha, javascript::mocha_summary),
    (Runner::Ctest, ctest::summary),
    (Runner::Jest, javascript::jest_json_summary),
    (Runner::Mocha, javascript::mocha_json_summary),
    (Runner::Junit, junit::summary),
    (Runner::Tap, tap::summary),
];

/// Readers of failures; `generic` is the fallback where none finds any.
const FAILURES: [fn(&str, &mut CauseGroups); 8] = [
    pytest::failures,
    unittest::failures,
    cargo::failures,
    go::failures,
    tap::failures,
    node::failures,
    javascript::failures,
    junit::failures,
];

/// The summary in the output; `None` where no runner is recognised. The runner that the command names is tried first.
pub fn summary(known: Option<Runner>, stdout: &str, stderr: &str) -> Option<TestSummary> {
    let read = |(runner, read): &(Runner, SummaryReader)| {
        let StreamSummary {
            counts,
            failed,
            is_complete,
        } = read(stdout).or_else(|| read(stderr))?;
        // Cargo announces on stderr what has its result on stdout.
        let is_whole = *runner != Runner::Cargo || cargo::is_whole(stdout, stderr);
        Some(TestSummary {
            runner: *runner,
            counts,
            failed,
            is_complete: is_complete && is_whole,
            names: test_names(*runner, stdout, stderr),
        })
    };
    let mut named = SUMMARIES
        .iter()
        .filter(|(runner, _)| known == Some(*runner));
    named
        .find_map(read)
        .or_else(|| SUMMARIES.iter().find_map(read))
}

/// By names, a test that was executed in an earlier round and is skipped now is recognised. Where a runner prints none,
/// only counts are compared.
fn test_names(runner: Runner, stdout: &str, stderr: &str) -> TestNames {
    let mut names = TestNames::default();
    for text in [stdout, stderr] {
        match runner {
            Runner::Pytest => names.add_lines(text, pytest::test_name),
            Runner::Unittest => names.add_lines(text, unittest::test_name),
            Runner::Cargo => names.add_lines(text, cargo::test_name),
            Runner::Nextest => names.add_lines(text, cargo::nextest_name),
            Runner::Ctest => names.add_lines(text, ctest::test_name),
            Runner::Go => go::names(text, &mut names),
            Runner::Jest | Runner::Vitest | Runner::Mocha => javascript::names(text, &mut names),
            Runner::Node | Runner::Tap => names.add_lines(text, node::test_name),
            Runner::Junit => junit::names(text, &mut names),
        }
    }
    names
}

/// Why tests failed, by runner, in order of appearance.
pub fn causes(stdout: &str, stderr: &str) -> Vec<Cause> {
    let mut groups = CauseGroups::default();
    for read in FAILURES {
        read(stdout, &mut groups);
        read(stderr, &mut groups);
    }
    if groups.is_empty() {
        generic::failures(stdout, &mut groups);
        generic::failures(stderr, &mut groups);
    }
    groups.finish()
}
