//! Earlier rounds of checks, a fold of the log: how many tests each executed, which ones, and the results of the last
//! round.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::build::checks::ToolResult;
use crate::build::checks::problem::EvidenceProblem;
use crate::events::{Event, TestTotals};
use crate::state::phase::Phase;

/// The rounds of a run so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rounds {
    checks: BTreeMap<String, CheckHistory>,
    last: Vec<CheckResult>,
}

/// All runs of a check.
#[derive(Debug, Clone, Default, PartialEq)]
struct CheckHistory {
    most: u32,
    executed: BTreeSet<String>,
}

/// The result of a check in the last round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckResult {
    pub name: String,
    pub passed: bool,
    pub flaky: bool,
    pub tests: Option<TestTotals>,
}

impl Rounds {
    /// Checks that run before the first request do not count as a round.
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::StateStarted { state_name, .. } if state_name == Phase::Testing.name() => {
                self.last.clear()
            }
            Event::ScriptOutput {
                state_name,
                tool_name,
                passed,
                flaky,
                tests,
                first_executed,
                ..
            } if state_name == Phase::Testing.name() => {
                let earlier = self.checks.entry(tool_name.clone()).or_default();
                earlier.most = earlier
                    .most
                    .max(tests.as_ref().map_or(0, |tests| tests.executed));
                earlier.executed.extend(first_executed.iter().cloned());
                self.last.retain(|result| result.name != *tool_name);
                let (name, tests) = (tool_name.clone(), tests.clone());
                self.last.push(CheckResult {
                    name,
                    passed: *passed,
                    flaky: *flaky,
                    tests,
                });
            }
            _ => {}
        }
    }

    /// The results of the last round, in the order in which the checks ran.
    pub(crate) fn last(&self) -> &[CheckResult] {
        &self.last
    }

    /// The tests that no earlier round executed.
    pub(crate) fn first_executed(&self, check: &str, result: &ToolResult) -> Vec<String> {
        let earlier = self.checks.get(check);
        let is_new =
            |name: &&String| earlier.is_none_or(|earlier| !earlier.executed.contains(*name));
        result
            .names
            .executed
            .iter()
            .filter(is_new)
            .cloned()
            .collect()
    }

    /// The tests that an earlier round executed and this result did not.
    pub(crate) fn lost(&self, check: &str, result: &ToolResult) -> Option<EvidenceProblem> {
        let (earlier, tests) = (self.checks.get(check)?, result.tests.as_ref()?);
        if tests.executed < earlier.most {
            return Some(EvidenceProblem::LostTests {
                executed: tests.executed,
                earlier: earlier.most,
            });
        }
        let names = &result.names;
        let skipped = names
            .skipped
            .iter()
            .filter(|name| !names.executed.contains(*name));
        let lost: Vec<String> = skipped
            .filter(|name| earlier.executed.contains(*name))
            .cloned()
            .collect();
        (!lost.is_empty()).then_some(EvidenceProblem::NewlySkipped(lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::checks::problem::CheckProblem;

    fn result(executed: &[&str], skipped: &[&str]) -> ToolResult {
        let mut result = ToolResult::broken(CheckProblem::ExitCode(0));
        result.tests = Some(TestTotals {
            executed: executed.len() as u32,
            ..TestTotals::default()
        });
        result.names.executed = executed.iter().map(|name| (*name).to_owned()).collect();
        result.names.skipped = skipped.iter().map(|name| (*name).to_owned()).collect();
        result
    }

    fn ran(rounds: &Rounds, state: &str, result: &ToolResult) -> Event {
        Event::ScriptOutput {
            agent_id: "main".into(),
            state_name: state.into(),
            step_number: 1,
            tool_name: "unit".into(),
            hidden: false,
            passed: true,
            problem: None,
            exit_code: 0,
            execution_time_ms: 1,
            tests: result.tests.clone(),
            flaky: false,
            first_executed: rounds.first_executed("unit", result),
            skipped_names: Vec::new(),
            causes: Vec::new(),
            stdout: String::new(),
            stdout_bytes: 0,
            stderr: String::new(),
            stderr_bytes: 0,
            env_vars: Vec::new(),
        }
    }

    fn check(executed: &[&str], skipped: &[&str], expected: Option<&str>) {
        let mut rounds = Rounds::default();
        for (state, executed) in [
            ("INIT", &["a", "b", "c", "d", "e"][..]),
            ("TESTING", &["a", "b"]),
            ("TESTING", &["a"]),
        ] {
            let event = ran(&rounds, state, &result(executed, &[]));
            rounds.apply(&event);
        }
        let lost = rounds.lost("unit", &result(executed, skipped));
        let lost = lost.map(|lost| lost.to_string());
        assert_eq!(lost.as_deref(), expected, "{executed:?} {skipped:?}");
        assert_eq!(rounds.lost("another", &result(executed, skipped)), None);
    }

    #[test]
    fn a_round_has_at_least_the_tests_of_earlier_ones() {
        check(&["a", "b"], &[], None);
        check(&["c", "d", "e"], &["f"], None);
        check(
            &["a"],
            &[],
            Some("1 tests were executed, and 2 in an earlier round"),
        );
        check(
            &["a", "c"],
            &["b"],
            Some("tests of an earlier round are skipped now: b"),
        );
        // One of the same name is still executed.
        check(&["a", "b"], &["b"], None);
    }
}
