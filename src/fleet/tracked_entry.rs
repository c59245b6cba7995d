//! An entry while a driver works on it.

use std::time::Instant;

use crate::fleet::engine::EngineTask;
use crate::fleet::ledger::Micros;
use crate::fleet::plan::FleetEntry;
use crate::fleet::task_result::{TaskOutcome, TaskResult};

/// An entry that this driver works on.
pub(crate) struct DriverEntry {
    pub(crate) index: usize,
    pub(crate) entry: FleetEntry,
    /// The provider that its requests go to.
    pub(crate) provider: String,
}

/// What a driver knows of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its result was not looked at yet.
    Unknown,
    Waiting,
    Out,
    Succeeded,
    /// FAILED or REFUSED.
    Failed,
    /// Paused for good, or cancelled.
    Left,
}

pub(super) struct TrackedEntry {
    pub(super) entry: DriverEntry,
    pub(super) standing: Standing,
    /// When the result that it had when it was started was made.
    pub(super) result_before: Option<String>,
    pub(super) needs: Option<Micros>,
    pub(super) is_paused: bool,
    pub(super) losses: u32,
    pub(super) answers: u64,
    pub(super) pauses: u32,
    pub(super) not_before: Option<Instant>,
}

impl TrackedEntry {
    pub(super) fn task(&self) -> EngineTask {
        EngineTask {
            index: self.entry.index,
            name: self.entry.entry.name.clone(),
        }
    }

    /// Takes the result over that an earlier driver left.
    pub(super) fn begin(&mut self, result: Option<&TaskResult>) {
        self.standing = Standing::Waiting;
        let Some(result) = result else {
            return;
        };
        if result.is_over(&self.entry.entry) {
            self.standing = match result.outcome {
                TaskOutcome::Success => Standing::Succeeded,
                _ => Standing::Failed,
            };
            return;
        }
        self.is_paused = result.outcome == TaskOutcome::Paused;
        self.wait_again(result);
    }

    /// It can be started again, beside this result.
    pub(super) fn wait_again(&mut self, result: &TaskResult) {
        self.standing = Standing::Waiting;
        self.result_before = Some(result.task.ended_at.clone());
        // A spec that has changed since may need less.
        let needs = result.task.needs_usd;
        let needs = needs.filter(|_| result.task.spec_hash == self.entry.entry.spec_hash);
        self.needs = needs.map(Micros::from_usd);
        self.not_before = None;
    }
}
