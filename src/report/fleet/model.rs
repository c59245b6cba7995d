//! The data of the page of a fleet.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a page says of a fleet.
pub(crate) struct FleetReport {
    pub(crate) title: String,
    /// `SUCCESS`, `FAILED` or `PAUSED`.
    pub(crate) outcome: &'static str,
    /// How many entries are in each state, in words.
    pub(crate) counts: String,
    pub(crate) budget_usd: Option<f64>,
    pub(crate) spent_usd: f64,
    pub(crate) reserved_usd: f64,
    pub(crate) next: Option<String>,
    pub(crate) entries: Vec<ReportedEntry>,
    pub(crate) solved: Vec<SolvedRow>,
}

/// An entry of a fleet.
pub(crate) struct ReportedEntry {
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) variables: Map<String, Value>,
    /// The outcome of its run, or what it waits for.
    pub(crate) outcome: String,
    pub(crate) reason: String,
    pub(crate) cause: String,
    pub(crate) starts: u32,
    pub(crate) spent_usd: f64,
    pub(crate) seconds: Option<f64>,
    /// The report of its run, relative to the page.
    pub(crate) link: Option<String>,
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
