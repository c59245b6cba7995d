//! A long-lived child and its output.
//!
//! A thread reads the output all the time, so that background processes never block on a full pipe. The begin and end
//! of a command are known out of band, over the channel.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};
use signal_hook::low_level::signal_name;

use crate::environments::channel::{Channel, ChannelEvent, is_temporary};
use crate::environments::output::ChildOutput;
use crate::process::child::ChildProcess;
use crate::process::{Job, JobEnd, Launcher};

const CHUNK: usize = 64 * 1024;
/// A child that reads nothing for so long counts as dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// A child with its channel and its output. Dropping it kills the child and its descendants.
#[derive(Debug)]
pub(crate) struct ChildSession {
    pub child: ChildProcess,
    /// The other end of the child's stdin.
    channel: Channel,
    output: Arc<Mutex<ChildOutput>>,
}

/// Why the program of an environment could not be started; the text is shown to the agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionStartError {
    /// The text names the program and where it was searched.
    #[error("{0}")]
    NotFound(&'static str),
    #[error("cannot start {program}: {source}")]
    Spawn {
        program: &'static str,
        source: io::Error,
    },
    /// It ended, or did not answer in time, before it was ready.
    #[error("{printed}cannot start {program}: {how}")]
    NotReady {
        program: &'static str,
        printed: String,
        how: String,
    },
}

impl ChildSession {
    /// Starts a command, and the thread that reads its output.
    pub(crate) fn start(launcher: &Launcher, job: &Job) -> io::Result<ChildSession> {
        let (child, channel) = ChildProcess::start(launcher, job)?;
        let output = Arc::new(Mutex::new(ChildOutput::default()));
        let (pipe, shared) = (child.output().try_clone()?, Arc::clone(&output));
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || read_output(pipe, &shared))?;
        Ok(ChildSession {
            child,
            channel: Channel::new(channel)?,
            output,
        })
    }

    /// Begins a command; its answer starts with `before`, followed by earlier background output.
    pub(crate) fn begin(&self, before: &str) {
        self.read_now().begin(before);
    }

    /// Takes the output so far while the command continues.
    pub(crate) fn take(&self) -> String {
        self.read_now().take()
    }

    /// Takes the rest of the output of a command that has ended.
    pub(crate) fn finish(&self) -> String {
        self.read_now().finish()
    }

    /// Sends all bytes.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let deadline = Instant::now().checked_add(PATIENCE);
            let over = Some(self.child.over());
            bytes = self.channel.send_some(bytes, deadline, over)?;
        }
        Ok(())
    }

    /// The bytes that the child has sent, possibly none; never blocks.
    pub(crate) fn receive(&mut self) -> &[u8] {
        self.channel.receive()
    }

    /// Waits until the child sends something or is over, the deadline has passed, or `wake` is readable, which wins.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> ChannelEvent {
        self.channel.wait(Some(self.child.over()), deadline, wake)
    }

    /// Reads what is in the pipe now and nothing more, because a background process may print forever.
    fn read_now(&self) -> MutexGuard<'_, ChildOutput> {
        let mut output = lock(&self.output);
        let mut waiting = ioctl_fionread(self.child.output()).unwrap_or(0);
        while waiting > 0 {
            match read(self.child.output(), &mut output) {
                Ok(count @ 1..) => waiting = waiting.saturating_sub(count as u64),
                _ => break,
            }
        }
        output
    }
}

/// How a child ended, such as `exit status 7`.
pub(crate) fn describe_end(ended: &JobEnd) -> String {
    match ended {
        JobEnd::Exited(code) => format!("exit status {code}"),
        JobEnd::Signalled(number) => match signal_name(*number) {
            Some(name) => format!("killed by signal {number}, {name}"),
            None => format!("killed by signal {number}"),
        },
        JobEnd::TimedOut | JobEnd::Idle | JobEnd::OutputLimit => "ended from outside".to_owned(),
        JobEnd::CannotStart(reason) | JobEnd::Limit(reason) => reason.clone(),
        JobEnd::SandboxFailed(failure) => format!("no sandbox: {failure}"),
    }
}

/// Reads until EOF.
fn read_output(pipe: PipeReader, output: &Mutex<ChildOutput>) {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
            return;
        }
        match read(&pipe, &mut lock(output)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if is_temporary(&error) => {}
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
