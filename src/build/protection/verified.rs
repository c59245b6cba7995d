//! Metadata of protected files: recorded once their content was verified, compared later instead of the content.
//!
//! A file is known by inode, size and times from then on. No program can set the change time (ctime), so a rewrite
//! that was undone is noticed, too.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::build::spec::inputs::{InputKind, WorkspaceInput};
use crate::error::Result;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{FileTime, ReadOutcome, WalkStep, Workspace, WorkspaceEntry, now_of_files};

/// The names of restored and removed files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    pub restored: Vec<String>,
    pub removed: Vec<String>,
}

impl RestoredFiles {
    /// Adds more, each name once.
    pub fn add(&mut self, more: RestoredFiles) {
        let add = |all: &mut Vec<String>, more: Vec<String>| {
            for name in more {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
        };
        add(&mut self.restored, more.restored);
        add(&mut self.removed, more.removed);
    }
}

/// What is known of protected files since their content was last verified.
#[derive(Debug, Default)]
pub(crate) struct VerifiedFiles {
    /// The entries that were as given.
    pub(super) tree: Option<ProtectedTree>,
    /// Whether the tree is complete, and no program ran since.
    pub(super) is_current: bool,
}

/// All entries of protected places, links not followed, and the folders around them.
#[derive(Debug)]
pub(super) struct ProtectedTree {
    /// In walk order, so that equal trees compare equal.
    pub(super) entries: Vec<WorkspaceEntry>,
    /// The file system's time when the walk began: later changes have this ctime or a later one.
    begun: FileTime,
    has_reliable_times: bool,
}

pub(super) type EntriesByPath<'a> = HashMap<&'a Path, &'a WorkspaceEntry>;

impl ProtectedTree {
    pub(super) fn read(workspace: &Workspace, inputs: &[&WorkspaceInput]) -> Result<ProtectedTree> {
        let (begun, has_reliable_times) = (now_of_files(), workspace.has_reliable_times());
        let places: HashSet<&Path> = outermost(inputs.iter().copied()).map(path_of).collect();
        let around: HashSet<&Path> = places.iter().flat_map(|place| place.ancestors()).collect();
        let mut entries = Vec::new();
        // The walk visits all of a place before it leaves it.
        let mut current: Option<PathBuf> = None;
        workspace.walk_whole(&mut |entry| {
            let path = entry.path.as_path();
            let is_inside = current
                .as_ref()
                .is_some_and(|place| path.starts_with(place));
            if !is_inside {
                current = places.contains(path).then(|| path.to_owned());
            }
            if !is_inside && current.is_none() && !around.contains(path) {
                return WalkStep::Skip;
            }
            entries.push(entry.clone());
            WalkStep::On
        })?;
        Ok(ProtectedTree {
            entries,
            begun,
            has_reliable_times,
        })
    }

    pub(super) fn by_path(&self) -> EntriesByPath<'_> {
        self.entries
            .iter()
            .map(|entry| (entry.path.as_path(), entry))
            .collect()
    }

    /// Whether an equal entry in a later tree has the same content. A change within the clock tick in which the walk
    /// began would leave no trace in the times.
    pub(super) fn is_settled(&self, entry: &WorkspaceEntry) -> bool {
        self.has_reliable_times && entry.ctime < self.begun
    }

    /// Whether nothing has changed since, as far as times show.
    pub(super) fn is_same(&self, later: &ProtectedTree) -> bool {
        self.entries == later.entries && self.entries.iter().all(|entry| self.is_settled(entry))
    }
}

pub(super) fn entry_of<'a>(
    entries: &EntriesByPath<'a>,
    input: &WorkspaceInput,
) -> Option<&'a WorkspaceEntry> {
    entries.get(path_of(input)).copied()
}

pub(super) fn has_content(workspace: &Workspace, path: &Path, content: &[u8]) -> Result<bool> {
    let found = workspace.read_file(path, content.len() as u64)?;
    Ok(matches!(found, ReadOutcome::File(bytes) if bytes[..] == content[..]))
}

pub(super) fn is_below(path: &SafePath, folders: &[SafePath]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// The inputs that are not inside a folder of the same list.
pub(super) fn outermost<'a>(
    inputs: impl Iterator<Item = &'a WorkspaceInput>,
) -> impl Iterator<Item = &'a WorkspaceInput> {
    let mut folders: HashSet<&Path> = HashSet::new();
    let mut last: Option<&Path> = None;
    // Inputs are sorted: a folder comes before its contents, usually directly before.
    inputs.filter(move |input| {
        let path = path_of(input);
        if last.is_some_and(|last| path.starts_with(last))
            || path.ancestors().any(|folder| folders.contains(folder))
        {
            return false;
        }
        if input.kind == InputKind::Dir {
            folders.insert(path);
            last = Some(path);
        }
        true
    })
}

pub(super) fn path_of(input: &WorkspaceInput) -> &Path {
    Path::new(input.to.as_str())
}
