//! The checks of a run: tools that run in order, each with a result.
//!
//! `command.rs` runs a program. `runners/` reads the output of test runners, `runner_reports.rs` what they report on a
//! channel of their own, and `evidence.rs` weighs both. `problem.rs` has the ways in which a check does not pass,
//! `report.rs` what the model gets to read about failed checks.

pub(crate) mod command;
mod condense;
pub(crate) mod evidence;
mod failures;
pub(crate) mod last_line;
pub(crate) mod problem;
pub(crate) mod report;
pub(crate) mod reporters;
pub(crate) mod runner;
mod runner_reports;
pub(crate) mod runners;
mod summary;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::build::checks::problem::CheckProblem;
use crate::build::checks::summary::TestNames;
use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::process::Launcher;

/// The exit code of a check that timed out.
pub(crate) const TIMED_OUT: i32 = 124;
/// The exit code of a check that could not be started.
pub(crate) const CANNOT_START: i32 = 127;

/// Something that checks the workspace.
pub(crate) trait Tool {
    fn name(&self) -> &str;

    /// Runs to a result, and passes on what it prints meanwhile. A failed check is not an error; an error ends the run (a
    /// signal, a disk).
    fn run(&mut self, printed: &dyn Fn(&[u8])) -> Result<ToolResult>;

    /// What it would be started with now, if it is a program.
    fn launcher(&self) -> Option<Launcher> {
        None
    }
}

/// The result of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ToolResult {
    /// Why it did not pass; `None` where it passed.
    pub problem: Option<CheckProblem>,
    pub exit_code: i32,
    pub timed_out: bool,
    /// The counts of its tests, where they are known.
    pub tests: Option<TestTotals>,
    pub names: TestNames,
    pub stdout: ToolOutput,
    pub stderr: ToolOutput,
    pub took: Duration,
    /// The names of its environment variables.
    pub variables: Vec<String>,
    /// What the sandbox denied, as far as the output shows it.
    pub refused: Vec<String>,
    /// What the user can change in the spec to allow it.
    pub hints: Vec<String>,
}

/// What a tool printed on one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolOutput {
    /// As a terminal would show it; of a long stream, head and tail.
    pub text: String,
    pub bytes: u64,
    pub dropped: u64,
}

/// The tools of a run, in the order in which they run.
#[derive(Default)]
pub(crate) struct ToolRegistry {
    tools: Vec<Box<dyn Tool>>,
}

impl ToolRegistry {
    /// Adds a tool after the others.
    pub(crate) fn add(&mut self, tool: Box<dyn Tool>) {
        self.tools.push(tool);
    }

    pub(crate) fn len(&self) -> usize {
        self.tools.len()
    }

    /// What a tool would be started with now, if it is a program.
    pub(crate) fn launcher(&self, index: usize) -> Option<Launcher> {
        self.tools.get(index)?.launcher()
    }

    /// Runs one tool. A tool that panics has failed, like one that cannot start.
    pub(crate) fn run(&mut self, index: usize, printed: &dyn Fn(&[u8])) -> Result<ToolResult> {
        let Some(tool) = self.tools.get_mut(index) else {
            return Err(Error::Bug(format!("there is no tool {index}")));
        };
        catch_unwind(AssertUnwindSafe(|| tool.run(printed))).unwrap_or_else(|_| {
            let problem = CheckProblem::ToolPanicked(tool.name().to_owned());
            Ok(ToolResult::broken(problem))
        })
    }
}

impl ToolResult {
    /// Whether the check passed.
    pub(crate) fn passed(&self) -> bool {
        self.problem.is_none()
    }

    /// The result of a tool that could not do its work.
    pub(crate) fn broken(problem: CheckProblem) -> ToolResult {
        ToolResult {
            problem: Some(problem),
            exit_code: CANNOT_START,
            ..ToolResult::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panicking;

    impl Tool for Panicking {
        fn name(&self) -> &str {
            "panicking"
        }

        fn run(&mut self, _printed: &dyn Fn(&[u8])) -> Result<ToolResult> {
            panic!("boom")
        }
    }

    #[test]
    fn a_tool_that_panics_has_failed() {
        let mut registry = ToolRegistry::default();
        registry.add(Box::new(Panicking));
        let result = registry.run(0, &|_| {}).unwrap();
        assert_eq!(
            result.problem,
            Some(CheckProblem::ToolPanicked("panicking".into()))
        );
        assert!(matches!(registry.run(1, &|_| {}), Err(Error::Bug(_))));
    }
}
