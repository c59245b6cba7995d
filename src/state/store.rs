//! The root directory: its lock, and atomic replacement of `state.json`.
//!
//! Everything is done relative to one directory handle, so a root that is renamed during a run stays the same root.
//! A save is: temporary file with an unpredictable name, fsync, rename, fsync of the directory.

#![expect(
    clippy::disallowed_methods,
    reason = "state.json and the lock are not generated files"
)]

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, linkat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use serde::Serialize;

use crate::cancel::CancelToken;
use crate::error::{Error, Result, Violation};
use crate::state::background::BackgroundSave;
use crate::state::file_lock::{LockWait, lock_file};
use crate::state::run::{InvalidState, ParsedState, RunState, now, timestamp};
use crate::state::workflow::WorkflowState;

pub(crate) const STATE_FILE: &str = "state.json";
pub(crate) const LOCK_FILE: &str = ".orchestrator.lock";
pub(crate) const LOGS: &str = "logs";
const TEMPORARY: &str = "state.json.tmp-";
/// Far above the size of any state: the texts of a build are bounded, a workflow has the payloads of its agents.
const STATE_LIMIT: u64 = 4 << 30;
const CORRUPT: &str = "state.json.corrupt-";
/// Name prefix of folders with copies of the workspace.
pub(crate) const COPIES: &str = ".orchestrator-copies-";

/// The directory of a run.
#[derive(Debug)]
pub(crate) struct Root {
    pub path: PathBuf,
    directory: Arc<OwnedFd>,
    spare: Option<SpareState>,
}

/// A temporary file that takes the place of `state.json` at each save, which takes its place. Removed on drop.
///
/// Programs whose sandbox contains the root have both files covered by mounts. In a mount namespace such a cover belongs
/// to the file and not to its name: it stays when two files exchange their names, and is lost when one is replaced.
#[derive(Debug)]
struct SpareState {
    directory: OwnedFd,
    name: String,
}

impl Drop for SpareState {
    fn drop(&mut self) {
        let _ = unlinkat(&self.directory, self.name.as_str(), AtFlags::empty());
    }
}

/// Whether an entry of a root, by its name, belongs to the run alone: its state, also while it is replaced or set aside,
/// its logs and its lock.
pub(crate) fn is_own_entry(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    name == STATE_FILE
        || name == LOGS
        || name == LOCK_FILE
        || bytes.starts_with(TEMPORARY.as_bytes())
        || bytes.starts_with(CORRUPT.as_bytes())
        || bytes.starts_with(COPIES.as_bytes())
}

/// The lock of a root; the kernel releases it when the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// The content of `state.json`.
#[derive(Debug)]
pub(crate) enum LoadedState {
    /// The file does not exist.
    Nothing,
    Build(Box<RunState>),
    Workflow(Box<WorkflowState>),
    /// It is that of a workflow, and corrupt.
    CorruptWorkflow(InvalidState),
    Corrupt(InvalidState),
}

impl Root {
    /// Opens a root; a missing one is a usage error.
    pub(crate) fn open(path: &Path) -> Result<Root> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => Ok(Root {
                path: path.to_owned(),
                directory: Arc::new(directory),
                spare: None,
            }),
            Err(Errno::NOENT) if path.as_os_str().is_empty() => Err(Error::Usage(
                "the current directory no longer exists; name another --root".into(),
            )),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(Error::Usage(format!(
                "the root {} is not a directory",
                path.display()
            ))),
            Err(error) => Err(Error::io("open", path, error)),
        }
    }

    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The path with links resolved, as programs in the root see it.
    pub(crate) fn real_path(&self) -> PathBuf {
        real_path(&self.path)
    }

    /// The path of a name in the root, for messages.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Refuses a `workspace` or `logs` that is not a directory; a link would redirect writes elsewhere.
    pub(crate) fn refuse_links(&self, names: &[&str]) -> Result<()> {
        for name in names {
            match self.stat(name)? {
                Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                    return Err(Violation::new(
                        name,
                        "is a link; it has to be a directory of the root itself",
                    )
                    .into());
                }
                Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
                    return Err(Error::io("use", &self.join(name), Errno::NOTDIR));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Locks the root for this process; the error names the holder.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let path = self.join(LOCK_FILE);
        let file = self.create_lock_file()?;
        match file.try_lock() {
            Ok(()) => self.note_holder(file),
            Err(TryLockError::WouldBlock) => Err(Error::Locked(self.in_use(&file))),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, error)),
        }
    }

    /// Like `lock`, but waits until `deadline` for the process that has it.
    pub(crate) fn lock_until(&self, deadline: Instant, cancel: &CancelToken) -> Result<Lock> {
        let path = self.join(LOCK_FILE);
        let locked = lock_file(self.create_lock_file()?, Some(deadline), cancel)
            .map_err(|error| Error::io("lock", &path, error))?;
        match locked {
            LockWait::Locked(file) => self.note_holder(file),
            LockWait::TimedOut => Err(Error::Locked(self.in_use(&self.create_lock_file()?))),
            LockWait::Stopped(signal) => Err(Error::Stopped(signal)),
        }
    }

    fn create_lock_file(&self) -> Result<File> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(
            &self.directory,
            LOCK_FILE,
            flags,
            Mode::from_raw_mode(0o644),
        )
        .map_err(|error| Error::io("open", &self.join(LOCK_FILE), error))?;
        Ok(File::from(fd))
    }

    /// Writes this process into the lock file.
    fn note_holder(&self, mut file: File) -> Result<Lock> {
        file.set_len(0)
            .and_then(|()| file.write_all(holder_text().as_bytes()))
            .map_err(|error| Error::io("write", &self.join(LOCK_FILE), error))?;
        Ok(Lock { _file: file })
    }

    /// Opens the lock file to read it, if it exists.
    pub(super) fn open_lock_file(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.directory, LOCK_FILE, flags, Mode::empty()).ok()?;
        Some(File::from(file))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "nothing signals that the holder has written its pid; bounded to 200 ms"
    )]
    fn in_use(&self, file: &File) -> String {
        let mut holder = read_holder(file);
        // A new holder may not have overwritten the pid of the previous one yet.
        for _ in 0..20 {
            if is_alive(&holder) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            holder = read_holder(file);
        }
        let holder = if holder.starts_with("pid ") {
            holder.trim()
        } else {
            "another process"
        };
        format!(
            "the root {} is in use by another orchestrator ({holder})",
            self.path.display()
        )
    }

    /// Reads `state.json`.
    pub(crate) fn load(&self) -> Result<LoadedState> {
        let Some(stat) = self.stat(STATE_FILE)? else {
            return Ok(LoadedState::Nothing);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(LoadedState::Corrupt(InvalidState::NotRegularFile));
        }
        let bytes = stat.st_size as u64;
        if bytes > STATE_LIMIT {
            return Ok(LoadedState::Corrupt(InvalidState::TooLarge { bytes }));
        }
        let parsed = parse_state(&self.read_state()?);
        // A run that saves at the same time may be writing to the file that was just opened: see `SpareState`.
        let parsed = parsed.or_else(|_| parse_state(&self.read_state().unwrap_or_default()));
        Ok(parsed.unwrap_or_else(LoadedState::Corrupt))
    }

    /// The bytes of `state.json`.
    pub(crate) fn read_state(&self) -> Result<Vec<u8>> {
        let path = self.join(STATE_FILE);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.directory, STATE_FILE, flags, Mode::empty())
            .map_err(|error| Error::io("open", &path, error))?;
        let mut bytes = Vec::new();
        File::from(fd)
            .take(STATE_LIMIT + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io("read", &path, error))?;
        Ok(bytes)
    }

    /// Replaces `state.json` durably; when it fails, the old one is unchanged.
    pub(crate) fn save(&self, state: &mut RunState) -> Result<()> {
        self.replace_state(&updated(state)?)?;
        self.sync()
    }

    /// Replaces `state.json`, and makes its name durable in the background: until then a power cut may bring the old one
    /// back.
    pub(crate) fn save_soon(
        &self,
        state: &mut RunState,
        background: &mut BackgroundSave,
    ) -> Result<()> {
        self.replace_state(&updated(state)?)?;
        let root = self.share();
        background.begin(move || root.sync())
    }

    /// Replaces `state.json` durably in the background.
    pub(crate) fn save_beside(
        &self,
        state: &mut RunState,
        background: &mut BackgroundSave,
    ) -> Result<()> {
        let (root, text) = (self.share(), updated(state)?);
        background.begin(move || {
            root.replace_state(&text)?;
            root.sync()
        })
    }

    /// The same directory, for another thread. Only builds need it, and they have no spare file.
    fn share(&self) -> Root {
        Root {
            path: self.path.clone(),
            directory: Arc::clone(&self.directory),
            spare: None,
        }
    }

    /// Replaces `state.json` by that of a workflow.
    pub(crate) fn save_workflow(&self, state: &mut WorkflowState) -> Result<()> {
        state.updated_at = timestamp().max(state.created_at.clone());
        self.replace_state(&state_text(state)?)?;
        self.sync()
    }

    fn replace_state(&self, text: &str) -> Result<()> {
        match &self.spare {
            Some(spare) => self.save_by_exchange(&spare.name, text.as_bytes()),
            None => self.save_by_rename(text.as_bytes()),
        }
    }

    fn save_by_rename(&self, bytes: &[u8]) -> Result<()> {
        let name = temporary_name();
        let root = &self.directory;
        self.write_file(&name, OFlags::EXCL, bytes)
            .and_then(|()| {
                renameat(root, name.as_str(), root, STATE_FILE)
                    .map_err(|error| Error::io("replace", &self.join(STATE_FILE), error))
            })
            .inspect_err(|_| {
                let _ = unlinkat(root, name.as_str(), AtFlags::empty());
            })
    }

    /// Keeps one temporary file for all saves from now on, and exchanges it with `state.json`. For a run whose programs
    /// may write in the root: a sandbox that covers the files which `is_own_entry` names covers them for good.
    pub(crate) fn keep_spare(&mut self) -> Result<()> {
        let name = temporary_name();
        self.write_file(&name, OFlags::EXCL, b"")?;
        let directory = self
            .directory
            .try_clone()
            .map_err(|error| Error::io("open", &self.path, error))?;
        self.spare = Some(SpareState { directory, name });
        Ok(())
    }

    fn save_by_exchange(&self, spare: &str, bytes: &[u8]) -> Result<()> {
        self.write_file(spare, OFlags::TRUNC, bytes)?;
        let root = &self.directory;
        match renameat_with(root, spare, root, STATE_FILE, RenameFlags::EXCHANGE) {
            // Nothing to exchange it with, or a file system that cannot do it.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => {
                renameat(root, spare, root, STATE_FILE)
            }
            done => done,
        }
        .map_err(|error| Error::io("replace", &self.join(STATE_FILE), error))
    }

    fn write_file(&self, name: &str, how: OFlags, bytes: &[u8]) -> Result<()> {
        let path = self.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        let fd = openat(&self.directory, name, flags, Mode::from_raw_mode(0o644))
            .map_err(|error| Error::io("create", &path, error))?;
        let mut file = File::from(fd);
        file.write_all(bytes)
            .map_err(|error| Error::io("write", &path, error))?;
        file.sync_all()
            .map_err(|error| Error::io("sync", &path, error))
    }

    /// Keeps a corrupt `state.json` under another name, which it returns.
    ///
    /// If the file system has hard links, the old name stays, too, until it is replaced: without a state file the
    /// workspace would count as not ours.
    pub(crate) fn set_aside(&self) -> Result<String> {
        let stamp = now().format("%Y%m%dT%H%M%S%.3fZ");
        let name = format!("{CORRUPT}{stamp}");
        let root = &self.directory;
        linkat(root, STATE_FILE, root, &name, AtFlags::empty())
            .or_else(|_| renameat(root, STATE_FILE, root, &name))
            .map_err(|error| Error::io("move aside", &self.join(STATE_FILE), error))?;
        self.sync()?;
        Ok(name)
    }

    /// Deletes `state.json`; idempotent.
    pub(crate) fn forget(&self) -> Result<()> {
        match unlinkat(&self.directory, STATE_FILE, AtFlags::empty()) {
            Ok(()) => self.sync(),
            Err(Errno::NOENT) => Ok(()),
            // A directory was not made by us and may contain anything.
            Err(Errno::ISDIR) => self.set_aside().map(drop),
            Err(error) => Err(Error::io("delete", &self.join(STATE_FILE), error)),
        }
    }

    /// Removes temporary files and copies that a crash left behind. The lock must be held.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if name.starts_with(TEMPORARY.as_bytes()) {
                let _ = unlinkat(&self.directory, entry.file_name(), AtFlags::empty());
            } else if name.starts_with(COPIES.as_bytes()) {
                let _ = std::fs::remove_dir_all(self.path.join(OsStr::from_bytes(name)));
            }
        }
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.directory).map_err(|error| Error::io("sync", &self.path, error))
    }

    fn stat(&self, name: &str) -> Result<Option<Stat>> {
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::io("stat", &self.join(name), error)),
        }
    }

    /// Opens a directory of the root, never through a link; creates it if it is missing.
    pub(crate) fn directory(&self, name: &str) -> Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(Error::io("create", &self.join(name), error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.directory, name, flags, Mode::empty()) {
            Ok(fd) => Ok(fd),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                Err(Violation::new(name, "is not a directory of the root itself").into())
            }
            Err(error) => Err(Error::io("open", &self.join(name), error)),
        }
    }
}

/// The text of a state that is saved now.
fn updated(state: &mut RunState) -> Result<String> {
    state.updated_at = timestamp().max(state.created_at.clone());
    state_text(state)
}

fn state_text(state: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(state)
        .map_err(|error| Error::Bug(format!("cannot serialize state.json: {error}")))?;
    text.push('\n');
    Ok(text)
}

pub(super) fn parse_state(bytes: &[u8]) -> std::result::Result<LoadedState, InvalidState> {
    Ok(match RunState::parse(bytes)? {
        ParsedState::Build(state) => LoadedState::Build(state),
        ParsedState::Workflow => match WorkflowState::parse(bytes) {
            Ok(state) => LoadedState::Workflow(Box::new(state)),
            Err(problem) => LoadedState::CorruptWorkflow(problem),
        },
    })
}

/// An unpredictable name: nothing can be put in its place beforehand.
fn temporary_name() -> String {
    format!("{TEMPORARY}{}", uuid::Uuid::new_v4().simple())
}

pub(super) fn read_holder(file: &File) -> String {
    let mut bytes = [0; 200];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// What a lock file says of this process: `pid 12 on HOST since TIME`.
pub(crate) fn holder_text() -> String {
    let (pid, host) = (std::process::id(), host_name());
    format!("pid {pid} on {host} since {}\n", timestamp())
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Whether the process that a lock file names exists, as far as can be seen: one on another machine may.
pub(super) fn is_alive(holder: &str) -> bool {
    let host = holder
        .split_once(" on ")
        .and_then(|(_, rest)| rest.split(' ').next());
    if host.is_some_and(|host| host != host_name()) {
        return true;
    }
    let id = holder
        .strip_prefix("pid ")
        .and_then(|rest| rest.split(' ').next());
    id.is_some_and(|id| Path::new("/proc").join(id).exists())
}
/// A path with links resolved; unchanged if it cannot be resolved.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::{LoadedState, Root, STATE_FILE};

    #[test]
    fn with_a_spare_file_saving_exchanges_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut root = Root::open(dir.path()).unwrap();
        root.save_by_rename(b"first").unwrap();
        root.keep_spare().unwrap();
        let files = || {
            let entries = fs::read_dir(dir.path()).unwrap().flatten();
            let mut found: Vec<u64> = entries
                .map(|entry| entry.metadata().unwrap().ino())
                .collect();
            found.sort_unstable();
            found
        };
        let before = files();
        assert_eq!(before.len(), 2);
        let spare = root.spare.as_ref().unwrap().name.clone();
        for text in ["second, which is longer", "third", "fourth"] {
            root.save_by_exchange(&spare, text.as_bytes()).unwrap();
            let state = fs::read_to_string(dir.path().join(STATE_FILE)).unwrap();
            assert_eq!((state.as_str(), files()), (text, before.clone()));
        }
        drop(root);
        assert_eq!(files().len(), 1);
    }

    #[test]
    fn without_a_state_file_the_spare_becomes_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut root = Root::open(dir.path()).unwrap();
        root.keep_spare().unwrap();
        let spare = root.spare.as_ref().unwrap().name.clone();
        for text in ["first", "second"] {
            root.save_by_exchange(&spare, text.as_bytes()).unwrap();
            let state = fs::read_to_string(dir.path().join(STATE_FILE)).unwrap();
            assert_eq!(state, text);
        }
        assert!(matches!(root.load().unwrap(), LoadedState::Corrupt(_)));
    }
}
