//! The checks of a run: tools, run in order, each to a result; and what their output says.
//!
//! `command.rs` is the tool that runs a program. `text.rs` makes output plain, `evidence.rs` finds what
//! became of the tests, `causes.rs` finds what failed and why, `refusals.rs` what the sandbox refused, `report.rs` puts together what the
//! model is told.

pub mod command;
mod condense;
pub mod evidence;
mod failures;
pub mod problem;
pub mod report;
pub mod reporters;
pub mod runner;
mod runner_reports;
pub mod runners;
mod summary;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::build::checks::problem::CheckProblem;
use crate::build::checks::summary::TestNames;
use crate::error::{Error, Result};
use crate::events::TestTotals;

/// The exit code of a check whose time was over.
pub const TIMED_OUT: i32 = 124;
/// The exit code of a check that could not be started.
pub const CANNOT_START: i32 = 127;

/// Something that looks at the workspace and comes to a verdict.
pub trait Tool {
    /// Returns its name.
    fn name(&self) -> &str;

    /// Runs to a result. A red one is no error; an error is what ends the command (a signal, a disk).
    fn run(&mut self) -> Result<ToolResult>;
}

/// A tool's verdict and what it printed, made plain.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Why it did not pass; nothing where it passed.
    pub problem: Option<CheckProblem>,
    pub exit_code: i32,
    pub timed_out: bool,
    /// What the tests came to, where that is known.
    pub tests: Option<TestTotals>,
    /// The names of tests that were executed, and of those that were skipped.
    pub names: TestNames,
    pub stdout: ToolOutput,
    pub stderr: ToolOutput,
    pub took: Duration,
    /// The names of the variables it was given.
    pub variables: Vec<String>,
    /// What the sandbox refused, as far as the output tells.
    pub refused: Vec<String>,
    /// What the user can change in the spec about it.
    pub hints: Vec<String>,
}

/// A stream of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// Plain text: head and tail where it was long.
    pub text: String,
    pub bytes: u64,
    pub dropped: u64,
}

/// The tools of a run, in the order in which they run.
#[derive(Default)]
pub struct ToolRegistry {
    tools: Vec<Box<dyn Tool>>,
}

impl ToolRegistry {
    /// Adds a tool behind the others.
    pub fn add(&mut self, tool: Box<dyn Tool>) {
        self.tools.push(tool);
    }

    /// Returns how many tools there are.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool at all.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Runs one tool. One that panics has failed, like one that cannot start.
    pub fn run(&mut self, index: usize) -> Result<ToolResult> {
        let Some(tool) = self.tools.get_mut(index) else {
            return Err(Error::Bug(format!("there is no tool {index}")));
        };
        catch_unwind(AssertUnwindSafe(|| tool.run())).unwrap_or_else(|_| {
            let problem = CheckProblem::ToolPanicked(tool.name().to_owned());
            Ok(ToolResult::broken(problem))
        })
    }
}

impl ToolResult {
    /// Whether the check passed.
    pub fn passed(&self) -> bool {
        self.problem.is_none()
    }

    /// The result of a tool that could not do its work.
    pub fn broken(problem: CheckProblem) -> ToolResult {
        ToolResult {
            problem: Some(problem),
            exit_code: CANNOT_START,
            timed_out: false,
            tests: None,
            names: TestNames::default(),
            stdout: ToolOutput::default(),
            stderr: ToolOutput::default(),
            took: Duration::ZERO,
            variables: Vec::new(),
            refused: Vec::new(),
            hints: Vec::new(),
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

        fn run(&mut self) -> Result<ToolResult> {
            panic!("boom")
        }
    }

    #[test]
    fn a_tool_that_panics_has_failed() {
        let mut registry = ToolRegistry::default();
        registry.add(Box::new(Panicking));
        let result = registry.run(0).unwrap();
        assert_eq!(
            result.problem,
            Some(CheckProblem::ToolPanicked("panicking".into()))
        );
        assert!(matches!(registry.run(1), Err(Error::Bug(_))));
    }
}
