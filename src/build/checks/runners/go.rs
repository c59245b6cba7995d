//! go test: with `-v`, which checks always set, with `-json`, and without either.

mod quiet;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::build::checks::failures::{CauseGroups, clipped, placed, push_line};
use crate::build::checks::summary::{
    NamedOutcome, StreamSummary, TestCounts, TestNames, TestOutcome, is_duration,
};

pub(crate) use self::quiet::without_passed_tests;

/// Counts tests by their result lines; the `ok` of a package alone does not count any.
pub(super) fn text_summary(text: &str) -> Option<StreamSummary> {
    let mut go = GoSummary::default();
    text.lines().for_each(|line| go.take(line));
    go.found()
}

#[derive(Default)]
struct GoSummary {
    is_recognised: bool,
    counts: TestCounts,
    failed_packages: u32,
    /// Whether a package printed `ok` without naming a test.
    is_silent: bool,
    is_broken_off: bool,
    package: GoPackage,
}

/// What was printed since the last package ended.
#[derive(Default)]
struct GoPackage {
    begun: HashSet<String>,
    is_verbose: bool,
    has_verdict: bool,
}

impl GoSummary {
    fn take(&mut self, line: &str) {
        if let Some((name, outcome)) = test_line(line) {
            self.is_recognised = true;
            self.package.begun.remove(name);
            self.package.is_verbose |= outcome != TestOutcome::Failed;
            self.counts = self.counts.plus(outcome.into());
        } else if let Some(name) = line.strip_prefix("=== RUN   ") {
            self.is_recognised = true;
            self.package.is_verbose = true;
            self.package.begun.insert(name.trim_end().to_owned());
        } else if line == "PASS" {
            self.package.has_verdict = true;
        } else if line == "testing: warning: no tests to run" {
            self.is_recognised = true;
            self.package.is_verbose = true;
        } else if let Some(result) = package_line(line) {
            self.is_recognised = true;
            self.end(&result);
        }
    }

    fn end(&mut self, result: &PackageResult) {
        let GoPackage {
            begun,
            is_verbose,
            has_verdict,
        } = std::mem::take(&mut self.package);
        match result {
            PackageResult::Ok => {
                self.is_silent |= !is_verbose;
                self.is_broken_off |= is_verbose && !(has_verdict && begun.is_empty());
            }
            PackageResult::Empty => {}
            PackageResult::Failed => self.failed_packages = self.failed_packages.saturating_add(1),
        }
    }

    fn found(self) -> Option<StreamSummary> {
        // Output that ends in the middle of a package is not complete.
        let is_complete = !self.is_broken_off && !self.package.is_verbose;
        self.is_recognised.then(|| StreamSummary {
            counts: Some(self.counts).filter(|_| !self.is_silent),
            failed: self.counts.failed.max(self.failed_packages),
            is_complete,
        })
    }
}

/// `--- PASS: TestAdd/one (0.00s)`.
fn test_line(line: &str) -> Option<NamedOutcome<'_>> {
    let rest = line.trim_start().strip_prefix("--- ")?;
    let (word, named) = rest.split_once(": ")?;
    let (name, time) = named.trim_end().rsplit_once(" (")?;
    time.strip_suffix(')').filter(|time| is_duration(time))?;
    Some((name, outcome_of(word)?))
}

/// An outcome as the text (`PASS`) or the events (`pass`) name it.
fn outcome_of(word: &str) -> Option<TestOutcome> {
    match word {
        "PASS" | "pass" => Some(TestOutcome::Passed),
        "FAIL" | "fail" => Some(TestOutcome::Failed),
        "SKIP" | "skip" => Some(TestOutcome::Skipped),
        _ => None,
    }
}

#[derive(PartialEq, Eq)]
enum PackageResult {
    Ok,
    Empty,
    Failed,
}

fn package_line(line: &str) -> Option<PackageResult> {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    match words.as_slice() {
        ["?", _, "[no", ..] if line.trim_end().ends_with("[no test files]") => {
            Some(PackageResult::Empty)
        }
        ["ok", _, time, ..]
            if line.starts_with("ok  ") && (*time == "(cached)" || is_duration(time)) =>
        {
            Some(if line.trim_end().ends_with("[no tests to run]") {
                PackageResult::Empty
            } else {
                PackageResult::Ok
            })
        }
        ["FAIL", _, time] if is_duration(time) => Some(PackageResult::Failed),
        ["FAIL", _, "[build" | "[setup", "failed]"] => Some(PackageResult::Failed),
        _ => None,
    }
}

/// `go test -json`: one object per line; a test ends with exactly one of pass, fail and skip.
pub(super) fn json_summary(text: &str) -> Option<StreamSummary> {
    let (mut counts, mut is_recognised, mut is_complete) = (TestCounts::default(), false, true);
    let mut failed_packages: u32 = 0;
    let mut has_verdict: HashMap<String, bool> = HashMap::new();
    for event in events(text) {
        is_recognised = true;
        match (event.test.is_some(), event.action.as_str()) {
            (true, action) => {
                let outcome = outcome_of(action).map(TestCounts::from);
                counts = counts.plus(outcome.unwrap_or_default());
            }
            (false, "output") => {
                let has_verdict = has_verdict.entry(event.package).or_default();
                *has_verdict |= matches!(
                    event.output.as_str(),
                    "PASS\n" | "testing: warning: no tests to run\n"
                );
            }
            (false, "pass") => {
                is_complete &= has_verdict.remove(&event.package).unwrap_or_default()
            }
            (false, "fail") => failed_packages = failed_packages.saturating_add(1),
            _ => {}
        }
    }
    is_recognised.then(|| StreamSummary {
        counts: Some(counts),
        failed: counts.failed.max(failed_packages),
        is_complete,
    })
}

/// An event of `-json`.
struct GoEvent {
    pub action: String,
    pub package: String,
    pub test: Option<String>,
    pub output: String,
}

/// The events of `-json`; other lines are skipped.
fn events(text: &str) -> impl Iterator<Item = GoEvent> + '_ {
    text.lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).ok()?;
            let word = |name: &str| value[name].as_str().map(str::to_owned);
            const ACTIONS: [&str; 9] = [
                "start", "run", "pause", "cont", "pass", "bench", "fail", "output", "skip",
            ];
            let action = word("Action").filter(|action| ACTIONS.contains(&action.as_str()))?;
            Some(GoEvent {
                action,
                package: word("Package")?,
                test: word("Test"),
                output: word("Output").unwrap_or_default(),
            })
        })
}

pub(super) fn names(text: &str, names: &mut TestNames) {
    names.add_lines(text, test_line);
    for event in events(text) {
        if let Some((name, outcome)) = event.test.zip(outcome_of(&event.action)) {
            names.add(&name, outcome);
        }
    }
}

pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let text = without_json(text);
    let mut reader = GoFailures::new(groups);
    text.lines().for_each(|line| reader.take(line));
    reader.end();
}

/// With `-json` the output is split into events.
fn without_json(text: &str) -> Cow<'_, str> {
    if !text
        .lines()
        .any(|line| line.starts_with("{\"") && line.contains("\"Action\":\"output\""))
    {
        return Cow::Borrowed(text);
    }
    let mut output = String::new();
    for line in text.lines() {
        match serde_json::from_str::<serde_json::Value>(line) {
            Ok(event) => output.push_str(event["Output"].as_str().unwrap_or_default()),
            Err(_) => output.extend([line, "\n"]),
        }
    }
    Cow::Owned(output)
}

struct GoFailures<'a> {
    groups: &'a mut CauseGroups,
    /// With `-v` the log of a test comes before its result.
    logs: HashMap<String, Vec<String>>,
    running: String,
    /// The failed test whose log may follow.
    failed: Option<(String, Vec<String>)>,
    last_failed: String,
    panic: Option<(String, Vec<String>)>,
}

impl<'a> GoFailures<'a> {
    fn new(groups: &'a mut CauseGroups) -> Self {
        let (logs, running, last_failed) = (HashMap::new(), String::new(), String::new());
        Self {
            groups,
            logs,
            running,
            failed: None,
            last_failed,
            panic: None,
        }
    }

    fn take(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(name) = running(line) {
            self.end();
            name.clone_into(&mut self.running);
        } else if let Some((name, outcome)) = test_line(line) {
            self.end();
            self.running.clear();
            let name = clipped(name);
            let log = self.logs.remove(name).unwrap_or_default();
            if outcome == TestOutcome::Failed {
                self.failed = Some((name.to_owned(), log));
            }
        } else if let Some(panic) = line.strip_prefix("panic: ") {
            self.end();
            self.panic = Some((String::new(), vec![format!("panic: {panic}")]));
        } else if line.starts_with("FAIL") || line.starts_with("ok  ") || line.starts_with("PASS") {
            self.end();
            self.running.clear();
        } else {
            self.follow(line, trimmed);
        }
    }

    fn follow(&mut self, line: &str, trimmed: &str) {
        if let Some((place, _)) = &mut self.panic {
            if place.is_empty() && line.starts_with('\t') {
                *place = frame(trimmed).unwrap_or_default().to_owned();
            }
        } else if line.starts_with("    ") || line.starts_with('\t') {
            if let Some((_, log)) = &mut self.failed {
                push_line(log, line);
            } else if !self.running.is_empty() {
                push_line(self.logs.entry(self.running.clone()).or_default(), line);
            }
        } else if let Some((place, message)) = compiler_error(line) {
            self.groups.add("", place, message);
        } else {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some((name, log)) = self.failed.take() {
            // A test without a log failed with its subtests, or is about to panic.
            if !log.is_empty() {
                add_log(&name, &log, self.groups);
            }
            self.last_failed = name;
        }
        if let Some((place, message)) = self.panic.take() {
            let test = if self.running.is_empty() {
                &self.last_failed
            } else {
                &self.running
            };
            self.groups.add(test, &place, &message.join("\n"));
        }
    }
}

fn add_log(name: &str, log: &[String], groups: &mut CauseGroups) {
    let first = log.first().map_or("", |line| line.trim());
    let (place, message) = placed(first).unwrap_or(("", first));
    let others: String = log[1..]
        .iter()
        .map(|line| format!("\n{}", line.trim()))
        .collect();
    groups.add(name, place, &format!("{message}{others}"));
}

fn running(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("=== ")?;
    ["RUN ", "CONT ", "NAME "]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .map(|name| clipped(name.trim()))
}

/// The place of a frame outside of the runtime and the test runner.
fn frame(line: &str) -> Option<&str> {
    let place = line.split(" +0x").next()?;
    let is_foreign = ["/src/testing/", "/src/runtime/", "/src/internal/"]
        .iter()
        .any(|path| place.contains(path));
    (place.contains(".go:") && !is_foreign).then_some(place)
}

/// `./a.go:2:34: undefined: c`, also after `vet: `.
fn compiler_error(line: &str) -> Option<(&str, &str)> {
    placed(line.strip_prefix("vet: ").unwrap_or(line)).filter(|(place, _)| place.contains(".go:"))
}
