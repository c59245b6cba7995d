//! Which lines a pattern matches, at a bounded price.
//!
//! A pattern is a regular expression, or after an edit a whole line taken literally. It sees one line without its
//! ending. Searching line by line would be slow, so a second form of the expression, in which anchors match the
//! ends of lines, looks for the next line that may match, and only that line is asked. An engine cannot be stopped in
//! the middle, so it gets pieces whose size follows from that of the expression, and its time is checked between them; a
//! line that is longer goes through an automaton byte by byte.

use std::fmt;
use std::sync::OnceLock;

use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use rustix::time::{ClockId, clock_gettime};

use super::text::{FileText, TextLine, shown};

/// The largest program that an expression may become, in bytes.
const MAX_PROGRAM: usize = 10 << 20;
/// The product of an expression's and a piece's size that takes an engine well under a second at its slowest.
const PIECE_WORK: usize = 1 << 32;
const PIECE_SIZES: (usize, usize) = (1 << 10, 1 << 25);
/// How many lines, and bytes of a long one, are looked at between two looks at the clock.
const LINES_BETWEEN_LOOKS: u32 = 256;
const BYTES_BETWEEN_LOOKS: usize = 512;

/// A pattern of a view or a search.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// As written between the slashes.
    source: String,
    form: PatternForm,
}

#[derive(Debug, Clone)]
enum PatternForm {
    Expression {
        line: Regex,
        /// Matches in the whole text wherever `line` does in one of its lines, and maybe elsewhere.
        scan: Option<Regex>,
        piece: usize,
        /// For lines that are longer than a piece; made when one comes.
        automaton: OnceLock<Option<Box<DFA>>>,
    },
    Literal(Vec<u8>),
}

impl Pattern {
    /// Compiles a regular expression.
    pub(super) fn parse(source: &str) -> Result<Pattern, PatternError> {
        if source.is_empty() {
            return Err(PatternError::Empty);
        }
        let line = build(source, syntax::Config::new())?;
        let whole = syntax::Config::new().multi_line(true).crlf(true);
        let anchored = syntax::parse_with(source, &whole.utf8(false)).map_or(true, |parsed| {
            parsed.properties().look_set().contains_anchor_haystack()
        });
        let scan = if anchored {
            None
        } else {
            build(source, whole).ok()
        };
        let size = line.memory_usage() + scan.as_ref().map_or(0, Regex::memory_usage);
        let piece = (PIECE_WORK / size.max(1)).clamp(PIECE_SIZES.0, PIECE_SIZES.1);
        Ok(Pattern {
            source: source.to_owned(),
            form: PatternForm::Expression {
                line,
                scan,
                piece,
                automaton: OnceLock::new(),
            },
        })
    }

    /// Returns the pattern that matches exactly this line.
    pub(super) fn literal(line: &[u8]) -> Pattern {
        let source = regex::escape(&shown(line)).replace('/', "\\/");
        Pattern {
            source,
            form: PatternForm::Literal(line.to_owned()),
        }
    }

    /// Returns whether the pattern is a line taken literally.
    pub(super) fn is_literal(&self) -> bool {
        matches!(self.form, PatternForm::Literal(_))
    }

    /// Returns whether the pattern matches this line, given without its ending.
    pub(super) fn matches(&self, line: &[u8], effort: &mut CpuBudget) -> Result<bool, TooSlow> {
        match &self.form {
            PatternForm::Literal(wanted) => Ok(line == wanted),
            PatternForm::Expression {
                line: expression,
                piece,
                ..
            } if line.len() <= *piece => {
                effort.line()?;
                Ok(expression.is_match(line))
            }
            PatternForm::Expression {
                line: expression,
                piece,
                automaton,
                ..
            } => {
                let steps = match automaton.get_or_init(|| build_automaton(&self.source)) {
                    Some(automaton) => matches_by_steps(automaton, line, effort)?,
                    None => None,
                };
                steps.map_or_else(|| matches_in_pieces(expression, line, *piece, effort), Ok)
            }
        }
    }

    /// Returns the first line that matches, from the one that begins at `start`.
    pub(super) fn next_line(
        &self,
        text: &FileText,
        start: usize,
        effort: &mut CpuBudget,
    ) -> Result<Option<TextLine>, TooSlow> {
        let mut at = start;
        while let Some(line) = self.candidate(text, at, effort)? {
            if self.matches(text.content(line), effort)? {
                return Ok(Some(line));
            }
            at = line.next;
        }
        Ok(None)
    }

    /// Returns a line before which none matches, from the one that begins at `start`.
    fn candidate(
        &self,
        text: &FileText,
        start: usize,
        effort: &mut CpuBudget,
    ) -> Result<Option<TextLine>, TooSlow> {
        let PatternForm::Expression {
            scan: Some(scan),
            piece,
            ..
        } = &self.form
        else {
            return Ok(text.line_at(start));
        };
        let mut at = start;
        while let Some(first) = text.line_at(at) {
            if *piece < first.next - first.start {
                return Ok(Some(first));
            }
            let end = last_line_end(text, first, *piece);
            effort.line()?;
            let (bytes, top) = (text.bytes(), text.top());
            if let Some(found) = scan.search(&Input::new(&bytes[top..]).span(at - top..end - top)) {
                return Ok(text.line_around((top + found.start()).min(end - 1)));
            }
            effort.look()?;
            at = end;
        }
        Ok(None)
    }
}

/// Shows the pattern as written between the slashes.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatternError {
    Empty,
    /// The error of the regex parser.
    Syntax(String),
    TooLarge,
}

impl std::error::Error for PatternError {}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatternError::Empty => f.write_str("it is empty"),
            PatternError::Syntax(error) => f.write_str(error),
            PatternError::TooLarge => write!(
                f,
                "it is too large: it would become more than {MAX_PROGRAM} bytes of program"
            ),
        }
    }
}

/// Matching took more time than an answer may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooSlow;

/// The processor's time that matching may take.
#[derive(Debug)]
pub(super) struct CpuBudget {
    until: i64,
    lines: u32,
}

impl CpuBudget {
    /// Returns an effort of this thread that ends after so many milliseconds.
    pub(super) fn milliseconds(most: i64) -> CpuBudget {
        CpuBudget {
            until: thread_milliseconds().saturating_add(most),
            lines: 0,
        }
    }

    /// Counts a line, and looks at the clock now and then.
    fn line(&mut self) -> Result<(), TooSlow> {
        self.lines = (self.lines + 1) % LINES_BETWEEN_LOOKS;
        if self.lines == 0 { self.look() } else { Ok(()) }
    }

    fn look(&self) -> Result<(), TooSlow> {
        if self.until < thread_milliseconds() {
            Err(TooSlow)
        } else {
            Ok(())
        }
    }
}

/// The processor's time of this thread: a machine that is busy with other things makes no pattern slow.
fn thread_milliseconds() -> i64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent
        .tv_sec
        .saturating_mul(1000)
        .saturating_add(spent.tv_nsec / 1_000_000)
}

fn build(source: &str, syntax: syntax::Config) -> Result<Regex, PatternError> {
    let config = Regex::config()
        .utf8_empty(false)
        .nfa_size_limit(Some(MAX_PROGRAM));
    Regex::builder()
        .configure(config)
        .syntax(syntax.utf8(false))
        .build(source)
        .map_err(|error| match error.syntax_error() {
            Some(error) => PatternError::Syntax(error.to_string()),
            None => PatternError::TooLarge,
        })
}

fn build_automaton(source: &str) -> Option<Box<DFA>> {
    let config = DFA::config()
        .unicode_word_boundary(true)
        .skip_cache_capacity_check(true);
    let program = thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(MAX_PROGRAM));
    let syntax = syntax::Config::new().utf8(false);
    DFA::builder()
        .configure(config)
        .thompson(program)
        .syntax(syntax)
        .build(source)
        .ok()
        .map(Box::new)
}

/// Matches a long line byte by byte; nothing is known where the automaton gives up, as at a word border among letters
/// that are not ASCII.
fn matches_by_steps(
    automaton: &DFA,
    line: &[u8],
    effort: &mut CpuBudget,
) -> Result<Option<bool>, TooSlow> {
    let mut cache = automaton.create_cache();
    let Ok(mut state) = automaton.start_state_forward(&mut cache, &Input::new(line)) else {
        return Ok(None);
    };
    for stretch in line.chunks(BYTES_BETWEEN_LOOKS) {
        effort.look()?;
        for byte in stretch {
            match automaton.next_state(&mut cache, state, *byte) {
                Ok(next) if next.is_match() => return Ok(Some(true)),
                Ok(next) if next.is_dead() => return Ok(Some(false)),
                Ok(next) if !next.is_quit() => state = next,
                _ => return Ok(None),
            }
        }
    }
    Ok(automaton
        .next_eoi_state(&mut cache, state)
        .ok()
        .map(|last| last.is_match()))
}

/// Matches a long line piece by piece. Pieces overlap by a quarter, which is the longest match that is surely found;
/// what is around a piece is seen by anchors and word borders.
fn matches_in_pieces(
    expression: &Regex,
    line: &[u8],
    piece: usize,
    effort: &mut CpuBudget,
) -> Result<bool, TooSlow> {
    let mut start = 0;
    loop {
        let end = line.len().min(start + piece);
        if expression.is_match(Input::new(line).span(start..end)) {
            return Ok(true);
        }
        if end == line.len() {
            return Ok(false);
        }
        effort.look()?;
        start = end - piece / 4;
    }
}

/// Where the last line ends that begins with `first` and fits into a piece.
fn last_line_end(text: &FileText, first: TextLine, piece: usize) -> usize {
    let room = &text.bytes()[first.start..text.bytes().len().min(first.start + piece)];
    match memchr::memrchr(b'\n', room) {
        _ if first.start + room.len() == text.bytes().len() => text.bytes().len(),
        Some(newline) => first.start + newline + 1,
        None => first.next,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(pattern: &str, content: &str) -> Vec<usize> {
        let (pattern, text) = (
            Pattern::parse(pattern).unwrap(),
            FileText::new(content.into()).unwrap(),
        );
        let (mut effort, mut at, mut found) =
            (CpuBudget::milliseconds(60_000), text.top(), Vec::new());
        while let Some(line) = pattern.next_line(&text, at, &mut effort).unwrap() {
            found.push(1 + text.newlines(text.top()..line.start));
            at = line.next;
        }
        found
    }

    #[test]
    fn a_pattern_sees_one_line_without_its_ending() {
        assert_eq!(found("^b$", "a\r\nb\r\nab\nb\nb"), [2, 4, 5]);
        assert_eq!(found("a$|^$", "a\r\n\r\n\nb\r\r\n"), [1, 2, 3]);
        assert_eq!(found(r"\Ab\z", "a\nb\nb"), [2, 3]);
        assert_eq!(found(r"(?-m)^b", "a\nb"), [2]);
        assert_eq!(found(r"a\s*b", "a\nb\na b\n"), [3]);
        assert_eq!(found(r"[^x]*y", "a\nb\ny\nxy\n"), [3, 4]);
        assert_eq!(found(r"\s", "a\n\nb c\n"), [3]);
        assert_eq!(found("^a", "\u{feff}a\n"), [1]);
    }

    #[test]
    fn what_cannot_be_a_pattern_is_named() {
        let wrong = |source: &str| Pattern::parse(source).unwrap_err().to_string();
        assert!(wrong("(?=a)").contains("look-around"));
        assert!(wrong(r"(a)\1").contains("backreferences"));
        assert!(wrong("(").contains("unclosed group"));
        assert!(wrong(r"(\w{100}){200}").contains("too large"));
        assert!(wrong("").contains("empty"));
        assert!(Pattern::parse(r"\w{60} \p{L}{40}").is_ok());
    }

    #[test]
    fn a_literal_is_the_whole_line() {
        let pattern = Pattern::literal(b"a/b (c)");
        assert_eq!(pattern.to_string(), r"a\/b \(c\)");
        let mut effort = CpuBudget::milliseconds(1000);
        assert_eq!(pattern.matches(b"a/b (c)", &mut effort), Ok(true));
        assert_eq!(pattern.matches(b"a/b (c);", &mut effort), Ok(false));
    }

    /// Matches as if the line were too long for the engine, by both ways.
    fn matches_long(pattern: &str, line: &str) -> (Option<bool>, bool) {
        let mut effort = CpuBudget::milliseconds(60_000);
        let steps = matches_by_steps(
            &build_automaton(pattern).unwrap(),
            line.as_bytes(),
            &mut effort,
        )
        .unwrap();
        let expression = build(pattern, syntax::Config::new()).unwrap();
        (
            steps,
            matches_in_pieces(&expression, line.as_bytes(), 1 << 12, &mut effort).unwrap(),
        )
    }

    #[test]
    fn long_lines_are_matched_by_steps_or_in_pieces() {
        let line = format!("{}needle{}", "y".repeat(90_000), "z".repeat(90_000));
        for pattern in ["needle", "z$", "^y", "yneedlez", r"\w+e\w", "(y+)+n"] {
            assert_eq!(
                matches_long(pattern, &line),
                (Some(true), true),
                "{pattern}"
            );
        }
        for pattern in ["^z", "y$", r"\bneedle", r"\s", "(z+)+y$"] {
            assert_eq!(
                matches_long(pattern, &line),
                (Some(false), false),
                "{pattern}"
            );
        }
        // Only one way sees a match that is longer than a piece, only the other a border among other letters.
        assert_eq!(matches_long("^y+needlez+$", &line), (Some(true), false));
        let other = format!("é{line} é");
        assert_eq!(matches_long(r"z+\b", &other), (None, true));
    }

    #[test]
    fn the_way_of_long_lines_is_taken() {
        let line = format!("{}needle{}", "y".repeat(300_000), "é".repeat(300_000));
        for (pattern, wanted) in [
            (r"^\w+needle\w+$", true),
            (r"^\w+needle\W", false),
            (r"needle\w\b", false),
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(
                pattern.matches(line.as_bytes(), &mut CpuBudget::milliseconds(60_000)),
                Ok(wanted),
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_pattern_that_blows_up_ends_in_time() {
        let line = "0110é10110".repeat(100_000);
        for pattern in [
            r"(?:[^x]*\b){300}y",
            r"[01é]*1[01é]{2000}y$",
            r"(?:\w?){60}y",
        ] {
            let pattern = Pattern::parse(pattern).unwrap();
            assert_eq!(
                pattern.matches(line.as_bytes(), &mut CpuBudget::milliseconds(30)),
                Err(TooSlow),
                "{pattern}"
            );
        }
    }

    proptest! {
        #[test]
        fn all_lines_that_match_are_found(
            content in r"[ab \r\n]{0,60}",
            pattern in prop::sample::select(vec![
                "a", "^a", "b$", "^$", r"\ba\b", r"a\s+b", "[^a]b", r"\s*", "a|b$", "(?s).a", r"^\s", r"\Aa", "a??", r"\Bb", "x|"
            ]),
            piece in 1_usize..40,
        ) {
            let text = FileText::new(content.into_bytes()).unwrap();
            let mut pattern = Pattern::parse(pattern).unwrap();
            if let PatternForm::Expression { piece: size, .. } = &mut pattern.form {
                *size = piece.max(1 + text.lines_from(0).map(|line| line.next - line.start).max().unwrap_or(0));
            }
            let mut effort = CpuBudget::milliseconds(60_000);
            let wanted: Vec<TextLine> =
                text.lines_from(0).filter(|line| pattern.matches(text.content(*line), &mut effort).unwrap()).collect();
            let (mut at, mut found) = (0, Vec::new());
            while let Some(line) = pattern.next_line(&text, at, &mut effort).unwrap() {
                found.push(line);
                at = line.next;
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
