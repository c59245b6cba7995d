//! Keeps the workspace of a run that is over, stopped or replaced, before something else takes its place.

use std::os::fd::AsFd;
use std::path::Path;

use crate::build::attempt_store::{AttemptStore, snapshot_event};
use crate::build::build_log::BuildLog;
use crate::build::kept_files::KEPT_NAMES;
use crate::cancel::CancelToken;
use crate::conversation::event_log::Projection;
use crate::error::Result;
use crate::events::Event;
use crate::secrets::Secrets;
use crate::snapshots::records::SnapshotRecord;
use crate::snapshots::take::TakenSnapshot;
use crate::state::journal::Journal;
use crate::state::run::timestamp;
use crate::state::store::{LOGS, Root};
use crate::workspace::Workspace;

/// A run whose workspace is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptRun<'a> {
    pub run_id: &'a str,
    /// The phase that it was in.
    pub phase: &'a str,
    /// Why it is kept: `before reset`.
    pub why: &'a str,
}

/// Which of the run's snapshots may have the workspace already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KnownSnapshots {
    /// The last one.
    Last,
    /// Any of them.
    All,
}

/// Keeps the workspace as a snapshot of the run, unless one has it already, and records that in the log of the run, which
/// must not be open. Returns the number of the snapshot that has it; `None` if there is nothing in it.
pub(crate) fn keep_workspace(
    root: &Root,
    workspace: &Workspace,
    run: KeptRun<'_>,
    known: KnownSnapshots,
    cancel: &CancelToken,
) -> Result<Option<u32>> {
    workspace.sweep()?;
    let mut attempts = AttemptStore::open(root, run.run_id)?;
    let build_log = read_build_log(root, run.run_id)?;
    for path in &build_log.hidden {
        workspace.remove(Path::new(path))?;
    }
    if let Some(tree) = build_log.before_hidden() {
        attempts.undo(workspace, tree, cancel)?;
    }
    let kept = keep_as_snapshot(&mut attempts, workspace, run, known, cancel)?;
    if let Some(KeptSnapshot::New(record)) = &kept {
        append(root, run.run_id, &[snapshot_event(record, None)])?;
    }
    Ok(kept.map(|kept| kept.number()))
}

/// A snapshot that has the workspace.
#[derive(Debug)]
pub(crate) enum KeptSnapshot {
    Known(u32),
    New(Box<SnapshotRecord>),
}

impl KeptSnapshot {
    fn number(&self) -> u32 {
        match self {
            KeptSnapshot::Known(number) => *number,
            KeptSnapshot::New(record) => record.number,
        }
    }
}

/// Keeps the workspace as a snapshot of the run, unless one has it already; `None` if there is nothing in it.
pub(crate) fn keep_as_snapshot(
    attempts: &mut AttemptStore,
    workspace: &Workspace,
    run: KeptRun<'_>,
    known: KnownSnapshots,
    cancel: &CancelToken,
) -> Result<Option<KeptSnapshot>> {
    if !workspace.has_files_but(&KEPT_NAMES)? {
        return Ok(None);
    }
    let taken = attempts.take(workspace, cancel)?;
    let records = attempts.records().list()?;
    let mut records = records.values().rev();
    let is_same = |record: &&SnapshotRecord| record.tree == taken.tree;
    let last = records.next();
    let found = last.filter(is_same).or_else(|| match known {
        KnownSnapshots::Last => None,
        KnownSnapshots::All => records.find(is_same),
    });
    let is_half_emptied = |last: &&SnapshotRecord| {
        known == KnownSnapshots::Last && is_half_emptied(attempts, last, run, &taken)
    };
    if let Some(found) = found.or(last.filter(is_half_emptied)) {
        attempts.records().sync()?;
        return Ok(Some(KeptSnapshot::Known(found.number)));
    }
    let record = record(run, &taken, last.map_or(1, |last| last.number + 1));
    attempts.records().stage(&record)?.place()?;
    Ok(Some(KeptSnapshot::New(Box::new(record))))
}

/// Whether the last snapshot has all that is there, and was kept when the same command was interrupted.
fn is_half_emptied(
    attempts: &AttemptStore,
    last: &SnapshotRecord,
    run: KeptRun<'_>,
    taken: &TakenSnapshot,
) -> bool {
    let mut changed = taken.changed.iter();
    last.kept.as_deref() == Some(run.why) && changed.all(|path| !attempts.has_path(path))
}

fn record(run: KeptRun<'_>, taken: &TakenSnapshot, number: u32) -> SnapshotRecord {
    let files = taken.changed.iter();
    SnapshotRecord {
        number,
        time: timestamp(),
        tree: taken.tree,
        phase: run.phase.to_owned(),
        files: files
            .map(|path| path.to_string_lossy().into_owned())
            .collect(),
        unstored: taken.unstored.clone(),
        round: None,
        kept: Some(run.why.to_owned()),
    }
}

/// What the log of a run says; nothing without a log.
pub(crate) fn read_build_log(root: &Root, run_id: &str) -> Result<BuildLog> {
    let mut build_log = BuildLog::default();
    with_log(root, run_id, &mut |line, event| {
        build_log.apply(line, &event)
    })?;
    Ok(build_log)
}

/// Appends events to the log of a run that is not under way. A log that was deleted is not created again.
pub(crate) fn append(root: &Root, run_id: &str, events: &[Event]) -> Result<()> {
    if let Some(mut journal) = with_log(root, run_id, &mut |_, _| {})? {
        for event in events {
            journal.append(event)?;
        }
        journal.sync()?;
    }
    Ok(())
}

/// Opens the log of a run, if it exists, and passes its events to `visit`.
fn with_log(
    root: &Root,
    run_id: &str,
    visit: &mut dyn FnMut(u64, Event),
) -> Result<Option<Journal>> {
    let logs = root.join(LOGS);
    if !logs.join(format!("{run_id}.log")).is_file() {
        return Ok(None);
    }
    let directory = root.directory(LOGS)?;
    let secrets = Secrets::default();
    let (journal, _) = Journal::open(directory.as_fd(), &logs, run_id, &secrets, visit)?;
    Ok(Some(journal))
}
