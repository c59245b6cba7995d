//! The summary of a test run: how many tests there were, their results, their names.
//!
//! A pass needs evidence, so a line counts only if every word of it is known, and prose is never a count. Tests that
//! were skipped, ignored or deselected were not executed.

use std::collections::BTreeSet;

use super::runner::Runner;
use crate::text::shorten::first_bytes;

/// How many names of each kind are kept, and how long one may be.
const MAX_NAMES: usize = 20_000;
const MAX_LENGTH: usize = 300;

/// The summary in the output of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSummary {
    pub runner: Runner,
    /// `None` where the output does not count the executed tests.
    pub counts: Option<TestCounts>,
    /// Failures and errors in the output, whatever the exit code is.
    pub failed: u32,
    /// Whether everything that was started has a result.
    pub is_complete: bool,
    pub names: TestNames,
}

/// How many tests there were, by result. What failed without being executed (a fixture, an import) is only in `failed`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestCounts {
    pub executed: u32,
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// What a reader found in one stream. Without counts the runner is still known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamSummary {
    pub counts: Option<TestCounts>,
    pub failed: u32,
    pub is_complete: bool,
}

/// Names of tests, by result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestNames {
    pub executed: BTreeSet<String>,
    pub failed: BTreeSet<String>,
    pub skipped: BTreeSet<String>,
}

/// The result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOutcome {
    Passed,
    Failed,
    Skipped,
}

impl StreamSummary {
    pub(super) fn whole(counts: TestCounts) -> StreamSummary {
        StreamSummary {
            counts: Some(counts),
            failed: counts.failed,
            is_complete: true,
        }
    }

    /// A run that was started and has no result.
    pub(super) const BROKEN_OFF: StreamSummary = StreamSummary {
        counts: None,
        failed: 0,
        is_complete: false,
    };
}

impl TestCounts {
    /// Adds up items such as `3 passed`; `None` where a word is in none of the lists.
    pub fn of(
        items: &[(u32, &str)],
        ok: &[&str],
        failed: &[&str],
        skipped: &[&str],
        known: &[&str],
    ) -> Option<Self> {
        let mut counts = Self::default();
        for (number, word) in items {
            let add = |to: &mut u32| *to = to.saturating_add(*number);
            if ok.contains(word) {
                add(&mut counts.executed);
                add(&mut counts.passed);
            } else if failed.contains(word) {
                add(&mut counts.executed);
                add(&mut counts.failed);
            } else if skipped.contains(word) {
                add(&mut counts.skipped);
            } else if !known.contains(word) {
                return None;
            }
        }
        Some(counts)
    }

    /// Counts where every executed test that did not fail has passed.
    pub fn new(executed: u32, failed: u32, skipped: u32) -> Self {
        Self {
            executed,
            passed: executed.saturating_sub(failed),
            failed,
            skipped,
        }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            executed: self.executed.saturating_add(other.executed),
            passed: self.passed.saturating_add(other.passed),
            failed: self.failed.saturating_add(other.failed),
            skipped: self.skipped.saturating_add(other.skipped),
        }
    }
}

impl From<TestOutcome> for TestCounts {
    fn from(outcome: TestOutcome) -> Self {
        match outcome {
            TestOutcome::Passed => Self::new(1, 0, 0),
            TestOutcome::Failed => Self::new(1, 1, 0),
            TestOutcome::Skipped => Self::new(0, 0, 1),
        }
    }
}

impl TestNames {
    /// Adds a test; names beyond `MAX_NAMES` are dropped.
    pub fn add(&mut self, name: &str, outcome: TestOutcome) {
        let name = first_bytes(name.trim(), MAX_LENGTH);
        let put = |names: &mut BTreeSet<String>| {
            if !name.is_empty() && names.len() < MAX_NAMES {
                names.insert(name.to_owned());
            }
        };
        match outcome {
            TestOutcome::Passed => put(&mut self.executed),
            TestOutcome::Skipped => put(&mut self.skipped),
            TestOutcome::Failed => {
                put(&mut self.executed);
                put(&mut self.failed);
            }
        }
    }

    /// Adds the tests of another run.
    pub fn extend(&mut self, other: &TestNames) {
        self.executed.extend(other.executed.iter().cloned());
        self.failed.extend(other.failed.iter().cloned());
        self.skipped.extend(other.skipped.iter().cloned());
    }

    /// Adds the test that each line of the text names, if any.
    pub fn add_lines(&mut self, text: &str, read: fn(&str) -> Option<NamedOutcome<'_>>) {
        for (name, outcome) in text.lines().filter_map(read) {
            self.add(name, outcome);
        }
    }
}

/// A test and its result.
pub(super) type NamedOutcome<'a> = (&'a str, TestOutcome);

/// Reads `3 passed, 1 skipped`; `None` where an item is not a number and words.
pub(super) fn items(list: &str, separator: char) -> Option<Vec<(u32, &str)>> {
    list.split(separator)
        .map(|item| item.trim().split_once(' ').and_then(numbered))
        .collect()
}

fn numbered<'a>((number, word): (&str, &'a str)) -> Option<(u32, &'a str)> {
    Some((count(number)?, word.trim()))
}

/// A count as runners write it: only digits, since `parse` would accept a sign.
pub(super) fn count(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Whether the text is a time such as `0.01s`, `4ms` or `2m`.
pub(super) fn is_duration(text: &str) -> bool {
    let number = text
        .trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == 'µ');
    matches!(
        &text[number.len()..],
        "s" | "ms" | "µs" | "us" | "ns" | "m" | "h"
    ) && number.parse::<f64>().is_ok()
}
