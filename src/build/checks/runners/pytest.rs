//! pytest: its summary, the names of its tests, its failures.

use std::collections::{HashMap, VecDeque};

use super::traceback::Traceback;
use crate::build::checks::failures::{CauseGroups, placed, push_line};
use crate::build::checks::summary::{
    NamedOutcome, StreamSummary, TestCounts, TestOutcome, count, is_duration, items,
};

/// The last session counts. It is not complete without its summary, or if `pytest.exit` ended it.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut is_left = false;
    for line in text.lines() {
        let words = line.trim_matches('=').trim();
        if words == "test session starts" && line.starts_with('=') {
            last = Some(StreamSummary::BROKEN_OFF);
            is_left = false;
        } else if line.starts_with("!!!") && line.contains("_pytest.outcomes.Exit: ") {
            is_left = true;
        } else if let Some(counts) = counts_of(words) {
            last = Some(StreamSummary {
                is_complete: !is_left,
                ..StreamSummary::whole(counts)
            });
        }
    }
    last
}

fn counts_of(words: &str) -> Option<TestCounts> {
    let (list, time) = words.rsplit_once(" in ")?;
    let (seconds, clock) = time.split_once(' ').unwrap_or((time, "()"));
    if !is_duration(seconds) || !clock.starts_with('(') || !clock.ends_with(')') {
        return None;
    }
    if list == "no tests ran" || list.starts_with("no tests collected") || is_collection(list) {
        return Some(TestCounts::default());
    }
    let items = items(list, ',')?;
    let mut counts = TestCounts::of(
        &items,
        &["passed", "xfailed", "xpassed"],
        &["failed"],
        &["skipped"],
        &UNCOUNTED,
    )?;
    counts.failed = counts.failed.saturating_add(errors(list));
    Some(counts)
}

const UNCOUNTED: [&str; 10] = [
    "deselected",
    "warning",
    "warnings",
    "error",
    "errors",
    "rerun",
    "subtests passed",
    "subtests failed",
    "subtests skipped",
    "subtests xfailed",
];

/// `7 tests collected`, `1/7 tests collected (6 deselected)`, `1 test collected, 1 error`.
fn is_collection(list: &str) -> bool {
    let Some((number, rest)) = list.split_once(' ') else {
        return false;
    };
    number.split('/').all(|part| count(part).is_some())
        && (rest.starts_with("tests collected") || rest.starts_with("test collected"))
}

/// Errors in fixtures or while collecting: failures without an executed test.
fn errors(list: &str) -> u32 {
    let items = items(list, ',').unwrap_or_default();
    items
        .iter()
        .filter(|(_, word)| matches!(*word, "error" | "errors"))
        .fold(0, |sum, (number, _)| sum.saturating_add(*number))
}

/// `tests/test_a.py::test_x PASSED [ 50%]`, and `FAILED tests/test_a.py::test_x - assert ...` at the end.
pub(super) fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    const WORDS: [(&str, TestOutcome); 6] = [
        ("PASSED", TestOutcome::Passed),
        ("XPASS", TestOutcome::Passed),
        ("XFAIL", TestOutcome::Passed),
        ("FAILED", TestOutcome::Failed),
        ("ERROR", TestOutcome::Failed),
        ("SKIPPED", TestOutcome::Skipped),
    ];
    for (word, outcome) in WORDS {
        if let Some(name) = line
            .strip_prefix(word)
            .and_then(|rest| rest.strip_prefix(' '))
        {
            let name = name.split_once(" - ").map_or(name, |(name, _)| name);
            return name.contains("::").then_some((name, outcome));
        }
        if let Some((name, rest)) = line
            .split_once(word)
            .filter(|(name, _)| name.contains("::") && name.ends_with(' '))
        {
            let is_end =
                rest.trim().is_empty() || rest.trim().ends_with("%]") || rest.starts_with(" (");
            return is_end.then_some((name, outcome));
        }
    }
    None
}

/// The sections of failures and errors. The short summary has the full names of their tests, and tests without a section.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut names = SummaryNames::read(text);
    let mut section: Option<FailureSection> = None;
    let mut is_inside = false;
    for line in text.lines() {
        if let Some(heading) = rule(line, '=') {
            finish(section.take(), &mut names, groups);
            is_inside = matches!(heading, "FAILURES" | "ERRORS");
        } else if let Some(title) = section_title(line, is_inside) {
            finish(section.take(), &mut names, groups);
            section = Some(FailureSection {
                title: title.to_owned(),
                ..FailureSection::default()
            });
        } else if let Some(section) = &mut section {
            section.take(line);
        }
    }
    finish(section, &mut names, groups);
    for (name, message) in names.left() {
        groups.add(name, "", message);
    }
}

/// The title of a section, or of a broken conftest.py, which is reported before any section.
fn section_title(line: &str, is_inside: bool) -> Option<&str> {
    let title = if is_inside { rule(line, '_') } else { None };
    title.or_else(|| {
        line.strip_suffix('.')
            .unwrap_or(line)
            .strip_prefix("ImportError while loading ")
    })
}

fn finish(section: Option<FailureSection>, names: &mut SummaryNames, groups: &mut CauseGroups) {
    if let Some(section) = section {
        let full_name = names
            .take(&section.title)
            .unwrap_or(&section.title)
            .to_owned();
        section.finish(&full_name, groups);
    }
}

/// The words in a line such as `____ test_add ____`; `None` for `_ _ _ _`, which separates the frames of a failure.
fn rule(line: &str, character: char) -> Option<&str> {
    let (left, rest) = line.split_once(' ')?;
    let (words, right) = rest.trim_end().rsplit_once(' ')?;
    let is_rule = |text: &str| !text.is_empty() && text.chars().all(|found| found == character);
    let words = words.trim();
    let has_words = words.contains(|found: char| found != character && found != ' ');
    (is_rule(left) && is_rule(right) && has_words).then_some(words)
}

/// The tests of the short summary, by the title of their section.
struct SummaryNames<'a> {
    listed: Vec<Option<(&'a str, &'a str)>>,
    by_title: HashMap<String, VecDeque<usize>>,
}

impl<'a> SummaryNames<'a> {
    fn read(text: &'a str) -> Self {
        let mut names = SummaryNames {
            listed: Vec::new(),
            by_title: HashMap::new(),
        };
        let mut is_inside = false;
        for line in text.lines() {
            if let Some(heading) = rule(line, '=') {
                is_inside = heading == "short test summary info";
            } else if let Some(entry) = is_inside.then(|| summary_line(line)).flatten() {
                names
                    .by_title
                    .entry(title(entry.0))
                    .or_default()
                    .push_back(names.listed.len());
                names.listed.push(Some(entry));
            }
        }
        names
    }

    /// The full name of a section's test. Each is used once: two files may have tests of the same name.
    fn take(&mut self, section: &str) -> Option<&'a str> {
        let key = [
            "ERROR at setup of ",
            "ERROR at teardown of ",
            "ERROR collecting ",
        ]
        .iter()
        .find_map(|prefix| section.strip_prefix(prefix))
        .unwrap_or(section);
        let index = self.by_title.get_mut(key)?.pop_front()?;
        self.listed[index].take().map(|(name, _)| name)
    }

    fn left(&self) -> impl Iterator<Item = &(&'a str, &'a str)> {
        self.listed.iter().flatten()
    }
}

/// `FAILED test_calc.py::test_add - assert -1 == 3`, `ERROR test_imp.py`.
fn summary_line(line: &str) -> Option<(&str, &str)> {
    let rest = line
        .strip_prefix("FAILED ")
        .or_else(|| line.strip_prefix("ERROR "))?;
    Some(rest.split_once(" - ").unwrap_or((rest, "")))
}

/// `a.py::TestX::test_m[1]` has the section `TestX.test_m[1]`; `a.py` has its own name.
fn title(name: &str) -> String {
    let Some((_, inside)) = name.split_once("::") else {
        return name.to_owned();
    };
    let (path, parameters) = inside.split_at(inside.find('[').unwrap_or(inside.len()));
    path.replace("::", ".") + parameters
}

/// One failure.
#[derive(Default)]
struct FailureSection {
    title: String,
    message: Vec<String>,
    source: String,
    place: String,
    native: Traceback,
    is_over: bool,
}

impl FailureSection {
    fn take(&mut self, line: &str) {
        // What follows was printed by the test and is not reliable.
        self.is_over |= rule(line, '-').is_some_and(|heading| heading.starts_with("Captured "));
        if self.is_over {
            return;
        }
        if let Some(message) = line
            .strip_prefix("E ")
            .or_else(|| line.strip_prefix('E').filter(|rest| rest.is_empty()))
        {
            push_line(&mut self.message, message);
        } else if let Some(source) = line.strip_prefix("> ") {
            source.trim().clone_into(&mut self.source);
        } else if let Some((place, _)) = placed(line) {
            place.clone_into(&mut self.place);
        } else {
            self.native.take(line);
        }
    }

    fn finish(mut self, name: &str, groups: &mut CauseGroups) {
        if self.message.is_empty() && !self.native.message.is_empty() {
            self.message = std::mem::take(&mut self.native.message);
            self.place = self.native.place();
        } else if !self.place.is_empty() && !self.source.is_empty() {
            self.place = format!("{}: {}", self.place, self.source);
        }
        // E lines are indented like the source.
        let lines = self.message.iter().filter(|line| !line.trim().is_empty());
        let indentation = lines
            .map(|line| line.len() - line.trim_start_matches(' ').len())
            .min()
            .unwrap_or(0);
        let message: Vec<&str> = self
            .message
            .iter()
            .map(|line| line.get(indentation..).unwrap_or_default())
            .collect();
        groups.add(name, &self.place, &message.join("\n"));
    }
}
