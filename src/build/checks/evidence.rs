//! Holds together what is known of a check's tests, and says why an exit code of 0 is not a pass.

use super::problem::EvidenceProblem;
use super::runner::Runner;
use super::runner_reports::{ChannelReports, RunnerSession};
use super::runners::summary;
use super::summary::{TestCounts, TestNames, TestSummary};

/// What there is to weigh.
#[derive(Debug, Clone, Copy)]
pub struct CheckFacts<'a> {
    /// The runner that the command names.
    pub known: Option<Runner>,
    pub stdout: &'a str,
    pub stderr: &'a str,
    pub reports: &'a ChannelReports,
}

/// What is known of the tests of a check.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pub runner: Option<Runner>,
    /// Nothing where no runner is known, where it did not come to its end, and where it does not count.
    pub counts: Option<TestCounts>,
    /// Failures and errors that the runner admits, whatever the exit code was.
    pub failed: u32,
    pub names: TestNames,
    /// Why an exit code of 0 is not a pass, where that is so.
    pub problem: Option<EvidenceProblem>,
}

/// Returns what is known of a check's tests.
pub fn judge(facts: &CheckFacts<'_>) -> Evidence {
    let said = summary(facts.known, facts.stdout, facts.stderr);
    let reported: Vec<&RunnerSession> = facts
        .reports
        .sessions
        .iter()
        .filter(|session| session.runner != Runner::Node)
        .collect();
    let problem = broken_off(facts).or_else(|| disagreement(&reported, said.as_ref()));
    if !reported.is_empty() {
        return of_reports(&reported, problem);
    }
    let Some(said) = said else {
        let problem = problem.or_else(|| facts.known.map(no_summary));
        return Evidence {
            runner: facts.known,
            problem,
            ..Evidence::default()
        };
    };
    let problem = problem.or_else(|| incomplete(facts.known, &said));
    let counts = said.counts.filter(|_| problem.is_none());
    Evidence {
        runner: Some(said.runner),
        counts,
        failed: said.failed,
        names: said.names,
        problem,
    }
}

fn of_reports(sessions: &[&RunnerSession], problem: Option<EvidenceProblem>) -> Evidence {
    let counts = sessions.iter().fold(TestCounts::default(), |sum, session| {
        sum.plus(session.counts)
    });
    let mut names = TestNames::default();
    for session in sessions {
        names
            .executed
            .extend(session.names.executed.iter().cloned());
        names.failed.extend(session.names.failed.iter().cloned());
        names.skipped.extend(session.names.skipped.iter().cloned());
    }
    Evidence {
        runner: sessions.first().map(|session| session.runner),
        counts: Some(counts).filter(|_| problem.is_none()),
        failed: counts.failed,
        names,
        problem,
    }
}

/// What the channel says against a pass.
fn broken_off(facts: &CheckFacts<'_>) -> Option<EvidenceProblem> {
    let heard = facts.reports;
    for session in &heard.sessions {
        let RunnerSession { runner, what, .. } = session;
        match session.end.as_ref().map(|end| &end.problem) {
            Some(None) => {}
            Some(Some(reason)) => {
                return Some(EvidenceProblem::StoppedEarly {
                    runner: *runner,
                    reason: reason.clone(),
                });
            }
            None => {
                return Some(EvidenceProblem::NoSummary {
                    runner: *runner,
                    target: what.clone(),
                });
            }
        }
    }
    let has_begun = |runner: &Runner| {
        heard
            .sessions
            .iter()
            .any(|session| session.runner == *runner)
    };
    let silent = heard.started.iter().find(|runner| !has_begun(runner));
    let silent = silent
        .filter(|runner| facts.known == Some(**runner))
        .map(|runner| no_summary(*runner));
    silent.or_else(|| heard.has_foreign.then_some(EvidenceProblem::ForeignReport))
}

fn disagreement(
    reported: &[&RunnerSession],
    said: Option<&TestSummary>,
) -> Option<EvidenceProblem> {
    let said = said.filter(|said| reported.iter().any(|session| session.runner == said.runner))?;
    let counts = said.counts?;
    let mut own = reported
        .iter()
        .filter(|session| session.runner == said.runner);
    let is_known = own.any(|session| session.agrees(counts));
    (!is_known).then_some(EvidenceProblem::SummaryMismatch(said.runner))
}

fn incomplete(known: Option<Runner>, said: &TestSummary) -> Option<EvidenceProblem> {
    // A report in a format of many is as good as the runner's own.
    let is_own = |known: Runner| {
        known == said.runner
            || matches!(said.runner, Runner::Junit | Runner::Tap)
            || (known, said.runner) == (Runner::Vitest, Runner::Jest)
    };
    match known {
        Some(known) if !is_own(known) => Some(no_summary(known)),
        // Checks let go have -v: a package that is ok and says nothing of its tests has not run them.
        Some(Runner::Go) if said.counts.is_none() => Some(no_summary(Runner::Go)),
        _ if !said.is_complete => Some(no_summary(said.runner)),
        _ => None,
    }
}

fn no_summary(runner: Runner) -> EvidenceProblem {
    EvidenceProblem::NoSummary {
        runner,
        target: String::new(),
    }
}
