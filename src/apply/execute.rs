//! Makes the changes of a plan, or undoes them.
//!
//! Deleted files are moved aside and replaced ones change places with the new ones, so until the end the old files are
//! there under their temporary names. Every step is skipped where it is done already: after a crash the same steps
//! complete the plan.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::apply::changes::{ApplyConflict, late_conflict, look};
use crate::apply::file_state::FileState;
use crate::apply::plan::{ApplyPlan, PlannedChange};
use crate::error::{Error, Result};
use crate::snapshots::objects::ObjectStore;
use crate::workspace::{CarriedContent, CarriedEntry, CarryFolder, EntryMeta, PathError};

/// Up to this many files are made durable one by one; more are cheaper with one sync of the file system.
const SYNC_EACH: usize = 16;

/// A plan whose changes are made.
pub(crate) struct Execution<'a> {
    plan: &'a ApplyPlan,
    folders: Vec<CarryFolder>,
    store: &'a ObjectStore,
}

/// Why a plan was not carried out.
#[derive(Debug)]
pub(crate) enum ExecutionError {
    /// Another program changed a target at the same time.
    Conflict(ApplyConflict),
    Failed(Error),
}

impl From<Error> for ExecutionError {
    fn from(error: Error) -> ExecutionError {
        ExecutionError::Failed(error)
    }
}

type ExecutionResult<T = ()> = std::result::Result<T, ExecutionError>;

impl<'a> Execution<'a> {
    pub(crate) fn new(plan: &'a ApplyPlan, store: &'a ObjectStore) -> Result<Execution<'a>> {
        Ok(Execution {
            plan,
            folders: plan.open_folders()?,
            store,
        })
    }

    /// The targets that are neither as they were before the plan, nor as they are after it.
    pub(crate) fn conflicts(&self) -> Result<Vec<ApplyConflict>> {
        let mut conflicts = Vec::new();
        for change in &self.plan.changes {
            let found = self.found(change)?;
            let is_known = |state| self.plan.is_state(change, &found, state);
            if !is_known(change.old) && !is_known(change.new) {
                conflicts.push(ApplyConflict {
                    target: self.plan.target(change),
                    problem: both_states(change),
                });
            }
        }
        Ok(conflicts)
    }

    /// Makes all changes, durably. The old files stay under their temporary names until `clean`.
    pub(crate) fn forward(&self) -> ExecutionResult {
        for change in self.deletions() {
            self.move_aside(change)?;
        }
        for removed in &self.plan.removed_folders {
            let folder = &self.folders[removed.folder];
            let done = folder.remove_folder(&removed.path);
            done.map_err(|error| folder.failed("remove", &removed.path, error))?;
        }
        for made in &self.plan.made_folders {
            let folder = &self.folders[made.folder];
            let done = folder.make_folder(&made.path, None);
            done.map_err(|error| folder.failed("make", &made.path, error))?;
        }
        for change in self.writes() {
            self.stage_new(change)?;
        }
        if !self.syncs_each() {
            self.sync_all()?;
        }
        for change in self.writes() {
            self.place(change)?;
        }
        Ok(self.sync_folders()?)
    }

    /// Removes everything temporary; the changes are final.
    pub(crate) fn clean(&self) -> Result<()> {
        for change in &self.plan.changes {
            self.remove_temporary(change)?;
        }
        self.sync_folders()
    }

    /// Brings every target back that is as after the plan.
    pub(crate) fn back(&self) -> Result<()> {
        for change in self.writes() {
            self.revert(change)?;
        }
        for made in self.plan.made_folders.iter().rev() {
            let folder = &self.folders[made.folder];
            let done = folder.remove_folder(&made.path);
            done.map_err(|error| folder.failed("remove", &made.path, error))?;
        }
        for removed in self.plan.removed_folders.iter().rev() {
            let folder = &self.folders[removed.folder];
            let done = folder.make_folder(&removed.path, removed.mode);
            done.map_err(|error| folder.failed("make", &removed.path, error))?;
        }
        for change in self.deletions() {
            self.revert(change)?;
        }
        self.sync_folders()
    }

    fn deletions(&self) -> impl Iterator<Item = &'a PlannedChange> {
        let changes = self.plan.changes.iter();
        changes.filter(|change| change.new.is_absent())
    }

    fn writes(&self) -> impl Iterator<Item = &'a PlannedChange> {
        let changes = self.plan.changes.iter();
        changes.filter(|change| !change.new.is_absent())
    }

    fn syncs_each(&self) -> bool {
        self.plan.changes.len() <= SYNC_EACH
    }

    fn folder(&self, change: &PlannedChange) -> &CarryFolder {
        &self.folders[change.folder]
    }

    fn found(&self, change: &PlannedChange) -> Result<CarriedEntry> {
        look(self.folder(change), &change.path)
    }

    /// The state of what has the temporary name.
    fn temporary_state(&self, change: &PlannedChange) -> Result<Option<FileState>> {
        look(self.folder(change), &change.temporary).map(|found| FileState::of_entry(&found))
    }

    /// What is at the target of a change that is still to be made; `None` if it is made already.
    fn still_old(&self, change: &PlannedChange) -> ExecutionResult<Option<CarriedEntry>> {
        let found = self.found(change)?;
        if self.plan.is_state(change, &found, change.new) {
            Ok(None)
        } else if self.plan.is_state(change, &found, change.old) {
            Ok(Some(found))
        } else {
            Err(self.conflict(change))
        }
    }

    fn conflict(&self, change: &PlannedChange) -> ExecutionError {
        ExecutionError::Conflict(late_conflict(self.plan.target(change)))
    }

    fn move_aside(&self, change: &PlannedChange) -> ExecutionResult {
        if self.still_old(change)?.is_none() {
            return Ok(());
        }
        self.remove_temporary(change)?;
        let folder = self.folder(change);
        let moved = folder.rename_new(&change.path, &change.temporary);
        moved.map_err(|error| folder.failed("delete", &change.path, error))?;
        if self.temporary_state(change)? == Some(change.old) {
            return Ok(());
        }
        let back = folder.rename_new(&change.temporary, &change.path);
        back.map_err(|error| folder.failed("restore", &change.path, error))?;
        Err(self.conflict(change))
    }

    fn stage_new(&self, change: &PlannedChange) -> ExecutionResult {
        if let Some(found) = self.still_old(change)? {
            self.stage(change, change.new, &found)?;
        }
        Ok(())
    }

    /// Writes a state of a change to its temporary name; a file keeps owner and mode of the one that is there.
    fn stage(&self, change: &PlannedChange, state: FileState, found: &CarriedEntry) -> Result<()> {
        self.remove_temporary(change)?;
        let Some(id) = state.object() else {
            return Ok(());
        };
        let content = self.store.read(id)?;
        let content = match state {
            FileState::File { executable, .. } => CarriedContent::File {
                content: &content,
                is_executable: executable,
                like: meta_of(found),
                sync: self.syncs_each(),
            },
            FileState::Link { .. } | FileState::Absent => {
                CarriedContent::Link(OsStr::from_bytes(&content))
            }
        };
        let folder = self.folder(change);
        let staged = folder.stage(&change.temporary, content);
        staged.map_err(|error| folder.failed("write", &change.path, error))
    }

    /// Puts the staged file in its place.
    fn place(&self, change: &PlannedChange) -> ExecutionResult {
        let Some(found) = self.still_old(change)? else {
            return Ok(());
        };
        let folder = self.folder(change);
        let failed = |error| folder.failed("write", &change.path, error);
        if matches!(found, CarriedEntry::Nothing) {
            return match folder.rename_new(&change.temporary, &change.path) {
                Err(PathError::System(rustix::io::Errno::EXIST)) => Err(self.conflict(change)),
                placed => Ok(placed.map_err(failed)?),
            };
        }
        let exchanged = folder.exchange(&change.temporary, &change.path);
        exchanged.map_err(failed)?;
        match self.temporary_state(change)? {
            // A file system that cannot exchange two files.
            Some(FileState::Absent) => Ok(()),
            Some(state) if state == change.old => Ok(()),
            _ => {
                let back = folder.exchange(&change.temporary, &change.path);
                back.map_err(failed)?;
                Err(self.conflict(change))
            }
        }
    }

    /// Brings the old state of a target back, if it is as after the plan.
    fn revert(&self, change: &PlannedChange) -> Result<()> {
        let found = self.found(change)?;
        let folder = self.folder(change);
        let failed = |error| folder.failed("restore", &change.path, error);
        if change.old == FileState::Absent && FileState::of_entry(&found) == Some(change.new) {
            folder.remove(&change.path).map_err(failed)?;
        } else if !self.plan.is_state(change, &found, change.old)
            && self.plan.is_state(change, &found, change.new)
        {
            if self.temporary_state(change)? != Some(change.old) {
                self.stage(change, change.old, &found)?;
            }
            let restored = folder.rename_over(&change.temporary, &change.path);
            restored.map_err(failed)?;
        }
        self.remove_temporary(change)
    }

    fn remove_temporary(&self, change: &PlannedChange) -> Result<()> {
        let folder = self.folder(change);
        let removed = folder.remove(&change.temporary);
        removed.map_err(|error| folder.failed("remove", &change.temporary, error))
    }

    /// Makes the names in all folders durable that have changed.
    fn sync_folders(&self) -> Result<()> {
        if !self.syncs_each() {
            return self.sync_all();
        }
        let mut folders: BTreeSet<(usize, PathBuf)> = BTreeSet::new();
        let mut add = |folder: usize, path: &Path| {
            folders.extend(path.parent().map(|parent| (folder, parent.to_owned())));
        };
        for change in &self.plan.changes {
            add(change.folder, &change.path);
            add(change.folder, &change.temporary);
        }
        let planned = self.plan.made_folders.iter();
        for folder in planned.chain(&self.plan.removed_folders) {
            add(folder.folder, &folder.path);
        }
        for (folder, path) in folders {
            let folder = &self.folders[folder];
            let synced = folder.sync_folder(&path);
            synced.map_err(|error| folder.failed("sync", &path, error))?;
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        let used: BTreeSet<usize> = self
            .plan
            .changes
            .iter()
            .map(|change| change.folder)
            .collect();
        for folder in used.into_iter().map(|folder| &self.folders[folder]) {
            let synced = folder.sync_all();
            synced.map_err(|error| folder.failed("sync", Path::new(""), error))?;
        }
        Ok(())
    }
}

fn meta_of(found: &CarriedEntry) -> Option<&EntryMeta> {
    match found {
        CarriedEntry::File { meta, .. } => Some(meta),
        _ => None,
    }
}

/// What the two known states of a target are, for a person that has to choose.
fn both_states(change: &PlannedChange) -> String {
    let named = |state: FileState| match state.object() {
        None => "absent".to_owned(),
        Some(id) => format!("logs/objects/{id}"),
    };
    format!(
        "it was changed after the interrupted apply (before: {}, after: {})",
        named(change.old),
        named(change.new)
    )
}
