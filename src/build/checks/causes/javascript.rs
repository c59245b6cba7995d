//! Failures of jest and vitest: a heading with the test's name, the message, and the place it was thrown at.

use super::generic::is_of_a_library;
use super::{CauseGroups, push_line};

/// Reads the blocks of failures.
pub fn jest_and_vitest(text: &str, groups: &mut CauseGroups) {
    let mut block: Option<FailureBlock> = None;
    let mut file = "";
    for line in text.lines() {
        file = line.strip_prefix("FAIL ").unwrap_or(file);
        if let Some(name) = jest_heading(line).or_else(|| vitest_heading(line)) {
            // Jest gives the file above what befell it as a whole.
            let name = if name == "Test suite failed to run" {
                file
            } else {
                name
            };
            finish(
                block.replace(FailureBlock {
                    name,
                    message: Vec::new(),
                    place: String::new(),
                    is_in_source: false,
                }),
                groups,
            );
        } else if is_end(line) {
            finish(block.take(), groups);
        } else if let Some(open) = &mut block
            && open.take(line)
        {
            finish(block.take(), groups);
        }
    }
    finish(block, groups);
}

fn finish(block: Option<FailureBlock>, groups: &mut CauseGroups) {
    if let Some(block) = block {
        groups.add(block.name, &block.place, &block.message.join("\n"));
    }
}

/// `  ● suite › adds`.
fn jest_heading(line: &str) -> Option<&str> {
    line.strip_prefix("  ● ")
        .filter(|name| !name.starts_with("Console") && !name.ends_with("Deprecation Warning:"))
}

/// ` FAIL  a.test.js > suite > adds`; jest writes `FAIL a.test.js`, which names no test.
fn vitest_heading(line: &str) -> Option<&str> {
    line.strip_prefix(" FAIL  ")
}

fn is_end(line: &str) -> bool {
    [
        "FAIL ",
        "PASS ",
        "Test Suites: ",
        "Tests: ",
        "Snapshot Summary",
    ]
    .iter()
    .any(|start| line.starts_with(start))
        || line.starts_with("⎯⎯⎯")
}

struct FailureBlock<'a> {
    name: &'a str,
    message: Vec<String>,
    place: String,
    is_in_source: bool,
}

impl FailureBlock<'_> {
    /// Takes a line, and says whether it was the last of interest.
    fn take(&mut self, line: &str) -> bool {
        let trimmed = line.trim();
        if let Some(place) = trimmed.strip_prefix("❯ ").or_else(|| thrown_at(trimmed)) {
            if self.place.is_empty() || !is_of_a_library(place) {
                place.clone_into(&mut self.place);
            }
            return !is_of_a_library(place);
        }
        if !self.place.is_empty() {
            return true;
        }
        self.is_in_source |= is_source(trimmed);
        if !self.is_in_source && (!trimmed.is_empty() || !self.message.is_empty()) {
            push_line(&mut self.message, line.strip_prefix("    ").unwrap_or(line));
        }
        false
    }
}

/// `at Object.toBe (a.test.js:2:32)`.
fn thrown_at(line: &str) -> Option<&str> {
    let frame = line.strip_prefix("at ")?;
    Some(
        frame
            .rsplit_once('(')
            .and_then(|(_, place)| place.strip_suffix(')'))
            .unwrap_or(frame),
    )
}

/// `> 2 | code`, `  3 | code`.
fn is_source(line: &str) -> bool {
    let line = line.strip_prefix("> ").unwrap_or(line);
    line.split_once(" |").is_some_and(|(number, _)| {
        !number.trim().is_empty() && number.trim().bytes().all(|byte| byte.is_ascii_digit())
    })
}
