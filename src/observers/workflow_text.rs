//! Renders the events of a workflow as lines that name their agent.
//!
//! Pure: an event and the elapsed time in, an agent and its lines out. What belongs to no agent belongs to the run.
//! `event_text.rs` has what builds and workflows share.

use std::time::Duration;

use serde_json::Value;

use super::event_text::{
    EventText, Tone, count, few_lines, name, names, seconds, shared_line, started,
};
use crate::events::{Event, Objection};
use crate::state::reason::Reason;
use crate::text::invisible::printable;
use crate::text::shorten::cut_chars;

/// The name in the lines of no agent; an event may have it as its agent, too.
const RUN: &str = "run";

/// How many of the last lines of a failed script's stderr are shown.
const STDERR_LINES: usize = 6;
const STDERR_LINE_CHARACTERS: usize = 300;

/// Lines of the console, and the agent that they are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentText {
    agent: String,
    lines: EventText,
}

impl AgentText {
    /// The text with the agent's name on each of its lines.
    pub(super) fn prefixed(&self) -> EventText {
        EventText {
            tone: self.lines.tone,
            text: prefixed(&self.agent, &self.lines.text),
        }
    }
}

/// A text that belongs to no agent, for the console of a workflow.
pub(crate) fn run_lines(text: &str) -> String {
    prefixed(RUN, text)
}

/// The text, printable, with `[agent] ` on each of its lines.
fn prefixed(agent: &str, text: &str) -> String {
    let (prefix, text) = (prefix(agent), printable(text));
    let lines = text.trim_end().split('\n');
    let lines = lines.map(|line| format!("{prefix} {line}").trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

/// The name of an agent in brackets, that of the run where there is none.
pub(super) fn prefix(agent: &str) -> String {
    let agent = if agent.is_empty() { RUN } else { agent };
    format!("[{}]", name(agent))
}

/// The name of a state: that of its file without the ending.
pub(super) fn state_name(file: &str) -> String {
    name(state_stem(file))
}

/// The name of a state's file without its ending.
pub(super) fn state_stem(file: &str) -> &str {
    let stem = file
        .strip_suffix(".md")
        .or_else(|| file.strip_suffix(".sh"));
    stem.unwrap_or(file)
}

/// The lines for an event of a workflow, if it has any; `elapsed` is the time since the command began.
pub(super) fn lines_of(event: &Event, elapsed: Duration) -> Option<AgentText> {
    Some(AgentText {
        agent: agent_of(event).to_owned(),
        lines: text_of(event, elapsed)?,
    })
}

fn text_of(event: &Event, elapsed: Duration) -> Option<EventText> {
    match event {
        Event::WorkflowStarted { .. } => started(event, &start_details(event)?),
        Event::StateStarted { .. }
        | Event::ScriptOutput { .. }
        | Event::TransitionOccurred { .. } => state_text(event),
        Event::AgentTerminated { .. }
        | Event::AgentPaused { .. }
        | Event::AgentFailed { .. }
        | Event::AgentAnswered { .. }
        | Event::Print { .. } => agent_text(event),
        Event::ModelRequested { .. } => reminder(event),
        _ => shared_line(event, elapsed),
    }
}

/// The agent that an event is about; empty where it is about the run.
pub(super) fn agent_of(event: &Event) -> &str {
    match event {
        Event::WorkflowStarted { .. }
        | Event::WorkflowCompleted { .. }
        | Event::WorkflowPaused { .. }
        | Event::WorkflowInterrupted { .. }
        | Event::SandboxFound { .. }
        | Event::LogMended { .. } => "",
        Event::AgentSpawned {
            parent_agent_id, ..
        } => parent_agent_id,
        Event::StateStarted { agent_id, .. }
        | Event::StateCompleted { agent_id, .. }
        | Event::TransitionOccurred { agent_id, .. }
        | Event::AgentTerminated { agent_id, .. }
        | Event::AgentPaused { agent_id, .. }
        | Event::AgentFailed { agent_id, .. }
        | Event::AgentAnswered { agent_id, .. }
        | Event::Print { agent_id, .. }
        | Event::ModelRequested { agent_id, .. }
        | Event::ClaudeInvocationStarted { agent_id, .. }
        | Event::PromptSent { agent_id, .. }
        | Event::ModelRetried { agent_id, .. }
        | Event::ModelAnswered { agent_id, .. }
        | Event::AnswerRefused { agent_id, .. }
        | Event::ModelStreamed { agent_id, .. }
        | Event::TextStreamed { agent_id, .. }
        | Event::CheckPrinted { agent_id, .. }
        | Event::FilesApplied { agent_id, .. }
        | Event::ChangesApplied { agent_id, .. }
        | Event::ConversationOpened { agent_id, .. }
        | Event::ToolCalled { agent_id, .. }
        | Event::ToolReturned { agent_id, .. }
        | Event::EnvironmentsRestarted { agent_id, .. }
        | Event::ConversationClosed { agent_id, .. }
        | Event::ToolInvocation { agent_id, .. }
        | Event::ScriptOutput { agent_id, .. }
        | Event::BaselineFinished { agent_id, .. }
        | Event::RunContinued { agent_id, .. }
        | Event::SnapshotKept { agent_id, .. }
        | Event::SnapshotRestored { agent_id, .. }
        | Event::WorkspaceKept { agent_id, .. }
        | Event::WorkspaceTested { agent_id, .. }
        | Event::ProtectedRestored { agent_id, .. }
        | Event::HiddenFilesPlaced { agent_id, .. }
        | Event::HiddenFilesRemoved { agent_id, .. }
        | Event::NoteAdded { agent_id, .. }
        | Event::ProgressMessage { agent_id, .. }
        | Event::ErrorOccurred { agent_id, .. } => agent_id,
    }
}

/// The start state, if the file of the workflow does not name it, and the model.
fn start_details(event: &Event) -> Option<String> {
    let Event::WorkflowStarted {
        spec_file,
        start_state,
        provider,
        model,
        ..
    } = event
    else {
        return None;
    };
    let mut text = String::new();
    if let Some(state) = start_state
        .as_deref()
        .filter(|state| !spec_file.ends_with(state))
    {
        text += &format!(", start state {}", name(state));
    }
    // Only markdown states use a model.
    if !model.is_empty() {
        text += &format!(", {} {}", name(provider), name(model));
    }
    Some(text)
}

/// States, scripts, and the ways from state to state.
fn state_text(event: &Event) -> Option<EventText> {
    match event {
        Event::StateStarted {
            state_name: file,
            state_type,
            ..
        } => {
            let text = format!("state {} ({})", state_name(file), name(state_type));
            Some(Tone::Progress.line(text))
        }
        Event::ScriptOutput { .. } => script(event),
        Event::TransitionOccurred {
            from_state,
            to_state: Some(to_state),
            transition_type,
            metadata,
            ..
        } => {
            let (from, to) = (state_name(from_state), state_name(to_state));
            let details = transition_details(transition_type, metadata);
            let text = format!("{from} -> {to} ({details})");
            Some(match metadata["question"].as_str() {
                Some(question) => Tone::Warning.line(format!("{text}\nasks: {question}")),
                None => Tone::Progress.line(text),
            })
        }
        // The end of the agent has a line.
        _ => None,
    }
}

fn transition_details(tag: &str, metadata: &Value) -> String {
    let is_true = |key: &str| metadata[key].as_bool() == Some(true);
    let mut details = vec![name(tag)];
    if is_true("implicit") {
        details.push("implicit".to_owned());
    }
    details.extend(workers(metadata, is_true("join")));
    if let Some(state) = metadata["return"].as_str() {
        details.push(format!("returns to {}", state_name(state)));
    }
    if let Some(directory) = metadata["cwd"].as_str() {
        details.push(format!("in {}", name(directory)));
    }
    details.join(", ")
}

/// The workers of a fork, such as `2 workers to wait for: main_w1, main_w2`.
fn workers(metadata: &Value, is_join: bool) -> Option<String> {
    let workers = metadata["workers"].as_array()?;
    let ids = workers.iter().filter_map(|worker| worker["id"].as_str());
    let ids: Vec<String> = ids.map(str::to_owned).collect();
    let wait = if is_join { " to wait for" } else { "" };
    let number = count(ids.len(), "worker");
    Some(format!("{number}{wait}: {}", names(&ids)))
}

fn script(event: &Event) -> Option<EventText> {
    let Event::ScriptOutput {
        state_name: file,
        passed,
        problem,
        exit_code,
        execution_time_ms,
        stderr,
        ..
    } = event
    else {
        return None;
    };
    let time = seconds(Duration::from_millis(*execution_time_ms));
    let code = format!("exit code {exit_code}");
    let verb = if *passed { "ended" } else { "failed" };
    let text = format!("script {} {verb} after {time}, {code}", state_name(file));
    if *passed {
        return Some(Tone::Progress.line(text));
    }
    // The reason may be the exit code.
    let problem = problem.as_deref().filter(|problem| *problem != code);
    let reason = problem.map_or(String::new(), |problem| format!(": {}", few_lines(problem)));
    Some(Tone::Error.line(format!("{text}{reason}{}", last_lines(stderr))))
}

/// The last lines of a script's stderr, each on a new line and indented.
fn last_lines(stderr: &str) -> String {
    let plain = printable(stderr);
    let lines = plain.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    let last = &lines[lines.len().saturating_sub(STDERR_LINES)..];
    let cut = |line: &&str| format!("\n  {}", cut_chars(line, STDERR_LINE_CHARACTERS, "..."));
    last.iter().map(cut).collect()
}

/// What an agent ends with, waits for, and shows. A question and a print are whole.
fn agent_text(event: &Event) -> Option<EventText> {
    let line = match event {
        Event::AgentTerminated { result_payload, .. } if result_payload.trim().is_empty() => {
            Tone::Good.line("ends")
        }
        Event::AgentTerminated { result_payload, .. } => {
            Tone::Good.line(format!("ends: {}", first_line(result_payload)))
        }
        Event::AgentPaused {
            reason: Reason::Asking,
            message,
            ..
        } => Tone::Warning.line(format!("asks: {message}")),
        Event::AgentPaused {
            reason, message, ..
        } => Tone::Error.line(format!("paused ({reason}): {}", few_lines(message))),
        Event::AgentFailed { message, .. } => {
            Tone::Error.line(format!("failed: {}", few_lines(message)))
        }
        Event::AgentAnswered { text, .. } => {
            Tone::Progress.line(format!("is answered: {}", few_lines(text)))
        }
        Event::Print { text, .. } => Tone::Progress.line(text.trim_matches('\n')),
        _ => return None,
    };
    Some(line)
}

/// The line of a request that says what was wrong with an answer.
fn reminder(event: &Event) -> Option<EventText> {
    let Event::ModelRequested {
        objection: Some(Objection::Reminder),
        request,
        ..
    } = event
    else {
        return None;
    };
    let text = new_text(request);
    Some(Tone::Progress.line(format!("reminds the model: {}", first_line(&text))))
}

/// The text of a request that its conversation did not have before: what follows the last answer.
pub(super) fn new_text(request: &Value) -> String {
    let messages = request["messages"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let new = messages.rsplit(|message| message["role"] == "assistant");
    let blocks = new.take(1).flatten();
    let blocks = blocks.filter_map(|message| message["content"].as_array());
    let texts = blocks.flatten().filter_map(|block| block["text"].as_str());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// The first line of a foreign text, with a mark where there is more.
pub(super) fn first_line(text: &str) -> String {
    let plain = printable(text);
    let mut lines = plain.lines().filter(|line| !line.trim().is_empty());
    let first = name(lines.next().unwrap_or_default().trim());
    let mark = if lines.next().is_some() { " ..." } else { "" };
    first + mark
}
