//! Messages about a file of the user's: `file:line:column: what is wrong`, then the line with a caret under the place.
//!
//! Everything shown is escaped here: a spec is foreign text, and its control and bidi characters never reach a
//! terminal raw. What is wrong, and where, is said by the rooms that read the text.

use std::fmt::Write;
use std::path::Path;

use crate::error::Error;
use crate::text::invisible::is_invisible;

/// Characters of a source line that are shown at most, and how many of them stand before the place.
const SHOWN: usize = 100;
const SHOWN_BEFORE: usize = 60;

/// What is wrong at a byte of a text, and where it helps, what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub at: usize,
    pub what: String,
    pub hint: Option<String>,
}

impl Diagnostic {
    /// Returns a refusal without a hint; `what` is made of words of ours and escaped words of the user's.
    pub fn new(at: usize, what: impl Into<String>) -> Diagnostic {
        Diagnostic {
            at,
            what: what.into(),
            hint: None,
        }
    }

    /// Returns the same with a line of help.
    pub fn hint(self, hint: impl Into<String>) -> Diagnostic {
        Diagnostic {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// A text and the name under which the user knows it.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    pub file: &'a Path,
    pub text: &'a str,
}

impl SourceText<'_> {
    /// Returns the place of byte `at`, ready to be shown.
    pub fn place(&self, at: usize) -> SourceLocation {
        let at = self.text.floor_char_boundary(at);
        let begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[..at].matches('\n').count() + 1;
        let column = self.text[begin..at].chars().count() + 1;
        let source = self.text[begin..].lines().next().unwrap_or("");
        SourceLocation {
            head: format!("{}:{line}:{column}", shown_path(self.file)),
            excerpt: excerpt(line, column, source),
        }
    }

    /// Returns the whole message of a refusal as an error.
    pub fn error(&self, refusal: &Diagnostic) -> Error {
        let place = self.place(refusal.at);
        let hint = refusal
            .hint
            .as_ref()
            .map_or(String::new(), |hint| format!("\nhelp: {hint}"));
        Error::Spec(format!(
            "{}: {}\n{}{hint}",
            place.head, refusal.what, place.excerpt
        ))
    }
}

/// A place in a file of the user's, kept to speak of it after the text is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceLocation {
    /// `file:line:column`.
    pub head: String,
    /// The source line and a caret.
    pub excerpt: String,
}

impl SourceLocation {
    /// Returns the error that says what is wrong here.
    pub fn refuse(&self, what: &str) -> Error {
        Error::Spec(format!("{}: {what}\n{}", self.head, self.excerpt))
    }

    /// Returns the error that says what is wrong here, and what would be right.
    pub fn refuse_with(&self, what: &str, help: &str) -> Error {
        Error::Spec(format!(
            "{}: {}\n{}\nhelp: {}",
            self.head,
            escape(what),
            self.excerpt,
            escape(help)
        ))
    }
}

fn excerpt(line: usize, column: usize, source: &str) -> String {
    let skipped = (column - 1).saturating_sub(SHOWN_BEFORE);
    let window: String = source.chars().skip(skipped).take(SHOWN).collect();
    let before: String = window.chars().take(column - 1 - skipped).collect();
    let mark = if 0 < skipped { "…" } else { "" };
    let mut text = format!("{line:>5} | {mark}{}", escape(&window));
    let indent = escape(&before).chars().count() + mark.chars().count();
    let _ = write!(text, "\n      | {:indent$}^", "");
    text
}

/// Returns text with control, bidi and invisible characters spelled out; a tab becomes a space.
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => shown.push(' '),
            c if is_invisible(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown
}

/// Returns text as a word of YAML, in quotes where it needs them.
pub fn quote_yaml(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    match !text.is_empty() && !text.starts_with(['-', '+']) && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

/// Returns a path of the user's as it may be shown.
pub fn shown_path(path: &Path) -> String {
    escape(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{SourceText, escape};

    fn message(text: &str, at: usize) -> String {
        SourceText {
            file: Path::new("a.yaml"),
            text,
        }
        .place(at)
        .refuse("wrong")
        .to_string()
    }

    #[test]
    fn the_caret_stands_under_the_place() {
        assert_eq!(
            message("a: 1\nbä: x\n", 10),
            "a.yaml:2:5: wrong\n    2 | bä: x\n      |     ^"
        );
        assert_eq!(
            message("a\r\nb: 2\r\n", 6),
            "a.yaml:2:4: wrong\n    2 | b: 2\n      |    ^"
        );
        assert_eq!(message("", 7), "a.yaml:1:1: wrong\n    1 | \n      | ^");
        assert_eq!(message("a\n", 2), "a.yaml:2:1: wrong\n    2 | \n      | ^");
    }

    #[test]
    fn a_long_line_is_shown_around_the_place() {
        let shown = message(&format!("{}X{}", "a".repeat(5000), "b".repeat(5000)), 5000);
        assert!(
            shown.lines().all(|line| line.chars().count() < 120),
            "{shown}"
        );
        let caret = shown.lines().nth(2).unwrap().find('^').unwrap();
        assert_eq!(shown.lines().nth(1).unwrap().chars().nth(caret), Some('X'));
    }

    #[test]
    fn nothing_invisible_is_shown_raw() {
        assert_eq!(
            escape("a\u{1b}[31m\u{202e}b\tc\u{9b}"),
            "a\\u{1b}[31m\\u{202e}b c\\u{9b}"
        );
        let shown = message("k: \u{1b}[2J!\n", 7);
        assert!(
            shown.ends_with("| k: \\u{1b}[2J!\n      |             ^"),
            "{shown}"
        );
    }
}
