//! Weighs what is known of a check's tests, and decides whether an exit code of 0 is a pass.
//!
//! There are two sources: the summary in the output, and the reports of the runner on its own channel. Where both exist
//! they have to agree.

use super::problem::EvidenceProblem;
use super::runner::Runner;
use super::runner_reports::{ChannelReports, RunnerSession};
use super::runners::summary;
use super::summary::{TestCounts, TestNames, TestSummary};

/// What is known of a check before it is weighed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckFacts<'a> {
    /// The runner that the command names.
    pub known: Option<Runner>,
    pub stdout: &'a str,
    pub stderr: &'a str,
    pub reports: &'a ChannelReports,
}

/// What is known of the tests of a check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub runner: Option<Runner>,
    /// `None` where no runner is known, where it did not finish, and where it does not count.
    pub counts: Option<TestCounts>,
    /// Failures and errors that the runner reports, whatever the exit code is.
    pub failed: u32,
    pub names: TestNames,
    /// Why an exit code of 0 is not a pass.
    pub problem: Option<EvidenceProblem>,
}

pub(crate) fn weigh(facts: &CheckFacts<'_>) -> Evidence {
    let printed = summary(facts.known, facts.stdout, facts.stderr);
    let reported: Vec<&RunnerSession> = facts
        .reports
        .sessions
        .iter()
        .filter(|session| session.runner != Runner::Node)
        .collect();
    let problem = broken_off(facts).or_else(|| mismatch(&reported, printed.as_ref()));
    if !reported.is_empty() {
        return of_reports(&reported, problem);
    }
    let Some(printed) = printed else {
        let problem = problem.or_else(|| facts.known.map(no_summary));
        return Evidence {
            runner: facts.known,
            problem,
            ..Evidence::default()
        };
    };
    let problem = problem.or_else(|| incomplete(facts.known, &printed));
    Evidence {
        runner: Some(printed.runner),
        counts: printed.counts.filter(|_| problem.is_none()),
        failed: printed.failed,
        names: printed.names,
        problem,
    }
}

fn of_reports(sessions: &[&RunnerSession], problem: Option<EvidenceProblem>) -> Evidence {
    let mut counts = TestCounts::default();
    let mut names = TestNames::default();
    for session in sessions {
        counts = counts.plus(session.counts);
        names.extend(&session.names);
    }
    Evidence {
        runner: sessions.first().map(|session| session.runner),
        counts: Some(counts).filter(|_| problem.is_none()),
        failed: counts.failed,
        names,
        problem,
    }
}

/// What the reports on the channel say against a pass.
fn broken_off(facts: &CheckFacts<'_>) -> Option<EvidenceProblem> {
    let reports = facts.reports;
    if let Some(problem) = reports.sessions.iter().find_map(session_problem) {
        return Some(problem);
    }
    let has_begun = |runner: Runner| {
        let mut sessions = reports.sessions.iter();
        sessions.any(|session| session.runner == runner)
    };
    let mut started = reports.started.iter().copied();
    let silent = started
        .find(|runner| !has_begun(*runner))
        .filter(|runner| facts.known == Some(*runner));
    silent.map(no_summary).or_else(|| {
        reports
            .has_foreign
            .then_some(EvidenceProblem::ForeignReport)
    })
}

fn session_problem(session: &RunnerSession) -> Option<EvidenceProblem> {
    let runner = session.runner;
    match &session.end {
        None => Some(EvidenceProblem::NoSummary {
            runner,
            target: session.target.clone(),
        }),
        Some(end) => {
            let reason = end.problem.clone()?;
            Some(EvidenceProblem::StoppedEarly { runner, reason })
        }
    }
}

fn mismatch(reported: &[&RunnerSession], printed: Option<&TestSummary>) -> Option<EvidenceProblem> {
    let printed = printed?;
    let counts = printed.counts?;
    let mut own = reported
        .iter()
        .filter(|session| session.runner == printed.runner)
        .peekable();
    own.peek()?;
    let is_reported = own.any(|session| session.agrees(counts));
    (!is_reported).then_some(EvidenceProblem::SummaryMismatch(printed.runner))
}

fn incomplete(known: Option<Runner>, printed: &TestSummary) -> Option<EvidenceProblem> {
    // A report in a shared format counts like the runner's own.
    let is_own = |known: Runner| {
        known == printed.runner
            || matches!(printed.runner, Runner::Junit | Runner::Tap)
            || (known, printed.runner) == (Runner::Vitest, Runner::Jest)
    };
    match known {
        Some(known) if !is_own(known) => Some(no_summary(known)),
        // A check gives go its -v: a package that is ok without naming a test has not run any.
        Some(Runner::Go) if printed.counts.is_none() => Some(no_summary(Runner::Go)),
        _ if !printed.is_complete => Some(no_summary(printed.runner)),
        _ => None,
    }
}

fn no_summary(runner: Runner) -> EvidenceProblem {
    EvidenceProblem::NoSummary {
        runner,
        target: String::new(),
    }
}
