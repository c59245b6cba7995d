//! The mistake behind an error of the JSON parser, with what to write instead.

use super::diagnostic::Diagnostic;
use super::node::brief;
use super::yaml_scan::{closing, open_marks};

/// The mistake that made the parser give up.
pub(super) fn json_mistake(text: &str, error: &serde_json::Error) -> Diagnostic {
    let lines = text.split_inclusive('\n').map(str::len);
    let line_start: usize = lines.take(error.line().saturating_sub(1)).sum();
    let at = line_start + error.column().saturating_sub(1);
    let at = text.floor_char_boundary(at.min(text.len()));
    let message = error.to_string();
    let what = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(what, _)| what);
    let mistake = match error.is_eof() {
        true => unclosed(text),
        false => known_cause(text, at, what),
    };
    let mistake = mistake
        .unwrap_or_else(|| Diagnostic::new(at..at, brief(what)).with_help(general_help(what)));
    Diagnostic {
        message: format!("this is not JSON: {}", mistake.message),
        ..mistake
    }
}

/// What to do about an error that has its cause in itself; `what` is the parser's message.
fn general_help(what: &str) -> &'static str {
    match what {
        "trailing characters" => "remove what follows the last `}`",
        "expected `:`" => "write `:` between a key and its value",
        "invalid number" => "write a number such as `5` or `0.5`, or put it in double quotes",
        "number out of range" => "write a smaller number",
        _ => "in double quotes write `\\n` for a new line and `\\\\` for a backslash",
    }
}

/// A character inside quotes that has to be written as an escape.
fn control_character(text: &str, at: usize) -> Option<Diagnostic> {
    let is_control = |(_, c): &(usize, char)| c.is_control();
    let (start, found) = text[..at]
        .char_indices()
        .next_back()
        .filter(is_control)
        .or_else(|| {
            text[at..]
                .char_indices()
                .next()
                .filter(is_control)
                .map(|(_, c)| (at, c))
        })?;
    let (message, help) = match found {
        '\n' | '\r' => ("a new line inside quotes".to_owned(), "write `\\n` instead"),
        '\t' => ("a tab inside quotes".to_owned(), "write `\\t` instead"),
        other => (
            format!(
                "the invisible character U+{:04X} inside quotes",
                u32::from(other)
            ),
            "remove it",
        ),
    };
    let end = start + found.len_utf8();
    Some(Diagnostic::new(start..end, message).with_help(help))
}

/// A mistake that its place in the text explains better than the parser's message `what`.
fn known_cause(text: &str, at: usize, what: &str) -> Option<Diagnostic> {
    if what.starts_with("control character") {
        return control_character(text, at);
    }
    let before = text[..at].trim_end();
    let is_word_refused = matches!(
        what,
        "expected value" | "expected ident" | "key must be a string"
    );
    match text[at..].chars().next()? {
        ']' | '}' if before.ends_with(',') => {
            let comma = before.len() - 1..before.len();
            Some(Diagnostic::new(comma, "trailing comma").with_help("remove the comma"))
        }
        '\'' => single_quotes(text, at),
        '/' | '#' => {
            let end = at + text[at..].lines().next()?.len();
            let help = "remove it, or write the spec as .yaml, which has comments with `# `";
            Some(Diagnostic::new(at..end, "a comment").with_help(help))
        }
        ']' | '}' => {
            let (open, close) = open_marks(text, at + 1).mismatch?;
            let expected = closing(*text.as_bytes().get(open)?);
            let message = "this closes another bracket than the last one opened";
            let mistake = Diagnostic::new(close..close + 1, message);
            Some(mistake.with_help(format!("write `{expected}`")))
        }
        '"' | '{' | '[' if what.starts_with("expected `,`") => {
            let last = before.char_indices().next_back()?.0;
            let mistake = Diagnostic::new(last..before.len(), "there is no comma after this");
            Some(mistake.with_help("write `,` after it"))
        }
        _ if is_word_refused => bare_word(text, at),
        _ => None,
    }
}

fn single_quotes(text: &str, at: usize) -> Option<Diagnostic> {
    let inner = text[at + 1..].split('\'').next()?.lines().next()?;
    let end = at + inner.len() + 1;
    let end = end + usize::from(text[end..].starts_with('\''));
    let mistake = Diagnostic::new(at..end, "text in single quotes");
    Some(mistake.with_help(format!("write `\"{}\"`", brief(inner))))
}

/// A word that is neither in quotes nor a value of JSON.
fn bare_word(text: &str, at: usize) -> Option<Diagnostic> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let word = text[at..].split(|c| !is_part(c)).next()?;
    if word.is_empty() {
        return None;
    }
    // The parser may have taken the first letters of a word for `true`, `false` or `null`.
    let start = text[..at].trim_end_matches(is_part).len();
    let end = at + word.len();
    let written = match &text[start..end] {
        word @ ("True" | "False") => word.to_lowercase(),
        "None" => "null".to_owned(),
        word => format!("\"{}\"", brief(word)),
    };
    let mistake = Diagnostic::new(start..end, "a word without quotes");
    Some(mistake.with_help(format!("write `{written}`")))
}

/// What is open at the end of the text.
fn unclosed(text: &str) -> Option<Diagnostic> {
    let marks = open_marks(text, text.len());
    let Some(open) = marks.quote.or(marks.brackets.last().copied()) else {
        let help = "write `{\"name\": \"…\", \"description\": \"…\"}`";
        return Some(Diagnostic::new(text.len()..text.len(), "the file is empty").with_help(help));
    };
    let end = open + text[open..].lines().next().unwrap_or_default().len();
    let (message, closing) = match text.as_bytes()[open] {
        b'[' | b'{' => (
            "the bracket that opens here is not closed (EOF)",
            closing(text.as_bytes()[open]),
        ),
        _ => ("the quote that opens here is not closed (EOF)", '"'),
    };
    Some(Diagnostic::new(open..end, message).with_help(format!("close it with `{closing}`")))
}
