//! What every step of a build works with: the spec, the state, the workspace, and the log.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::build::attempt_store::AttemptStore;
use crate::build::build_log::BuildLog;
use crate::build::protection::verified::VerifiedFiles;
use crate::build::spec::Spec;
use crate::build::spec::inputs::Inputs;
use crate::build::tampering::TamperingRules;
use crate::cancel::CancelToken;
use crate::conversation::agent::{Agent, Directory};
use crate::conversation::event_log::EventLog;
use crate::conversation::history::ConversationHistory;
use crate::error::{Error, Result};
use crate::events::{ConversationScope, RequestPlace};
use crate::state::background::BackgroundSave;
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::RunState;
use crate::state::store::Root;
use crate::workspace::Workspace;

/// The state of a build, apart from the generator and the checks.
pub(crate) struct Context {
    pub spec: Spec,
    pub inputs: Arc<Inputs>,
    pub state: RunState,
    pub root: Root,
    /// The root once more, for conversations.
    pub root_handle: Arc<OwnedFd>,
    pub saves: BackgroundSave,
    pub workspace: Workspace,
    pub verified: VerifiedFiles,
    pub attempts: AttemptStore,
    pub log: EventLog,
    /// What the log says of this build.
    pub build_log: Arc<Mutex<BuildLog>>,
    pub price_is_known: bool,
    pub rules: TamperingRules,
    pub cancel: CancelToken,
}

impl Context {
    /// Saves the state, with the usage that the log has. What was begun in the background is durable before.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.saves.wait()?;
        self.update_usage();
        self.root.save(&mut self.state)
    }

    /// Saves the state like `save`; its name becomes durable in the background.
    pub(crate) fn save_soon(&mut self) -> Result<()> {
        self.saves.wait()?;
        self.update_usage();
        self.root.save_soon(&mut self.state, &mut self.saves)
    }

    /// Saves the usage that the log has in the background: after a crash the log leads. While an earlier save goes on, it
    /// is left to the next one.
    pub(crate) fn save_usage(&mut self) -> Result<()> {
        self.update_usage();
        if self.saves.is_busy() {
            return Ok(());
        }
        self.root.save_beside(&mut self.state, &mut self.saves)
    }

    /// Takes over the usage that the log has.
    pub(super) fn update_usage(&mut self) {
        let price_is_known = self.price_is_known;
        self.state.usage = self.log.read(|log| log.usage().totals(price_is_known));
    }

    /// Reads what the log says of this build. `read` must not use the log.
    pub(crate) fn facts<R>(&self, read: impl FnOnce(&BuildLog) -> R) -> R {
        read(
            &self
                .build_log
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Reads what the log says of the conversations of this build. `read` must not use the log.
    pub(crate) fn history<R>(&self, read: impl FnOnce(&ConversationHistory) -> R) -> R {
        let id = self.log.agent_id();
        self.log.read(|state| read(state.conversations(id)))
    }

    /// The agent of the phase under way.
    pub(crate) fn agent(&self) -> Agent {
        Agent {
            log: self.log.clone(),
            run_id: self.state.run_id.clone(),
            scope: self.scope(),
            state_name: self.state.phase.name().to_owned(),
            cancel: self.cancel.clone(),
            directory: Some(Directory {
                parent: Arc::clone(&self.root_handle),
                name: "workspace",
                path: self.root.join("workspace"),
            }),
        }
    }

    /// Opens `workspace/` again: what ran in it may have removed or replaced it.
    pub(crate) fn reopen_workspace(&mut self) -> Result<()> {
        self.workspace = self.open_workspace()?;
        Ok(())
    }

    /// Another handle on `workspace/`.
    pub(crate) fn open_workspace(&self) -> Result<Workspace> {
        let path = self.root.join("workspace");
        Workspace::open(self.root.handle(), "workspace", &path)
    }

    /// The conversation of the phase under way.
    pub(crate) fn scope(&self) -> ConversationScope {
        ConversationScope::Phase {
            phase: self.state.phase,
            retry_count: self.state.retry_count,
        }
    }

    /// The place of a request in the phase under way.
    pub(crate) fn place(&self, turn: u32) -> RequestPlace {
        self.scope().turn(turn)
    }

    /// The error of a run whose answer in this phase cannot be used.
    pub(crate) fn unusable(&self, why: impl std::fmt::Display) -> Error {
        let reason = match self.state.phase {
            Phase::Patching => Reason::PatchError,
            Phase::Init | Phase::Generating | Phase::Testing | Phase::Success | Phase::Failed => {
                Reason::GenerationError
            }
        };
        Error::Failed(reason, why.to_string())
    }

    /// The report that the first request has: of the baseline, else of the run that this one continues.
    pub(crate) fn first_report(&self) -> Option<String> {
        self.facts(|facts| {
            let continued = facts.continued().map(|continued| continued.report.clone());
            let report = facts.baseline().map(|baseline| baseline.report.clone());
            report.or(continued).filter(|report| !report.is_empty())
        })
    }

    /// The report that the request of the phase under way has.
    pub(crate) fn report(&self) -> Option<String> {
        match self.state.phase {
            Phase::Generating => self.first_report(),
            Phase::Patching => Some(self.state.last_test_output.clone()),
            Phase::Init | Phase::Testing | Phase::Success | Phase::Failed => None,
        }
    }

    /// Whether all checks passed on what was taken in, and nothing was written since.
    pub(crate) fn is_already_green(&self) -> bool {
        let has_passed =
            self.facts(|facts| facts.baseline().is_some_and(|baseline| baseline.passed));
        has_passed && self.state.retry_count == 0
    }

    /// Removes the oldest snapshots of the root. If that fails, more are kept than the spec says, and nothing else.
    pub(crate) fn prune_snapshots(&mut self) -> Result<()> {
        let keep = self.spec.kept_snapshots;
        match self.attempts.prune(&self.root, &self.state.run_id, keep) {
            Ok(()) => Ok(()),
            Err(error) => self
                .log
                .note(format!("old snapshots are not removed: {error}")),
        }
    }

    /// Fails where a signal asked for the end of the run.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.cancel
            .requested()
            .map_or(Ok(()), |signal| Err(Error::Stopped(signal)))
    }
}
