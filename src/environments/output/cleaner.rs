//! Makes text of what was written for a terminal, piece by piece.
//!
//! Bytes become characters: what is not UTF-8 is replaced, a character that is split between two pieces waits for its
//! rest. Escape sequences and control characters are dropped, but for those that a page handles: newline, tab, carriage
//! return and backspace. How the input is cut into pieces makes no difference.

use std::str;

use super::page::Page;
use crate::text::ansi::{AnsiParser, AnsiStep};

/// The state of a stream between two pieces.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// The beginning of a character, at most three bytes.
    torn: Vec<u8>,
    parser: AnsiParser,
}

impl Cleaner {
    /// Writes the text in the next bytes of the stream to the page.
    pub(super) fn push(&mut self, bytes: &[u8], page: &mut Page) {
        let after = self.complete(bytes, page);
        self.decode(after, page);
    }

    /// Ends the stream: a torn character will not be completed.
    pub(super) fn finish(&mut self, page: &mut Page) {
        if !self.torn.is_empty() {
            self.text("\u{fffd}", page);
        }
        *self = Cleaner::default();
    }

    /// Completes the torn character, if there is one, and returns the bytes after it.
    fn complete<'a>(&mut self, bytes: &'a [u8], page: &mut Page) -> &'a [u8] {
        if self.torn.is_empty() {
            return bytes;
        }
        let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let length = bytes.iter().take(3).take_while(is_continuation).count();
        let (rest, after) = bytes.split_at(length);
        let mut character = std::mem::take(&mut self.torn);
        character.extend_from_slice(rest);
        self.decode(&character, page);
        if !self.torn.is_empty() && !after.is_empty() {
            self.torn.clear();
            self.text("\u{fffd}", page);
        }
        after
    }

    fn decode(&mut self, mut bytes: &[u8], page: &mut Page) {
        loop {
            let error = match str::from_utf8(bytes) {
                Ok(text) => return self.text(text, page),
                Err(error) => error,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            self.text(str::from_utf8(valid).unwrap_or_default(), page);
            let Some(length) = error.error_len() else {
                self.torn = rest.to_vec();
                return;
            };
            self.text("\u{fffd}", page);
            bytes = &rest[length..];
        }
    }

    fn text(&mut self, text: &str, page: &mut Page) {
        let mut rest = text;
        while !rest.is_empty() {
            if self.parser.is_in_text() {
                let (plain, control) = rest.split_at(plain_length(rest));
                if !plain.is_empty() {
                    page.write(plain);
                }
                rest = control;
            }
            rest = self.control(rest, page);
        }
    }

    /// Takes a control character, or a sequence as far as it goes, and returns the text after it.
    fn control<'a>(&mut self, text: &'a str, page: &mut Page) -> &'a str {
        let mut characters = text.chars();
        for character in characters.by_ref() {
            if self.parser.step(character) == AnsiStep::Text {
                write_character(character, page);
            }
            if self.parser.is_in_text() {
                break;
            }
        }
        characters.as_str()
    }
}

fn write_character(character: char, page: &mut Page) {
    match character {
        '\r' => page.carriage_return(),
        '\u{8}' => page.backspace(),
        control if control.is_control() && !matches!(control, '\n' | '\t') => {}
        seen => page.write(seen.encode_utf8(&mut [0; 4])),
    }
}

/// How many bytes at the start have no control character.
fn plain_length(text: &str) -> usize {
    // A block without an early exit is what the compiler turns into a few wide instructions.
    const BLOCK: usize = 64;
    let has_none = |block: &&[u8]| {
        !block
            .iter()
            .fold(false, |found, byte| found | may_be_control(*byte))
    };
    let start = text
        .as_bytes()
        .chunks_exact(BLOCK)
        .take_while(has_none)
        .count()
        * BLOCK;
    let rest = &text.as_bytes()[start..];
    start
        + rest
            .iter()
            .position(|byte| may_be_control(*byte))
            .unwrap_or(rest.len())
}

/// Whether a byte may begin a control character other than newline and tab. C1 controls begin with 0xC2, as others do.
fn may_be_control(byte: u8) -> bool {
    (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f) | (byte == 0xc2)
}
