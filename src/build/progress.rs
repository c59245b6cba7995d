//! Whether the attempts of a run lead anywhere: equal failures in a row, and answers that change nothing.
//!
//! Attempts are known by the patches before them (`retry_count`), so a round that is repeated after a resume counts once.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::build::checks::ToolResult;
use crate::build::checks::problem::CheckProblem;
use crate::build::checks::runners::causes;
use crate::build::spec::CheckSpec;
use crate::events::Event;
use crate::state::phase::Phase;
use crate::text::hex;
use crate::text::shorten::line_pieces;
use crate::text::varying::without_varying_text;

/// Answers in a row that change nothing and end a run.
const MOST_UNCHANGED: usize = 2;
/// From so many equal failures in a row on, the prompt mentions them.
const TOLD_AFTER: usize = 3;
/// How much of a digest is recorded.
const DIGEST_BYTES: usize = 16;

/// The failures of a run so far, a fold of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// What failed in the round of each attempt.
    failures: BTreeMap<u64, Option<String>>,
    /// Whether the answer of each attempt changed nothing.
    unchanged: BTreeMap<u64, bool>,
    /// That of an answer that was not tested yet.
    applied: Option<bool>,
}

impl Progress {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::FilesApplied { unchanged, .. } => self.applied = Some(*unchanged),
            Event::TransitionOccurred {
                to_state, metadata, ..
            } if to_state.as_deref() == Some(Phase::Testing.name()) => {
                if let Some(unchanged) = self.applied.take() {
                    let number = metadata["retry_count"].as_u64().unwrap_or_default();
                    self.unchanged.insert(number, unchanged);
                }
            }
            Event::SnapshotKept {
                round: Some(round), ..
            } => {
                let number = round.retry_count.into();
                self.failures.insert(number, round.failure.clone());
            }
            _ => {}
        }
    }

    /// How many rounds in a row, the last one included, failed alike.
    pub(crate) fn equal_failures(&self) -> usize {
        let mut failures = self.failures.values().rev();
        match failures.next() {
            Some(Some(last)) => {
                1 + failures
                    .take_while(|failure| failure.as_ref() == Some(last))
                    .count()
            }
            _ => 0,
        }
    }

    /// Why the run leads nowhere, if it does; `stuck_after` is the number of equal failures, 0 for never.
    pub(crate) fn stuck(&self, stuck_after: u32) -> Option<String> {
        if stuck_after == 0 {
            return None;
        }
        let unchanged = self
            .unchanged
            .values()
            .rev()
            .take_while(|unchanged| **unchanged)
            .count();
        if unchanged >= MOST_UNCHANGED {
            return Some(format!("the last {unchanged} answers changed nothing"));
        }
        let equal = self.equal_failures();
        (equal >= stuck_after as usize).then(|| match equal {
            1 => "the last attempt failed, and `stuck_after` is 1".to_owned(),
            _ => format!("the last {equal} attempts failed alike"),
        })
    }

    /// How many attempts failed alike, if the prompt mentions it.
    pub(crate) fn failures_for_prompt(&self) -> Option<usize> {
        Some(self.equal_failures()).filter(|equal| *equal >= TOLD_AFTER)
    }
}

/// A digest of what failed in a round: the checks, the names of the tests, the causes without what varies. `None` if
/// nothing failed.
pub(crate) fn failure_digest<'a>(
    round: impl Iterator<Item = (&'a CheckSpec, &'a ToolResult)>,
) -> Option<String> {
    let mut digest = Sha256::new();
    let mut has_failed = false;
    for (check, result) in round {
        let Some(problem) = &result.problem else {
            continue;
        };
        has_failed = true;
        digest_failure(check, problem, result, &mut |text| digest.update(text));
    }
    has_failed.then(|| hex(&digest.finalize()[..DIGEST_BYTES]))
}

/// Passes on what makes a failed check the same as another one.
fn digest_failure(
    check: &CheckSpec,
    problem: &CheckProblem,
    result: &ToolResult,
    digest: &mut dyn FnMut(&str),
) {
    let problem = without_varying_text(&problem.to_string());
    digest(&format!("{}\n{problem}\n", check.name));
    let mut names = result
        .tests
        .iter()
        .flat_map(|tests| &tests.failed_names)
        .collect::<Vec<_>>();
    names.sort();
    names.dedup();
    for name in &names {
        digest(&format!("{name}\n"));
    }
    let (stdout, stderr) = (&result.stdout.text, &result.stderr.text);
    let causes = causes(stdout, stderr);
    if causes.is_empty() && names.is_empty() {
        // A program without a known form: its whole output is the cause.
        for piece in line_pieces(stdout).chain(line_pieces(stderr)) {
            digest(&without_varying_text(piece));
        }
        return;
    }
    let mut messages: Vec<String> = causes.iter().map(|cause| message_of(&cause.text)).collect();
    messages.sort();
    digest(&messages.concat());
}

/// The message of a cause, without the places: lines move whenever the code changes.
fn message_of(cause: &str) -> String {
    let lines = cause.lines().filter(|line| !line.starts_with("  at "));
    lines
        .map(|line| without_varying_text(line) + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{KeptRound, MAIN_AGENT};

    fn round(retry_count: u32, failure: &str) -> Event {
        Event::SnapshotKept {
            agent_id: MAIN_AGENT.into(),
            number: 1,
            tree: String::new(),
            files: Vec::new(),
            unstored: Vec::new(),
            kept: None,
            round: Some(KeptRound {
                retry_count,
                tests: None,
                failed_checks: 1,
                failure: (!failure.is_empty()).then(|| failure.to_owned()),
            }),
        }
    }

    fn applied(unchanged: bool) -> Event {
        Event::FilesApplied {
            agent_id: MAIN_AGENT.into(),
            written: Vec::new(),
            deleted: Vec::new(),
            hashes: BTreeMap::new(),
            unchanged,
        }
    }

    fn tested(retry_count: u32) -> Event {
        Event::TransitionOccurred {
            agent_id: MAIN_AGENT.into(),
            from_state: "PATCHING".into(),
            to_state: Some("TESTING".into()),
            transition_type: "advance".into(),
            metadata: serde_json::json!({"retry_count": retry_count}),
        }
    }

    fn progress(events: &[Event]) -> Progress {
        let mut progress = Progress::default();
        events.iter().for_each(|event| progress.apply(event));
        progress
    }

    #[test]
    fn equal_failures_in_a_row_are_counted_once_per_attempt() {
        let failures = |list: &[(u32, &str)]| {
            let events: Vec<Event> = list
                .iter()
                .map(|(number, failure)| round(*number, failure))
                .collect();
            progress(&events).equal_failures()
        };
        assert_eq!(failures(&[]), 0);
        assert_eq!(failures(&[(0, "a"), (1, "a"), (1, "a"), (1, "a")]), 2);
        assert_eq!(failures(&[(0, "a"), (1, "b"), (2, "a"), (3, "a")]), 2);
        assert_eq!(failures(&[(0, "a"), (1, "a"), (2, "")]), 0);
        let events: Vec<Event> = (0..4).map(|number| round(number, "a")).collect();
        let progress = progress(&events);
        assert!(progress.stuck(4).is_some());
        assert_eq!((progress.stuck(5), progress.stuck(0)), (None, None));
        assert_eq!(progress.failures_for_prompt(), Some(4));
    }

    #[test]
    fn two_answers_in_a_row_that_change_nothing_are_stuck() {
        let one = [
            applied(false),
            tested(0),
            applied(true),
            applied(true),
            tested(1),
        ];
        assert_eq!(progress(&one).stuck(4), None);
        // A round repeated after a resume has no answer of its own.
        let repeated = [&one[..], &[tested(1)]].concat();
        assert_eq!(progress(&repeated).stuck(4), None);
        let two = [&one[..], &[applied(true), tested(2)]].concat();
        assert!(progress(&two).stuck(4).is_some());
        assert_eq!(progress(&two).stuck(0), None);
        let moved = [&two[..], &[applied(false), tested(3)]].concat();
        assert_eq!(progress(&moved).stuck(4), None);
    }
}
