//! The summaries of cargo test, nextest and go test.

use super::{Counts, count, is_duration, items};

/// One line for each binary and for the doc tests: they add up.
pub fn cargo(text: &str) -> Option<Counts> {
    text.lines().filter_map(cargo_line).reduce(Counts::plus)
}

fn cargo_line(line: &str) -> Option<Counts> {
    let verdict = line.strip_prefix("test result: ")?;
    let list = verdict.strip_prefix("ok. ").or_else(|| verdict.strip_prefix("FAILED. "))?;
    let list = list.split_once("; finished in ").map_or(list, |(list, _)| list);
    Counts::of(&items(list.trim_end(), ';')?, &["passed", "measured"], &["failed"], &["ignored", "filtered out"])
}

/// `Summary [   0.084s] 4 tests run: 1 passed (1 slow), 3 failed, 1 skipped`; `2/4` where it was cancelled.
pub fn nextest(text: &str) -> Option<Counts> {
    text.lines().filter_map(nextest_line).next_back()
}

fn nextest_line(line: &str) -> Option<Counts> {
    let (time, rest) = line.trim_start().strip_prefix("Summary [")?.split_once("] ")?;
    let (ran, list) = rest.split_once(" tests run: ").or_else(|| rest.split_once(" test run: "))?;
    let executed = count(ran.split('/').next()?).filter(|_| is_duration(time.trim()))?;
    let failing = |item: &&str| ["failed", "timed out"].iter().any(|word| item.contains(word));
    let numbers = list.split(", ").filter(failing).filter_map(|item| count(item.split(' ').next()?));
    Some(Counts { executed, failed: numbers.fold(0, u32::saturating_add) })
}

/// Without `-v` a package says only that it is ok: then it counts as one test, if it had any to run.
pub fn go(text: &str) -> Option<Counts> {
    let mut go = Go::default();
    text.lines().for_each(|line| go.take(line));
    let listed = Counts { executed: go.passed.saturating_add(go.failed), failed: go.failed.max(go.failed_packages) };
    let executed = if go.is_verbose { listed.executed } else { listed.executed.saturating_add(go.ok_packages) };
    go.is_recognised.then_some(Counts { executed, ..listed })
}

#[derive(Default)]
struct Go {
    is_recognised: bool,
    is_verbose: bool,
    passed: u32,
    failed: u32,
    ok_packages: u32,
    failed_packages: u32,
}

impl Go {
    fn take(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some((verdict, _)) = trimmed.strip_prefix("--- ").and_then(test_line) {
            self.is_recognised = true;
            self.is_verbose |= verdict != "FAIL";
            self.passed = self.passed.saturating_add(u32::from(verdict == "PASS"));
            self.failed = self.failed.saturating_add(u32::from(verdict == "FAIL"));
        } else if let Some(package) = package_line(line) {
            self.is_recognised = true;
            self.ok_packages = self.ok_packages.saturating_add(u32::from(package == Package::Ok));
            self.failed_packages = self.failed_packages.saturating_add(u32::from(package == Package::Failed));
        } else if line == "testing: warning: no tests to run" {
            self.is_recognised = true;
        } else if line.starts_with("=== RUN   ") {
            self.is_verbose = true;
        }
    }
}

/// `PASS: TestAdd/one (0.00s)`.
fn test_line(rest: &str) -> Option<(&str, &str)> {
    let (verdict, named) = rest.split_once(": ")?;
    let (name, time) = named.trim_end().rsplit_once(" (")?;
    let is_known = matches!(verdict, "PASS" | "FAIL" | "SKIP") && time.strip_suffix(')').is_some_and(is_duration);
    is_known.then_some((verdict, name))
}

#[derive(PartialEq, Eq)]
enum Package {
    Ok,
    Empty,
    Failed,
}

fn package_line(line: &str) -> Option<Package> {
    let words: Vec<&str> = line.split_whitespace().take(4).collect();
    match words.as_slice() {
        ["?", _, "[no", ..] if line.trim_end().ends_with("[no test files]") => Some(Package::Empty),
        ["ok", _, time, ..] if line.starts_with("ok  ") && (*time == "(cached)" || is_duration(time)) => {
            Some(if line.trim_end().ends_with("[no tests to run]") { Package::Empty } else { Package::Ok })
        }
        ["FAIL", _, time] if is_duration(time) => Some(Package::Failed),
        ["FAIL", _, "[build" | "[setup", "failed]"] => Some(Package::Failed),
        _ => None,
    }
}

/// `go test -json`: one object a line; a test ends with exactly one of pass, fail and skip.
pub fn go_json(text: &str) -> Option<Counts> {
    let mut found = None;
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let (Some(action), Some(_)) = (event["Action"].as_str(), event["Package"].as_str()) else { continue };
        let ended = event["Test"].is_string() && matches!(action, "pass" | "fail");
        let failed = u32::from(action == "fail");
        let counts: Counts = found.unwrap_or_default();
        found = Some(counts.plus(Counts { executed: u32::from(ended), failed }));
    }
    found
}
