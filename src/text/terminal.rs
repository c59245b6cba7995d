//! Renders output as a terminal would show it at the end: carriage returns, backspaces and erased lines applied.

use super::ansi::{AnsiParser, AnsiStep};

/// The text that a terminal would show at the end. Of control characters only newline and tab are left; bytes that are
/// not UTF-8 are replaced.
pub fn rendered(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes)
        && is_plain(text)
    {
        return text.to_owned();
    }
    let mut screen = TerminalText::default();
    screen.text.reserve(bytes.len());
    let mut parser = AnsiParser::default();
    for character in String::from_utf8_lossy(bytes).chars() {
        screen.take(parser.step(character), character);
    }
    screen.finish()
}

/// Like `rendered`; the usual output, which is shown as it is, is not copied.
pub(crate) fn rendered_whole(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) if is_plain(&text) => text,
        Ok(text) => rendered(text.as_bytes()),
        Err(error) => rendered(error.as_bytes()),
    }
}

/// Whether a terminal shows a text as it is: of control characters it has only newlines and tabs.
fn is_plain(text: &str) -> bool {
    text.chars()
        .all(|character| !character.is_control() || matches!(character, '\n' | '\t'))
}

/// The lines so far; the last one is under the cursor.
#[derive(Default)]
struct TerminalText {
    text: String,
    /// Where the last line begins.
    line_start: usize,
    /// The last line, once the cursor was moved back in it; the text then ends before it.
    edited: Option<EditedLine>,
}

/// A line in which any character can be replaced: four times as large as its text.
struct EditedLine {
    characters: Vec<char>,
    cursor: usize,
}

impl TerminalText {
    fn take(&mut self, step: AnsiStep, character: char) {
        match (step, character) {
            (AnsiStep::Sequence, _) => {}
            (AnsiStep::EraseLine(parameter), _) => self.erase(parameter),
            (AnsiStep::Text, '\n') => self.new_line(),
            (AnsiStep::Text, '\r') => self.edit().cursor = 0,
            (AnsiStep::Text, '\u{8}') => {
                let line = self.edit();
                line.cursor = line.cursor.saturating_sub(1);
            }
            (AnsiStep::Text, '\t') => self.put('\t'),
            (AnsiStep::Text, other) if other.is_control() => {}
            (AnsiStep::Text, seen) => self.put(seen),
        }
    }

    fn put(&mut self, character: char) {
        let Some(EditedLine { characters, cursor }) = &mut self.edited else {
            self.text.push(character);
            return;
        };
        match characters.get_mut(*cursor) {
            Some(place) => *place = character,
            None => characters.push(character),
        }
        *cursor += 1;
    }

    /// The last line, to move the cursor in it.
    fn edit(&mut self) -> &mut EditedLine {
        let (text, start) = (&mut self.text, self.line_start);
        self.edited.get_or_insert_with(|| {
            let characters: Vec<char> = text[start..].chars().collect();
            text.truncate(start);
            let cursor = characters.len();
            EditedLine { characters, cursor }
        })
    }

    /// Progress lines erase what they rewrite; without this the rest of a longer line would stay behind a shorter one.
    /// Its cost is at most that of writing what it erases.
    fn erase(&mut self, parameter: Option<char>) {
        match parameter {
            None | Some('0') => {
                if let Some(EditedLine { characters, cursor }) = &mut self.edited {
                    characters.truncate(*cursor);
                }
            }
            Some('2') => {
                self.edited = None;
                self.text.truncate(self.line_start);
            }
            Some(_) => {}
        }
    }

    fn end_line(&mut self) {
        let edited = self.edited.take();
        self.text
            .extend(edited.into_iter().flat_map(|line| line.characters));
    }

    fn new_line(&mut self) {
        self.end_line();
        self.text.push('\n');
        self.line_start = self.text.len();
    }

    fn finish(mut self) -> String {
        self.end_line();
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{TerminalText, rendered, rendered_whole};
    use crate::text::ansi::AnsiParser;
    use crate::text::invisible::{escaped, printable};

    fn check(input: &str, expected: &str) {
        assert_eq!(rendered(input.as_bytes()), expected, "{input:?}");
    }

    #[test]
    fn control_characters_and_sequences_go() {
        check("a\u{1b}[31mred\u{1b}[0m b", "ared b");
        check("\u{9b}31mx\u{9d}52;c;QQ==\u{9c}y\u{85}\u{84}", "xy");
        check("a\u{0}\u{7}\u{7f}b\u{b}c", "abc");
    }

    #[test]
    fn carriage_returns_and_backspaces_are_applied() {
        check("a\r\nb\r\n", "a\nb\n");
        check("10%\r20%\r100%\n", "100%\n");
        check("abcdef\rXY\n", "XYcdef\n");
        check("downloading\r\u{1b}[Kdone\n", "done\n");
        check("downloading\u{1b}[2Kdone\n", "done\n");
        check("a\u{8}ab\u{8}b", "ab");
        check("\u{8}\u{8}x\u{8}\u{8}\u{8}y", "y");
        check("a\tb\r", "a\tb");
    }

    #[test]
    fn plain_text_is_taken_as_it_is() {
        for text in [
            "",
            "a\tb\nc",
            "grüße ✓ £ \u{a0}x",
            "a\u{85}b",
            "a\u{1b}[0mb",
            "a\rb",
            "\u{7f}",
        ] {
            assert_eq!(rendered_whole(text.into()), by_characters(text), "{text:?}");
        }
    }

    fn by_characters(text: &str) -> String {
        let mut screen = TerminalText::default();
        let mut parser = AnsiParser::default();
        for character in text.chars() {
            screen.take(parser.step(character), character);
        }
        screen.finish()
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        assert_eq!(
            rendered(b"a\xff\xc3(\xe2\x82"),
            "a\u{fffd}\u{fffd}(\u{fffd}"
        );
        assert_eq!(rendered("grüße ✓".as_bytes()), "grüße ✓");
    }

    #[test]
    fn hostile_input_takes_one_pass() {
        for hostile in [
            "\r",
            "\u{8}",
            "\u{1b}[",
            "\u{1b}]",
            "x\r\u{1b}[K",
            "\u{1b}",
            "x\r",
            "\u{1b}[1K",
        ] {
            rendered(hostile.repeat(500_000).as_bytes());
        }
    }

    proptest! {
        #[test]
        fn rendered_text_has_no_control_and_stays(bytes in any::<Vec<u8>>(), pieces in "[\\x00-\\x20\\[\\]K;a\u{7f}-\u{a0}]{0,60}") {
            for input in [bytes.as_slice(), pieces.as_bytes()] {
                let once = rendered(input);
                prop_assert!(once.chars().all(|character| matches!(character, '\n' | '\t') || !character.is_control()));
                prop_assert_eq!(rendered(once.as_bytes()), once.clone());
                let shown = printable(&once);
                prop_assert_eq!(printable(&shown), shown.clone());
                prop_assert!(!escaped(&once).contains(char::is_control));
            }
        }
    }
}
