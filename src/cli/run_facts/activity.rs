//! What each agent of a run does at the end of its log.

use std::collections::BTreeMap;

use crate::cli::run_facts::lines::{ErrorLine, StateLine, ToolUseLine, agent_of, parse};
use crate::conversation::usage::MODEL_ERROR;
use crate::events::MAIN_AGENT;
use crate::state::phase::Phase;
use crate::text::invisible::escaped;

/// The last activity of each agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Activities {
    of_agents: BTreeMap<String, Activity>,
}

#[derive(Debug, PartialEq, Eq)]
struct Activity {
    /// The phase or state.
    state: String,
    is_script: bool,
    step: CurrentAction,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum CurrentAction {
    /// Between the others, or before the first.
    #[default]
    Other,
    Model,
    /// Before a request is sent again.
    Delay,
    Tool(String),
    Check(String),
}

impl Activities {
    /// Applies a line; returns whether it could be parsed.
    pub(super) fn apply(&mut self, event: &str, line: &[u8]) -> bool {
        self.try_apply(event, line).is_some()
    }

    fn try_apply(&mut self, event: &str, line: &[u8]) -> Option<()> {
        match event {
            "StateStarted" => {
                let state: StateLine = parse(line)?;
                let activity = Activity {
                    state: state.state_name,
                    is_script: state.state_type == "script",
                    step: CurrentAction::Other,
                };
                self.of_agents.insert(state.agent_id, activity);
            }
            "ModelRequested" | "ModelRetried" => {
                self.set(&agent_of(line)?, CurrentAction::Model);
            }
            "ErrorOccurred" => {
                let error: ErrorLine = parse(line)?;
                if error.error_type == MODEL_ERROR && error.is_retryable {
                    self.set(&error.agent_id, CurrentAction::Delay);
                }
            }
            "ToolCalled" | "ToolInvocation" => {
                let tool: ToolUseLine = parse(line)?;
                let step = match event {
                    "ToolCalled" => CurrentAction::Tool(tool.tool_name),
                    _ => CurrentAction::Check(tool.tool_name),
                };
                self.set(&tool.agent_id, step);
            }
            "ModelAnswered" | "ToolReturned" | "ScriptOutput" => {
                self.set(&agent_of(line)?, CurrentAction::Other);
            }
            "StateCompleted" | "AgentTerminated" | "AgentPaused" | "AgentFailed" => {
                self.of_agents.remove(&agent_of(line)?);
            }
            _ => {}
        }
        Some(())
    }

    fn set(&mut self, agent_id: &str, step: CurrentAction) {
        if let Some(activity) = self.of_agents.get_mut(agent_id) {
            activity.step = step;
        }
    }

    /// A sentence for each agent that works; of a build it has no subject.
    pub(in crate::cli) fn sentences(&self) -> Vec<String> {
        let is_build =
            |agent: &str, activity: &Activity| agent == MAIN_AGENT && activity.phase().is_some();
        let of_agents = self.of_agents.iter();
        of_agents
            .map(|(agent, activity)| match is_build(agent, activity) {
                true => activity.text(),
                false => format!("{} {}", escaped(agent), activity.text()),
            })
            .collect()
    }
}

impl Activity {
    fn phase(&self) -> Option<Phase> {
        Phase::of_name(&self.state)
    }

    fn text(&self) -> String {
        let place = match self.phase() {
            Some(_) => String::new(),
            None => format!(" at {}", escaped(&self.state)),
        };
        match &self.step {
            CurrentAction::Model => format!("waits for the model{place}"),
            CurrentAction::Delay => format!("waits before it asks the model again{place}"),
            CurrentAction::Tool(name) => format!("runs the tool {}{place}", escaped(name)),
            CurrentAction::Check(name) => format!("runs check {}{place}", escaped(name)),
            CurrentAction::Other if self.is_script => format!("runs {}", escaped(&self.state)),
            CurrentAction::Other => match self.phase() {
                Some(Phase::Init) => "prepares the workspace".into(),
                Some(Phase::Generating | Phase::Patching) => "writes files".into(),
                Some(Phase::Testing) => "tests".into(),
                Some(Phase::Success | Phase::Failed) => "ends".into(),
                None => format!("is{place}"),
            },
        }
    }
}
