//! Tracebacks of Python.

use crate::build::checks::failures::push_line;

/// The last frame of a traceback, and the message after it.
#[derive(Default)]
pub(super) struct Traceback {
    pub message: Vec<String>,
    frame: String,
    source: String,
    pub has_begun: bool,
    is_in_frame: bool,
}

impl Traceback {
    pub(super) fn take(&mut self, line: &str) {
        if let Some(frame) = line.strip_prefix("  File \"") {
            self.begin();
            self.frame = frame_place(frame);
            self.source.clear();
            self.is_in_frame = true;
        } else if line.starts_with("Traceback (most recent call last)") {
            self.begin();
        } else if self.is_in_frame && line.starts_with("    ") {
            if self.source.is_empty() {
                line.trim().clone_into(&mut self.source);
            }
        } else if line.starts_with("  [Previous line repeated") {
            self.is_in_frame = true;
        } else if self.has_begun && (!line.is_empty() || !self.message.is_empty()) {
            self.is_in_frame = false;
            push_line(&mut self.message, line);
        }
    }

    /// Starts a traceback. In a chain, the last one is the failure.
    fn begin(&mut self) {
        self.message.clear();
        self.has_begun = true;
    }

    pub(super) fn place(&self) -> String {
        if self.source.is_empty() {
            self.frame.clone()
        } else {
            format!("{}: {}", self.frame, self.source)
        }
    }
}

/// `calc.py", line 3, in add` as `calc.py:3`.
fn frame_place(frame: &str) -> String {
    let Some((path, rest)) = frame.split_once("\", line ") else {
        return frame.to_owned();
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    format!("{path}:{digits}")
}
