//! The state of a fleet and of its entries, as JSON and pages show it.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::state::run::UsageTotals;

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryState {
    /// SUCCESS or FAILED.
    Over,
    Refused,
    Paused,
    Cancelled,
    /// A process has the lock of its root.
    Running,
    /// It was started and has no result.
    Interrupted,
    Waiting,
    /// The last command did not ask for it, or its spec is gone.
    LeftOut,
}

/// An entry with what is known of it.
#[derive(Debug, Serialize)]
pub(crate) struct EntrySummary {
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) variables: Map<String, Value>,
    /// The number of the repetition, from 0.
    pub(crate) repeat: u32,
    pub(crate) state: EntryState,
    /// `null` where it has no result.
    pub(crate) outcome: Option<&'static str>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) exit_code: Option<u8>,
    pub(crate) starts: u32,
    pub(crate) run_id: Option<String>,
    pub(crate) usage: Option<UsageTotals>,
    /// What all runs of its root have spent, in USD.
    pub(crate) spent_usd: f64,
    pub(crate) seconds: Option<f64>,
    pub(crate) host: Option<String>,
    pub(crate) root: String,
    /// Whether it failed and `fleet resume --failed` goes on with it.
    #[serde(skip)]
    pub(crate) can_continue: bool,
}

impl EntrySummary {
    pub(crate) fn has_succeeded(&self) -> bool {
        self.outcome == Some("SUCCESS")
    }

    /// The outcome of its run, or what it waits for.
    pub(crate) fn outcome_word(&self) -> &'static str {
        match (self.outcome, self.state) {
            (_, EntryState::LeftOut) => "left out",
            (Some(outcome), _) => outcome,
            (None, EntryState::Running) => "RUNNING",
            (None, EntryState::Interrupted) => "INTERRUPTED",
            (None, EntryState::Cancelled) => "CANCELLED",
            (None, _) => "waiting",
        }
    }
}

/// How many entries are in each state.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct EntryCounts {
    pub(crate) entries: usize,
    pub(crate) success: usize,
    pub(crate) failed: usize,
    pub(crate) refused: usize,
    pub(crate) paused: usize,
    pub(crate) cancelled: usize,
    pub(crate) running: usize,
    pub(crate) interrupted: usize,
    pub(crate) waiting: usize,
    pub(crate) left_out: usize,
}

impl EntryCounts {
    /// `3 succeeded, 1 failed`.
    pub(crate) fn text(&self) -> String {
        let parts = [
            (self.success, "succeeded"),
            (self.failed, "failed"),
            (self.refused, "refused"),
            (self.paused, "paused"),
            (self.cancelled, "cancelled"),
            (self.running, "running"),
            (self.interrupted, "interrupted"),
            (self.waiting, "waiting"),
            (self.left_out, "left out"),
        ];
        let parts = parts.iter().filter(|(count, _)| 0 < *count);
        let parts: Vec<String> = parts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        match parts.is_empty() {
            true => "no entries".into(),
            false => parts.join(", "),
        }
    }
}

/// The result of a fleet.
#[derive(Debug, Serialize)]
pub(crate) struct FleetSummary {
    /// `null` before a plan is written.
    pub(crate) fleet_id: Option<String>,
    pub(crate) outcome: &'static str,
    pub(crate) exit_code: u8,
    pub(crate) counts: EntryCounts,
    pub(crate) budget_usd: Option<f64>,
    pub(crate) spent_usd: f64,
    pub(crate) reserved_usd: f64,
    pub(crate) entries: Vec<EntrySummary>,
    pub(crate) notes: Vec<String>,
    pub(crate) next: Option<String>,
}

/// A fleet with the results of its matrices: the object of `fleet report --json`, and what its page shows.
#[derive(Serialize)]
pub(crate) struct FleetReport {
    #[serde(flatten)]
    pub(crate) summary: FleetSummary,
    pub(crate) solved: Vec<SolvedRow>,
    /// The reports of runs, relative to the page, by entry.
    #[serde(skip)]
    pub(crate) links: HashMap<String, String>,
}

/// An entry as it counts for what was solved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CountedEntry {
    pub(crate) spec: String,
    pub(crate) variables: Map<String, Value>,
    /// `None`: it is not over.
    pub(crate) is_solved: Option<bool>,
}

/// Entries with one value of a variable, or all of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SolvedRow {
    /// `null` of all entries.
    pub(crate) key: Option<String>,
    pub(crate) value: Value,
    pub(crate) solved: usize,
    /// Those that are not over are not solved.
    pub(crate) total: usize,
    pub(crate) pass_at: Vec<PassAt>,
}

/// The mean over all specs of the probability that one of `k` tries solves it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct PassAt {
    pub(crate) k: usize,
    pub(crate) probability: f64,
}
