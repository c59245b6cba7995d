//! The hunks of a text patch.

use std::ops::Range;

use super::lines::{ChangedLines, changed_lines, split_lines};
use super::slide::slide;

/// Equal lines before and after a change.
const CONTEXT: usize = 3;

/// The most bytes of the line that a hunk's header repeats.
const MAX_HEADING: usize = 80;

/// The lines of two texts.
struct TextPair<'a> {
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
}

/// Adds the hunks that change one text to another.
pub(super) fn push_hunks(patch: &mut Vec<u8>, old: &[u8], new: &[u8]) {
    let texts = TextPair {
        old: split_lines(old),
        new: split_lines(new),
    };
    let mut changes = changed_lines(&texts.old, &texts.new);
    slide(&mut changes, &texts.old, &texts.new);
    let (mut heading, mut seen) = (None, 0);
    // Two changes whose contexts meet are one hunk.
    for hunk in changes.chunk_by(|a, b| b.old.start - a.old.end <= 2 * CONTEXT) {
        let Some((old, new)) = texts.with_context(hunk) else {
            continue;
        };
        let before = &texts.old[seen..old.start];
        heading = before.iter().rfind(|line| is_heading(line)).or(heading);
        seen = old.start;
        push_header(patch, &old, &new, heading.copied());
        texts.push_lines(patch, hunk, old);
    }
}

impl TextPair<'_> {
    /// The lines of a hunk on both sides.
    fn with_context(&self, hunk: &[ChangedLines]) -> Option<(Range<usize>, Range<usize>)> {
        let (first, last) = (hunk.first()?, hunk.last()?);
        let before = first.old.start.min(CONTEXT);
        let after = (self.old.len() - last.old.end).min(CONTEXT);
        let old = first.old.start - before..last.old.end + after;
        let new = first.new.start - before..last.new.end + after;
        Some((old, new))
    }

    /// Adds the lines of a hunk; `old` are those that it covers of the old text.
    fn push_lines(&self, patch: &mut Vec<u8>, hunk: &[ChangedLines], old: Range<usize>) {
        let mut equal_from = old.start;
        for change in hunk {
            push_marked(patch, b' ', &self.old[equal_from..change.old.start]);
            push_marked(patch, b'-', &self.old[change.old.clone()]);
            push_marked(patch, b'+', &self.new[change.new.clone()]);
            equal_from = change.old.end;
        }
        push_marked(patch, b' ', &self.old[equal_from..old.end]);
    }
}

fn push_marked(patch: &mut Vec<u8>, mark: u8, lines: &[&[u8]]) {
    for line in lines {
        patch.push(mark);
        patch.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            patch.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

fn push_header(
    patch: &mut Vec<u8>,
    old: &Range<usize>,
    new: &Range<usize>,
    heading: Option<&[u8]>,
) {
    let (old, new) = (position(old), position(new));
    patch.extend(format!("@@ -{old} +{new} @@").into_bytes());
    if let Some(heading) = heading {
        patch.push(b' ');
        patch.extend_from_slice(shortened(heading));
    }
    patch.push(b'\n');
}

/// The first line, counted from 1, and the number of lines unless it is one. An empty range is named by the line before.
fn position(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

/// Whether the header of a hunk that follows repeats this line: git takes it for the start of a function or section.
fn is_heading(line: &[u8]) -> bool {
    line.first()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$'))
}

/// The part of a heading that is repeated. Like git's it ends before the first byte that is not UTF-8.
fn shortened(heading: &[u8]) -> &[u8] {
    let heading = &heading[..heading.len().min(MAX_HEADING)];
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let end = heading.iter().rposition(|byte| !is_blank(byte));
    let heading = &heading[..end.map_or(0, |end| end + 1)];
    let valid = heading.utf8_chunks().next();
    &heading[..valid.map_or(0, |chunk| chunk.valid().len())]
}
