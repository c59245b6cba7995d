//! The log of a run: one JSON object per line, append-only; resume and replay read it back.
//!
//! It is not an observer: a run that cannot write it must stop. `read.rs` reads it. Opening it for a resume cuts off
//! everything after the last readable line, so that the next append follows a complete line; the cut tail is kept in
//! a file beside the log.

#![expect(clippy::disallowed_methods, reason = "the log is not a generated file")]

mod read;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, fsync, openat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::events::Event;
use crate::secrets::Secrets;
use crate::state::run::{now, timestamp};

pub(crate) use crate::state::journal::read::read_lines;

/// How much of a cut tail the note about it shows.
const TAIL_SHOWN: usize = 512;

/// The log of one run, open for appending.
#[derive(Debug)]
pub struct Journal {
    logs: OwnedFd,
    file: File,
    path: PathBuf,
    run_id: String,
    seq: u64,
    length: u64,
    /// How much of it is known to be durable.
    synced_length: u64,
    /// Whether the name of the log is known to be durable.
    has_durable_name: bool,
    /// The errno of a sync that failed: the system may have dropped what was written, and no later sync would report
    /// it, so nothing may follow.
    failed_sync: Option<i32>,
    secrets: Secrets,
}

/// How a damaged log was repaired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalRepair {
    /// The numbers of unreadable lines in the middle, which stay in the file.
    pub skipped: Vec<u64>,
    pub cut: Option<CutTail>,
}

/// An unreadable tail that was cut off, and the file in `logs/` that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTail {
    pub dropped_bytes: u64,
    pub dropped: String,
    pub kept_as: String,
}

#[derive(Serialize)]
struct JournalLine<'a> {
    ts: String,
    run_id: &'a str,
    seq: u64,
    #[serde(flatten)]
    event: &'a Event,
}

impl Journal {
    /// Opens or creates the log of a run in `logs`, and passes every event in it to `visit`, with its line number.
    pub fn open(
        logs: BorrowedFd<'_>,
        logs_path: &Path,
        run_id: &str,
        secrets: &Secrets,
        visit: &mut dyn FnMut(u64, Event),
    ) -> Result<(Journal, Option<JournalRepair>)> {
        let name = file_name(run_id);
        let path = logs_path.join(&name);
        let flags = OFlags::RDWR
            | OFlags::CREATE
            | OFlags::APPEND
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let fd = openat(logs, name.as_str(), flags, Mode::from_raw_mode(0o644))
            .map_err(|error| Error::io("open", &path, error))?;
        let file = File::from(fd);
        let read = read_lines(&file, Some(run_id), visit)
            .map_err(|error| Error::io("read", &path, error))?;
        let mut journal = Journal {
            logs: logs
                .try_clone_to_owned()
                .map_err(|error| Error::io("open", logs_path, error))?,
            file,
            path,
            run_id: run_id.to_owned(),
            seq: read.lines,
            length: read.whole_bytes,
            synced_length: 0,
            has_durable_name: false,
            failed_sync: None,
            secrets: secrets.clone(),
        };
        let repair = JournalRepair {
            skipped: read.skipped,
            cut: journal.cut_tail()?,
        };
        let is_damaged = repair != JournalRepair::default();
        Ok((journal, is_damaged.then_some(repair)))
    }

    /// Appends an event. If it contains a secret, it is written and returned in redacted form, for publishing.
    pub fn append(&mut self, event: &Event) -> Result<Option<Event>> {
        self.check_earlier_syncs()?;
        let mut text = self.line(event)?;
        let redacted = self
            .secrets
            .is_in(&text)
            .then(|| self.redacted(event))
            .transpose()?;
        if let Some(event) = &redacted {
            text = self.line(event)?;
        }
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Without the partial line the next open has nothing to repair.
            let _ = self.file.set_len(self.length);
            return Err(Error::io("write", &self.path, error));
        }
        self.seq += 1;
        self.length += text.len() as u64;
        Ok(redacted)
    }

    fn line(&self, event: &Event) -> Result<String> {
        let line = JournalLine {
            ts: timestamp(),
            run_id: &self.run_id,
            seq: self.seq + 1,
            event,
        };
        serde_json::to_string(&line)
            .map_err(|error| Error::Bug(format!("cannot serialize an event: {error}")))
    }

    /// The event without the secrets in it.
    pub fn redacted(&self, event: &Event) -> Result<Event> {
        let failed = |error| Error::Bug(format!("cannot redact an event: {error}"));
        let mut value = serde_json::to_value(event).map_err(failed)?;
        let name = value["event"].take();
        self.secrets.redact_value(&mut value);
        value["event"] = name;
        Event::deserialize(value).map_err(failed)
    }

    /// Makes everything written so far durable.
    pub fn sync(&mut self) -> Result<()> {
        self.check_earlier_syncs()?;
        if !self.is_intact() {
            let changed = std::io::Error::other(
                "the log was deleted, moved or changed while the run was going on",
            );
            return Err(Error::io("keep", &self.path, changed));
        }
        // In this order the name is durable with the lines, at no further cost.
        if let Err(error) = self.sync_lines().and_then(|()| self.sync_name()) {
            self.failed_sync = Some(error.raw_os_error().unwrap_or_default());
            return Err(Error::io("sync", &self.path, error));
        }
        Ok(())
    }

    fn sync_name(&mut self) -> io::Result<()> {
        if !self.has_durable_name {
            fsync(&self.logs)?;
            self.has_durable_name = true;
        }
        Ok(())
    }

    fn sync_lines(&mut self) -> io::Result<()> {
        if self.synced_length < self.length {
            self.file.sync_data()?;
            self.synced_length = self.length;
        }
        Ok(())
    }

    fn check_earlier_syncs(&self) -> Result<()> {
        match self.failed_sync {
            None => Ok(()),
            Some(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Err(Error::io("sync", &self.path, error))
            }
        }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(std::io::Error) -> Error + use<> {
        let path = self.path.clone();
        move |error| Error::io(action, &path, error)
    }

    /// Whether a resume would find exactly what was written here, under the name of the log.
    fn is_intact(&self) -> bool {
        let named = statat(
            &self.logs,
            file_name(&self.run_id),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        let (Ok(named), Ok(own)) = (named, fstat(&self.file)) else {
            return false;
        };
        (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)
            && u64::try_from(own.st_size) == Ok(self.length)
    }

    pub fn lines(&self) -> u64 {
        self.seq
    }

    /// Cuts off everything after the last readable line, after copying it to a file of its own.
    fn cut_tail(&mut self) -> Result<Option<CutTail>> {
        let end = self
            .file
            .seek(SeekFrom::End(0))
            .map_err(self.failed("read"))?;
        if end == self.length {
            return Ok(None);
        }
        let mut tail = vec![0; TAIL_SHOWN.min((end - self.length) as usize)];
        self.file
            .read_exact_at(&mut tail, self.length)
            .map_err(self.failed("read"))?;
        let kept_as = self.copy_tail()?;
        self.file
            .set_len(self.length)
            .map_err(self.failed("repair"))?;
        self.file.sync_all().map_err(self.failed("sync"))?;
        Ok(Some(CutTail {
            dropped_bytes: end - self.length,
            dropped: tail.escape_ascii().to_string(),
            kept_as,
        }))
    }

    /// Copies the tail durably to a new file beside the log; returns its name.
    fn copy_tail(&mut self) -> Result<String> {
        let (name, mut copy) = self.create_beside()?;
        let copied = self
            .file
            .seek(SeekFrom::Start(self.length))
            .and_then(|_| std::io::copy(&mut self.file, &mut copy))
            .and_then(|_| copy.sync_all())
            .and_then(|()| Ok(fsync(&self.logs)?));
        copied.map_err(|error| {
            let _ = unlinkat(&self.logs, name.as_str(), AtFlags::empty());
            Error::io("write", &self.path.with_file_name(&name), error)
        })?;
        Ok(name)
    }

    fn create_beside(&self) -> Result<(String, File)> {
        let stem = format!(
            "{}.cut-{}",
            file_name(&self.run_id),
            now().format("%Y%m%dT%H%M%S%.3fZ")
        );
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut name = stem.clone();
        for number in 2.. {
            match openat(&self.logs, name.as_str(), flags, Mode::from_raw_mode(0o644)) {
                Err(Errno::EXIST) => name = format!("{stem}-{number}"),
                Err(errno) => {
                    return Err(Error::io("create", &self.path.with_file_name(&name), errno));
                }
                Ok(fd) => return Ok((name, File::from(fd))),
            }
        }
        Err(Error::Bug("no free name for the tail of the log".into()))
    }
}

fn file_name(run_id: &str) -> String {
    format!("{run_id}.log")
}
