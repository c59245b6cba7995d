//! The environments for any agent: requests on stdin, answers on stdout, a JSON object a line.
//!
//! Requests run one at a time in the order in which they were read. Three threads: one reads lines, one watches for
//! the end (a signal, a reader of our stdout that is gone), and the loop, which alone touches the environments. While
//! the loop waits for a command it can be woken to interrupt or restart that very environment.

pub mod input;
pub mod protocol;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::fcntl_setpipe_size;

use crate::cancel::{CancelToken, Signal};
use crate::environments::registry::{ControlAction, Registry, UrgentAction, Waiter};
use crate::server::input::{Queue, QueueItem};
use crate::server::protocol::{ServeAction, ServeReply, ServeRequest};

const PIPE_SIZE: usize = 1 << 20;

/// How the loop came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeEnd {
    /// All requests were answered.
    ToTheEnd,
    Stopped(Signal),
    /// Nobody reads the answers any more.
    Unread,
}

/// Serves until the input ends, a signal comes, or nobody reads the answers; then ends every environment.
pub fn serve(registry: &mut Registry, cancel: &CancelToken) -> io::Result<ServeEnd> {
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

/// Waits for the wish to end, or for the end of whoever reads our stdout.
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
    let stdout = io::stdout().as_fd().try_clone_to_owned()?;
    // A larger pipe spares a large answer most of its waiting; the usual size serves as well.
    let _ = fcntl_setpipe_size(&stdout, PIPE_SIZE);
    let mut out = BufWriter::with_capacity(1 << 16, File::from(stdout));
    let over = || {
        cancel
            .requested()
            .map_or(ServeEnd::Unread, ServeEnd::Stopped)
    };
    while let Some(item) = queue.next() {
        let written = match item {
            QueueItem::Malformed(malformed) => ServeReply::Error {
                id: malformed.id.as_ref(),
                message: &malformed.message,
            }
            .write(&mut out),
            QueueItem::Request { request, is_done } => {
                let response = execute(registry, &request, is_done, queue, wake.as_fd());
                if queue.is_over() {
                    return Ok(over());
                }
                let (id, screens) = (request.id.as_ref(), &registry.screens());
                ServeReply::Response {
                    id,
                    response: &response,
                    screens,
                }
                .write(&mut out)
            }
        };
        if written.and_then(|()| out.flush()).is_err() {
            return Ok(over());
        }
    }
    Ok(if queue.is_over() {
        over()
    } else {
        ServeEnd::ToTheEnd
    })
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

/// Empties the wake-up stream; what it said is looked up in the queue.
fn drain(wake: BorrowedFd<'_>) {
    let mut bytes = [0; 64];
    while rustix::io::read(wake, &mut bytes).is_ok_and(|count| 0 < count) {}
}

impl ServeRequest {
    /// Returns what the request does at once to a command that runs, where it does.
    fn urgent(&self) -> Option<UrgentAction> {
        match self.action {
            ServeAction::Control(ControlAction::Interrupt) => Some(UrgentAction::Interrupt),
            ServeAction::Control(ControlAction::Restart) => Some(UrgentAction::Restart),
            _ => None,
        }
    }
}
