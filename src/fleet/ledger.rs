//! What the entries of a fleet have spent or may spend, as one sum that never exceeds the budget.
//!
//! `ledger.json` is replaced under a lock that all tasks on all machines share. Before a request is sent, what its root has
//! spent and the most that it can cost are reserved. Only the process that has the lock of a root changes what is
//! reserved for it; after a kill that is too much, never too little, and the next holder corrects it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::conversation::budget::SharedBudget;
use crate::error::{Error, Result};
use crate::fleet::folder::FleetFolder;
use crate::state::file_lock::{LockWait, lock_file};
use crate::state::reason::Reason;

const LEDGER_FILE: &str = "ledger.json";
const LEDGER_LOCK: &str = "ledger.lock";
const MICROS_PER_USD: f64 = 1e6;
/// Sums of dollars have an error far below this many micro-dollars, which is not rounded up.
const ROUNDING: f64 = 1e-3;

/// An amount in micro-dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Micros(pub(crate) u64);

impl Micros {
    /// An amount in USD, rounded up.
    pub(crate) fn from_usd(usd: f64) -> Micros {
        Micros((usd * MICROS_PER_USD - ROUNDING).ceil().max(0.0) as u64)
    }

    pub(crate) fn usd(self) -> f64 {
        self.0 as f64 / MICROS_PER_USD
    }

    pub(crate) fn plus(self, other: Micros) -> Micros {
        Micros(self.0.saturating_add(other.0))
    }

    pub(crate) fn minus(self, other: Micros) -> Micros {
        Micros(self.0.saturating_sub(other.0))
    }
}

/// The content of `ledger.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerState {
    /// `None`: no limit.
    pub(crate) budget: Option<Micros>,
    pub(crate) reserved: BTreeMap<String, Micros>,
}

impl LedgerState {
    /// The sum of all that is reserved.
    pub(crate) fn sum(&self) -> Micros {
        self.reserved
            .values()
            .fold(Micros(0), |sum, amount| sum.plus(*amount))
    }

    /// What can still be reserved; `None` without a limit.
    pub(crate) fn left(&self) -> Option<Micros> {
        self.budget.map(|budget| budget.minus(self.sum()))
    }

    /// Reserves what an entry has spent and may spend next. Where that does not fit, only what it has spent stays
    /// reserved, and `false` is returned.
    pub(crate) fn reserve(&mut self, name: &str, spent: Micros, next: Micros) -> bool {
        self.settle(name, spent);
        let fits = self.left().is_none_or(|left| next <= left);
        if fits {
            self.settle(name, spent.plus(next));
        }
        fits
    }

    /// Reserves what an entry has spent.
    pub(crate) fn settle(&mut self, name: &str, spent: Micros) {
        self.reserved.insert(name.to_owned(), spent);
    }
}

/// The ledger of a fleet.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    folder: FleetFolder,
}

impl Ledger {
    pub(crate) fn of(folder: &FleetFolder) -> Ledger {
        Ledger {
            folder: folder.clone(),
        }
    }

    /// Reads it without its lock: it is replaced whole.
    pub(crate) fn read(&self) -> Result<LedgerState> {
        let path = self.folder.file(LEDGER_FILE);
        self.folder.read_json(&path)?.ok_or_else(|| {
            Error::Spec(format!(
                "{}: the ledger of the fleet is missing\nhelp: without it nobody knows what was spent; \
                 begin another fleet: --out DIR",
                path.display()
            ))
        })
    }

    /// Writes an empty one if there is none.
    pub(crate) fn create(&self) -> Result<()> {
        let path = self.folder.file(LEDGER_FILE);
        match path.exists() {
            true => Ok(()),
            false => self.folder.write_json(&path, &LedgerState::default()),
        }
    }

    /// Takes its lock, which is held shortly.
    pub(crate) fn lock(&self, cancel: &CancelToken) -> Result<File> {
        let file = self.folder.open_lock(LEDGER_LOCK)?;
        let path = self.folder.file(LEDGER_LOCK);
        let locked = lock_file(file, None, cancel);
        match locked.map_err(|error| Error::io("lock", &path, error))? {
            LockWait::Locked(file) => Ok(file),
            LockWait::Stopped(signal) => Err(Error::Stopped(signal)),
            LockWait::TimedOut => Err(Error::Bug("a wait without limit ended".into())),
        }
    }

    /// Changes it under its lock.
    pub(crate) fn change<T>(
        &self,
        cancel: &CancelToken,
        change: impl FnOnce(&mut LedgerState) -> Result<T>,
    ) -> Result<T> {
        let _lock = self.lock(cancel)?;
        let before = self.read()?;
        let mut state = before.clone();
        let changed = change(&mut state)?;
        if state != before {
            let path = self.folder.file(LEDGER_FILE);
            self.folder.write_json(&path, &state)?;
        }
        Ok(changed)
    }

    /// Sets what an entry has spent. A signal that stops the command does not prevent it: locks are held only shortly.
    /// Only the caller changes this entry, so nothing is written where it is right already; an entry that is not there has
    /// nothing reserved.
    pub(crate) fn settle(&self, name: &str, spent: Micros) -> Result<()> {
        let reserved = self.read()?.reserved;
        if reserved.get(name).copied().unwrap_or_default() == spent {
            return Ok(());
        }
        let cancel = CancelToken::never()
            .map_err(|error| Error::io("lock", &self.folder.file(LEDGER_LOCK), error))?;
        self.change(&cancel, |state| {
            state.settle(name, spent);
            Ok(())
        })
    }

    /// Sets the limit of the sum.
    pub(crate) fn set_budget(&self, usd: f64, cancel: &CancelToken) -> Result<()> {
        let budget = Micros((usd * MICROS_PER_USD).round() as u64);
        self.change(cancel, |state| {
            let sum = state.sum();
            if budget < sum {
                return Err(Error::Usage(format!(
                    "invalid --budget {usd}: {:.6} USD are spent or reserved already\n\
                     help: give at least that much",
                    sum.usd()
                )));
            }
            state.budget = Some(budget);
            Ok(())
        })
    }
}

/// The share of one entry in the ledger, while its task has the lock of its root.
pub(crate) struct TaskBudget {
    ledger: Ledger,
    name: String,
    /// What each run of the root had spent when the task began, in USD.
    spent_before: BTreeMap<String, f64>,
    cancel: CancelToken,
    needs: Mutex<Option<Micros>>,
}

impl TaskBudget {
    pub(crate) fn new(
        ledger: Ledger,
        name: &str,
        spent_before: BTreeMap<String, f64>,
        cancel: CancelToken,
    ) -> TaskBudget {
        TaskBudget {
            ledger,
            name: name.to_owned(),
            spent_before,
            cancel,
            needs: Mutex::default(),
        }
    }

    /// What the request that did not fit may cost.
    pub(crate) fn needs(&self) -> Option<Micros> {
        *self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedBudget for TaskBudget {
    fn reserve(&self, run_id: &str, used: f64, next: f64) -> Result<()> {
        let others = self.spent_before.iter().filter(|(id, _)| *id != run_id);
        let before = others.fold(0.0, |sum, (_, usd)| sum + usd);
        let (spent, next) = (Micros::from_usd(before + used), Micros::from_usd(next));
        let left = self.ledger.change(&self.cancel, |state| {
            let fits = state.reserve(&self.name, spent, next);
            Ok((!fits).then(|| state.left().unwrap_or_default()))
        })?;
        let Some(left) = left else {
            return Ok(());
        };
        *self.needs.lock().unwrap_or_else(PoisonError::into_inner) = Some(next);
        Err(Error::Paused(
            Reason::Budget,
            format!(
                "budget of the fleet: {:.4} USD are left, and the next request may cost {:.4}",
                left.usd(),
                next.usd()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up() {
        for (usd, micros) in [
            (0.0, 0),
            (0.1 + 0.2, 300_000),
            (0.000_000_4, 1),
            (1.000_000_5, 1_000_001),
            (-1.0, 0),
        ] {
            assert_eq!(Micros::from_usd(usd), Micros(micros), "{usd}");
        }
    }

    #[test]
    fn what_does_not_fit_leaves_what_is_spent() {
        let mut ledger = LedgerState {
            budget: Some(Micros(100)),
            ..LedgerState::default()
        };
        assert!(ledger.reserve("a", Micros(0), Micros(60)));
        assert!(ledger.reserve("b", Micros(0), Micros(40)));
        assert!(!ledger.reserve("b", Micros(30), Micros(11)));
        assert_eq!(ledger.reserved["b"], Micros(30));
        assert!(ledger.reserve("b", Micros(30), Micros(10)));
        // What was spent counts even where the limit is passed.
        ledger.settle("a", Micros(90));
        assert_eq!(ledger.left(), Some(Micros(0)));
        assert!(!ledger.reserve("b", Micros(30), Micros(1)));
    }

    #[test]
    fn a_ledger_is_replaced_whole_and_keeps_its_budget() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::of(&FleetFolder::new(folder.path()));
        let cancel = CancelToken::never().unwrap();
        assert!(ledger.read().is_err());
        ledger.create().unwrap();
        ledger.set_budget(0.5, &cancel).unwrap();
        let task = |name: &str, before: &[(&str, f64)]| {
            let before = before.iter().map(|(id, usd)| ((*id).to_owned(), *usd));
            TaskBudget::new(ledger.clone(), name, before.collect(), cancel.clone())
        };
        let (a, b) = (task("a", &[]), task("b", &[("old", 0.1), ("run", 9.0)]));
        a.reserve("run", 0.0, 0.25).unwrap();
        // What this run has spent is in `used`; only the other runs are added to it.
        b.reserve("run", 0.05, 0.1).unwrap();
        let error = a.reserve("run", 0.25, 0.01).unwrap_err();
        assert_eq!((error.reason(), error.exit_code()), (Reason::Budget, 4));
        assert_eq!(a.needs(), Some(Micros(10_000)));
        assert!(ledger.set_budget(0.4, &cancel).is_err());
        ledger.create().unwrap();
        let state = ledger.read().unwrap();
        assert_eq!(state.budget, Some(Micros(500_000)));
        assert_eq!(state.sum(), Micros(500_000));
    }

    /// A step of a schedule: which entry, what happens, and how much.
    type Step = (usize, u8, u64);

    /// An entry as its log and the model's server know it.
    #[derive(Default)]
    struct SimulatedRoot {
        is_held: bool,
        spent: u64,
        open: Option<u64>,
    }

    /// Runs a schedule of starts, requests, answers, losses and kills; returns what the server has billed.
    fn billed(budget: u64, steps: &[Step]) -> u64 {
        let mut ledger = LedgerState {
            budget: Some(Micros(budget)),
            ..LedgerState::default()
        };
        let mut roots: [SimulatedRoot; 4] = Default::default();
        let mut billed = 0;
        for (entry, action, amount) in steps {
            let (name, root) = (entry.to_string(), &mut roots[*entry]);
            match action {
                // The lock of the root lets one task in; a second one waits and changes nothing.
                0 if !root.is_held => {
                    root.is_held = true;
                    // A request without a recorded answer counts with its worst case.
                    root.spent += root.open.take().unwrap_or(0);
                }
                1 if root.is_held && root.open.is_none() => {
                    if ledger.reserve(&name, Micros(root.spent), Micros(*amount)) {
                        root.open = Some(*amount);
                    } else {
                        root.is_held = false;
                    }
                }
                // Killed between the ledger and the log: nothing was sent.
                2 if root.is_held && root.open.is_none() => {
                    ledger.reserve(&name, Micros(root.spent), Micros(*amount));
                    root.is_held = false;
                }
                // An answer costs at most the worst case; it is recorded, or the task is killed before that.
                3 | 4 if root.is_held => {
                    if let Some(worst) = root.open {
                        let cost = amount % (worst + 1);
                        billed += cost;
                        match action {
                            3 => {
                                root.spent += cost;
                                root.open = None;
                            }
                            _ => root.is_held = false,
                        }
                    }
                }
                5 if root.is_held && root.open.is_none() => {
                    ledger.settle(&name, Micros(root.spent));
                    root.is_held = false;
                }
                6 => root.is_held = false,
                _ => {}
            }
            let known: u64 = roots
                .iter()
                .map(|root| root.spent + root.open.unwrap_or(0))
                .sum();
            assert!(
                known <= ledger.sum().0,
                "{known} are spent, {:?}",
                ledger.reserved
            );
        }
        billed
    }

    proptest::proptest! {
        #[test]
        fn no_schedule_bills_more_than_the_budget(
            budget in 0u64..2000,
            steps in proptest::collection::vec((0usize..4, 0u8..7, 0u64..600), 0..200),
        ) {
            let billed = billed(budget, &steps);
            proptest::prop_assert!(billed <= budget, "{} of {}", billed, budget);
        }
    }
}
