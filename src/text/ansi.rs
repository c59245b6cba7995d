//! A streaming parser of terminal escape sequences (ECMA-48), character by character.
//!
//! It keeps no text. A sequence that is broken ends where it cannot go on, at the latest with its line or after 4 KiB,
//! so that it never swallows more than that.

/// The most bytes that one sequence takes.
const MAX_SEQUENCE: usize = 4096;

/// The position in a stream: in text, or inside a sequence.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AnsiParser {
    state: AnsiState,
    /// The bytes of the sequence so far.
    length: usize,
}

/// What a character is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnsiStep {
    /// Not part of a sequence; it may still be a control character.
    Text,
    /// Part of a sequence.
    Sequence,
    /// The end of EL, erase in line, with the first character of its parameter.
    EraseLine(Option<char>),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum AnsiState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes.
    Intermediate,
    /// Within CSI, with the first character of its parameters.
    Csi(Option<char>),
    /// Within OSC, DCS, SOS, PM or APC, up to BEL or ST.
    String,
    /// An ESC within one of these: followed by `\` it is ST.
    StringEscape,
}

impl AnsiParser {
    /// Whether the next character does not continue a sequence.
    #[inline]
    pub(crate) fn is_in_text(&self) -> bool {
        matches!(self.state, AnsiState::Text)
    }

    /// Takes the next character of the stream.
    #[inline]
    pub(crate) fn step(&mut self, character: char) -> AnsiStep {
        if self.is_in_text() {
            return self.begin(character);
        }
        let Some(next) = self.after(character) else {
            return self.begin(character);
        };
        let step = match (self.state, character) {
            (AnsiState::Csi(parameter), 'K') => AnsiStep::EraseLine(parameter),
            _ => AnsiStep::Sequence,
        };
        self.length += character.len_utf8();
        self.state = if self.length < MAX_SEQUENCE {
            next
        } else {
            AnsiState::Text
        };
        step
    }

    #[inline]
    fn begin(&mut self, character: char) -> AnsiStep {
        self.state = match character {
            '\u{1b}' => AnsiState::Escape,
            '\u{9b}' => AnsiState::Csi(None),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => AnsiState::String,
            _ => {
                self.state = AnsiState::Text;
                return AnsiStep::Text;
            }
        };
        self.length = character.len_utf8();
        AnsiStep::Sequence
    }

    /// The state after a character of the sequence, or `None` where the sequence has ended before it.
    fn after(&mut self, character: char) -> Option<AnsiState> {
        match (self.state, character) {
            (AnsiState::Text, _) | (_, '\n') => None,
            (_, '\u{18}' | '\u{1a}') => Some(AnsiState::Text),
            (AnsiState::String, '\u{7}' | '\u{9c}') | (AnsiState::StringEscape, '\\') => {
                Some(AnsiState::Text)
            }
            (AnsiState::String, '\u{1b}') => Some(AnsiState::StringEscape),
            (AnsiState::String, _) => Some(AnsiState::String),
            (AnsiState::StringEscape, _) => {
                self.begin('\u{1b}');
                self.after(character)
            }
            (AnsiState::Escape, '[') => Some(AnsiState::Csi(None)),
            (AnsiState::Escape, ']' | 'P' | 'X' | '^' | '_') => Some(AnsiState::String),
            (AnsiState::Escape | AnsiState::Intermediate, ' '..='/') => {
                Some(AnsiState::Intermediate)
            }
            (AnsiState::Escape | AnsiState::Intermediate, '0'..='~') => Some(AnsiState::Text),
            (AnsiState::Csi(None), '0'..='?') => Some(AnsiState::Csi(Some(character))),
            (AnsiState::Csi(parameter), ' '..='?') => Some(AnsiState::Csi(parameter)),
            (AnsiState::Csi(_), '@'..='~') => Some(AnsiState::Text),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: &str) {
        let mut parser = AnsiParser::default();
        let text: String = input
            .chars()
            .filter(|character| parser.step(*character) == AnsiStep::Text)
            .collect();
        assert_eq!(text, expected, "{input:?}");
    }

    #[test]
    fn sequences_are_skipped() {
        check("a\u{1b}[31mred\u{1b}[0m b", "ared b");
        check("\u{1b}[38;5;196;1mx\u{1b}[?25l", "x");
        check(
            "\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\",
            "xlink",
        );
        check(
            "\u{1b}Pq#0;2\u{1b}\\x\u{1b}_G\u{1b}\\\u{1b}^p\u{1b}\\\u{1b}Xs\u{1b}\\y",
            "xy",
        );
        check("\u{1b}(B\u{1b}7x\u{1b}8\u{1b}cy\u{1b}=", "xy");
        check("\u{9b}31mx\u{9d}52;c;QQ==\u{9c}y", "xy");
        check("\u{1b}([x", "x");
    }

    #[test]
    fn a_broken_sequence_takes_no_more_than_its_line() {
        check("x\u{1b}]0;never\nnext", "x\nnext");
        check("x\u{1b}[31\nnext", "x\nnext");
        check("x\u{1b}[31\u{1b}[0mz", "xz");
        check("x\u{1b}]a\u{1b}[31mz", "xz");
        check("x\u{1b}]a\u{18}y\u{1b}[3\u{1a}z", "xyz");
        check("x\u{1b}\u{1b}\u{1b}[1mz", "xz");
        check("x\u{1b}", "x");
        check("x\u{1b}[3é", "xé");
    }

    #[test]
    fn a_sequence_takes_four_kibibytes_at_most() {
        let ones = "1".repeat(5000);
        for introducer in ["\u{1b}]", "\u{1b}[", "\u{9d}"] {
            check(&format!("{introducer}{ones}"), &"1".repeat(5000 - 4094));
        }
    }
}
