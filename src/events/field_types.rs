//! The types of the fields of events; their fields are those of the log, too.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// Which conversation of an agent. The log holds its fields among those of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ConversationScope {
    /// A phase of a build.
    Phase { phase: Phase, retry_count: u32 },
    /// A visit of a state of a workflow, counted per agent.
    Visit { visit: u64 },
}

impl ConversationScope {
    /// Names the conversation among all of a run.
    pub fn key(self, agent_id: &str) -> String {
        match self {
            ConversationScope::Phase { phase, retry_count } => format!("{phase} {retry_count}"),
            ConversationScope::Visit { visit } => format!("{agent_id} {visit}"),
        }
    }

    /// The name of the phase or state, for files and messages.
    pub fn state_name(self) -> &'static str {
        match self {
            ConversationScope::Phase { phase, .. } => phase.name(),
            ConversationScope::Visit { .. } => "visit",
        }
    }

    /// The place of a request in this conversation.
    pub fn turn(self, turn: u32) -> RequestPlace {
        RequestPlace { scope: self, turn }
    }
}

impl fmt::Display for ConversationScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConversationScope::Phase { phase, retry_count } => {
                write!(out, "{phase}, retry {retry_count}")
            }
            ConversationScope::Visit { visit } => write!(out, "visit {visit}"),
        }
    }
}

/// The position of a model request in the work of an agent. No two answers of an agent share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestPlace {
    #[serde(flatten)]
    pub scope: ConversationScope,
    /// 0 is the first request of the conversation; reminders count on.
    pub turn: u32,
}

impl RequestPlace {
    /// The place of the next request of the same conversation.
    pub fn next(self) -> RequestPlace {
        self.scope.turn(self.turn + 1)
    }
}

impl fmt::Display for RequestPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}, turn {}", self.scope, self.turn)
    }
}

/// Why a request of a conversation follows an answer that would have ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objection {
    /// Nothing was changed.
    Reminder,
    /// A file that decides the checks is refused.
    Tampering,
}

/// What a request may have used although its answer was never recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    pub tokens: u64,
    pub cost_usd: Option<f64>,
}

/// What a run may spend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// A limit that ended a conversation; one more round of checks decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub reason: Reason,
    pub message: String,
}

/// Test counts of a check. Failures without execution (a fixture, an import) count in `failed` only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestTotals {
    pub executed: u32,
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
    #[serde(default)]
    pub failed_names: Vec<String>,
}

impl TestTotals {
    /// The counts of several checks together; `None` if no check has any.
    pub(crate) fn sum<'a>(all: impl Iterator<Item = &'a TestTotals>) -> Option<TestTotals> {
        let mut sum: Option<TestTotals> = None;
        for tests in all {
            let sum = sum.get_or_insert_default();
            sum.executed = sum.executed.saturating_add(tests.executed);
            sum.passed = sum.passed.saturating_add(tests.passed);
            sum.failed = sum.failed.saturating_add(tests.failed);
            sum.skipped = sum.skipped.saturating_add(tests.skipped);
            sum.failed_names.extend(tests.failed_names.iter().cloned());
        }
        sum
    }
}

impl fmt::Display for TestTotals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestTotals {
            executed,
            passed,
            failed,
            skipped,
            ..
        } = self;
        write!(
            out,
            "{executed} executed, {passed} passed, {failed} failed, {skipped} skipped"
        )
    }
}

/// Logs of earlier versions have only the number of executed tests.
pub(super) fn tests_of_any_version<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<TestTotals>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AnyVersion {
        Whole(TestTotals),
        Executed(u32),
    }
    Ok(
        Option::<AnyVersion>::deserialize(from)?.map(|tests| match tests {
            AnyVersion::Whole(tests) => tests,
            AnyVersion::Executed(executed) => TestTotals {
                executed,
                ..TestTotals::default()
            },
        }),
    )
}

/// Why tests of a check failed: one message, the tests that have it, and where it occurred (`path:line`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureCause {
    /// The first line of the message.
    pub message: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
}

/// A file of the workspace at one moment; a deleted one has neither size nor time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    pub path: String,
    pub size: Option<u64>,
    /// The mtime: seconds since 1970, with nanoseconds.
    pub modified: Option<String>,
}

/// The round of checks that a snapshot was kept after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRound {
    pub retry_count: u32,
    /// Of all checks together.
    pub tests: Option<TestTotals>,
    pub failed_checks: u32,
    /// A digest of what failed; equal failures have equal ones. Null if all checks passed.
    pub failure: Option<String>,
}

/// A run that another one replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedRun {
    pub run_id: String,
    pub spec_file: String,
}

/// A tested file: a digest of its content, and a stamp (inode, size, times) that detects later writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedFile {
    pub content: String,
    pub stamp: String,
}
