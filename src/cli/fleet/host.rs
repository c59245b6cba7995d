//! What the driver of a fleet needs to know of runs, and where it shows its progress.

use std::time::Instant;

use serde_json::json;

use crate::cli::fleet::progress::FleetConsole;
use crate::cli::fleet::root_facts::RootFacts;
use crate::error::{Error, Result};
use crate::fleet::driver::{DriverEvent, DriverHost};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::{Ledger, Micros};
use crate::fleet::plan::FleetEntry;
use crate::fleet::task_result::{TaskFacts, result_object};
use crate::state::reason::Reason;
use crate::state::run::{UsageTotals, timestamp};
use crate::state::store::{Root, host_name};

pub(super) struct RunHost {
    folder: FleetFolder,
    console: FleetConsole,
}

impl RunHost {
    pub(super) fn new(folder: FleetFolder, console: FleetConsole) -> RunHost {
        RunHost { folder, console }
    }

    pub(super) fn into_console(self) -> FleetConsole {
        self.console
    }
}

impl DriverHost for RunHost {
    fn recorded_answers(&self, name: &str) -> u64 {
        RootFacts::read(&self.folder.root(name)).map_or(0, |facts| facts.answers)
    }

    fn give_up(&self, entry: &FleetEntry, printed: &str) -> Result<bool> {
        let path = self.folder.create_root(&entry.name)?;
        let root = Root::open(&path)?;
        let _lock = match root.lock() {
            Ok(lock) => lock,
            Err(Error::Locked(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        let facts = RootFacts::read(&path)?;
        let ledger = Ledger::of(&self.folder);
        ledger.settle(&entry.name, Micros::from_usd(facts.spent_usd()))?;
        let now = timestamp();
        let task = TaskFacts {
            spec_hash: entry.spec_hash.clone(),
            needs_usd: None,
            host: host_name(),
            started_at: now.clone(),
            ended_at: now,
        };
        let mut message =
            "the task ended three times in a row without a result or a new answer".to_owned();
        if !printed.trim().is_empty() {
            message += &format!("\n{}", printed.trim_end());
        }
        let outcome = json!({
            "outcome": "FAILED",
            "exit_code": Reason::Lost.exit_code(),
            "reason": Reason::Lost,
            "run_id": facts.run_id,
            "retry_count": 0,
            "usage": UsageTotals::none(true),
            "message": message,
            "notes": [],
            "checks": [],
            "next": null,
        });
        let file = self.folder.result_file(&entry.name);
        self.folder
            .write_json(&file, &result_object(outcome, &task))?;
        Ok(true)
    }

    fn show(&mut self, event: DriverEvent<'_>) {
        self.console.show(event);
    }

    fn next_draw(&self) -> Option<Instant> {
        self.console.next_draw()
    }
}
