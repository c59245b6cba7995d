//! Serves the environments to any agent: requests on stdin, answers on stdout, one JSON object per line.
//!
//! Requests run one at a time, in the order in which they were read. There are three threads: one reads lines, one
//! waits for a signal or for stdout to be closed by its reader, and the loop, which alone uses the environments. While
//! the loop waits for a command, it can be woken to interrupt or restart that environment.

pub(crate) mod input;
pub(crate) mod protocol;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::fcntl_setpipe_size;

use crate::cancel::{CancelToken, Signal};
use crate::environments::registry::{Registry, UrgentAction, Waiter};
use crate::server::input::{Queue, QueueItem};
use crate::server::protocol::{ServeAction, ServeReply, ServeRequest};

const PIPE_SIZE: usize = 1 << 20;

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeEnd {
    /// All requests were answered.
    InputEnded,
    Stopped(Signal),
    OutputClosed,
}

/// Serves until the input ends, a signal comes, or stdout is closed; then ends every environment.
pub(crate) fn serve(registry: &mut Registry, cancel: &CancelToken) -> io::Result<ServeEnd> {
    let (wake, waker) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    waker.set_nonblocking(true)?;
    let queue = Arc::new(Queue::new(waker));
    let (reader, watcher) = (queue.clone(), queue.clone());
    thread::spawn(move || input::read_lines(io::stdin().lock(), &reader));
    let watched = cancel.clone();
    thread::spawn(move || watch(&watched, &watcher));
    let served = answer_all(registry, &queue, &wake, cancel);
    registry.shutdown();
    served
}

/// Waits for a signal, or for stdout to be closed by its reader.
fn watch(cancel: &CancelToken, queue: &Queue) {
    let stdout = io::stdout();
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            _ => return queue.end_at_once(),
        }
    }
}

fn answer_all(
    registry: &mut Registry,
    queue: &Queue,
    wake: &UnixStream,
    cancel: &CancelToken,
) -> io::Result<ServeEnd> {
    let mut out = open_stdout()?;
    while let Some(item) = queue.next() {
        let written = match item {
            QueueItem::Malformed(malformed) => ServeReply::Error {
                id: malformed.id.as_ref(),
                problem: &malformed.problem,
            }
            .write(&mut out),
            QueueItem::Request { request, is_done } => {
                let response = execute(registry, &request, is_done, queue, wake.as_fd());
                if queue.is_over() {
                    break;
                }
                ServeReply::Response {
                    id: request.id.as_ref(),
                    response: &response,
                    screens: &registry.screens(),
                }
                .write(&mut out)
            }
        };
        if written.and_then(|()| out.flush()).is_err() {
            queue.end_at_once();
        }
    }
    let signal = cancel.requested().filter(|_| queue.is_over());
    Ok(match signal {
        Some(signal) => ServeEnd::Stopped(signal),
        None if queue.is_over() => ServeEnd::OutputClosed,
        None => ServeEnd::InputEnded,
    })
}

/// Opens stdout with a large pipe buffer if the system allows it, so that a large answer waits less often.
fn open_stdout() -> io::Result<BufWriter<File>> {
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    let _ = fcntl_setpipe_size(&stdout, PIPE_SIZE);
    Ok(BufWriter::with_capacity(1 << 16, File::from(stdout)))
}

fn execute(
    registry: &mut Registry,
    request: &ServeRequest,
    is_done: bool,
    queue: &Queue,
    wake: BorrowedFd<'_>,
) -> crate::environments::Response {
    let mut is_begun = matches!(request.action, ServeAction::Control(_));
    let mut urgent = |environment: &str| {
        drain(wake);
        if !std::mem::replace(&mut is_begun, true) {
            queue.begin(environment);
        }
        if queue.is_over() {
            UrgentAction::End
        } else {
            queue.take_urgent(environment)
        }
    };
    let mut waiter = Waiter {
        wake,
        urgent: &mut urgent,
    };
    match &request.action {
        ServeAction::Command(command) => {
            registry.command(&request.environment, command, request.timeout, &mut waiter)
        }
        ServeAction::Control(action) => registry.control(
            &request.environment,
            *action,
            request.timeout,
            is_done,
            &mut waiter,
        ),
    }
}

/// Empties the wake-up stream. What is to be done is in the queue.
fn drain(wake: BorrowedFd<'_>) {
    let mut bytes = [0; 64];
    while rustix::io::read(wake, &mut bytes).is_ok_and(|count| 0 < count) {}
}
