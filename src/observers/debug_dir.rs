//! The directory of debug files: how its files are made, and what happens if they cannot be.
//!
//! Existing files are not overwritten and links are not followed. The first failure to write is reported, and the run
//! goes on.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Dir, Mode, OFlags, mkdir, mkdirat, open, openat};
use rustix::io::Errno;
use serde::Serialize;

use crate::events::Event;
use crate::events::bus::{Bus, HandlerResult};

/// The file of all transitions.
pub(super) const TRANSITIONS: &str = "transitions.log";
const MAX_NAME_BYTES: usize = 60;
/// How many numbers in a row may be taken by files of others.
const MAX_TRIES: u32 = 100;

/// The events that become files both of a build and of a workflow.
pub(super) fn is_of_step(event: &Event) -> bool {
    matches!(
        event,
        Event::ModelRequested { .. }
            | Event::ModelRetried { .. }
            | Event::ModelStreamed { .. }
            | Event::ModelAnswered { .. }
            | Event::ToolCalled { .. }
            | Event::ToolReturned { .. }
            | Event::ScriptOutput { .. }
            | Event::TransitionOccurred { .. }
    )
}

/// Writes events to files of a directory.
pub(super) trait EventWriter: Sized + Send + 'static {
    /// Opens the directory; its parent exists.
    fn open(path: &Path) -> Result<Self, DebugError>;

    fn write(&mut self, event: &Event) -> Result<(), DebugError>;
}

/// A subscribed writer, which the first event opens.
pub(super) struct DebugObserver<W> {
    path: PathBuf,
    writer: Option<W>,
    has_failed: Arc<AtomicBool>,
}

impl<W: EventWriter> DebugObserver<W> {
    /// Subscribes a writer to the events that `is_written` selects. Writers that share `has_failed` report one failure
    /// in all: on a full disk, each piece of a stream would fail.
    pub(super) fn attach(
        bus: &mut Bus,
        path: PathBuf,
        is_written: fn(&Event) -> bool,
        has_failed: &Arc<AtomicBool>,
    ) {
        let mut observer = DebugObserver::<W> {
            path,
            writer: None,
            has_failed: has_failed.clone(),
        };
        bus.on(is_written, move |event| observer.on_event(event));
    }

    fn on_event(&mut self, event: &Event) -> HandlerResult {
        match self.write(event) {
            Err(failure) if !self.has_failed.swap(true, Ordering::Relaxed) => {
                let path = self.path.display();
                Err(format!("debug files in {path} are incomplete: {failure}").into())
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, event: &Event) -> Result<(), DebugError> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => W::open(&self.path)?,
        };
        self.writer.insert(writer).write(event)
    }
}

/// Why a debug file is missing or incomplete.
#[derive(Debug, thiserror::Error)]
pub(super) enum DebugError {
    #[error("cannot open the directory: {0}")]
    Open(#[source] Errno),
    #[error("cannot create {name}: {source}")]
    Create { name: String, source: Errno },
    #[error("cannot write: {0}")]
    Write(#[source] io::Error),
}

/// An open directory.
pub(super) struct DebugDir {
    directory: OwnedFd,
}

#[expect(
    clippy::disallowed_methods,
    reason = "debug files are not generated files"
)]
impl DebugDir {
    pub(super) fn open(path: &Path) -> Result<DebugDir, DebugError> {
        made(mkdir(path, Mode::from_raw_mode(0o755)))?;
        let directory = open(path, directory_flags(), Mode::empty());
        let directory = directory.map_err(DebugError::Open)?;
        Ok(DebugDir { directory })
    }

    /// Opens a directory in this one.
    pub(super) fn open_below(&self, name: &str) -> Result<DebugDir, DebugError> {
        made(mkdirat(&self.directory, name, Mode::from_raw_mode(0o755)))?;
        let directory = openat(&self.directory, name, directory_flags(), Mode::empty());
        let directory = directory.map_err(DebugError::Open)?;
        Ok(DebugDir { directory })
    }

    /// The highest number that `number_of` finds in the names of the files.
    pub(super) fn highest(&self, number_of: fn(&str) -> Option<u32>) -> Result<u32, DebugError> {
        let mut highest = 0;
        for entry in Dir::read_from(&self.directory).map_err(DebugError::Open)? {
            let entry = entry.map_err(DebugError::Open)?;
            let name = entry.file_name().to_string_lossy();
            highest = highest.max(number_of(&name).unwrap_or(0));
        }
        Ok(highest)
    }

    /// Creates the file with the next free number; `number` is then that number.
    pub(super) fn create_next(
        &self,
        number: &mut u32,
        name: impl Fn(u32) -> String,
    ) -> Result<File, DebugError> {
        let mut tries = 0;
        loop {
            *number = number.saturating_add(1);
            match self.create(&name(*number)) {
                Err(DebugError::Create {
                    source: Errno::EXIST,
                    ..
                }) if tries < MAX_TRIES => tries += 1,
                created => return created,
            }
        }
    }

    pub(super) fn create(&self, name: &str) -> Result<File, DebugError> {
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Creates a file with this text.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), DebugError> {
        fill(self.create(name)?, text)
    }

    /// Adds text to a file.
    pub(super) fn append(&self, name: &str, text: &str) -> Result<(), DebugError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        fill(self.open_file(name, flags)?, text)
    }

    /// The first `limit` bytes of a file; empty if it cannot be read.
    pub(super) fn read(&self, name: &str, limit: u64) -> String {
        let file = self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK);
        let mut content = Vec::new();
        if let Ok(file) = file {
            // What could be read counts.
            let _ = file.take(limit).read_to_end(&mut content);
        }
        String::from_utf8_lossy(&content).into_owned()
    }

    fn open_file(&self, name: &str, how: OFlags) -> Result<File, DebugError> {
        let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.directory, name, flags, Mode::from_raw_mode(0o644))
            .map(File::from)
            .map_err(|source| DebugError::Create {
                name: name.to_owned(),
                source,
            })
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// A directory that exists already is as good as a new one.
fn made(result: Result<(), Errno>) -> Result<(), DebugError> {
    match result {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(DebugError::Open(error)),
    }
}

pub(super) fn fill(mut file: impl Write, text: &str) -> Result<(), DebugError> {
    file.write_all(text.as_bytes()).map_err(DebugError::Write)
}

/// The text as a part of a file's name.
pub(super) fn file_name(text: &str) -> String {
    let keep =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    text.chars()
        .take(MAX_NAME_BYTES)
        .map(|character| if keep(character) { character } else { '_' })
        .collect()
}

pub(super) fn pretty(content: &impl Serialize) -> String {
    // Plain data with string keys always serializes; otherwise the error is in the file.
    serde_json::to_string_pretty(content).unwrap_or_else(|error| error.to_string()) + "\n"
}
