//! What a host says, line by line, and the screen in it: foreign text like any.

use serde_json::Value;

use crate::environments::ScreenSection;
use crate::environments::output::ChildOutput;

/// An answer longer than this is no answer.
const LONGEST_LINE: usize = 64 << 20;
/// No screen has room for more lines.
const MOST_LINES: u64 = 1 << 32;

/// What a host said, or that it can say nothing more.
#[derive(Debug, Clone, PartialEq)]
pub enum HostMessage {
    Line(Value),
    Nonsense(String),
    Gone,
}

/// What a host has said as it comes, line by line.
#[derive(Debug, Default)]
pub struct HostLines {
    /// What is no whole line yet.
    buffer: Vec<u8>,
    /// How much of it is known to hold no end of a line.
    searched: usize,
}

impl HostLines {
    /// Takes in bytes, torn anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the next line that is whole, or what can never become one.
    pub fn take(&mut self) -> Option<HostMessage> {
        let Some(end) =
            memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|found| self.searched + found)
        else {
            self.searched = self.buffer.len();
            let is_long = LONGEST_LINE < self.buffer.len();
            return is_long.then(|| {
                HostMessage::Nonsense(format!("a line of more than {LONGEST_LINE} bytes"))
            });
        };
        self.searched = 0;
        let line: Vec<u8> = self.buffer.drain(..=end).collect();
        Some(match serde_json::from_slice(&line) {
            Ok(value @ Value::Object(_)) => HostMessage::Line(value),
            _ => HostMessage::Nonsense(
                String::from_utf8_lossy(&line[..line.len().min(200)])
                    .trim_end()
                    .escape_debug()
                    .to_string(),
            ),
        })
    }
}

/// Returns the screen in an answer.
pub fn section(value: &Value) -> ScreenSection {
    let max_lines = value["max_lines"]
        .as_u64()
        .map_or(ScreenSection::MAX_LINES, |lines| {
            lines.min(MOST_LINES) as usize
        });
    ScreenSection {
        content: cleaned(value["content"].as_str().unwrap_or_default()),
        max_lines,
    }
}

/// What a host said is foreign text like any: without a terminal's language, and bounded.
pub(super) fn cleaned(text: &str) -> String {
    let mut output = ChildOutput::default();
    output.begin("");
    output.push(text.as_bytes());
    output.finish()
}
