//! A child that stays, and what it prints.
//!
//! Its output is read all the time, by a thread of its own: what runs in the background must never wait for a reader.
//! When a command has begun and ended is for the environment to know, out of band, over the channel.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};

use crate::environments::output::Output;
use crate::process::living::Living;
use crate::process::{Ended, Job, Launcher};

const CHUNK: usize = 64 * 1024;

/// A living child with its channel and its output. Dropping it ends the child and everything below it.
#[derive(Debug)]
pub struct Session {
    pub living: Living,
    /// The other end of the child's stdin; reading and writing never block.
    pub channel: UnixStream,
    output: Arc<Mutex<Output>>,
}

impl Session {
    /// Starts a command, and the thread that reads what it prints.
    pub fn start(launcher: &Launcher, job: &Job) -> io::Result<Session> {
        let (living, channel) = Living::start(launcher, job)?;
        channel.set_nonblocking(true)?;
        let output = Arc::new(Mutex::new(Output::default()));
        let (pipe, shared) = (living.output().try_clone()?, Arc::clone(&output));
        thread::Builder::new().name("output".to_owned()).spawn(move || read_on(pipe, &shared))?;
        Ok(Session { living, channel, output })
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

    /// Reads what is in the pipe at this moment, and no more, for the background may print for ever.
    fn read_now(&self) -> MutexGuard<'_, Output> {
        let mut output = lock(&self.output);
        let mut waiting = ioctl_fionread(self.living.output()).unwrap_or(0);
        while 0 < waiting {
            match read(self.living.output(), &mut output) {
                Ok(count @ 1..) => waiting = waiting.saturating_sub(count as u64),
                _ => break,
            }
        }
        output
    }
}

/// Returns how a child ended, in words.
pub fn in_words(ended: &Ended) -> String {
    match ended {
        Ended::Exited(code) => format!("exit status {code}"),
        Ended::Signalled(number) => match name_of_signal(*number) {
            Some(name) => format!("killed by signal {number}, {name}"),
            None => format!("killed by signal {number}"),
        },
        Ended::TimedOut => "ended from outside".to_owned(),
        Ended::CannotStart(reason) => reason.clone(),
    }
}

fn name_of_signal(number: i32) -> Option<&'static str> {
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
    ];
    names.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Reads until nobody can write any more.
fn read_on(pipe: PipeReader, output: &Mutex<Output>) {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR) {
            return;
        }
        match read(&pipe, &mut lock(output)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
}

fn read(mut pipe: &PipeReader, output: &mut Output) -> io::Result<usize> {
    let mut bytes = [0; CHUNK];
    let count = pipe.read(&mut bytes)?;
    output.push(&bytes[..count]);
    Ok(count)
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}
