//! A tree remembered, and put back: what a check leaves in the workspace is undone.
//!
//! Contents are copied to the root, where the next start finds what a crash left of them. Putting back forces its way
//! through whatever the check left, and touches nothing that is still as it was. Pipes, sockets and devices are not
//! brought back, nor is what lies deeper than a walk goes.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::error::Error;
use crate::state::store::COPIES;
use crate::workspace::entry::EntryMeta;
use crate::workspace::handle::Workspace;
use crate::workspace::path_error::PathError;
use crate::workspace::rules::{Access, SNAPSHOT};
use crate::workspace::walk::{DEPTH_LIMIT, EntryKind, WalkReach, WalkStep, WorkspaceEntry};

/// Everything within reach, and nothing hides behind its mode.
const ALL: WalkReach = WalkReach {
    entries: usize::MAX,
    access: Access::Force,
};

/// The workspace as it was.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// A folder comes before what is in it; the content of entry `n` is the file `n` in `copies`.
    entries: Vec<WorkspaceEntry>,
    copies: TempDir,
}

impl Snapshot {
    /// Remembers everything in the workspace, with copies in `root`. Own files and folders that cannot be read are
    /// opened up for it.
    pub(crate) fn take(workspace: &Workspace, root: &Path) -> Result<Snapshot, Error> {
        let copies = TempDir::with_prefix_in(COPIES, root)
            .map_err(|error| Error::io("make a folder in", root, error))?;
        let mut entries = Vec::new();
        let mut failure = None;
        workspace.walk_far(ALL, &mut |entry| match remember(
            workspace,
            entry,
            &copies.path().join(entries.len().to_string()),
        ) {
            Ok(remembered) => {
                entries.extend(remembered);
                WalkStep::On
            }
            Err(error) => {
                failure = Some(error);
                WalkStep::Stop
            }
        })?;
        failure.map_or(Ok(Snapshot { entries, copies }), Err)
    }

    /// Returns the folders that there were.
    pub(crate) fn folders(&self) -> HashSet<&Path> {
        let folders = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.kind, EntryKind::Dir { .. }));
        folders.map(|entry| entry.path.as_path()).collect()
    }

    /// Puts the workspace back as it was, durably.
    pub(crate) fn restore(self, workspace: &Workspace) -> Result<(), Error> {
        let (kept, foreign) = self.compare(workspace)?;
        for path in &foreign {
            workspace.remove(path)?;
        }
        let mut touched: Vec<&Path> = foreign.iter().map(PathBuf::as_path).collect();
        for (index, entry) in self.entries.iter().enumerate() {
            if !kept.contains(&index) {
                touched.push(&entry.path);
                put_back(
                    workspace,
                    entry,
                    &self.copies.path().join(index.to_string()),
                )?;
            }
        }
        // From the inside out, since whatever happens in a folder changes its time.
        self.entries
            .iter()
            .rev()
            .try_for_each(|entry| settle_folder(workspace, entry))?;
        if touched.is_empty() {
            Ok(())
        } else {
            workspace.settle(touched)
        }
    }

    /// Returns the entries that are still as they were, by index, and the paths of whatever is not.
    fn compare(&self, workspace: &Workspace) -> Result<(HashSet<usize>, Vec<PathBuf>), Error> {
        let places: HashMap<&Path, usize> = self
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (entry.path.as_path(), index))
            .collect();
        let (mut kept, mut foreign) = (HashSet::new(), Vec::new());
        workspace.walk_far(ALL, &mut |now| match places
            .get(now.path.as_path())
            .filter(|index| is_same(&self.entries[**index], now))
        {
            Some(index) => {
                kept.insert(*index);
                WalkStep::On
            }
            None => {
                foreign.push(now.path.clone());
                WalkStep::Skip
            }
        })?;
        Ok((kept, foreign))
    }
}

/// Copies a file's content to `copy`; returns the entry as it is to be compared later, or nothing if it is gone.
fn remember(
    workspace: &Workspace,
    entry: &WorkspaceEntry,
    copy: &Path,
) -> Result<Option<WorkspaceEntry>, Error> {
    if !matches!(entry.kind, EntryKind::File { .. }) {
        return Ok(Some(entry.clone()));
    }
    let (mut file, meta) = match workspace.open_file(&entry.path, SNAPSHOT) {
        Ok(opened) => opened,
        Err(PathError::Missing) => return Ok(None),
        // Owned by another user: it can be recognised, but not restored.
        Err(PathError::System(Errno::ACCESS)) => {
            return Ok(Some(WorkspaceEntry {
                kind: EntryKind::Special,
                ..entry.clone()
            }));
        }
        Err(error) => return Err(workspace.failed("read", &entry.path, error)),
    };
    File::create_new(copy)
        .and_then(|mut to| io::copy(&mut file, &mut to))
        .map_err(|error| Error::io("write", copy, error))?;
    let kind = EntryKind::File {
        size: meta.size,
        mode: meta.mode,
    };
    let EntryMeta {
        ino,
        links,
        ctime,
        mtime,
        ..
    } = meta;
    Ok(Some(WorkspaceEntry {
        path: entry.path.clone(),
        kind,
        ino,
        links,
        ctime,
        mtime,
    }))
}

fn is_same(was: &WorkspaceEntry, now: &WorkspaceEntry) -> bool {
    match (&was.kind, &now.kind) {
        (EntryKind::File { .. }, EntryKind::File { .. }) => was == now,
        // What is in the deepest folders was not seen, so it goes.
        (EntryKind::Dir { .. }, EntryKind::Dir { .. }) => was.path.iter().count() < DEPTH_LIMIT,
        (EntryKind::Link { target: before }, EntryKind::Link { target: after }) => before == after,
        (EntryKind::Special, EntryKind::Special | EntryKind::File { .. }) => was.ino == now.ino,
        _ => false,
    }
}

fn put_back(workspace: &Workspace, entry: &WorkspaceEntry, copy: &Path) -> Result<(), Error> {
    match &entry.kind {
        EntryKind::File { mode, .. } => {
            let mut content = File::open(copy).map_err(|error| Error::io("read", copy, error))?;
            workspace.put_file(&entry.path, &mut content, *mode, false)?;
        }
        EntryKind::Link { target } => workspace.put_link(&entry.path, target.as_os_str())?,
        EntryKind::Dir { mode } => return workspace.make_dir(&entry.path, *mode),
        EntryKind::Special => return Ok(()),
    }
    workspace.set_mtime(&entry.path, entry.mtime)
}

/// Gives a folder its mode and time again.
fn settle_folder(workspace: &Workspace, entry: &WorkspaceEntry) -> Result<(), Error> {
    let EntryKind::Dir { mode } = entry.kind else {
        return Ok(());
    };
    let now = workspace
        .stat_path(&entry.path)?
        .filter(|now| !now.is_mount);
    if now.is_some_and(|now| now.mode & 0o777 != mode & 0o777) {
        workspace.make_dir(&entry.path, mode)?;
    }
    if now.is_some_and(|now| now.mtime != entry.mtime) {
        workspace.set_mtime(&entry.path, entry.mtime)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
