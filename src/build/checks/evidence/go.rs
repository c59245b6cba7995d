//! The output of go test: with `-v`, which checks always get, with `-json`, and without either.

use std::collections::{HashMap, HashSet};

use super::{StreamSummary, TestCounts, is_duration};

/// Tests are counted; a package that only says that it is ok says nothing about its tests.
pub fn text(text: &str) -> Option<StreamSummary> {
    let mut go = GoSummary::default();
    text.lines().for_each(|line| go.take(line));
    go.found()
}

#[derive(Default)]
struct GoSummary {
    is_recognised: bool,
    counts: TestCounts,
    failed_packages: u32,
    /// An `ok` that came without a word about any test.
    is_silent: bool,
    is_broken_off: bool,
    package: GoPackage,
}

/// What has been said since the last package ended.
#[derive(Default)]
struct GoPackage {
    begun: HashSet<String>,
    is_verbose: bool,
    has_verdict: bool,
}

impl GoSummary {
    fn take(&mut self, line: &str) {
        if let Some((verdict, name)) = line.trim_start().strip_prefix("--- ").and_then(test_line) {
            self.is_recognised = true;
            self.package.begun.remove(name);
            self.package.is_verbose |= verdict != "FAIL";
            let number = |is: bool| u32::from(is);
            let counts = TestCounts::new(
                number(verdict != "SKIP"),
                number(verdict == "FAIL"),
                number(verdict == "SKIP"),
            );
            self.counts = self.counts.plus(counts);
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
        // Output that ends in the middle of a package has no result for it.
        let is_complete = !self.is_broken_off && !self.package.is_verbose;
        self.is_recognised.then(|| StreamSummary {
            counts: Some(self.counts).filter(|_| !self.is_silent),
            failed: self.counts.failed.max(self.failed_packages),
            is_complete,
        })
    }
}

/// `PASS: TestAdd/one (0.00s)`.
pub(super) fn test_line(rest: &str) -> Option<(&str, &str)> {
    let (verdict, named) = rest.split_once(": ")?;
    let (name, time) = named.trim_end().rsplit_once(" (")?;
    let is_known = matches!(verdict, "PASS" | "FAIL" | "SKIP")
        && time.strip_suffix(')').is_some_and(is_duration);
    is_known.then_some((verdict, name))
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

/// `go test -json`: one object a line; a test ends with exactly one of pass, fail and skip.
pub fn json(text: &str) -> Option<StreamSummary> {
    let (mut counts, mut is_recognised, mut is_complete) = (TestCounts::default(), false, true);
    let mut failed_packages: u32 = 0;
    let mut has_verdict: HashMap<String, bool> = HashMap::new();
    for event in events(text) {
        is_recognised = true;
        let (failed, skipped) = (
            u32::from(event.action == "fail"),
            u32::from(event.action == "skip"),
        );
        match (event.test.is_some(), event.action.as_str()) {
            (true, "pass" | "fail" | "skip") => {
                counts = counts.plus(TestCounts::new(1 - skipped, failed, skipped));
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
pub(super) struct GoEvent {
    pub action: String,
    pub package: String,
    pub test: Option<String>,
    pub output: String,
}

/// Returns the events that are lines of their own.
pub(super) fn events(text: &str) -> impl Iterator<Item = GoEvent> + '_ {
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

/// Returns what go would have printed without the `-v` that is ours: of what passed, the package's line alone; of what
/// failed, its lines behind its name.
pub fn without_passed_tests(text: &str) -> String {
    let mut quiet = QuietOutput::default();
    text.lines().for_each(|line| quiet.take(line));
    quiet.flush(true);
    let mut out = quiet.out.join("\n");
    if !out.is_empty() && text.ends_with('\n') {
        out.push('\n');
    }
    out
}

#[derive(Default)]
struct QuietOutput {
    out: Vec<String>,
    /// Lines of the package under way that stay if it fails.
    kept: Vec<String>,
    /// What a test has logged and nobody has judged yet.
    logged: HashMap<String, Vec<String>>,
    current: String,
}

impl QuietOutput {
    fn take(&mut self, line: &str) {
        let words = line.trim_start();
        let marker = ["=== RUN   ", "=== CONT  ", "=== PAUSE ", "=== NAME  "]
            .iter()
            .find_map(|word| line.strip_prefix(word));
        if let Some(name) = marker {
            self.current = name.trim_end().to_owned();
        } else if let Some((verdict, name)) = words.strip_prefix("--- ").and_then(test_line) {
            self.judge(verdict, name, line);
        } else if let Some(result) = package_line(line) {
            self.flush(result == PackageResult::Failed);
            self.out.push(line.to_owned());
        } else if line == "PASS" {
        } else if line.starts_with("    ") && !self.current.is_empty() {
            self.logged
                .entry(self.current.clone())
                .or_default()
                .push(line.to_owned());
        } else {
            self.kept.push(line.to_owned());
        }
    }

    fn judge(&mut self, verdict: &str, name: &str, line: &str) {
        let logged = self.logged.remove(name).unwrap_or_default();
        if verdict == "FAIL" {
            let indent = &line[..line.len() - line.trim_start().len()];
            self.kept.push(line.to_owned());
            self.kept
                .extend(logged.iter().map(|logged| format!("{indent}{logged}")));
        }
        self.current.clear();
    }

    /// Ends a package: what was said in it is shown where it failed.
    fn flush(&mut self, is_shown: bool) {
        let kept = std::mem::take(&mut self.kept);
        let mut logged: Vec<_> = std::mem::take(&mut self.logged).into_iter().collect();
        self.current.clear();
        if is_shown {
            logged.sort();
            self.out.extend(kept);
            self.out
                .extend(logged.into_iter().flat_map(|(_, lines)| lines));
        }
    }
}
