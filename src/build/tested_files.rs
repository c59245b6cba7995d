//! Records the workspace when the checks pass, and finds later changes.
//!
//! A file is identified by a digest of its content; size, times and inode are kept as well, so that an untouched file is
//! not read again. Bytecode, caches, dependencies and repositories are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::build::context::Context;
use crate::build::kept_files::is_kept;
use crate::build::protection::whole_walk;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT, TestedFile};
use crate::text::hex;
use crate::workspace::generated::{is_generated, is_tool_folder};
use crate::workspace::{
    EntryKind, ReadOutcome, RecordedWalk, WalkEnd, WalkStep, Workspace, WorkspaceEntry,
};

const BYTECODE: [&str; 2] = ["pyc", "pyo"];
/// A longer file is identified by its size and mtime.
const HASHED_LIMIT: u64 = 64 << 20;
/// How many digits of a SHA-256 are kept.
const HASH_DIGITS: usize = 32;
/// A workspace with more files is not compared.
pub(crate) const MAX_FILES: usize = 100_000;

pub(crate) type TestedFiles = BTreeMap<String, TestedFile>;

/// Records durably which files the checks passed on. Their digests are those of the snapshot that was just taken.
pub(crate) fn record(context: &mut Context) -> Result<()> {
    let walk = whole_walk(context)?;
    let found = match walk.len() > MAX_FILES && count(&walk) > MAX_FILES {
        true => None,
        false => find(|visit| {
            walk.walk(visit);
            Ok(WalkEnd::Whole)
        })?,
    };
    let files = found.map(|entries| {
        describe(&context.workspace, entries, &context.cancel, |entry, _| {
            let id = context.attempts.content_id(&entry.path)?;
            Some(digest(kind(entry)?, &id.to_string()))
        })
    });
    match files.transpose()? {
        Some(files) => context.log.record_synced(Event::WorkspaceTested { agent_id: MAIN_AGENT.into(), files }),
        None => context.log.note(format!(
            "workspace/ has more than {MAX_FILES} files, so later changes to this result will not be noticed"
        )),
    }
}

/// The files that differ from the tested ones, marked as new or deleted.
pub(crate) fn changes(
    workspace: Option<&Workspace>,
    tested: &TestedFiles,
    cancel: &CancelToken,
) -> Result<Vec<String>> {
    let now = match workspace {
        Some(workspace) => find(|visit| workspace.walk(visit))?
            .map(|entries| {
                describe(workspace, entries, cancel, |entry, stamp| {
                    let known = tested.get(entry.path.to_string_lossy().as_ref())?;
                    (known.stamp == stamp).then(|| known.content.clone())
                })
            })
            .transpose()?,
        None => Some(TestedFiles::new()),
    };
    let Some(now) = now else {
        return Ok(vec![format!("more than {MAX_FILES} files")]);
    };
    let mut changes = Vec::new();
    for (name, before) in tested {
        match now.get(name) {
            None => changes.push(format!("{name} (deleted)")),
            Some(mark) if mark.content != before.content => changes.push(name.clone()),
            Some(_) => {}
        }
    }
    changes.extend(
        now.keys()
            .filter(|name| !tested.contains_key(*name))
            .map(|name| format!("{name} (new)")),
    );
    Ok(changes)
}

fn is_counted(entry: &WorkspaceEntry) -> bool {
    !is_ignored(&entry.path) && !is_kept(&entry.path)
}

/// How many files a walk has found.
fn count(walk: &RecordedWalk) -> usize {
    let mut files = 0;
    walk.walk(&mut |entry| match is_counted(entry) {
        true => {
            files += usize::from(!matches!(entry.kind, EntryKind::Dir { .. }));
            WalkStep::On
        }
        false => WalkStep::Skip,
    });
    files
}

/// Everything but folders and what is ignored; `None` if that is too much.
fn find(
    walk: impl FnOnce(&mut dyn FnMut(&WorkspaceEntry) -> WalkStep) -> Result<WalkEnd>,
) -> Result<Option<Vec<WorkspaceEntry>>> {
    let mut entries = Vec::new();
    let walked = walk(&mut |entry| {
        if !is_counted(entry) {
            return WalkStep::Skip;
        }
        if !matches!(entry.kind, EntryKind::Dir { .. }) {
            entries.push(entry.clone());
        }
        if entries.len() > MAX_FILES {
            WalkStep::Stop
        } else {
            WalkStep::On
        }
    })?;
    let is_whole = walked == WalkEnd::Whole && entries.len() <= MAX_FILES;
    Ok(is_whole.then_some(entries))
}

/// Describes files; those whose content is `known` by their entry and stamp are not read.
fn describe(
    workspace: &Workspace,
    entries: Vec<WorkspaceEntry>,
    cancel: &CancelToken,
    known: impl Fn(&WorkspaceEntry, &str) -> Option<String>,
) -> Result<TestedFiles> {
    let mut files = TestedFiles::new();
    for entry in entries {
        cancel
            .requested()
            .map_or(Ok(()), |signal| Err(Error::Stopped(signal)))?;
        let stamp = stamp(&entry);
        let content = match known(&entry, &stamp) {
            Some(known) => known,
            None => content(workspace, &entry)?,
        };
        let name = entry.path.to_string_lossy().into_owned();
        files.insert(name, TestedFile { content, stamp });
    }
    Ok(files)
}

fn is_ignored(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    let ending = path.extension().unwrap_or_default();
    is_generated(name) || is_tool_folder(name) || BYTECODE.iter().any(|known| ending == *known)
}

/// Metadata that changes whenever the file is written.
fn stamp(entry: &WorkspaceEntry) -> String {
    let (size, mode) = if let EntryKind::File { size, mode } = entry.kind {
        (size, mode)
    } else {
        (0, 0)
    };
    let WorkspaceEntry {
        ino, ctime, mtime, ..
    } = entry;
    format!(
        "{ino} {size} {mode:o} {}.{:09} {}.{:09}",
        mtime.0, mtime.1, ctime.0, ctime.1
    )
}

/// A digest of the content; it includes whether the file is executable.
fn content(workspace: &Workspace, entry: &WorkspaceEntry) -> Result<String> {
    let size = match &entry.kind {
        EntryKind::File { size, .. } => *size,
        EntryKind::Link { target } => return Ok(format!("link {}", target.to_string_lossy())),
        EntryKind::Dir { .. } | EntryKind::Special => return Ok("special".into()),
    };
    let kind = kind(entry).unwrap_or_default();
    Ok(
        match workspace.read_file(&entry.path, size.min(HASHED_LIMIT))? {
            ReadOutcome::File(bytes) => digest(kind, &hex(&Sha256::digest(&bytes))),
            ReadOutcome::TooLarge(size) => format!(
                "{kind} of {size} bytes, {}.{:09}",
                entry.mtime.0, entry.mtime.1
            ),
            ReadOutcome::Other | ReadOutcome::Missing => format!("{kind} that cannot be read"),
        },
    )
}

/// A regular file, or one that is executable.
fn kind(entry: &WorkspaceEntry) -> Option<&'static str> {
    match entry.kind {
        EntryKind::File { mode, .. } if mode & 0o111 == 0 => Some("file"),
        EntryKind::File { .. } => Some("program"),
        EntryKind::Dir { .. } | EntryKind::Link { .. } | EntryKind::Special => None,
    }
}

fn digest(kind: &str, sha256: &str) -> String {
    format!("{kind} {}", &sha256[..HASH_DIGITS.min(sha256.len())])
}
