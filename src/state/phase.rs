//! The state machine of a build: six phases and one transition table.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    Init,
    Generating,
    Testing,
    Patching,
    Success,
    Failed,
}

/// The outcome of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The workspace is prepared.
    Started,
    /// The files of an answer are on disk.
    Written,
    /// Every check passed.
    Passed,
    /// At least one check failed.
    TestsFailed,
    /// A run resumed in PATCHING without a recorded answer tests again.
    Resumed,
    /// An error that ends the run.
    Broke,
}

/// A pair that is not in the table: a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no transition leads from {from} by {outcome:?}")]
pub struct IllegalTransition {
    pub from: Phase,
    pub outcome: Outcome,
}

impl Phase {
    /// The transition table. `retries_left` decides between a patch and the end.
    pub fn next(self, outcome: Outcome, retries_left: u32) -> Result<Phase, IllegalTransition> {
        match (self, outcome) {
            (Phase::Init, Outcome::Started) => Ok(Phase::Generating),
            (Phase::Generating, Outcome::Written) => Ok(Phase::Testing),
            (Phase::Testing, Outcome::Passed) => Ok(Phase::Success),
            (Phase::Testing, Outcome::TestsFailed) if retries_left > 0 => Ok(Phase::Patching),
            (Phase::Testing, Outcome::TestsFailed) => Ok(Phase::Failed),
            (Phase::Patching, Outcome::Written | Outcome::Resumed) => Ok(Phase::Testing),
            (Phase::Generating | Phase::Testing | Phase::Patching, Outcome::Broke) => {
                Ok(Phase::Failed)
            }
            (from, outcome) => Err(IllegalTransition { from, outcome }),
        }
    }

    /// Whether the run is over.
    pub fn is_terminal(self) -> bool {
        matches!(self, Phase::Success | Phase::Failed)
    }

    /// The name in `state.json` and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Init => "INIT",
            Phase::Generating => "GENERATING",
            Phase::Testing => "TESTING",
            Phase::Patching => "PATCHING",
            Phase::Success => "SUCCESS",
            Phase::Failed => "FAILED",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Phase> {
        use Phase::{Failed, Generating, Init, Patching, Success, Testing};
        let all = [Init, Generating, Testing, Patching, Success, Failed];
        all.into_iter().find(|phase| phase.name() == name)
    }

    /// The phases after `self` on the shortest path to `to`, `to` included; empty if none exists.
    ///
    /// Transition lines of the log are not synced one by one: after a power cut `state.json` can be ahead by more
    /// than one, and these are the missing ones.
    pub fn path_to(self, to: Phase) -> Vec<Phase> {
        let mut paths = VecDeque::from([vec![self]]);
        let mut seen = vec![self];
        while let Some(path) = paths.pop_front() {
            let last = path[path.len() - 1];
            if last == to {
                return path[1..].to_vec();
            }
            for next in last.successors() {
                if !seen.contains(&next) {
                    seen.push(next);
                    paths.push_back(path.iter().copied().chain([next]).collect());
                }
            }
        }
        Vec::new()
    }

    fn successors(self) -> Vec<Phase> {
        let outcomes = [
            Outcome::Started,
            Outcome::Written,
            Outcome::Passed,
            Outcome::TestsFailed,
            Outcome::Broke,
        ];
        outcomes
            .iter()
            .filter_map(|outcome| self.next(*outcome, 1).ok())
            .collect()
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 6] = [
        Phase::Init,
        Phase::Generating,
        Phase::Testing,
        Phase::Patching,
        Phase::Success,
        Phase::Failed,
    ];

    const OUTCOMES: [Outcome; 6] = [
        Outcome::Started,
        Outcome::Written,
        Outcome::Passed,
        Outcome::TestsFailed,
        Outcome::Resumed,
        Outcome::Broke,
    ];

    #[test]
    fn the_transition_table() {
        use Outcome as O;
        use Phase as P;
        let legal = |from, outcome, left| match (from, outcome, left) {
            (P::Init, O::Started, _) => Some(P::Generating),
            (P::Generating, O::Written, _) => Some(P::Testing),
            (P::Generating, O::Broke, _) => Some(P::Failed),
            (P::Testing, O::Passed, _) => Some(P::Success),
            (P::Testing, O::TestsFailed, 0) => Some(P::Failed),
            (P::Testing, O::TestsFailed, _) => Some(P::Patching),
            (P::Testing, O::Broke, _) => Some(P::Failed),
            (P::Patching, O::Written, _) => Some(P::Testing),
            (P::Patching, O::Resumed, _) => Some(P::Testing),
            (P::Patching, O::Broke, _) => Some(P::Failed),
            _ => None,
        };
        for from in PHASES {
            for outcome in OUTCOMES {
                for left in [0, 1, 50] {
                    let expected =
                        legal(from, outcome, left).ok_or(IllegalTransition { from, outcome });
                    assert_eq!(
                        from.next(outcome, left),
                        expected,
                        "{from} {outcome:?} {left}"
                    );
                }
            }
        }
    }

    #[test]
    fn names_equal_their_json() {
        for phase in PHASES {
            assert_eq!(
                serde_json::to_string(&phase).unwrap(),
                format!("\"{phase}\"")
            );
        }
    }

    #[test]
    fn paths_between_phases() {
        let names = |from: Phase, to| {
            from.path_to(to)
                .iter()
                .map(|p| p.name())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(names(Phase::Init, Phase::Generating), "GENERATING");
        assert_eq!(
            names(Phase::Generating, Phase::Patching),
            "TESTING PATCHING"
        );
        assert_eq!(names(Phase::Patching, Phase::Success), "TESTING SUCCESS");
        assert_eq!(names(Phase::Testing, Phase::Testing), "");
        assert_eq!(names(Phase::Success, Phase::Testing), "");
    }
}
