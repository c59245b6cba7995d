//! The content of a file as lines.
//!
//! A line ends at `\n` or `\r\n` and nowhere else; a mark of byte order before the first line belongs to no line. The
//! bytes stay as they are: what is not UTF-8 is replaced where it is shown, never where it is kept.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter};

/// How many characters of a line are shown.
const SHOWN_CHARACTERS: usize = 2_000;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The content of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileText {
    bytes: Vec<u8>,
    /// Where the first line begins.
    top: usize,
}

/// Where a line is in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextLine {
    pub start: usize,
    /// Where its ending begins.
    pub end: usize,
    /// Where the next line begins.
    pub next: usize,
}

impl FileText {
    /// The content as lines; `None` where it is not text.
    pub(super) fn new(bytes: Vec<u8>) -> Option<FileText> {
        let top = if bytes.starts_with(BYTE_ORDER_MARK) {
            BYTE_ORDER_MARK.len()
        } else {
            0
        };
        (!bytes.contains(&0)).then_some(FileText { bytes, top })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns where the first line begins.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    /// Returns the line that begins at `start`; nothing at the end.
    pub(super) fn line_at(&self, start: usize) -> Option<TextLine> {
        let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let Some(length) = memchr(b'\n', rest) else {
            return Some(TextLine {
                start,
                end: self.bytes.len(),
                next: self.bytes.len(),
            });
        };
        let end = start + length;
        let is_pair = rest[..length].ends_with(b"\r");
        Some(TextLine {
            start,
            end: end - usize::from(is_pair),
            next: end + 1,
        })
    }

    /// Returns the line around the byte at `offset`.
    pub(super) fn line_around(&self, offset: usize) -> Option<TextLine> {
        let before = self.bytes.get(self.top..offset)?;
        self.line_at(
            memchr::memrchr(b'\n', before).map_or(self.top, |newline| self.top + newline + 1),
        )
    }

    /// Returns the lines from the one that begins at `start`.
    pub(super) fn lines_from(&self, start: usize) -> impl Iterator<Item = TextLine> {
        let mut at = start;
        std::iter::from_fn(move || {
            let line = self.line_at(at)?;
            at = line.next;
            Some(line)
        })
    }

    /// Returns the lines with these numbers, counted from 1, as far as they exist.
    pub(super) fn numbered(&self, first: usize, last: usize) -> Vec<TextLine> {
        let wanted = (last + 1).saturating_sub(first);
        let body = &self.bytes[self.top..];
        let start = match first.saturating_sub(2) {
            _ if first <= 1 => Some(0),
            before => memchr_iter(b'\n', body)
                .nth(before)
                .map(|newline| newline + 1),
        };
        start.map_or_else(Vec::new, |start| {
            self.lines_from(self.top + start).take(wanted).collect()
        })
    }

    /// Returns how many newlines are in this range of bytes.
    pub(super) fn newlines(&self, range: Range<usize>) -> usize {
        memchr_iter(b'\n', &self.bytes[range]).count()
    }

    /// Returns how many lines there are.
    pub(super) fn count(&self) -> usize {
        let unfinished = self.top < self.bytes.len() && !self.bytes.ends_with(b"\n");
        self.newlines(self.top..self.bytes.len()) + usize::from(unfinished)
    }

    /// Returns a line without its ending.
    pub(super) fn content(&self, line: TextLine) -> &[u8] {
        &self.bytes[line.start..line.end]
    }

    /// Returns the text with these neighbouring lines replaced.
    ///
    /// New lines end like the first one that they replace, or else like the one before it; whether the text ends with
    /// a newline stays as it was.
    pub(super) fn replaced(&self, old: &[TextLine], new: &[&str]) -> FileText {
        let (start, next) = match (old.first(), old.last()) {
            (Some(first), Some(last)) => (first.start, last.next),
            _ => (self.bytes.len(), self.bytes.len()),
        };
        let ending = self.ending_at(start);
        let mut bytes = self.bytes[..start].to_vec();
        for line in new {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(ending);
        }
        bytes.extend_from_slice(&self.bytes[next..]);
        let is_last = next == self.bytes.len();
        if is_last && !self.bytes.ends_with(b"\n") {
            let kept = bytes
                .strip_suffix(b"\n")
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line).len());
            bytes.truncate(kept.unwrap_or(bytes.len()).max(self.top));
        }
        FileText {
            bytes,
            top: self.top,
        }
    }

    fn ending_at(&self, start: usize) -> &'static [u8] {
        let own = self.line_at(start).filter(|line| line.end < line.next);
        let before = || self.line_around(start.checked_sub(1)?);
        match own.or_else(before) {
            Some(line) if line.end + 2 == line.next => b"\r\n",
            _ => b"\n",
        }
    }
}

/// Splits the content of a command into lines; its last newline adds none.
pub(super) fn lines_of(content: &str) -> Vec<&str> {
    if content.is_empty() {
        return Vec::new();
    }
    let content = content.strip_suffix('\n').unwrap_or(content);
    content
        .split('\n')
        .map(|line| line.strip_suffix('\r').unwrap_or(line))
        .collect()
}

/// A line as it is shown: as characters, cut to the width of a screen.
pub(super) fn shown(line: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(line);
    if text.len() <= SHOWN_CHARACTERS {
        return text;
    }
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        None => text,
        Some((end, _)) => format!("{}… (+{})", &text[..end], text[end..].chars().count()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &str) -> FileText {
        FileText::new(content.as_bytes().to_vec()).unwrap()
    }

    fn contents(text: &FileText) -> Vec<&str> {
        text.lines_from(text.top())
            .map(|line| std::str::from_utf8(text.content(line)).unwrap())
            .collect()
    }

    fn replaced(content: &str, first: usize, last: usize, new: &[&str]) -> String {
        let text = text(content);
        String::from_utf8(text.replaced(&text.numbered(first, last), new).bytes).unwrap()
    }

    #[test]
    fn lines_end_at_two_endings_and_no_other() {
        let odd = text("a\r\nb\rc\u{85}d\u{2028}e\x0cf\n\ng");
        assert_eq!(contents(&odd), ["a", "b\rc\u{85}d\u{2028}e\x0cf", "", "g"]);
        assert_eq!(odd.count(), 4);
        assert_eq!(contents(&text("")), [""; 0]);
        assert_eq!(contents(&text("\n")), [""]);
        assert_eq!(contents(&text("\u{feff}a\n")), ["a"]);
        assert_eq!(FileText::new(b"a\0b".to_vec()), None);
    }

    #[test]
    fn lines_are_found_by_number() {
        let text = text("\u{feff}a\nbb\nccc");
        let found = |first, last| -> Vec<&str> {
            text.numbered(first, last)
                .iter()
                .map(|line| std::str::from_utf8(text.content(*line)).unwrap())
                .collect()
        };
        assert_eq!(found(1, 1), ["a"]);
        assert_eq!(found(2, 9), ["bb", "ccc"]);
        assert_eq!(found(4, 4), [""; 0]);
        assert_eq!(
            text.line_around(5).map(|line| text.content(line)),
            Some(&b"bb"[..])
        );
        assert_eq!(
            text.line_around(3).map(|line| text.content(line)),
            Some(&b"a"[..])
        );
    }

    #[test]
    fn new_lines_end_like_their_neighbours() {
        assert_eq!(replaced("a\r\nb\r\n", 1, 1, &["x", "y"]), "x\r\ny\r\nb\r\n");
        assert_eq!(replaced("a\nb\r\nc\n", 3, 3, &["x"]), "a\nb\r\nx\n");
        assert_eq!(replaced("a\r\nb", 2, 2, &["x", "y"]), "a\r\nx\r\ny");
        assert_eq!(replaced("a", 1, 1, &["x", "y"]), "x\ny");
        assert_eq!(replaced("a\nb\n", 1, 2, &[]), "");
        assert_eq!(replaced("\u{feff}a\nb", 1, 1, &["x"]), "\u{feff}x\nb");
    }

    #[test]
    fn a_missing_final_newline_stays_missing() {
        assert_eq!(replaced("a\nb\nc", 3, 3, &[]), "a\nb");
        assert_eq!(replaced("a\r\nb", 2, 2, &[]), "a");
        assert_eq!(replaced("a\nb", 2, 2, &[""]), "a\n");
        assert_eq!(replaced("\u{feff}a", 1, 1, &[]), "\u{feff}");
        assert_eq!(replaced("a\nb\n", 2, 2, &[]), "a\n");
    }

    #[test]
    fn content_is_lines_and_its_last_newline_none() {
        assert_eq!(lines_of(""), [""; 0]);
        assert_eq!(lines_of("\n"), [""]);
        assert_eq!(lines_of("a\r\nb"), ["a", "b"]);
        assert_eq!(lines_of("a\n\n"), ["a", ""]);
    }

    #[test]
    fn long_lines_are_cut_by_characters() {
        let line = "é".repeat(2_003);
        assert_eq!(
            shown(line.as_bytes()),
            format!("{}… (+3)", "é".repeat(2_000))
        );
        assert_eq!(shown("é".repeat(2_000).as_bytes()), "é".repeat(2_000));
        assert_eq!(shown(b"caf\xe9"), "caf\u{fffd}");
    }
}
