//! The files of a workspace at two moments, and what differs between them.
//!
//! Folders that tools fill (`node_modules`, `target`) count as one thing each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::events::FileMark;
use crate::text::hex;
use crate::workspace::generated::is_in_generated;
use crate::workspace::{
    EntryKind, FileTime, ReadOutcome, WalkEnd, WalkStep, Workspace, WorkspaceEntry,
};

/// Folders that tools fill.
const AS_ONE: [&str; 5] = [".git", "node_modules", "target", ".venv", "__pycache__"];
/// A file longer than this is compared by its length and its time.
const HASHED_LIMIT: u64 = 16 << 20;
/// Part of the description of a file that is compared by its time.
const BY_TIME: &str = " bytes, changed at ";
/// So many names of changed files are kept.
pub(crate) const MOST_NAMES: usize = 1000;
/// So many files are listed after each call.
const MOST_LISTED: usize = 20_000;

/// Files by name, each with a description of its content: its hash, or size and time.
pub(crate) type FileDigests = BTreeMap<String, String>;

/// The first 16 digits of the SHA-256 of a content.
pub(crate) fn content_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

/// Reads all files of a workspace.
pub(crate) fn digests(workspace: &Workspace) -> Result<FileDigests> {
    let mut entries = Vec::new();
    workspace.walk(&mut |entry| {
        entries.push(entry.clone());
        WalkStep::On
    })?;
    let mut files = FileDigests::new();
    let mut folders: BTreeMap<String, Sha256> = BTreeMap::new();
    for entry in entries {
        match folder_as_one(&entry.path) {
            Some(folder) => folders
                .entry(folder)
                .or_default()
                .update(describe_by_time(&entry)),
            None if is_in_generated(&entry.path) => {}
            None => {
                let description = describe(workspace, &entry)?;
                files.extend(description.map(|content| (shown(&entry.path), content)));
            }
        }
    }
    files.extend(
        folders
            .into_iter()
            .map(|(name, hash)| (name, hex(&hash.finalize()))),
    );
    Ok(files)
}

/// The files of a workspace with their sizes and times; folders that tools fill are named alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WorkspaceListing {
    pub files: BTreeMap<String, (u64, FileTime)>,
    pub as_one: Vec<String>,
}

impl WorkspaceListing {
    /// A file as it is, or as one that does not exist.
    pub(crate) fn mark(&self, path: &str) -> FileMark {
        let found = self.files.get(path);
        FileMark {
            path: path.to_owned(),
            size: found.map(|(size, _)| *size),
            modified: found
                .map(|(_, (seconds, nanoseconds))| format!("{seconds}.{nanoseconds:09}")),
        }
    }

    /// The files that differ in a later listing; `None` where there are too many to keep.
    pub(crate) fn changed(&self, later: &WorkspaceListing) -> Option<Vec<FileMark>> {
        let paths: BTreeSet<&String> = self.files.keys().chain(later.files.keys()).collect();
        let differs = |path: &&&String| self.files.get(**path) != later.files.get(**path);
        bounded(
            paths
                .iter()
                .filter(differs)
                .map(|path| later.mark(path))
                .collect(),
        )
    }
}

/// The marks, unless there are too many to keep.
pub(crate) fn bounded(marks: Vec<FileMark>) -> Option<Vec<FileMark>> {
    (marks.len() <= MOST_NAMES).then_some(marks)
}

/// Lists a workspace; `None` where it has too many files to list after each call.
pub(crate) fn list(workspace: &Workspace) -> Option<WorkspaceListing> {
    let mut listing = WorkspaceListing::default();
    let walked = workspace.walk(&mut |entry| {
        let size = match &entry.kind {
            EntryKind::Dir { .. } if counts_as_one(&shown(&entry.path)) => {
                listing.as_one.push(shown(&entry.path));
                return WalkStep::Skip;
            }
            EntryKind::Dir { .. } => return WalkStep::On,
            EntryKind::File { size, .. } => *size,
            EntryKind::Link { .. } | EntryKind::Special => 0,
        };
        listing
            .files
            .insert(shown(&entry.path), (size, entry.mtime));
        if listing.files.len() <= MOST_LISTED {
            WalkStep::On
        } else {
            WalkStep::Stop
        }
    });
    (walked.ok()? == WalkEnd::Whole && listing.files.len() <= MOST_LISTED).then_some(listing)
}

/// Whether a path is, or is in, a folder that counts as one thing.
pub(crate) fn counts_as_one(path: &str) -> bool {
    folder_as_one(Path::new(path)).is_some()
}

/// The files that differ, written and deleted, without those that `is_excluded` names.
pub(crate) fn differences(
    before: &FileDigests,
    after: &FileDigests,
    is_excluded: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<String>) {
    let written = after
        .iter()
        .filter(|(name, content)| before.get(*name) != Some(content))
        .map(|(name, _)| name);
    let deleted = before.keys().filter(|name| !after.contains_key(*name));
    let is_counted = |name: &&String| !is_excluded(name);
    (
        written.filter(is_counted).cloned().collect(),
        deleted.filter(is_counted).cloned().collect(),
    )
}

/// The description of a content where another run would have the same; not one by its time.
pub(crate) fn comparable(path: &str, content: &str) -> Option<String> {
    let is_by_time = counts_as_one(path) || content.contains(BY_TIME);
    (!is_by_time).then(|| content.to_owned())
}

/// The outermost folder of a path that counts as one.
fn folder_as_one(path: &Path) -> Option<String> {
    let mut way = Vec::new();
    for part in path.iter() {
        way.push(part.to_string_lossy());
        if AS_ONE.contains(&&*part.to_string_lossy()) {
            return Some(way.join("/"));
        }
    }
    None
}

fn describe_by_time(entry: &WorkspaceEntry) -> Vec<u8> {
    let size = if let EntryKind::File { size, .. } = &entry.kind {
        *size
    } else {
        0
    };
    format!("{}\0{size}\0{:?}\0", shown(&entry.path), entry.mtime).into_bytes()
}

fn describe(workspace: &Workspace, entry: &WorkspaceEntry) -> Result<Option<String>> {
    Ok(match &entry.kind {
        EntryKind::Dir { .. } => None,
        EntryKind::Link { target } => Some(format!("link {}", target.to_string_lossy())),
        EntryKind::Special => Some("special".into()),
        EntryKind::File { size, .. } if *size > HASHED_LIMIT => {
            Some(format!("{size}{BY_TIME}{:?}", entry.mtime))
        }
        EntryKind::File { size, .. } => match workspace.read_file(&entry.path, *size)? {
            ReadOutcome::File(bytes) => Some(content_hash(&bytes)),
            ReadOutcome::TooLarge(size) => Some(format!("{size} and growing")),
            ReadOutcome::Other | ReadOutcome::Missing => Some("not readable".into()),
        },
    })
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
