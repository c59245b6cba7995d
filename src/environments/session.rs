//! A child that stays, and what it prints.
//!
//! Its output is read all the time, by a thread of its own: what runs in the background must never wait for a reader.
//! When a command has begun and ended is for the environment to know, out of band, over the channel.

use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use signal_hook::low_level::signal_name;

use crate::environments::output::ChildOutput;
use crate::process::child::ChildProcess;
use crate::process::{Job, JobEnd, Launcher};

const CHUNK: usize = 64 * 1024;
/// How long a child that should listen may take to do so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A living child with its channel and its output. Dropping it ends the child and everything below it.
#[derive(Debug)]
pub struct ChildSession {
    pub child: ChildProcess,
    /// The other end of the child's stdin; reading and writing never block.
    pub channel: UnixStream,
    output: Arc<Mutex<ChildOutput>>,
    /// Whether more can come over the channel.
    is_open: bool,
}

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// The child has told something, or is over.
    Something,
    /// Something more urgent came up.
    Wake,
    /// The deadline has passed.
    Nothing,
}

impl ChildSession {
    /// Starts a command, and the thread that reads what it prints.
    pub fn start(launcher: &Launcher, job: &Job) -> io::Result<ChildSession> {
        let (child, channel) = ChildProcess::start(launcher, job)?;
        channel.set_nonblocking(true)?;
        let output = Arc::new(Mutex::new(ChildOutput::default()));
        let (pipe, shared) = (child.output().try_clone()?, Arc::clone(&output));
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || read_on(pipe, &shared))?;
        Ok(ChildSession {
            child,
            channel,
            output,
            is_open: true,
        })
    }

    /// Begins a command; its answer starts with `before`, and then what the background has printed.
    pub fn begin(&self, before: &str) {
        self.read_now().begin(before);
    }

    /// Takes what was printed so far, while the command goes on.
    pub fn take(&self) -> String {
        self.read_now().take()
    }

    /// Takes what is left of a command that has ended.
    pub fn finish(&self) -> String {
        self.read_now().finish()
    }

    /// Sends all of it. A child that takes nothing for a while is taken for dead.
    pub fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.channel.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let deadline = Instant::now().checked_add(PATIENCE);
                    let ready = self.poll(PollFlags::OUT, deadline, None);
                    if ready == SessionEvent::Nothing || self.child.ended().is_some() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives what the child has told so far, which may be nothing; never blocks.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; CHUNK];
        let count = match self.channel.read(&mut bytes) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                0
            }
            other => {
                let count = other.unwrap_or(0);
                self.is_open = 0 < count;
                count
            }
        };
        bytes.truncate(count);
        bytes
    }

    /// Waits until the child tells something or is over, the deadline has passed, or `wake` is readable, which wins.
    pub fn wait(&self, deadline: Option<Instant>, wake: Option<BorrowedFd<'_>>) -> SessionEvent {
        self.poll(PollFlags::IN, deadline, wake)
    }

    fn poll(
        &self,
        channel: PollFlags,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> SessionEvent {
        let fds = [
            (wake, PollFlags::IN),
            (Some(self.child.over()), PollFlags::IN),
            (self.is_open.then(|| self.channel.as_fd()), channel),
        ];
        let fds = fds
            .into_iter()
            .filter_map(|(fd, flags)| Some(PollFd::from_borrowed_fd(fd?, flags)));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => SessionEvent::Nothing,
            Ok(_)
                if wake.is_some() && fds.first().is_some_and(|wake| !wake.revents().is_empty()) =>
            {
                SessionEvent::Wake
            }
            _ => SessionEvent::Something,
        }
    }

    /// Reads what is in the pipe at this moment, and no more, for the background may print for ever.
    fn read_now(&self) -> MutexGuard<'_, ChildOutput> {
        let mut output = lock(&self.output);
        let mut waiting = ioctl_fionread(self.child.output()).unwrap_or(0);
        while 0 < waiting {
            match read(self.child.output(), &mut output) {
                Ok(count @ 1..) => waiting = waiting.saturating_sub(count as u64),
                _ => break,
            }
        }
        output
    }
}

/// Returns how a child ended, in words.
pub fn describe_end(ended: &JobEnd) -> String {
    match ended {
        JobEnd::Exited(code) => format!("exit status {code}"),
        JobEnd::Signalled(number) => match signal_name(*number) {
            Some(name) => format!("killed by signal {number}, {name}"),
            None => format!("killed by signal {number}"),
        },
        JobEnd::TimedOut => "ended from outside".to_owned(),
        JobEnd::CannotStart(reason) | JobEnd::Limit(reason) => reason.clone(),
        JobEnd::SandboxFailed(failure) => format!("no sandbox: {failure}"),
    }
}

/// Reads until nobody can write any more.
fn read_on(pipe: PipeReader, output: &Mutex<ChildOutput>) {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
            return;
        }
        match read(&pipe, &mut lock(output)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => return,
        }
    }
}

fn read(mut pipe: &PipeReader, output: &mut ChildOutput) -> io::Result<usize> {
    let mut bytes = [0; CHUNK];
    let count = pipe.read(&mut bytes)?;
    output.push(&bytes[..count]);
    Ok(count)
}

fn lock(output: &Mutex<ChildOutput>) -> MutexGuard<'_, ChildOutput> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}
