//! Captures output in bounded memory: a head, a tail, and a count of the bytes between them.
//!
//! A thread per stream reads until EOF, or until the reader is finished: a descriptor that was passed to a process
//! outside the tree can stay open for ever.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::fcntl_setpipe_size;

/// Bytes kept of the beginning of a stream, and as many of its end.
pub const KEPT_AT_EACH_END: usize = 2_500_000;
const PIPE_SIZE: usize = 1 << 20;
const READ_SIZE: usize = 1 << 18;

/// The kept parts of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// Number of bytes between head and tail, which were not kept.
    pub dropped: u64,
}

impl Captured {
    /// Length of the whole stream.
    pub fn total(&self) -> u64 {
        self.head.len() as u64 + self.dropped + self.tail.len() as u64
    }

    /// Joins the kept parts, with a line in place of the dropped bytes; no UTF-8 sequence is cut there.
    pub fn joined(&self) -> Vec<u8> {
        if self.dropped == 0 {
            return [self.head.as_slice(), &self.tail].concat();
        }
        let head = &self.head[..last_boundary(&self.head)];
        let tail = &self.tail[first_boundary(&self.tail)..];
        let missing = self.total() - (head.len() + tail.len()) as u64;
        [
            head,
            format!("\n[... {missing} bytes dropped ...]\n").as_bytes(),
            tail,
        ]
        .concat()
    }
}

/// The end of the last complete UTF-8 sequence.
fn last_boundary(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        // The invalid part of a chunk is incomplete, not wrong, if its lead byte announces more bytes than follow.
        Some(chunk) if is_incomplete(chunk.invalid()) => bytes.len() - chunk.invalid().len(),
        _ => bytes.len(),
    }
}

fn is_incomplete(sequence: &[u8]) -> bool {
    let length = match sequence.first() {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 0,
    };
    sequence.len() < length
}

/// The start of the first UTF-8 sequence: up to three continuation bytes of a cut one are skipped.
fn first_boundary(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take(3)
        .take_while(|byte| (0x80..0xC0).contains(*byte))
        .count()
}

/// A stream that is being read.
struct Capture {
    limit: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Capture {
    fn new(limit: usize) -> Capture {
        Capture {
            limit,
            head: Vec::new(),
            tail: VecDeque::new(),
            dropped: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.limit - self.head.len()));
        self.head.extend_from_slice(first);
        let (skipped, last) = rest.split_at(rest.len().saturating_sub(self.limit));
        let excess = (self.tail.len() + last.len()).saturating_sub(self.limit);
        self.tail.drain(..excess);
        self.tail.extend(last);
        self.dropped += (skipped.len() + excess) as u64;
    }

    fn finish(self) -> Captured {
        Captured {
            head: self.head,
            tail: self.tail.into(),
            dropped: self.dropped,
        }
    }
}

/// A thread that reads one stream.
pub(super) struct StreamReader {
    thread: JoinHandle<Captured>,
    /// Closing it makes the thread drain the pipe and finish.
    awaited: PipeWriter,
}

impl StreamReader {
    /// Returns a reader and the end of the pipe that a child writes to.
    pub(super) fn start() -> io::Result<(StreamReader, PipeWriter)> {
        let (read, write) = io::pipe()?;
        let (until, awaited) = io::pipe()?;
        // A failure only costs speed.
        let _ = fcntl_setpipe_size(&read, PIPE_SIZE);
        let thread = thread::Builder::new()
            .name("capture".to_owned())
            .spawn(move || drain(read, &until))?;
        Ok((StreamReader { thread, awaited }, write))
    }

    /// Returns the stream including what is in the pipe now; later output is not awaited.
    pub(super) fn finish(self) -> Captured {
        drop(self.awaited);
        self.thread.join().unwrap_or_default()
    }
}

fn drain(stream: PipeReader, until: &PipeReader) -> Captured {
    let mut stream = File::from(OwnedFd::from(stream));
    let mut capture = Capture::new(KEPT_AT_EACH_END);
    let mut buffer = vec![0; READ_SIZE];
    while is_awaited(&stream, until) {
        match stream.read(&mut buffer) {
            Ok(0) => return capture.finish(),
            Ok(count) => capture.push(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    drain_buffered(stream, &mut capture);
    capture.finish()
}

/// Waits until the stream is readable (`true`), or is not awaited any longer.
fn is_awaited(stream: &File, until: &PipeReader) -> bool {
    loop {
        let mut fds =
            [until.as_fd(), stream.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) => return fds[0].revents().is_empty(),
        }
    }
}

/// Drains what is buffered now; processes outside the tree may keep the pipe open.
fn drain_buffered(stream: File, capture: &mut Capture) {
    let buffered = ioctl_fionread(&stream).unwrap_or(0);
    let mut rest = Vec::new();
    let _ = stream.take(buffered).read_to_end(&mut rest);
    capture.push(&rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Capture, Captured};

    fn joined(head: &str, dropped: u64, tail: &[u8]) -> String {
        let captured = Captured {
            head: head.into(),
            tail: tail.into(),
            dropped,
        };
        String::from_utf8(captured.joined()).unwrap()
    }

    #[test]
    fn output_that_fits_is_kept_whole() {
        assert_eq!(joined("ab", 0, b"cd"), "abcd");
    }

    #[test]
    fn dropped_bytes_are_counted() {
        assert_eq!(joined("ab", 7, b"cd"), "ab\n[... 7 bytes dropped ...]\ncd");
    }

    #[test]
    fn utf8_sequences_are_not_cut() {
        let captured = Captured {
            head: "aé€".as_bytes()[..5].into(),
            tail: "€é".as_bytes()[1..].into(),
            dropped: 1,
        };
        assert_eq!(
            String::from_utf8(captured.joined()).unwrap(),
            "aé\n[... 5 bytes dropped ...]\né"
        );
    }

    #[test]
    fn invalid_utf8_is_kept() {
        let captured = Captured {
            head: vec![b'a', 0xFF],
            tail: vec![0x80; 5],
            dropped: 1,
        };
        assert_eq!(
            captured.joined(),
            b"a\xFF\n[... 4 bytes dropped ...]\n\x80\x80"
        );
    }

    proptest! {
        #[test]
        fn head_and_tail_are_those_of_the_stream(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut capture = Capture::new(50);
            chunks.iter().for_each(|chunk| capture.push(chunk));
            let (captured, all) = (capture.finish(), chunks.concat());
            prop_assert_eq!(captured.total(), all.len() as u64);
            prop_assert!(all.starts_with(&captured.head) && all.ends_with(&captured.tail));
            prop_assert_eq!(captured.dropped as usize, all.len().saturating_sub(100));
        }

        #[test]
        fn joining_never_breaks_text(text in "\\PC{0,40}", from in 0usize..40, to in 0usize..40) {
            let bytes = text.as_bytes();
            let (from, to) = (from.min(bytes.len()), to.min(bytes.len()));
            let captured = Captured { head: bytes[..from].into(), tail: bytes[to..].into(), dropped: 1 };
            prop_assert!(String::from_utf8(captured.joined()).is_ok());
        }
    }
}
