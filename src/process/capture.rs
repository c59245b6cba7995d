//! Captures output in bounded memory: a head, a tail, and a count of the bytes between them.
//!
//! Reading never blocks and has to be repeated when the pipe is readable. EOF is not awaited: a descriptor that was
//! passed to a process outside the tree can stay open for ever.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::{ioctl_fionbio, ioctl_fionread};
use rustix::pipe::fcntl_setpipe_size;

/// Bytes kept of the beginning of a stream, and as many of its end.
pub const KEPT_AT_EACH_END: usize = 2_500_000;
const PIPE_SIZE: usize = 1 << 20;
/// The size of a buffer for `StreamCapture::read`.
pub(super) const READ_SIZE: usize = 1 << 18;

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
        self.clone().into_joined()
    }

    /// Like `joined`, without a second copy.
    pub fn into_joined(self) -> Vec<u8> {
        let total = self.total();
        let Captured {
            head: mut joined,
            mut tail,
            dropped,
        } = self;
        if 0 < dropped {
            joined.truncate(last_boundary(&joined));
            tail.drain(..first_boundary(&tail));
            let missing = total - (joined.len() + tail.len()) as u64;
            let mark = format!("\n[... {missing} bytes dropped ...]\n");
            joined.reserve_exact(mark.len() + tail.len());
            joined.extend_from_slice(mark.as_bytes());
        }
        joined.append(&mut tail);
        joined
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

/// How much of a stream is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptBytes {
    pub(super) head: usize,
    pub(super) tail: usize,
}

impl KeptBytes {
    pub(super) const BOTH_ENDS: KeptBytes = KeptBytes {
        head: KEPT_AT_EACH_END,
        tail: KEPT_AT_EACH_END,
    };
}

/// A stream that is being read.
struct Capture {
    kept: KeptBytes,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Capture {
    fn new(kept: KeptBytes) -> Capture {
        Capture {
            kept,
            head: Vec::new(),
            tail: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Adds bytes, and returns how many of them belong to the head.
    fn push(&mut self, bytes: &[u8]) -> usize {
        let (first, rest) = bytes.split_at(bytes.len().min(self.kept.head - self.head.len()));
        self.head.extend_from_slice(first);
        let (skipped, last) = rest.split_at(rest.len().saturating_sub(self.kept.tail));
        if !last.is_empty() && self.tail.capacity() == 0 {
            // A buffer that grew by doubling would be larger, and all of it in use.
            self.tail.reserve_exact(self.kept.tail);
        }
        let excess = (self.tail.len() + last.len()).saturating_sub(self.kept.tail);
        self.tail.drain(..excess);
        self.tail.extend(last);
        self.dropped += (skipped.len() + excess) as u64;
        first.len()
    }

    fn total(&self) -> u64 {
        (self.head.len() + self.tail.len()) as u64 + self.dropped
    }

    fn finish(self) -> Captured {
        Captured {
            head: self.head,
            tail: self.tail.into(),
            dropped: self.dropped,
        }
    }
}

/// The reading end of a pipe, and what was read from it.
pub(super) struct StreamCapture {
    /// `None` after EOF.
    pipe: Option<PipeReader>,
    capture: Capture,
}

impl StreamCapture {
    /// Returns a capture and the end of the pipe that a child writes to.
    pub(super) fn start(kept: KeptBytes) -> io::Result<(StreamCapture, PipeWriter)> {
        let (read, write) = io::pipe()?;
        ioctl_fionbio(&read, true)?;
        // A failure only costs speed.
        let _ = fcntl_setpipe_size(&read, PIPE_SIZE);
        let capture = StreamCapture {
            pipe: Some(read),
            capture: Capture::new(kept),
        };
        Ok((capture, write))
    }

    /// Readable when there is something to read; `None` after EOF.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads at most once, and gives `on_head` what belongs to the head. Returns how much was read; 0 if there is nothing
    /// to read now.
    pub(super) fn read(&mut self, buffer: &mut [u8], on_head: &mut dyn FnMut(&[u8])) -> usize {
        let Some(pipe) = &mut self.pipe else {
            return 0;
        };
        match pipe.read(buffer) {
            Ok(count @ 1..) => {
                let in_head = self.capture.push(&buffer[..count]);
                if 0 < in_head {
                    on_head(&buffer[..in_head]);
                }
                return count;
            }
            Err(error) if is_temporary(&error) => {}
            Ok(_) | Err(_) => self.pipe = None,
        }
        0
    }

    /// Reads what is in the pipe now; processes outside the tree may keep it open, and go on writing.
    pub(super) fn drain(&mut self, buffer: &mut [u8], on_head: &mut dyn FnMut(&[u8])) {
        let buffered = self
            .pipe
            .as_ref()
            .and_then(|pipe| ioctl_fionread(pipe).ok());
        let mut left = buffered.unwrap_or(0) as usize;
        while 0 < left {
            let most = left.min(buffer.len());
            match self.read(&mut buffer[..most], on_head) {
                0 => return,
                count => left -= count,
            }
        }
    }

    /// The number of bytes that were read.
    pub(super) fn total(&self) -> u64 {
        self.capture.total()
    }

    pub(super) fn finish(self) -> Captured {
        self.capture.finish()
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Capture, Captured, KeptBytes};

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
            let mut capture = Capture::new(KeptBytes { head: 50, tail: 50 });
            chunks.iter().for_each(|chunk| { capture.push(chunk); });
            let (captured, all) = (capture.finish(), chunks.concat());
            prop_assert_eq!(captured.total(), all.len() as u64);
            prop_assert!(all.starts_with(&captured.head) && all.ends_with(&captured.tail));
            prop_assert_eq!(captured.dropped as usize, all.len().saturating_sub(100));
        }

        #[test]
        fn without_a_tail_the_rest_is_counted(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut capture = Capture::new(KeptBytes { head: 50, tail: 0 });
            let in_head: usize = chunks.iter().map(|chunk| capture.push(chunk)).sum();
            let (captured, all) = (capture.finish(), chunks.concat());
            prop_assert_eq!(&captured.head, &all[..all.len().min(50)]);
            prop_assert_eq!((in_head, captured.tail.len()), (captured.head.len(), 0));
            prop_assert_eq!(captured.total(), all.len() as u64);
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
