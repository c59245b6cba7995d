//! What runners report outside of their output.
//!
//! pytest, unittest, node and jest load a small program of ours before anything of the workspace (`reporters.rs`). It says
//! `hello` on a socket that the check was started with, gets a token back, and puts it before every record: the runner
//! begins, a test ended, the runner has come to its own end. Text that is written to every open descriptor is no record.
//! A process that asks for a token of its own can report a session of its own, but not the end of another one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use uuid::Uuid;

use super::runner::Runner;
use super::summary::{TestCounts, TestNames, TestOutcome};
use crate::process::report_channel::PacketListener;

/// How many sessions are kept; a check has one for each start of a runner, with node one for each file.
const MAX_SESSIONS: usize = 20_000;

/// All that came over the channel of a check.
#[derive(Debug, Clone, Default)]
pub struct ChannelReports {
    /// Runners whose command line said so when they started, before they did anything.
    pub started: Vec<Runner>,
    pub sessions: Vec<RunnerSession>,
    /// Something wrote to the channel that has no token.
    pub has_foreign: bool,
    tokens: BTreeSet<String>,
    open: BTreeMap<String, usize>,
}

/// A runner from its beginning to its end.
#[derive(Debug, Clone)]
pub struct RunnerSession {
    pub runner: Runner,
    /// What it runs, where it says so.
    pub what: String,
    /// By the reports of single tests.
    pub counts: TestCounts,
    pub names: TestNames,
    pub end: Option<RunnerEnd>,
}

/// What a runner says at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RunnerEnd {
    /// The same numbers as in its summary, where it has one.
    pub summary: Option<ReportedCounts>,
    /// Why it stopped before it had run everything.
    pub problem: Option<String>,
}

/// The counts of a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct ReportedCounts {
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
    /// Takes in a record; nothing where it is none.
    fn record(&mut self, token: &str, record: &str) -> Option<()> {
        let (kind, rest) = record.split_once(' ').unwrap_or((record, ""));
        match kind {
            "start" => self.started.push(runner(rest)?),
            // A version of the runner that our program does not know: its output is all there is.
            "unwatched" => {
                let unwatched = runner(rest)?;
                self.started.retain(|runner| *runner != unwatched);
            }
            "begin" => {
                let (name, what) = rest.split_once(' ').unwrap_or((rest, ""));
                let session = RunnerSession {
                    runner: runner(name)?,
                    what: what.to_owned(),
                    counts: TestCounts::default(),
                    names: TestNames::default(),
                    end: None,
                };
                if self.sessions.len() < MAX_SESSIONS {
                    self.open.insert(token.to_owned(), self.sessions.len());
                    self.sessions.push(session);
                }
            }
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
}

impl RunnerSession {
    fn add(&mut self, outcome: &str, name: &str) -> Option<()> {
        let (outcome, counts) = match outcome {
            "passed" => (
                TestOutcome::Passed,
                TestCounts {
                    executed: 1,
                    passed: 1,
                    ..TestCounts::default()
                },
            ),
            "failed" => (
                TestOutcome::Failed,
                TestCounts {
                    executed: 1,
                    failed: 1,
                    ..TestCounts::default()
                },
            ),
            // A fixture, an import: it failed before or after the test itself.
            "error" => (
                TestOutcome::Failed,
                TestCounts {
                    failed: 1,
                    ..TestCounts::default()
                },
            ),
            "skipped" => (
                TestOutcome::Skipped,
                TestCounts {
                    skipped: 1,
                    ..TestCounts::default()
                },
            ),
            _ => return None,
        };
        self.counts = self.counts.plus(counts);
        self.names.add(name, outcome);
        Some(())
    }

    /// Whether a summary in the output is the one of this session.
    pub fn agrees(&self, counts: TestCounts) -> bool {
        let said = self.end.as_ref().and_then(|end| end.summary);
        said.is_none_or(|said| {
            said == ReportedCounts {
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

    /// Says something with the token of a new process.
    fn say(heard: &mut ChannelReports, records: &[&str]) {
        let token = String::from_utf8(heard.receive(b"hello").unwrap()).unwrap();
        for record in records {
            assert_eq!(heard.receive(format!("{token} {record}").as_bytes()), None);
        }
    }

    #[test]
    fn a_session_has_tests_and_an_end() {
        let mut heard = ChannelReports::default();
        let end = r#"end {"summary":{"executed":2,"failed":1,"skipped":1},"problem":null}"#;
        say(
            &mut heard,
            &[
                "start pytest",
                "begin pytest",
                "test passed a",
                "test failed b",
                "test skipped c",
                end,
            ],
        );
        say(&mut heard, &["begin node a.test.js"]);
        assert!(!heard.has_foreign);
        assert_eq!(heard.started, [Runner::Pytest]);
        let [first, second] = heard.sessions.as_slice() else {
            panic!("{heard:?}")
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
        assert!(second.end.is_none() && second.what == "a.test.js");
    }

    #[test]
    fn what_has_no_token_is_foreign() {
        for packet in [
            &b"2 passed in 0.01s"[..],
            b"end {}",
            b"",
            b"0123 begin pytest",
            b"\xff\xfe",
        ] {
            let mut heard = ChannelReports::default();
            heard.receive(b"hello");
            assert_eq!(heard.receive(packet), None);
            assert!(heard.has_foreign && heard.sessions.is_empty(), "{packet:?}");
        }
    }

    #[test]
    fn nobody_ends_the_session_of_another() {
        let mut heard = ChannelReports::default();
        say(&mut heard, &["begin pytest"]);
        say(&mut heard, &["end {}"]);
        assert!(heard.has_foreign && heard.sessions[0].end.is_none());
    }
}
