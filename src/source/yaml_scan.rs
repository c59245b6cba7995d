//! A rough scan of YAML or JSON text: which quotes and brackets are open at a byte, and its lines. It is used after a parser
//! refused the text, to say where something began.

use std::ops::Range;

/// What is open at a byte of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OpenMarks {
    /// The quote inside which the byte is.
    pub quote: Option<usize>,
    /// The open brackets and braces, outermost first.
    pub brackets: Vec<usize>,
    /// The quoted text that ended last, with its quotes.
    pub last_quoted: Option<Range<usize>>,
    /// The blocks of text, from their header (`|` or `>`) on; the byte may be in the last one.
    pub blocks: Vec<Range<usize>>,
    /// A closing bracket that does not belong to the last opened one, with that one.
    pub mismatch: Option<(usize, usize)>,
}

impl OpenMarks {
    /// The header of the block of text that ended last, or that the byte is in.
    pub(super) fn last_block(&self) -> Option<usize> {
        self.blocks.last().map(|block| block.start)
    }
}

/// Scans a text up to a byte.
pub(super) fn open_marks(text: &str, until: usize) -> OpenMarks {
    let mut scan = MarkScan {
        bytes: text.as_bytes(),
        at: 0,
        is_start: true,
        marks: OpenMarks::default(),
    };
    let until = until.min(text.len());
    while scan.at < until {
        scan.step(until);
    }
    scan.marks
}

struct MarkScan<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether a value can begin here.
    is_start: bool,
    marks: OpenMarks,
}

impl MarkScan<'_> {
    fn step(&mut self, until: usize) {
        let byte = self.bytes[self.at];
        let is_flow = !self.marks.brackets.is_empty();
        match byte {
            b' ' | b'\t' | b'\r' => {}
            b'\n' => self.is_start = true,
            b'#' if self.is_blank_before() => return self.skip_line(),
            b'"' | b'\'' if self.is_start => return self.quoted(byte, until),
            b'|' | b'>' if self.is_start && !is_flow => return self.block(),
            b'[' | b'{' if self.is_start || is_flow => {
                self.marks.brackets.push(self.at);
                self.is_start = true;
            }
            b']' | b'}' if is_flow => self.close(byte),
            b',' if is_flow => self.is_start = true,
            b':' if is_flow || self.is_blank_after() => self.is_start = true,
            b'-' | b'?' if self.is_start && self.is_blank_after() => {}
            _ => self.is_start = false,
        }
        self.at += 1;
    }

    fn close(&mut self, byte: u8) {
        let opened = self.marks.brackets.pop();
        let expected = opened.map(|at| closing(self.bytes[at]));
        if let Some(opened) = opened.filter(|_| expected != Some(char::from(byte))) {
            self.marks.mismatch.get_or_insert((opened, self.at));
        }
        self.is_start = false;
    }

    fn quoted(&mut self, quote: u8, until: usize) {
        let open = self.at;
        self.at += 1;
        while let Some(byte) = self.bytes.get(self.at).filter(|_| self.at < until) {
            let next = self.bytes.get(self.at + 1);
            match byte {
                b'\\' if quote == b'"' => self.at += 1,
                b'\'' if quote == b'\'' && next == Some(&b'\'') => self.at += 1,
                byte if *byte == quote => {
                    self.at += 1;
                    self.is_start = false;
                    self.marks.last_quoted = Some(open..self.at);
                    return;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.marks.quote = Some(open);
    }

    /// Skips a block of text: its lines are empty or indented more than the line of its header.
    fn block(&mut self) {
        let header = self.at;
        let line = line_start(self.bytes, self.at);
        let outer = indentation(&self.bytes[line..]);
        self.skip_line();
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at + 1..];
            let indent = indentation(rest);
            let is_empty = matches!(rest.get(indent), None | Some(b'\n' | b'\r'));
            if !is_empty && indent <= outer {
                break;
            }
            self.at += 1;
            self.skip_line();
        }
        self.marks.blocks.push(header..self.at);
    }

    /// Goes to the end of the line, before its newline.
    fn skip_line(&mut self) {
        let rest = &self.bytes[self.at..];
        self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    }

    fn is_blank_before(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.bytes[at]);
        before.is_none_or(|byte| byte.is_ascii_whitespace())
    }

    fn is_blank_after(&self) -> bool {
        let after = self.bytes.get(self.at + 1);
        after.is_none_or(u8::is_ascii_whitespace)
    }
}

/// The bracket that closes another one.
pub(super) fn closing(opening: u8) -> char {
    match opening {
        b'[' => ']',
        _ => '}',
    }
}

/// How many spaces a line begins with.
pub(super) fn indentation(line: &[u8]) -> usize {
    line.iter().take_while(|byte| **byte == b' ').count()
}

/// Where the line of a byte begins.
pub(super) fn line_start(text: &[u8], at: usize) -> usize {
    memchr::memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1)
}

/// The line of a byte, without its end and blanks before it.
pub(super) fn line_at(text: &str, at: usize) -> Range<usize> {
    let start = line_start(text.as_bytes(), at);
    let line = text[start..].lines().next().unwrap_or_default();
    start..start + line.trim_end().len()
}

/// A line of a text that has more than blanks and a comment.
pub(super) struct FilledLine<'a> {
    pub number: usize,
    pub start: usize,
    pub text: &'a str,
}

impl<'a> FilledLine<'a> {
    pub(super) fn indent(&self) -> usize {
        indentation(self.text.as_bytes())
    }

    /// Where its keys can begin: at its first character, and behind each dash.
    pub(super) fn columns(&self) -> Vec<usize> {
        let mut columns = vec![self.indent()];
        let mut rest = &self.text[self.indent()..];
        while let Some(inner) = rest.strip_prefix("- ") {
            let inner = inner.trim_start_matches(' ');
            columns.push(self.text.len() - inner.len());
            rest = inner;
        }
        columns
    }

    /// Key and value of `key:value`, which lacks a blank.
    pub(super) fn unspaced_field(&self) -> Option<(&'a str, &'a str)> {
        let content = self.text.trim_start().trim_start_matches("- ").trim_end();
        let (key, value) = content.split_once(':')?;
        let is_key = !key.is_empty() && key.bytes().all(is_key_byte);
        (is_key && !value.is_empty() && !value.starts_with([' ', '\t', '/']))
            .then_some((key, value))
    }
}

/// Whether a byte can be in a key that needs no quotes.
pub(super) fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{OpenMarks, open_marks};

    fn at_end(text: &str) -> OpenMarks {
        open_marks(text, text.len())
    }

    #[test]
    fn open_quotes_and_brackets_are_found() {
        let check = |text: &str, quote: Option<usize>, brackets: &[usize]| {
            let marks = at_end(text);
            assert_eq!(
                (marks.quote, &marks.brackets[..]),
                (quote, brackets),
                "{text}"
            );
        };
        check("a: \"b", Some(3), &[]);
        check("a: \"b\\\"", Some(3), &[]);
        check("a: 'it''s", Some(3), &[]);
        check("a: it's 5\" long", None, &[]);
        check("a: [b, {c: \"]\"", None, &[3, 7]);
        check("a: b [c", None, &[]);
        check("a: [b] # [\n", None, &[]);
        check("a: |\n  \"[\nb: \"", Some(13), &[]);
        check("- 'a'\n- [", None, &[8]);
        assert_eq!(at_end("{a: 1]").mismatch, Some((0, 5)));
        assert_eq!(at_end("a: 'it's").last_quoted, Some(3..7));
    }

    proptest! {
        #[test]
        fn every_text_can_be_scanned(text in "[ab:\\-#|>\"'\\[\\]{},\\\\\\n\\r\\t ä]{0,40}", until in 0_usize..50) {
            let _ = open_marks(&text, until);
        }
    }
}
