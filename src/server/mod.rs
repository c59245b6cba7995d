//! Serves the environments to any agent: requests on stdin, answers on stdout, one JSON object per line. `mcp/` serves
//! them over the Model Context Protocol.
//!
//! Requests run one at a time, in the order in which they were read. There is one thread: wherever it waits (for a
//! request, for a command, for the reader of stdout), it waits for further requests, too, and for what ends the server. So
//! a command can be interrupted, and its environment restarted, while it runs.

pub(crate) mod input;
mod lines;
pub(crate) mod mcp;
mod order;
pub(crate) mod protocol;
mod streams;

use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll;

use crate::cancel::{CancelToken, Signal};
use crate::environments::registry::{Registry, UrgentAction, Waiter};
use crate::server::input::{Queue, QueueItem};
use crate::server::protocol::{ServeAction, ServeReply, ServeRequest};
use crate::server::streams::{AnswerWriter, InputQueue, Output, Streams};

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
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Streams::new(cancel, events.as_fd(), Queue::default())?;
    let served = answer_all(registry, &mut streams, events.as_fd());
    let end = end_of(&streams, cancel);
    registry.shutdown();
    served.map(|()| end)
}

fn end_of<Q: InputQueue>(streams: &Streams<'_, Q>, cancel: &CancelToken) -> ServeEnd {
    match cancel.requested() {
        Some(signal) => ServeEnd::Stopped(signal),
        None if streams.is_over() => ServeEnd::OutputClosed,
        None => ServeEnd::InputEnded,
    }
}

fn answer_all(
    registry: &mut Registry,
    streams: &mut Streams<'_, Queue>,
    wake: BorrowedFd<'_>,
) -> io::Result<()> {
    let output = Output::open()?;
    while let Some(item) = streams.next() {
        let written = match item {
            QueueItem::Malformed(malformed) => {
                let reply = ServeReply::Error {
                    id: malformed.id.as_ref(),
                    problem: &malformed.problem,
                };
                write(&reply, &output, streams)
            }
            QueueItem::Request { request, is_done } => {
                let response = execute(registry, &request, is_done, streams, wake);
                if streams.is_over() {
                    break;
                }
                let reply = ServeReply::Response {
                    id: request.id.as_ref(),
                    response: &response,
                    screens: &registry.screens(),
                };
                write(&reply, &output, streams)
            }
        };
        if written.is_err() {
            streams.end_at_once();
        }
    }
    Ok(())
}

fn write(
    reply: &ServeReply<'_>,
    output: &Output,
    streams: &mut Streams<'_, Queue>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, AnswerWriter { output, streams });
    reply.write(&mut out).and_then(|()| out.flush())
}

fn execute(
    registry: &mut Registry,
    request: &ServeRequest,
    is_done: bool,
    streams: &mut Streams<'_, Queue>,
    wake: BorrowedFd<'_>,
) -> crate::environments::Response {
    // Counted before the command begins: what is read as soon as it runs may be a reaction to it.
    streams.read_now();
    let read = streams.queue.read_count();
    let mut is_begun = matches!(request.action, ServeAction::Control(_));
    let mut urgent = |environment: &str| {
        streams.read_now();
        if !std::mem::replace(&mut is_begun, true) {
            streams.queue.begin(environment, read);
        }
        if streams.is_over() {
            UrgentAction::End
        } else {
            streams.queue.take_urgent(environment)
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
