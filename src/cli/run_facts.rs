//! What the log of a run says of it, for `status` and `runs`: how it began and ended, what it does, what it used.
//!
//! The log may be written to at the same time, be damaged or be large. Lines are chosen by the name of their event and
//! parsed in part; a line that cannot be parsed is skipped.

mod activity;
mod lines;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use rustix::fs::{Mode, OFlags, openat};

use crate::build::rounds::{CheckResult, Rounds};
use crate::cli::run_facts::activity::Activities;
use crate::cli::run_facts::lines::{
    EndLine, ErrorLine, ModelAnswerLine, ModelRequestLine, RetryLine, StartLine, StateLine,
    TransitionLine, event_name, parse, time_of,
};
use crate::conversation::usage::{MODEL_ERROR, UsageLog};
use crate::events::{BudgetLimits, Event};
use crate::state::phase::Phase;
use crate::state::run::RunKind;
use crate::state::store::{LOGS, Root};

/// A line longer than any that this program writes.
const LINE_LIMIT: u64 = 512 << 20;

/// The facts in the log of a run.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    /// The first start that can be read.
    pub start: Option<StartLine>,
    /// How often a process has begun to work on the run.
    pub starts: u32,
    /// When the last process that worked on the run began.
    pub last_start: Option<String>,
    /// How that process ended.
    pub end: Option<RunEnd>,
    /// The time of the last line.
    pub updated: Option<String>,
    pub budget: Option<BudgetLimits>,
    /// The options of the last command line.
    pub options: Vec<String>,
    pub usage: UsageLog,
    pub price_is_known: bool,
    pub phase: Option<Phase>,
    /// The attempt under way, and how many there can be.
    pub attempt: Option<(u32, u32)>,
    /// The highest attempt whose checks have run.
    pub tested: u32,
    /// The files that the last attempt wrote or deleted.
    pub files: Vec<String>,
    pub activities: Activities,
    rounds: Rounds,
    /// The first failed check of the last round.
    pub failure: Option<FailedOutput>,
}

/// How a process that worked on a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunEnd {
    pub kind: EndKind,
    pub reason: String,
    pub message: String,
    pub at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndKind {
    Succeeded,
    Failed,
    Paused,
    Interrupted,
}

/// What a failed check printed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FailedOutput {
    pub check: String,
    pub problem: String,
    pub stdout: String,
    pub stderr: String,
}

impl RunFacts {
    /// Reads the log of a run in a root.
    pub(super) fn of_run(root: &Root, run_id: &str) -> io::Result<RunFacts> {
        RunFacts::read(BufReader::with_capacity(1 << 16, open_log(root, run_id)?))
    }

    fn read(mut log: impl BufRead) -> io::Result<RunFacts> {
        let mut facts = RunFacts {
            price_is_known: true,
            ..RunFacts::default()
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            if Read::take(&mut log, LINE_LIMIT).read_until(b'\n', &mut line)? == 0 {
                return Ok(facts);
            }
            // The last line may not be complete yet.
            if line.last() == Some(&b'\n') {
                facts.apply(&line);
            }
        }
    }

    /// Whether nothing in the log could be read.
    pub(super) fn is_empty(&self) -> bool {
        self.updated.is_none()
    }

    pub(super) fn kind(&self) -> RunKind {
        match self
            .start
            .as_ref()
            .and_then(|start| start.start_state.as_ref())
        {
            Some(_) => RunKind::Workflow,
            None => RunKind::Build,
        }
    }

    /// The results of the last round of checks.
    pub(super) fn checks(&self) -> &[CheckResult] {
        self.rounds.last()
    }

    fn apply(&mut self, line: &[u8]) {
        let Some(event) = event_name(line) else {
            return;
        };
        let known = match event {
            "WorkflowStarted" => self.begin(line),
            "WorkflowCompleted" | "WorkflowPaused" | "WorkflowInterrupted" => self.end(event, line),
            "StateStarted" => self.enter(line),
            "TransitionOccurred" => self.transit(line),
            "ModelRequested" | "ModelRetried" | "ModelAnswered" | "ErrorOccurred" => {
                self.exchange(event, line)
            }
            "ScriptOutput" | "FilesApplied" => self.add_event(line),
            _ => Some(()),
        };
        let is_readable = known.is_some() && self.activities.apply(event, line);
        if let Some(time) = time_of(line).filter(|_| is_readable) {
            self.updated = Some(time.to_owned());
        }
    }

    fn begin(&mut self, line: &[u8]) -> Option<()> {
        let start: StartLine = parse(line)?;
        self.starts += 1;
        self.usage.end_process();
        self.end = None;
        self.activities = Activities::default();
        self.last_start = Some(start.ts.clone());
        self.budget = start.budget;
        self.options.clone_from(&start.options);
        let first = self.start.take().unwrap_or_else(|| start.clone());
        self.start = Some(StartLine {
            // A run keeps its id and its start; the name of the spec is the last one.
            spec_file: start.spec_file,
            ..first
        });
        Some(())
    }

    fn end(&mut self, event: &str, line: &[u8]) -> Option<()> {
        let end: EndLine = parse(line)?;
        self.end = Some(RunEnd {
            kind: match event {
                "WorkflowPaused" => EndKind::Paused,
                "WorkflowInterrupted" => EndKind::Interrupted,
                _ if end.outcome == Phase::Success.name() => EndKind::Succeeded,
                _ => EndKind::Failed,
            },
            reason: end.reason,
            message: end.message,
            at: end.ts,
        });
        Some(())
    }

    fn enter(&mut self, line: &[u8]) -> Option<()> {
        let state: StateLine = parse(line)?;
        self.attempt = state.attempt.zip(state.of).or(self.attempt);
        self.phase = Phase::of_name(&state.state_name).or(self.phase);
        if self.phase == Some(Phase::Testing) {
            self.failure = None;
        }
        self.add_event(line)
    }

    fn transit(&mut self, line: &[u8]) -> Option<()> {
        let transition: TransitionLine = parse(line)?;
        let to = transition.to_state.as_deref();
        self.phase = to.and_then(Phase::of_name).or(self.phase);
        if Phase::of_name(&transition.from_state) == Some(Phase::Testing) {
            let number = transition.metadata.retry_count.unwrap_or(0);
            self.tested = self.tested.max(number.saturating_add(1));
        }
        Some(())
    }

    fn exchange(&mut self, event: &str, line: &[u8]) -> Option<()> {
        match event {
            "ModelRequested" => {
                let ModelRequestLine { agent_id, worst } = parse(line)?;
                self.price_is_known = worst.cost_usd.is_some();
                self.usage.request(&agent_id, worst);
            }
            "ModelRetried" => self.usage.retry(&parse::<RetryLine>(line)?.agent_id),
            "ModelAnswered" => {
                let answered: ModelAnswerLine = parse(line)?;
                let answer = answered.answer.as_ref();
                self.usage
                    .answer(&answered.agent_id, answer, answered.cost_usd);
            }
            _ => {
                let error: ErrorLine = parse(line)?;
                if error.error_type == MODEL_ERROR {
                    self.usage.fail(&error.agent_id, error.charge);
                }
            }
        }
        Some(())
    }

    fn add_event(&mut self, line: &[u8]) -> Option<()> {
        let event: Event = parse(line)?;
        self.rounds.apply(&event);
        match event {
            Event::ScriptOutput {
                state_name,
                tool_name,
                passed: false,
                problem,
                stdout,
                stderr,
                ..
            } if state_name == Phase::Testing.name() => {
                self.failure.get_or_insert(FailedOutput {
                    check: tool_name,
                    problem: problem.unwrap_or_default(),
                    stdout,
                    stderr,
                });
            }
            Event::FilesApplied {
                written, deleted, ..
            } => self.files = written.into_iter().chain(deleted).collect(),
            _ => {}
        }
        Some(())
    }
}

/// Opens the log of a run; only a regular file, never through a link.
#[expect(clippy::disallowed_methods, reason = "the log is not a generated file")]
fn open_log(root: &Root, run_id: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let logs = openat(
        root.handle(),
        LOGS,
        flags | OFlags::DIRECTORY,
        Mode::empty(),
    )?;
    let log = File::from(openat(logs, format!("{run_id}.log"), flags, Mode::empty())?);
    match log.metadata()?.is_file() {
        true => Ok(log),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn corpus(name: &str) -> Vec<u8> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/log");
        std::fs::read(folder.join(name)).unwrap()
    }

    fn facts(log: &[u8]) -> RunFacts {
        RunFacts::read(log).unwrap()
    }

    #[test]
    fn the_log_of_an_earlier_version_is_read() {
        let facts = facts(&corpus("exhausted"));
        assert_eq!(facts.kind(), RunKind::Build);
        assert_eq!(facts.tested, 2);
        let end = facts.end.unwrap();
        assert_eq!(
            (end.kind, end.reason.as_str()),
            (EndKind::Failed, "retries_exhausted")
        );
        assert_eq!(
            facts.start.unwrap().ts,
            "2026-11-17T06:18:16.452Z".to_owned()
        );
        assert_eq!((facts.budget, facts.options.len()), (None, 0));
    }

    #[test]
    fn the_log_of_a_workflow_is_recognised() {
        let facts = facts(&corpus("workflow"));
        assert_eq!(facts.kind(), RunKind::Workflow);
        assert_eq!(facts.tested, 0);
    }

    #[test]
    fn a_line_that_is_not_complete_is_not_applied() {
        let log = corpus("exhausted");
        let last = facts(&log[..log.len() - 1]);
        assert_eq!(last.end, None);
        assert!(last.last_start.is_some());
    }

    proptest! {
        #[test]
        fn no_damage_makes_it_panic(at in any::<prop::sample::Index>(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            for name in ["exhausted", "workflow", "streamed"] {
                let mut log = corpus(name);
                let at = at.index(log.len());
                let end = log.len().min(at + bytes.len() / 2);
                log.splice(at..end, bytes.iter().copied());
                facts(&log);
            }
        }
    }
}
