//! The fields of log lines that `status` and `runs` use. All others are skipped without being kept.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::events::{BudgetLimits, Charge};
use crate::llm::Answer;

/// A start of the run.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::cli) struct StartLine {
    pub ts: String,
    pub spec_file: String,
    #[serde(default)]
    pub continues: Option<String>,
    #[serde(default)]
    pub budget: Option<BudgetLimits>,
    #[serde(default)]
    pub options: Vec<String>,
    /// Of a workflow.
    #[serde(default)]
    pub start_state: Option<String>,
}

/// The end of a run.
#[derive(Debug, Deserialize)]
pub(super) struct CompletedLine {
    pub ts: String,
    pub outcome: String,
    pub reason: String,
    pub message: String,
}

/// A pause or an interrupt.
#[derive(Debug, Deserialize)]
pub(super) struct StopLine {
    pub ts: String,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct StateLine {
    pub agent_id: String,
    pub state_name: String,
    #[serde(default)]
    pub state_type: String,
    #[serde(default)]
    pub attempt: Option<u32>,
    #[serde(default)]
    pub of: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TransitionLine {
    pub from_state: String,
    pub to_state: Option<String>,
    pub metadata: TransitionNumbers,
}

#[derive(Debug, Deserialize)]
pub(super) struct TransitionNumbers {
    #[serde(default)]
    pub retry_count: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RequestLine {
    pub agent_id: String,
    pub worst: Charge,
}

#[derive(Debug, Deserialize)]
pub(super) struct RetryLine {
    pub agent_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct AnswerLine {
    pub agent_id: String,
    #[serde(default)]
    pub answer: Option<Answer>,
    pub cost_usd: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorLine {
    pub agent_id: String,
    pub error_type: String,
    #[serde(default)]
    pub is_retryable: bool,
    #[serde(default)]
    pub charge: Option<Charge>,
}

/// The agent and the tool, check or script of a line.
#[derive(Debug, Deserialize)]
pub(super) struct ToolLine {
    pub agent_id: String,
    #[serde(default)]
    pub tool_name: String,
}

/// The fields of a line, if it has them.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}
