//! A run of a root, by its state and its log: its status, what it used, how it began.
//!
//! Of a build `state.json` is written before the log, of a workflow after it; so a state that is over decides for a build,
//! and otherwise the end in the log.

use std::collections::BTreeSet;
use std::io;

use crate::build::attempts::whole_cause;
use crate::build::checks::runners::causes;
use crate::cli::run_facts::{EndKind, FailedOutput, RunEnd, RunFacts};
use crate::cli::uncut::uncut;
use crate::conversation::budget::Budget;
use crate::conversation::usage::UsageLog;
use crate::error::{Error, Result};
use crate::state::lock_holder::LockHolder;
use crate::state::phase::Phase;
use crate::state::run::{RunKind, RunState, UsageTotals, is_run_id};
use crate::state::store::{LOGS, LoadedState, Root};
use crate::state::workflow::{WorkflowPhase, WorkflowState};

/// How many printed lines are shown of a check without causes.
const SHOWN_LINES: usize = 12;

/// A state that could be read.
#[derive(Debug)]
pub(super) enum SavedState {
    Build(Box<RunState>),
    Workflow(Box<WorkflowState>),
}

impl SavedState {
    pub(super) fn of(loaded: LoadedState) -> Option<SavedState> {
        match loaded {
            LoadedState::Build(state) => Some(SavedState::Build(state)),
            LoadedState::Workflow(state) => Some(SavedState::Workflow(state)),
            LoadedState::Nothing | LoadedState::Corrupt(_) | LoadedState::CorruptWorkflow(_) => {
                None
            }
        }
    }

    pub(super) fn run_id(&self) -> &str {
        match self {
            SavedState::Build(state) => &state.run_id,
            SavedState::Workflow(state) => &state.run_id,
        }
    }

    fn usage(&self) -> &UsageTotals {
        match self {
            SavedState::Build(state) => &state.usage,
            SavedState::Workflow(state) => &state.usage,
        }
    }
}

/// Whether a run is under way, stopped or over.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunStatus {
    Running(LockHolder),
    Interrupted(RunEnd),
    /// The log has no end of the last process.
    Killed,
    Paused(RunEnd),
    Succeeded,
    Failed,
    /// Not over, and the log cannot be read.
    Unknown,
}

impl RunStatus {
    /// The word of the column `outcome`.
    pub(super) fn word(&self) -> &'static str {
        match self {
            RunStatus::Running(_) => "RUNNING",
            RunStatus::Interrupted(_) => "INTERRUPTED",
            RunStatus::Killed | RunStatus::Unknown => "KILLED",
            RunStatus::Paused(_) => "PAUSED",
            RunStatus::Succeeded => "SUCCESS",
            RunStatus::Failed => "FAILED",
        }
    }
}

/// A run of a root.
#[derive(Debug)]
pub(super) struct KnownRun {
    pub run_id: String,
    /// `state.json`, or the state that was kept.
    pub state: Option<SavedState>,
    /// Whether `state.json` is of this run.
    pub is_current: bool,
    pub facts: RunFacts,
    pub status: RunStatus,
}

impl KnownRun {
    /// The run that `state.json` is of. A log that cannot be read is as good as none.
    pub(super) fn current(root: &Root, state: SavedState) -> KnownRun {
        let run_id = state.run_id().to_owned();
        // A process may end or begin in between: its lock is looked for before its end is, and once more after that.
        let holder = root.lock_holder();
        let facts = RunFacts::of_run(root, &run_id).unwrap_or_default();
        let holder = holder.or_else(|| root.lock_holder());
        let newer = facts.end.is_some().then(|| root.load().ok()).flatten();
        let newer = newer.and_then(SavedState::of);
        let state = newer
            .filter(|newer| newer.run_id() == run_id)
            .unwrap_or(state);
        KnownRun::new(run_id, Some(state), true, facts).with_status(holder.as_ref())
    }

    /// A run with its facts; `with_status` adds its status.
    pub(super) fn new(
        run_id: String,
        state: Option<SavedState>,
        is_current: bool,
        facts: RunFacts,
    ) -> KnownRun {
        KnownRun {
            run_id,
            state,
            is_current,
            facts,
            status: RunStatus::Unknown,
        }
    }

    /// Decides its status; `holder` is the process that works in the root.
    pub(super) fn with_status(mut self, holder: Option<&LockHolder>) -> KnownRun {
        self.status = self.status_with(holder);
        if !matches!(self.status, RunStatus::Running(_)) {
            self.facts.usage.end_process();
        }
        if let Some(state) = &self.state {
            self.facts.usage.raise_to(state.usage());
        }
        self
    }

    fn status_with(&self, holder: Option<&LockHolder>) -> RunStatus {
        if let Some(SavedState::Build(state)) = &self.state {
            match state.phase {
                Phase::Success => return RunStatus::Succeeded,
                Phase::Failed => return RunStatus::Failed,
                Phase::Init | Phase::Generating | Phase::Testing | Phase::Patching => {}
            }
        }
        match (&self.facts.end, holder.filter(|holder| self.is_of(holder))) {
            (Some(end), _) => ended(end),
            (None, Some(holder)) => RunStatus::Running(holder.clone()),
            (None, None) if self.facts.last_start.is_some() => RunStatus::Killed,
            (None, None) => self.status_of_state(),
        }
    }

    /// Whether the process works on this run: it has recorded a start since it has the lock. `reset` holds the lock, too.
    fn is_of(&self, holder: &LockHolder) -> bool {
        match &self.facts.last_start {
            Some(start) => Some(start) >= holder.since.as_ref(),
            None => self.is_current,
        }
    }

    fn status_of_state(&self) -> RunStatus {
        match &self.state {
            Some(SavedState::Workflow(state)) => match state.state {
                WorkflowPhase::Success => RunStatus::Succeeded,
                WorkflowPhase::Failed => RunStatus::Failed,
                WorkflowPhase::Running | WorkflowPhase::Paused => RunStatus::Unknown,
            },
            Some(SavedState::Build(_)) | None => RunStatus::Unknown,
        }
    }

    pub(super) fn kind(&self) -> RunKind {
        match &self.state {
            Some(SavedState::Build(_)) => RunKind::Build,
            Some(SavedState::Workflow(_)) => RunKind::Workflow,
            None => self.facts.kind(),
        }
    }

    /// The spec, or the start state of a workflow.
    pub(super) fn spec_file(&self) -> &str {
        match &self.state {
            Some(SavedState::Build(state)) => &state.spec_file,
            Some(SavedState::Workflow(state)) => &state.workflow,
            None => {
                let start = self.facts.start.as_ref();
                start.map_or("unknown", |start| &start.spec_file)
            }
        }
    }

    pub(super) fn started_at(&self) -> &str {
        match (&self.facts.start, &self.state) {
            (Some(start), _) => &start.ts,
            (None, Some(SavedState::Build(state))) => &state.created_at,
            (None, Some(SavedState::Workflow(state))) => &state.created_at,
            (None, None) => self.facts.updated.as_deref().unwrap_or_default(),
        }
    }

    /// Why it is over, paused or interrupted.
    pub(super) fn reason(&self) -> Option<String> {
        let of_state = match &self.state {
            Some(SavedState::Build(state)) => state.reason,
            Some(SavedState::Workflow(state)) => state.reason,
            None => None,
        };
        match &self.status {
            RunStatus::Running(_) | RunStatus::Killed | RunStatus::Unknown => None,
            RunStatus::Interrupted(end) | RunStatus::Paused(end) => Some(end.reason.clone()),
            RunStatus::Succeeded | RunStatus::Failed => {
                let of_log = || self.facts.end.as_ref().map(|end| end.reason.clone());
                of_state.map(|reason| reason.to_string()).or_else(of_log)
            }
        }
    }

    /// The highest attempt that was tested; 0 of a workflow.
    pub(super) fn attempts(&self) -> u32 {
        match &self.state {
            Some(SavedState::Build(state)) if self.facts.is_empty() => {
                let was_tested = state.last_test_exit_code.is_some();
                let is_untested = state.phase == Phase::Testing;
                u32::from(was_tested) * (state.retry_count + 1 - u32::from(is_untested))
            }
            _ if self.kind() == RunKind::Workflow => 0,
            _ => self.facts.tested,
        }
    }

    pub(super) fn usage(&self) -> UsageTotals {
        let is_known = match &self.state {
            Some(state) => state.usage().cost_usd.is_some(),
            None => self.facts.price_is_known,
        };
        self.facts.usage.totals(is_known)
    }

    /// What is left of the budget, in words.
    pub(super) fn budget_left(&self) -> Option<String> {
        let limits = self.facts.budget?;
        let (tokens, usd) = used(&self.facts.usage);
        let of_usd = |limit: f64| format!("{:.4} of {limit:.4} USD left", (limit - usd).max(0.0));
        let of_tokens = |limit: u64| {
            let left = limit.saturating_sub(tokens);
            format!("{left} of {limit} tokens left")
        };
        let parts = [limits.usd.map(of_usd), limits.tokens.map(of_tokens)];
        Some(parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    /// The first cause of the failure of the last round, uncut.
    pub(super) fn cause(&self) -> Option<String> {
        let listed = match &self.state {
            Some(SavedState::Build(state)) => whole_cause(&state.last_test_output),
            Some(SavedState::Workflow(_)) | None => None,
        };
        let failure = self.facts.failure.as_ref();
        let cause = match listed {
            Some(cause) => cause.to_owned(),
            None => printed_cause(failure?),
        };
        let streams = failure.map_or(["", ""], |failed| [&failed.stdout, &failed.stderr]);
        Some(uncut(&cause, &streams))
    }
}

/// What counts against the budget: tokens and USD.
fn used(usage: &UsageLog) -> (u64, f64) {
    Budget::default().used(usage)
}

fn ended(end: &RunEnd) -> RunStatus {
    match end.kind {
        EndKind::Succeeded => RunStatus::Succeeded,
        EndKind::Failed => RunStatus::Failed,
        EndKind::Paused => RunStatus::Paused(end.clone()),
        EndKind::Interrupted => RunStatus::Interrupted(end.clone()),
    }
}

/// The first cause in what a check printed; without any, its problem and the first lines.
fn printed_cause(failed: &FailedOutput) -> String {
    let FailedOutput {
        check,
        problem,
        stdout,
        stderr,
    } = failed;
    if let Some(cause) = causes(stdout, stderr).into_iter().next() {
        return cause.text;
    }
    let mut text = format!("check {check} failed: {problem}");
    let printed = stderr.lines().chain(stdout.lines());
    let printed: Vec<&str> = printed.filter(|line| !line.trim().is_empty()).collect();
    for line in printed.iter().take(SHOWN_LINES) {
        text += &format!("\n{line}");
    }
    if printed.len() > SHOWN_LINES {
        let more = printed.len() - SHOWN_LINES;
        text += &format!("\n… {more} more lines in the log");
    }
    text
}

/// The ids of the runs that a root has logs or kept states of.
pub(super) fn logged_runs(root: &Root) -> Result<BTreeSet<String>> {
    let logs = root.join(LOGS);
    let entries = match std::fs::read_dir(&logs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(Error::io("read", &logs, error)),
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    Ok(names
        .filter_map(|name| {
            let name = name.to_str()?;
            let id = name.strip_suffix(".log").unwrap_or(name);
            // A folder has debug files as well.
            let is_run = is_run_id(id) && (id != name || root.load_kept_state(id).is_some());
            is_run.then(|| id.to_owned())
        })
        .collect())
}
