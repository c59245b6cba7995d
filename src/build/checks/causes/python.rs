//! Failures of pytest and unittest, and the traceback that both end in.

use super::{CauseGroups, placed, push_line};
use std::collections::{HashMap, VecDeque};

/// Reads the sections of failures and errors; the short summary gives their tests full names, and what has no section.
pub fn pytest(text: &str, groups: &mut CauseGroups) {
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

/// A broken conftest.py is told before any section, in the same words.
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

/// The words in a line such as `____ test_add ____`; nothing in `_ _ _ _`, which parts the frames of one failure.
fn rule(line: &str, character: char) -> Option<&str> {
    let (left, rest) = line.split_once(' ')?;
    let (words, right) = rest.trim_end().rsplit_once(' ')?;
    let is_rule = |text: &str| !text.is_empty() && text.chars().all(|found| found == character);
    let words = words.trim();
    let says_something = words.contains(|found: char| found != character && found != ' ');
    (is_rule(left) && is_rule(right) && says_something).then_some(words)
}

/// The tests of the short summary, by the title their section has.
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

    /// The full name of the section's test. Each is used up once: two files may have tests of one name.
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

/// What is read of one failure.
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
        // What the test printed follows, and says nothing reliable.
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
        // E lines are indented as the source is; the message is not.
        let said = self.message.iter().filter(|line| !line.trim().is_empty());
        let indentation = said
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

/// Reads the blocks that unittest prints for each failure and error.
pub fn unittest(text: &str, groups: &mut CauseGroups) {
    let mut block: Option<(String, Traceback)> = None;
    let mut was_double_rule = false;
    for line in text.lines() {
        let is_double_rule = is_line_of(line, '=');
        let heading = line
            .strip_prefix("FAIL: ")
            .or_else(|| line.strip_prefix("ERROR: "));
        if let (true, Some(name)) = (was_double_rule, heading) {
            block = Some((name.to_owned(), Traceback::default()));
        } else if is_double_rule
            || (is_line_of(line, '-') && block.as_ref().is_some_and(|(_, found)| found.has_begun))
        {
            finish_block(block.take(), groups);
        } else if let Some((_, traceback)) = &mut block {
            traceback.take(line);
        }
        was_double_rule = is_double_rule;
    }
    finish_block(block, groups);
}

fn finish_block(block: Option<(String, Traceback)>, groups: &mut CauseGroups) {
    if let Some((name, traceback)) = block {
        groups.add(&name, &traceback.place(), &traceback.message.join("\n"));
    }
}

fn is_line_of(line: &str, character: char) -> bool {
    20 <= line.len() && line.chars().all(|found| found == character)
}

/// A traceback as Python prints it: the last frame, and all that is said after it.
#[derive(Default)]
pub struct Traceback {
    pub message: Vec<String>,
    frame: String,
    source: String,
    pub has_begun: bool,
    is_in_frame: bool,
}

impl Traceback {
    pub fn take(&mut self, line: &str) {
        if let Some(frame) = line.strip_prefix("  File \"") {
            self.begin();
            self.frame = frame_place(frame);
            self.source.clear();
            self.is_in_frame = true;
        } else if line.starts_with("Traceback (most recent call last)") {
            self.begin();
        } else if self.is_in_frame && line.starts_with("    ") {
            if self.source.is_empty() {
                line.trim().clone_into(&mut self.source);
            }
        } else if line.starts_with("  [Previous line repeated") {
            self.is_in_frame = true;
        } else if self.has_begun && (!line.is_empty() || !self.message.is_empty()) {
            self.is_in_frame = false;
            push_line(&mut self.message, line);
        }
    }

    /// Another one in the chain: what was said before led to it, and the last is what failed.
    fn begin(&mut self) {
        self.message.clear();
        self.has_begun = true;
    }

    pub fn place(&self) -> String {
        if self.source.is_empty() {
            self.frame.clone()
        } else {
            format!("{}: {}", self.frame, self.source)
        }
    }
}

/// `calc.py", line 3, in add` as `calc.py:3`.
fn frame_place(frame: &str) -> String {
    let Some((path, rest)) = frame.split_once("\", line ") else {
        return frame.to_owned();
    };
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    format!("{path}:{digits}")
}
