//! Makes text of what was written for a terminal, piece by piece.
//!
//! First bytes become characters: what is not UTF-8 is replaced, a character that is torn waits for its rest. Then
//! escape sequences and control characters go, but for those that a page knows: newline, tab, carriage return and
//! backspace. Nothing is moved or erased for a sequence. How the input is cut into pieces makes no difference.

use std::str;

use super::page::Page;

/// The most that a sequence may swallow, in bytes.
const MAX_SEQUENCE: usize = 4096;

/// What a stream is in the middle of.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// The beginning of a character, at most three bytes.
    torn: Vec<u8>,
    state: CleanerState,
    /// The bytes of the sequence so far.
    length: usize,
}

/// Where we are in a sequence.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum CleanerState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and bytes that choose what its last one means.
    Intermediate,
    /// Within CSI.
    Control,
    /// Within OSC, DCS, SOS, PM or APC, up to BEL or ST.
    String,
    /// An ESC within one of these: with `\` it is ST.
    StringEscape,
}

impl Cleaner {
    /// Writes to the page what the bytes, after those before them, have of text.
    pub fn push(&mut self, bytes: &[u8], page: &mut Page) {
        let mut rest = self.mend(bytes, page);
        while !rest.is_empty() {
            rest = match str::from_utf8(rest) {
                Ok(text) => {
                    self.text(text, page);
                    &[]
                }
                Err(error) => {
                    let (valid, wrong) = rest.split_at(error.valid_up_to());
                    self.text(str::from_utf8(valid).unwrap_or_default(), page);
                    self.wrong(wrong, error.error_len(), page)
                }
            };
        }
    }

    /// Ends the stream here: what is torn will not be mended.
    pub fn finish(&mut self, page: &mut Page) {
        if !self.torn.is_empty() {
            self.text("\u{fffd}", page);
        }
        *self = Cleaner::default();
    }

    /// Completes the torn character, if there is one, and returns the bytes after it.
    fn mend<'a>(&mut self, bytes: &'a [u8], page: &mut Page) -> &'a [u8] {
        let mut rest = bytes;
        while let (false, Some((next, after))) = (self.torn.is_empty(), rest.split_first()) {
            let character = [self.torn.as_slice(), &[*next]].concat();
            match str::from_utf8(&character) {
                Err(error) if error.error_len().is_none() => self.torn = character,
                mended => {
                    self.torn.clear();
                    self.text(mended.unwrap_or("\u{fffd}"), page);
                    // A byte that does not belong to the torn character begins something else.
                    if mended.is_err() {
                        return rest;
                    }
                }
            }
            rest = after;
        }
        rest
    }

    /// Replaces what is no character, or keeps it where it may become one, and returns the bytes after it.
    fn wrong<'a>(&mut self, bytes: &'a [u8], length: Option<usize>, page: &mut Page) -> &'a [u8] {
        match length {
            Some(length) => {
                self.text("\u{fffd}", page);
                &bytes[length..]
            }
            None => {
                self.torn = bytes.to_vec();
                &[]
            }
        }
    }

    fn text(&mut self, text: &str, page: &mut Page) {
        let mut rest = text;
        while !rest.is_empty() {
            rest = match self.state {
                CleanerState::Text => self.plain(rest, page),
                _ => self.sequence(rest),
            };
        }
    }

    /// Writes up to the next character of control, acts on that, and returns the text after it.
    fn plain<'a>(&mut self, text: &'a str, page: &mut Page) -> &'a str {
        let (plain, rest) = text.split_at(plain_length(text));
        if !plain.is_empty() {
            page.write(plain);
        }
        let mut characters = rest.chars();
        match characters.next() {
            Some('\r') => page.carriage_return(),
            Some('\u{8}') => page.backspace(),
            Some('\u{1b}') => self.begin(CleanerState::Escape),
            Some('\u{9b}') => self.begin(CleanerState::Control),
            Some('\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => self.begin(CleanerState::String),
            Some(seen) if !seen.is_control() => page.write(&rest[..seen.len_utf8()]),
            _ => {}
        }
        characters.as_str()
    }

    fn begin(&mut self, state: CleanerState) {
        self.state = state;
        // An introducer has at most two bytes.
        self.length = 2;
    }

    /// Skips to the end of the sequence, or of the text, and returns the text after it.
    fn sequence<'a>(&mut self, text: &'a str) -> &'a str {
        for (at, character) in text.char_indices() {
            self.length += character.len_utf8();
            let Some(next) = self.after(character) else {
                self.state = CleanerState::Text;
                return &text[at..];
            };
            self.state = if self.length < MAX_SEQUENCE {
                next
            } else {
                CleanerState::Text
            };
            if self.state == CleanerState::Text {
                return &text[at + character.len_utf8()..];
            }
        }
        ""
    }

    /// Returns the state after a character of the sequence, or `None` where the sequence has ended before it.
    fn after(&mut self, character: char) -> Option<CleanerState> {
        match (self.state, character) {
            (_, '\n') => None,
            (_, '\u{18}' | '\u{1a}') => Some(CleanerState::Text),
            (CleanerState::String, '\u{7}' | '\u{9c}') | (CleanerState::StringEscape, '\\') => {
                Some(CleanerState::Text)
            }
            (CleanerState::String, '\u{1b}') => Some(CleanerState::StringEscape),
            (CleanerState::String, _) => Some(CleanerState::String),
            (CleanerState::StringEscape, _) => {
                self.begin(CleanerState::Escape);
                self.after(character)
            }
            (CleanerState::Escape, '[') => Some(CleanerState::Control),
            (CleanerState::Escape, ']' | 'P' | 'X' | '^' | '_') => Some(CleanerState::String),
            (CleanerState::Escape | CleanerState::Intermediate, ' '..='/') => {
                Some(CleanerState::Intermediate)
            }
            (CleanerState::Escape | CleanerState::Intermediate, '0'..='~') => {
                Some(CleanerState::Text)
            }
            (CleanerState::Control, ' '..='?') => Some(CleanerState::Control),
            (CleanerState::Control, '@'..='~') => Some(CleanerState::Text),
            _ => None,
        }
    }
}

/// Returns how many bytes from the start on need no second look.
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

/// Says yes to all control characters but newline and tab; those from U+0080 on begin with 0xC2, and others do too.
fn may_be_control(byte: u8) -> bool {
    (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f) | (byte == 0xc2)
}
