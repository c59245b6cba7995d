//! The agent that a conversation belongs to, and what it shares with the rest of its run.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use crate::cancel::CancelToken;
use crate::conversation::event_log::EventLog;
use crate::conversation::history::ConversationHistory;
use crate::error::{Error, Result};
use crate::events::{ConversationScope, RequestPlace};
use crate::workspace::Workspace;

/// An agent at one point of its work.
#[derive(Clone)]
pub(crate) struct Agent {
    pub log: EventLog,
    pub run_id: String,
    pub scope: ConversationScope,
    /// The name of the phase or state, for events.
    pub state_name: String,
    pub cancel: CancelToken,
    /// The folder whose changes are recorded, if they are.
    pub directory: Option<Directory>,
}

/// Where the agent's tools work: a folder below an open one.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    pub parent: Arc<OwnedFd>,
    pub name: &'static str,
    pub path: PathBuf,
}

impl Directory {
    /// Opens the folder. A command may have replaced it since it was last opened.
    pub(crate) fn open(&self) -> Result<Workspace> {
        Workspace::open(self.parent.as_fd(), self.name, &self.path)
    }
}

impl Agent {
    pub(crate) fn id(&self) -> String {
        self.log.agent_id().to_owned()
    }

    pub(crate) fn place(&self, turn: u32) -> RequestPlace {
        self.scope.turn(turn)
    }

    /// Reads what the log says of this agent's conversations. `read` must not use the log.
    pub(crate) fn history<R>(&self, read: impl FnOnce(&ConversationHistory) -> R) -> R {
        let id = self.log.agent_id();
        self.log.read(|state| read(state.conversations(id)))
    }

    /// Fails where a signal asked for the end of the run.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.cancel
            .requested()
            .map_or(Ok(()), |signal| Err(Error::Stopped(signal)))
    }
}
