//! The state of a fleet, from its files alone.

use std::collections::BTreeSet;

use crate::cli::fleet::root_facts::RootFacts;
use crate::error::{Error, Result};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::{Ledger, LedgerState};
use crate::fleet::plan::{FleetEntry, FleetPlan};
use crate::fleet::task_result::{TaskOutcome, TaskResult};
use crate::report::fleet::model::{EntryCounts, EntryState, EntrySummary, FleetSummary};
use crate::state::reason::Reason;
use crate::state::store::Root;
use crate::text::quote::shell_word;

/// Reads the state of a fleet. Takes no lock.
pub(super) fn summarize(folder: &FleetFolder, plan: &FleetPlan) -> Result<FleetSummary> {
    let ledger = match folder.has_plan() {
        true => Ledger::of(folder).read()?,
        // Of a plan that is not written.
        false => LedgerState::default(),
    };
    let cancelled = folder.cancelled()?;
    let entries: Vec<EntrySummary> = plan
        .entries
        .iter()
        .map(|entry| entry_summary(folder, entry, &cancelled))
        .collect::<Result<_>>()?;
    let counts = counts(&entries);
    let (outcome, exit_code) = counts.outcome();
    Ok(FleetSummary {
        fleet_id: Some(plan.fleet_id.clone()),
        outcome,
        exit_code,
        counts,
        budget_usd: ledger.budget.map(|budget| budget.usd()),
        spent_usd: entries.iter().fold(0.0, |sum, entry| sum + entry.spent_usd),
        reserved_usd: ledger.sum().usd(),
        entries,
        notes: Vec::new(),
        next: None,
    })
}

fn entry_summary(
    folder: &FleetFolder,
    entry: &FleetEntry,
    cancelled: &BTreeSet<String>,
) -> Result<EntrySummary> {
    let result = TaskResult::load(folder, &entry.name)?
        .filter(|result| result.task.spec_hash == entry.spec_hash);
    let root = folder.root(&entry.name);
    let facts = RootFacts::read(&root)?;
    // Only where it decides: finding out takes a millisecond or more.
    let is_running = || Root::open(&root).is_ok_and(|root| root.lock_holder().is_some());
    let state = match &result {
        Some(result) if decides(result, entry) => EntryState::Over,
        _ if is_running() => EntryState::Running,
        _ if entry.left_out => EntryState::LeftOut,
        _ if cancelled.contains(&entry.name) => EntryState::Cancelled,
        Some(result) if result.outcome == TaskOutcome::Refused => EntryState::Refused,
        Some(result) if result.outcome == TaskOutcome::Paused => EntryState::Paused,
        _ if facts.starts > 0 => EntryState::Interrupted,
        _ => EntryState::Waiting,
    };
    let result = result.filter(|result| match state {
        EntryState::Over | EntryState::Refused | EntryState::Paused => true,
        EntryState::LeftOut => result.outcome == TaskOutcome::Failed,
        _ => false,
    });
    let result = result.as_ref();
    let was_cancelled = (state == EntryState::Cancelled).then(|| Reason::Cancelled.to_string());
    Ok(EntrySummary {
        can_continue: !entry.left_out && result.is_some_and(can_continue),
        name: entry.name.clone(),
        spec: entry.spec.clone(),
        variables: entry.variables.clone(),
        repeat: entry.repeat,
        state,
        outcome: result.map(|result| result.outcome.word()),
        reason: result.map(|result| result.reason.clone()).or(was_cancelled),
        message: result.map(|result| result.message.clone()),
        exit_code: result.map(|result| result.exit_code),
        starts: facts.starts,
        spent_usd: facts.spent_usd(),
        run_id: result
            .and_then(|result| result.run_id.clone())
            .or(facts.run_id),
        usage: result.map(|result| result.usage),
        seconds: result.and_then(seconds),
        host: result.map(|result| result.task.host.clone()),
        root: FleetFolder::relative_root(&entry.name),
    })
}

/// Whether an entry is over with this result. A failure that is not asked for any longer does not decide how the fleet
/// ends.
fn decides(result: &TaskResult, entry: &FleetEntry) -> bool {
    match result.outcome {
        TaskOutcome::Success => true,
        TaskOutcome::Failed => !entry.left_out && result.is_over(entry),
        TaskOutcome::Refused | TaskOutcome::Paused => false,
    }
}

/// Whether `fleet resume --failed` goes on with a run that ended so.
fn can_continue(result: &TaskResult) -> bool {
    let reason = Reason::from_word(&result.reason);
    result.outcome == TaskOutcome::Failed
        && reason.is_some_and(|reason| reason.is_continuable() || reason == Reason::Lost)
}

impl FleetSummary {
    /// What a command that was refused, or stopped before it began, prints.
    pub(super) fn refused(error: &Error) -> FleetSummary {
        FleetSummary {
            fleet_id: None,
            outcome: match error {
                Error::Stopped(_) => "INTERRUPTED",
                _ => "REFUSED",
            },
            exit_code: error.exit_code(),
            counts: EntryCounts::default(),
            budget_usd: None,
            spent_usd: 0.0,
            reserved_usd: 0.0,
            entries: Vec::new(),
            notes: vec![error.to_string()],
            next: None,
        }
    }

    /// What to do about entries that the budget has paused.
    pub(super) fn money_note(&self, folder: &FleetFolder) -> Option<String> {
        let is_paused = |entry: &&EntrySummary| {
            entry.state == EntryState::Paused
                && entry.reason.as_deref() == Some(Reason::Budget.word())
        };
        let paused = self.entries.iter().filter(is_paused).count();
        let path = shell_word(&folder.path.to_string_lossy());
        (0 < paused).then(|| {
            format!(
                "the budget is used up for {}: `orchestrator fleet resume {path} --budget MORE` goes on",
                entries_text(paused)
            )
        })
    }

    /// Sets the command that goes on, if something is left.
    pub(super) fn find_next(&mut self, folder: &FleetFolder) {
        let flag = match self.counts.has_unfinished() {
            true => "",
            false if self.entries.iter().any(|entry| entry.can_continue) => " --failed",
            false => return,
        };
        let path = shell_word(&folder.path.to_string_lossy());
        self.next = Some(format!("orchestrator fleet resume {path}{flag}"));
    }

    /// The object on stdout.
    pub(super) fn json(&self) -> Result<String> {
        let text = serde_json::to_string(self)
            .map_err(|error| Error::Bug(format!("cannot serialize the state: {error}")))?;
        Ok(text + "\n")
    }
}

/// `1 entry`, `3 entries`.
pub(super) fn entries_text(count: usize) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{count} entries"),
    }
}

/// An amount as people write it: in cents if that is exact.
pub(super) fn budget_text(usd: f64) -> String {
    match (usd * 100.0).fract().abs() < 1e-6 {
        true => format!("${usd:.2}"),
        false => format!("${usd}"),
    }
}

/// How long the task took that wrote the result.
fn seconds(result: &TaskResult) -> Option<f64> {
    let time = |text: &str| chrono::DateTime::parse_from_rfc3339(text).ok();
    let took = time(&result.task.ended_at)? - time(&result.task.started_at)?;
    Some(took.num_milliseconds() as f64 / 1000.0)
}

fn counts(entries: &[EntrySummary]) -> EntryCounts {
    let mut counts = EntryCounts {
        entries: entries.len(),
        ..EntryCounts::default()
    };
    for entry in entries {
        let count = match entry.state {
            EntryState::Over if entry.has_succeeded() => &mut counts.success,
            EntryState::Over => &mut counts.failed,
            EntryState::Refused => &mut counts.refused,
            EntryState::Paused => &mut counts.paused,
            EntryState::Cancelled => &mut counts.cancelled,
            EntryState::Running => &mut counts.running,
            EntryState::Interrupted => &mut counts.interrupted,
            EntryState::Waiting => &mut counts.waiting,
            EntryState::LeftOut => &mut counts.left_out,
        };
        *count += 1;
    }
    counts
}

impl EntryCounts {
    /// The word and the exit code of the whole.
    fn outcome(&self) -> (&'static str, u8) {
        let unfinished =
            self.paused + self.cancelled + self.running + self.interrupted + self.waiting;
        match (self.failed + self.refused, unfinished) {
            (0, 0) => ("SUCCESS", 0),
            (0, _) => ("PAUSED", crate::error::PAUSED_EXIT_CODE),
            (_, _) => ("FAILED", 1),
        }
    }

    /// Whether entries are left that a further command can work on.
    fn has_unfinished(&self) -> bool {
        0 < self.refused
            + self.paused
            + self.cancelled
            + self.running
            + self.interrupted
            + self.waiting
    }
}
