//! The non-blocking socket to a child: sends within a time limit, receives what is there.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

const CHUNK: usize = 64 * 1024;

/// The parent's end of the socket.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    is_open: bool,
    buffer: Vec<u8>,
}

/// Why a wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelEvent {
    /// There may be something to receive, or the child is over.
    Ready,
    /// The wake descriptor is readable.
    Woken,
    /// The output of the child is readable.
    Output,
    TimedOut,
}

/// What is waited for beside the channel; the order of the fields is that of their precedence, with the channel behind
/// the first.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WatchedFds<'a> {
    pub wake: Option<BorrowedFd<'a>>,
    /// Readable once the child is over.
    pub over: Option<BorrowedFd<'a>>,
    pub output: Option<BorrowedFd<'a>>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> io::Result<Channel> {
        stream.set_nonblocking(true)?;
        Ok(Channel {
            stream,
            is_open: true,
            buffer: vec![0; CHUNK],
        })
    }

    /// Whether more can be received.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Ends what is sent: the other side reads the end of its input.
    pub(super) fn close_output(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// The bytes that are there, possibly none; never blocks.
    pub(super) fn receive(&mut self) -> &[u8] {
        let count = match self.stream.read(&mut self.buffer) {
            Err(error) if is_temporary(&error) => 0,
            result => {
                let count = result.unwrap_or(0);
                self.is_open = count > 0;
                count
            }
        };
        &self.buffer[..count]
    }

    /// Sends the beginning of `bytes` and returns the rest. If the socket is full, waits until it is writable; fails at
    /// the deadline, or when `over` is readable.
    pub(super) fn send_some<'a>(
        &mut self,
        bytes: &'a [u8],
        deadline: Option<Instant>,
        over: Option<BorrowedFd<'_>>,
    ) -> io::Result<&'a [u8]> {
        match self.stream.write(bytes) {
            Ok(count) => Ok(bytes.get(count..).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A child that is over counts as woken.
                let watched = WatchedFds {
                    wake: over,
                    ..WatchedFds::default()
                };
                match self.poll(PollFlags::OUT, watched, deadline) {
                    ChannelEvent::Ready => Ok(bytes),
                    _ => Err(io::ErrorKind::TimedOut.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until there is something to receive, one of `watched` is readable, or the deadline has passed.
    pub(super) fn wait(&self, watched: WatchedFds<'_>, deadline: Option<Instant>) -> ChannelEvent {
        self.poll(PollFlags::IN, watched, deadline)
    }

    fn poll(
        &self,
        flags: PollFlags,
        watched: WatchedFds<'_>,
        deadline: Option<Instant>,
    ) -> ChannelEvent {
        let channel = self.is_open.then(|| self.stream.as_fd());
        let fds = [
            (watched.wake, PollFlags::IN, ChannelEvent::Woken),
            (channel, flags, ChannelEvent::Ready),
            (watched.over, PollFlags::IN, ChannelEvent::Ready),
            (watched.output, PollFlags::IN, ChannelEvent::Output),
        ];
        let fds = fds
            .iter()
            .filter_map(|(fd, flags, event)| Some(((*fd)?, *flags, *event)));
        let (mut fds, events): (Vec<PollFd<'_>>, Vec<ChannelEvent>) = fds
            .map(|(fd, flags, event)| (PollFd::from_borrowed_fd(fd, flags), event))
            .unzip();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => ChannelEvent::TimedOut,
            Err(_) => ChannelEvent::Ready,
            Ok(_) => {
                let first = fds.iter().position(|fd| !fd.revents().is_empty());
                first.map_or(ChannelEvent::Ready, |first| events[first])
            }
        }
    }
}

/// Whether reading again may succeed.
pub(super) fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
