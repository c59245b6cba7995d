//! The file of a run's log: where it is, and what is recorded about its repair.

use std::path::PathBuf;

use crate::conversation::event_log::EventLog;
use crate::error::Result;
use crate::events::{Event, MAIN_AGENT};
use crate::state::journal::JournalRepair;
use crate::state::store::Root;

/// The log of a run.
pub(super) fn log_file(root: &Root, run_id: &str) -> PathBuf {
    root.join("logs").join(format!("{run_id}.log"))
}

/// Records what was unreadable in the log.
pub(super) fn record_repair(log: &EventLog, repair: JournalRepair) -> Result<()> {
    if let Some(cut) = repair.cut {
        log.record(Event::LogMended {
            agent_id: MAIN_AGENT.into(),
            dropped_bytes: cut.dropped_bytes,
            dropped: cut.dropped,
            kept_as: cut.kept_as,
        })?;
    }
    for line in repair.skipped {
        log.note(format!(
            "line {line} of the log is unreadable and was skipped"
        ))?;
    }
    Ok(())
}
