//! Why a command ended: a fixed word and an exit code for each reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run ended, paused, was interrupted or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    TestsPassed,
    /// The checks pass on what was taken in.
    AlreadyGreen,
    RetriesExhausted,
    NoOutput,
    GenerationError,
    PatchError,
    SafetyViolation,
    StateCorrupt,
    CheckTimeout,
    Budget,
    MaxTurns,
    PhaseTimeout,
    /// Attempt after attempt fails alike, or changes nothing.
    Stuck,
    Interrupted,
    ProviderUnavailable,
    ProviderUnauthorized,
    ReplayMismatch,
    WorkspaceChanged,
    /// All agents of a workflow have ended.
    Completed,
    AgentFailed,
    /// An agent of a workflow waits for an answer.
    Asking,
    /// An entry of a fleet was lost again and again without progress.
    Lost,
    /// `fleet cancel` stopped an entry.
    Cancelled,
    /// The spec of an entry is not the one that was planned.
    SpecChanged,
    SpecInvalid,
    RootLocked,
    IoError,
    Usage,
    InternalError,
}

impl Reason {
    /// That of an interrupt depends on the signal; here it is 130.
    pub fn exit_code(self) -> u8 {
        match self {
            Reason::TestsPassed | Reason::AlreadyGreen | Reason::Completed => 0,
            Reason::RetriesExhausted
            | Reason::NoOutput
            | Reason::GenerationError
            | Reason::PatchError
            | Reason::CheckTimeout
            | Reason::Budget
            | Reason::MaxTurns
            | Reason::PhaseTimeout
            | Reason::Stuck
            | Reason::ReplayMismatch
            | Reason::WorkspaceChanged
            | Reason::AgentFailed
            | Reason::Lost => 1,
            Reason::SafetyViolation => 2,
            Reason::StateCorrupt => 3,
            Reason::ProviderUnavailable
            | Reason::ProviderUnauthorized
            | Reason::Asking
            | Reason::Cancelled => 4,
            Reason::Usage => 64,
            Reason::SpecInvalid | Reason::SpecChanged => 65,
            Reason::InternalError => 70,
            Reason::IoError => 74,
            Reason::RootLocked => 75,
            Reason::Interrupted => 130,
        }
    }

    /// Whether a run that failed for this reason can be continued: for want of retries, money, turns or time.
    pub fn is_continuable(self) -> bool {
        matches!(
            self,
            Reason::RetriesExhausted
                | Reason::Budget
                | Reason::MaxTurns
                | Reason::PhaseTimeout
                | Reason::CheckTimeout
                | Reason::Stuck
                | Reason::NoOutput
                | Reason::GenerationError
                | Reason::PatchError
        )
    }

    /// The reason with a word.
    pub(crate) fn from_word(word: &str) -> Option<Reason> {
        Reason::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(word))
            .ok()
    }

    /// The word in `state.json` and in the result.
    pub fn word(self) -> &'static str {
        match self {
            Reason::TestsPassed => "tests_passed",
            Reason::AlreadyGreen => "already_green",
            Reason::RetriesExhausted => "retries_exhausted",
            Reason::NoOutput => "no_output",
            Reason::GenerationError => "generation_error",
            Reason::PatchError => "patch_error",
            Reason::SafetyViolation => "safety_violation",
            Reason::StateCorrupt => "state_corrupt",
            Reason::CheckTimeout => "check_timeout",
            Reason::Budget => "budget",
            Reason::MaxTurns => "max_turns",
            Reason::PhaseTimeout => "phase_timeout",
            Reason::Stuck => "stuck",
            Reason::Interrupted => "interrupted",
            Reason::ProviderUnavailable => "provider_unavailable",
            Reason::ProviderUnauthorized => "provider_unauthorized",
            Reason::ReplayMismatch => "replay_mismatch",
            Reason::WorkspaceChanged => "workspace_changed",
            Reason::Completed => "completed",
            Reason::AgentFailed => "agent_failed",
            Reason::Asking => "asking",
            Reason::Lost => "lost",
            Reason::Cancelled => "cancelled",
            Reason::SpecChanged => "spec_changed",
            Reason::SpecInvalid => "spec_invalid",
            Reason::RootLocked => "root_locked",
            Reason::IoError => "io_error",
            Reason::Usage => "usage",
            Reason::InternalError => "internal_error",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
