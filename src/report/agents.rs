//! The agents of a workflow, as a fold of its log.

use std::collections::BTreeMap;

use crate::events::{Event, MAIN_AGENT};
use crate::report::foreign::ForeignText;
use crate::report::model::{ReportAgent, ReportCheck};

const RESULT: usize = 4_000;
const MOST_SCRIPTS: usize = 40;

/// The agents so far.
#[derive(Default)]
pub(super) struct Agents {
    by_id: BTreeMap<String, ReportAgent>,
    /// In the order in which they began.
    order: Vec<String>,
}

impl Agents {
    pub(super) fn apply(&mut self, event: &Event, foreign: &ForeignText<'_>) {
        match event {
            Event::StateStarted { agent_id, .. } => {
                let agent = self.agent(agent_id, foreign);
                agent.visits += 1;
                agent.status = "unfinished";
                agent.result.clear();
            }
            Event::AgentSpawned {
                parent_agent_id,
                new_agent_id,
                ..
            } => self.agent(new_agent_id, foreign).parent = Some(foreign.line(parent_agent_id)),
            Event::AgentTerminated {
                agent_id,
                result_payload: text,
            } => self.end(agent_id, ("ended", text), foreign),
            Event::AgentPaused {
                agent_id,
                message: text,
                ..
            } => self.end(agent_id, ("paused", text), foreign),
            Event::AgentFailed {
                agent_id,
                message: text,
            } => self.end(agent_id, ("failed", text), foreign),
            _ => {}
        }
    }

    fn end(&mut self, id: &str, (status, text): (&'static str, &str), foreign: &ForeignText<'_>) {
        let agent = self.agent(id, foreign);
        agent.status = status;
        agent.result = foreign.block(text, RESULT);
    }

    pub(super) fn agent(&mut self, id: &str, foreign: &ForeignText<'_>) -> &mut ReportAgent {
        if !self.by_id.contains_key(id) {
            self.order.push(id.to_owned());
        }
        let new = || ReportAgent {
            agent_id: foreign.line(id),
            status: "unfinished",
            ..ReportAgent::default()
        };
        self.by_id.entry(id.to_owned()).or_insert_with(new)
    }

    /// A script of an agent has ended.
    pub(super) fn add_script(&mut self, id: &str, script: ReportCheck, foreign: &ForeignText<'_>) {
        let scripts = &mut self.agent(id, foreign).scripts;
        if scripts.len() < MOST_SCRIPTS {
            scripts.push(script);
        }
    }

    /// The agents in the order in which they began; `main` only if it was in a state.
    pub(super) fn finish(mut self) -> Vec<ReportAgent> {
        let all = self.order.iter().filter_map(|id| self.by_id.remove(id));
        all.filter(|agent| 0 < agent.visits || agent.agent_id != MAIN_AGENT)
            .collect()
    }
}
