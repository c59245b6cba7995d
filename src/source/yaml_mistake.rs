//! The mistake behind an error of the YAML parser, in plain words.
//!
//! A parser says what it expected at the byte where it gave up. The cause is mostly something before: here the text
//! around that byte is looked at, and the cause is shown with what to write instead. Where the cause is one value, it
//! can be left out, so that the rest of the text is read as well.

use std::ops::Range;

use super::diagnostic::Diagnostic;
use super::node::brief;
use super::yaml_scan::{OpenMarks, closing, indentation, line_start, open_marks};

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
        let diagnostic = Diagnostic::new(at..cause.line.end.max(at), parser_message);
        plain(
            diagnostic,
            "quote text that has special characters: `key: \"…\"`",
        )
    })
}

/// A text in quotes that YAML and JSON read as it is.
pub(super) fn quoted(text: &str) -> String {
    match text.contains(['"', '\\']) && !text.contains('\'') {
        true => format!("'{text}'"),
        false => serde_json::Value::from(text).to_string(),
    }
}

fn plain(diagnostic: Diagnostic, help: impl Into<String>) -> SyntaxMistake {
    SyntaxMistake {
        diagnostic: diagnostic.with_help(help),
        repair: None,
    }
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

/// The line of a byte, without its end and blanks before it.
fn line_at(text: &str, at: usize) -> Range<usize> {
    let start = line_start(text.as_bytes(), at);
    let line = text[start..].lines().next().unwrap_or_default();
    start..start + line.trim_end().len()
}

/// A line of a text that has more than blanks and a comment.
struct FilledLine<'a> {
    number: usize,
    start: usize,
    text: &'a str,
}

impl<'a> FilledLine<'a> {
    fn indent(&self) -> usize {
        indentation(self.text.as_bytes())
    }

    /// Where its keys can begin: at its first character, and behind each dash.
    fn columns(&self) -> Vec<usize> {
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
    fn unspaced_field(&self) -> Option<(&'a str, &'a str)> {
        let content = self.text.trim_start().trim_start_matches("- ").trim_end();
        let (key, value) = content.split_once(':')?;
        let is_key = !key.is_empty() && key.bytes().all(is_key_byte);
        (is_key && !value.is_empty() && !value.starts_with([' ', '\t', '/']))
            .then_some((key, value))
    }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

struct SyntaxCause<'a> {
    text: &'a str,
    at: usize,
    line: Range<usize>,
    marks: OpenMarks,
}

impl<'a> SyntaxCause<'a> {
    fn find(&self) -> Option<SyntaxMistake> {
        self.tab()
            .or_else(|| self.invisible_character())
            .or_else(|| self.open_quote())
            .or_else(|| self.text_after_quote())
            .or_else(|| self.bracket())
            .or_else(|| self.unspaced_colon())
            .or_else(|| self.reserved_character())
            .or_else(|| self.block_header())
            .or_else(|| self.colon())
            .or_else(|| self.missing_colon())
            .or_else(|| self.indentation())
    }

    fn line_text(&self) -> &'a str {
        &self.text[self.line.clone()]
    }

    fn number(&self, at: usize) -> usize {
        memchr::memchr_iter(b'\n', &self.text.as_bytes()[..at]).count() + 1
    }

    /// The lines above that have more than blanks and a comment, the nearest first.
    fn lines_above(&self) -> impl Iterator<Item = FilledLine<'a>> {
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

    /// Where the error is at a header of a block of text, its first line counts as well.
    fn tab(&self) -> Option<SyntaxMistake> {
        let next = self.text[self.line.end..]
            .find('\n')
            .map(|at| self.line.end + at + 1);
        let is_header = self.text[self.at..].starts_with(['|', '>']);
        let next = next
            .filter(|_| is_header)
            .map(|start| line_at(self.text, start));
        [Some(self.line.clone()), next]
            .into_iter()
            .flatten()
            .find_map(|line| {
                let text = &self.text[line.clone()];
                let content = text.trim_start_matches([' ', '\t']);
                let blanks = &text[..text.len() - content.len()];
                let first = blanks.find('\t')?;
                let spaces = blanks.replace('\t', "  ");
                let span = line.start + first..line.start + blanks.len();
                let message = format!("line {} is indented with a tab", self.number(line.start));
                let help = format!("indent with spaces: `{spaces}{}`", brief(content));
                Some(plain(Diagnostic::new(span, message), help))
            })
    }

    fn invisible_character(&self) -> Option<SyntaxMistake> {
        let rest = self.text.get(self.at..self.line.end.max(self.at))?;
        let is_refused = |c: char| (c.is_control() && c != '\t') || c == '\u{feff}';
        let (offset, found) = rest.char_indices().find(|(_, c)| is_refused(*c))?;
        let at = self.at + offset;
        let diagnostic = Diagnostic::new(
            at..at + found.len_utf8(),
            format!("the invisible character U+{:04X}", u32::from(found)),
        );
        let spelled = format!("\"\\u{:04X}\"", u32::from(found));
        Some(plain(
            diagnostic,
            format!("remove it, or write {spelled} in double quotes"),
        ))
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
        let written = brief(&self.text[open..line.end]);
        Some(plain(
            Diagnostic::new(open..line.end, message),
            format!("close it: `{written}{quote}`"),
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
        Some(plain(Diagnostic::new(at..end, message), help))
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
        let inner = self.text[whole.clone()].trim_matches(['"', '\'']);
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
            let diagnostic = Diagnostic::new(
                self.at..self.at + 1,
                format!("nothing was opened for this `{bracket}`"),
            );
            return Some(plain(diagnostic, "remove it, or put the text in quotes"));
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
                Diagnostic::new(close..close + 1, message),
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
            Diagnostic::new(open..line.end, message),
            format!("close it: `{written}{closing}`"),
        ))
    }

    /// `key:value` on this line or the one above.
    fn unspaced_colon(&self) -> Option<SyntaxMistake> {
        if !self.marks.brackets.is_empty() {
            return None;
        }
        let own = FilledLine {
            number: self.number(self.line.start),
            start: self.line.start,
            text: self.line_text(),
        };
        let lines = [Some(own), self.lines_above().next()];
        let (line, (key, value)) = lines
            .into_iter()
            .flatten()
            .find_map(|line| line.unspaced_field().map(|field| (line, field)))?;
        let start = line.start + line.text.find(key)?;
        let span = start..start + key.len() + 1 + value.len();
        let after_colon = value.chars().next().map_or(0, char::len_utf8);
        let blanks = " ".repeat(after_colon);
        let repaired = format!("{key}:{blanks}{}", "x".repeat(value.len() - after_colon));
        let diagnostic = Diagnostic::new(
            span.clone(),
            format!("there is no blank after the colon of `{}`", brief(key)),
        );
        Some(SyntaxMistake {
            diagnostic: diagnostic.with_help(format!("write `{}: {}`", brief(key), brief(value))),
            repair: Some(TextRepair {
                span,
                text: repaired,
            }),
        })
    }

    /// A character that cannot begin a plain text.
    fn reserved_character(&self) -> Option<SyntaxMistake> {
        let directive = self.text.starts_with('%').then_some(0);
        let reserved = self.text[self.at..]
            .starts_with(['@', '`', '%', '*'])
            .then_some(self.at);
        let at = reserved.or(directive)?;
        let value = self.plain_value(at);
        let first = &self.text[at..=at];
        let message = format!("text cannot begin with `{first}` unless it is in quotes");
        let help = format!("write `{}`", quoted(&brief(&self.text[value.clone()])));
        match at == self.at {
            true => Some(in_value(value, message, help)),
            false => Some(plain(Diagnostic::new(value, message), help)),
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
        let diagnostic = Diagnostic::new(self.at..self.line.end, message);
        (!rest.is_empty()).then(|| {
            plain(
                diagnostic,
                format!("without `{header}`: `{}`", quoted(&brief(rest))),
            )
        })
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
        let diagnostic = Diagnostic::new(
            self.line.start + indentation(before.as_bytes())..self.line.end,
            "a `: ` inside plain text",
        );
        Some(plain(
            diagnostic,
            format!(
                "write `{}: |` and the text in lines below it",
                brief(key.trim())
            ),
        ))
    }

    /// A line, this one or the one above, that has no colon where others have a key.
    fn missing_colon(&self) -> Option<SyntaxMistake> {
        let is_colon = self.text[self.at..].starts_with(':');
        let (start, content) = match is_colon {
            true => self
                .lines_above()
                .next()
                .map(|line| (line.start + line.indent(), line.text.trim()))?,
            false => (self.at, &self.text[self.at..self.line.end]),
        };
        let is_whole_line = self.text[..start].ends_with([' ', '\n']) || start == 0;
        if content.contains(':') || content.starts_with('-') || !is_whole_line || content.is_empty()
        {
            return None;
        }
        if let Some(mistake) = self.below_block(content).filter(|_| !is_colon) {
            return Some(mistake);
        }
        let message = "this is neither `key: value` nor an item `- value`";
        let help = match content.split_once(' ') {
            Some((key, value)) if key.bytes().all(is_key_byte) => {
                format!("write `{key}: {}`", brief(value.trim()))
            }
            _ => "write `key: value`, or indent it as part of the text above".to_owned(),
        };
        Some(plain(
            Diagnostic::new(start..start + content.len(), message),
            help,
        ))
    }

    /// A line that is indented less than the block of text above, to which it seems to belong.
    fn below_block(&self, content: &str) -> Option<SyntaxMistake> {
        let header = self.marks.last_block?;
        let above = self.lines_above().next()?;
        let first = self.text[header..].lines().nth(1)?;
        let header_line = line_at(self.text, header);
        let is_directly_above = above.start <= header
            || !self
                .lines_above()
                .take_while(|line| header < line.start)
                .any(|line| {
                    line.indent() <= indentation(&self.text.as_bytes()[header_line.start..])
                });
        if !is_directly_above {
            return None;
        }
        let indent = indentation(&self.text.as_bytes()[self.line.start..]);
        let expected = match self.line.start <= header_line.end + 2 {
            true => indentation(&self.text.as_bytes()[header_line.start..]) + 2,
            false => indentation(first.as_bytes()),
        };
        let number = self.number(self.line.start);
        let message = format!(
            "line {number} is indented by {indent} {}, too little for the text that begins below line {}",
            spaces(indent),
            self.number(header)
        );
        let help = format!(
            "indent it by {expected} {}: `{}{}`",
            spaces(expected),
            " ".repeat(expected),
            brief(content)
        );
        Some(plain(
            Diagnostic::new(self.line.start + indent..self.line.end, message),
            help,
        ))
    }

    /// A line whose indentation is that of no line above.
    fn indentation(&self) -> Option<SyntaxMistake> {
        let text = self.line_text();
        let indent = indentation(text.as_bytes());
        let content = &text[indent..];
        if let Some(item) = content
            .strip_prefix("- ")
            .filter(|_| self.is_among_fields(indent))
        {
            let span = self.line.start + indent..self.line.end;
            let diagnostic = Diagnostic::new(span, "a list item among fields");
            return Some(plain(
                diagnostic,
                format!("without the dash: `{}{}`", " ".repeat(indent), brief(item)),
            ));
        }
        if let Some(mistake) = self.below_block(content).filter(|_| self.is_below_block()) {
            return Some(mistake);
        }
        let (line, column) = self.nearest_column(indent, content.starts_with("- "))?;
        if column == indent {
            return None;
        }
        let number = self.number(self.line.start);
        let message = match line.indent() == indent {
            true => format!(
                "line {number} is indented like the list item of line {}, and is not an item",
                line.number
            ),
            false => format!(
                "line {number} is indented by {indent} {}, what it belongs to in line {} by {column}",
                spaces(indent),
                line.number
            ),
        };
        let written = format!("{}{}", " ".repeat(column), brief(content));
        let diagnostic = Diagnostic::new(self.line.start + indent..self.line.end, message);
        Some(plain(
            diagnostic,
            format!("indent it by {column} {}: `{written}`", spaces(column)),
        ))
    }

    fn is_below_block(&self) -> bool {
        let last = self.lines_above().next();
        let header = self.marks.last_block.zip(last);
        header.is_some_and(|(header, last)| {
            let line = line_at(self.text, header);
            let outer = indentation(&self.text.as_bytes()[line.start..]);
            let own = indentation(self.line_text().as_bytes());
            line.start <= last.start && outer < own && outer < last.indent()
        })
    }

    /// Whether the nearest line above with the same indentation is a field.
    fn is_among_fields(&self, indent: usize) -> bool {
        let above = self.lines_above().find(|line| line.indent() <= indent);
        above.is_some_and(|line| line.indent() == indent && !line.text[indent..].starts_with('-'))
    }

    /// The column nearest to an indentation at which a line above has an item, or else a field.
    fn nearest_column(&self, indent: usize, is_item: bool) -> Option<(FilledLine<'a>, usize)> {
        let mut nearest: Option<(FilledLine<'a>, usize)> = None;
        let mut outermost = usize::MAX;
        for line in self.lines_above().filter(|line| !line.text.is_empty()) {
            if outermost <= line.indent() {
                continue;
            }
            outermost = line.indent();
            let column = match is_item {
                true => line.indent(),
                false => line.columns().pop().unwrap_or_default(),
            };
            let known = nearest.as_ref().map(|(_, known)| known.abs_diff(indent));
            if known.is_none_or(|known| column.abs_diff(indent) < known) {
                nearest = Some((line, column));
            }
            if outermost == 0 {
                break;
            }
        }
        nearest
    }
}

fn spaces(count: usize) -> &'static str {
    match count {
        1 => "space",
        _ => "spaces",
    }
}
