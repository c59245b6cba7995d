//! The summaries of jest, vitest, node's own runner and mocha.

use super::{Counts, count, is_duration, items};

/// `Tests:       1 failed, 1 skipped, 2 passed, 4 total`.
pub fn jest(text: &str) -> Option<Counts> {
    text.lines().filter_map(jest_line).next_back()
}

fn jest_line(line: &str) -> Option<Counts> {
    let line = line.trim_end();
    if line == "No tests found" || line.starts_with("No tests found, exiting with code ") {
        return Some(Counts::default());
    }
    let items = items(line.strip_prefix("Tests:")?, ',')?;
    items.last().filter(|(_, word)| *word == "total")?;
    Counts::of(&items, &["passed"], &["failed"], &["skipped", "todo", "pending", "total"])
}

/// ` Tests  2 failed | 1 passed | 1 skipped (4)`.
pub fn vitest(text: &str) -> Option<Counts> {
    text.lines().filter_map(vitest_line).next_back()
}

fn vitest_line(line: &str) -> Option<Counts> {
    let line = line.trim();
    if line == "Tests  no tests" || line.starts_with("No test files found, exiting with code ") {
        return Some(Counts::default());
    }
    let (list, total) = line.strip_prefix("Tests ")?.trim().strip_suffix(')')?.rsplit_once(" (")?;
    count(total)?;
    Counts::of(&items(list, '|')?, &["passed", "expected fail"], &["failed"], &["skipped", "todo"])
}

/// A block of `# tests 3`, `# pass 2`, ...; the spec reporter writes `ℹ` for `#`. Tape prints the same, with less.
pub fn node(text: &str) -> Option<Counts> {
    let mut last = None;
    let mut block: Option<Block> = None;
    let (mut has_inner, mut empty_files) = (false, 0);
    for line in text.lines() {
        let Some((name, number)) = node_line(line) else {
            let is_point = passed_point(line).is_some() || line.starts_with("not ok ");
            empty_files += u32::from(!has_inner && passed_point(line).is_some_and(is_file_name));
            has_inner = if is_point { false } else { has_inner || is_inner_point(line) };
            continue;
        };
        match (name, &mut block) {
            ("tests", _) => {
                block = Some(Block { tests: number.saturating_sub(empty_files), skipped: 0, failed: 0 });
                empty_files = 0;
            }
            ("skipped", Some(block)) => block.skipped = number,
            ("fail" | "cancelled", Some(block)) => block.failed = block.failed.saturating_add(number),
            _ => {}
        }
        // The word alone could be a comment; with what passed beside it, it is a summary.
        if let (Some(block), true) = (&block, matches!(name, "pass" | "fail" | "cancelled" | "skipped")) {
            last = Some(Counts { executed: block.tests.saturating_sub(block.skipped), failed: block.failed });
        }
    }
    last
}

struct Block {
    tests: u32,
    skipped: u32,
    failed: u32,
}

fn node_line(line: &str) -> Option<(&str, u32)> {
    let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
    let (name, number) = rest.trim_end().split_once(' ')?;
    Some((name, count(number.trim_start())?))
}

/// The name in `ok 1 - adds` or `✔ adds (0.4ms)` at the outermost level.
fn passed_point(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("✔ ") {
        return Some(rest.rsplit_once(" (").map_or(rest, |(name, _)| name));
    }
    line.strip_prefix("ok ")?.split_once(" - ").map(|(_, name)| name.trim_end())
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

/// `3 passing (4ms)`, and after it `1 failing`; what is pending was not executed.
pub fn mocha(text: &str) -> Option<Counts> {
    let mut last: Option<Counts> = None;
    for line in text.lines() {
        match (mocha_line(line), &mut last) {
            (Some(("passing", number)), _) => last = Some(Counts { executed: number, failed: 0 }),
            (Some((_, number)), Some(counts)) => {
                counts.executed = counts.executed.saturating_add(number);
                counts.failed = number;
            }
            _ => {}
        }
    }
    last
}

fn mocha_line(line: &str) -> Option<(&str, u32)> {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    let is_time = |text: &str| text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).is_some_and(is_duration);
    match words.as_slice() {
        [number, "passing"] => Some(("passing", count(number)?)),
        [number, "passing", time] if is_time(time) => Some(("passing", count(number)?)),
        [number, "failing"] => Some(("failing", count(number)?)),
        _ => None,
    }
}
