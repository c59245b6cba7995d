//! The summaries of cargo test, nextest and ctest.

use super::{StreamSummary, TestCounts, count, is_duration, items};

/// One line for each binary and for the doc tests: they add up. What began says first how many tests it has.
pub fn cargo(text: &str) -> Option<StreamSummary> {
    let (mut sum, mut is_complete) = (None, true);
    let mut block: Option<CargoBinary> = None;
    for line in text.lines() {
        if let Some(announced) = announced(line) {
            is_complete &= block.is_none();
            block = Some(CargoBinary {
                announced,
                shown: 0,
            });
        } else if let Some((counts, listed)) = cargo_line(line) {
            // The binary is told apart from what it runs by what it said before and while it ran.
            is_complete &= block.take().is_none_or(|block| block.agrees(listed));
            sum = Some(counts.plus(sum.unwrap_or_default()));
        } else if let Some(block) = &mut block {
            block.shown += shown(line);
        }
    }
    match (sum, block) {
        (Some(counts), None) => Some(StreamSummary {
            is_complete,
            ..StreamSummary::whole(counts)
        }),
        (Some(counts), Some(_)) => Some(StreamSummary {
            is_complete: false,
            ..StreamSummary::whole(counts)
        }),
        (None, Some(_)) => Some(StreamSummary::BROKEN_OFF),
        (None, None) => None,
    }
}

/// A test binary under way.
struct CargoBinary {
    announced: u32,
    shown: u32,
}

impl CargoBinary {
    fn agrees(&self, listed: u32) -> bool {
        self.announced == listed && self.announced <= self.shown
    }
}

/// `running 2 tests`.
fn announced(line: &str) -> Option<u32> {
    let rest = line.strip_prefix("running ")?;
    count(
        rest.strip_suffix(" tests")
            .or_else(|| rest.strip_suffix(" test"))?,
    )
}

/// How many tests a line shows: one each, or a letter each with `-q`.
fn shown(line: &str) -> u32 {
    if line.contains("test ") && line.contains(" ... ") {
        return 1;
    }
    let letters = line.split_once(' ').map_or(line, |(letters, _)| letters);
    let is_terse = !letters.is_empty() && letters.chars().all(|letter| ".FiMb".contains(letter));
    if is_terse {
        u32::try_from(letters.len()).unwrap_or(u32::MAX)
    } else {
        0
    }
}

/// Returns the counts, and how many tests the line accounts for.
fn cargo_line(line: &str) -> Option<(TestCounts, u32)> {
    let verdict = line.strip_prefix("test result: ")?;
    let list = verdict
        .strip_prefix("ok. ")
        .or_else(|| verdict.strip_prefix("FAILED. "))?;
    let list = list
        .split_once("; finished in ")
        .map_or(list, |(list, _)| list);
    let items = items(list.trim_end(), ';')?;
    let counts = TestCounts::of(
        &items,
        &["passed", "measured"],
        &["failed"],
        &["ignored"],
        &["filtered out"],
    )?;
    Some((counts, counts.executed.saturating_add(counts.skipped)))
}

/// Whether every binary and every set of doc tests that cargo says it runs has its result.
pub fn cargo_is_whole(stdout: &str, stderr: &str) -> bool {
    let lines = || stdout.lines().chain(stderr.lines());
    let begun = lines().filter(|line| is_running(line)).count();
    begun <= lines().filter(|line| cargo_line(line).is_some()).count()
}

/// `     Running unittests src/lib.rs (target/debug/deps/calc-0a1b)`, `   Doc-tests calc`.
fn is_running(line: &str) -> bool {
    let words = line.trim_start();
    let is_indented = words.len() < line.len();
    is_indented
        && (words.starts_with("Doc-tests ")
            || words.strip_prefix("Running ").is_some_and(|rest| {
                rest.ends_with(')')
                    && (rest.contains("/deps/") || rest.starts_with("unittests "))
                    && rest.contains(" (")
            }))
}

/// `Summary [   0.084s] 4 tests run: 1 passed (1 slow), 3 failed, 1 skipped`; `2/4` where it was cancelled.
pub fn nextest(text: &str) -> Option<StreamSummary> {
    let began = |line: &str| {
        line.trim_start()
            .strip_prefix("Starting ")
            .is_some_and(|rest| rest.contains(" across "))
    };
    let found = text
        .lines()
        .filter_map(nextest_line)
        .next_back()
        .map(StreamSummary::whole);
    found.or_else(|| text.lines().any(began).then_some(StreamSummary::BROKEN_OFF))
}

fn nextest_line(line: &str) -> Option<TestCounts> {
    let (time, rest) = line
        .trim_start()
        .strip_prefix("Summary [")?
        .split_once("] ")?;
    let (ran, list) = rest
        .split_once(" tests run: ")
        .or_else(|| rest.split_once(" test run: "))?;
    let executed = count(ran.split('/').next()?).filter(|_| is_duration(time.trim()))?;
    let sum = |words: &[&str]| {
        let chosen = list
            .split(", ")
            .filter(|item| words.iter().any(|word| item.contains(word)));
        chosen
            .filter_map(|item| count(item.split(' ').next()?))
            .fold(0, u32::saturating_add)
    };
    Some(TestCounts::new(
        executed,
        sum(&["failed", "timed out"]),
        sum(&["skipped"]),
    ))
}

/// `50% tests passed, 1 tests failed out of 2`.
pub fn ctest(text: &str) -> Option<StreamSummary> {
    let mut found = None;
    let mut skipped = 0;
    for line in text.lines() {
        if line.starts_with("Test project /") {
            found = Some(StreamSummary::BROKEN_OFF);
            skipped = 0;
        } else if line.trim() == "No tests were found!!!" {
            found = Some(StreamSummary::whole(TestCounts::default()));
        } else if let Some((failed, of)) = ctest_line(line) {
            let executed = of.saturating_sub(skipped);
            found = Some(StreamSummary::whole(TestCounts::new(
                executed, failed, skipped,
            )));
        } else if line.contains(" Test ") && line.contains("***Skipped ") {
            skipped += 1;
        }
    }
    found
}

fn ctest_line(line: &str) -> Option<(u32, u32)> {
    let (share, rest) = line.split_once("% tests passed, ")?;
    let (failed, of) = rest.trim_end().split_once(" tests failed out of ")?;
    count(share)?;
    Some((count(failed)?, count(of)?))
}
