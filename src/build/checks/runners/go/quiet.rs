//! The output of go test as it would be without the `-v` that a check adds.

use std::collections::HashMap;

use super::{PackageResult, package_line, test_line};
use crate::build::checks::summary::TestOutcome;

/// Of a package that passed, only its result line; of a test that failed, its log after its result.
pub(crate) fn without_passed_tests(text: &str) -> String {
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
    /// Lines of the current package, shown if it fails.
    kept: Vec<String>,
    /// The logs of tests without a result yet.
    logged: HashMap<String, Vec<String>>,
    current: String,
}

impl QuietOutput {
    fn take(&mut self, line: &str) {
        let marker = ["=== RUN   ", "=== CONT  ", "=== PAUSE ", "=== NAME  "]
            .iter()
            .find_map(|word| line.strip_prefix(word));
        if let Some(name) = marker {
            self.current = name.trim_end().to_owned();
        } else if let Some((name, outcome)) = test_line(line) {
            self.end_test(name, outcome, line);
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

    fn end_test(&mut self, name: &str, outcome: TestOutcome, line: &str) {
        let logged = self.logged.remove(name).unwrap_or_default();
        if outcome == TestOutcome::Failed {
            let indent = &line[..line.len() - line.trim_start().len()];
            self.kept.push(line.to_owned());
            self.kept
                .extend(logged.iter().map(|logged| format!("{indent}{logged}")));
        }
        self.current.clear();
    }

    /// Ends a package, and shows its lines if it failed.
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
