//! A patch as HTML: added and removed lines, in them what differs, and the tokens of common languages.

use std::ops::Range;

use similar::{Algorithm, DiffTag, capture_diff_slices};

use crate::html::writer::{HtmlWriter, escape, push_escaped};
use crate::report::html::highlight::{Language, Token, language_of};
use crate::report::model::ChangedFile;
use crate::text::shorten::cut_middle;

/// Longer lines are not compared word by word, nor read for tokens.
const LONGEST_COMPARED: usize = 400;
const LONGEST_READ: usize = 1_000;
/// Lines that have less than this part in common are another text, not a changed one.
const LEAST_IN_COMMON: f32 = 0.4;

/// Writes the patch of a file.
pub(super) fn patch(page: &mut HtmlWriter, file: &ChangedFile) {
    page.begin_scroll(&format!("Changes of {}", file.path), "scroll tall");
    page.raw("<pre class=\"patch\">\n");
    let room = page.room();
    let whole = lines(&file.patch, language_of(&file.path));
    if whole.len() <= room {
        page.raw(&whole);
    } else {
        let cut = lines(&cut_middle(&file.patch, room / 3), None);
        match cut.len() <= room {
            true => page.raw(&cut),
            false => page.text(&file.patch),
        }
    }
    page.raw("</pre></div>\n");
}

/// Lines of a hunk that were removed, and those that came instead.
#[derive(Default)]
struct Replaced<'a> {
    removed: Vec<&'a str>,
    added: Vec<&'a str>,
}

fn lines(patch: &str, language: Option<&Language>) -> String {
    let mut shown = String::with_capacity(2 * patch.len());
    let mut replaced = Replaced::default();
    let mut is_header = true;
    for line in patch.lines() {
        is_header = (is_header || line.starts_with("diff --git ")) && !line.starts_with("@@");
        match line.as_bytes().first() {
            Some(b'-') if !is_header => {
                if !replaced.added.is_empty() {
                    replaced.push(&mut shown, language);
                }
                replaced.removed.push(&line[1..]);
                continue;
            }
            Some(b'+') if !is_header => {
                replaced.added.push(&line[1..]);
                continue;
            }
            _ => replaced.push(&mut shown, language),
        }
        match line.as_bytes().first() {
            Some(b' ') if !is_header => {
                shown.push(' ');
                push_tokens(&mut shown, &line[1..], language, &[]);
                shown.push('\n');
            }
            Some(b'@') => push_note(&mut shown, "h", line),
            _ => push_note(&mut shown, "m", line),
        }
    }
    replaced.push(&mut shown, language);
    shown
}

fn push_note(shown: &mut String, class: &str, line: &str) {
    *shown += &format!("<span class=\"{class}\">{}\n</span>", escape(line));
}

impl Replaced<'_> {
    /// Writes what there is, and empties it.
    fn push(&mut self, shown: &mut String, language: Option<&Language>) {
        let pairs = self.removed.iter().zip(&self.added);
        let (mut old, mut new): (Vec<_>, Vec<_>) =
            pairs.map(|(old, new)| differences(old, new)).unzip();
        old.resize(self.removed.len(), Vec::new());
        new.resize(self.added.len(), Vec::new());
        for (tag, sign, lines, changed) in [
            ("del", '-', &self.removed, old),
            ("ins", '+', &self.added, new),
        ] {
            for (line, changed) in lines.iter().zip(changed) {
                *shown += &format!("<{tag}>{sign}");
                push_tokens(shown, line, language, &changed);
                *shown += &format!("\n</{tag}>");
            }
        }
        self.removed.clear();
        self.added.clear();
    }
}

/// The bytes of each line that the other one does not have; none of lines that have little in common.
fn differences(old: &str, new: &str) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    if LONGEST_COMPARED < old.len().max(new.len()) {
        return Default::default();
    }
    let (old, new) = (words(old), words(new));
    let operations = capture_diff_slices(Algorithm::Myers, &old, &new);
    let length = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let equal = operations.iter().filter(|one| one.tag() == DiffTag::Equal);
    let equal: usize = equal.map(|one| length(&old[one.old_range()])).sum();
    let longest = length(&old).max(length(&new)).max(1);
    if equal as f32 / (longest as f32) < LEAST_IN_COMMON {
        return Default::default();
    }
    let changed = operations.iter().filter(|one| one.tag() != DiffTag::Equal);
    let bytes = |words: &[&str], range: Range<usize>| {
        length(&words[..range.start])..length(&words[..range.end])
    };
    changed
        .map(|one| (bytes(&old, one.old_range()), bytes(&new, one.new_range())))
        .unzip()
}

/// A line in words and single other characters.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end = match is_part(first) {
            true => rest.find(|letter| !is_part(letter)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    words
}

fn class(token: Option<Token>, is_changed: bool) -> &'static str {
    match (token, is_changed) {
        (None, false) => "",
        (None, true) => "x",
        (Some(Token::Comment), false) => "c",
        (Some(Token::Comment), true) => "c x",
        (Some(Token::Literal), false) => "l",
        (Some(Token::Literal), true) => "l x",
        (Some(Token::Keyword), false) => "k",
        (Some(Token::Keyword), true) => "k x",
    }
}

/// Adds a line with its tokens marked, and `changed` parts of it.
fn push_tokens(
    shown: &mut String,
    line: &str,
    language: Option<&Language>,
    changed: &[Range<usize>],
) {
    let language = language.filter(|_| line.len() <= LONGEST_READ);
    let tokens = language.map_or_else(Vec::new, |language| language.tokens(line));
    let changed = changed.iter().filter(|range| !range.is_empty());
    let mut ends: Vec<usize> = vec![0, line.len()];
    ends.extend(
        tokens
            .iter()
            .flat_map(|(range, _)| [range.start, range.end]),
    );
    ends.extend(changed.clone().flat_map(|range| [range.start, range.end]));
    ends.sort_unstable();
    ends.dedup();
    for piece in ends.windows(2) {
        let (start, end) = (piece[0], piece[1]);
        let token = tokens.iter().find(|(range, _)| range.contains(&start));
        let is_changed = changed.clone().any(|range| range.contains(&start));
        let class = class(token.map(|(_, token)| *token), is_changed);
        if !class.is_empty() {
            *shown += &format!("<span class=\"{class}\">");
        }
        push_escaped(shown, &line[start..end]);
        if !class.is_empty() {
            *shown += "</span>";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_words_of_a_line_are_marked() {
        let patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-return <a>\n+return <b>\n";
        let shown = lines(patch, None);
        let expected = "<span class=\"m\">diff --git a/x b/x\n</span><span class=\"m\">--- a/x\n</span>\
            <span class=\"m\">+++ b/x\n</span><span class=\"h\">@@ -1,2 +1,2 @@\n</span> one\n\
            <del>-return &lt;<span class=\"x\">a</span>&gt;\n</del><ins>+return &lt;<span class=\"x\">b</span>&gt;\n</ins>";
        assert_eq!(shown, expected);
    }

    #[test]
    fn another_text_is_not_marked_and_lines_that_look_like_a_header_are_lines() {
        let shown = lines("@@ -1 +1 @@\n-one two\n+++ three\n+@@ 4\n", None);
        assert_eq!(
            shown,
            "<span class=\"h\">@@ -1 +1 @@\n</span><del>-one two\n</del><ins>+++ three\n</ins><ins>+@@ 4\n</ins>"
        );
    }

    #[test]
    fn a_line_may_be_a_token_and_changed() {
        let shown = lines(
            "@@ -1 +1 @@\n-x = 1 # a b\n+x = 2 # a b\n",
            language_of("a.py"),
        );
        assert!(
            shown.contains(
                "<ins>+x = <span class=\"l x\">2</span> <span class=\"c\"># a b</span>\n</ins>"
            ),
            "{shown}"
        );
    }
}
