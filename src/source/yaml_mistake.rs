//! The mistake behind an error of the YAML parser, in plain words.
//!
//! A parser says what it expected at the byte where it gave up. The cause is mostly something before: here the text
//! around that byte is looked at, and the cause is shown with what to write instead. Where the cause is one value, it
//! can be left out, so that the rest of the text is read as well. `yaml_layout.rs` knows the mistakes at the beginning of
//! a line.

use std::ops::Range;

use super::diagnostic::Diagnostic;
use super::node::brief;
use super::yaml_scan::{
    FilledLine, OpenMarks, closing, indentation, is_key_byte, line_at, line_start, open_marks,
};

/// A mistake of syntax, and how to read on.
#[derive(Debug)]
pub(super) struct SyntaxMistake {
    pub diagnostic: Diagnostic,
    pub repair: Option<TextRepair>,
}

/// Text of the same length that can be read. What is said of this part later is not the user's mistake.
#[derive(Debug)]
pub(super) struct TextRepair {
    pub span: Range<usize>,
    pub text: String,
}

/// The mistake that made the parser give up at a byte.
pub(super) fn explain(text: &str, at: usize, parser_message: String) -> SyntaxMistake {
    let at = text.floor_char_boundary(at.min(text.len()));
    let cause = SyntaxCause {
        text,
        at,
        line: line_at(text, at),
        marks: open_marks(text, at),
    };
    cause.find().unwrap_or_else(|| {
        let help = "quote text that has special characters: `key: \"…\"`";
        plain(at..cause.line.end.max(at), parser_message, help)
    })
}

/// A text in quotes that YAML and JSON read as it is.
pub(super) fn quoted(text: &str) -> String {
    match text.contains(['"', '\\']) && !text.contains('\'') {
        true => format!("'{text}'"),
        false => serde_json::Value::from(text).to_string(),
    }
}

/// A mistake after which nothing can be read on.
pub(super) fn plain(
    span: Range<usize>,
    message: impl Into<String>,
    help: impl Into<String>,
) -> SyntaxMistake {
    SyntaxMistake {
        diagnostic: Diagnostic::new(span, message).with_help(help),
        repair: None,
    }
}

/// A tag such as `!important`, which begins the value at or before a byte.
pub(super) fn unknown_tag(text: &str, at: usize) -> Option<SyntaxMistake> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let line = line_at(text, at);
    // A tag may itself begin with several of them: `!!name`.
    let before = &text[line.start..text.ceil_char_boundary(at + 1).min(line.end.max(at))];
    let last = before.rfind('!')?;
    let tag = line.start + before[..last].trim_end_matches('!').len();
    let marks = open_marks(text, tag);
    let value = SyntaxCause {
        text,
        at: tag,
        line,
        marks,
    }
    .plain_value(tag);
    let help = format!("write `{}`", quoted(&brief(&text[value.clone()])));
    let message = "text cannot begin with `!` unless it is in quotes: it means a type";
    Some(in_value(value, message.to_owned(), help))
}

/// A mistake in one value, which is left out.
fn in_value(span: Range<usize>, message: String, help: String) -> SyntaxMistake {
    SyntaxMistake {
        repair: Some(TextRepair {
            text: "x".repeat(span.len()),
            span: span.clone(),
        }),
        diagnostic: Diagnostic::new(span, message).with_help(help),
    }
}

/// What a parser gave up at: a byte, its line, and what is open there.
pub(super) struct SyntaxCause<'a> {
    pub text: &'a str,
    pub at: usize,
    pub line: Range<usize>,
    pub marks: OpenMarks,
}

impl<'a> SyntaxCause<'a> {
    fn find(&self) -> Option<SyntaxMistake> {
        self.invisible_character()
            .or_else(|| self.unspaced_comment())
            .or_else(|| self.open_quote())
            .or_else(|| self.text_after_quote())
            .or_else(|| self.bracket())
            .or_else(|| self.unspaced_dash())
            .or_else(|| self.unspaced_colon())
            .or_else(|| self.reserved_character())
            .or_else(|| self.block_header())
            .or_else(|| self.colon())
            .or_else(|| self.missing_colon())
            .or_else(|| self.indentation())
    }

    pub(super) fn line_text(&self) -> &'a str {
        &self.text[self.line.clone()]
    }

    pub(super) fn number(&self, at: usize) -> usize {
        memchr::memchr_iter(b'\n', &self.text.as_bytes()[..at]).count() + 1
    }

    /// The lines above that have more than blanks and a comment, the nearest first.
    pub(super) fn lines_above(&self) -> impl Iterator<Item = FilledLine<'a>> {
        let (text, mut end) = (self.text, self.line.start);
        let mut number = self.number(end);
        std::iter::from_fn(move || {
            let newline = end.checked_sub(1)?;
            let start = line_start(text.as_bytes(), newline);
            let line = text[start..newline].trim_end();
            (end, number) = (start, number - 1);
            Some(FilledLine {
                number,
                start,
                text: line,
            })
        })
        .filter(|line| {
            let content = line.text.trim_start();
            !content.is_empty() && !content.starts_with('#') && content != "---"
        })
    }

    fn invisible_character(&self) -> Option<SyntaxMistake> {
        let rest = self.text.get(self.at..self.line.end.max(self.at))?;
        let is_refused = |c: char| (c.is_control() && c != '\t') || c == '\u{feff}';
        let (offset, found) = rest.char_indices().find(|(_, c)| is_refused(*c))?;
        let at = self.at + offset;
        let code = u32::from(found);
        Some(plain(
            at..at + found.len_utf8(),
            format!("the invisible character U+{code:04X}"),
            format!("remove it, or write \"\\u{code:04X}\" in double quotes"),
        ))
    }

    /// A `#` directly behind something: YAML has comments only behind a blank.
    fn unspaced_comment(&self) -> Option<SyntaxMistake> {
        let comment = self.text[self.at..self.line.end.max(self.at)].strip_prefix('#')?;
        let is_behind = self.text[..self.at].ends_with(|c: char| !c.is_whitespace());
        let message = "there is no blank before this comment";
        let help = format!("write ` #{}`", brief(comment));
        is_behind.then(|| plain(self.at..self.line.end, message, help))
    }

    fn open_quote(&self) -> Option<SyntaxMistake> {
        let is_quote = self.text[self.at..].starts_with(['"', '\'']);
        let unclosed = || open_marks(self.text, self.text.len()).quote;
        let own = is_quote
            .then(unclosed)
            .flatten()
            .filter(|open| *open == self.at);
        let Some(open) = self.marks.quote.or(own) else {
            return is_quote.then(|| self.escape()).flatten();
        };
        let quote = &self.text[open..=open];
        let line = line_at(self.text, open);
        let message = format!("the quote {quote} that opens here is not closed");
        let is_in_brackets = !open_marks(self.text, open).brackets.is_empty();
        let rest = &self.text[open + 1..line.end];
        let inner = match is_in_brackets {
            true => rest.split([',', ']', '}']).next().unwrap_or(rest),
            false => rest,
        };
        let written = brief(inner.trim_end());
        Some(plain(
            open..line.end,
            message,
            format!("close it: `{quote}{written}{quote}`"),
        ))
    }

    /// A `\` in double quotes with a character that has no meaning there.
    fn escape(&self) -> Option<SyntaxMistake> {
        let rest = self.text[self.at..].strip_prefix('"')?;
        let mut backslashes = rest.match_indices('\\').map(|(at, _)| at);
        let mut end = 0;
        let offset = backslashes.find(|at| {
            let is_new = end <= *at;
            end = if is_new { at + 2 } else { end };
            let next = rest[at + 1..].chars().next();
            is_new && next.is_some_and(|c| !"0abtnvfre \"/\\N_LPxuU\n\r\t".contains(c))
        })?;
        let at = self.at + 1 + offset;
        let end = self.text.ceil_char_boundary(at + 2);
        let message = format!("`{}` means nothing in double quotes", &self.text[at..end]);
        let help = format!(
            "write `\\{}`, or put the text in single quotes",
            &self.text[at..end]
        );
        Some(plain(at..end, message, help))
    }

    fn text_after_quote(&self) -> Option<SyntaxMistake> {
        let quoted_text = self.marks.last_quoted.clone()?;
        let between = self.text.get(quoted_text.end..self.at)?;
        let is_behind = between.chars().all(|c| c == ' ') && self.line.contains(&self.at);
        if !is_behind || self.text[self.at..].starts_with([',', ']', '}', ':']) {
            return None;
        }
        let whole = quoted_text.start..self.line.end;
        let quote = &self.text[quoted_text.start..=quoted_text.start];
        let written = &self.text[whole.clone()];
        // Either quotes around the whole text, or quotes that belong to it.
        let inner = written[1..].strip_suffix(quote).unwrap_or(written);
        Some(in_value(
            whole,
            format!("there is text behind the closing quote {quote}"),
            format!(
                "one pair of quotes around all of it: `{}`",
                quoted(&brief(inner))
            ),
        ))
    }

    fn bracket(&self) -> Option<SyntaxMistake> {
        let first = self.text[self.at..].chars().next();
        let is_opening = matches!(first, Some('[' | '{'));
        if self.marks.brackets.is_empty() && matches!(first, Some(']' | '}')) {
            let bracket = &self.text[self.at..=self.at];
            let message = format!("nothing was opened for this `{bracket}`");
            let help = "remove it, or put the text in quotes";
            return Some(plain(self.at..self.at + 1, message, help));
        }
        let all = open_marks(self.text, self.text.len());
        let wrong = all
            .mismatch
            .filter(|(open, close)| *open == self.at || *close == self.at);
        if let Some((open, close)) = wrong {
            let expected = closing(self.text.as_bytes()[open]);
            let message = format!(
                "this `{}` does not close the `{}` of line {}",
                &self.text[close..=close],
                &self.text[open..=open],
                self.number(open)
            );
            return Some(plain(
                close..close + 1,
                message,
                format!("write `{expected}`"),
            ));
        }
        let own = is_opening.then_some(self.at);
        let on_line_above = |open: &usize| *open < self.line.start;
        let above = self.marks.brackets.last().copied().filter(on_line_above);
        let open = above.or_else(|| own.filter(|at| all.brackets.contains(at)))?;
        let line = line_at(self.text, open);
        let closing = closing(self.text.as_bytes()[open]);
        let message = format!(
            "the `{}` that opens here is not closed",
            &self.text[open..=open]
        );
        let written = brief(self.text[open..line.end].trim_end_matches(','));
        Some(plain(
            open..line.end,
            message,
            format!("close it: `{written}{closing}`"),
        ))
    }

    /// A character that cannot begin a plain text.
    fn reserved_character(&self) -> Option<SyntaxMistake> {
        let directive = self.text.starts_with('%').then_some(0);
        let reserved = self.text[self.at..]
            .starts_with(['@', '`', '%', '*', '&'])
            .then_some(self.at);
        let at = reserved.or(directive)?;
        let value = self.plain_value(at);
        let first = &self.text[at..=at];
        let message = format!("text cannot begin with `{first}` unless it is in quotes");
        let help = format!("write `{}`", quoted(&brief(&self.text[value.clone()])));
        match at == self.at {
            true => Some(in_value(value, message, help)),
            false => Some(plain(value, message, help)),
        }
    }

    /// A plain text from a byte to the end of its line, of its item in brackets, or to a comment.
    fn plain_value(&self, start: usize) -> Range<usize> {
        let line = line_at(self.text, start);
        let rest = &self.text[start..line.end];
        let rest = rest.split(" #").next().unwrap_or(rest);
        let rest = match self.marks.brackets.is_empty() {
            true => rest,
            false => rest.split([',', ']', '}']).next().unwrap_or(rest),
        };
        start..start + rest.trim_end().len()
    }

    fn block_header(&self) -> Option<SyntaxMistake> {
        let header = self.text[self.at..]
            .chars()
            .next()
            .filter(|c| matches!(c, '|' | '>'))?;
        let rest = self.text[self.at + 1..self.line.end].trim();
        let message = format!("text behind `{header}`: the text begins on the next line");
        let help = format!("without `{header}`: `{}`", quoted(&brief(rest)));
        (!rest.is_empty()).then(|| plain(self.at..self.line.end, message, help))
    }

    /// A colon where no key can be: in a text, or of a line that is indented too far.
    fn colon(&self) -> Option<SyntaxMistake> {
        if !self.text[self.at..].starts_with(':') {
            return None;
        }
        let before = &self.text[self.line.start..self.at];
        if let Some(key_end) = before.find(": ") {
            let value = &self.text[self.line.start + key_end + 1..self.line.end];
            let start = self.line.end - value.trim_start().len();
            let key = before[..key_end].trim_start().trim_start_matches("- ");
            let value = self.plain_value(start);
            let written = quoted(&brief(&self.text[value.clone()]));
            let help = format!("quote the text: `{}: {written}`", brief(key));
            return Some(in_value(value, "a `: ` inside plain text".to_owned(), help));
        }
        let above = self.lines_above().next()?;
        let word = before.trim_start();
        let is_key = word.bytes().all(is_key_byte);
        if !above.text.contains(':') {
            return None;
        }
        if is_key && above.indent() < before.len() - word.len() {
            return self.indentation();
        }
        let (key, _) = above.text.split_once(": ")?;
        let start = self.line.start + indentation(before.as_bytes());
        let key = brief(key.trim());
        let help = format!("write `{key}: |` and the text in lines below it");
        Some(plain(
            start..self.line.end,
            "a `: ` inside plain text",
            help,
        ))
    }
}
