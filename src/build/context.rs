//! What every step of a run works with: the spec, the state, the workspace, and the pen.

use crate::build::event_log::EventLog;
use crate::build::log_state::LogState;
use crate::build::protection::VerifiedFiles;
use crate::build::spec::Spec;
use crate::build::spec::inputs::Inputs;
use crate::build::tampering::TamperingRules;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::events::{Event, RequestPlace};
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::RunState;
use crate::state::store::Root;
use crate::workspace::Workspace;

/// A run's things, apart from who generates and who checks.
pub struct Context {
    pub spec: Spec,
    pub inputs: Inputs,
    pub state: RunState,
    pub root: Root,
    pub workspace: Workspace,
    pub verified: VerifiedFiles,
    pub log: EventLog,
    pub log_state: LogState,
    pub rules: TamperingRules,
    pub cancel: CancelToken,
}

impl Context {
    /// Saves the state.
    pub fn save(&mut self) -> Result<()> {
        self.root.save(&mut self.state)
    }

    /// Writes an event down, and keeps what later prompts need of it.
    pub fn record(&mut self, event: Event) -> Result<()> {
        self.log_state.apply_live(&event);
        self.log.record(event)
    }

    /// Takes hold of `workspace/` again: what ran in it may have removed it, or put something else in its place.
    pub fn reopen_workspace(&mut self) -> Result<()> {
        self.workspace = Workspace::open(
            self.root.handle(),
            "workspace",
            &self.root.join("workspace"),
        )?;
        Ok(())
    }

    /// Returns the place of a request in the run as it stands.
    pub fn place(&self, turn: u32) -> RequestPlace {
        RequestPlace {
            phase: self.state.phase,
            retry_count: self.state.retry_count,
            turn,
        }
    }

    /// Returns the end of a run whose answer in this phase is of no use.
    pub fn unusable(&self, text: impl Into<String>) -> Error {
        let reason = match self.state.phase {
            Phase::Patching => Reason::PatchError,
            _ => Reason::GenerationError,
        };
        Error::Failed(reason, text.into())
    }

    /// Ends here if a signal asked for it.
    pub fn check_cancelled(&self) -> Result<()> {
        self.cancel
            .requested()
            .map_or(Ok(()), |signal| Err(Error::Stopped(signal)))
    }
}
