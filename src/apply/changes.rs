//! Compares what was taken in, the workspace and the targets: what is to be changed, what conflicts, what stays behind.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::apply::file_state::FileState;
use crate::apply::plan::{ApplyPlan, PlannedChange, PlannedFolder};
use crate::apply::routes::{Route, RoutedPath, Routes};
use crate::apply::skipped::{SkipReason, SkippedPaths, git_part};
use crate::error::{Error, Result};
use crate::snapshots::objects::ObjectId;
use crate::snapshots::take::{MAX_STORED, UnstoredEntry};
use crate::snapshots::tree::{Tree, TreeNode, changed_paths};
use crate::workspace::safe_path::SafePath;
use crate::workspace::{CarriedEntry, CarryFolder};

/// As many links as the kernel follows before it reports a loop.
const MAX_LINKS: usize = 40;

/// What a copy of the folder at the first path would leave out of the second one, relative to it, and why.
pub(crate) type LeftOutRule<'a> =
    &'a mut dyn FnMut(&Path, &Path) -> Result<Option<(PathBuf, &'static str)>>;

/// The workspace of a run, as it is compared with the user's folders.
#[derive(Debug)]
pub(crate) struct AppliedWorkspace {
    pub run_id: String,
    pub tree: ObjectId,
    pub taken_in: Tree,
    /// As it was applied the last time.
    pub applied: Option<Tree>,
    pub now: Tree,
    pub unstored: Vec<UnstoredEntry>,
    /// The links of `now` with their targets.
    pub links: BTreeMap<PathBuf, PathBuf>,
    pub protected: Vec<PathBuf>,
}

/// A target that is neither as it was, nor as it would be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ApplyConflict {
    pub target: PathBuf,
    pub problem: String,
}

/// What `apply` would do.
#[derive(Debug)]
pub(crate) struct ApplyFindings {
    pub plan: ApplyPlan,
    pub conflicts: Vec<ApplyConflict>,
    pub skipped: SkippedPaths,
}

/// A path that differs, with its target.
#[derive(Debug)]
struct RoutedChange {
    /// In the workspace.
    path: PathBuf,
    to: RoutedPath,
    new: FileState,
    /// The states in which the target may be replaced.
    allowed: Vec<FileState>,
}

/// Where a changed path goes.
enum Destination {
    To(RoutedPath),
    /// Nowhere: this part of it is not carried.
    Skipped(PathBuf, SkipReason),
    /// What it was copied from is gone.
    Gone(PathBuf),
}

/// Finds the changes of a workspace. Nothing is written.
pub(crate) fn find_changes(
    workspace: &AppliedWorkspace,
    routes: &Routes,
    left_out: LeftOutRule<'_>,
) -> Result<ApplyFindings> {
    let mut finder = ChangeFinder {
        workspace,
        routes,
        left_out,
        skipped: SkippedPaths::new(),
        conflicts: BTreeSet::new(),
        routed: BTreeMap::new(),
    };
    finder.note_tool_folders();
    for path in workspace.changed() {
        finder.visit(path)?;
    }
    finder.finish()
}

impl AppliedWorkspace {
    /// Everything that differs from what was taken in, or from what was applied.
    fn changed(&self) -> BTreeSet<&Path> {
        let mut changed: BTreeSet<&Path> = changed_paths(&self.taken_in, &self.now)
            .into_iter()
            .collect();
        if let Some(applied) = &self.applied {
            changed.extend(changed_paths(applied, &self.now));
        }
        changed
    }

    fn is_unstored(&self, path: &Path) -> bool {
        let mut unstored = self.unstored.iter();
        let trees = [Some(&self.taken_in), self.applied.as_ref(), Some(&self.now)];
        let mut nodes = trees.into_iter().flatten().map(|tree| tree.get(path));
        unstored.any(|entry| path.starts_with(&entry.path))
            || nodes.any(|node| matches!(node, Some(TreeNode::Unstored { .. })))
    }

    /// Whether a folder was there, and is one no longer.
    fn has_lost_folder(&self, path: &Path) -> bool {
        let is_folder = |tree: &Tree| matches!(tree.get(path), Some(TreeNode::Folder { .. }));
        let was = is_folder(&self.taken_in) || self.applied.as_ref().is_some_and(is_folder);
        was && !is_folder(&self.now)
    }

    /// Whether a link of the workspace stays in the copied folder, whatever other links it leads through.
    fn link_stays(&self, path: &Path, folder: &Path) -> bool {
        let mut at = path.to_owned();
        let (mut ahead, mut followed) = (Vec::new(), 0);
        loop {
            if let Some(target) = self.links.get(&at) {
                followed += 1;
                at.pop();
                ahead.extend(target.components().rev());
            }
            match ahead.pop() {
                None => return true,
                Some(Component::Normal(name)) => at.push(name),
                Some(Component::ParentDir) if at.pop() => {}
                Some(Component::CurDir) => {}
                Some(_) => return false,
            }
            if MAX_LINKS < followed || !at.starts_with(folder) || git_part(&at).is_some() {
                return false;
            }
        }
    }
}

struct ChangeFinder<'a, 'f> {
    workspace: &'a AppliedWorkspace,
    routes: &'a Routes,
    left_out: LeftOutRule<'f>,
    skipped: SkippedPaths,
    conflicts: BTreeSet<ApplyConflict>,
    /// By target.
    routed: BTreeMap<PathBuf, RoutedChange>,
}

impl ChangeFinder<'_, '_> {
    fn note_tool_folders(&mut self) {
        let unstored = self.workspace.unstored.iter();
        for entry in unstored.filter(|entry| entry.is_folder && entry.is_noteworthy()) {
            self.skipped
                .insert(PathBuf::from(&entry.path), SkipReason::ToolFolder);
        }
    }

    fn visit(&mut self, path: &Path) -> Result<()> {
        let AppliedWorkspace {
            taken_in,
            applied,
            now,
            ..
        } = self.workspace;
        let is_unstored = self.workspace.is_unstored(path);
        let state = |tree: &Tree| FileState::of_node(tree.get(path)).unwrap_or(FileState::Absent);
        let (old, new) = (state(taken_in), state(now));
        let mut allowed = vec![old];
        allowed.extend(applied.as_ref().map(state));
        if !is_unstored && allowed.iter().all(|state| *state == new) {
            return Ok(());
        }
        if let Some((part, reason)) = self.skip_by_path(path, is_unstored) {
            self.skipped.entry(part).or_insert(reason);
            return Ok(());
        }
        let was_taken_in = !old.is_absent();
        // What was never carried and is gone again needs no word.
        let is_noteworthy = was_taken_in || !new.is_absent();
        match self.destination(path, was_taken_in, new)? {
            Destination::To(to) => self.add(RoutedChange {
                path: path.to_owned(),
                to,
                new,
                allowed,
            }),
            Destination::Skipped(part, reason) if is_noteworthy => {
                self.skipped.entry(part).or_insert(reason);
            }
            Destination::Skipped(..) => {}
            Destination::Gone(from) => {
                let problem = "what it was copied from is gone".to_owned();
                self.conflict(from, problem);
            }
        }
        Ok(())
    }

    /// What is never carried, whatever it is.
    fn skip_by_path(&self, path: &Path, is_unstored: bool) -> Option<(PathBuf, SkipReason)> {
        let mut protected = self.workspace.protected.iter();
        if protected.any(|protected| path.starts_with(protected)) {
            Some((path.to_owned(), SkipReason::Protected))
        } else if let Some(part) = git_part(path) {
            Some((part, SkipReason::Git))
        } else if is_unstored {
            Some((path.to_owned(), SkipReason::NotStored))
        } else {
            None
        }
    }

    fn destination(
        &mut self,
        path: &Path,
        was_taken_in: bool,
        new: FileState,
    ) -> Result<Destination> {
        let skip = |reason| Ok(Destination::Skipped(path.to_owned(), reason));
        let to = match self.routes.route(path, was_taken_in) {
            Route::Nowhere => return skip(SkipReason::Outside),
            Route::SourceGone(from) => return Ok(Destination::Gone(from)),
            Route::To(to) => to,
        };
        let target = self.routes.target(&to);
        if self.routes.is_owned_by_run(&target) {
            return skip(SkipReason::OwnedByRun);
        } else if self.routes.is_spec(&target) {
            return skip(SkipReason::Spec);
        } else if !was_taken_in && let Some((part, reason)) = self.skip_new(path, &to)? {
            return Ok(Destination::Skipped(part, reason));
        } else if let (FileState::Link { .. }, Some(reason)) = (new, self.skip_link(path, &to)) {
            return skip(reason);
        }
        Ok(Destination::To(to))
    }

    /// Why something that was not taken in is not carried.
    fn skip_new(&mut self, path: &Path, to: &RoutedPath) -> Result<Option<(PathBuf, SkipReason)>> {
        let rule = match path.to_str().map(SafePath::parse) {
            Some(Ok(_)) => None,
            Some(Err(violation)) => Some(violation.rule),
            None => Some("its name is not UTF-8".to_owned()),
        };
        if let Some(rule) = rule {
            return Ok(Some((path.to_owned(), SkipReason::UnsafeName(rule))));
        }
        let Some(copied_to) = &to.copied_to else {
            return Ok(None);
        };
        let top = self.routes.folders[to.folder].path_of(Path::new(""));
        let found = (self.left_out)(&top, &to.path)?;
        Ok(found.map(|(part, why)| (copied_to.join(part), SkipReason::LeftOut(why))))
    }

    fn skip_link(&self, path: &Path, to: &RoutedPath) -> Option<SkipReason> {
        let Some(copied_to) = &to.copied_to else {
            return Some(SkipReason::LinkForFile);
        };
        let target = self.workspace.links.get(path)?;
        let folder = &self.routes.folders[to.folder];
        let around = to.path.parent().unwrap_or(Path::new(""));
        let top = folder.path_of(Path::new(""));
        // In the project a link on its way may lead elsewhere than in the workspace.
        let leads_out = folder
            .path_of(&around.join(target))
            .canonicalize()
            .is_ok_and(|end| !end.starts_with(top));
        (leads_out || !self.workspace.link_stays(path, copied_to))
            .then_some(SkipReason::LeavingLink)
    }

    fn add(&mut self, change: RoutedChange) {
        let target = self.routes.target(&change.to);
        match self.routed.get(&target) {
            Some(other) if other.new != change.new => {
                let [one, other] = [&other.path, &change.path].map(|path| path.display());
                let problem = format!("{one} and {other} of the workspace differ and lead here");
                self.conflict(target, problem);
            }
            Some(_) => {}
            None => drop(self.routed.insert(target, change)),
        }
    }

    fn conflict(&mut self, target: PathBuf, problem: String) {
        self.conflicts.insert(ApplyConflict { target, problem });
    }

    /// Compares the targets and makes the plan.
    fn finish(mut self) -> Result<ApplyFindings> {
        let routed = std::mem::take(&mut self.routed);
        let mut plan = self.plan_of(&routed);
        let mut to_do = Vec::new();
        for (number, (target, change)) in routed.iter().enumerate() {
            let planned = &plan.changes[number];
            let found = look(&self.routes.folders[planned.folder], &planned.path)?;
            if plan.is_state(planned, &found, change.new) {
                continue;
            }
            let mut allowed = change.allowed.iter();
            match allowed.find(|state| plan.is_state(planned, &found, **state)) {
                None => self.conflict(target.clone(), problem(&found, change)),
                Some(_) if self.has_foreign_files(&plan, planned, &found)? => {
                    let problem = "a folder with other files is there".to_owned();
                    self.conflict(target.clone(), problem);
                }
                Some(old) => to_do.push(PlannedChange {
                    old: *old,
                    ..planned.clone()
                }),
            }
        }
        plan.changes = to_do;
        plan.made_folders = self.made_folders(&plan)?;
        plan.complete();
        Ok(ApplyFindings {
            plan,
            conflicts: self.conflicts.into_iter().collect(),
            skipped: self.skipped,
        })
    }

    /// All changes, whether they are made already or not, and the folders that may go.
    fn plan_of(&self, routed: &BTreeMap<PathBuf, RoutedChange>) -> ApplyPlan {
        let folders = self.routes.folders.iter();
        let folders = folders
            .map(|folder| folder.path_of(Path::new("")))
            .collect();
        let mut plan = ApplyPlan::new(&self.workspace.run_id, self.workspace.tree, folders);
        plan.changes = routed
            .values()
            .map(|change| PlannedChange {
                folder: change.to.folder,
                path: change.to.path.clone(),
                temporary: PathBuf::new(),
                old: FileState::Absent,
                new: change.new,
            })
            .collect();
        plan.removed_folders = self.removed_folders(routed);
        plan
    }

    /// The folders around deleted files that the workspace has no longer, the inner ones first.
    fn removed_folders(&self, routed: &BTreeMap<PathBuf, RoutedChange>) -> Vec<PlannedFolder> {
        let mut removed: BTreeMap<PathBuf, PlannedFolder> = BTreeMap::new();
        let deleted = routed.values().filter(|change| change.new.is_absent());
        for RoutedChange { path, to, .. } in deleted {
            let pairs = path.ancestors().zip(to.path.ancestors()).skip(1);
            for (lost, target) in pairs.take_while(|(_, target)| !target.as_os_str().is_empty()) {
                let folder = &self.routes.folders[to.folder];
                if let Ok(CarriedEntry::Folder { mode }) = folder.look(target, 0)
                    && self.workspace.has_lost_folder(lost)
                {
                    let planned = PlannedFolder {
                        folder: to.folder,
                        path: target.to_owned(),
                        mode: Some(mode),
                    };
                    removed.insert(folder.path_of(target), planned);
                }
            }
        }
        removed.into_values().rev().collect()
    }

    /// The folders on the way to written files that do not exist, the outer ones first.
    fn made_folders(&self, plan: &ApplyPlan) -> Result<Vec<PlannedFolder>> {
        let mut made: BTreeMap<PathBuf, PlannedFolder> = BTreeMap::new();
        for change in plan.changes.iter().filter(|change| !change.new.is_absent()) {
            let folder = &self.routes.folders[change.folder];
            let around = change.path.ancestors().skip(1);
            for path in around.take_while(|path| !path.as_os_str().is_empty()) {
                if matches!(look(folder, path)?, CarriedEntry::Folder { .. }) {
                    break;
                }
                let planned = PlannedFolder {
                    folder: change.folder,
                    path: path.to_owned(),
                    mode: None,
                };
                made.insert(folder.path_of(path), planned);
            }
        }
        Ok(made.into_values().collect())
    }

    /// Whether a file goes where a folder is that has more than what is deleted.
    fn has_foreign_files(
        &self,
        plan: &ApplyPlan,
        change: &PlannedChange,
        found: &CarriedEntry,
    ) -> Result<bool> {
        if change.new.is_absent() || !matches!(found, CarriedEntry::Folder { .. }) {
            return Ok(false);
        }
        let folder = &self.routes.folders[change.folder];
        let below = folder
            .entries_below(&change.path)
            .map_err(|error| folder.failed("read", &change.path, error))?;
        let deleted = plan.changes.iter().filter(|change| change.new.is_absent());
        let deleted: HashSet<PathBuf> = deleted.map(|change| plan.target(change)).collect();
        Ok(!below
            .iter()
            .all(|path| deleted.contains(&folder.path_of(path))))
    }
}

/// Looks at a target; a file that is larger than what snapshots store is not read.
pub(super) fn look(folder: &CarryFolder, path: &Path) -> Result<CarriedEntry> {
    folder
        .look(path, MAX_STORED)
        .map_err(|error| folder.failed("read", path, error))
}

/// What is wrong with a target.
fn problem(found: &CarriedEntry, change: &RoutedChange) -> String {
    let was_there = change.allowed.iter().any(|state| !state.is_absent());
    match found {
        CarriedEntry::Nothing => "it was deleted since it was copied",
        CarriedEntry::Link(_) | CarriedEntry::File { .. } | CarriedEntry::TooLarge
            if !was_there =>
        {
            "it was made since the folder was copied, or was left out of the copy"
        }
        CarriedEntry::File { .. } | CarriedEntry::TooLarge => "it was changed since it was copied",
        CarriedEntry::Link(_) => "it is a link that was changed since it was copied",
        CarriedEntry::Folder { .. } => "a folder is there",
        CarriedEntry::Special => "a pipe, socket or device is there",
        CarriedEntry::Mount => "another file system is mounted there",
        CarriedEntry::Blocked(at) => {
            return format!("{} is not a folder", shown(at));
        }
    }
    .to_owned()
}

pub(super) fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

/// The error of a conflict that only showed while the changes were made.
pub(super) fn late_conflict(target: PathBuf) -> ApplyConflict {
    ApplyConflict {
        target,
        problem: "it was changed at this moment".into(),
    }
}

impl From<ApplyConflict> for Error {
    fn from(conflict: ApplyConflict) -> Error {
        let source = std::io::Error::other(conflict.problem);
        Error::io("replace", &conflict.target, source)
    }
}
