//! The state machine of a build: six phases and one table.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a run stands.
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

/// What a phase's work came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The workspace is prepared.
    Started,
    /// An answer's files are on disk.
    Written,
    /// Every check passed.
    Passed,
    /// At least one check failed.
    TestsFailed,
    /// A run found in PATCHING with no recorded answer tests again.
    Resumed,
    /// Something that ends the run.
    Broke,
}

/// A pair that is not in the table: a bug, and said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalTransition {
    pub from: Phase,
    pub outcome: Outcome,
}

impl fmt::Display for IllegalTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no transition leads from {} by {:?}",
            self.from, self.outcome
        )
    }
}

impl Phase {
    pub const ALL: [Phase; 6] = [
        Phase::Init,
        Phase::Generating,
        Phase::Testing,
        Phase::Patching,
        Phase::Success,
        Phase::Failed,
    ];

    /// The whole table. `retries_left` decides between a patch and the end.
    pub fn next(self, outcome: Outcome, retries_left: u32) -> Result<Phase, IllegalTransition> {
        match (self, outcome) {
            (Phase::Init, Outcome::Started) => Ok(Phase::Generating),
            (Phase::Generating, Outcome::Written) => Ok(Phase::Testing),
            (Phase::Testing, Outcome::Passed) => Ok(Phase::Success),
            (Phase::Testing, Outcome::TestsFailed) if 0 < retries_left => Ok(Phase::Patching),
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

    /// Returns the phase's name as it stands in `state.json` and the log.
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

    /// Returns the phases after `self` on the shortest way to `to`, `to` included; empty where none leads there.
    ///
    /// The log's lines of transitions are not synced one by one: after a power cut `state.json` can be ahead by
    /// more than one, and this is what is missing.
    pub fn way_to(self, to: Phase) -> Vec<Phase> {
        let mut ways = vec![vec![self]];
        let mut seen = vec![self];
        while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
            let at = way[way.len() - 1];
            if at == to {
                return way[1..].to_vec();
            }
            for next in at.successors() {
                if !seen.contains(&next) {
                    seen.push(next);
                    ways.push(way.iter().copied().chain([next]).collect());
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

    const OUTCOMES: [Outcome; 6] = [
        Outcome::Started,
        Outcome::Written,
        Outcome::Passed,
        Outcome::TestsFailed,
        Outcome::Resumed,
        Outcome::Broke,
    ];

    #[test]
    fn the_whole_table() {
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
        for from in Phase::ALL {
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
    fn names_are_those_of_the_file() {
        for phase in Phase::ALL {
            assert_eq!(
                serde_json::to_string(&phase).unwrap(),
                format!("\"{phase}\"")
            );
        }
    }

    #[test]
    fn ways_between_phases() {
        let names = |from: Phase, to| {
            from.way_to(to)
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
