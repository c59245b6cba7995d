//! A workflow on the console: every line names its agent, and each agent in a state has a live line.

use std::collections::BTreeMap;
use std::time::Duration;

use super::held_error::HeldErrors;
use super::live_spend::LiveSpend;
use super::screen::{ConsoleView, TerminalSize};
use super::stream_progress::StreamProgress;
use crate::events::Event;
use crate::observers::event_text::{EventText, called, count, is_request_error, minutes};
use crate::observers::workflow_text::{lines_of, prefix, state_name};
use crate::state::reason::Reason;

/// How many agents have a live line; the others are counted.
const MAX_AGENTS: usize = 8;

/// The live lines of a workflow.
#[derive(Default)]
pub(super) struct WorkflowView {
    /// The agents that are in a state, by id.
    agents: BTreeMap<String, LiveAgent>,
    spend: LiveSpend,
    held: HeldErrors,
    sees_streams: bool,
    /// The questions that were written, by agent.
    questions: BTreeMap<String, String>,
}

/// An agent in a state.
struct LiveAgent {
    state: String,
    since: Duration,
    /// The request that is under way; a provider may call tools in the middle of it.
    request: Option<StreamProgress>,
    action: Option<String>,
}

impl ConsoleView for WorkflowView {
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Vec<EventText> {
        self.update(event, elapsed);
        if self.is_known_question(event) {
            return Vec::new();
        }
        let lines = lines_of(event, elapsed).map(|lines| lines.prefixed());
        self.held.lines(event, lines)
    }

    fn finish(&mut self) -> Vec<EventText> {
        self.held.remaining()
    }

    fn live(&self, elapsed: Duration, space: TerminalSize) -> Vec<String> {
        let rows = usize::from(space.rows);
        let shown = match self.agents.len() {
            agents if agents <= MAX_AGENTS.min(rows) => agents,
            _ => MAX_AGENTS.min(rows.saturating_sub(1)),
        };
        let agents = self.agents.iter().take(shown);
        let mut lines: Vec<String> = agents.map(|(id, agent)| agent.line(id, elapsed)).collect();
        if let (Some(first), Some(spend)) = (lines.first_mut(), self.spend.text(" of ")) {
            *first += &format!(", {spend} spent");
        }
        match self.agents.len() - shown {
            0 => {}
            more => lines.push(format!("and {}", count(more, "more agent"))),
        }
        lines
    }
}

impl LiveAgent {
    /// The line of an agent, such as `[main] START, 5 s, writing text, 40 tokens`.
    fn line(&self, id: &str, elapsed: Duration) -> String {
        let progress = self.request.as_ref().filter(|_| self.action.is_none());
        let action = progress.map(|request| request.text(elapsed));
        let time = minutes(elapsed.saturating_sub(self.since).as_secs());
        let is_waiting = progress.is_some_and(StreamProgress::is_waiting);
        let parts = [
            Some(format!("{} {}", prefix(id), self.state)),
            // A request that waits says how long.
            (!is_waiting).then_some(time),
            action.or_else(|| self.action.clone()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl WorkflowView {
    /// A view before the first event; `sees_streams` is whether there are events for the pieces of an answer.
    pub(super) fn new(sees_streams: bool) -> WorkflowView {
        WorkflowView {
            sees_streams,
            ..WorkflowView::default()
        }
    }

    fn update(&mut self, event: &Event, elapsed: Duration) {
        self.spend.update(event);
        match event {
            Event::StateStarted { agent_id, .. } => {
                if let Some(agent) = entered(event, elapsed) {
                    self.agents.insert(agent_id.clone(), agent);
                }
            }
            Event::StateCompleted { agent_id, .. }
            | Event::TransitionOccurred { agent_id, .. }
            | Event::AgentTerminated { agent_id, .. }
            | Event::AgentPaused { agent_id, .. }
            | Event::AgentFailed { agent_id, .. } => drop(self.agents.remove(agent_id)),
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => self.agents.clear(),
            _ => self.update_action(event, elapsed),
        }
    }

    /// Notes what an agent does in its state.
    fn update_action(&mut self, event: &Event, now: Duration) {
        match event {
            Event::ModelRequested { agent_id, .. } | Event::ModelRetried { agent_id, .. } => {
                let request = StreamProgress::begin(now, self.sees_streams);
                self.change(agent_id, |agent| {
                    (agent.request, agent.action) = (Some(request), None);
                });
            }
            Event::TextStreamed {
                agent_id,
                text,
                bytes,
            } => self.change(agent_id, |agent| {
                let request = agent.request.as_mut();
                request
                    .into_iter()
                    .for_each(|request| request.add(text, *bytes, now));
            }),
            Event::ErrorOccurred {
                agent_id,
                error_type,
                is_retryable: true,
                ..
            } if is_request_error(error_type) => self.change(agent_id, |agent| {
                agent.request = None;
                agent.action = Some("waiting to ask the model again".to_owned());
            }),
            Event::ToolCalled {
                agent_id,
                tool_name,
                arguments,
                ..
            } => {
                let text = called(tool_name, arguments);
                self.change(agent_id, |agent| agent.action = Some(text));
            }
            Event::ModelAnswered { agent_id, .. } => self.change(agent_id, |agent| {
                (agent.request, agent.action) = (None, None);
            }),
            Event::ToolReturned { agent_id, .. } | Event::ScriptOutput { agent_id, .. } => {
                self.change(agent_id, |agent| agent.action = None);
            }
            _ => {}
        }
    }

    fn change(&mut self, agent_id: &str, change: impl FnOnce(&mut LiveAgent)) {
        self.agents.get_mut(agent_id).map(change);
    }

    /// Whether an event repeats the question of the transition before it.
    fn is_known_question(&mut self, event: &Event) -> bool {
        match event {
            Event::TransitionOccurred {
                agent_id, metadata, ..
            } => {
                let question = metadata["question"].as_str().unwrap_or_default();
                self.questions.insert(agent_id.clone(), question.to_owned());
                false
            }
            Event::AgentPaused {
                agent_id,
                reason: Reason::Asking,
                message,
            } => self.questions.get(agent_id) == Some(message),
            _ => false,
        }
    }
}

fn entered(event: &Event, elapsed: Duration) -> Option<LiveAgent> {
    let Event::StateStarted {
        state_name: file,
        state_type,
        ..
    } = event
    else {
        return None;
    };
    Some(LiveAgent {
        state: state_name(file),
        since: elapsed,
        action: (state_type == "script").then(|| "running the script".to_owned()),
        request: None,
    })
}
