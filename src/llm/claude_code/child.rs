//! `claude` as a child: a prompt goes in, lines come out, and what it complains of is kept.
//!
//! Everything is polled beside the wish to stop: a child that takes nothing, says nothing or never ends keeps nobody
//! waiting beyond a deadline. What the lines mean is for others.

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

/// How long it may take to end by itself after its last word, for it writes its session down and runs the user's hooks.
const PARTING_PATIENCE: Duration = Duration::from_secs(5);
/// How much of its complaints is kept.
const KEPT_COMPLAINTS: usize = 16 << 10;
const CHUNK: usize = 64 << 10;

/// A child at work. Dropping it ends it and everything below it.
pub(super) struct ClaudeChild {
    living: ChildProcess,
    channel: UnixStream,
    cancel: CancelToken,
    /// What is still to be sent to its stdin.
    prompt: Vec<u8>,
    lines: LineBuffer,
    complaints: Vec<u8>,
    /// Whether more lines can come, and more complaints.
    speaks: bool,
    complains: bool,
}

/// What a wait for the next line ended with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    Line(Vec<u8>),
    TooLong,
    /// No line will come any more.
    Over,
    TimedOut,
    /// The run was asked to stop.
    Stopped,
    /// What was waited for beside it has come.
    Woken,
}

impl ClaudeChild {
    /// Starts a command that gets `prompt` as its whole input.
    pub fn start(
        launcher: &Launcher,
        job: &Job,
        prompt: &str,
        cancel: &CancelToken,
    ) -> io::Result<ClaudeChild> {
        let (living, channel) = ChildProcess::start_duplex(launcher, job)?;
        channel.set_nonblocking(true)?;
        Ok(ClaudeChild {
            living,
            channel,
            cancel: cancel.clone(),
            prompt: prompt.as_bytes().to_vec(),
            lines: LineBuffer::default(),
            complaints: Vec::new(),
            speaks: true,
            complains: true,
        })
    }

    /// Returns the next line, or what came before it: the deadline, a signal, or that `wake` is readable. What was said
    /// before that is heard before it.
    pub fn next(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> NextLine {
        let mut came = None;
        loop {
            match self.lines.take() {
                Ok(Some(line)) => return NextLine::Line(line),
                Ok(None) if !self.speaks => {
                    return self.lines.rest().map_or(NextLine::Over, NextLine::Line);
                }
                Ok(None) => {}
                Err(LineTooLong) => return NextLine::TooLong,
            }
            if let Some(next) = came {
                return next;
            }
            came = self.wait(deadline, wake);
        }
    }

    /// Waits until something can be read or written, and does it.
    fn wait(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> Option<NextLine> {
        let wanted = if self.prompt.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        };
        let fds = [
            (Some(self.cancel.as_fd()), PollFlags::IN),
            (Some(self.living.over()), PollFlags::IN),
            (Some(self.channel.as_fd()), wanted),
            (
                self.complains.then(|| self.living.output().as_fd()),
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
            Err(_) => return Some(NextLine::Over),
        }
        self.read_stderr();
        self.send();
        self.receive(is_over);
        is_woken.then_some(NextLine::Woken)
    }

    /// Sends what the child takes at once; one that does not want its prompt is known by its answer.
    fn send(&mut self) {
        if self.prompt.is_empty() {
            return;
        }
        match self.channel.write(&self.prompt) {
            Ok(count) => drop(self.prompt.drain(..count)),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.prompt.clear(),
        }
        if self.prompt.is_empty() {
            let _ = self.channel.shutdown(Shutdown::Write);
        }
    }

    /// Receives one piece, or all that is left where everybody who could write is gone.
    fn receive(&mut self, is_over: bool) {
        let mut chunk = vec![0; CHUNK];
        while self.speaks {
            match self.channel.read(&mut chunk) {
                Ok(0) => self.speaks = false,
                Ok(count) => self.lines.push(&chunk[..count]),
                Err(error) if is_passing(&error) => self.speaks = !is_over,
                Err(_) => self.speaks = false,
            }
            if !is_over {
                return;
            }
        }
    }

    fn read_stderr(&mut self) {
        let mut chunk = [0; 4096];
        match self.living.output().read(&mut chunk) {
            Ok(0) => self.complains = false,
            Ok(count) => {
                let room = KEPT_COMPLAINTS.saturating_sub(self.complaints.len());
                self.complaints.extend_from_slice(&chunk[..count.min(room)]);
            }
            Err(error) => self.complains = is_passing(&error),
        }
    }

    /// Waits a little for the child's own end, then makes one; returns how it ended and what it complained of.
    pub fn finish(mut self) -> (JobEnd, String) {
        let deadline = Instant::now() + PARTING_PATIENCE;
        while self.living.ended().is_none() {
            match self.next(deadline, None) {
                NextLine::Line(_) => {}
                NextLine::Over => {
                    let _ = self.cancel.wait(Some(self.living.over()), Some(deadline));
                    break;
                }
                _ => break,
            }
        }
        let ended = self.living.end(StopMode::Soon);
        while self.complains && self.complaints.len() < KEPT_COMPLAINTS {
            let before = self.complaints.len();
            self.read_stderr();
            if self.complaints.len() == before {
                break;
            }
        }
        (
            ended,
            String::from_utf8_lossy(&self.complaints).into_owned(),
        )
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
