//! The streams of the server: what arrives on stdin is queued whenever the server waits, also while stdout is full.
//!
//! So a client may send all its requests before it reads the first answer, and one thread is enough.

use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, read, write};
use rustix::net::{SendFlags, send};
use rustix::pipe::{PIPE_BUF, fcntl_setpipe_size};
use rustix::stdio::{stdin, stdout};

use crate::cancel::CancelToken;

const CHUNK: usize = 64 * 1024;
/// How much is read at most before the server does something else.
const MAX_CHUNKS: usize = 16;
const PIPE_SIZE: usize = 1 << 20;

/// What an event is about.
const INPUT: u64 = 0;
const END: u64 = 1;
const TIMER: u64 = 2;

/// What was read and not answered yet.
pub(super) trait InputQueue {
    type Item;

    /// Adds input, split anywhere.
    fn push(&mut self, bytes: &[u8]);

    /// Ends the input.
    fn close(&mut self);

    /// Whether the input has ended.
    fn is_closed(&self) -> bool;

    /// Takes what is answered next.
    fn take(&mut self) -> Option<Self::Item>;
}

/// The input, and what ends the server.
pub(super) struct Streams<'a, Q> {
    cancel: &'a CancelToken,
    /// Becomes readable with stdin, with the token, and when stdout is closed by its reader.
    events: BorrowedFd<'a>,
    pub(super) queue: Q,
    is_over: bool,
    chunk: Vec<u8>,
}

impl<'a, Q: InputQueue> Streams<'a, Q> {
    /// `events` is an empty epoll instance.
    pub(super) fn new(
        cancel: &'a CancelToken,
        events: BorrowedFd<'a>,
        queue: Q,
    ) -> io::Result<Streams<'a, Q>> {
        let mut streams = Streams {
            cancel,
            events,
            queue,
            is_over: false,
            chunk: vec![0; CHUNK],
        };
        streams.watch(cancel.as_fd(), END, epoll::EventFlags::IN)?;
        streams.watch(stdout(), END, epoll::EventFlags::empty())?;
        if !streams.watch(stdin(), INPUT, epoll::EventFlags::IN)? {
            // A file is always readable.
            while !streams.queue.is_closed() && !streams.is_over() {
                streams.read();
            }
        }
        Ok(streams)
    }

    /// Makes a timer one of the events; its owner reads it.
    pub(super) fn watch_timer(&self, timer: BorrowedFd<'_>) -> io::Result<()> {
        self.watch(timer, TIMER, epoll::EventFlags::IN).map(drop)
    }

    /// Adds a descriptor; returns whether it is one that can be waited for.
    fn watch(&self, fd: BorrowedFd<'_>, what: u64, flags: epoll::EventFlags) -> io::Result<bool> {
        match epoll::add(self.events, fd, epoll::EventData::new_u64(what), flags) {
            Err(Errno::PERM) => Ok(false),
            added => Ok(added.map(|()| true)?),
        }
    }

    /// Whether nothing more is answered.
    pub(super) fn is_over(&self) -> bool {
        self.is_over || self.cancel.requested().is_some()
    }

    pub(super) fn end_at_once(&mut self) {
        self.is_over = true;
    }

    /// Waits for the next item; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Q::Item> {
        while !self.is_over() {
            match self.queue.take() {
                None if self.queue.is_closed() => return None,
                None => {
                    self.receive(None);
                }
                item => return item,
            }
        }
        None
    }

    /// Reads what is there now.
    pub(super) fn read_now(&mut self) {
        for _ in 0..MAX_CHUNKS {
            if !self.receive(Some(&Timespec::default())) {
                break;
            }
        }
    }

    /// Waits for an event and reads once; returns whether there may be more.
    fn receive(&mut self, timeout: Option<&Timespec>) -> bool {
        let none = epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(END),
        };
        let mut events = [none; 4];
        let count = epoll::wait(self.events, &mut events, timeout).unwrap_or(0);
        let mut may_have_more = false;
        for event in &events[..count] {
            match { event.data }.u64() {
                INPUT => may_have_more = self.read(),
                TIMER => {}
                _ => self.is_over = true,
            }
        }
        may_have_more
    }

    /// Reads what is readable; returns whether there may be more.
    fn read(&mut self) -> bool {
        match read(stdin(), &mut self.chunk) {
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) | Ok(0) => {
                self.queue.close();
                let _ = epoll::delete(self.events, stdin());
                false
            }
            Ok(count) => {
                self.queue.push(&self.chunk[..count]);
                count == CHUNK
            }
        }
    }
}

/// Stdout, written without blocking.
pub(super) struct Output {
    fd: OwnedFd,
    kind: OutputKind,
}

#[derive(Debug, Clone, Copy)]
enum OutputKind {
    /// A pipe of our own file description.
    NonBlocking,
    Socket,
    Other,
}

impl Output {
    pub(super) fn open() -> io::Result<Output> {
        let file_type = FileType::from_raw_mode(rustix::fs::fstat(stdout())?.st_mode);
        if file_type == FileType::Fifo {
            // A large answer waits less often. The system may refuse both.
            let _ = fcntl_setpipe_size(stdout(), PIPE_SIZE);
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(fd) = rustix::fs::open("/proc/self/fd/1", flags, Mode::empty()) {
                let kind = OutputKind::NonBlocking;
                return Ok(Output { fd, kind });
            }
        }
        let kind = match file_type {
            FileType::Socket => OutputKind::Socket,
            _ => OutputKind::Other,
        };
        let fd = stdout().try_clone_to_owned()?;
        Ok(Output { fd, kind })
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.kind {
            OutputKind::NonBlocking => write(&self.fd, bytes),
            OutputKind::Socket => send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            OutputKind::Other => {
                // A pipe that is writable takes at least so many bytes.
                let mut fds = [PollFd::new(&self.fd, PollFlags::OUT)];
                match poll(&mut fds, Some(&Timespec::default()))? {
                    0 => Err(Errno::AGAIN),
                    _ => write(&self.fd, &bytes[..bytes.len().min(PIPE_BUF)]),
                }
            }
        }
    }
}

/// Writes to stdout; queues requests while it has to wait.
pub(super) struct AnswerWriter<'a, 'b, Q> {
    pub(super) output: &'a Output,
    pub(super) streams: &'a mut Streams<'b, Q>,
}

impl<Q: InputQueue> AnswerWriter<'_, '_, Q> {
    fn wait(&mut self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.output.fd, PollFlags::OUT),
            PollFd::from_borrowed_fd(self.streams.events, PollFlags::IN),
        ];
        let waited = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            self.streams.read_now();
        }
        match waited {
            _ if self.streams.is_over() => Err(io::ErrorKind::BrokenPipe.into()),
            Err(errno) if errno != Errno::INTR => Err(errno.into()),
            _ => Ok(()),
        }
    }
}

impl<Q: InputQueue> Write for AnswerWriter<'_, '_, Q> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.output.write(bytes) {
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
