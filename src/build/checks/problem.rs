//! Why a check did not pass: types to decide on, with the sentences that the log and the report show.
//!
//! `disclosed` decides what the model learns of a hidden check's problem. Its match is exhaustive, so that a new
//! problem cannot reveal anything before someone has decided that it may.

use std::time::Duration;

use signal_hook::low_level::signal_name;

use super::runner::Runner;
use crate::text::shorten::first_names;

/// How many protected files a problem names.
const SHOWN_FILES: usize = 10;
/// How many tests a problem names.
const SHOWN_TESTS: usize = 5;

/// Why a check did not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckProblem {
    /// The reason names the program or the sandbox layer.
    #[error("cannot start: {0}")]
    CannotStart(String),
    /// The code that runs the check panicked.
    #[error("the tool {0} panicked")]
    ToolPanicked(String),
    #[error("timed out after {} seconds", .0.as_secs_f64())]
    TimedOut(Duration),
    #[error("exit code {0}")]
    ExitCode(i32),
    #[error("killed by signal {}", signal_text(*.0))]
    Signal(i32),
    /// Ended because it exceeded a limit of the sandbox: which one, and by how much.
    #[error("ended: {0}")]
    LimitExceeded(String),
    /// Exited after it could not start another process; `limit` names the limit.
    #[error("{end}; {limit}")]
    ProcessRefused {
        end: Box<CheckProblem>,
        limit: String,
    },
    /// Changed protected files while it ran. `files` holds those that may be named, each with what happened to it.
    #[error("{}{}", protected_changed(.files), .also.as_ref().map_or(String::new(), |also| format!("; {also}")))]
    ProtectedChanged {
        files: Vec<String>,
        also: Option<Box<CheckProblem>>,
    },
    /// Exited with 0, but its tests are not known to have run and passed.
    #[error("exit code 0, but {0}")]
    Unproven(EvidenceProblem),
}

/// Why an exit code of 0 is not a pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceProblem {
    #[error("the summary says that {0} tests failed")]
    TestsFailed(u32),
    #[error("no test was executed")]
    NoTests,
    #[error("only {executed} tests were executed, and min_tests is {min_tests}")]
    TooFewTests { executed: u32, min_tests: u32 },
    /// Nothing in the output counts the tests, and the spec asks for a minimum.
    #[error("{}", not_counted(*.min_tests, *.runner))]
    NotCounted {
        min_tests: u32,
        runner: Option<Runner>,
    },
    /// The runner began `target` (which may be empty) and never summed up.
    #[error("{}", no_summary(*.runner, .target))]
    NoSummary { runner: Runner, target: String },
    #[error("{runner} stopped before all tests had run: {reason}")]
    StoppedEarly { runner: Runner, reason: String },
    #[error("something else wrote to the channel on which the test runner reports")]
    ForeignReport,
    #[error("the summary of {0} in the output is not what it reported itself")]
    SummaryMismatch(Runner),
    /// Fewer tests were executed than in an earlier round.
    #[error("{executed} tests were executed, and {earlier} in an earlier round")]
    LostTests { executed: u32, earlier: u32 },
    /// Tests that an earlier round executed.
    #[error("tests of an earlier round are skipped now: {}", first_names(.0, SHOWN_TESTS))]
    NewlySkipped(Vec<String>),
    #[error("it emptied the workspace")]
    WorkspaceEmptied,
}

impl CheckProblem {
    /// What the model may learn of this problem if the check is hidden: nothing that stems from its command, its
    /// files or its output.
    pub fn disclosed(&self) -> String {
        match self {
            CheckProblem::CannotStart(_) => "cannot start".to_owned(),
            CheckProblem::ToolPanicked(_) => "the tool panicked".to_owned(),
            CheckProblem::Unproven(_) => "its tests did not all run and pass".to_owned(),
            CheckProblem::ProcessRefused { end, limit } => match &**end {
                CheckProblem::CannotStart(_)
                | CheckProblem::ToolPanicked(_)
                | CheckProblem::Unproven(_) => end.disclosed(),
                CheckProblem::TimedOut(_)
                | CheckProblem::ExitCode(_)
                | CheckProblem::Signal(_)
                | CheckProblem::LimitExceeded(_)
                | CheckProblem::ProcessRefused { .. }
                | CheckProblem::ProtectedChanged { .. } => format!("{}; {limit}", end.disclosed()),
            },
            CheckProblem::ProtectedChanged { files, also: _ } => protected_changed(files),
            CheckProblem::TimedOut(_)
            | CheckProblem::ExitCode(_)
            | CheckProblem::Signal(_)
            | CheckProblem::LimitExceeded(_) => self.to_string(),
        }
    }
}

/// A signal with its name, such as `11 (SIGSEGV)`.
fn signal_text(number: i32) -> String {
    format!("{number}{}", in_parentheses(signal_name(number)))
}

fn protected_changed(files: &[String]) -> String {
    if files.is_empty() {
        return "files of the check changed while it ran".to_owned();
    }
    format!(
        "protected files changed while it ran: {}",
        first_names(files, SHOWN_FILES)
    )
}

fn not_counted(min_tests: u32, runner: Option<Runner>) -> String {
    let advice = in_parentheses(runner.and_then(Runner::advice));
    format!(
        "no known summary says how many tests were executed, and min_tests is {min_tests}{advice}"
    )
}

fn no_summary(runner: Runner, target: &str) -> String {
    // A check always sets -v for go.
    let advice = runner.advice().filter(|_| runner != Runner::Go);
    let separator = if target.is_empty() { "" } else { ": " };
    let advice = in_parentheses(advice);
    format!("{runner} ended without its summary{advice}{separator}{target}")
}

fn in_parentheses(text: Option<&str>) -> String {
    text.map_or(String::new(), |text| format!(" ({text})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(problem: CheckProblem, sentence: &str, disclosed: &str) {
        assert_eq!(problem.to_string(), sentence);
        assert_eq!(problem.disclosed(), disclosed);
    }

    #[test]
    fn an_end_is_disclosed_but_not_its_details() {
        let same = |problem, sentence| check(problem, sentence, sentence);
        same(CheckProblem::ExitCode(3), "exit code 3");
        same(
            CheckProblem::TimedOut(Duration::from_millis(1500)),
            "timed out after 1.5 seconds",
        );
        same(CheckProblem::Signal(9), "killed by signal 9 (SIGKILL)");
        same(CheckProblem::Signal(6), "killed by signal 6 (SIGABRT)");
        same(CheckProblem::Signal(63), "killed by signal 63");
        same(
            CheckProblem::LimitExceeded("memory 2, the limit is 1".into()),
            "ended: memory 2, the limit is 1",
        );
        check(
            CheckProblem::CannotStart("secret.py: not found".into()),
            "cannot start: secret.py: not found",
            "cannot start",
        );
        check(
            CheckProblem::ToolPanicked("secret".into()),
            "the tool secret panicked",
            "the tool panicked",
        );
    }

    #[test]
    fn nothing_of_the_evidence_is_disclosed() {
        let check_evidence = |problem, sentence: &str| {
            check(
                CheckProblem::Unproven(problem),
                &format!("exit code 0, but {sentence}"),
                "its tests did not all run and pass",
            );
        };
        let no_summary = |runner, target: &str| EvidenceProblem::NoSummary {
            runner,
            target: target.into(),
        };
        check_evidence(EvidenceProblem::NoTests, "no test was executed");
        check_evidence(
            no_summary(Runner::Go, ""),
            "go test ended without its summary",
        );
        check_evidence(
            no_summary(Runner::Node, "secret.js"),
            "node --test ended without its summary (node --test: use the tap or spec reporter): secret.js",
        );
        check_evidence(
            EvidenceProblem::NotCounted {
                min_tests: 2,
                runner: None,
            },
            "no known summary says how many tests were executed, and min_tests is 2",
        );
        check_evidence(
            EvidenceProblem::NewlySkipped((1..8).map(|number| number.to_string()).collect()),
            "tests of an earlier round are skipped now: 1, 2, 3, 4, 5 and 2 more",
        );
        check_evidence(
            EvidenceProblem::NewlySkipped(vec!["a".into(), "b".into()]),
            "tests of an earlier round are skipped now: a, b",
        );
    }

    #[test]
    fn a_refused_process_is_disclosed_with_an_end_that_is() {
        let refused = |end| CheckProblem::ProcessRefused {
            end: Box::new(end),
            limit: "the limit is 5".into(),
        };
        let sentence = "exit code 1; the limit is 5";
        check(refused(CheckProblem::ExitCode(1)), sentence, sentence);
        check(
            refused(CheckProblem::CannotStart("secret".into())),
            "cannot start: secret; the limit is 5",
            "cannot start",
        );
    }

    #[test]
    fn protected_files_are_disclosed_without_the_other_problem() {
        let changed = |files: &[&str], also| CheckProblem::ProtectedChanged {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            also,
        };
        check(
            changed(
                &["a.py (removed)"],
                Some(Box::new(CheckProblem::ExitCode(1))),
            ),
            "protected files changed while it ran: a.py (removed); exit code 1",
            "protected files changed while it ran: a.py (removed)",
        );
        let sentence = "files of the check changed while it ran";
        check(changed(&[], None), sentence, sentence);
    }
}
