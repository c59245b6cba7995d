//! A report as JUnit XML: a suite per check of the last attempt that was tested, or per agent of a workflow.
//!
//! Valid for the schemas of Jenkins and of Apache Ant, of which the latter demands every attribute here. A passed test is a
//! test case if the log has its name; otherwise the suite counts it, and has one test case with the name of the check.

use std::fmt::Write;

use crate::html::units::timestamp;
use crate::report::model::{ReportAgent, ReportAttempt, ReportCheck, RunReport};

/// The time of a suite whose own is not known.
const NO_TIME: &str = "1970-01-01T00:00:00";

/// The report of a run.
pub(crate) fn junit_xml(report: &RunReport) -> String {
    let mut suites: Vec<SuiteXml> = match (report.is_workflow(), report.last_tested()) {
        (true, _) => report.agents.iter().map(agent_suite).collect(),
        (false, Some(attempt)) => {
            let suite = |check| check_suite(check, attempt);
            attempt.checks.iter().map(suite).collect()
        }
        (false, None) => Vec::new(),
    };
    if suites.is_empty() {
        suites.push(run_suite(report));
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (id, suite) in suites.iter().enumerate() {
        suite.push(&mut xml, id, report);
    }
    xml + "</testsuites>\n"
}

/// A suite; `tests` counts the tests without a name, too.
#[derive(Default)]
struct SuiteXml {
    name: String,
    started_at: String,
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
    fn push(&self, xml: &mut String, id: usize, report: &RunReport) {
        let (name, package) = (attribute(&self.name), attribute(&report.spec_file));
        let [tests, failures, errors, skipped] =
            [self.tests, self.failures, self.errors, self.skipped];
        let started = [&self.started_at, &report.started_at].into_iter();
        let started = started.filter_map(|time| whole_seconds(time)).next();
        let _ = writeln!(
            xml,
            "<testsuite name=\"{name}\" package=\"{package}\" id=\"{id}\" hostname=\"localhost\" timestamp=\"{}\" \
             tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{}\">",
            started.unwrap_or(NO_TIME),
            seconds(self.duration_ms)
        );
        let (run_id, outcome) = (attribute(&report.run_id), report.outcome.word());
        let _ = writeln!(
            xml,
            "<properties><property name=\"run_id\" value=\"{run_id}\"/><property name=\"outcome\" value=\"{outcome}\"/></properties>"
        );
        *xml += &self.cases;
        let (stdout, stderr) = (element(&self.stdout), element(&self.stderr));
        let _ = writeln!(
            xml,
            "<system-out>{stdout}</system-out>\n<system-err>{stderr}</system-err>\n</testsuite>"
        );
    }

    /// Adds a test case; `result` is an element, or nothing for a test that passed.
    fn add(&mut self, class: &str, name: &str, (duration_ms, result): (u64, &str)) {
        let (class, name) = (attribute(class), attribute(name));
        let _ = writeln!(
            self.cases,
            "<testcase classname=\"{class}\" name=\"{name}\" time=\"{}\">{result}</testcase>",
            seconds(duration_ms)
        );
    }
}

fn check_suite(check: &ReportCheck, attempt: &ReportAttempt) -> SuiteXml {
    let tests = check.tests.clone().unwrap_or_default();
    let mut suite = SuiteXml {
        name: check.name.clone(),
        started_at: attempt.started_at.clone(),
        failures: tests.failed,
        skipped: tests.skipped,
        duration_ms: check.duration_ms,
        stdout: check.stdout.clone(),
        stderr: check.stderr.clone(),
        ..SuiteXml::default()
    };
    for name in &tests.failed_names {
        let cause = check.cause_of(name);
        let message = cause.map_or("failed", |cause| &cause.message);
        let places = cause.map_or(String::new(), |cause| cause.places.join("\n"));
        suite.add(
            &check.name,
            name,
            (0, &problem("failure", message, &places)),
        );
    }
    for name in &check.skipped_names {
        suite.add(&check.name, name, (0, "<skipped/>"));
    }
    for name in &check.passed_names {
        suite.add(&check.name, name, (0, ""));
    }
    add_check_itself(&mut suite, check);
    let counted = [tests.passed, tests.failed, tests.skipped];
    let counted = counted.into_iter().fold(0, u32::saturating_add);
    let problems = suite.failures.saturating_add(suite.errors);
    suite.tests = counted.max(problems).max(1);
    suite
}

/// A test case for the check, where its result is not that of a test with a name.
fn add_check_itself(suite: &mut SuiteXml, check: &ReportCheck) {
    let has_failure = check
        .tests
        .as_ref()
        .is_some_and(|tests| !tests.failed_names.is_empty());
    if check.passed {
        if check.passed_names.is_empty() {
            suite.add(&check.name, &check.name, (check.duration_ms, ""));
        }
    } else if !has_failure {
        let why = check.problem.as_deref().unwrap_or("failed");
        let message = check.causes.first().map_or(why, |cause| &cause.message);
        let tag = match suite.failures {
            0 => "error",
            _ => "failure",
        };
        suite.errors += u32::from(tag == "error");
        let result = problem(tag, message, why);
        suite.add(&check.name, &check.name, (check.duration_ms, &result));
    }
}

fn agent_suite(agent: &ReportAgent) -> SuiteXml {
    let problem = (agent.status != "ended").then_some((agent.status, agent.result.as_str()));
    single_suite(&agent.agent_id, (&agent.agent_id, 0), problem)
}

/// The run itself, where no check has ended.
fn run_suite(report: &RunReport) -> SuiteXml {
    let word = report.outcome.word();
    let problem = (word != "SUCCESS").then_some((word, report.message.as_str()));
    single_suite("run", (&report.spec_file, report.duration_ms), problem)
}

/// A suite with one test case of its own name; `found` is what is wrong with it, as a word and a text.
fn single_suite(
    class: &str,
    (name, duration_ms): (&str, u64),
    found: Option<(&str, &str)>,
) -> SuiteXml {
    let mut suite = SuiteXml {
        name: name.to_owned(),
        tests: 1,
        errors: u32::from(found.is_some()),
        duration_ms,
        ..SuiteXml::default()
    };
    let result = found.map(|(word, text)| problem("error", word, text));
    suite.add(class, name, (duration_ms, &result.unwrap_or_default()));
    suite
}

/// The element for a failure or an error.
fn problem(tag: &str, message: &str, text: &str) -> String {
    let (message, text) = (attribute(message), element(text));
    format!("<{tag} message=\"{message}\" type=\"{tag}\">{text}</{tag}>")
}

fn seconds(milliseconds: u64) -> String {
    format!("{:.3}", milliseconds as f64 / 1000.0)
}

/// A time of a log without fractions and zone, as the schema of Ant wants it.
fn whole_seconds(time: &str) -> Option<&str> {
    timestamp(time)?;
    time.get(..NO_TIME.len())
}

/// The value of an attribute, which has some content.
fn attribute(text: &str) -> String {
    match text.trim() {
        "" => "-".to_owned(),
        _ => element(text)
            .replace('"', "&quot;")
            .replace('\n', "&#10;")
            .replace('\t', "&#9;"),
    }
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
