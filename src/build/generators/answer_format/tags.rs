//! The tags of an answer, and the lines that close its blocks.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::build::generators::answer_format::lines::lines;

/// An attribute's value, in double or in single quotes: two groups, one of which matches.
const QUOTED: &str = r#"(?:"([^"]*)"|'([^']*)')"#;
#[expect(
    clippy::unwrap_used,
    reason = "the patterns are constants, and a test uses them"
)]
static OPENING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^[ \t]*<file[ \t]+path={QUOTED}(?:[ \t]+end={QUOTED})?[ \t]*>[ \t]*$"
    ))
    .unwrap()
});
#[expect(
    clippy::unwrap_used,
    reason = "the patterns are constants, and a test uses them"
)]
static DELETION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^[ \t]*<delete[ \t]+path={QUOTED}[ \t]*/>[ \t]*$"
    ))
    .unwrap()
});

/// Compiles the patterns ahead of their use.
pub(crate) fn compile_patterns() {
    LazyLock::force(&OPENING);
    LazyLock::force(&DELETION);
}

/// The line that closes a block whose opening tag names none.
const CLOSING: &str = "</file>";
const BLANKS: [char; 2] = [' ', '\t'];

/// The attributes of a line that opens a block.
pub(super) struct OpeningTag<'a> {
    pub(super) path: &'a str,
    pub(super) end: &'a str,
}

impl<'a> OpeningTag<'a> {
    pub(super) fn read(line: &'a str) -> Option<OpeningTag<'a>> {
        let found = OPENING.captures(line)?;
        let end = attribute(&found, 3)
            .filter(|end| !end.is_empty())
            .unwrap_or(CLOSING);
        Some(OpeningTag {
            path: attribute(&found, 1).unwrap_or_default(),
            end,
        })
    }
}

/// The value of an attribute, by the first of its two groups.
fn attribute<'a>(found: &Captures<'a>, group: usize) -> Option<&'a str> {
    found
        .get(group)
        .or_else(|| found.get(group + 1))
        .map(|value| value.as_str())
}

/// The lines that can close a block: found in one pass, so that parsing is linear.
#[derive(Default)]
pub(super) struct ClosingLines<'a> {
    by_text: HashMap<&'a str, CandidateLines>,
    /// The offsets of opening tags that begin their line.
    openings: Vec<usize>,
}

/// Offsets of lines and of the lines after them, in order.
#[derive(Default)]
struct CandidateLines {
    exact: Vec<(usize, usize)>,
    /// Lines with blanks around the word.
    blank: Vec<(usize, usize)>,
}

impl<'a> ClosingLines<'a> {
    pub(super) fn find(text: &'a str) -> ClosingLines<'a> {
        let mut found = ClosingLines::default();
        for line in lines(text).filter(|line| line.text.contains("<file")) {
            if let Some(tag) = OpeningTag::read(line.text) {
                found.by_text.entry(tag.end).or_default();
                found
                    .openings
                    .extend(line.text.starts_with('<').then_some(line.start));
            }
        }
        for line in lines(text) {
            let place = (line.start, line.next);
            if let Some(candidates) = found.by_text.get_mut(line.text) {
                candidates.exact.push(place);
            } else if let Some(candidates) = found.by_text.get_mut(line.text.trim_matches(BLANKS)) {
                candidates.blank.push(place);
            }
        }
        found
    }

    /// The line that closes a block whose content begins at `from`: an exact one, or, if the next block begins before
    /// that, the first with blanks around it.
    pub(super) fn closing(&self, word: &str, from: usize) -> Option<(usize, usize)> {
        let candidates = self.by_text.get(word)?;
        let first = |lines: &[(usize, usize)]| {
            lines
                .get(lines.partition_point(|(start, _)| *start < from))
                .copied()
        };
        let (exact, blank) = (first(&candidates.exact), first(&candidates.blank));
        let (Some((exact_start, _)), Some((_, after_blank))) = (exact, blank) else {
            return exact.or(blank);
        };
        let opening = self
            .openings
            .get(self.openings.partition_point(|start| *start < after_blank));
        if opening.is_some_and(|opening| *opening < exact_start) {
            blank
        } else {
            exact
        }
    }
}

/// The path in a line that deletes a file.
pub(super) fn deleted_path(line: &str) -> Option<&str> {
    let found = DELETION.captures(line)?;
    Some(attribute(&found, 1).unwrap_or_default())
}
