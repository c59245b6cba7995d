//! The line that is being written, and the lines above it.
//!
//! A carriage return may undo a line up to its newline, however long it has become. So a line is kept apart until it is
//! finished, and the lines above it never lose what they kept.

use super::bounded::{BoundedText, EndLimits};

/// Text with its last line still open.
#[derive(Debug)]
pub struct Page {
    above: BoundedText,
    line: BoundedText,
    /// Whether the next character of text starts the line anew.
    returned: bool,
}

impl Page {
    /// Returns an empty page.
    pub fn new(limits: EndLimits) -> Page {
        Page {
            above: BoundedText::new(limits),
            line: BoundedText::new(limits),
            returned: false,
        }
    }

    /// Writes text that has no control characters but newlines and tabs.
    pub fn write(&mut self, text: &str) {
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

    /// Goes back to the start of the line; what stands there goes when something is written over it.
    pub fn carriage_return(&mut self) {
        self.returned = true;
    }

    /// Takes back the last character of the line.
    pub fn backspace(&mut self) {
        if !self.returned {
            self.line.pop();
        }
    }

    /// Closes the line as it stands and adds text that no later character can undo.
    pub fn insert(&mut self, text: &str) {
        self.above.append(&mut self.line);
        self.above.push(text);
    }

    /// Closes the line as it stands and takes everything.
    pub fn take(&mut self) -> String {
        self.insert("");
        self.above.take()
    }

    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.above.is_empty() && self.line.is_empty()
    }
}
