//! Carries a plan out as a whole: contents first, then the plan, then the changes; an error undoes them.

use std::os::unix::ffi::OsStrExt;

use crate::apply::changes::{ApplyConflict, look};
use crate::apply::execute::{Execution, ExecutionError};
use crate::apply::plan::ApplyPlan;
use crate::error::{Error, Result};
use crate::snapshots::objects::ObjectStore;
use crate::snapshots::records::RunSnapshots;
use crate::state::store::Root;
use crate::workspace::CarriedEntry;

/// How a plan ended.
#[derive(Debug)]
pub(crate) enum ApplyEnd {
    /// All changes are made; the plan is still there.
    Done,
    /// Targets were changed meanwhile; no change is made.
    Conflicts(Vec<ApplyConflict>),
    /// An error; all changes are undone.
    Undone(Error),
    /// An error, and another one while the changes were undone. The plan is still there.
    InBetween(Error, Error),
}

/// Stores what the targets have now, saves the plan, and makes its changes. The contents of the workspace are stored.
pub(crate) fn begin(plan: &ApplyPlan, root: &Root, store: &mut ObjectStore) -> Result<ApplyEnd> {
    store_old(plan, store)?;
    plan.save(root)?;
    run(&Execution::new(plan, store)?, plan, root)
}

/// Makes the changes of a saved plan that are not made yet.
pub(crate) fn complete(plan: &ApplyPlan, root: &Root, store: &ObjectStore) -> Result<ApplyEnd> {
    let execution = Execution::new(plan, store)?;
    let conflicts = execution.conflicts()?;
    if !conflicts.is_empty() {
        return Ok(ApplyEnd::Conflicts(conflicts));
    }
    run(&execution, plan, root)
}

/// Makes the changes, or none of them.
fn run(execution: &Execution<'_>, plan: &ApplyPlan, root: &Root) -> Result<ApplyEnd> {
    let recorded = || Ok(record(plan, root)?);
    let Err(error) = execution.forward().and_then(|()| recorded()) else {
        execution.clean()?;
        return Ok(ApplyEnd::Done);
    };
    let undone = execution.back().and_then(|()| plan.remove(root));
    Ok(match (error, undone) {
        (ExecutionError::Conflict(conflict), Ok(())) => ApplyEnd::Conflicts(vec![conflict]),
        (ExecutionError::Failed(error), Ok(())) => ApplyEnd::Undone(error),
        (ExecutionError::Conflict(conflict), Err(second)) => {
            ApplyEnd::InBetween(conflict.into(), second)
        }
        (ExecutionError::Failed(error), Err(second)) => ApplyEnd::InBetween(error, second),
    })
}

/// The conflicts that keep a saved plan from being completed.
pub(crate) fn conflicts(plan: &ApplyPlan, store: &ObjectStore) -> Result<Vec<ApplyConflict>> {
    Execution::new(plan, store)?.conflicts()
}

/// Records that the workspace was applied, unless the snapshots of the run are gone.
fn record(plan: &ApplyPlan, root: &Root) -> Result<()> {
    let snapshots = RunSnapshots::of(root, &plan.run_id);
    match snapshots.taken_in()? {
        Some(_) => snapshots.save_applied(plan.tree),
        None => Ok(()),
    }
}

/// Stores the contents that are replaced or deleted, durably.
fn store_old(plan: &ApplyPlan, store: &mut ObjectStore) -> Result<()> {
    let folders = plan.open_folders()?;
    let mut staged = store.stage();
    for change in plan.changes.iter().filter(|change| !change.old.is_absent()) {
        match look(&folders[change.folder], &change.path)? {
            CarriedEntry::File { content, .. } => drop(staged.add(&content)?),
            CarriedEntry::Link(target) => drop(staged.add(target.as_os_str().as_bytes())?),
            // Found out when the change is made.
            _ => {}
        }
    }
    staged.finish()
}
