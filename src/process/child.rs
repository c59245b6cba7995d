//! A child that stays: a shell, an interpreter, a program on a terminal.
//!
//! It starts behind the same door as a check, in the hands of a keeper. Instead of an empty stdin it gets a channel, or a
//! terminal; what it prints to stdout and stderr comes through one pipe, in the order of writing. Who drives it decides
//! what is said over the channel.

use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;

use crate::process::job::{Job, JobEnd};
use crate::process::launch::{GRACE, Launcher, Supervisor};
use crate::process::sandbox::limits::group::WatchGuard;
use crate::process::wire::{self, ChildInput, Task};

const PIPE_SIZE: usize = 1 << 20;

/// How an end is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// SIGTERM, and after half a second SIGKILL.
    Soon,
    /// SIGKILL.
    Now,
}

/// A child that stays, and everything below it. Dropping it ends them all.
#[derive(Debug)]
pub struct ChildProcess {
    supervisor: Supervisor,
    output: PipeReader,
    ended: Option<JobEnd>,
    watched: Option<WatchGuard>,
}

impl ChildProcess {
    /// Starts a command whose stdin is the other end of the returned channel. The job's time limit means nothing here.
    pub fn start(launcher: &Launcher, job: &Job) -> io::Result<(ChildProcess, UnixStream)> {
        let (channel, theirs) = UnixStream::pair()?;
        let child = ChildProcess::begin(launcher, job, ChildInput::Channel, theirs.as_fd())?;
        Ok((child, channel))
    }

    /// Starts a command whose stdin and stdout are the other end of the returned channel; `output` is its stderr.
    pub fn start_duplex(launcher: &Launcher, job: &Job) -> io::Result<(ChildProcess, UnixStream)> {
        let (channel, theirs) = UnixStream::pair()?;
        let child = ChildProcess::begin(launcher, job, ChildInput::Duplex, theirs.as_fd())?;
        Ok((child, channel))
    }

    fn begin(
        launcher: &Launcher,
        job: &Job,
        input: ChildInput,
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<ChildProcess> {
        let (output, theirs) = io::pipe()?;
        // A larger pipe spares a flood most of its waiting; the usual size serves as well.
        let _ = fcntl_setpipe_size(&theirs, PIPE_SIZE);
        set_nonblocking(&output)?;
        let supervisor = Supervisor::spawn(launcher, theirs.try_clone()?, theirs)?;
        let mut child = ChildProcess {
            supervisor,
            output,
            ended: None,
            watched: None,
        };
        if let Some(policy) = &launcher.policy {
            let supervisor = &child.supervisor;
            child.watched = Some(WatchGuard::begin(
                policy,
                supervisor.pid(),
                &supervisor.control,
            )?);
        }
        // A keeper that is gone before it has its job is found out by its silence.
        let supervisor = &child.supervisor;
        let _ = supervisor
            .send_task(launcher, Task::Keep)
            .and_then(|()| wire::send(&supervisor.control, &wire::encode_job(job, input, false)))
            .and_then(|()| wire::send_descriptor(&supervisor.control, descriptor));
        Ok(child)
    }

    /// Returns what the command prints; reading never blocks.
    pub fn output(&self) -> &PipeReader {
        &self.output
    }

    /// Returns a descriptor that is readable once it is over.
    pub fn over(&self) -> BorrowedFd<'_> {
        self.supervisor.control.as_fd()
    }

    /// Returns how the command ended, if its whole tree is gone; never blocks where it is not.
    pub fn ended(&mut self) -> Option<&JobEnd> {
        if self.ended.is_none() && is_readable(self.over()) {
            self.read_end();
        }
        self.ended.as_ref()
    }

    /// Sends a signal to the command's process group; returns when it is sent, so that what comes later is not hit.
    pub fn signal_group(&mut self, signal: Signal) {
        self.ask(&[wire::SIGNAL_GROUP, signal.as_raw() as u8]);
    }

    /// Sends SIGINT to the command and to what it runs in the foreground, whatever groups that has put itself into, but
    /// not to `spared` and theirs; returns when it is sent.
    pub fn interrupt_foreground(&mut self, spared: &[u32]) {
        self.ask_about(wire::INTERRUPT, spared);
    }

    /// Returns those of some processes that live, numbered as the command does.
    pub fn live_processes(&mut self, processes: &[u32]) -> Vec<u32> {
        if processes.is_empty() {
            return Vec::new();
        }
        wire::decode_pids(
            &self
                .ask_about(wire::WHO_LIVES, processes)
                .unwrap_or_default(),
        )
    }

    fn ask_about(&mut self, action: u8, processes: &[u32]) -> Option<Vec<u8>> {
        let mut action = vec![action];
        let _ = wire::send(&mut action, &wire::encode_pids(processes));
        self.ask(&action)
    }

    /// Returns the keeper's answer, unless the end was on its way already.
    fn ask(&mut self, action: &[u8]) -> Option<Vec<u8>> {
        if self.ended().is_some() {
            return None;
        }
        self.supervisor.resume();
        let asked = self.supervisor.control.write_all(action);
        match asked.and_then(|()| wire::receive(&mut self.supervisor.control)) {
            Ok(answer) if wire::decode_ended(&answer).is_none() => Some(answer),
            told => {
                self.reap(told.ok());
                None
            }
        }
    }

    /// Ends the command and everything below it; returns when they are gone.
    pub fn end(&mut self, how: StopMode) -> JobEnd {
        if self.ended().is_none() {
            let action = match how {
                StopMode::Soon => wire::END_SOON,
                StopMode::Now => wire::END_NOW,
            };
            self.supervisor.resume();
            let _ = self.supervisor.control.write_all(&[action]);
            self.read_end();
        }
        self.ended.clone().unwrap_or(JobEnd::TimedOut)
    }

    fn read_end(&mut self) {
        let told = wire::receive(&mut self.supervisor.control).ok();
        self.reap(told);
    }

    fn reap(&mut self, told: Option<Vec<u8>>) {
        let told = told.and_then(|message| wire::decode_ended(&message));
        // From here on the keeper's number may be somebody else's.
        let broken = self.watched.take().and_then(|watched| watched.broken());
        self.supervisor.reap(told.is_some());
        let told = told.unwrap_or(JobEnd::Signalled(Signal::KILL.as_raw()));
        self.ended = Some(broken.map_or(told, JobEnd::Limit));
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.end(StopMode::Now);
    }
}

/// Whether something can be read at once, or the other side is gone.
fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    )
    .is_ok_and(|ready| 0 < ready)
}

fn set_nonblocking(descriptor: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&descriptor)?;
    Ok(fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?)
}

const _: () = assert!(
    GRACE.as_secs() > 1,
    "the keeper's own grace must fit into ours"
);
