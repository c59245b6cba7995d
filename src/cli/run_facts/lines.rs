//! The fields of log lines that `status` and `runs` use. All others are skipped without being kept.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::events::{BudgetLimits, Charge};
use crate::llm::Answer;

/// Where a line has its time, run, number, event and agent.
const HEAD: usize = 256;

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

/// The end of a process that worked on the run.
#[derive(Debug, Deserialize)]
pub(super) struct EndLine {
    pub ts: String,
    /// Of a run that is over.
    #[serde(default)]
    pub outcome: String,
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
pub(super) struct ModelRequestLine {
    pub agent_id: String,
    pub worst: Charge,
}

#[derive(Debug, Deserialize)]
pub(super) struct RetryLine {
    pub agent_id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ModelAnswerLine {
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
pub(super) struct ToolUseLine {
    pub agent_id: String,
    #[serde(default)]
    pub tool_name: String,
}

/// The fields of a line, if it has them.
pub(super) fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

/// The event of a line.
pub(super) fn event_name(line: &[u8]) -> Option<&str> {
    text_after(line, b"\"event\":\"")
}

/// The time of a line, which it begins with.
pub(super) fn time_of(line: &[u8]) -> Option<&str> {
    text_after(line, b"{\"ts\":\"")
}

/// The agent of a line, the first field of its event; the line is parsed only where it is not at its beginning.
pub(super) fn agent_of(line: &[u8]) -> Option<String> {
    let found = text_after(line, b"\"agent_id\":\"").filter(|id| !id.contains('\\'));
    match found {
        Some(id) => Some(id.to_owned()),
        None => parse(line).map(|RetryLine { agent_id }| agent_id),
    }
}

/// The text from a key to the next quote, at the beginning of a line.
fn text_after<'a>(line: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let head = &line[..line.len().min(HEAD)];
    let start = memchr::memmem::find(head, key)? + key.len();
    let length = memchr::memchr(b'"', &head[start..])?;
    std::str::from_utf8(&head[start..start + length]).ok()
}
