//! node's own test runner: its summary, the names of its tests, the failures of its `spec` reporter.
//! `tap.rs` reads the failures of its TAP.

use super::generic;
use super::tap::NO_REASON;
use crate::build::checks::failures::{CauseGroups, clipped, push_line};
use crate::build::checks::summary::{NamedOutcome, StreamSummary, TestCounts, TestOutcome, count};

/// A block of `# tests 3`, `# pass 2`, ...; the spec reporter writes `ℹ` for `#`. Tape prints a shorter one.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let mut reader = NodeSummary::default();
    text.lines().for_each(|line| reader.take(line));
    reader.last
}

#[derive(Default)]
struct NodeSummary {
    last: Option<StreamSummary>,
    block: Option<SummaryBlock>,
    /// Whether the current point has points inside.
    has_inner: bool,
    /// Files without a test, which node counts as tests.
    empty_files: u32,
}

struct SummaryBlock {
    tests: u32,
    skipped: u32,
    failed: u32,
}

impl NodeSummary {
    fn take(&mut self, line: &str) {
        match node_line(line) {
            Some((name, number)) => self.take_count(name, number),
            None => self.take_point(line),
        }
    }

    fn take_point(&mut self, line: &str) {
        let passed = passed_point(line);
        if !self.has_inner && passed.is_some_and(is_file_name) {
            self.empty_files += 1;
        }
        let is_point = passed.is_some() || line.starts_with("not ok ");
        self.has_inner = !is_point && (self.has_inner || is_inner_point(line));
    }

    fn take_count(&mut self, name: &str, number: u32) {
        if name == "tests" {
            self.block = Some(SummaryBlock {
                tests: number.saturating_sub(std::mem::take(&mut self.empty_files)),
                skipped: 0,
                failed: 0,
            });
        }
        let Some(block) = &mut self.block else { return };
        match name {
            "skipped" => block.skipped = number,
            "fail" | "cancelled" => block.failed = block.failed.saturating_add(number),
            "pass" => {}
            // `# tests 3` alone could be a comment; followed by another count, it is a summary.
            _ => return,
        }
        let executed = block.tests.saturating_sub(block.skipped);
        let counts = TestCounts::new(executed, block.failed, block.skipped);
        self.last = Some(StreamSummary::whole(counts));
    }
}

fn node_line(line: &str) -> Option<(&str, u32)> {
    let rest = line
        .strip_prefix("# ")
        .or_else(|| line.strip_prefix("ℹ "))?;
    let (name, number) = rest.trim_end().split_once(' ')?;
    Some((name, count(number.trim_start())?))
}

/// The name in `ok 1 - adds` or `✔ adds (0.4ms)` at the outermost level.
fn passed_point(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("✔ ") {
        return Some(rest.rsplit_once(" (").map_or(rest, |(name, _)| name));
    }
    line.strip_prefix("ok ")?
        .split_once(" - ")
        .map(|(_, name)| name.trim_end())
}

fn is_inner_point(line: &str) -> bool {
    let trimmed = line.trim_start();
    trimmed.len() < line.len() && (trimmed.starts_with("ok ") || trimmed.starts_with("not ok "))
}

/// Whether a name is a file's: node counts a file without tests as a test that passed.
fn is_file_name(name: &str) -> bool {
    let endings = [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"];
    !name.contains(' ') && endings.iter().any(|ending| name.ends_with(ending))
}

/// TAP points at every level, and the marks of the spec reporter. A test that fails because of its subtests counts as
/// failed, too.
pub(super) fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    let line = line.trim_start();
    let (name, outcome) = tap_point(line).or_else(|| spec_mark(line))?;
    let (name, directive) = name.split_once(" # ").unwrap_or((name, ""));
    let directive = directive.to_ascii_uppercase();
    let outcome = match outcome {
        _ if is_file_name(name) => return None,
        _ if directive.starts_with("SKIP") => TestOutcome::Skipped,
        TestOutcome::Failed if directive.starts_with("TODO") => TestOutcome::Passed,
        outcome => outcome,
    };
    Some((name, outcome))
}

/// `not ok 2 - name # TODO`, with the directive.
fn tap_point(line: &str) -> Option<NamedOutcome<'_>> {
    let (rest, outcome) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, TestOutcome::Failed),
        None => (line.strip_prefix("ok ")?, TestOutcome::Passed),
    };
    Some((rest.split_once(" - ")?.1, outcome))
}

/// `✔ name (0.4ms)`, `✔ name (0.4ms) # SKIP`.
fn spec_mark(line: &str) -> Option<NamedOutcome<'_>> {
    const MARKS: [(&str, TestOutcome); 3] = [
        ("✔ ", TestOutcome::Passed),
        ("✖ ", TestOutcome::Failed),
        ("﹣ ", TestOutcome::Skipped),
    ];
    let (rest, outcome) = MARKS
        .iter()
        .find_map(|(mark, outcome)| Some((line.strip_prefix(mark)?, *outcome)))?;
    let (name, time) = rest.rsplit_once(" (")?;
    let is_skipped = time.contains(") # SKIP");
    Some((
        name,
        if is_skipped {
            TestOutcome::Skipped
        } else {
            outcome
        },
    ))
}

/// The list of failing tests at the end of the `spec` reporter.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut place = "";
    let mut test: Option<(&str, Vec<String>)> = None;
    let mut has_crashed = false;
    for line in text.lines().skip_while(|line| *line != "✖ failing tests:") {
        if let Some(location) = line.strip_prefix("test at ") {
            add(&mut test, place, groups);
            place = clipped(location);
        } else if let Some(name) = line.strip_prefix("✖ ").filter(|_| !place.is_empty()) {
            add(&mut test, place, groups);
            test = Some((
                name.rsplit_once(" (").map_or(name, |(name, _)| name),
                Vec::new(),
            ));
        } else if line.trim_start().starts_with("at ") {
            add(&mut test, place, groups);
        } else if let Some((_, message)) = &mut test {
            has_crashed |= line.trim().trim_matches('\'') == NO_REASON;
            push_line(message, line.strip_prefix("  ").unwrap_or(line));
        }
    }
    add(&mut test, place, groups);
    if has_crashed {
        generic::failures(text, groups);
    }
}

fn add(test: &mut Option<(&str, Vec<String>)>, place: &str, groups: &mut CauseGroups) {
    if let Some((name, message)) = test.take() {
        groups.add(name, place, &message.join("\n"));
    }
}
