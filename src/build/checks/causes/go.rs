//! Failures of go test: what a test logged, panics, and errors of the compiler; plain, with `-v` and with `-json`.

use super::{CauseGroups, clipped, placed, push_line};
use std::borrow::Cow;
use std::collections::HashMap;

/// Reads the output of go test.
pub fn go(text: &str, groups: &mut CauseGroups) {
    let text = without_json(text);
    let mut reader = GoFailures::new(groups);
    text.lines().for_each(|line| reader.take(line));
    reader.end();
}

/// With `-json` the text is in the events, piece by piece.
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
    /// With `-v` the log of a test comes before its verdict.
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
        } else if let Some((verdict, name)) = verdict(trimmed) {
            self.end();
            self.running.clear();
            let log = self.logs.remove(name).unwrap_or_default();
            if verdict == "FAIL" {
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

/// `--- FAIL: TestAdd (0.00s)`.
fn verdict(line: &str) -> Option<(&str, &str)> {
    let (verdict, rest) = line.strip_prefix("--- ")?.split_once(": ")?;
    let (name, _) = rest.rsplit_once(" (")?;
    matches!(verdict, "FAIL" | "PASS" | "SKIP").then_some((verdict, clipped(name)))
}

/// The place of a frame, unless it is one of the runtime or the test runner.
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
