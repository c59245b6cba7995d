//! The content of `state.json` for the run of a workflow.
//!
//! It is a copy of what the log says up to the line `seq`; the log is the truth. Unknown fields are refused, as in a
//! build.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use crate::state::reason::Reason;
use crate::state::run::{
    InvalidState, RunKind, UsageTotals, VERSION, is_run_id, present, timestamp,
};

/// A saved run of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkflowState {
    pub(crate) version: u64,
    pub(crate) kind: RunKind,
    pub(crate) run_id: String,
    /// The start state's file; relative to the root if it is inside.
    pub(crate) workflow: String,
    #[serde(deserialize_with = "present")]
    pub(crate) input: Option<String>,
    pub(crate) state: WorkflowPhase,
    #[serde(deserialize_with = "present")]
    pub(crate) reason: Option<Reason>,
    pub(crate) agents: Vec<AgentState>,
    pub(crate) fork_counters: BTreeMap<String, u64>,
    pub(crate) usage: UsageTotals,
    pub(crate) options: WorkflowOptions,
    /// The last line of the log that this file takes into account.
    pub(crate) seq: u64,
    /// The SHA-256 of each state file when the run began.
    pub(crate) state_hashes: BTreeMap<String, String>,
    /// The payload of each agent that has ended.
    pub(crate) results: BTreeMap<String, String>,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
}

/// Whether the run goes on. Only a success is final.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum WorkflowPhase {
    #[default]
    Running,
    Paused,
    Success,
    Failed,
}

impl WorkflowPhase {
    pub(crate) fn name(self) -> &'static str {
        match self {
            WorkflowPhase::Running => "RUNNING",
            WorkflowPhase::Paused => "PAUSED",
            WorkflowPhase::Success => "SUCCESS",
            WorkflowPhase::Failed => "FAILED",
        }
    }
}

/// An agent that has not ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentState {
    pub(crate) id: String,
    /// The file of the state that it is in or goes to.
    pub(crate) current_state: String,
    #[serde(deserialize_with = "present")]
    pub(crate) session_id: Option<String>,
    /// The session that the next markdown state branches from.
    #[serde(deserialize_with = "present")]
    pub(crate) branch_from: Option<String>,
    /// Relative to the folder of the run.
    pub(crate) cwd: String,
    pub(crate) stack: Vec<StackFrame>,
    #[serde(deserialize_with = "present")]
    pub(crate) pending_input: Option<String>,
    /// The attributes of the fork that began it, for its first state.
    pub(crate) vars: BTreeMap<String, String>,
    pub(crate) status: AgentStatus,
    /// The workers of its join that have not ended.
    pub(crate) waits_for: Vec<String>,
    /// Attempts at the step that ended in a transient error.
    pub(crate) retry_count: u32,
    /// Why it failed or paused, or what it asks.
    #[serde(deserialize_with = "present")]
    pub(crate) error: Option<String>,
}

/// Where a call or a function returns to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StackFrame {
    #[serde(rename = "return")]
    pub(crate) return_state: String,
    #[serde(deserialize_with = "present")]
    pub(crate) session_id: Option<String>,
    #[serde(deserialize_with = "present")]
    pub(crate) branch_from: Option<String>,
    pub(crate) cwd: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AgentStatus {
    #[default]
    Running,
    /// For the workers of a join.
    Waiting,
    /// For an answer of a person.
    Asking,
    Paused,
    Failed,
}

/// The options of a command line that a resume keeps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkflowOptions {
    /// Relative to the root if it is inside; absent: `workspace/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<f64>,
    /// As on the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) price: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jobs: Option<u32>,
}

/// What identifies the run of a workflow.
pub(crate) struct NewWorkflow {
    pub(crate) run_id: String,
    pub(crate) workflow: String,
    pub(crate) input: Option<String>,
    pub(crate) options: WorkflowOptions,
    pub(crate) state_hashes: BTreeMap<String, String>,
}

impl WorkflowState {
    /// A run without agents.
    pub(crate) fn new(new: NewWorkflow) -> WorkflowState {
        let now = timestamp();
        WorkflowState {
            version: VERSION,
            kind: RunKind::Workflow,
            run_id: new.run_id,
            workflow: new.workflow,
            input: new.input,
            state: WorkflowPhase::Running,
            reason: None,
            agents: Vec::new(),
            fork_counters: BTreeMap::new(),
            usage: UsageTotals::none(true),
            options: new.options,
            seq: 0,
            state_hashes: new.state_hashes,
            results: BTreeMap::new(),
            created_at: now.clone(),
            updated_at: now,
        }
    }

    /// Whether `state.json` was found corrupt: nothing can be resumed.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.reason == Some(Reason::StateCorrupt)
    }

    /// Parses the bytes of a file whose header says that it is a workflow's.
    pub fn parse(bytes: &[u8]) -> Result<WorkflowState, InvalidState> {
        let state: WorkflowState = serde_json::from_slice(bytes)?;
        state.check()?;
        Ok(state)
    }

    /// Checks what the types cannot express.
    fn check(&self) -> Result<(), InvalidState> {
        let is_time = |text: &str| DateTime::parse_from_rfc3339(text).is_ok();
        let is_cost = |cost: Option<f64>| cost.is_none_or(|cost| cost >= 0.0);
        let has_unique_ids = || {
            let mut ids: Vec<&str> = self.agents.iter().map(|agent| agent.id.as_str()).collect();
            ids.sort_unstable();
            ids.windows(2).all(|pair| pair[0] != pair[1])
        };
        let rules = [
            (is_run_id(&self.run_id), "run_id is not a version 4 UUID"),
            (has_unique_ids(), "two agents have the same id"),
            (is_time(&self.created_at), "created_at is not a time"),
            (is_time(&self.updated_at), "updated_at is not a time"),
            (is_cost(self.usage.cost_usd), "cost_usd is negative"),
            (is_cost(self.usage.lost_usd), "lost_usd is negative"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, problem)) => Err(InvalidState::Field(problem)),
            None => Ok(()),
        }
    }
}
