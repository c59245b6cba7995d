//! Splits a stream of bytes into lines of bounded length.

/// The most that one line may hold.
pub(super) const MAX_LINE: usize = 16 << 20;

/// A line exceeds [`MAX_LINE`]. The rest of the stream cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// The bytes that were received and not yet taken.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    buffer: Vec<u8>,
    /// Offset of the next line.
    start: usize,
    /// No newline up to this offset.
    searched: usize,
}

impl LineBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete line, without its newline.
    pub(super) fn take(&mut self) -> Result<Option<Vec<u8>>, LineTooLong> {
        let from = self.searched;
        let Some(length) = memchr::memchr(b'\n', &self.buffer[from..]) else {
            self.searched = self.buffer.len();
            return if self.buffer.len() - self.start > MAX_LINE {
                Err(LineTooLong)
            } else {
                Ok(None)
            };
        };
        let line = self.buffer[self.start..from + length].to_vec();
        self.start = from + length + 1;
        self.searched = self.start;
        Ok(Some(line))
    }

    /// Takes what follows the last newline, at the end of the stream.
    pub(super) fn rest(&mut self) -> Option<Vec<u8>> {
        let rest = self.buffer.split_off(self.start);
        *self = LineBuffer::default();
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LineBuffer, LineTooLong, MAX_LINE};

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            text in "[a-c\n]{0,60}",
            sizes in prop::collection::vec(1usize..9, 1..40),
        ) {
            let (mut lines, mut got, mut rest) = (LineBuffer::default(), Vec::new(), text.as_bytes());
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, more) = rest.split_at((*size).min(rest.len()));
                rest = more;
                lines.push(chunk);
                while let Some(line) = lines.take().unwrap() {
                    got.push(String::from_utf8(line).unwrap());
                }
            }
            got.extend(lines.rest().map(|rest| String::from_utf8(rest).unwrap()));
            prop_assert_eq!(got, text.split_terminator('\n').map(str::to_owned).collect::<Vec<_>>());
            prop_assert_eq!(lines.rest(), None);
        }
    }

    #[test]
    fn a_line_has_a_maximum_length() {
        let mut lines = LineBuffer::default();
        let piece = vec![b'x'; 1 << 20];
        let outcome = (0..=MAX_LINE >> 20).map(|_| {
            lines.push(&piece);
            lines.take()
        });
        assert_eq!(outcome.last(), Some(Err(LineTooLong)));
    }
}
