//! node's own test runner: its summary, the names of its tests, the failures of its `spec` reporter. Its TAP is read in `tap.rs`.

use super::generic;
use super::tap::NO_REASON;
use crate::build::checks::failures::{CauseGroups, clipped, push_line};
use crate::build::checks::summary::{StreamSummary, TestCounts, TestNames, TestOutcome, count};

/// A block of `# tests 3`, `# pass 2`, ...; the spec reporter writes `ℹ` for `#`. Tape prints the same, with less.
pub fn summary(text: &str) -> Option<StreamSummary> {
    let mut last = None;
    let mut block: Option<SummaryBlock> = None;
    let (mut has_inner, mut empty_files) = (false, 0);
    for line in text.lines() {
        let Some((name, number)) = node_line(line) else {
            let is_point = passed_point(line).is_some() || line.starts_with("not ok ");
            empty_files += u32::from(!has_inner && passed_point(line).is_some_and(is_file_name));
            has_inner = if is_point {
                false
            } else {
                has_inner || is_inner_point(line)
            };
            continue;
        };
        match (name, &mut block) {
            ("tests", _) => {
                block = Some(SummaryBlock {
                    tests: number.saturating_sub(empty_files),
                    skipped: 0,
                    failed: 0,
                });
                empty_files = 0;
            }
            ("skipped", Some(block)) => block.skipped = number,
            ("fail" | "cancelled", Some(block)) => {
                block.failed = block.failed.saturating_add(number)
            }
            _ => {}
        }
        // The word alone could be a comment; with what passed beside it, it is a summary.
        if let (Some(block), true) = (
            &block,
            matches!(name, "pass" | "fail" | "cancelled" | "skipped"),
        ) {
            let executed = block.tests.saturating_sub(block.skipped);
            last = Some(StreamSummary::whole(TestCounts::new(
                executed,
                block.failed,
                block.skipped,
            )));
        }
    }
    last
}

struct SummaryBlock {
    tests: u32,
    skipped: u32,
    failed: u32,
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

/// Whether node names a file and not a test: one in which it found none counts as a test that passed.
fn is_file_name(name: &str) -> bool {
    let endings = [".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"];
    !name.contains(' ') && endings.iter().any(|ending| name.ends_with(ending))
}

/// TAP points at every level, and the marks of node's spec reporter. A failed test that only holds a failed one counts
/// as failed too.
pub fn names(text: &str, names: &mut TestNames) {
    for line in text.lines().map(str::trim_start) {
        let point = line
            .strip_prefix("not ok ")
            .map(|rest| (rest, TestOutcome::Failed));
        let point = point.or_else(|| {
            line.strip_prefix("ok ")
                .map(|rest| (rest, TestOutcome::Passed))
        });
        let mark = [
            ("✔ ", TestOutcome::Passed),
            ("✖ ", TestOutcome::Failed),
            ("﹣ ", TestOutcome::Skipped),
        ];
        let mark = mark
            .iter()
            .find_map(|(mark, outcome)| Some((line.strip_prefix(mark)?, *outcome)));
        let (name, outcome) = match (point, mark) {
            (Some((rest, outcome)), _) => {
                let Some((_, name)) = rest.split_once(" - ") else {
                    continue;
                };
                (name, outcome)
            }
            (None, Some((rest, outcome))) => {
                let Some((name, time)) = rest.rsplit_once(" (") else {
                    continue;
                };
                (
                    name,
                    if time.contains(") # SKIP") {
                        TestOutcome::Skipped
                    } else {
                        outcome
                    },
                )
            }
            (None, None) => continue,
        };
        let (name, directive) = name.split_once(" # ").unwrap_or((name, ""));
        let directive = directive.to_ascii_uppercase();
        match outcome {
            _ if is_file_name(name) => {}
            _ if directive.starts_with("SKIP") => names.add(name, TestOutcome::Skipped),
            TestOutcome::Failed if directive.starts_with("TODO") => {
                names.add(name, TestOutcome::Passed)
            }
            outcome => names.add(name, outcome),
        }
    }
}

/// Reads the list of failing tests at the end of the `spec` reporter.
pub fn failures(text: &str, groups: &mut CauseGroups) {
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

/// The stack ends what is worth reading of a test.
fn add(test: &mut Option<(&str, Vec<String>)>, place: &str, groups: &mut CauseGroups) {
    if let Some((name, message)) = test.take() {
        groups.add(name, place, &message.join("\n"));
    }
}
