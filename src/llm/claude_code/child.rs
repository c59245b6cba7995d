//! The `claude` process: sends the prompt to its stdin, reads lines from its stdout, keeps the beginning of its stderr.
//!
//! Every wait is polled together with the cancel token and has a deadline, so a child that does not read, write or exit
//! cannot block the run.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cancel::CancelToken;
use crate::llm::line_buffer::{LineBuffer, LineTooLong};
use crate::process::child::{ChildProcess, StopMode};
use crate::process::{Job, JobEnd, Launcher};

/// How long it may take to exit after its result: it saves its session and runs the user's hooks.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of its stderr is kept.
const MAX_STDERR: usize = 16 << 10;
const CHUNK: usize = 64 << 10;

/// A running child. Dropping it ends its process tree.
pub(super) struct ClaudeChild {
    process: ChildProcess,
    channel: UnixStream,
    cancel: CancelToken,
    /// The rest of the prompt that is still to be sent.
    prompt: Vec<u8>,
    lines: LineBuffer,
    stderr: Vec<u8>,
    stdout_is_open: bool,
    stderr_is_open: bool,
}

/// How a wait for the next line ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    Line(Vec<u8>),
    TooLong,
    /// The output has ended.
    End,
    TimedOut,
    /// The run was cancelled.
    Stopped,
    /// The other descriptor is readable.
    Woken,
}

impl ClaudeChild {
    /// Starts a command with `prompt` as its input.
    pub(super) fn start(
        launcher: &Launcher,
        job: &Job,
        prompt: &str,
        cancel: &CancelToken,
    ) -> io::Result<ClaudeChild> {
        let (process, channel) = ChildProcess::start_duplex(launcher, job)?;
        channel.set_nonblocking(true)?;
        Ok(ClaudeChild {
            process,
            channel,
            cancel: cancel.clone(),
            prompt: prompt.as_bytes().to_vec(),
            lines: LineBuffer::default(),
            stderr: Vec::new(),
            stdout_is_open: true,
            stderr_is_open: true,
        })
    }

    /// Waits for the next line until the deadline, a signal, or until `wake` is readable. Lines that arrived before that
    /// are returned before it.
    pub(super) fn next(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> NextLine {
        let mut interruption = None;
        loop {
            match self.lines.take() {
                Ok(Some(line)) => return NextLine::Line(line),
                Ok(None) if !self.stdout_is_open => {
                    return self.lines.rest().map_or(NextLine::End, NextLine::Line);
                }
                Ok(None) => {}
                Err(LineTooLong) => return NextLine::TooLong,
            }
            if let Some(next) = interruption {
                return next;
            }
            interruption = self.wait(deadline, wake);
        }
    }

    /// Waits until something can be read or written, and does so.
    fn wait(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> Option<NextLine> {
        let wanted = if self.prompt.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let fds = [
            (Some(self.cancel.as_fd()), PollFlags::IN),
            (Some(self.process.over()), PollFlags::IN),
            (Some(self.channel.as_fd()), wanted),
            (
                self.stderr_is_open.then(|| self.process.output().as_fd()),
                PollFlags::IN,
            ),
            (wake, PollFlags::IN),
        ];
        let fds = fds
            .into_iter()
            .filter_map(|(fd, flags)| Some(PollFd::from_borrowed_fd(fd?, flags)));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
        let ready = poll(&mut fds, left.as_ref());
        let is_over = !fds[1].revents().is_empty();
        let is_woken = wake.is_some() && fds.last().is_some_and(|wake| !wake.revents().is_empty());
        match ready {
            _ if self.cancel.requested().is_some() => return Some(NextLine::Stopped),
            Ok(0) => return Some(NextLine::TimedOut),
            Ok(_) => {}
            Err(Errno::INTR) => return None,
            Err(_) => return Some(NextLine::End),
        }
        self.read_stderr();
        self.send();
        self.receive(is_over);
        is_woken.then_some(NextLine::Woken)
    }

    /// Sends as much of the prompt as the child reads now. An error is ignored: its output shows what went wrong.
    fn send(&mut self) {
        if self.prompt.is_empty() {
            return;
        }
        match self.channel.write(&self.prompt) {
            Ok(count) => drop(self.prompt.drain(..count)),
            Err(error) if is_temporary(&error) => {}
            Err(_) => self.prompt.clear(),
        }
        if self.prompt.is_empty() {
            let _ = self.channel.shutdown(Shutdown::Write);
        }
    }

    /// Receives one chunk, or everything that is left where the process tree has ended.
    fn receive(&mut self, is_over: bool) {
        let mut chunk = vec![0; CHUNK];
        while self.stdout_is_open {
            match self.channel.read(&mut chunk) {
                Ok(0) => self.stdout_is_open = false,
                Ok(count) => self.lines.push(&chunk[..count]),
                Err(error) if is_temporary(&error) => self.stdout_is_open = !is_over,
                Err(_) => self.stdout_is_open = false,
            }
            if !is_over {
                return;
            }
        }
    }

    fn read_stderr(&mut self) {
        let mut chunk = [0; 4096];
        match self.process.output().read(&mut chunk) {
            Ok(0) => self.stderr_is_open = false,
            Ok(count) => {
                let room = MAX_STDERR.saturating_sub(self.stderr.len());
                self.stderr.extend_from_slice(&chunk[..count.min(room)]);
            }
            Err(error) => self.stderr_is_open = is_temporary(&error),
        }
    }

    /// Waits for the child to exit, ends it after a timeout, and returns how it ended and its stderr.
    pub(super) fn finish(mut self) -> (JobEnd, String) {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while self.process.ended().is_none() {
            match self.next(deadline, None) {
                NextLine::Line(_) => {}
                NextLine::End => {
                    let _ = self.cancel.wait(Some(self.process.over()), Some(deadline));
                    break;
                }
                _ => break,
            }
        }
        let ended = self.process.end(StopMode::Soon);
        while self.stderr_is_open && self.stderr.len() < MAX_STDERR {
            let before = self.stderr.len();
            self.read_stderr();
            if self.stderr.len() == before {
                break;
            }
        }
        (ended, String::from_utf8_lossy(&self.stderr).into_owned())
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
