//! A workflow on the console: every line names its agent, and each agent in a state has a live line.

use std::collections::BTreeMap;
use std::time::Duration;

use super::screen::ConsoleView;
use crate::events::Event;
use crate::observers::event_text::{EventText, called, count, minutes, money};
use crate::observers::workflow_text::{lines_of, prefix, state_name};
use crate::state::reason::Reason;

/// How many agents have a live line; the others are counted.
const MAX_AGENTS: usize = 8;
const WAITING: &str = "waiting for the model";

/// The live lines of a workflow.
#[derive(Default)]
pub(super) struct WorkflowView {
    /// The agents that are in a state, by id.
    agents: BTreeMap<String, LiveAgent>,
    /// What the run has spent, as far as events say.
    spend: Option<f64>,
    /// The questions that were written, by agent.
    questions: BTreeMap<String, String>,
}

/// An agent in a state.
struct LiveAgent {
    state: String,
    since: Duration,
    action: Option<String>,
    /// Whether a request is under way; a provider may call tools in the middle of it.
    is_requesting: bool,
}

impl ConsoleView for WorkflowView {
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Option<EventText> {
        self.update(event, elapsed);
        if self.is_known_question(event) {
            return None;
        }
        lines_of(event, elapsed).map(|lines| lines.prefixed())
    }

    fn live(&self, elapsed: Duration, rows: usize) -> Vec<String> {
        let shown = match self.agents.len() {
            agents if agents <= MAX_AGENTS.min(rows) => agents,
            _ => MAX_AGENTS.min(rows.saturating_sub(1)),
        };
        let agents = self.agents.iter().take(shown);
        let mut lines: Vec<String> = agents.map(|(id, agent)| agent.line(id, elapsed)).collect();
        if let (Some(first), Some(spend)) = (lines.first_mut(), self.spend) {
            *first += &format!(", {} spent", money(spend));
        }
        match self.agents.len() - shown {
            0 => {}
            more => lines.push(format!("and {}", count(more, "more agent"))),
        }
        lines
    }
}

impl LiveAgent {
    /// The line of an agent, such as `[main] START, 5 s, waiting for the model`.
    fn line(&self, id: &str, elapsed: Duration) -> String {
        let time = minutes(elapsed.saturating_sub(self.since).as_secs());
        let mut text = format!("{} {}, {time}", prefix(id), self.state);
        if let Some(action) = &self.action {
            text += &format!(", {action}");
        }
        text
    }
}

impl WorkflowView {
    fn update(&mut self, event: &Event, elapsed: Duration) {
        match event {
            Event::StateStarted { agent_id, .. } => {
                if let Some(agent) = entered(event, elapsed) {
                    self.agents.insert(agent_id.clone(), agent);
                }
            }
            Event::StateCompleted {
                agent_id,
                total_cost_usd,
                ..
            } => {
                self.agents.remove(agent_id);
                self.raise_spend(*total_cost_usd);
            }
            Event::TransitionOccurred { agent_id, .. }
            | Event::AgentTerminated { agent_id, .. }
            | Event::AgentPaused { agent_id, .. }
            | Event::AgentFailed { agent_id, .. } => drop(self.agents.remove(agent_id)),
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => self.agents.clear(),
            _ => self.update_action(event),
        }
    }

    /// Notes what an agent does in its state.
    fn update_action(&mut self, event: &Event) {
        match event {
            Event::ModelRequested { agent_id, .. } => self.request(agent_id, WAITING.to_owned()),
            Event::ModelRetried {
                agent_id, attempt, ..
            } => self.request(agent_id, format!("{WAITING} (try {attempt})")),
            Event::ModelAnswered {
                agent_id, cost_usd, ..
            } => {
                self.raise_spend(cost_usd.map(|cost| self.spend.unwrap_or(0.0) + cost));
                self.change(agent_id, |agent| {
                    (agent.is_requesting, agent.action) = (false, None);
                });
            }
            Event::ToolCalled {
                agent_id,
                tool_name,
                arguments,
                ..
            } => {
                let text = called(tool_name, arguments);
                self.change(agent_id, |agent| agent.action = Some(text));
            }
            Event::ToolReturned { agent_id, .. } => self.change(agent_id, |agent| {
                agent.action = agent.is_requesting.then(|| WAITING.to_owned());
            }),
            Event::ScriptOutput { agent_id, .. } => {
                self.change(agent_id, |agent| agent.action = None);
            }
            _ => {}
        }
    }

    fn request(&mut self, agent_id: &str, action: String) {
        self.change(agent_id, |agent| {
            (agent.is_requesting, agent.action) = (true, Some(action));
        });
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

    /// Agents report sums concurrently: the highest is the newest.
    fn raise_spend(&mut self, sum: Option<f64>) {
        self.spend = match (self.spend, sum) {
            (Some(before), Some(sum)) => Some(before.max(sum)),
            (before, sum) => sum.or(before),
        };
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
        is_requesting: false,
    })
}
