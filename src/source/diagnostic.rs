//! Mistakes in a file of the user's, shown as `file:line:column: message` with the source line and a caret.
//!
//! A spec is foreign text: everything shown is escaped here, so that its control and bidi characters never reach a
//! terminal.

use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::text::invisible::escaped;

/// The width of an excerpt in columns.
const EXCERPT_WIDTH: usize = 100;
/// How many bytes of a line are drawn before and after the start of a mistake.
const EXCERPT_BYTES: usize = 400;

/// What is wrong with a part of a text, and where it helps, what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    /// In bytes.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// The value to write; `help` then says why.
    pub(crate) instead: Option<String>,
}

impl Diagnostic {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            span,
            message: message.into(),
            help: None,
            instead: None,
        }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Diagnostic {
        Diagnostic {
            help: Some(help.into()),
            ..self
        }
    }

    /// Adds the value to write.
    pub(crate) fn with_instead(self, value: impl Into<String>) -> Diagnostic {
        Diagnostic {
            instead: Some(value.into()),
            ..self
        }
    }

    /// The help with the value to write.
    pub(crate) fn help_text(&self) -> Option<String> {
        match (&self.help, &self.instead) {
            (Some(help), Some(value)) => Some(format!("{help}: `{value}`")),
            (None, Some(value)) => Some(format!("write `{value}`")),
            (help, None) => help.clone(),
        }
    }
}

/// A text file of the user's, with its path as the user wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// A place in a text, counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// Behind the last character, on the same line.
    pub(crate) end_column: usize,
}

impl SourceFile {
    /// The message of a mistake: location, what is wrong, the source line with a caret, and the help.
    pub(crate) fn render(&self, mistake: &Diagnostic) -> String {
        let start = self.text.floor_char_boundary(mistake.span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        // A position behind a carriage return is shown at the end of the line.
        let start_in_line = (start - line_start).min(line.len());
        let end_in_line = mistake.span.end.saturating_sub(line_start);
        let end_in_line = line.ceil_char_boundary(end_in_line.clamp(start_in_line, line.len()));
        let first = line.floor_char_boundary(start_in_line.saturating_sub(EXCERPT_BYTES));
        let last = line.ceil_char_boundary(line.len().min(start_in_line + EXCERPT_BYTES));
        let before = escape(&line[first..start_in_line]);
        let marked = escape(&line[start_in_line..end_in_line.min(last)]);
        let after = escape(&line[end_in_line.min(last)..last]);
        let excerpt = Snippet::source(format!("{before}{marked}{after}"))
            .line_start(self.line(start))
            .path(None::<&str>)
            .annotation(AnnotationKind::Primary.span(before.len()..before.len() + marked.len()));
        let help = mistake.help_text();
        let help = help.map(|help| Level::HELP.message(escape(&help)));
        let title = format!("{}: {}", self.head(start), escape(&mistake.message));
        let report = Level::ERROR
            .no_name()
            .primary_title(title)
            .element(excerpt)
            .elements(help);
        Renderer::plain()
            .term_width(EXCERPT_WIDTH)
            .render(&[report])
    }

    /// `file:line:column` of a byte.
    pub(super) fn head(&self, at: usize) -> String {
        let SourcePosition { line, column, .. } = self.position(&(at..at));
        format!("{}:{line}:{column}", shown_path(&self.path))
    }

    /// Where a part of the text is, for people and editors.
    pub(crate) fn position(&self, span: &Range<usize>) -> SourcePosition {
        let start = self.text.floor_char_boundary(span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = self.text[line_start..].lines().next().unwrap_or("");
        let column_of = |at: usize| {
            let before = &self.text[line_start..self.text.floor_char_boundary(at)];
            before.chars().count() + 1
        };
        let end = span.end.min(line_start + line.len()).max(start);
        SourcePosition {
            line: self.line(start),
            column: column_of(start),
            end_column: column_of(self.text.ceil_char_boundary(end)),
        }
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        memchr::memchr_iter(b'\n', before).count() + 1
    }
}

/// Text on one line, invisible characters as escapes; a tab becomes a space.
pub(crate) fn escape(text: &str) -> String {
    escaped(&text.replace('\t', " "))
}

/// A path of the user's, escaped.
pub(crate) fn shown_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::path::PathBuf;

    use super::{Diagnostic, SourceFile, escape};

    fn message(text: &str, span: Range<usize>) -> String {
        let source = SourceFile {
            path: PathBuf::from("a.yaml"),
            text: text.to_owned(),
        };
        source.render(&Diagnostic::new(span, "wrong"))
    }

    #[test]
    fn the_caret_is_below_the_mistake() {
        let check = |text, span, expected| assert_eq!(message(text, span), expected);
        check(
            "a: 1\nbä: x\n",
            10..11,
            "a.yaml:2:5: wrong\n  |\n2 | bä: x\n  |     ^",
        );
        check(
            "a\r\nb: 23\r\n",
            6..8,
            "a.yaml:2:4: wrong\n  |\n2 | b: 23\n  |    ^^",
        );
        check("", 7..7, "a.yaml:1:1: wrong\n  |\n1 |\n  | ^");
        check("a\n", 2..2, "a.yaml:2:1: wrong\n  |\n2 |\n  | ^");
        check(
            "日: \"a\nb\"\n",
            5..10,
            "a.yaml:1:4: wrong\n  |\n1 | 日: \"a\n  |     ^^",
        );
    }

    #[test]
    fn a_long_line_is_shown_around_the_mistake() {
        let text = format!("{}X{}", "a".repeat(5000), "ä".repeat(5000));
        for span in [5000..5001, 5000..15_000] {
            let shown = message(&text, span);
            assert!(
                shown.lines().all(|line| line.chars().count() < 120),
                "{shown}"
            );
            let caret = shown.lines().nth(3).unwrap().find('^').unwrap();
            assert_eq!(shown.lines().nth(2).unwrap().chars().nth(caret), Some('X'));
        }
    }

    #[test]
    fn every_span_of_every_text_can_be_shown() {
        let text = "ä\r\n\u{1b}\t日\u{e0041}\r\r\n\n x";
        for start in 0..text.len() + 3 {
            for end in 0..text.len() + 3 {
                assert!(message(text, start..end).starts_with("a.yaml:"));
            }
        }
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(
            escape("a\u{1b}[31m\u{202e}b\tc\u{9b}"),
            "a\\u{1b}[31m\\u{202e}b c\\u{9b}"
        );
        let shown = message("k: \u{1b}[2J!\n", 7..8);
        assert!(
            shown.ends_with("| k: \\u{1b}[2J!\n  |             ^"),
            "{shown}"
        );
    }
}
