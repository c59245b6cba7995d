//! The last state of a run that another one replaces or `reset` removes: `logs/<run_id>/state.json`.

#![expect(
    clippy::disallowed_methods,
    reason = "the states of runs are not generated files"
)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::state::reason::Reason;
use crate::state::store::{LOGS, LoadedState, Root, STATE_FILE, parse_state};

/// Below the name of the state until it is complete.
const UNFINISHED: &str = "state.json.tmp";
/// Far above the size of any state.
const LIMIT: u64 = 1 << 30;

impl Root {
    /// Copies `state.json` durably to the folder of its run in `logs/`. Does nothing without a run.
    pub(crate) fn keep_state(&self) -> Result<()> {
        let run_id = match self.load()? {
            // It replaces a state that could not be read; no run has this id.
            LoadedState::Build(state) if state.reason == Some(Reason::StateCorrupt) => {
                return Ok(());
            }
            LoadedState::Workflow(state) if state.is_corrupt() => return Ok(()),
            LoadedState::Build(state) => state.run_id,
            LoadedState::Workflow(state) => state.run_id,
            LoadedState::Nothing | LoadedState::Corrupt(_) | LoadedState::CorruptWorkflow(_) => {
                return Ok(());
            }
        };
        let bytes = self.read_state()?;
        let path = self.kept_path(&run_id);
        self.write_kept(&run_id, &bytes)
            .map_err(|error| Error::io("write", &path, error))
    }

    fn write_kept(&self, run_id: &str, bytes: &[u8]) -> std::io::Result<()> {
        let logs = self.directory(LOGS).map_err(std::io::Error::other)?;
        match mkdirat(&logs, run_id, Mode::from_raw_mode(0o755)) {
            Ok(()) => fsync(&logs)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = open_folder(&logs, run_id)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, UNFINISHED, flags, Mode::from_raw_mode(0o644))?;
        let mut file = File::from(file);
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&folder, UNFINISHED, &folder, STATE_FILE)?));
        if written.is_err() {
            let _ = unlinkat(&folder, UNFINISHED, AtFlags::empty());
        }
        written?;
        Ok(fsync(&folder)?)
    }

    /// The bytes of the state that is kept of a run, if there are any.
    pub(crate) fn read_kept_state(&self, run_id: &str) -> Option<Vec<u8>> {
        let logs = open_folder(self.handle(), LOGS).ok()?;
        let folder = open_folder(logs, run_id).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(folder, STATE_FILE, flags, Mode::empty()).ok()?);
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LIMIT).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// The state that is kept of a run; `None` where there is none that can be read.
    pub(crate) fn load_kept_state(&self, run_id: &str) -> Option<LoadedState> {
        parse_state(&self.read_kept_state(run_id)?).ok()
    }

    fn kept_path(&self, run_id: &str) -> PathBuf {
        self.join(LOGS).join(run_id).join(Path::new(STATE_FILE))
    }
}

/// Opens a folder, never through a link.
fn open_folder(parent: impl std::os::fd::AsFd, name: &str) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}
