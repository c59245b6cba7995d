//! Records the workspace when the checks pass, and finds later changes.
//!
//! A file is identified by a digest of its content; size, times and inode are kept as well, so that an untouched file is
//! not read again. Bytecode, caches, dependencies and repositories are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::build::context::Context;
use crate::build::kept_files::is_kept;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT, TestedFile};
use crate::text::hex;
use crate::workspace::generated::{is_generated, is_tool_folder};
use crate::workspace::{EntryKind, ReadOutcome, WalkEnd, WalkStep, Workspace, WorkspaceEntry};

const BYTECODE: [&str; 2] = ["pyc", "pyo"];
/// A longer file is identified by its size and mtime.
const HASHED_LIMIT: u64 = 64 << 20;
/// How much of a SHA-256 is kept.
const HASH_BYTES: usize = 16;
/// A workspace with more files is not compared.
pub(crate) const MAX_FILES: usize = 100_000;

pub(crate) type TestedFiles = BTreeMap<String, TestedFile>;

/// Records durably which files the checks passed on.
pub(crate) fn record(context: &mut Context) -> Result<()> {
    match read(&context.workspace, &TestedFiles::new(), &context.cancel)? {
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
    let now = workspace.map_or(Ok(Some(TestedFiles::new())), |workspace| {
        read(workspace, tested, cancel)
    })?;
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

/// Reads the workspace; `known` files whose stamp is unchanged are not read. Nothing if there are too many files.
fn read(
    workspace: &Workspace,
    known: &TestedFiles,
    cancel: &CancelToken,
) -> Result<Option<TestedFiles>> {
    let mut entries = Vec::new();
    let walked = workspace.walk(&mut |entry| {
        if is_ignored(&entry.path) || is_kept(&entry.path) {
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
    if walked == WalkEnd::Cut || entries.len() > MAX_FILES {
        return Ok(None);
    }
    let mut files = TestedFiles::new();
    for entry in entries {
        cancel
            .requested()
            .map_or(Ok(()), |signal| Err(Error::Stopped(signal)))?;
        let (name, stamp) = (entry.path.to_string_lossy().into_owned(), stamp(&entry));
        let content = match known.get(&name).filter(|known| known.stamp == stamp) {
            Some(known) => known.content.clone(),
            None => content(workspace, &entry)?,
        };
        files.insert(name, TestedFile { content, stamp });
    }
    Ok(Some(files))
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
    let (size, mode) = match &entry.kind {
        EntryKind::File { size, mode } => (*size, *mode),
        EntryKind::Link { target } => return Ok(format!("link {}", target.to_string_lossy())),
        EntryKind::Dir { .. } | EntryKind::Special => return Ok("special".into()),
    };
    let kind = if mode & 0o111 == 0 { "file" } else { "program" };
    Ok(
        match workspace.read_file(&entry.path, size.min(HASHED_LIMIT))? {
            ReadOutcome::File(bytes) => {
                format!("{kind} {}", hex(&Sha256::digest(&bytes)[..HASH_BYTES]))
            }
            ReadOutcome::TooLarge(size) => format!(
                "{kind} of {size} bytes, {}.{:09}",
                entry.mtime.0, entry.mtime.1
            ),
            ReadOutcome::Other | ReadOutcome::Missing => format!("{kind} that cannot be read"),
        },
    )
}
