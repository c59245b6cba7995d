//! The directory of a fleet: its files, and the lock of its driver.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::fleet::names::usual_spelling;
use crate::regular_file::open_regular_file;
use crate::state::store::holder_text;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The lock of the driver. A folder that has it is the directory of a fleet, and is never copied into a workspace.
pub(crate) const DRIVER_LOCK: &str = ".fleet.lock";
pub(crate) const PLAN_FILE: &str = "fleet.json";
pub(crate) const SLURM_LOG: &str = "slurm.log";
pub(crate) const CANCELLED_FILE: &str = "cancelled.json";
const ROOTS: &str = "roots";
const RESULTS: &str = "results";
/// The ending of temporary names, which no reader of results takes for a result.
const TEMPORARY: &str = ".new";

/// The directory of a fleet.
#[derive(Debug, Clone)]
pub(crate) struct FleetFolder {
    pub(crate) path: PathBuf,
}

/// The lock of the driver; it is released when the process ends.
#[derive(Debug)]
pub(crate) struct DriverLock {
    _file: File,
}

impl FleetFolder {
    pub(crate) fn new(path: &Path) -> FleetFolder {
        FleetFolder {
            path: usual_spelling(path),
        }
    }

    /// The fleet that a root belongs to.
    pub(crate) fn of_root(root: &Path) -> Option<FleetFolder> {
        let root = root.canonicalize().ok()?;
        let roots = root.parent().filter(|roots| roots.ends_with(ROOTS))?;
        let path = roots.parent()?;
        path.join(PLAN_FILE)
            .is_file()
            .then(|| FleetFolder::new(path))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The root of an entry.
    pub(crate) fn root(&self, name: &str) -> PathBuf {
        self.path.join(ROOTS).join(name)
    }

    /// The path of an entry's root below the directory.
    pub(crate) fn relative_root(name: &str) -> String {
        format!("{ROOTS}/{name}")
    }

    pub(crate) fn result_file(&self, name: &str) -> PathBuf {
        self.path.join(RESULTS).join(format!("{name}.json"))
    }

    /// Creates the root of an entry.
    pub(crate) fn create_root(&self, name: &str) -> Result<PathBuf> {
        let root = self.root(name);
        std::fs::create_dir_all(&root).map_err(|error| Error::io("create", &root, error))?;
        Ok(root)
    }

    /// Whether the directory has a plan.
    pub(crate) fn has_plan(&self) -> bool {
        self.file(PLAN_FILE).is_file()
    }

    /// Refuses a directory that has files but is not that of a fleet.
    pub(crate) fn refuse_foreign(&self) -> Result<()> {
        if self.has_plan() || self.file(DRIVER_LOCK).is_file() {
            return Ok(());
        }
        let mut entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::Usage(format!(
                    "{} is not a directory",
                    self.path.display()
                )));
            }
            Err(error) => return Err(Error::io("read", &self.path, error)),
        };
        match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::Usage(format!(
                "{} is not empty and not the directory of a fleet\nhelp: name another one: --out DIR",
                self.path.display()
            ))),
        }
    }

    /// Creates the directory, takes the lock of the driver, and creates the folders. The lock comes first: with it, what a
    /// kill leaves is known to be a fleet.
    pub(crate) fn create(&self) -> Result<DriverLock> {
        let create = |path: &Path| {
            std::fs::create_dir_all(path).map_err(|error| Error::io("create", path, error))
        };
        create(&self.path)?;
        let lock = self.lock_driver()?;
        create(&self.path.join(ROOTS))?;
        create(&self.path.join(RESULTS))?;
        Ok(lock)
    }

    /// Takes the lock of the driver; the error names the process that has it.
    fn lock_driver(&self) -> Result<DriverLock> {
        let path = self.file(DRIVER_LOCK);
        let failed = |action| {
            let path = path.clone();
            move |error: io::Error| Error::io(action, &path, error)
        };
        let mut file = self.open_lock(DRIVER_LOCK)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(Error::Locked(format!(
                    "the fleet in {} has a driver already ({})\n\
                     help: `orchestrator fleet status {}` shows its progress",
                    self.path.display(),
                    holder.trim(),
                    self.path.display()
                )));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder_text().as_bytes()))
            .map_err(failed("write"))?;
        Ok(DriverLock { _file: file })
    }

    /// Opens a lock file, and creates it if it is missing.
    pub(crate) fn open_lock(&self, name: &str) -> Result<File> {
        let path = self.file(name);
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| Error::io("open", &path, error))
    }

    /// Reads a JSON file; `None` if there is none.
    pub(crate) fn read_json<T: DeserializeOwned>(&self, path: &Path) -> Result<Option<T>> {
        let mut file = match open_regular_file(path, OFlags::empty()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", path, error)),
        };
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|error| Error::io("read", path, error))?;
        match serde_json::from_str(&text) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(Error::Spec(format!(
                "{}:{}:{}: invalid file of a fleet: {error}",
                path.display(),
                error.line(),
                error.column()
            ))),
        }
    }

    /// Replaces a JSON file durably; when it fails, the old one is unchanged.
    pub(crate) fn write_json(&self, path: &Path, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Error::Bug(format!("cannot serialize {}: {error}", path.display())))?;
        text.push('\n');
        replace_durably(path, text.as_bytes()).map_err(|error| Error::io("write", path, error))
    }

    /// The entries that `fleet cancel` stopped.
    pub(crate) fn cancelled(&self) -> Result<BTreeSet<String>> {
        let read = self.read_json(&self.file(CANCELLED_FILE))?;
        Ok(read.unwrap_or_default())
    }

    /// Adds entries to those that are cancelled. Only the driver and a process that has the lock of the ledger write them.
    pub(crate) fn cancel(&self, names: &[String]) -> Result<()> {
        let mut cancelled = self.cancelled()?;
        cancelled.extend(names.iter().cloned());
        self.write_json(&self.file(CANCELLED_FILE), &cancelled)
    }

    /// Takes all cancellations back.
    pub(crate) fn forget_cancelled(&self) -> Result<()> {
        let path = self.file(CANCELLED_FILE);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("delete", &path, error))
            }
            _ => Ok(()),
        }
    }
}

/// Replaces a file. The temporary name is fixed, since one process at a time writes a file, so that a kill leaves at most
/// one, which the next writer replaces.
fn replace_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(TEMPORARY);
    let temporary = folder.join(name);
    let written =
        write_durably(&temporary, content).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written?;
    File::open(folder)?.sync_all()
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}
