//! Mistakes of YAML in how lines begin: tabs, dashes and colons without a blank, indentation, blocks of text.

use super::diagnostic::Diagnostic;
use super::node::brief;
use super::yaml_mistake::{SyntaxCause, SyntaxMistake, TextRepair, plain};
use super::yaml_scan::{FilledLine, indentation, is_key_byte, line_at, open_marks};

/// Signs that people write instead of the dash of an item.
const BULLETS: [char; 5] = ['•', '*', '–', '—', '·'];
/// How many lines with tabs are shown.
const MAX_TABBED_LINES: usize = 20;

/// A text with tabs in the indentation of its lines.
pub(super) struct TabbedText {
    /// A mistake for each line.
    pub mistakes: Vec<Diagnostic>,
    /// The text with a space for each of these tabs, of the same length.
    pub spaced: String,
}

/// The lines that are indented with tabs, if one of them is why the parser gave up at a byte.
pub(super) fn tabbed(text: &str, at: usize) -> Option<TabbedText> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let line = line_at(text, at);
    let next = || {
        let mut lines = text[line.end..].lines().skip(1);
        lines.find(|line| !line.trim().is_empty())
    };
    // A text that goes on in the next line, or a block of text that begins there.
    let goes_on = text[at..]
        .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '|' | '>' | '.' | '/' | '-'));
    let is_cause = has_tab(&text[line.clone()]) || (goes_on && next().is_some_and(has_tab));
    if !is_cause {
        return None;
    }
    let blocks = open_marks(text, text.len()).blocks;
    let (mut mistakes, mut spaced) = (Vec::new(), text.to_owned());
    let mut start = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let blanks = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        let is_in_block = blocks.iter().any(|block| block.contains(&start));
        if let Some(first) = blanks
            .find('\t')
            .filter(|_| !is_in_block && !line.trim().is_empty())
        {
            let span = start + first..start + blanks.len();
            spaced.replace_range(span.clone(), &" ".repeat(span.len()));
            let message = format!("line {} is indented with a tab", index + 1);
            let written = format!("{}{}", blanks.replace('\t', "  "), brief(line.trim()));
            let help = format!("indent with spaces: `{written}`");
            mistakes.push(Diagnostic::new(span, message).with_help(help));
        }
        start += line.len();
    }
    mistakes.truncate(MAX_TABBED_LINES);
    Some(TabbedText { mistakes, spaced })
}

/// Whether a line is indented with a tab.
fn has_tab(line: &str) -> bool {
    let content = line.trim_start_matches([' ', '\t']);
    line[..line.len() - content.len()].contains('\t')
}

impl SyntaxCause<'_> {
    /// This line and the one above.
    fn nearest_lines(&self) -> impl Iterator<Item = FilledLine<'_>> {
        let own = FilledLine {
            number: self.number(self.line.start),
            start: self.line.start,
            text: self.line_text(),
        };
        [Some(own), self.lines_above().next()].into_iter().flatten()
    }

    /// `-key: value` on this line or the one above, or an item that begins with another sign than a dash.
    pub(super) fn unspaced_dash(&self) -> Option<SyntaxMistake> {
        self.nearest_lines().find_map(|line| {
            let content = line.text.trim_start();
            let start = line.start + line.text.len() - content.len();
            let sign = content.chars().next()?;
            let item = &content[sign.len_utf8()..];
            let (key, _) = item.split_once(':')?;
            let key = key.trim_start();
            if key.is_empty() || !key.bytes().all(is_key_byte) || key.starts_with('-') {
                return None;
            }
            let is_bullet = BULLETS.contains(&sign) && item.starts_with([' ', '\t']);
            let message = match sign {
                '-' if !item.starts_with(' ') => {
                    format!("there is no blank after the dash of `-{}`", brief(key))
                }
                _ if is_bullet => format!("`{sign}` does not begin an item of a list"),
                _ => return None,
            };
            let end = start + sign.len_utf8() + if is_bullet { 0 } else { key.len() };
            let help = format!("write `- {}`", brief(item.trim()));
            Some(plain(start..end, message, help))
        })
    }

    /// `key:value` on this line or the one above.
    pub(super) fn unspaced_colon(&self) -> Option<SyntaxMistake> {
        if !self.marks.brackets.is_empty() {
            return None;
        }
        let (line, (key, value)) = self
            .nearest_lines()
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

    /// A line, this one or the one above, that has no colon where others have a key.
    pub(super) fn missing_colon(&self) -> Option<SyntaxMistake> {
        let is_colon = self.text[self.at..].starts_with(':');
        let (start, content) = match is_colon {
            true => self
                .lines_above()
                .next()
                .map(|line| (line.start + line.indent(), line.text.trim()))?,
            false => (self.at, &self.text[self.at..self.line.end.max(self.at)]),
        };
        let is_whole_line = self.text[..start].ends_with([' ', '\n']) || start == 0;
        if content.contains(':') || content.starts_with('-') || !is_whole_line || content.is_empty()
        {
            return None;
        }
        if let Some(mistake) = self.below_block(content).filter(|_| !is_colon) {
            return Some(mistake);
        }
        if let Some(mistake) = self.below_key(content).filter(|_| !is_colon) {
            return Some(mistake);
        }
        let message = "this is neither `key: value` nor an item `- value`";
        let help = match content.split_once(' ') {
            Some((key, value)) if key.bytes().all(is_key_byte) => {
                format!("write `{key}: {}`", brief(value.trim()))
            }
            _ => "write `key: value`, or indent it as part of the text above".to_owned(),
        };
        Some(plain(start..start + content.len(), message, help))
    }

    /// The text of the key above, which is not indented.
    fn below_key(&self, content: &str) -> Option<SyntaxMistake> {
        let above = self.lines_above().next()?;
        let column = above.columns().pop()?;
        let key = above.text[column..].strip_suffix(':')?;
        let indent = indentation(self.line_text().as_bytes());
        if column < indent {
            return None;
        }
        let expected = column + 2;
        let message = format!(
            "line {} is indented by {indent} {}, too little for the text of `{}` in line {}",
            self.number(self.line.start),
            spaces(indent),
            brief(key),
            above.number
        );
        let help = format!(
            "indent it by {expected} spaces: `{}{}`",
            " ".repeat(expected),
            brief(content)
        );
        let span = self.line.start + indent..self.line.end;
        Some(plain(span, message, help))
    }

    /// A line that is indented less than the block of text above, to which it seems to belong.
    fn below_block(&self, content: &str) -> Option<SyntaxMistake> {
        let header = self.marks.last_block()?;
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
            self.line.start + indent..self.line.end,
            message,
            help,
        ))
    }

    /// A line whose indentation is that of no line above.
    pub(super) fn indentation(&self) -> Option<SyntaxMistake> {
        let text = self.line_text();
        let indent = indentation(text.as_bytes());
        let content = &text[indent..];
        if let Some(item) = content
            .strip_prefix("- ")
            .filter(|_| self.is_among_fields(indent))
        {
            let span = self.line.start + indent..self.line.end;
            let help = format!("without the dash: `{}{}`", " ".repeat(indent), brief(item));
            return Some(plain(span, "a list item among fields", help));
        }
        if let Some(mistake) = self.below_block(content).filter(|_| self.is_below_block()) {
            return Some(mistake);
        }
        let (line, column) = self.nearest_column(indent, content.starts_with("- "))?;
        if column == indent {
            return None;
        }
        if let Some(mistake) = self.indented_first_line(&line, indent) {
            return Some(mistake);
        }
        let number = self.number(self.line.start);
        let message = match line.indent() == indent {
            true => format!(
                "line {number} is indented like the list item of line {}, and is not an item",
                line.number
            ),
            false => format!(
                "line {number} is indented by {indent} {}, but {} of line {} by {column}",
                spaces(indent),
                what_begins_at(&line, column),
                line.number
            ),
        };
        let written = format!("{}{}", " ".repeat(column), brief(content));
        let span = self.line.start + indent..self.line.end;
        let help = match column {
            0 => format!("begin the line with `{written}`"),
            _ => format!("indent it by {column} {}: `{written}`", spaces(column)),
        };
        Some(plain(span, message, help))
    }

    /// The first line of the text, if it is indented and this one is not.
    fn indented_first_line(&self, first: &FilledLine<'_>, indent: usize) -> Option<SyntaxMistake> {
        let is_first = self.lines_above().last()?.number == first.number;
        if !is_first || first.indent() <= indent || first.text.trim_start().starts_with('-') {
            return None;
        }
        let number = self.number(self.line.start);
        let message = format!(
            "line {} is indented by {} {}, but line {number} by {indent}",
            first.number,
            first.indent(),
            spaces(first.indent())
        );
        let span = first.start..first.start + first.indent();
        let help = format!("begin the line with `{}`", brief(first.text.trim()));
        Some(plain(span, message, help))
    }

    fn is_below_block(&self) -> bool {
        let last = self.lines_above().next();
        let header = self.marks.last_block().zip(last);
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
    fn nearest_column(&self, indent: usize, is_item: bool) -> Option<(FilledLine<'_>, usize)> {
        let mut nearest: Option<(FilledLine<'_>, usize)> = None;
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

/// The field or item at a column of a line, for a message.
fn what_begins_at(line: &FilledLine<'_>, column: usize) -> String {
    let content = line.text.get(column..).unwrap_or_default();
    if content.starts_with("- ") {
        return "the item".to_owned();
    }
    match content.split_once(':') {
        Some((key, _)) if key.bytes().all(is_key_byte) => format!("the field `{}`", brief(key)),
        _ => "what it belongs to".to_owned(),
    }
}
