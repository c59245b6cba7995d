//! A long-lived child: a shell, an interpreter, a program of the user.
//!
//! A supervisor starts it like a check. Its stdin is a channel instead of empty; stdout and stderr come through one pipe,
//! in the order of writing. The protocol on the channel is the caller's.

use std::borrow::Cow;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::ioctl_fionbio;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;

use crate::process::job::{Job, JobEnd};
use crate::process::launch::{GRACE, Launcher, Supervisor};
use crate::process::sandbox::limits::group::WatchGuard;
use crate::process::wire::{ChildInput, Purpose, Reply, Request, Start};

const PIPE_SIZE: usize = 1 << 20;

/// How a child is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// SIGTERM, and after half a second SIGKILL.
    Soon,
    /// SIGKILL.
    Now,
}

/// A long-lived child and its process tree. Dropping it kills them.
#[derive(Debug)]
pub struct ChildProcess {
    supervisor: Supervisor,
    output: PipeReader,
    ended: Option<JobEnd>,
    watched: Option<WatchGuard>,
}

impl ChildProcess {
    /// Starts a command whose stdin is the other end of the returned channel. The job's timeout is not used.
    pub fn start(launcher: &Launcher, job: &Job) -> io::Result<(ChildProcess, UnixStream)> {
        ChildProcess::begin(launcher, job, ChildInput::Channel)
    }

    /// Starts a command whose stdin and stdout are the other end of the returned channel; `output` is its stderr.
    pub fn start_duplex(launcher: &Launcher, job: &Job) -> io::Result<(ChildProcess, UnixStream)> {
        ChildProcess::begin(launcher, job, ChildInput::Duplex)
    }

    fn begin(
        launcher: &Launcher,
        job: &Job,
        input: ChildInput,
    ) -> io::Result<(ChildProcess, UnixStream)> {
        let (channel, child_channel) = UnixStream::pair()?;
        let (output, child_output) = io::pipe()?;
        // A larger pipe makes a flood of output cheaper; the default size works, too.
        let _ = fcntl_setpipe_size(&child_output, PIPE_SIZE);
        ioctl_fionbio(&output, true)?;
        let supervisor = Supervisor::spawn(launcher)?;
        let mut child = ChildProcess {
            supervisor,
            output,
            ended: None,
            watched: None,
        };
        if let Some(policy) = &launcher.policy {
            child.watched = Some(WatchGuard::begin(policy, child.supervisor.handle()?)?);
        }
        let start = Start {
            job: Cow::Borrowed(job),
            input,
            has_report: false,
            has_begin_mark: false,
        };
        let output = child_output.as_fd();
        // If the supervisor is gone already, `ended` finds that it reported nothing.
        let supervisor = &child.supervisor;
        let _ = supervisor
            .set_up(launcher, Purpose::Environment)
            .and_then(|()| supervisor.start(&start, &[output, output, child_channel.as_fd()]));
        Ok((child, channel))
    }

    /// What the command prints; reading never blocks.
    pub fn output(&self) -> &PipeReader {
        &self.output
    }

    /// A descriptor that is readable once the child has ended.
    pub fn over(&self) -> BorrowedFd<'_> {
        self.supervisor.as_fd()
    }

    /// How the command ended, if its whole process tree is gone. Does not wait for it.
    pub fn ended(&mut self) -> Option<&JobEnd> {
        if self.ended.is_none() && self.supervisor.has_reported() {
            self.read_end();
        }
        self.ended.as_ref()
    }

    /// Sends a signal to the command alone.
    pub fn signal(&mut self, signal: Signal) {
        self.ask(&Request::Signal(signal.as_raw()));
    }

    /// Sends a signal to the command's process group. Returns after it was sent: later processes are not hit.
    pub fn signal_group(&mut self, signal: Signal) {
        self.ask(&Request::SignalGroup(signal.as_raw()));
    }

    /// Sends SIGINT to the command and to what it runs in the foreground, whatever their process groups, but not to
    /// `spared` and their descendants. Returns after it was sent.
    pub fn interrupt_foreground(&mut self, spared: &[u32]) {
        self.ask(&Request::Interrupt {
            spared: spared.to_vec(),
        });
    }

    /// The processes that are alive, out of some, by their numbers in the command's PID namespace.
    pub fn live_processes(&mut self, processes: &[u32]) -> Vec<u32> {
        if processes.is_empty() {
            return Vec::new();
        }
        match self.ask(&Request::ListLive(processes.to_vec())) {
            Some(Reply::Live(live)) => live,
            _ => Vec::new(),
        }
    }

    /// Returns the reply to a request; `None` if the child has ended.
    fn ask(&mut self, request: &Request) -> Option<Reply> {
        if self.ended().is_some() {
            return None;
        }
        // It fails if the limit watch has shut the socket down; then the end is the next message.
        let _ = self.supervisor.request(request);
        match self.supervisor.receive() {
            Ok(Reply::Ended(ended)) => self.reap(Some(ended)),
            Ok(reply) => return Some(reply),
            Err(_) => self.reap(None),
        }
        None
    }

    /// Ends the command and its process tree; returns when they are gone.
    pub fn end(&mut self, how: StopMode) -> JobEnd {
        if self.ended().is_none() {
            match how {
                StopMode::Soon => drop(self.supervisor.request(&Request::EndSoon)),
                StopMode::Now => self.supervisor.end_now(),
            }
            self.read_end();
        }
        self.ended.clone().unwrap_or(JobEnd::TimedOut)
    }

    fn read_end(&mut self) {
        let reported = self.supervisor.receive_end();
        self.reap(reported);
    }

    fn reap(&mut self, reported: Option<JobEnd>) {
        // The watch stops before the supervisor's pid can be reused.
        let broken = self.watched.take().and_then(|watched| watched.broken());
        self.supervisor.reap(reported.is_some());
        let ended = reported.unwrap_or(JobEnd::Signalled(Signal::KILL.as_raw()));
        self.ended = Some(broken.map_or(ended, JobEnd::Limit));
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end(StopMode::Now);
    }
}

const _: () = assert!(
    GRACE.as_secs() > 1,
    "a supervisor's grace period must be shorter than our timeout"
);
