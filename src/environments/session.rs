//! A long-lived child and its output.
//!
//! The output is read all the time, so that background processes never block on a full pipe: by a thread, and while the
//! owner waits for the child by the owner, so that the thread is not woken for nothing. The begin and end of a command are
//! known out of band, over the channel.

use std::cell::Cell;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::fcntl_getpipe_size;
use signal_hook::low_level::signal_name;

use crate::environments::channel::{Channel, ChannelEvent, WatchedFds, is_temporary};
use crate::environments::output::ChildOutput;
use crate::process::child::ChildProcess;
use crate::process::{Job, JobEnd, Launcher};

const CHUNK: usize = 64 * 1024;
/// A child that reads nothing for so long counts as dead.
const PATIENCE: Duration = Duration::from_secs(10);
/// The output of a shorter command is read once, at its end, and that of a longer one at most so often, unless it is
/// much: waking up for every line costs us and the program that prints. The pipe holds what is printed meanwhile.
const SHORT: Duration = Duration::from_micros(500);
/// Output is read at once where so much came in that time: the pipe could become full.
const MUCH: usize = 256 * 1024;
/// The most that is read before the deadline is looked at.
const PIPE: usize = 1 << 20;

/// A child with its channel and its output. Dropping it kills the child and its descendants.
#[derive(Debug)]
pub(crate) struct ChildSession {
    pub child: ChildProcess,
    /// The other end of the child's stdin.
    channel: Channel,
    output: Arc<Mutex<SessionOutput>>,
    /// An epoll instance, for which the thread waits. It has the output while the thread is to read it.
    watched: OwnedFd,
    is_watched: Cell<bool>,
    /// Whether the pipe can hold what a program prints in `SHORT`. The system may refuse such a pipe.
    has_large_pipe: bool,
}

/// The output, and what it is read into.
#[derive(Debug)]
struct SessionOutput {
    text: ChildOutput,
    chunk: Vec<u8>,
}

impl Default for SessionOutput {
    fn default() -> SessionOutput {
        SessionOutput {
            text: ChildOutput::default(),
            chunk: vec![0; CHUNK],
        }
    }
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
        let output = Arc::new(Mutex::new(SessionOutput::default()));
        let has_large_pipe = fcntl_getpipe_size(child.output()).is_ok_and(|size| PIPE <= size);
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let (pipe, shared) = (child.output().try_clone()?, Arc::clone(&output));
        let events = watched.try_clone()?;
        thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || read_output(pipe, &shared, &events))?;
        let session = ChildSession {
            child,
            channel: Channel::new(channel)?,
            output,
            watched,
            is_watched: Cell::new(false),
            has_large_pipe,
        };
        session.watch();
        Ok(session)
    }

    /// Begins a command; its answer starts with `before`, followed by earlier background output.
    pub(crate) fn begin(&self, before: &str) {
        self.read_now().text.begin(before);
    }

    /// Takes the output so far while the command continues.
    pub(crate) fn take(&self) -> String {
        let text = self.read_now().text.take();
        self.watch();
        text
    }

    /// Takes the rest of the output of a command that has ended.
    pub(crate) fn finish(&self) -> String {
        let text = self.read_now().text.finish();
        self.watch();
        text
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
    ///
    /// When it returns `Ready`, the output is not read until the next wait, `take` or `finish`: it may be the end.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> ChannelEvent {
        self.unwatch();
        let short = Instant::now() + SHORT;
        let is_late = |deadline: Instant| deadline <= short;
        let mut event = self.poll(
            deadline.filter(|at| is_late(*at)).or(Some(short)),
            wake,
            false,
        );
        if event == ChannelEvent::TimedOut && !deadline.is_some_and(is_late) {
            event = self.wait_and_read(deadline, wake);
        }
        if event != ChannelEvent::Ready {
            self.watch();
        }
        event
    }

    fn wait_and_read(
        &self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> ChannelEvent {
        let mut is_open = true;
        loop {
            let event = self.poll(deadline, wake, is_open);
            if event != ChannelEvent::Output {
                return event;
            }
            let read = read_available(self.child.output(), &mut lock(&self.output));
            let count = *read.as_ref().unwrap_or(&0);
            is_open = read.map_or_else(|error| is_temporary(&error), |count| 0 < count);
            let now = Instant::now();
            // The output of an endless command is always readable.
            if deadline.is_some_and(|deadline| deadline <= now) {
                return ChannelEvent::TimedOut;
            }
            let next = now + SHORT;
            let is_slow = self.has_large_pipe && count < MUCH;
            if is_slow && deadline.is_none_or(|deadline| next < deadline) {
                let event = self.poll(Some(next), wake, false);
                if event != ChannelEvent::TimedOut {
                    return event;
                }
            }
        }
    }

    fn poll(
        &self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
        has_output: bool,
    ) -> ChannelEvent {
        let watched = WatchedFds {
            wake,
            over: Some(self.child.over()),
            output: has_output.then(|| self.child.output().as_fd()),
        };
        self.channel.wait(watched, deadline)
    }

    /// Lets the thread read the output.
    fn watch(&self) {
        if !self.is_watched.replace(true) {
            let data = epoll::EventData::new_u64(0);
            // It cannot fail for a pipe, but for a lack of memory.
            let _ = epoll::add(
                &self.watched,
                self.child.output(),
                data,
                epoll::EventFlags::IN,
            );
        }
    }

    /// Keeps the thread from reading the output.
    fn unwatch(&self) {
        if self.is_watched.replace(false) {
            let _ = epoll::delete(&self.watched, self.child.output());
        }
    }

    /// Reads what is in the pipe now and nothing more, because a background process may print forever.
    fn read_now(&self) -> MutexGuard<'_, SessionOutput> {
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

impl Drop for ChildSession {
    /// The thread ends with the output.
    fn drop(&mut self) {
        self.watch();
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

/// Reads until EOF, whenever there is an event.
fn read_output(pipe: PipeReader, output: &Mutex<SessionOutput>, events: &OwnedFd) {
    let mut event = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }];
    loop {
        if epoll::wait(events, &mut event, None).is_err_and(|errno| errno != Errno::INTR) {
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

/// Reads what is in the pipe, at most `PIPE` bytes.
fn read_available(pipe: &PipeReader, output: &mut SessionOutput) -> io::Result<usize> {
    let mut total = 0;
    loop {
        let count = read(pipe, output)?;
        total += count;
        if count < CHUNK || PIPE <= total {
            return Ok(total);
        }
    }
}

fn read(mut pipe: &PipeReader, output: &mut SessionOutput) -> io::Result<usize> {
    let count = pipe.read(&mut output.chunk)?;
    output.text.push(&output.chunk[..count]);
    Ok(count)
}

fn lock(output: &Mutex<SessionOutput>) -> MutexGuard<'_, SessionOutput> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}
