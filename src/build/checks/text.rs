//! Makes foreign output plain, and cuts it.
//!
//! What a program prints is meant for a terminal: it moves the cursor, rewrites lines, sets titles. `plain` gives what
//! a reader would have seen at the end, `printable` what may also be shown on a terminal of ours, `escaped` a name on
//! one line. All of it is one pass over the input, whatever the input is.

use std::collections::HashMap;

/// Returns the text a terminal would show at the end: no character of control is left but newline and tab.
pub fn plain(bytes: &[u8]) -> String {
    let mut screen = TerminalText::default();
    let mut state = EscapeState::Text;
    for character in String::from_utf8_lossy(bytes).chars() {
        state = screen.take(state, character);
    }
    screen.finish()
}

/// Returns `plain` text in which characters that reorder or hide others are written as escapes.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in plain(text.as_bytes()).chars() {
        push_visible(&mut shown, character);
    }
    shown
}

/// Returns the text on one line, with every character that cannot be seen as what it is written as an escape.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => shown.push_str("\\\\"),
            control if control.is_control() => shown.extend(control.escape_default()),
            other => push_visible(&mut shown, other),
        }
    }
    shown
}

/// The longest run of one of these characters that is shown in full.
const LONGEST_RULER: usize = 20;
const RULERS: &str = "=_-!*~#";
/// So many of the lines that are alike are shown.
const SHOWN_ALIKE: usize = 1;

/// Returns the text with long rulers shortened: 80 times `=` as `===[80]`. The number is kept, since it may be what a test
/// is about.
pub fn with_short_rulers(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|character| RULERS.contains(character)) {
        let (before, from) = rest.split_at(start);
        let length = from.len() - from.trim_start_matches(&from[..1]).len();
        short.push_str(before);
        match length <= LONGEST_RULER {
            true => short.push_str(&from[..length]),
            false => short.push_str(&format!("{}[{length}]", &from[..3])),
        }
        rest = &from[length..];
    }
    short + rest
}

/// Returns the text without lines that are like an earlier one but for their numbers; notes say how many were left out.
pub fn without_repetitions(text: &str) -> String {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut kept = String::new();
    let mut left_out = 0;
    for line in text.split_inclusive('\n') {
        let count = seen.entry(without_numbers(line)).or_default();
        *count += 1;
        if SHOWN_ALIKE < *count && (!line.trim().is_empty() || left_out > 0) {
            left_out += 1;
        } else {
            push_note(&mut kept, std::mem::take(&mut left_out));
            kept.push_str(line);
        }
    }
    push_note(&mut kept, left_out);
    kept
}

fn push_note(kept: &mut String, left_out: usize) {
    if left_out > 0 {
        kept.push_str(&format!(
            "[... {left_out} lines like earlier ones are left out here ...]\n"
        ));
    }
}

/// The line with each number as `0`.
fn without_numbers(line: &str) -> String {
    let mut key = String::with_capacity(line.len());
    for character in line.trim().chars() {
        match character.is_ascii_digit() {
            true if key.ends_with('0') => {}
            true => key.push('0'),
            false => key.push(character),
        }
    }
    key
}

/// Returns at most `limit` bytes: the head, a line that says how much is missing, and the tail.
pub fn cut_middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    // The note is longest where all is missing; a newline may be needed before it.
    let Some(room) = limit.checked_sub(missing_note(text).len() + 1) else {
        return text[..text.floor_char_boundary(limit)].to_owned();
    };
    let head = head_within(text, room / 2);
    let tail = tail_within(&text[head.len()..], room - room / 2);
    let missing = &text[head.len()..text.len() - tail.len()];
    let border = if head.is_empty() || head.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{head}{border}{}{tail}", missing_note(missing))
}

fn missing_note(missing: &str) -> String {
    match missing.bytes().filter(|byte| *byte == b'\n').count() {
        0 => format!("[... {} bytes are missing here ...]\n", missing.len()),
        lines => format!(
            "[... {} bytes ({lines} lines) are missing here ...]\n",
            missing.len()
        ),
    }
}

/// A line border is worth at most a quarter of what may be kept: lines can be long.
fn head_within(text: &str, room: usize) -> &str {
    let head = &text[..text.floor_char_boundary(room)];
    match head.rfind('\n') {
        Some(end) if head.len() - end <= room / 4 => &head[..=end],
        _ => head,
    }
}

fn tail_within(text: &str, room: usize) -> &str {
    let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(room))..];
    match tail.find('\n') {
        Some(end) if end < room / 4 => &tail[end + 1..],
        _ => tail,
    }
}

fn push_visible(shown: &mut String, character: char) {
    match character {
        '\u{061c}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => shown.extend(character.escape_unicode()),
        seen => shown.push(seen),
    }
}

/// Where we are in a control sequence.
#[derive(Clone, Copy)]
enum EscapeState {
    Text,
    Escape,
    /// Within CSI; holds its first parameter digit, which is all that erasing needs.
    Control(Option<char>),
    /// Within OSC, DCS, SOS, PM or APC, up to BEL or ST.
    String,
    /// An ESC within one of these: with `\` it is ST.
    StringEscape,
}

/// One line under the cursor, and the lines above it.
#[derive(Default)]
struct TerminalText {
    above: String,
    line: Vec<char>,
    cursor: usize,
}

impl TerminalText {
    fn take(&mut self, state: EscapeState, character: char) -> EscapeState {
        match (state, character) {
            (EscapeState::String | EscapeState::StringEscape, '\n') => self.text(character),
            (EscapeState::String, '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}')
            | (EscapeState::StringEscape, '\\') => EscapeState::Text,
            (EscapeState::String, '\u{1b}') => EscapeState::StringEscape,
            (EscapeState::String, _) => EscapeState::String,
            (EscapeState::StringEscape | EscapeState::Escape, _) => self.after_escape(character),
            (EscapeState::Control(parameter), '0'..='?') => {
                EscapeState::Control(parameter.or(Some(character)))
            }
            (EscapeState::Control(parameter), ' '..='/') => EscapeState::Control(parameter),
            (EscapeState::Control(parameter), 'K') => self.erase(parameter),
            (EscapeState::Control(_), '@'..='~') => EscapeState::Text,
            (EscapeState::Control(_) | EscapeState::Text, _) => self.text(character),
        }
    }

    fn after_escape(&mut self, character: char) -> EscapeState {
        match character {
            '[' => EscapeState::Control(None),
            ']' | 'P' | 'X' | '^' | '_' => EscapeState::String,
            ' '..='/' => EscapeState::Escape,
            '0'..='~' => EscapeState::Text,
            other => self.text(other),
        }
    }

    fn text(&mut self, character: char) -> EscapeState {
        match character {
            '\u{1b}' => return EscapeState::Escape,
            '\u{9b}' => return EscapeState::Control(None),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => return EscapeState::String,
            '\n' => self.new_line(),
            '\r' => self.cursor = 0,
            '\u{8}' => self.cursor = self.cursor.saturating_sub(1),
            '\t' => self.put('\t'),
            control if control.is_control() => {}
            seen => self.put(seen),
        }
        EscapeState::Text
    }

    fn put(&mut self, character: char) {
        match self.line.get_mut(self.cursor) {
            Some(place) => *place = character,
            None => self.line.push(character),
        }
        self.cursor += 1;
    }

    /// Progress lines erase what they rewrite; without this the rest of a longer line would stay behind a shorter one.
    /// Each erasing costs what it erases, or at most what was written to get there.
    fn erase(&mut self, parameter: Option<char>) -> EscapeState {
        match parameter {
            None | Some('0') => self.line.truncate(self.cursor),
            Some('2') => {
                self.line.clear();
                self.cursor = 0;
            }
            Some(_) => {}
        }
        EscapeState::Text
    }

    fn new_line(&mut self) {
        self.above.extend(self.line.drain(..));
        self.above.push('\n');
        self.cursor = 0;
    }

    fn finish(mut self) -> String {
        self.above.extend(self.line);
        self.above
    }
}

#[cfg(test)]
mod tests {
    use super::{cut_middle, escaped, plain, printable, with_short_rulers, without_repetitions};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn check(input: &str, expected: &str) {
        assert_eq!(plain(input.as_bytes()), expected, "{input:?}");
    }

    #[test]
    fn control_sequences_go() {
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
        check("\u{9b}31mx\u{9d}52;c;QQ==\u{9c}y\u{85}\u{84}", "xy");
        check("a\u{0}\u{7}\u{7f}b\u{b}c", "abc");
    }

    #[test]
    fn a_sequence_that_does_not_end_takes_no_more_than_its_line() {
        check("x\u{1b}]0;never\nnext", "x\nnext");
        check("x\u{1b}[31\nnext", "x\nnext");
        check("x\u{1b}[31\u{1b}[0mz", "xz");
        check("x\u{1b}]a\u{1b}[31mz", "xz");
        check("x\u{1b}", "x");
        check("x\u{1b}[3é", "xé");
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
    fn what_is_no_utf8_is_replaced() {
        assert_eq!(plain(b"a\xff\xc3(\xe2\x82"), "a\u{fffd}\u{fffd}(\u{fffd}");
        assert_eq!(plain("grüße ✓".as_bytes()), "grüße ✓");
    }

    #[test]
    fn reordering_characters_are_shown() {
        assert_eq!(
            printable("a\u{202e}b\u{1b}[1mc\n\td\u{2066}"),
            "a\\u{202e}bc\n\td\\u{2066}"
        );
        assert_eq!(
            escaped("a\nb\u{1b}[1m\u{202e}\t\\ü"),
            "a\\nb\\u{1b}[1m\\u{202e}\\t\\\\ü"
        );
    }

    #[test]
    fn the_middle_is_cut_at_line_borders_and_counted() {
        let text: String = (1..=1000)
            .map(|number| format!("line {number}\n"))
            .collect();
        let cut = cut_middle(&text, 200);
        assert!(
            cut.starts_with("line 1\nline 2\n") && cut.ends_with("line 999\nline 1000\n"),
            "{cut}"
        );
        let note = cut.lines().find(|line| line.starts_with("[...")).unwrap();
        let kept = cut.lines().filter(|line| line.starts_with("line ")).count();
        let bytes = text.len() - (cut.len() - note.len() - 1);
        assert_eq!(
            note,
            format!(
                "[... {bytes} bytes ({} lines) are missing here ...]",
                1000 - kept
            )
        );
        assert_eq!(cut_middle("short", 5), "short");
    }

    #[test]
    fn rulers_are_shortened_and_counted() {
        let check = |text: &str, expected: &str| assert_eq!(with_short_rulers(text), expected);
        check("", "");
        check(&"=".repeat(20), &"=".repeat(20));
        check(&"=".repeat(21), "===[21]");
        check(
            &format!("{0} FAILURES {0}\n__x__\n", "=".repeat(89)),
            "===[89] FAILURES ===[89]\n__x__\n",
        );
        check(
            &format!("é{}é{}", "~".repeat(30), "#".repeat(25)),
            "é~~~[30]é###[25]",
        );
        check(
            &format!("{}{}", "-".repeat(15), "=".repeat(15)),
            "---------------===============",
        );
        for ruler in "=_-!*~#".chars() {
            check(
                &ruler.to_string().repeat(50),
                &format!("{}[50]", ruler.to_string().repeat(3)),
            );
        }
        check(&".".repeat(50), &".".repeat(50));
    }

    #[test]
    fn lines_that_are_alike_are_left_out_and_counted() {
        let many: String = (0..200)
            .map(|number| format!("ERROR a.py::t[{number}] - x\n"))
            .collect();
        let expected = "head\nERROR a.py::t[0] - x\n[... 199 lines like earlier ones are left out here ...]\ntail\n";
        assert_eq!(
            without_repetitions(&format!("head\n{many}tail\n")),
            expected
        );
        assert_eq!(
            without_repetitions("a\nb\n\nc\n\n\nd\n\n\ne"),
            "a\nb\n\nc\n\n\nd\n\n\ne"
        );
        assert_eq!(without_repetitions(""), "");
    }

    #[test]
    fn one_long_line_is_cut_within_it() {
        let cut = cut_middle(&"é".repeat(5000), 1000);
        assert!(cut.len() <= 1000 && 900 < cut.len(), "{}", cut.len());
        assert!(
            cut.contains("\n[... ") && cut.contains(" bytes are missing here ...]\né"),
            "{cut}"
        );
        assert_eq!(cut_middle("ééééé", 5), "éé");
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
            let started = std::time::Instant::now();
            plain(hostile.repeat(500_000).as_bytes());
            assert!(started.elapsed().as_secs() < 20, "{hostile:?}");
        }
    }

    proptest! {
        #[test]
        fn plain_text_has_no_control_and_stays(bytes in any::<Vec<u8>>(), pieces in "[\\x00-\\x20\\[\\]K;a\u{7f}-\u{a0}]{0,60}") {
            for input in [bytes.as_slice(), pieces.as_bytes()] {
                let once = plain(input);
                prop_assert!(once.chars().all(|character| matches!(character, '\n' | '\t') || !character.is_control()));
                prop_assert_eq!(plain(once.as_bytes()), once.clone());
                let shown = printable(&once);
                prop_assert_eq!(printable(&shown), shown.clone());
                prop_assert!(!escaped(&once).contains(char::is_control));
            }
        }

        #[test]
        fn a_cut_respects_its_limit(text in "(\\PC|\n){0,400}", limit in 0usize..600) {
            let cut = cut_middle(&text, limit);
            prop_assert!(cut.len() <= limit);
            prop_assert_eq!(cut == text, text.len() <= limit);
        }
    }
}
