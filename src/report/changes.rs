//! What each attempt changed: patches between the kept snapshots, where they are still there.

use std::borrow::Cow;
use std::path::Path;

use crate::diff::{FileDiff, FileVersion, VersionKind, git_patch};
use crate::error::Result;
use crate::report::foreign::ForeignText;
use crate::report::model::{ChangedFile, ReportAttempt, RunReport};
use crate::snapshots::objects::{ObjectId, ObjectStore};
use crate::snapshots::records::RunSnapshots;
use crate::snapshots::tree::{Tree, TreeNode, changed_paths, read_tree};
use crate::state::store::Root;

/// The patches of a file, of an attempt, and of all attempts, in bytes.
const PATCH: usize = 64_000;
const ATTEMPT: usize = 200_000;
const ALL: usize = 2_400_000;
const MOST_FILES: usize = 60;
/// A larger file is only named.
const LARGEST: usize = 1 << 20;
/// Before a binary patch, which is left out.
const BINARY: &str = "\nGIT binary patch\n";
const NOT_KEPT: &str = "The contents are not kept: the snapshots of this run are gone. The answers of the model have what the log has of them.";

/// Adds the changes of each attempt; without `root` or snapshots, a note.
pub(crate) fn add_changes(report: &mut RunReport, root: Option<&Root>, foreign: &ForeignText<'_>) {
    let store = root.and_then(|root| ObjectStore::open_existing(root).ok().flatten());
    let mut before = root
        .zip(store.as_ref())
        .and_then(|(root, store)| taken_in(root, store, &report.run_id).ok().flatten());
    let room = ATTEMPT.min(ALL / report.attempts.len().max(1));
    for attempt in &mut report.attempts {
        let after = attempt.tree.as_deref().and_then(ObjectId::parse);
        let after = store
            .as_ref()
            .zip(after)
            .and_then(|(store, id)| read_tree(store, id).ok());
        match (store.as_ref(), &before, &after) {
            (Some(store), Some(old), Some(new)) => {
                let comparison = Comparison { store, old, new };
                comparison.add_to(attempt, room, foreign);
            }
            _ if attempt.written.is_empty() && attempt.deleted.is_empty() => {}
            _ => attempt.changes_note = Some(NOT_KEPT.to_owned()),
        }
        before = after;
    }
}

fn taken_in(root: &Root, store: &ObjectStore, run_id: &str) -> Result<Option<Tree>> {
    match RunSnapshots::of(root, run_id).taken_in()? {
        Some(taken_in) => read_tree(store, taken_in.tree).map(Some),
        None => Ok(None),
    }
}

/// Two snapshots.
struct Comparison<'a> {
    store: &'a ObjectStore,
    old: &'a Tree,
    new: &'a Tree,
}

impl Comparison<'_> {
    fn add_to(&self, attempt: &mut ReportAttempt, mut room: usize, foreign: &ForeignText<'_>) {
        let paths = changed_paths(self.old, self.new);
        for path in paths.iter().take(MOST_FILES) {
            let Some(patch) = self.patch(path) else {
                attempt.changes_note =
                    Some("Some contents are too large, or no longer kept.".into());
                continue;
            };
            if patch.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(&patch);
            let (added, removed) = counts(&text);
            let text = text.split_inclusive(BINARY).next().unwrap_or_default();
            let patch = foreign.source(text, PATCH.min(room));
            room = room.saturating_sub(patch.len());
            attempt.changes.push(ChangedFile {
                path: foreign.line(&path.to_string_lossy()),
                added,
                removed,
                patch,
            });
        }
        if paths.len() > MOST_FILES {
            let more = paths.len() - MOST_FILES;
            attempt.changes_note = Some(format!("{more} more files changed."));
        }
    }

    fn patch(&self, path: &Path) -> Option<Vec<u8>> {
        let old = self.version(self.old.get(path))?;
        let new = self.version(self.new.get(path))?;
        Some(git_patch(&FileDiff { path, old, new }))
    }

    /// The version of a file, which may be absent; `None` if its content is not to be had.
    fn version(&self, node: Option<&TreeNode>) -> Option<Option<FileVersion<'static>>> {
        let (kind, id) = match node {
            Some(TreeNode::File { size, .. }) if *size > LARGEST as u64 => return None,
            Some(TreeNode::File { mode, id, .. }) if mode & 0o100 != 0 => {
                (VersionKind::Executable, *id)
            }
            Some(TreeNode::File { id, .. }) => (VersionKind::Regular, *id),
            Some(TreeNode::Link { id }) => (VersionKind::Link, *id),
            Some(TreeNode::Unstored { .. }) => return None,
            Some(TreeNode::Folder { .. }) | None => return Some(None),
        };
        let content = Cow::Owned(self.store.read(id).ok()?);
        Some(Some(FileVersion { kind, content }))
    }
}

/// The added and removed lines of a patch of one file.
fn counts(patch: &str) -> (Option<u64>, Option<u64>) {
    if patch.contains(BINARY) {
        return (None, None);
    }
    let body = patch.find("\n@@ ").map_or("", |start| &patch[start..]);
    let count = |sign| body.lines().filter(|line| line.starts_with(sign)).count() as u64;
    (Some(count('+')), Some(count('-')))
}
