//! What of a foreign text may reach a terminal: printable characters, tab and newline.
//!
//! Models, tests, providers and file names can hold anything, and a terminal obeys what it is sent. Control
//! sequences are taken out whole, so that coloured text reads well; every other character that is not to be seen
//! (controls, C1, bidirectional marks, zero widths) is shown as an escape, so that nothing can hide.

use std::iter::Peekable;
use std::str::Chars;

/// Returns the text without control sequences, every other invisible character escaped; tabs and newlines stay.
///
/// A carriage return that would let a line overwrite itself begins a new line instead.
pub fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\x1b' => skip_sequence(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            '\r' | '\n' => plain.push('\n'),
            '\t' => plain.push('\t'),
            other => push_visible(&mut plain, other),
        }
    }
    plain
}

/// Returns a name as one line in which every invisible character is escaped, none left out.
pub fn plain_name(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    name.chars()
        .for_each(|character| push_visible(&mut plain, character));
    plain
}

fn push_visible(plain: &mut String, character: char) {
    if is_invisible(character) {
        plain.extend(character.escape_default());
    } else {
        plain.push(character);
    }
}

fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Skips what belongs to the escape character just read. A sequence that is not finished ends where it is broken,
/// at the latest with its line: it must not swallow what a developer should see.
fn skip_sequence(rest: &mut Peekable<Chars<'_>>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_while(rest, |character| matches!(character, ' '..='?'));
            rest.next_if(|character| matches!(character, '@'..='~'));
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            skip_while(rest, |character| {
                !matches!(character, '\x07' | '\x1b' | '\u{9c}' | '\n' | '\r')
            });
            rest.next_if(|character| matches!(character, '\x07' | '\u{9c}'));
        }
        _ => {
            skip_while(rest, |character| matches!(character, ' '..='/'));
            rest.next_if(|character| matches!(character, '0'..='~'));
        }
    }
}

fn skip_while(rest: &mut Peekable<Chars<'_>>, belongs: impl Fn(char) -> bool) {
    while rest.next_if(|character| belongs(*character)).is_some() {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequences_go_and_the_text_stays() {
        let check = |text: &str, expected: &str| assert_eq!(plain_text(text), expected, "{text:?}");
        check("\x1b[31mred\x1b[0m", "red");
        check("\x1b[38;2;1;2;3mred\x1b[?25l", "red");
        check("\x1b]0;title\x07text", "text");
        check("\x1b]52;c;cGF5bG9hZA==\x1b\\text", "text");
        check("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link");
        check("\x1bP+q544e\x1b\\text", "text");
        check("\x1b(Btext\x1bM\x1b7", "text");
        check("\x1bctext", "text");
        check("a\tb\nc", "a\tb\nc");
        check("äöü 漢字 e\u{301} \\ \"'", "äöü 漢字 e\u{301} \\ \"'");
    }

    #[test]
    fn broken_sequences_hide_no_more_than_their_line() {
        let check = |text: &str, expected: &str| assert_eq!(plain_text(text), expected, "{text:?}");
        check("\x1b", "");
        check("\x1b[", "");
        check("\x1b[12", "");
        check("\x1b[12\x1b[31mtext", "text");
        check("\x1b[1äb", "äb");
        check("\x1b]0;never closed\ntext", "\ntext");
        check("\x1bPnever closed", "");
        check("\x1b\x1b\x1b[1mtext", "text");
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(plain_text(text), expected, "{text:?}");
        check("a\0b\x07c\x08d\x7f", "a\\u{0}b\\u{7}c\\u{8}d\\u{7f}");
        check("\u{9b}31mred", "\\u{9b}31mred");
        check("\u{202e}evil\u{2066}", "\\u{202e}evil\\u{2066}");
        check("\u{200b}\u{feff}\u{e0041}", "\\u{200b}\\u{feff}\\u{e0041}");
        check("10%\r20%\r\ndone", "10%\n20%\ndone");
    }

    #[test]
    fn names_are_one_line_and_lose_nothing() {
        assert_eq!(
            plain_name("a\x1b[31m\nb\tc\u{9b}"),
            "a\\u{1b}[31m\\nb\\tc\\u{9b}"
        );
        assert_eq!(plain_name("ä.py"), "ä.py");
    }

    #[test]
    fn a_long_evil_text_takes_linear_time() {
        let text = "\x1b]\x1b[\x1bP".repeat(1_000_000);
        assert_eq!(plain_text(&text), "");
    }

    fn evil_text() -> impl Strategy<Value = String> {
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
        fn only_visible_characters_come_out(text in evil_text()) {
            let plain = plain_text(&text);
            prop_assert!(plain.chars().all(|c| c == '\n' || c == '\t' || !is_invisible(c)), "{plain:?}");
            prop_assert_eq!(plain_text(&plain), plain.clone());
            prop_assert!(!plain_name(&text).chars().any(is_invisible));
        }

        #[test]
        fn printable_text_stays_as_it_is(text in "[ -~äß漢\\n\\t]{0,80}") {
            prop_assert_eq!(plain_text(&text), text);
        }
    }
}
