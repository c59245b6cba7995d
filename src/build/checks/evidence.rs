//! What a check's output says of its tests: which runner it was, how many tests were executed, whether it came to its end.
//!
//! A pass needs evidence, so what is not clearly a summary is none: whole lines alone are looked at, every word of
//! them must be known, and ordinary prose is never a count. Tests that were skipped, ignored or deselected were not
//! executed. `runner.rs` knows runners by their commands; `channel.rs` has what pytest, unittest, node and jest report
//! outside of their output; `weigh.rs` holds all of it together.

pub mod channel;
mod compiled;
mod go;
mod javascript;
mod names;
mod protocol;
mod python;
pub mod reporters;
pub mod runner;
#[cfg(test)]
mod tests;
pub mod weigh;

pub use self::go::without_passed_tests;
pub use self::names::TestNames;
pub use self::runner::Runner;

/// What a runner's output says at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestSummary {
    pub runner: Runner,
    /// Nothing where the output does not say how many tests were executed.
    pub counts: Option<TestCounts>,
    /// Failures and errors that the output admits, whatever the exit code was.
    pub failed: u32,
    /// Whether everything that began has its result.
    pub is_complete: bool,
    pub names: TestNames,
}

/// How many tests there were, by what became of them. What failed without being executed (a fixture, an import) is in
/// `failed` alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestCounts {
    pub executed: u32,
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// Reads one runner's summary out of one stream.
type SummaryReader = fn(&str) -> Option<StreamSummary>;

/// What a reader found in a stream; without counts the runner is known all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamSummary {
    counts: Option<TestCounts>,
    failed: u32,
    is_complete: bool,
}

/// The most particular format goes first: a jest run may print the TAP of what it loads, nobody prints pytest's line.
const FORMATS: [(Runner, SummaryReader); 15] = [
    (Runner::Pytest, python::pytest),
    (Runner::Unittest, python::unittest),
    (Runner::Nextest, compiled::nextest),
    (Runner::Cargo, compiled::cargo),
    (Runner::Go, go::json),
    (Runner::Go, go::text),
    (Runner::Jest, javascript::jest),
    (Runner::Vitest, javascript::vitest),
    (Runner::Node, javascript::node),
    (Runner::Mocha, javascript::mocha),
    (Runner::Ctest, compiled::ctest),
    (Runner::Jest, javascript::jest_json),
    (Runner::Mocha, javascript::mocha_json),
    (Runner::Junit, protocol::junit),
    (Runner::Tap, protocol::tap),
];

/// Returns what the output says at its end, or nothing where no runner is recognised. A runner that the command names
/// is looked for first.
pub fn summary(known: Option<Runner>, stdout: &str, stderr: &str) -> Option<TestSummary> {
    let is_named = |(runner, _): &&(Runner, SummaryReader)| known == Some(*runner);
    let read = |(runner, read): &(Runner, SummaryReader)| {
        let found = read(stdout).or_else(|| read(stderr))?;
        let StreamSummary {
            counts,
            failed,
            is_complete,
        } = found;
        let is_complete = is_complete && is_whole(*runner, stdout, stderr);
        Some(TestSummary {
            runner: *runner,
            counts,
            failed,
            is_complete,
            names: names::read(*runner, stdout, stderr),
        })
    };
    FORMATS
        .iter()
        .filter(is_named)
        .find_map(read)
        .or_else(|| FORMATS.iter().find_map(read))
}

/// Whether what began on one stream has its result on the other.
fn is_whole(runner: Runner, stdout: &str, stderr: &str) -> bool {
    match runner {
        Runner::Cargo => compiled::cargo_is_whole(stdout, stderr),
        _ => true,
    }
}

impl StreamSummary {
    fn whole(counts: TestCounts) -> StreamSummary {
        StreamSummary {
            counts: Some(counts),
            failed: counts.failed,
            is_complete: true,
        }
    }

    /// Something began, and there is no result.
    const BROKEN_OFF: StreamSummary = StreamSummary {
        counts: None,
        failed: 0,
        is_complete: false,
    };
}

impl TestCounts {
    /// Adds up items such as `3 passed`; refuses a list with a word that is in none of the lists.
    fn of(
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

    /// Returns counts of which what was executed and did not fail has passed.
    fn new(executed: u32, failed: u32, skipped: u32) -> Self {
        Self {
            executed,
            passed: executed.saturating_sub(failed),
            failed,
            skipped,
        }
    }

    /// Returns both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            executed: self.executed.saturating_add(other.executed),
            passed: self.passed.saturating_add(other.passed),
            failed: self.failed.saturating_add(other.failed),
            skipped: self.skipped.saturating_add(other.skipped),
        }
    }
}

/// Reads `3 passed, 1 skipped`; nothing where an item is not a number and words.
fn items(list: &str, separator: char) -> Option<Vec<(u32, &str)>> {
    list.split(separator)
        .map(|item| item.trim().split_once(' ').and_then(numbered))
        .collect()
}

fn numbered<'a>((number, word): (&str, &'a str)) -> Option<(u32, &'a str)> {
    Some((count(number)?, word.trim()))
}

/// A count as runners write it: digits alone, since `parse` would take a sign.
fn count(text: &str) -> Option<u32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Whether the text is a time such as `0.01s`, `4ms` or `2m`.
fn is_duration(text: &str) -> bool {
    let number = text
        .trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == 'µ');
    matches!(
        &text[number.len()..],
        "s" | "ms" | "µs" | "us" | "ns" | "m" | "h"
    ) && number.parse::<f64>().is_ok()
}
