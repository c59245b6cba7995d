//! The line that is being written, and the finished lines above it.
//!
//! A carriage return undoes a line of any length. So a line is kept apart until its newline, and what is kept of the
//! lines above is never lost to it.

use super::bounded::{BoundedText, EndLimits};

/// Text with its last line still open.
#[derive(Debug)]
pub(super) struct Page {
    above: BoundedText,
    line: BoundedText,
    /// Whether the next character of text replaces the line.
    returned: bool,
}

impl Page {
    pub(super) fn new(limits: EndLimits) -> Page {
        Page {
            above: BoundedText::new(limits),
            line: BoundedText::new(limits),
            returned: false,
        }
    }

    /// Writes text that has no control characters but newlines and tabs.
    pub(super) fn write(&mut self, text: &str) {
        if self.returned && !text.starts_with('\n') {
            self.line.clear();
        }
        self.returned = false;
        match text.rfind('\n') {
            Some(end) => {
                self.insert(&text[..=end]);
                self.line.push(&text[end + 1..]);
            }
            None => self.line.push(text),
        }
    }

    /// Moves to the start of the line. The next text replaces the line, unless it is a newline.
    pub(super) fn carriage_return(&mut self) {
        self.returned = true;
    }

    /// Removes the last character of the line.
    pub(super) fn backspace(&mut self) {
        if !self.returned {
            self.line.pop();
        }
    }

    /// Ends the line and adds text that no later character can undo.
    pub(super) fn insert(&mut self, text: &str) {
        self.above.append(&mut self.line);
        self.above.push(text);
    }

    /// Ends the line and takes everything.
    pub(super) fn take(&mut self) -> String {
        self.insert("");
        self.above.take()
    }
}
