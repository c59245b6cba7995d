//! What the runs of an entry's root have done, by their logs and states.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::known_run::{KnownRun, SavedState, logged_runs};
use crate::cli::run_facts::RunFacts;
use crate::conversation::budget::Budget;
use crate::error::Result;
use crate::state::store::Root;

/// Sums over all runs of a root.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RootFacts {
    /// What each run has spent, in USD: recorded answers, and requests whose answer is lost.
    pub spent: BTreeMap<String, f64>,
    /// How often a run was started or resumed.
    pub starts: u32,
    /// How many answers were recorded.
    pub answers: u64,
    /// The run that `state.json` is of.
    pub run_id: Option<String>,
}

impl RootFacts {
    /// Reads the logs of a root. One that does not exist has done nothing.
    pub(super) fn read(root: &Path) -> Result<RootFacts> {
        match root.is_dir() {
            true => RootFacts::of_root(&Root::open(root)?),
            false => Ok(RootFacts::default()),
        }
    }

    fn of_root(root: &Root) -> Result<RootFacts> {
        let mut current = root.load().ok().and_then(SavedState::of);
        let current_id = current.as_ref().map(|state| state.run_id().to_owned());
        let mut ids = logged_runs(root)?;
        ids.extend(current_id.clone());
        let mut facts = RootFacts {
            run_id: current_id.clone(),
            ..RootFacts::default()
        };
        for id in ids {
            let is_current = current_id.as_deref() == Some(&id);
            let state = match is_current {
                true => current.take(),
                false => root.load_kept_state(&id).and_then(SavedState::of),
            };
            let of_log = RunFacts::of_run(root, &id).unwrap_or_default();
            let run = KnownRun::new(id.clone(), state, is_current, of_log).with_status(None);
            let (_, usd) = Budget::default().used(&run.facts.usage);
            facts.spent.insert(id, usd);
            facts.starts += run.facts.starts;
            facts.answers += run.usage().llm_calls;
        }
        Ok(facts)
    }

    /// What all runs together have spent, in USD.
    pub(super) fn spent_usd(&self) -> f64 {
        // `sum` of nothing is -0.
        self.spent.values().fold(0.0, |sum, usd| sum + usd)
    }
}
