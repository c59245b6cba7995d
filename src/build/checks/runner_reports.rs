//! What runners report on a channel of their own, apart from their output.
//!
//! pytest, unittest, node and jest load a reporter before any code of the workspace (`reporters.rs`). It sends `hello`
//! on a socket that the check inherits, receives a token, and starts every record with it: runner begins, test ended,
//! runner ended. Text that a program writes to every open descriptor is therefore not a record. A process that asks
//! for a token of its own can report a session of its own, but not end another one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use uuid::Uuid;

use super::runner::Runner;
use super::summary::{TestCounts, TestNames, TestOutcome};
use crate::process::report_channel::PacketListener;

/// How many sessions are kept. A check has one for each start of a runner; node has one for each file.
const MAX_SESSIONS: usize = 20_000;

/// Everything that came over the channel of a check.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChannelReports {
    /// Runners recognised by their command line when their process started.
    pub started: Vec<Runner>,
    pub sessions: Vec<RunnerSession>,
    /// Whether something without a token wrote to the channel.
    pub has_foreign: bool,
    tokens: BTreeSet<String>,
    open: BTreeMap<String, usize>,
}

/// A run of a test runner.
#[derive(Debug, Clone)]
pub(crate) struct RunnerSession {
    pub runner: Runner,
    /// The file that it runs; may be empty.
    pub target: String,
    /// Counted from the reports of single tests.
    pub counts: TestCounts,
    pub names: TestNames,
    pub end: Option<RunnerEnd>,
}

/// The last report of a runner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct RunnerEnd {
    /// The numbers of its printed summary, if it has one.
    pub summary: Option<ReportedCounts>,
    /// Why it stopped before all tests had run.
    pub problem: Option<String>,
}

/// The numbers of a printed summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ReportedCounts {
    pub executed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl PacketListener for ChannelReports {
    fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        if packet == b"hello" && self.tokens.len() < MAX_SESSIONS {
            let token = Uuid::new_v4().simple().to_string();
            self.tokens.insert(token.clone());
            return Some(token.into_bytes());
        }
        let text = String::from_utf8_lossy(packet);
        let known = text
            .split_once(' ')
            .filter(|(token, _)| self.tokens.contains(*token));
        match known.and_then(|(token, record)| self.record(token, record)) {
            Some(()) => {}
            None => self.has_foreign = true,
        }
        None
    }
}

impl ChannelReports {
    /// Takes a record; `None` where it is invalid.
    fn record(&mut self, token: &str, record: &str) -> Option<()> {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        match kind {
            "start" => self.started.push(runner(rest)?),
            // The reporter does not know this version of the runner; only its output counts.
            "unwatched" => {
                let unwatched = runner(rest)?;
                self.started.retain(|runner| *runner != unwatched);
            }
            "begin" => self.begin(token, rest)?,
            "test" => {
                let (outcome, name) = rest.split_once(' ')?;
                let session = self.sessions.get_mut(*self.open.get(token)?)?;
                session.add(outcome, name)?;
            }
            "end" => {
                let index = self.open.remove(token)?;
                let end = if rest.is_empty() {
                    RunnerEnd::default()
                } else {
                    serde_json::from_str(rest).ok()?
                };
                self.sessions.get_mut(index)?.end = Some(end);
            }
            _ => return None,
        }
        Some(())
    }

    fn begin(&mut self, token: &str, rest: &str) -> Option<()> {
        let (name, target) = rest.split_once(' ').unwrap_or((rest, ""));
        let session = RunnerSession::new(runner(name)?, target);
        if self.sessions.len() < MAX_SESSIONS {
            self.open.insert(token.to_owned(), self.sessions.len());
            self.sessions.push(session);
        }
        Some(())
    }
}

impl RunnerSession {
    fn new(runner: Runner, target: &str) -> RunnerSession {
        RunnerSession {
            runner,
            target: target.to_owned(),
            counts: TestCounts::default(),
            names: TestNames::default(),
            end: None,
        }
    }

    fn add(&mut self, outcome: &str, name: &str) -> Option<()> {
        let (outcome, counts) = match outcome {
            // Failed before or after the test itself: a fixture, an import.
            "error" => (TestOutcome::Failed, TestCounts::new(0, 1, 0)),
            "passed" => (TestOutcome::Passed, TestOutcome::Passed.into()),
            "failed" => (TestOutcome::Failed, TestOutcome::Failed.into()),
            "skipped" => (TestOutcome::Skipped, TestOutcome::Skipped.into()),
            _ => return None,
        };
        self.counts = self.counts.plus(counts);
        self.names.add(name, outcome);
        Some(())
    }

    /// Whether the counts of a printed summary are those of this session.
    pub(crate) fn agrees(&self, counts: TestCounts) -> bool {
        let reported = self.end.as_ref().and_then(|end| end.summary);
        reported.is_none_or(|reported| {
            reported
                == ReportedCounts {
                    executed: counts.executed,
                    failed: counts.failed,
                    skipped: counts.skipped,
                }
        })
    }
}

fn runner(name: &str) -> Option<Runner> {
    [Runner::Pytest, Runner::Unittest, Runner::Node, Runner::Jest]
        .into_iter()
        .find(|runner| match runner {
            Runner::Node => name == "node",
            runner => runner.to_string() == name,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends records with the token of a new process.
    fn send(reports: &mut ChannelReports, records: &[&str]) {
        let token = String::from_utf8(reports.receive(b"hello").unwrap()).unwrap();
        for record in records {
            assert_eq!(
                reports.receive(format!("{token} {record}").as_bytes()),
                None
            );
        }
    }

    #[test]
    fn a_session_has_tests_and_an_end() {
        let mut reports = ChannelReports::default();
        let end = r#"end {"summary":{"executed":2,"failed":1,"skipped":1},"problem":null}"#;
        send(
            &mut reports,
            &[
                "start pytest",
                "begin pytest",
                "test passed a",
                "test failed b",
                "test skipped c",
                end,
            ],
        );
        send(&mut reports, &["begin node a.test.js"]);
        assert!(!reports.has_foreign);
        assert_eq!(reports.started, [Runner::Pytest]);
        let [first, second] = reports.sessions.as_slice() else {
            panic!("{reports:?}")
        };
        assert_eq!(
            first.counts,
            TestCounts {
                executed: 2,
                passed: 1,
                failed: 1,
                skipped: 1
            }
        );
        assert!(
            first.agrees(first.counts)
                && !first.agrees(TestCounts {
                    executed: 3,
                    ..first.counts
                })
        );
        assert!(second.end.is_none() && second.target == "a.test.js");
    }

    #[test]
    fn records_without_a_token_are_foreign() {
        for packet in [
            &b"2 passed in 0.01s"[..],
            b"end {}",
            b"",
            b"0123 begin pytest",
            b"\xff\xfe",
        ] {
            let mut reports = ChannelReports::default();
            reports.receive(b"hello");
            assert_eq!(reports.receive(packet), None);
            assert!(
                reports.has_foreign && reports.sessions.is_empty(),
                "{packet:?}"
            );
        }
    }

    #[test]
    fn no_process_ends_the_session_of_another() {
        let mut reports = ChannelReports::default();
        send(&mut reports, &["begin pytest"]);
        send(&mut reports, &["end {}"]);
        assert!(reports.has_foreign && reports.sessions[0].end.is_none());
    }
}
