//! The changes of one `apply`, in `logs/apply.json` while they are made.
//!
//! It has everything that completing or undoing them needs: both states of every target, the objects with their
//! contents, and the temporary names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::apply::file_state::FileState;
use crate::error::{Error, Result};
use crate::snapshots::objects::{ObjectId, replace_file};
use crate::snapshots::pending_apply::APPLY_PLAN;
use crate::state::store::{LOGS, Root};
use crate::workspace::{CarriedEntry, CarryFolder};

const VERSION: u32 = 1;
/// Prefix of temporary entries in the user's folders.
const TEMPORARY: &str = ".orchestrator-apply-";

/// The changes of one `apply`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ApplyPlan {
    version: u32,
    /// Part of all temporary names.
    id: String,
    pub run_id: String,
    /// The workspace that is applied.
    pub tree: ObjectId,
    /// The contents before and after.
    objects: Vec<ObjectId>,
    /// The user's folders, links resolved; in the file, relative to the root if inside.
    folders: Vec<PathBuf>,
    /// Sorted by target; no two have the same.
    pub changes: Vec<PlannedChange>,
    /// Folders that do not exist yet, each before what is in it.
    pub made_folders: Vec<PlannedFolder>,
    /// Folders that go if they are empty, each after what was in it.
    pub removed_folders: Vec<PlannedFolder>,
}

/// A file or link that is written or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedChange {
    /// Which of the plan's folders.
    pub folder: usize,
    /// Relative to that folder, like `temporary`.
    pub path: PathBuf,
    pub temporary: PathBuf,
    pub old: FileState,
    pub new: FileState,
}

/// A folder that is made or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedFolder {
    pub folder: usize,
    pub path: PathBuf,
    /// The permissions of one that is removed.
    pub mode: Option<u32>,
}

impl ApplyPlan {
    pub(super) fn new(run_id: &str, tree: ObjectId, folders: Vec<PathBuf>) -> ApplyPlan {
        ApplyPlan {
            version: VERSION,
            id: uuid::Uuid::new_v4().simple().to_string(),
            run_id: run_id.to_owned(),
            tree,
            objects: Vec::new(),
            folders,
            changes: Vec::new(),
            made_folders: Vec::new(),
            removed_folders: Vec::new(),
        }
    }

    /// Names the objects and the temporary entries of all changes. A deleted file is moved to a folder that stays.
    pub(super) fn complete(&mut self) {
        let states = self
            .changes
            .iter()
            .flat_map(|change| [change.old, change.new]);
        let mut objects: Vec<ObjectId> = states.filter_map(|state| state.object()).collect();
        objects.sort_unstable();
        objects.dedup();
        self.objects = objects;
        for number in 0..self.changes.len() {
            let name = format!("{TEMPORARY}{}-{number}", self.id);
            let change = &self.changes[number];
            let mut around = change.path.parent().unwrap_or(Path::new(""));
            while change.new.is_absent() && self.removes(change.folder, around) {
                around = around.parent().unwrap_or(Path::new(""));
            }
            self.changes[number].temporary = around.join(name);
        }
    }

    fn removes(&self, folder: usize, path: &Path) -> bool {
        let mut removed = self.removed_folders.iter();
        removed.any(|removed| removed.folder == folder && removed.path == path)
    }

    /// The plan that an interrupted `apply` left, if there is one.
    pub(crate) fn load(root: &Root) -> Result<Option<ApplyPlan>> {
        let path = plan_path(root);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path, error)),
        };
        let unusable = |problem: String| Error::io("use", &path, io::Error::other(problem));
        let mut plan: ApplyPlan =
            serde_json::from_slice(&text).map_err(|error| unusable(error.to_string()))?;
        if plan.version != VERSION {
            return Err(unusable(format!("its version is {}", plan.version)));
        }
        let real_root = root.real_path();
        for folder in &mut plan.folders {
            // Without a `/` at its end, which an empty path would add.
            *folder = real_root.join(&folder).components().collect();
        }
        let folders = plan.folders.len();
        let made = plan.made_folders.iter().chain(&plan.removed_folders);
        let mut used = made
            .map(|planned| planned.folder)
            .chain(plan.changes.iter().map(|change| change.folder));
        match used.all(|folder| folder < folders) {
            true => Ok(Some(plan)),
            false => Err(unusable("it names a folder that it does not list".into())),
        }
    }

    /// Saves the plan durably; from now on the next `apply` completes it.
    pub(crate) fn save(&self, root: &Root) -> Result<()> {
        let (mut saved, real_root) = (self.clone(), root.real_path());
        for folder in &mut saved.folders {
            if let Ok(inside) = folder.strip_prefix(&real_root) {
                *folder = inside.to_owned();
            }
        }
        let text = serde_json::to_vec_pretty(&saved)
            .map_err(|error| Error::Bug(format!("cannot serialize a plan: {error}")))?;
        let logs = root.join(LOGS);
        replace_file(&logs, &logs.join(APPLY_PLAN), &text)
    }

    /// Removes the plan: its changes are complete, or undone.
    pub(crate) fn remove(&self, root: &Root) -> Result<()> {
        let path = plan_path(root);
        fs::remove_file(&path).map_err(|error| Error::io("remove", &path, error))?;
        // A plan that a power cut brings back is complete already, or can be completed.
        let _ = fs::File::open(root.join(LOGS)).and_then(|logs| logs.sync_all());
        Ok(())
    }

    /// Opens the user's folders.
    pub(super) fn open_folders(&self) -> Result<Vec<CarryFolder>> {
        let folders = self.folders.iter();
        folders.map(|path| CarryFolder::open(path)).collect()
    }

    /// The absolute path of a target.
    pub(crate) fn target(&self, change: &PlannedChange) -> PathBuf {
        self.absolute(change.folder, &change.path)
    }

    fn absolute(&self, folder: usize, path: &Path) -> PathBuf {
        self.folders[folder].join(path)
    }

    /// Whether what was found at the target of a change is this state of it. Where a file becomes a folder, or a folder
    /// a file, the other changes decide what counts as absent.
    pub(super) fn is_state(
        &self,
        change: &PlannedChange,
        found: &CarriedEntry,
        state: FileState,
    ) -> bool {
        match found {
            CarriedEntry::Folder { .. } if state.is_absent() => {
                self.removes_target(&self.target(change)) || self.writes_below(&self.target(change))
            }
            CarriedEntry::Blocked(at) if state.is_absent() => {
                let at = self.absolute(change.folder, at);
                self.changes.iter().any(|change| self.target(change) == at)
            }
            _ => FileState::of_entry(found) == Some(state),
        }
    }

    fn removes_target(&self, target: &Path) -> bool {
        let mut removed = self.removed_folders.iter();
        removed.any(|removed| self.absolute(removed.folder, &removed.path) == target)
    }

    fn writes_below(&self, target: &Path) -> bool {
        let mut written = self
            .changes
            .iter()
            .filter(|change| !change.new.is_absent())
            .map(|change| self.target(change));
        written.any(|path| path != target && path.starts_with(target))
    }
}

fn plan_path(root: &Root) -> PathBuf {
    root.join(LOGS).join(APPLY_PLAN)
}
