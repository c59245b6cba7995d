//! A queue whose reader can wait for it beside other descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Messages of several threads for one.
pub(super) struct MessageQueue<T> {
    messages: Mutex<Vec<T>>,
    /// Readable while there are messages.
    signal: OwnedFd,
}

impl<T> MessageQueue<T> {
    pub(super) fn new() -> io::Result<MessageQueue<T>> {
        Ok(MessageQueue {
            messages: Mutex::new(Vec::new()),
            signal: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn send(&self, message: T) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        let _ = rustix::io::write(&self.signal, &1u64.to_ne_bytes());
    }

    /// Takes all messages, in the order in which they were sent.
    pub(super) fn take(&self) -> Vec<T> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::io::read(&self.signal, &mut [0; 8]);
        std::mem::take(&mut *messages)
    }

    /// Readable while there are messages.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }

    /// Waits until there is a message.
    pub(super) fn wait(&self) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.signal, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
