//! Makes foreign output plain, and cuts it.
//!
//! What a program prints is meant for a terminal: it moves the cursor, rewrites lines, sets titles. `plain` gives what
//! a reader would have seen at the end, `printable` what may also be shown on a terminal of ours, `escaped` a name on
//! one line. All of it is one pass over the input, whatever the input is.

/// Returns the text a terminal would show at the end: no character of control is left but newline and tab.
pub fn plain(bytes: &[u8]) -> String {
    let mut screen = Screen::default();
    let mut state = State::Text;
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
    let border = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{border}{}{tail}", missing_note(missing))
}

fn missing_note(missing: &str) -> String {
    match missing.bytes().filter(|byte| *byte == b'\n').count() {
        0 => format!("[... {} bytes are missing here ...]\n", missing.len()),
        lines => format!("[... {} bytes ({lines} lines) are missing here ...]\n", missing.len()),
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
enum State {
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
struct Screen {
    above: String,
    line: Vec<char>,
    cursor: usize,
}

impl Screen {
    fn take(&mut self, state: State, character: char) -> State {
        match (state, character) {
            (State::String | State::StringEscape, '\n') => self.text(character),
            (State::String, '\u{7}' | '\u{9c}' | '\u{18}' | '\u{1a}') | (State::StringEscape, '\\') => State::Text,
            (State::String, '\u{1b}') => State::StringEscape,
            (State::String, _) => State::String,
            (State::StringEscape | State::Escape, _) => self.after_escape(character),
            (State::Control(parameter), '0'..='?') => State::Control(parameter.or(Some(character))),
            (State::Control(parameter), ' '..='/') => State::Control(parameter),
            (State::Control(parameter), 'K') => self.erase(parameter),
            (State::Control(_), '@'..='~') => State::Text,
            (State::Control(_) | State::Text, _) => self.text(character),
        }
    }

    fn after_escape(&mut self, character: char) -> State {
        match character {
            '[' => State::Control(None),
            ']' | 'P' | 'X' | '^' | '_' => State::String,
            ' '..='/' => State::Escape,
            '0'..='~' => State::Text,
            other => self.text(other),
        }
    }

    fn text(&mut self, character: char) -> State {
        match character {
            '\u{1b}' => return State::Escape,
            '\u{9b}' => return State::Control(None),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => return State::String,
            '\n' => self.new_line(),
            '\r' => self.cursor = 0,
            '\u{8}' => self.cursor = self.cursor.saturating_sub(1),
            '\t' => self.put('\t'),
            control if control.is_control() => {}
            seen => self.put(seen),
        }
        State::Text
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
    fn erase(&mut self, parameter: Option<char>) -> State {
        match parameter {
            None | Some('0') => self.line.truncate(self.cursor),
            Some('2') => {
                self.line.clear();
                self.cursor = 0;
            }
            Some(_) => {}
        }
        State::Text
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
    use super::{cut_middle, escaped, plain, printable};
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    fn check(input: &str, expected: &str) {
        assert_eq!(plain(input.as_bytes()), expected, "{input:?}");
    }

    #[test]
    fn control_sequences_go() {
        check("a\u{1b}[31mred\u{1b}[0m b", "ared b");
        check("\u{1b}[38;5;196;1mx\u{1b}[?25l", "x");
        check("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "xlink");
        check("\u{1b}Pq#0;2\u{1b}\\x\u{1b}_G\u{1b}\\\u{1b}^p\u{1b}\\\u{1b}Xs\u{1b}\\y", "xy");
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
        assert_eq!(printable("a\u{202e}b\u{1b}[1mc\n\td\u{2066}"), "a\\u{202e}bc\n\td\\u{2066}");
        assert_eq!(escaped("a\nb\u{1b}[1m\u{202e}\t\\ü"), "a\\nb\\u{1b}[1m\\u{202e}\\t\\\\ü");
    }

    #[test]
    fn the_middle_is_cut_at_line_borders_and_counted() {
        let text: String = (1..=1000).map(|number| format!("line {number}\n")).collect();
        let cut = cut_middle(&text, 200);
        assert!(cut.starts_with("line 1\nline 2\n") && cut.ends_with("line 999\nline 1000\n"), "{cut}");
        let note = cut.lines().find(|line| line.starts_with("[...")).unwrap();
        let kept = cut.lines().filter(|line| line.starts_with("line ")).count();
        let bytes = text.len() - (cut.len() - note.len() - 1);
        assert_eq!(note, format!("[... {bytes} bytes ({} lines) are missing here ...]", 1000 - kept));
        assert_eq!(cut_middle("short", 5), "short");
    }

    #[test]
    fn one_long_line_is_cut_within_it() {
        let cut = cut_middle(&"é".repeat(5000), 1000);
        assert!(cut.len() <= 1000 && 900 < cut.len(), "{}", cut.len());
        assert!(cut.contains("\n[... ") && cut.contains(" bytes are missing here ...]\né"), "{cut}");
        assert_eq!(cut_middle("ééééé", 5), "éé");
    }

    #[test]
    fn hostile_input_takes_one_pass() {
        for hostile in ["\r", "\u{8}", "\u{1b}[", "\u{1b}]", "x\r\u{1b}[K", "\u{1b}", "x\r", "\u{1b}[1K"] {
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
