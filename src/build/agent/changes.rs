//! What a phase has changed in the workspace: every file with what tells its content, before and after.
//!
//! Folders that tools fill count as one thing each. What is protected is put back, so it is nobody's change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::build::context::Context;
use crate::build::generators::{WrittenFiles, content_hash};
use crate::build::model_call::hex;
use crate::build::spec::inputs::InputKind;
use crate::error::Result;
use crate::events::FileMark;
use crate::workspace::generated::is_in_generated;
use crate::workspace::{
    EntryKind, FileTime, ReadOutcome, WalkEnd, WalkStep, Workspace, WorkspaceEntry,
};

/// Folders that hold what tools made.
const AS_ONE: [&str; 5] = [".git", "node_modules", "target", ".venv", "__pycache__"];
/// A file longer than this is told by its length and its time.
const HASHED_LIMIT: u64 = 16 << 20;
/// Marks what is told by its time.
const BY_TIME: &str = " bytes, changed at ";
/// So many names are kept of an attempt.
const MOST_NAMES: usize = 1000;
/// So many files are looked at after each call.
const MOST_LISTED: usize = 20_000;

/// Files by name, each with what tells its content.
pub type FileDigests = BTreeMap<String, String>;

/// Looks at the workspace.
pub fn look(context: &Context) -> Result<FileDigests> {
    let mut entries = Vec::new();
    context.workspace.walk(&mut |entry| {
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
                drop(describe(context, &entry)?.map(|told| files.insert(shown(&entry.path), told)))
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
pub struct WorkspaceListing {
    pub files: BTreeMap<String, (u64, FileTime)>,
    pub as_one: Vec<String>,
}

impl WorkspaceListing {
    /// Returns a file as it is, or as one that is not there.
    pub fn mark(&self, path: &str) -> FileMark {
        let found = self.files.get(path);
        FileMark {
            path: path.to_owned(),
            size: found.map(|(size, _)| *size),
            modified: found
                .map(|(_, (seconds, nanoseconds))| format!("{seconds}.{nanoseconds:09}")),
        }
    }

    /// Returns what differs in a later one, or nothing where that is too much to keep.
    pub fn changed(&self, later: &WorkspaceListing) -> Option<Vec<FileMark>> {
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

/// Returns the marks unless there are too many to keep.
pub fn bounded(marks: Vec<FileMark>) -> Option<Vec<FileMark>> {
    (marks.len() <= MOST_NAMES).then_some(marks)
}

/// Lists the workspace, or returns nothing where there is too much in it to look at after each call.
pub fn list(workspace: &Workspace) -> Option<WorkspaceListing> {
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

/// Whether a path is, or lies in, a folder that counts as one thing.
pub fn counts_as_one(path: &str) -> bool {
    folder_as_one(Path::new(path)).is_some()
}

/// Returns what differs, without what is protected.
pub fn between(before: &FileDigests, after: &FileDigests, context: &Context) -> WrittenFiles {
    let protected = ProtectedPaths::of(context);
    let is_ours = |name: &&String| !protected.holds(name);
    let written: Vec<String> = after
        .iter()
        .filter(|(name, told)| before.get(*name) != Some(told))
        .map(|(name, _)| name)
        .filter(is_ours)
        .cloned()
        .collect();
    let deleted: Vec<String> = before
        .keys()
        .filter(|name| !after.contains_key(*name))
        .filter(is_ours)
        .cloned()
        .collect();
    let all: BTreeSet<String> = written.iter().chain(&deleted).cloned().collect();
    let attempt_files: Vec<String> = all.into_iter().take(MOST_NAMES).collect();
    let hashes = attempt_files
        .iter()
        .filter_map(|path| Some((path.clone(), comparable(path, after.get(path)?)?)));
    WrittenFiles {
        hashes: hashes.collect(),
        attempt_files,
        written,
        deleted,
    }
}

/// Returns what tells a content in another run too; not what tells it by its time.
fn comparable(path: &str, told: &str) -> Option<String> {
    let is_by_time = counts_as_one(path) || told.contains(BY_TIME);
    (!is_by_time).then(|| told.to_owned())
}

/// The places that the user protects.
struct ProtectedPaths<'a> {
    files: BTreeSet<&'a str>,
    folders: Vec<&'a Path>,
}

impl ProtectedPaths<'_> {
    fn of(context: &Context) -> ProtectedPaths<'_> {
        let inputs = &context.inputs.protect;
        let folders = inputs.iter().filter(|input| input.kind == InputKind::Dir);
        ProtectedPaths {
            files: inputs.iter().map(|input| input.to.as_str()).collect(),
            folders: folders.map(|input| Path::new(input.to.as_str())).collect(),
        }
    }

    fn holds(&self, name: &str) -> bool {
        self.files.contains(name)
            || self
                .folders
                .iter()
                .any(|folder| Path::new(name).starts_with(folder))
    }
}

/// Returns the outermost folder on the way that counts as one.
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

fn describe(context: &Context, entry: &WorkspaceEntry) -> Result<Option<String>> {
    Ok(match &entry.kind {
        EntryKind::Dir { .. } => None,
        EntryKind::Link { target } => Some(format!("link {}", target.to_string_lossy())),
        EntryKind::Special => Some("special".into()),
        EntryKind::File { size, .. } if *size > HASHED_LIMIT => {
            Some(format!("{size}{BY_TIME}{:?}", entry.mtime))
        }
        EntryKind::File { size, .. } => match context.workspace.read_file(&entry.path, *size)? {
            ReadOutcome::File(bytes) => Some(content_hash(&bytes)),
            ReadOutcome::TooLarge(size) => Some(format!("{size} and growing")),
            ReadOutcome::Other | ReadOutcome::Missing => Some("not readable".into()),
        },
    })
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
