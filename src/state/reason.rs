//! The fixed words for why a command ended, and the exit code of each.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a run is over, paused, interrupted or was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    TestsPassed,
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
    Interrupted,
    ProviderUnavailable,
    ProviderUnauthorized,
    ReplayMismatch,
    WorkspaceChanged,
    SpecInvalid,
    RootLocked,
    IoError,
    Usage,
    InternalError,
}

impl Reason {
    /// Returns the exit code; an interrupt's own depends on the signal and is 130 here.
    pub fn exit_code(self) -> u8 {
        match self {
            Reason::TestsPassed => 0,
            Reason::RetriesExhausted
            | Reason::NoOutput
            | Reason::GenerationError
            | Reason::PatchError
            | Reason::CheckTimeout
            | Reason::Budget
            | Reason::MaxTurns
            | Reason::PhaseTimeout
            | Reason::ReplayMismatch
            | Reason::WorkspaceChanged => 1,
            Reason::SafetyViolation => 2,
            Reason::StateCorrupt => 3,
            Reason::ProviderUnavailable | Reason::ProviderUnauthorized => 4,
            Reason::Usage => 64,
            Reason::SpecInvalid => 65,
            Reason::InternalError => 70,
            Reason::IoError => 74,
            Reason::RootLocked => 75,
            Reason::Interrupted => 130,
        }
    }

    /// Returns the word as it stands in `state.json` and in the result.
    pub fn word(self) -> &'static str {
        match self {
            Reason::TestsPassed => "tests_passed",
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
            Reason::Interrupted => "interrupted",
            Reason::ProviderUnavailable => "provider_unavailable",
            Reason::ProviderUnauthorized => "provider_unauthorized",
            Reason::ReplayMismatch => "replay_mismatch",
            Reason::WorkspaceChanged => "workspace_changed",
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
