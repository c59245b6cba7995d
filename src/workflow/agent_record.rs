//! An agent as the log describes it, and what the line of a transition says of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::reason::Reason;
use crate::state::workflow::AgentStatus;

/// The folder itself.
pub(crate) const FOLDER: &str = ".";

/// A point in a session: the last request of it that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionPoint {
    pub(crate) id: String,
    /// The line of the request in the log.
    pub(crate) line: u64,
}

/// An agent that has not ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct AgentRecord {
    pub(crate) id: String,
    /// The file of the state that it is in or goes to.
    pub(crate) state: String,
    pub(crate) session: Option<SessionPoint>,
    /// Where the next markdown state branches from.
    pub(crate) branch: Option<SessionPoint>,
    /// Relative to the folder.
    pub(crate) cwd: String,
    pub(crate) stack: Vec<FrameRecord>,
    pub(crate) input: Option<String>,
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) status: AgentStatus,
    /// All workers of the join that it waits for, in the order of their tags.
    pub(super) joined: Vec<String>,
    pub(crate) retry_count: u32,
    pub(crate) error: Option<String>,
    /// Why it pauses.
    pub(crate) reason: Option<Reason>,
    /// The number of the present visit of a state.
    pub(crate) visit: u64,
    /// How many transitions it has made.
    pub(crate) steps: usize,
    /// Its environments cannot be older than this line.
    pub(crate) environments_since: u64,
}

/// Where a call or a function returns to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FrameRecord {
    pub(crate) return_state: String,
    pub(crate) session: Option<SessionPoint>,
    pub(crate) branch: Option<SessionPoint>,
    pub(crate) cwd: String,
}

/// What the line of a transition holds beside its states: everything that cannot be computed again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TransitionFacts {
    pub(crate) visit: u64,
    /// The session after a markdown state; a script leaves it as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<SessionPoint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,
    #[serde(default, rename = "return", skip_serializing_if = "Option::is_none")]
    pub(crate) return_state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) workers: Vec<WorkerFacts>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) join: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<String>,
    /// The policy's only entry was taken, without a tag.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) implicit: bool,
}

/// A worker that a transition begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkerFacts {
    pub(crate) id: String,
    pub(crate) state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) cwd: String,
}

impl AgentRecord {
    pub(super) fn new(worker: WorkerFacts, line: u64) -> AgentRecord {
        AgentRecord {
            id: worker.id,
            state: worker.state,
            cwd: worker.cwd,
            input: worker.input,
            vars: worker.vars,
            visit: 1,
            environments_since: line,
            ..AgentRecord::default()
        }
    }

    /// What every transition does: the state's session counts, and what lives for one state is gone.
    pub(super) fn leave_state(&mut self, facts: &TransitionFacts) {
        if facts.session.is_some() {
            self.session.clone_from(&facts.session);
            self.branch = None;
        }
        self.input = None;
        self.vars.clear();
        self.retry_count = 0;
        (self.error, self.reason) = (None, None);
        self.visit = facts.visit + 1;
        self.steps += 1;
    }

    pub(super) fn push(&mut self, facts: &TransitionFacts) {
        self.stack.push(FrameRecord {
            return_state: facts.return_state.clone().unwrap_or_default(),
            session: self.session.clone(),
            branch: self.branch.clone(),
            cwd: self.cwd.clone(),
        });
    }

    /// The environments are restarted if the directory is another one.
    pub(super) fn enter_directory(&mut self, cwd: String, line: u64) {
        if self.cwd != cwd {
            self.cwd = cwd;
            self.environments_since = line;
        }
    }
}
