//! The snapshots of a run by number: `logs/<run_id>/attempts/<number>.json`, and beside them what was taken in.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::snapshots::objects::{ObjectId, Replacement, sync_folder};
use crate::snapshots::take::UnstoredEntry;
use crate::state::run::{UsageTotals, is_run_id};
use crate::state::store::{LOGS, Root};

pub(crate) const FOLDER: &str = "attempts";
const TAKEN_IN: &str = "taken-in.json";
const START: &str = "start.json";
const APPLIED: &str = "applied.json";

/// A snapshot of the workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    /// From 1, per run.
    pub number: u32,
    pub time: String,
    pub tree: ObjectId,
    /// The phase that wrote the files, or the one that the run was in.
    pub phase: String,
    /// What differs from the snapshot before.
    pub files: Vec<String>,
    pub unstored: Vec<UnstoredEntry>,
    /// The round of checks on it; `None` if it was kept for another reason.
    pub round: Option<RoundResult>,
    /// Why it was kept without a round.
    pub kept: Option<String>,
}

/// The result of a round of checks, and what the attempt has used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundResult {
    pub retry_count: u32,
    /// Of all checks together; `None` if no runner reported any.
    pub tests: Option<TestTotals>,
    pub failed_checks: u32,
    /// The first cause of the failure.
    pub cause: Option<String>,
    pub usage: UsageTotals,
    pub duration_ms: u64,
}

/// What a run began with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TakenIn {
    pub tree: ObjectId,
    /// Where `copy` took files and folders from.
    pub copied: Vec<CopiedSource>,
    /// What is protected in the workspace: files, and folders with all that is in them.
    pub protected: Vec<String>,
}

/// A file or folder that `copy` took in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopiedSource {
    /// Relative to the root if it is inside.
    pub from: PathBuf,
    /// Its path in the workspace; empty is the top.
    pub to: String,
    pub is_folder: bool,
    /// What of a folder is left out, as in an ignore file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

/// The tree of a workspace at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct TreeMark {
    tree: ObjectId,
}

/// The snapshots of one run.
#[derive(Debug, Clone)]
pub(crate) struct RunSnapshots {
    logs: PathBuf,
    folder: PathBuf,
}

impl RunSnapshots {
    pub(crate) fn of(root: &Root, run_id: &str) -> RunSnapshots {
        RunSnapshots::in_logs(&root.join(LOGS), run_id)
    }

    fn in_logs(logs: &Path, run_id: &str) -> RunSnapshots {
        RunSnapshots {
            logs: logs.to_owned(),
            folder: logs.join(run_id).join(FOLDER),
        }
    }

    /// All runs of a root that have snapshots, the one whose last snapshot is oldest first.
    pub(crate) fn all(root: &Root) -> Result<Vec<(String, RunSnapshots)>> {
        let logs = root.join(LOGS);
        let mut runs = Vec::new();
        for run_id in names_in(&logs)?.into_iter().filter(|name| is_run_id(name)) {
            let snapshots = RunSnapshots::in_logs(&logs, &run_id);
            let records = snapshots.list()?;
            let newest = records.values().map(|record| record.time.clone()).max();
            if newest.is_some() || snapshots.taken_in()?.is_some() {
                runs.push((newest, run_id, snapshots));
            }
        }
        runs.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        Ok(runs
            .into_iter()
            .map(|(_, run_id, snapshots)| (run_id, snapshots))
            .collect())
    }

    /// All snapshots by number.
    pub(crate) fn list(&self) -> Result<BTreeMap<u32, SnapshotRecord>> {
        let mut records = BTreeMap::new();
        for name in names_in(&self.folder)? {
            let number = name
                .strip_suffix(".json")
                .and_then(|stem| stem.parse().ok());
            if let Some(number) = number
                && let Some(record) = self.read::<SnapshotRecord>(&name)?
            {
                records.insert(number, record);
            }
        }
        Ok(records)
    }

    /// Writes the record of a snapshot, to be put in its place when what it names is durable.
    pub(crate) fn stage(&self, record: &SnapshotRecord) -> Result<StagedRecord> {
        self.write(&format!("{}.json", record.number), record)
    }

    /// Removes a snapshot durably: what only it needs may go then.
    pub(crate) fn remove(&self, number: u32) -> Result<()> {
        self.unlink(&format!("{number}.json"))?;
        fs::File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| Error::io("sync", &self.folder, error))
    }

    /// What the run took in.
    pub(crate) fn taken_in(&self) -> Result<Option<TakenIn>> {
        self.read(TAKEN_IN)
    }

    /// Writes what the run took in, to be put in its place when its contents are durable.
    pub(crate) fn stage_taken_in(&self, taken_in: &TakenIn) -> Result<StagedRecord> {
        self.write(TAKEN_IN, taken_in)
    }

    /// The workspace that a continued run began with.
    pub(crate) fn start(&self) -> Result<Option<ObjectId>> {
        Ok(self.read::<TreeMark>(START)?.map(|mark| mark.tree))
    }

    pub(crate) fn save_start(&self, tree: ObjectId) -> Result<()> {
        self.write(START, &TreeMark { tree })?.place()
    }

    /// The workspace as it was last applied.
    pub(crate) fn applied(&self) -> Result<Option<ObjectId>> {
        Ok(self.read::<TreeMark>(APPLIED)?.map(|mark| mark.tree))
    }

    pub(crate) fn save_applied(&self, tree: ObjectId) -> Result<()> {
        self.write(APPLIED, &TreeMark { tree })?.place()
    }

    /// The ids of all trees that are recorded.
    pub(crate) fn trees(&self) -> Result<Vec<ObjectId>> {
        let mut trees: Vec<ObjectId> = self.list()?.values().map(|record| record.tree).collect();
        trees.extend(self.taken_in()?.map(|taken_in| taken_in.tree));
        trees.extend(self.start()?);
        trees.extend(self.applied()?);
        Ok(trees)
    }

    /// Removes what is recorded beside the numbered snapshots. By what was taken in the run is found, so that goes last.
    pub(crate) fn remove_marks(&self) -> Result<()> {
        [START, APPLIED, TAKEN_IN]
            .iter()
            .try_for_each(|name| self.unlink(name))?;
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.folder.join(name);
        match fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(record) => Ok(Some(record)),
                Err(error) => Err(Error::io("read", &path, io::Error::other(error))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    fn write(&self, name: &str, record: &impl Serialize) -> Result<StagedRecord> {
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| Error::Bug(format!("cannot serialize a snapshot: {error}")))?;
        let is_first = !self.folder.is_dir();
        if is_first {
            fs::create_dir_all(&self.folder)
                .map_err(|error| Error::io("create", &self.folder, error))?;
        }
        Ok(StagedRecord {
            new_in: is_first.then(|| self.clone()),
            file: Replacement::write(&self.logs, &self.folder.join(name), &text)?,
        })
    }

    /// Makes the names of the folders durable.
    fn sync_folders(&self) -> Result<()> {
        let run_folder = self.folder.parent().unwrap_or(&self.logs);
        sync_folder(run_folder)
            .and_then(|()| sync_folder(&self.logs))
            .map_err(|error| Error::io("sync", &self.folder, error))
    }

    /// Makes durable what is recorded: a crash may have left a name without a sync.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = match self.folder.is_dir() {
            true => sync_folder(&self.folder),
            false => Ok(()),
        };
        synced.map_err(|error| Error::io("sync", &self.folder, error))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("remove", &path, error)),
        }
    }
}

/// A record that is written and not in its place yet.
#[derive(Debug)]
pub(crate) struct StagedRecord {
    /// The snapshots whose folder was made for it.
    new_in: Option<RunSnapshots>,
    file: Replacement,
}

impl StagedRecord {
    /// Puts the record in its place, durably.
    pub(crate) fn place(self) -> Result<()> {
        self.new_in
            .as_ref()
            .map_or(Ok(()), RunSnapshots::sync_folders)?;
        self.file.place()
    }
}

/// The names in a folder; none if it does not exist.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::io("read", folder, error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_str().map(str::to_owned));
    }
    Ok(names)
}
