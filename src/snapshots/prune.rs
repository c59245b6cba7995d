//! Bounds the number of snapshots in a root: the oldest go first, never those of the newest run.

use std::collections::HashSet;

use crate::error::Result;
use crate::snapshots::objects::ObjectStore;
use crate::snapshots::pending_apply::PlannedObjects;
use crate::snapshots::records::RunSnapshots;
use crate::snapshots::tree::add_live;
use crate::state::store::Root;

/// Removes the oldest snapshots beyond `keep`, and all objects that nothing refers to. The lock must be held. Returns
/// how many were removed.
pub(crate) fn prune(
    root: &Root,
    store: &mut ObjectStore,
    newest: &str,
    keep: usize,
) -> Result<usize> {
    let runs = RunSnapshots::all(root)?;
    let mut all = Vec::new();
    for (run_id, snapshots) in &runs {
        for (number, record) in snapshots.list()? {
            all.push((record.time, run_id == newest, number, snapshots));
        }
    }
    let too_many = all.len().saturating_sub(keep);
    all.retain(|(_, is_newest, ..)| !is_newest);
    all.sort_by(|one, other| (&one.0, one.2).cmp(&(&other.0, other.2)));
    let removed = all.iter().take(too_many);
    let count = removed.len();
    for (_, _, number, snapshots) in removed.clone() {
        snapshots.remove(*number)?;
    }
    // No record may come back after a power cut without its objects.
    removed
        .map(|(_, _, _, snapshots)| snapshots)
        .try_for_each(|snapshots| snapshots.sync())?;
    if count == 0 {
        return Ok(0);
    }
    remove_unused(root, store, newest)?;
    Ok(count)
}

fn remove_unused(root: &Root, store: &mut ObjectStore, newest: &str) -> Result<()> {
    let mut live = HashSet::new();
    for (run_id, snapshots) in RunSnapshots::all(root)? {
        if run_id != newest && snapshots.list()?.is_empty() {
            snapshots.remove_marks()?;
            snapshots.sync()?;
            continue;
        }
        for tree in snapshots.trees()? {
            add_live(store, tree, &mut live)?;
        }
    }
    if let Some(planned) = PlannedObjects::of(root)? {
        add_live(store, planned.tree, &mut live)?;
        live.extend(planned.objects);
    }
    store.keep_only(&live)
}
