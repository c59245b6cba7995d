//! A part of a file that stays on the screen: where it begins and ends, and what was last seen of it.
//!
//! A view is located in the text again each time. What it showed is remembered line by line, for an edit may replace only
//! what was seen. After an edit of ours the view moves with its lines, and a boundary that was edited becomes literal.

use std::fmt::{self, Write};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::pattern::{CpuBudget, Pattern, TooSlow};
use super::text::{FileText, TextLine, shown};

/// How many lines a view shows at most.
pub(super) const MAX_LINES: usize = 1000;
/// Longer lines are remembered by their beginning and a digest; it holds all that is shown of a line.
const REMEMBERED_BYTES: usize = 8192;
/// A larger file, or a larger part of a file, is rendered for every screen.
const MAX_KEPT: usize = 1 << 20;

/// A view of a file.
#[derive(Debug)]
pub(super) struct FileView {
    pub id: u64,
    /// How the file is called, relative to the project.
    pub path: String,
    /// The file itself, behind all links.
    pub real: PathBuf,
    pub start: Pattern,
    pub end: Pattern,
    pub label: Option<String>,
    /// Which match is shown, counted from 0.
    index: usize,
    /// How many lines like a literal end come before it; an edit may leave some.
    passed: usize,
    /// Whether the first line may be the last one too; an edit may leave no other.
    is_single: bool,
    seen: SeenView,
    /// What was last shown, until the view changes.
    shown: Option<ShownView>,
}

/// The screen of a view, for the next one with the same text.
#[derive(Debug)]
struct ShownView {
    text: FileText,
    screen: String,
}

/// Which match is wanted.
#[derive(Debug, Clone, Copy)]
enum MatchChoice {
    /// Counted from 0; the last one, if there are not so many.
    Index(usize),
    /// The one that begins at this line.
    Line(usize),
}

/// A match in a text.
#[derive(Debug)]
struct PatternMatch {
    index: usize,
    count: usize,
    /// The number of its first line.
    first: usize,
    lines: Vec<TextLine>,
    /// Whether the end was not found.
    is_cut: bool,
}

/// What was last shown of a view.
#[derive(Debug, Default)]
struct SeenView {
    first: usize,
    lines: Vec<SeenLine>,
    is_cut: bool,
}

/// A line as it was shown.
#[derive(Debug, PartialEq, Eq)]
struct SeenLine {
    beginning: Box<[u8]>,
    /// The digest of the line, if there is more.
    whole: Option<[u8; 32]>,
}

/// Why a view shows nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ViewProblem {
    NoMatch,
    TooSlow,
}

/// What an edit did to the lines of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineChange {
    /// The lines that were replaced, both included.
    pub first: usize,
    pub last: usize,
    /// How many lines replaced them.
    pub added: usize,
}

impl FileView {
    /// Returns a view of the first match, of which nothing was seen.
    pub(super) fn new(
        id: u64,
        path: String,
        real: PathBuf,
        patterns: (Pattern, Pattern),
        label: Option<String>,
    ) -> FileView {
        let (start, end) = patterns;
        FileView {
            id,
            path,
            real,
            start,
            end,
            label,
            index: 0,
            passed: 0,
            is_single: false,
            seen: SeenView::default(),
            shown: None,
        }
    }

    /// Finds the view in its file as it is now, remembers it, and adds it to the screen.
    pub(super) fn show(
        &mut self,
        text: &FileText,
        effort: &mut CpuBudget,
        screen: &mut String,
    ) -> Result<(), ViewProblem> {
        if let Some(shown) = self.shown.as_ref().filter(|shown| shown.text == *text) {
            screen.push_str(&shown.screen);
            return Ok(());
        }
        let found = self.find(text, MatchChoice::Index(self.index), effort)?;
        let before = screen.len();
        self.render(text, &found, screen);
        self.remember(text, &found);
        let is_small = text.bytes().len().max(screen.len() - before) <= MAX_KEPT;
        self.shown = is_small.then(|| ShownView {
            text: text.clone(),
            screen: screen[before..].to_owned(),
        });
        Ok(())
    }

    /// Goes `steps` matches further, around the end if need be; returns which match of how many is shown.
    pub(super) fn turn(
        &mut self,
        steps: isize,
        text: &FileText,
        effort: &mut CpuBudget,
    ) -> Result<(usize, usize), ViewProblem> {
        self.shown = None;
        let found = self.find(text, MatchChoice::Index(self.index), effort)?;
        let index = match steps {
            0 => found.index,
            1.. => (found.index + 1) % found.count,
            _ => (found.index + found.count - 1) % found.count,
        };
        let found = self.find(text, MatchChoice::Index(index), effort)?;
        self.remember(text, &found);
        Ok((found.index + 1, found.count))
    }

    /// Returns whether all these lines were shown.
    pub(super) fn has_shown(&self, first: usize, last: usize) -> bool {
        self.seen.first <= first && last < self.seen.first + self.seen.lines.len()
    }

    /// Returns whether these lines, which were shown, are still as they were.
    pub(super) fn agrees(&self, text: &FileText, first: usize, lines: &[TextLine]) -> bool {
        let seen = self.seen.lines.iter().skip(first - self.seen.first);
        seen.zip(lines)
            .all(|(seen, line)| seen.is(text.content(*line)))
    }

    /// Returns these lines as they were shown, with their numbers.
    pub(super) fn quote(&self, first: usize, last: usize) -> String {
        let seen = self
            .seen
            .lines
            .iter()
            .skip(first - self.seen.first)
            .zip(first..=last);
        seen.fold(String::new(), |mut quoted, (line, number)| {
            push_line(&mut quoted, number, &line.beginning);
            quoted
        })
    }

    /// Follows an edit of the file, whose text is now `after`; returns false if no line of the view remains.
    pub(super) fn follow(
        &mut self,
        change: LineChange,
        after: &FileText,
        effort: &mut CpuBudget,
    ) -> bool {
        self.shown = None;
        if self.seen.lines.is_empty() {
            return true;
        }
        let (old_start, old_end) = (self.seen.first, self.seen.first + self.seen.lines.len() - 1);
        let is_replaced = 0 < change.added;
        let start = change.moved(old_start);
        if start.is_none() && !is_replaced && old_end <= change.last {
            return false;
        }
        let first = start.unwrap_or(change.first);
        if start.is_none() {
            self.start = literal(after, first).unwrap_or_else(|| self.start.clone());
        }
        if !self.seen.is_cut {
            let end = change.moved(old_end);
            if end.is_none() && !is_replaced && change.first <= old_start {
                return false;
            }
            let last = end.unwrap_or((change.first + change.added).saturating_sub(1));
            if end.is_none() {
                self.end = literal(after, last).unwrap_or_else(|| self.end.clone());
            }
            self.settle_end(after, first, last, effort);
        }
        self.seen = SeenView::default();
        if let Ok(found) = self.find(after, MatchChoice::Line(first), effort) {
            self.remember(after, &found);
        }
        true
    }

    /// Makes the end of the view be found at `last`, as far as a pattern can say so.
    fn settle_end(&mut self, after: &FileText, first: usize, last: usize, effort: &mut CpuBudget) {
        self.is_single = first == last;
        let between = if self.end.is_literal() {
            after.numbered(first + 1, last.saturating_sub(1))
        } else {
            Vec::new()
        };
        let is_end = |line: &&TextLine| {
            self.end
                .matches(after.content(**line), effort)
                .unwrap_or(false)
        };
        self.passed = between.iter().filter(is_end).count();
    }

    fn find(
        &self,
        text: &FileText,
        choice: MatchChoice,
        effort: &mut CpuBudget,
    ) -> Result<PatternMatch, ViewProblem> {
        let (mut at, mut number, mut count) = (text.top(), 1, 0);
        let (mut chosen, mut is_settled) = (None, false);
        while let Some(line) = self.start.next_line(text, at, effort)? {
            number += text.newlines(at..line.start);
            if !is_settled {
                chosen = Some((count, number, line));
                is_settled = match choice {
                    MatchChoice::Index(index) => index == count,
                    MatchChoice::Line(wanted) => wanted == number,
                };
            }
            (at, number, count) = (line.next, number + 1, count + 1);
        }
        match (chosen, choice) {
            (None, _) => Err(ViewProblem::NoMatch),
            (Some(_), MatchChoice::Line(_)) if !is_settled => {
                self.find(text, MatchChoice::Index(self.index), effort)
            }
            (Some((index, first, line)), _) => {
                let (lines, is_cut) = self.extent(text, line, effort)?;
                Ok(PatternMatch {
                    index,
                    count,
                    first,
                    lines,
                    is_cut,
                })
            }
        }
    }

    /// Returns the lines from the first one to the end, and whether the end was not found.
    fn extent(
        &self,
        text: &FileText,
        first: TextLine,
        effort: &mut CpuBudget,
    ) -> Result<(Vec<TextLine>, bool), TooSlow> {
        let (mut lines, mut ends) = (Vec::new(), Vec::new());
        for line in text.lines_from(first.start).take(MAX_LINES) {
            let may_end = self.is_single || !lines.is_empty();
            lines.push(line);
            if may_end && self.end.matches(text.content(line), effort)? {
                ends.push(lines.len());
                if self.passed < ends.len() {
                    break;
                }
            }
        }
        lines.truncate(ends.last().copied().unwrap_or(lines.len()));
        Ok((lines, ends.is_empty()))
    }

    fn remember(&mut self, text: &FileText, found: &PatternMatch) {
        self.index = found.index;
        let lines = found
            .lines
            .iter()
            .map(|line| SeenLine::of(text.content(*line)))
            .collect();
        self.seen = SeenView {
            first: found.first,
            lines,
            is_cut: found.is_cut,
        };
    }

    fn render(&self, text: &FileText, found: &PatternMatch, screen: &mut String) {
        let FileView {
            id,
            path,
            start,
            end,
            ..
        } = self;
        let _ = write!(
            screen,
            "  [{id}] {path} /{start}/ to /{end}/ (match {}/{})",
            found.index + 1,
            found.count
        );
        if let Some(label) = &self.label {
            let _ = write!(screen, " \"{label}\"");
        }
        for (line, number) in found.lines.iter().zip(found.first..) {
            push_line(screen, number, text.content(*line));
        }
        if found.is_cut {
            let _ = write!(
                screen,
                "\n    [TRUNCATED: end pattern not found within {MAX_LINES} lines]"
            );
        }
    }
}

impl LineChange {
    /// Returns where a line is now, if it was not replaced.
    fn moved(&self, line: usize) -> Option<usize> {
        match line {
            _ if line < self.first => Some(line),
            _ if self.last < line => Some(line - self.last + self.first + self.added - 1),
            _ => None,
        }
    }
}

impl SeenLine {
    fn of(line: &[u8]) -> SeenLine {
        let beginning = line[..line.len().min(REMEMBERED_BYTES)].into();
        SeenLine {
            beginning,
            whole: (REMEMBERED_BYTES < line.len()).then(|| Sha256::digest(line).into()),
        }
    }

    fn is(&self, line: &[u8]) -> bool {
        line.starts_with(&self.beginning) && *self == SeenLine::of(line)
    }
}

impl fmt::Display for ViewProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ViewProblem::NoMatch => "patterns not found",
            ViewProblem::TooSlow => "its patterns take too long",
        })
    }
}

impl From<TooSlow> for ViewProblem {
    fn from(_: TooSlow) -> ViewProblem {
        ViewProblem::TooSlow
    }
}

/// Adds a line as the screen shows it, on a line of its own.
pub(super) fn push_line(screen: &mut String, number: usize, line: &[u8]) {
    let _ = write!(screen, "\n{number:>7}  {}", shown(line));
}

fn literal(text: &FileText, number: usize) -> Option<Pattern> {
    text.numbered(number, number)
        .first()
        .map(|line| Pattern::literal(text.content(*line)))
}
