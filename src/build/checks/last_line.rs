//! The last line that a running check printed, for a live view.

use std::cell::RefCell;

use crate::text::terminal::rendered;

/// How much of a line is kept.
const MAX_LINE: usize = 400;

/// Follows the output of a check, both streams together.
#[derive(Default)]
pub(crate) struct LastLine {
    /// The line that is being printed.
    open: RefCell<Vec<u8>>,
}

impl LastLine {
    /// Adds a piece of output; returns the last line that is not empty, if the piece has one.
    pub(crate) fn add(&self, piece: &[u8]) -> Option<String> {
        let mut open = self.open.borrow_mut();
        let mut last = None;
        // Of a large piece only the end can matter.
        let start = piece.len().saturating_sub(4 * MAX_LINE);
        if 0 < start {
            open.clear();
        }
        for line in piece[start..].split_inclusive(|byte| *byte == b'\n') {
            let space = MAX_LINE.saturating_sub(open.len());
            open.extend(&line[..line.len().min(space)]);
            last = shown(&open).or(last);
            if line.ends_with(b"\n") {
                open.clear();
            }
        }
        last
    }
}

/// A line as a terminal shows it; `None` if it is empty.
fn shown(line: &[u8]) -> Option<String> {
    let text = rendered(line);
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_is_not_empty_is_found_across_pieces() {
        let lines = LastLine::default();
        let check = |piece: &str, expected: Option<&str>| {
            assert_eq!(
                lines.add(piece.as_bytes()).as_deref(),
                expected,
                "{piece:?}"
            );
        };
        check("a\nb\n\n", Some("b"));
        check("\n", None);
        check("test_a ... ", Some("test_a ..."));
        check("ok\n", Some("test_a ... ok"));
        check("10 %\r20 %", Some("20 %"));
        check("\n\x1b[31mred\x1b[0m\n", Some("red"));
        check(&"x".repeat(5000), Some(&"x".repeat(400)));
    }
}
