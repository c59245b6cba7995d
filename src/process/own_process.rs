//! Starts this program again, as a process of its own that ends with this one.
//!
//! Unlike a job it has no supervisor: it supervises what it starts itself. It belongs to the process group of this
//! process, so that the keys of a terminal reach it, too.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, kill_process, pidfd_open, set_parent_process_death_signal,
};

/// How much of the end of its output is kept.
const PRINTED_BYTES: u64 = 4096;

/// A running copy of this program. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    child: Child,
    handle: OwnedFd,
    stderr: File,
}

impl OwnProcess {
    /// Starts a program, which is this one, with arguments, and in the environment of this process. Nothing is read from
    /// stdin, stdout is thrown away.
    #[expect(
        clippy::disallowed_methods,
        reason = "a copy of this program needs no supervisor"
    )]
    pub(crate) fn start(program: &Path, arguments: &[OsString]) -> io::Result<OwnProcess> {
        let stderr = tempfile::tempfile()?;
        let mut child = Command::new(program)
            .arg0("orchestrator")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?)
            .spawn()?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        match handle {
            Ok(handle) => Ok(OwnProcess {
                child,
                handle,
                stderr,
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Readable once it has ended.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// How it ended, if it has. Does not wait.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to stop, as Ctrl+C does.
    pub(crate) fn interrupt(&self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
    }

    /// The end of what it wrote to stderr.
    pub(crate) fn printed(&mut self) -> String {
        let length = self.stderr.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = Vec::new();
        let start = SeekFrom::Start(length.saturating_sub(PRINTED_BYTES));
        let read = self
            .stderr
            .seek(start)
            .and_then(|_| self.stderr.read_to_end(&mut bytes));
        let _ = read;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes the kernel send SIGTERM to this process when the process that started it ends. Returns whether that is still
/// `parent`.
pub(crate) fn end_with_parent(parent: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent.cast_signed()))
}
