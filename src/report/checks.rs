//! Checks and scripts of a log.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Event, FailureCause, TestTotals};
use crate::report::foreign::ForeignText;
use crate::report::model::ReportCheck;

const OUTPUT: usize = 6_000;
const MOST_NAMES: usize = 200;
const MOST_CAUSES: usize = 20;
/// Passed tests are known by all their names or by none.
const MOST_EXECUTED: usize = 2_000;
/// What unittest counts as a test where it cannot load a module.
const NOT_A_TEST: &str = "unittest.loader._FailedTest.";

/// The names of tests that each check has executed so far; a log has them where tests are protected.
#[derive(Default)]
pub(super) struct ExecutedTests {
    by_check: BTreeMap<String, BTreeSet<String>>,
}

impl ExecutedTests {
    /// The names of the tests that passed in this execution of a check; empty if the log does not have all of them.
    pub(super) fn passed(&mut self, event: &Event, check: &ReportCheck) -> Vec<String> {
        let Event::ScriptOutput {
            tool_name,
            first_executed,
            tests: Some(tests),
            ..
        } = event
        else {
            return Vec::new();
        };
        let known = self.by_check.entry(tool_name.clone()).or_default();
        let is_test = |name: &&String| !name.starts_with(NOT_A_TEST);
        known.extend(first_executed.iter().filter(is_test).cloned());
        // Every test that passed is among these; some of them may be gone.
        let is_other = |name: &&String| {
            !tests.failed_names.contains(name) && !check.skipped_names.contains(name)
        };
        let passed: Vec<&String> = known.iter().filter(is_other).collect();
        match passed.len() == tests.passed as usize && passed.len() <= MOST_EXECUTED {
            true => passed.into_iter().cloned().collect(),
            false => Vec::new(),
        }
    }
}

/// The data of a check or script that ended.
pub(super) fn check_of(event: &Event, foreign: &ForeignText<'_>) -> Option<ReportCheck> {
    let Event::ScriptOutput {
        tool_name,
        hidden,
        passed,
        problem,
        exit_code,
        execution_time_ms,
        tests,
        flaky,
        skipped_names,
        causes,
        stdout,
        stdout_bytes,
        stderr,
        stderr_bytes,
        ..
    } = event
    else {
        return None;
    };
    let tests = tests.as_ref().map(|tests| TestTotals {
        failed_names: foreign.lines(&tests.failed_names, MOST_NAMES),
        ..*tests
    });
    let causes = causes.iter().take(MOST_CAUSES).map(|cause| FailureCause {
        message: foreign.line(&cause.message),
        tests: foreign.lines(&cause.tests, MOST_NAMES),
        places: foreign.lines(&cause.places, MOST_CAUSES),
    });
    Some(ReportCheck {
        name: foreign.line(tool_name),
        command: String::new(),
        hidden: *hidden,
        passed: *passed,
        flaky: *flaky,
        problem: problem.as_deref().map(|problem| foreign.line(problem)),
        exit_code: *exit_code,
        duration_ms: *execution_time_ms,
        tests,
        passed_names: Vec::new(),
        skipped_names: foreign.lines(skipped_names, MOST_NAMES),
        causes: causes.collect(),
        stdout: foreign.block(stdout, OUTPUT),
        stdout_bytes: *stdout_bytes,
        stderr: foreign.block(stderr, OUTPUT),
        stderr_bytes: *stderr_bytes,
    })
}

/// The counts of all checks together.
pub(super) fn sum_of(checks: &[ReportCheck]) -> Option<TestTotals> {
    TestTotals::sum(checks.iter().filter_map(|check| check.tests.as_ref()))
}
