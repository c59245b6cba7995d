//! What the log says of a workflow: its agents, their sessions and stacks, joins, results.
//!
//! It is a fold, and the only code that changes an agent: a transition is recorded first, and what it does follows from
//! the recorded line, live and after a crash alike. `state.json` is a copy of it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::conversation::event_log::Projection;
use crate::conversation::usage::STEP_ERROR;
use crate::events::{Event, MAIN_AGENT};
use crate::state::reason::Reason;
use crate::state::workflow::{AgentState, AgentStatus, StackFrame, WorkflowPhase, WorkflowState};
use crate::workflow::agent_record::{
    AgentRecord, FOLDER, SessionPoint, TransitionFacts, WorkerFacts,
};
use crate::workflow::scope::stem;
use crate::workflow::tags::TagName;
use crate::workflow::transition::{AfterFork, FanOut, Transition};

/// Characters of a state's name in the id of a worker.
const ID_CHARACTERS: usize = 6;
/// The workflow that the events of a log describe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkflowLog {
    agents: Vec<AgentRecord>,
    fork_counters: BTreeMap<String, u64>,
    results: BTreeMap<String, String>,
    phase: WorkflowPhase,
    reason: Option<Reason>,
    sandbox: Option<String>,
    /// What transitions have done and the log does not say yet.
    unannounced: VecDeque<Event>,
    /// Of each agent: the visits that its transitions came from, and the last visit.
    visits: HashMap<String, Vec<u64>>,
    last_visits: HashMap<String, u64>,
    /// Of each agent: the answers that it got.
    answers: HashMap<String, Vec<String>>,
    /// The input of the start.
    input: Option<String>,
}

impl Projection for WorkflowLog {
    fn apply(&mut self, line: u64, event: &Event) {
        match event {
            Event::WorkflowStarted {
                resumed,
                start_state: Some(start),
                input,
                ..
            } => self.started(line, *resumed, start, input.as_ref()),
            Event::TransitionOccurred {
                agent_id,
                to_state,
                transition_type,
                metadata,
                ..
            } => {
                let tag = TagName::of_word(transition_type);
                if let (Some(tag), Ok(facts)) = (tag, TransitionFacts::deserialize(metadata)) {
                    self.moved(line, agent_id, tag, to_state.as_deref(), facts);
                }
            }
            Event::StateStarted {
                agent_id,
                visit: Some(visit),
                ..
            } => drop(self.last_visits.insert(agent_id.clone(), *visit)),
            Event::AgentSpawned { .. } | Event::AgentTerminated { .. } => {
                self.unannounced.retain(|known| known != event);
            }
            Event::SandboxFound { mode, .. } => self.sandbox = Some(mode.clone()),
            Event::WorkflowCompleted {
                outcome, reason, ..
            } => self.ended(outcome, reason),
            Event::WorkflowPaused { reason, .. } => self.ended("PAUSED", reason),
            other => self.apply_to_agent(other),
        }
    }
}

impl WorkflowLog {
    /// The first start begins `main`; a later one takes up every agent that stopped.
    fn started(&mut self, line: u64, is_resumed: bool, start: &str, input: Option<&String>) {
        (self.phase, self.reason) = (WorkflowPhase::Running, None);
        if !is_resumed {
            self.input = input.cloned();
            let main = WorkerFacts {
                id: MAIN_AGENT.into(),
                state: start.to_owned(),
                input: input.cloned(),
                vars: BTreeMap::new(),
                cwd: FOLDER.into(),
            };
            self.agents.push(AgentRecord::new(main, line));
            return;
        }
        for agent in &mut self.agents {
            agent.environments_since = line;
            agent.retry_count = 0;
            match agent.status {
                AgentStatus::Failed => agent.visit += 1,
                AgentStatus::Paused => {}
                AgentStatus::Running | AgentStatus::Waiting | AgentStatus::Asking => continue,
            }
            agent.status = AgentStatus::Running;
            (agent.error, agent.reason) = (None, None);
        }
    }

    fn ended(&mut self, outcome: &str, reason: &str) {
        self.phase = match outcome {
            "SUCCESS" => WorkflowPhase::Success,
            "PAUSED" => WorkflowPhase::Paused,
            _ => WorkflowPhase::Failed,
        };
        self.reason = serde_json::from_value(Value::from(reason)).ok();
    }

    fn apply_to_agent(&mut self, event: &Event) {
        match event {
            Event::AgentPaused {
                agent_id,
                reason,
                message,
            } => self.stopped(agent_id, AgentStatus::Paused, Some(*reason), message),
            Event::AgentFailed { agent_id, message } => {
                self.stopped(agent_id, AgentStatus::Failed, None, message);
            }
            Event::AgentAnswered { agent_id, text } => {
                let answers = self.answers.entry(agent_id.clone()).or_default();
                answers.push(text.clone());
                if let Some(agent) = self.agent_mut(agent_id) {
                    agent.status = AgentStatus::Running;
                    agent.input = Some(text.clone());
                    agent.error = None;
                }
            }
            Event::ErrorOccurred {
                agent_id,
                error_type,
                retry_count,
                ..
            } if error_type == STEP_ERROR => {
                if let Some(agent) = self.agent_mut(agent_id) {
                    agent.retry_count = *retry_count;
                }
            }
            Event::ModelAnswered { agent_id, .. } => {
                if let Some(agent) = self.agent_mut(agent_id) {
                    agent.retry_count = 0;
                }
            }
            _ => {}
        }
    }

    fn stopped(&mut self, id: &str, status: AgentStatus, reason: Option<Reason>, message: &str) {
        if let Some(agent) = self.agent_mut(id) {
            agent.status = status;
            agent.reason = reason;
            agent.error = Some(message.to_owned());
        }
    }

    /// Does what a transition says.
    fn moved(
        &mut self,
        line: u64,
        id: &str,
        tag: TagName,
        to_state: Option<&str>,
        facts: TransitionFacts,
    ) {
        self.visits
            .entry(id.to_owned())
            .or_default()
            .push(facts.visit);
        if !facts.workers.is_empty() {
            self.spawn(line, id, &facts.workers);
        }
        let Some(agent) = self.agent_mut(id) else {
            return;
        };
        agent.leave_state(&facts);
        match tag {
            TagName::Goto => {}
            TagName::Reset => (agent.session, agent.branch) = (None, None),
            TagName::Function => {
                agent.push(&facts);
                (agent.session, agent.branch) = (None, None);
            }
            TagName::Call => {
                agent.push(&facts);
                agent.branch = agent.session.take().or(agent.branch.take());
            }
            TagName::Fork if facts.join => {
                agent.status = AgentStatus::Waiting;
                agent.joined = facts
                    .workers
                    .iter()
                    .map(|worker| worker.id.clone())
                    .collect();
            }
            TagName::Fork => {}
            TagName::Ask => {
                agent.status = AgentStatus::Asking;
                agent.error.clone_from(&facts.question);
                agent.environments_since = line;
            }
            TagName::Result => {
                return self.returned(line, id, facts.payload.unwrap_or_default());
            }
        }
        if let Some(cwd) = facts.cwd {
            agent.enter_directory(cwd, line);
        }
        agent.state = to_state.unwrap_or_default().to_owned();
        agent.input = facts.input;
    }

    /// Returns to the last frame; without one the agent ends.
    fn returned(&mut self, line: u64, id: &str, payload: String) {
        let Some(index) = self.agents.iter().position(|agent| agent.id == id) else {
            return;
        };
        let agent = &mut self.agents[index];
        if let Some(frame) = agent.stack.pop() {
            agent.state = frame.return_state;
            (agent.session, agent.branch) = (frame.session, frame.branch);
            agent.enter_directory(frame.cwd, line);
            agent.input = Some(payload);
            return;
        }
        self.agents.remove(index);
        self.results.insert(id.to_owned(), payload.clone());
        self.unannounced.push_back(Event::AgentTerminated {
            agent_id: id.to_owned(),
            result_payload: payload,
        });
        self.end_joins(id);
    }

    /// Goes on with the agent whose last worker has ended.
    fn end_joins(&mut self, ended: &str) {
        let results = &self.results;
        let waits = |agent: &&mut AgentRecord| {
            agent.status == AgentStatus::Waiting && agent.joined.iter().any(|id| id == ended)
        };
        if let Some(agent) = self.agents.iter_mut().find(waits)
            && agent.joined.iter().all(|id| results.contains_key(id))
        {
            let payloads = agent.joined.iter().map(|id| {
                let payload = results.get(id).cloned().unwrap_or_default();
                (id.clone(), Value::from(payload))
            });
            let object: Map<String, Value> = payloads.collect();
            agent.input = Some(Value::from(object).to_string());
            agent.status = AgentStatus::Running;
            agent.joined.clear();
        }
    }

    fn spawn(&mut self, line: u64, parent: &str, workers: &[WorkerFacts]) {
        for worker in workers {
            let prefix = id_prefix(parent, &worker.state);
            let number = worker.id.strip_prefix(&prefix);
            let number = number.and_then(|number| number.parse().ok()).unwrap_or(0);
            let counter = self.fork_counters.entry(parent.to_owned()).or_default();
            *counter = number.max(*counter);
            self.unannounced.push_back(Event::AgentSpawned {
                parent_agent_id: parent.to_owned(),
                new_agent_id: worker.id.clone(),
                initial_state: worker.state.clone(),
            });
            self.agents.push(AgentRecord::new(worker.clone(), line));
        }
    }

    /// The line of a transition, with the ids of new workers. `cwds` are the directories that it asks for, resolved.
    pub(crate) fn facts_of(
        &self,
        agent: &AgentRecord,
        transition: &Transition,
        mut cwds: VecDeque<String>,
    ) -> TransitionFacts {
        let mut facts = TransitionFacts::default();
        match transition {
            Transition::Goto(to) => facts.input.clone_from(&to.input),
            Transition::Reset { to, .. } => {
                facts.input.clone_from(&to.input);
                facts.cwd = cwds.pop_front();
            }
            Transition::Function { to, return_state } | Transition::Call { to, return_state } => {
                facts.input.clone_from(&to.input);
                facts.return_state = Some(return_state.clone());
            }
            Transition::Fork(fan_out) => {
                facts.input.clone_from(&fan_out.input);
                facts.join = matches!(fan_out.after, AfterFork::Join(_));
                facts.workers = self.new_workers(agent, fan_out, cwds);
            }
            Transition::Result { payload } => facts.payload = Some(payload.clone()),
            Transition::Ask { question, .. } => facts.question = Some(question.clone()),
        }
        facts
    }

    fn new_workers(
        &self,
        parent: &AgentRecord,
        fan_out: &FanOut,
        mut cwds: VecDeque<String>,
    ) -> Vec<WorkerFacts> {
        let mut number = self.fork_counters.get(&parent.id).copied().unwrap_or(0);
        let mut workers: Vec<WorkerFacts> = Vec::new();
        for worker in &fan_out.workers {
            let prefix = id_prefix(&parent.id, &worker.to.state);
            let id = loop {
                number += 1;
                let id = format!("{prefix}{number}");
                if !self.is_taken(&id) && !workers.iter().any(|known| known.id == id) {
                    break id;
                }
            };
            let cwd = worker.cd.as_ref().and_then(|_| cwds.pop_front());
            workers.push(WorkerFacts {
                id,
                state: worker.to.state.clone(),
                input: worker.to.input.clone(),
                vars: worker.vars.clone(),
                cwd: cwd.unwrap_or_else(|| parent.cwd.clone()),
            });
        }
        workers
    }

    fn is_taken(&self, id: &str) -> bool {
        self.agents.iter().any(|agent| agent.id == id) || self.results.contains_key(id)
    }

    fn agent_mut(&mut self, id: &str) -> Option<&mut AgentRecord> {
        self.agents.iter_mut().find(|agent| agent.id == id)
    }

    pub(crate) fn agent(&self, id: &str) -> Option<&AgentRecord> {
        self.agents.iter().find(|agent| agent.id == id)
    }

    /// The agents that have not ended, in the order in which they began.
    pub(crate) fn agents(&self) -> &[AgentRecord] {
        &self.agents
    }

    pub(crate) fn results(&self) -> &BTreeMap<String, String> {
        &self.results
    }

    pub(crate) fn phase(&self) -> WorkflowPhase {
        self.phase
    }

    /// The sandbox mode of the last start.
    pub(crate) fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    /// What transitions have done and the log does not say yet.
    pub(crate) fn unannounced(&self) -> Vec<Event> {
        self.unannounced.iter().cloned().collect()
    }

    /// The visit that a step of an agent came from: of a step without a transition, the last one.
    pub(crate) fn visit_of_step(&self, id: &str, step: usize) -> Option<u64> {
        let visits = self.visits.get(id);
        let of_transition = visits.and_then(|visits| visits.get(step));
        of_transition.or(self.last_visits.get(id)).copied()
    }

    /// The input of the start.
    pub(crate) fn input(&self) -> Option<&str> {
        self.input.as_deref()
    }

    /// An answer that an agent got.
    pub(crate) fn answer(&self, id: &str, number: usize) -> Option<&str> {
        self.answers.get(id)?.get(number).map(String::as_str)
    }

    /// How many answers an agent got.
    pub(crate) fn answer_count(&self, id: &str) -> usize {
        self.answers.get(id).map_or(0, Vec::len)
    }

    /// Every point of a session that something may go on from.
    pub(crate) fn session_points(&self) -> impl Iterator<Item = &SessionPoint> {
        self.agents.iter().flat_map(|agent| {
            let frames = agent.stack.iter();
            let frames = frames.flat_map(|frame| frame.session.iter().chain(&frame.branch));
            agent.session.iter().chain(&agent.branch).chain(frames)
        })
    }

    /// Copies what the log says into a state.
    pub fn copy_to(&self, state: &mut WorkflowState) {
        state.state = self.phase;
        state.reason = self.reason;
        state.agents = self
            .agents
            .iter()
            .map(|agent| self.agent_state(agent))
            .collect();
        state.fork_counters.clone_from(&self.fork_counters);
        state.results.clone_from(&self.results);
    }

    /// Whether a state says of the agents what the log says.
    pub(crate) fn agrees_with(&self, state: &WorkflowState) -> bool {
        let agents = self.agents.iter().map(|agent| self.agent_state(agent));
        agents.eq(state.agents.iter().cloned())
            && self.results == state.results
            && self.fork_counters == state.fork_counters
    }

    fn agent_state(&self, agent: &AgentRecord) -> AgentState {
        let id_of = |point: &Option<SessionPoint>| point.as_ref().map(|point| point.id.clone());
        let frames = agent.stack.iter().map(|frame| StackFrame {
            return_state: frame.return_state.clone(),
            session_id: id_of(&frame.session),
            branch_from: id_of(&frame.branch),
            cwd: frame.cwd.clone(),
        });
        let has_ended = |id: &&String| self.results.contains_key(*id);
        AgentState {
            id: agent.id.clone(),
            current_state: agent.state.clone(),
            session_id: id_of(&agent.session),
            branch_from: id_of(&agent.branch),
            cwd: agent.cwd.clone(),
            stack: frames.collect(),
            pending_input: agent.input.clone(),
            vars: agent.vars.clone(),
            status: agent.status,
            waits_for: agent
                .joined
                .iter()
                .filter(|id| !has_ended(id))
                .cloned()
                .collect(),
            retry_count: agent.retry_count,
            error: agent.error.clone(),
        }
    }
}

/// The id of a worker without its number.
fn id_prefix(parent: &str, state: &str) -> String {
    let name: String = stem(state).chars().take(ID_CHARACTERS).collect();
    format!("{parent}_{}", name.to_lowercase())
}

#[cfg(test)]
mod tests;
