//! Characters that a reader cannot see as what they are: the table, and text with them written as escapes.

use super::ansi::{AnsiParser, AnsiStep};

/// Whether a character changes the order or the lines of the text around it: bidirectional controls and line
/// separators. In a name it can pass for other characters.
pub(crate) fn is_reordering(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character is not seen as what it is: controls, newline and tab among them, and what has no width.
pub(crate) fn is_invisible(character: char) -> bool {
    character.is_control()
        || is_reordering(character)
        || matches!(character,
            '\u{ad}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// The text on one line, invisible characters as escapes.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    text.chars()
        .for_each(|character| push_visible(&mut shown, character));
    shown
}

/// The text without escape sequences, so that coloured text reads well, and with other invisible characters as
/// escapes; tabs and newlines stay. A carriage return cannot overwrite a line: it begins a new one.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut parser = AnsiParser::default();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if parser.step(character) != AnsiStep::Text {
            continue;
        }
        match character {
            '\r' if characters.peek() == Some(&'\n') => {}
            '\r' | '\n' => shown.push('\n'),
            '\t' => shown.push('\t'),
            other => push_visible(&mut shown, other),
        }
    }
    shown
}

fn push_visible(shown: &mut String, character: char) {
    if is_invisible(character) {
        shown.extend(character.escape_default());
    } else {
        shown.push(character);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(printable(text), expected, "{text:?}");
    }

    #[test]
    fn sequences_go_and_the_text_stays() {
        check("\x1b[31mred\x1b[0m", "red");
        check("\x1b]52;c;cGF5bG9hZA==\x1b\\text", "text");
        check("\u{9b}31mred", "red");
        check("\x1b]0;never closed\ntext", "\ntext");
        check("a\tb\nc", "a\tb\nc");
        check("äöü 漢字 e\u{301} \\ \"'", "äöü 漢字 e\u{301} \\ \"'");
    }

    #[test]
    fn invisible_characters_are_escaped() {
        check("a\0b\x07c\x08d\x7f", "a\\u{0}b\\u{7}c\\u{8}d\\u{7f}");
        check("\u{202e}evil\u{2066}", "\\u{202e}evil\\u{2066}");
        check("\u{200b}\u{feff}\u{e0041}", "\\u{200b}\\u{feff}\\u{e0041}");
        check("10%\r20%\r\ndone", "10%\n20%\ndone");
    }

    #[test]
    fn an_escaped_text_is_one_line_and_loses_nothing() {
        assert_eq!(
            escaped("a\x1b[31m\nb\tc\u{9b}\u{202e}"),
            "a\\u{1b}[31m\\nb\\tc\\u{9b}\\u{202e}"
        );
        assert_eq!(escaped("ä\\.py"), "ä\\.py");
    }

    #[test]
    fn long_hostile_text_takes_linear_time() {
        let text = "\x1b]\x1b[\x1bP".repeat(1_000_000);
        assert_eq!(printable(&text), "");
    }

    fn hostile_text() -> impl Strategy<Value = String> {
        let pieces = prop_oneof![
            any::<String>(),
            "[\\x00-\\x1f\\x7f-\\u{9f}]{0,4}",
            "\\x1b[\\[\\]PX^_(#0-~]{0,3}[ -~]{0,6}",
            "[\\u{200b}-\\u{206f}]{0,3}",
        ];
        prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn only_visible_characters_come_out(text in hostile_text()) {
            let plain = printable(&text);
            prop_assert!(plain.chars().all(|c| c == '\n' || c == '\t' || !is_invisible(c)), "{plain:?}");
            prop_assert_eq!(printable(&plain), plain.clone());
            prop_assert!(!escaped(&text).chars().any(is_invisible));
        }

        #[test]
        fn printable_text_stays_as_it_is(text in "[ -~äß漢\\n\\t]{0,80}") {
            prop_assert_eq!(printable(&text), text);
        }
    }
}
