//! What a live line says of a request to a model: how long it waits, then what is written and how fast.

use std::time::Duration;

use crate::observers::event_text::{count, minutes, name};
use crate::text::shorten::cut_inside;

/// A common ratio for source code and English; the exact number is known once the answer has ended.
const BYTES_PER_TOKEN: u64 = 4;
/// How many characters of a file's path are shown.
const MAX_PATH: usize = 32;
/// How much of a line is kept to find the tag of a file in it.
const MAX_LINE: usize = 400;

/// A request that is under way.
#[derive(Debug, Default)]
pub(super) struct StreamProgress {
    began: Duration,
    first_piece: Option<Duration>,
    bytes: u64,
    /// The line of text that is being streamed.
    line: String,
    /// The file whose content is being streamed.
    file: Option<String>,
    /// Whether pieces of the answer would be seen.
    sees_streams: bool,
}

impl StreamProgress {
    /// A request that is sent now. Times are since the command began.
    pub(super) fn begin(now: Duration, sees_streams: bool) -> StreamProgress {
        StreamProgress {
            began: now,
            sees_streams,
            ..StreamProgress::default()
        }
    }

    pub(super) fn add(&mut self, text: &str, bytes: u64, now: Duration) {
        self.first_piece.get_or_insert(now);
        self.bytes += bytes;
        for piece in text.split_inclusive('\n') {
            if self.line.len() < MAX_LINE {
                self.line += piece;
            }
            if piece.ends_with('\n') {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim();
        if let Some(path) = opened_file(line) {
            self.file = Some(short_path(path));
        } else if line == "</file>" {
            self.file = None;
        }
    }

    /// Whether nothing has come yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.first_piece.is_none()
    }

    /// Such as `waiting for the first token, 8 s` or `writing calc.py, 412 tokens, 31/s`.
    pub(super) fn text(&self, now: Duration) -> String {
        let Some(first_piece) = self.first_piece else {
            let waited = now.saturating_sub(self.began).as_secs();
            let what = match self.sees_streams {
                true => "the first token",
                false => "the model",
            };
            return format!("waiting for {what}, {}", minutes(waited));
        };
        let tokens = self.bytes.div_ceil(BYTES_PER_TOKEN);
        let what = self.file.as_deref().unwrap_or("text");
        let counted = count(usize::try_from(tokens).unwrap_or(usize::MAX), "token");
        let mut text = format!("writing {what}, {counted}");
        // In the first second the rate says nothing.
        let seconds = now.saturating_sub(first_piece).as_secs_f64();
        if 1.0 <= seconds {
            text += &format!(", {:.0}/s", tokens as f64 / seconds);
        }
        text
    }
}

/// A path, or where it is long, the name of its file.
fn short_path(path: &str) -> String {
    let shown = name(path);
    match shown.rsplit_once('/') {
        Some((_, file)) if MAX_PATH < shown.chars().count() => cut_inside(file, MAX_PATH),
        _ => cut_inside(&shown, MAX_PATH),
    }
}

/// The path in the opening tag of a file.
fn opened_file(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("<file path=")?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_then_writes_files() {
        let at = Duration::from_secs;
        let hidden = StreamProgress::begin(at(10), false);
        assert_eq!(hidden.text(at(18)), "waiting for the model, 8 s");
        let mut progress = StreamProgress::begin(at(10), true);
        assert_eq!(progress.text(at(18)), "waiting for the first token, 8 s");
        progress.add("Here", 4, at(20));
        assert_eq!(progress.text(at(20)), "writing text, 1 token");
        progress.add(" it is:\n<file pa", 16, at(20));
        progress.add("th=\"pkg/calc.py\">\nx = 1\n", 380, at(21));
        assert_eq!(
            progress.text(at(30)),
            "writing pkg/calc.py, 100 tokens, 10/s"
        );
        progress.add("</file>\n", 8, at(30));
        assert!(progress.text(at(30)).starts_with("writing text, "));
    }

    #[test]
    fn of_a_long_path_the_file_is_shown() {
        let check = |path: &str, expected: &str| assert_eq!(short_path(path), expected);
        check("pkg/calc.py", "pkg/calc.py");
        check(
            "src/main/java/com/example/calc/Calculator.java",
            "Calculator.java",
        );
        check(
            &format!("a/{}.py", "x".repeat(40)),
            &format!("{}...{}.py", "x".repeat(14), "x".repeat(12)),
        );
    }

    #[test]
    fn a_hostile_path_is_escaped() {
        let mut progress = StreamProgress::default();
        progress.add("<file path='\u{1b}[2Ja'>\n", 20, Duration::ZERO);
        assert!(!progress.text(Duration::ZERO).contains('\u{1b}'));
    }
}
