//! Splits the input into lines of bounded length.

/// A longer line is skipped to its end.
pub(crate) const LONGEST_LINE: usize = 128 << 20;

/// A line of the input that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    Text(Vec<u8>),
    TooLong,
}

/// The beginning of a line.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    line: Vec<u8>,
    /// The line is too long and is skipped.
    is_too_long: bool,
}

impl LineSplitter {
    /// Adds input, split anywhere; returns the lines that it completes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Vec<InputLine> {
        let mut lines = Vec::new();
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.is_too_long |= LONGEST_LINE < self.line.len() + piece.len();
            if self.is_too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(piece);
            }
            if end.is_some() {
                lines.extend(self.end());
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        lines
    }

    /// Ends the line; the last one of the input may lack a newline.
    pub(super) fn end(&mut self) -> Option<InputLine> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            return Some(InputLine::TooLong);
        }
        let is_blank = line.iter().all(u8::is_ascii_whitespace);
        (!is_blank).then_some(InputLine::Text(line))
    }
}
