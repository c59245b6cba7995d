//! A tree remembered, and put back: what a check leaves in the workspace is undone.
//!
//! Contents that are not stored elsewhere are copied to the root, where the next start finds what a crash left of them.
//! Putting back forces its way through whatever the check left, and touches nothing that is still as it was. Pipes, sockets and devices are not
//! brought back, nor is what lies deeper than a walk goes.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::error::Error;
use crate::state::store::COPIES;
use crate::workspace::entry::EntryMeta;
use crate::workspace::handle::Workspace;
use crate::workspace::path_error::PathError;
use crate::workspace::recorded_walk::{RecordedWalk, WalkRecorder};
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
    walk: RecordedWalk,
    /// The entries whose content is a file in `copies`, named by the index.
    copied: HashSet<usize>,
    copies: TempDir,
}

impl Snapshot {
    /// Remembers everything in the workspace, with copies in `root` of files that are not stored elsewhere. Own files and
    /// folders that cannot be read are opened up for it.
    pub(crate) fn take(
        workspace: &Workspace,
        root: &Path,
        is_stored: &dyn Fn(&WorkspaceEntry) -> bool,
    ) -> Result<Snapshot, Error> {
        let copies = TempDir::with_prefix_in(COPIES, root)
            .map_err(|error| Error::io("make a folder in", root, error))?;
        let mut recorder = WalkRecorder::new(workspace);
        let mut copied = HashSet::new();
        let mut failure = None;
        workspace.walk_far(ALL, &mut |entry| {
            if !matches!(entry.kind, EntryKind::File { .. }) || is_stored(entry) {
                recorder.add(entry);
                return WalkStep::On;
            }
            let index = recorder.recorded.len();
            match remember(workspace, entry, &copies.path().join(index.to_string())) {
                Ok(Some(remembered)) => {
                    copied.insert(index);
                    recorder.add(&remembered);
                    WalkStep::On
                }
                Ok(None) => WalkStep::On,
                Err(error) => {
                    failure = Some(error);
                    WalkStep::Stop
                }
            }
        })?;
        let walk = recorder.recorded;
        failure.map_or(
            Ok(Snapshot {
                walk,
                copied,
                copies,
            }),
            Err,
        )
    }

    /// Returns the folders that there were.
    pub(crate) fn folders(&self) -> HashSet<PathBuf> {
        let mut folders = HashSet::new();
        self.walk.walk(&mut |entry| {
            if matches!(entry.kind, EntryKind::Dir { .. }) {
                folders.insert(entry.path.clone());
            }
            WalkStep::On
        });
        folders
    }

    /// Puts the workspace back as it was, durably; `stored` returns the content of files that were not copied.
    pub(crate) fn restore(
        self,
        workspace: &Workspace,
        stored: &dyn Fn(&WorkspaceEntry) -> Result<Vec<u8>, Error>,
    ) -> Result<(), Error> {
        let (kept, foreign) = self.compare(workspace)?;
        for path in &foreign {
            workspace.remove(path)?;
        }
        let mut touched = foreign;
        let mut folders = Vec::new();
        let mut cursor = self.walk.cursor();
        while cursor.advance() {
            let (entry, index) = (cursor.entry(), cursor.index());
            if matches!(entry.kind, EntryKind::Dir { .. }) {
                folders.push(entry.clone());
            }
            if kept[index] {
                continue;
            }
            touched.push(entry.path.clone());
            match self.copied.contains(&index) {
                true => {
                    let copy = self.copies.path().join(index.to_string());
                    let mut content =
                        || File::open(&copy).map_err(|error| Error::io("read", &copy, error));
                    put_back(workspace, entry, &mut content)?;
                }
                false => {
                    put_back(workspace, entry, &mut || Ok(Cursor::new(stored(entry)?)))?;
                }
            }
        }
        // From the inside out, since whatever happens in a folder changes its time.
        folders
            .iter()
            .rev()
            .try_for_each(|folder| settle_folder(workspace, folder))?;
        match touched.is_empty() {
            true => Ok(()),
            false => workspace.settle(touched.iter().map(PathBuf::as_path)),
        }
    }

    /// Returns which entries are still as they were, and the paths of whatever is not.
    fn compare(&self, workspace: &Workspace) -> Result<(Vec<bool>, Vec<PathBuf>), Error> {
        let (mut kept, mut foreign) = (vec![false; self.walk.len()], Vec::new());
        let mut cursor = self.walk.cursor();
        let mut is_over = !cursor.advance();
        workspace.walk_far(ALL, &mut |now| {
            while !is_over && cursor.entry().path < now.path {
                is_over = !cursor.advance();
            }
            let was = cursor.entry();
            let is_kept = !is_over && was.path == now.path && is_same(was, now);
            if is_kept {
                kept[cursor.index()] = true;
                return WalkStep::On;
            }
            foreign.push(now.path.clone());
            WalkStep::Skip
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

fn put_back<R: io::Read>(
    workspace: &Workspace,
    entry: &WorkspaceEntry,
    content: &mut dyn FnMut() -> Result<R, Error>,
) -> Result<(), Error> {
    match &entry.kind {
        EntryKind::File { mode, .. } => {
            workspace.put_file(&entry.path, &mut content()?, *mode, false)?;
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
