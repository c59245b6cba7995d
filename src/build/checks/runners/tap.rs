//! TAP, which many runners write: its summary, and failures with their details.

use super::generic;
use crate::build::checks::failures::{CauseGroups, clipped, push_line};
use crate::build::checks::summary::{StreamSummary, TestCounts, count};

/// The reason that node gives for a file that crashed; the file itself has printed the real one.
pub(super) const NO_REASON: &str = "test failed";
/// Deeper levels of subtests are not named.
const MAX_DEPTH: usize = 10;

/// The plan and the top-level points. A plan alone does not prove a test, unless it is a plan of none; a version or
/// points without a plan are not complete.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut counts = TestCounts::default();
    let (mut plan, mut is_tap, mut has_version) = (None, false, false);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("1..") {
            plan = plan.or_else(|| count(rest.split(" #").next().unwrap_or(rest).trim()));
        } else if line.starts_with("TAP version ") {
            is_tap = true;
            has_version = true;
        } else if let Some((is_ok, directive)) = point(line) {
            is_tap = true;
            let skipped = u32::from(directive.starts_with("SKIP"));
            let failed = u32::from(!is_ok && !directive.starts_with("TODO"));
            counts = counts.plus(TestCounts::new(1 - skipped, failed, skipped));
        }
    }
    let planned = plan
        .filter(|tests| is_tap || *tests == 0)
        .map(|_| StreamSummary::whole(counts));
    planned.or(has_version.then_some(StreamSummary::BROKEN_OFF))
}

/// `not ok 3 - name # TODO later`: whether it is ok, and its directive in capitals.
fn point(line: &str) -> Option<(bool, String)> {
    let (is_ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    if !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let directive = rest
        .rsplit_once("# ")
        .map_or("", |(_, directive)| directive);
    Some((
        is_ok,
        directive
            .chars()
            .take(4)
            .collect::<String>()
            .to_ascii_uppercase(),
    ))
}

/// The points that are not ok, with their details.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut names: Vec<&str> = Vec::new();
    let mut point: Option<TapPoint> = None;
    let mut has_crashed = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let depth = ((line.len() - trimmed.len()) / 4).min(MAX_DEPTH);
        let is_over = point
            .as_mut()
            .is_some_and(|point| !point.take(trimmed, line));
        if is_over && let Some(point) = point.take() {
            has_crashed |= point.has_no_reason();
            point.finish(groups);
        }
        if let Some(name) = trimmed.strip_prefix("# Subtest: ") {
            names.truncate(depth);
            names.push(clipped(name));
        } else if let (None, Some(name)) = (&point, failed_point(trimmed)) {
            names.truncate(depth);
            let parents: String = names.iter().map(|parent| format!("{parent} > ")).collect();
            point = Some(TapPoint::new(format!("{parents}{name}")));
        }
    }
    if let Some(point) = point {
        has_crashed |= point.has_no_reason();
        point.finish(groups);
    }
    if has_crashed {
        let printed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# "))
            .collect();
        generic::failures(&printed.join("\n"), groups);
    }
}

/// `not ok 2 - name`; a point marked TODO may fail.
fn failed_point(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("not ok ")?;
    let name = rest
        .trim_start_matches(|character: char| character.is_ascii_digit())
        .trim_start();
    let is_to_do = rest
        .rsplit_once("# ")
        .is_some_and(|(_, directive)| directive.to_ascii_uppercase().starts_with("TODO"));
    (!is_to_do).then(|| name.strip_prefix("- ").unwrap_or(name))
}

struct TapPoint {
    name: String,
    message: Vec<String>,
    place: String,
    is_parent: bool,
    /// In the indented details between `---` and `...`.
    is_in_details: bool,
    /// In a value of several lines, and how far these are indented.
    is_in_error: bool,
    value_indentation: usize,
}

impl TapPoint {
    fn new(name: String) -> Self {
        let (message, place) = (Vec::new(), String::new());
        Self {
            name,
            message,
            place,
            is_parent: false,
            is_in_details: false,
            is_in_error: false,
            value_indentation: 0,
        }
    }

    /// Takes a line; returns whether it belongs to the point.
    fn take(&mut self, trimmed: &str, line: &str) -> bool {
        match (self.is_in_details, trimmed) {
            (false, "---") => self.is_in_details = true,
            (true, "...") => return false,
            (true, _) => self.detail(trimmed, line),
            (false, comment) if comment.starts_with('#') && !is_summary(comment) => {
                push_line(&mut self.message, comment.trim_start_matches('#').trim());
            }
            (false, _) => return false,
        }
        true
    }

    fn detail(&mut self, trimmed: &str, line: &str) {
        if self.is_in_error {
            let indentation = line.len() - trimmed.len();
            if self.value_indentation == 0 {
                self.value_indentation = indentation;
            }
            if trimmed.is_empty() || self.value_indentation <= indentation {
                push_line(
                    &mut self.message,
                    line.get(self.value_indentation..).unwrap_or_default(),
                );
                return;
            }
            self.is_in_error = false;
        }
        let Some((key, value)) = trimmed.split_once(": ") else {
            return;
        };
        match key {
            "error" | "message" if value.starts_with(['|', '>']) => {
                (self.is_in_error, self.value_indentation) = (true, 0)
            }
            "error" | "message" => push_line(&mut self.message, unquoted(value)),
            "expected" | "actual" => {
                push_line(&mut self.message, &format!("{key}: {}", unquoted(value)))
            }
            "location" | "at" if self.place.is_empty() => {
                unquoted(value).clone_into(&mut self.place)
            }
            "failureType" => self.is_parent = unquoted(value) == "subtestsFailed",
            _ => {}
        }
    }

    fn has_no_reason(&self) -> bool {
        self.message == [NO_REASON]
    }

    fn finish(self, groups: &mut CauseGroups) {
        if !self.is_parent {
            groups.add(&self.name, &self.place, &self.message.join("\n"));
        }
    }
}

fn is_summary(comment: &str) -> bool {
    [
        "# Subtest",
        "# tests ",
        "# suites ",
        "# pass ",
        "# duration",
    ]
    .iter()
    .any(|prefix| comment.starts_with(prefix))
}

fn unquoted(value: &str) -> &str {
    value
        .strip_prefix(['\'', '"'])
        .and_then(|value| value.strip_suffix(['\'', '"']))
        .unwrap_or(value)
}
