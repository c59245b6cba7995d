//! Parses the lines of a host, and the screen in them.

use serde_json::Value;

use crate::environments::ScreenSection;
use crate::environments::output::ChildOutput;

/// A longer line is invalid.
const MAX_LINE: usize = 64 << 20;
/// More lines than any screen has.
const MAX_SCREEN_LINES: u64 = 1 << 32;
/// How much of an invalid line is shown.
const SHOWN_BYTES: usize = 200;

/// A message of a host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostMessage {
    Object(Value),
    /// Not a JSON object; the text is its beginning, escaped.
    Invalid(String),
    /// The host closed its end of the channel.
    Closed,
}

/// Splits the stream of a host into messages.
#[derive(Debug, Default)]
pub struct HostLines {
    /// The incomplete line.
    buffer: Vec<u8>,
    /// How much of it is known to have no newline.
    searched: usize,
}

impl HostLines {
    /// Adds bytes, split anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next complete line, or reports one that is too long.
    pub fn take(&mut self) -> Option<HostMessage> {
        let Some(length) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            let is_long = MAX_LINE < self.buffer.len();
            return is_long
                .then(|| HostMessage::Invalid(format!("a line of more than {MAX_LINE} bytes")));
        };
        let end = self.searched + length;
        self.searched = 0;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(match serde_json::from_slice(&line) {
            Ok(value @ Value::Object(_)) => HostMessage::Object(value),
            _ => HostMessage::Invalid(
                String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)])
                    .trim_end()
                    .escape_debug()
                    .to_string(),
            ),
        })
    }
}

/// The screen in an answer.
pub fn section(value: &Value) -> ScreenSection {
    let max_lines = value["max_lines"]
        .as_u64()
        .map_or(ScreenSection::MAX_LINES, |lines| {
            lines.min(MAX_SCREEN_LINES) as usize
        });
    ScreenSection {
        content: cleaned(value["content"].as_str().unwrap_or_default()),
        max_lines,
    }
}

/// Foreign text without escape sequences, and bounded.
pub(super) fn cleaned(text: &str) -> String {
    let mut output = ChildOutput::default();
    output.begin("");
    output.push(text.as_bytes());
    output.finish()
}
