//! A report as JUnit XML: a suite per check of the last attempt that was tested, or per agent of a workflow.
//!
//! A log has the names of failed and, in part, of skipped tests. A passed test has no name: the suite counts it, and has one
//! test case with the name of the check.

use std::fmt::Write;

use crate::report::model::{ReportAgent, ReportCheck, RunReport};

/// The report of a run.
pub(crate) fn junit_xml(report: &RunReport) -> String {
    let mut suites: Vec<SuiteXml> = match report.is_workflow() {
        true => report.agents.iter().map(agent_suite).collect(),
        false => {
            let checks = report
                .last_tested()
                .map_or(&[][..], |attempt| &attempt.checks);
            checks.iter().map(check_suite).collect()
        }
    };
    if suites.is_empty() {
        suites.push(run_suite(report));
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for suite in suites {
        suite.push(&mut xml, &report.started_at);
    }
    xml + "</testsuites>\n"
}

/// A suite; `tests` counts the test cases without a name, too.
struct SuiteXml {
    name: String,
    tests: u32,
    failures: u32,
    errors: u32,
    skipped: u32,
    duration_ms: u64,
    cases: String,
    stdout: String,
    stderr: String,
}

impl SuiteXml {
    fn push(&self, xml: &mut String, timestamp: &str) {
        let SuiteXml {
            tests,
            failures,
            errors,
            skipped,
            ..
        } = self;
        let _ = writeln!(
            xml,
            "<testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{:.3}\" timestamp=\"{}\">\n{}",
            attribute(&self.name),
            self.duration_ms as f64 / 1000.0,
            attribute(
                timestamp
                    .split('.')
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches('Z')
            ),
            self.cases.trim_end(),
        );
        for (tag, text) in [("system-out", &self.stdout), ("system-err", &self.stderr)] {
            if !text.is_empty() {
                let _ = writeln!(xml, "<{tag}>{}</{tag}>", element(text));
            }
        }
        *xml += "</testsuite>\n";
    }
}

fn check_suite(check: &ReportCheck) -> SuiteXml {
    let mut cases = String::new();
    let tests = check.tests.clone().unwrap_or_default();
    for name in &tests.failed_names {
        let cause = check.causes.iter().find(|cause| cause.tests.contains(name));
        let message = cause.map_or("failed", |cause| &cause.message);
        let places = cause.map_or(String::new(), |cause| cause.places.join("\n"));
        push_failure(&mut cases, (&check.name, name), "failure", message, &places);
    }
    for name in &check.skipped_names {
        let _ = writeln!(
            cases,
            "<testcase classname=\"{}\" name=\"{}\"><skipped/></testcase>",
            attribute(&check.name),
            attribute(name)
        );
    }
    let (mut failures, mut errors) = (tests.failed, 0);
    let mut count = tests.passed + tests.failed + tests.skipped;
    if check.passed {
        let _ = writeln!(
            cases,
            "<testcase classname=\"{0}\" name=\"{0}\" time=\"{1:.3}\"/>",
            attribute(&check.name),
            check.duration_ms as f64 / 1000.0
        );
    } else if tests.failed_names.is_empty() {
        let problem = check.problem.as_deref().unwrap_or("failed");
        let cause = check.causes.first().map_or(problem, |cause| &cause.message);
        let (tag, is_error) = match tests.failed {
            0 => ("error", 1),
            _ => ("failure", 0),
        };
        errors += is_error;
        push_failure(&mut cases, (&check.name, &check.name), tag, cause, problem);
    }
    count = count.max(1).max(failures + errors);
    failures = failures.min(count);
    SuiteXml {
        name: check.name.clone(),
        tests: count,
        failures,
        errors,
        skipped: tests.skipped,
        duration_ms: check.duration_ms,
        cases,
        stdout: check.stdout.clone(),
        stderr: check.stderr.clone(),
    }
}

fn agent_suite(agent: &ReportAgent) -> SuiteXml {
    let is_failed = agent.status != "ended";
    let mut cases = String::new();
    match is_failed {
        true => {
            let names = (agent.agent_id.as_str(), agent.agent_id.as_str());
            push_failure(&mut cases, names, "error", agent.status, &agent.result);
        }
        false => {
            let _ = writeln!(
                cases,
                "<testcase classname=\"{0}\" name=\"{0}\"/>",
                attribute(&agent.agent_id)
            );
        }
    }
    SuiteXml {
        name: agent.agent_id.clone(),
        tests: 1,
        failures: 0,
        errors: u32::from(is_failed),
        skipped: 0,
        duration_ms: 0,
        cases,
        stdout: String::new(),
        stderr: String::new(),
    }
}

/// The run itself, where no check has ended.
fn run_suite(report: &RunReport) -> SuiteXml {
    let mut cases = String::new();
    let word = report.outcome.word();
    let is_failed = word != "SUCCESS";
    match is_failed {
        true => push_failure(
            &mut cases,
            ("run", &report.spec_file),
            "error",
            word,
            &report.message,
        ),
        false => {
            let name = attribute(&report.spec_file);
            let _ = writeln!(cases, "<testcase classname=\"run\" name=\"{name}\"/>");
        }
    }
    SuiteXml {
        name: report.spec_file.clone(),
        tests: 1,
        failures: 0,
        errors: u32::from(is_failed),
        skipped: 0,
        duration_ms: report.duration_ms,
        cases,
        stdout: String::new(),
        stderr: String::new(),
    }
}

fn push_failure(cases: &mut String, names: (&str, &str), tag: &str, message: &str, text: &str) {
    let _ = writeln!(
        cases,
        "<testcase classname=\"{}\" name=\"{}\"><{tag} message=\"{}\" type=\"{tag}\">{}</{tag}></testcase>",
        attribute(names.0),
        attribute(names.1),
        attribute(message),
        element(text)
    );
}

fn attribute(text: &str) -> String {
    element(text)
        .replace('"', "&quot;")
        .replace('\n', "&#10;")
        .replace('\t', "&#9;")
}

/// Text of an element; characters that XML does not have are replaced.
fn element(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => shown += "&amp;",
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
            other => shown.push(other),
        }
    }
    shown
}
