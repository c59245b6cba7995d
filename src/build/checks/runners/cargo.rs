//! cargo test and nextest: their summaries, the names of their tests, failures of tests and of the compiler.

use crate::build::checks::failures::{CauseGroups, clipped, push_line};
use crate::build::checks::summary::{
    NamedOutcome, StreamSummary, TestCounts, TestOutcome, count, is_duration, items,
};

/// Adds up one line for each binary and for the doc tests. A binary first prints how many tests it has.
pub(super) fn summary(text: &str) -> Option<StreamSummary> {
    let (mut sum, mut is_complete) = (None, true);
    let mut block: Option<CargoBinary> = None;
    for line in text.lines() {
        if let Some(announced) = announced(line) {
            is_complete &= block.is_none();
            block = Some(CargoBinary {
                announced,
                shown: 0,
            });
        } else if let Some((counts, listed)) = counts_of(line) {
            // A result line counts only if it agrees with what the binary announced and listed: a test may print one.
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

/// A test binary that has not printed its result yet.
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

/// The counts of a result line, and how many tests it covers.
fn counts_of(line: &str) -> Option<(TestCounts, u32)> {
    let result = line.strip_prefix("test result: ")?;
    let list = result
        .strip_prefix("ok. ")
        .or_else(|| result.strip_prefix("FAILED. "))?;
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

/// Whether every binary and every set of doc tests that cargo announces has a result.
pub(super) fn is_whole(stdout: &str, stderr: &str) -> bool {
    let lines = || stdout.lines().chain(stderr.lines());
    let begun = lines().filter(|line| is_running(line)).count();
    begun <= lines().filter(|line| counts_of(line).is_some()).count()
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
pub(super) fn nextest_summary(text: &str) -> Option<StreamSummary> {
    let began = |line: &str| {
        line.trim_start()
            .strip_prefix("Starting ")
            .is_some_and(|rest| rest.contains(" across "))
    };
    let found = text
        .lines()
        .filter_map(nextest_counts)
        .next_back()
        .map(StreamSummary::whole);
    found.or_else(|| text.lines().any(began).then_some(StreamSummary::BROKEN_OFF))
}

fn nextest_counts(line: &str) -> Option<TestCounts> {
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

/// `test name ... ok`, `test name - should panic ... ok`, `test name ... ignored, why`.
pub(super) fn test_name(line: &str) -> Option<NamedOutcome<'_>> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match result.split([' ', ',']).next()? {
        "ok" | "bench:" => Some((name, TestOutcome::Passed)),
        "FAILED" => Some((name, TestOutcome::Failed)),
        "ignored" => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// `        PASS [   0.005s] (1/2) calc::it adds`.
pub(super) fn nextest_name(line: &str) -> Option<NamedOutcome<'_>> {
    let (word, rest) = line.trim_start().split_once(' ')?;
    let (_, name) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    let name = name
        .trim_start()
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(") "))
        .map_or(name, |(_, name)| name);
    match word {
        "PASS" | "LEAK" => Some((name, TestOutcome::Passed)),
        "FAIL" | "ABORT" | "TIMEOUT" => Some((name, TestOutcome::Failed)),
        "SKIP" => Some((name, TestOutcome::Skipped)),
        _ => None,
    }
}

/// Failures in the output of cargo test and nextest.
pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut reader = CargoFailures {
        groups,
        state: CargoState::Outside,
        test: String::new(),
        has_panicked: false,
        printed: Vec::new(),
    };
    text.lines().for_each(|line| reader.take(line));
    reader.end_test();
    reader.end();
}

enum CargoState {
    Outside,
    /// After `panicked at place:`, up to an empty line or the backtrace.
    Panic {
        test: String,
        place: String,
        message: Vec<String>,
    },
    /// After `error[E0425]: ...`, up to an empty line. An error without a place is cargo's own summary.
    Error {
        place: String,
        message: Vec<String>,
    },
}

struct CargoFailures<'a> {
    groups: &'a mut CauseGroups,
    state: CargoState,
    /// The test whose captured output this is, if any; whether it panicked, and what else it printed.
    test: String,
    has_panicked: bool,
    printed: Vec<String>,
}

impl CargoFailures<'_> {
    fn take(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.end_test();
            clipped(test).clone_into(&mut self.test);
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.end_test();
        } else if let Some(panic) = panicked(trimmed) {
            self.end();
            self.has_panicked = true;
            let is_named = !self.test.is_empty() && panic.thread == "main";
            let test = if is_named {
                self.test.clone()
            } else {
                panic.thread.to_owned()
            };
            self.state = CargoState::Panic {
                test,
                place: panic.place,
                message: panic.message,
            };
        } else if line.starts_with("error: ") || line.starts_with("error[") {
            self.end();
            self.state = CargoState::Error {
                place: String::new(),
                message: vec![line.to_owned()],
            };
        } else {
            self.follow(line, trimmed);
        }
    }

    fn follow(&mut self, line: &str, trimmed: &str) {
        let is_end = trimmed.is_empty()
            || trimmed == "stack backtrace:"
            || trimmed.starts_with("note: run with `RUST_");
        if is_end {
            self.end();
            return;
        }
        match &mut self.state {
            CargoState::Panic { message, .. } => push_line(message, line),
            CargoState::Error { place, .. } if place.is_empty() && trimmed.starts_with("--> ") => {
                trimmed[4..].clone_into(place);
            }
            CargoState::Error { message, .. } => push_line(message, line),
            CargoState::Outside if !self.test.is_empty() && !self.has_panicked => {
                push_line(&mut self.printed, line)
            }
            CargoState::Outside => {}
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.state, CargoState::Outside) {
            CargoState::Panic {
                test,
                place,
                message,
            } => self.groups.add(&test, &place, &dedented(&message)),
            CargoState::Error { place, message } if !place.is_empty() => {
                self.groups.add("", &place, &message.join("\n"))
            }
            CargoState::Error { .. } | CargoState::Outside => {}
        }
    }

    /// A test that failed without a panic has printed the reason.
    fn end_test(&mut self) {
        self.end();
        if !self.test.is_empty() && !self.has_panicked {
            self.groups.add(&self.test, "", &self.printed.join("\n"));
        }
        self.test.clear();
        self.printed.clear();
        self.has_panicked = false;
    }
}

struct Panicked<'a> {
    thread: &'a str,
    place: String,
    message: Vec<String>,
}

/// `thread 'name' (12) panicked at src/lib.rs:9:39:`, in old versions `panicked at 'message', src/lib.rs:9:39`.
fn panicked(line: &str) -> Option<Panicked<'_>> {
    let (name, rest) = line.strip_prefix("thread '")?.split_once(" panicked at ")?;
    let (thread, _) = name.split_once('\'')?;
    if let Some((message, place)) = rest
        .strip_prefix('\'')
        .and_then(|rest| rest.rsplit_once("', "))
    {
        return Some(Panicked {
            thread,
            place: place.to_owned(),
            message: vec![message.to_owned()],
        });
    }
    Some(Panicked {
        thread,
        place: rest.strip_suffix(':')?.to_owned(),
        message: Vec::new(),
    })
}

/// Nextest indents the output of a test.
fn dedented(message: &[String]) -> String {
    let first = message.first().map_or("", String::as_str);
    let indentation = &first[..first.len() - first.trim_start().len()];
    let lines: Vec<&str> = message
        .iter()
        .map(|line| line.strip_prefix(indentation).unwrap_or(line))
        .collect();
    lines.join("\n")
}
