//! What the log says of conversations: requests, answers, calls of tools and their results, by agent and place.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use crate::events::{Bound, ConversationScope, Event, FileMark, Objection, RequestPlace};
use crate::llm::{Answer, Message, PermanentError, PermanentErrorKind};

/// What came back for a request: an answer, or a permanent error.
pub(crate) type RecordedAnswer = std::result::Result<Answer, PermanentError>;

/// A request as the log has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// The number of its line.
    pub line: u64,
    /// The line of the request that it continues.
    pub continues: Option<u64>,
    pub(crate) model: String,
    pub objection: Option<Objection>,
    /// The whole request, or what is new in it where it continues another one.
    pub content: Value,
}

impl RecordedRequest {
    pub fn messages(&self) -> impl Iterator<Item = Message> {
        let all = self.content["messages"].as_array().into_iter().flatten();
        all.filter_map(|message| Message::deserialize(message).ok())
    }
}

/// Why an answer was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRefusal {
    pub fault: String,
    pub had_a_block: bool,
}

/// The result of a tool call; one that did not run says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    pub ran: bool,
    pub is_error: bool,
    pub output: String,
    pub screen: String,
}

/// How a conversation ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClosedConversation {
    /// The text of the last answer.
    pub words: String,
    /// Commands that were still running, each with its environment.
    pub killed: Vec<String>,
    pub bound: Option<Bound>,
}

/// What happened while an answer was being made.
#[derive(Debug, Clone, PartialEq)]
pub enum InlineStep {
    /// A call began.
    Call {
        number: u32,
        tool: String,
        arguments: Value,
    },
    Restart,
}

/// What calls changed in the files since a conversation began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedChanges {
    /// By path: each as it was last recorded.
    pub marks: BTreeMap<String, FileMark>,
    /// The changes of at least one call were not recorded.
    pub is_incomplete: bool,
}

impl RecordedChanges {
    fn add(&mut self, changed: Option<&[FileMark]>) {
        self.is_incomplete |= changed.is_none();
        let marks = changed.unwrap_or_default().iter();
        self.marks
            .extend(marks.map(|mark| (mark.path.clone(), mark.clone())));
    }
}

/// The conversations of a run, by agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histories {
    by_agent: HashMap<String, ConversationHistory>,
    /// Whose request a line of the log is.
    requests: HashMap<u64, (String, RequestPlace)>,
    /// Of an agent that the log does not know.
    none: ConversationHistory,
}

impl Histories {
    /// Applies one event, the `line`th of the log.
    pub fn apply(&mut self, line: u64, event: &Event) {
        if let Event::ModelRequested {
            agent_id, place, ..
        } = event
        {
            self.requests.insert(line, (agent_id.clone(), *place));
        }
        if let Some(agent) = conversing_agent(event) {
            let history = self.by_agent.entry(agent.to_owned()).or_default();
            history.apply(line, event);
        }
    }

    /// Whose request a line of the log is: the agent's conversations, and the place.
    pub(crate) fn request_at(&self, line: u64) -> Option<(&ConversationHistory, RequestPlace)> {
        let (agent, place) = self.requests.get(&line)?;
        Some((self.of(agent), *place))
    }

    pub fn of(&self, agent_id: &str) -> &ConversationHistory {
        self.by_agent.get(agent_id).unwrap_or(&self.none)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &ConversationHistory)> {
        self.by_agent
            .iter()
            .map(|(agent, history)| (agent.as_str(), history))
    }

    /// Drops what was said at a place: its conversation has taken it over. That it was said stays known.
    pub(crate) fn drop_contents(&mut self, agent_id: &str, place: RequestPlace) {
        if let Some(history) = self.by_agent.get_mut(agent_id) {
            history.drop_contents(place);
        }
    }

    /// Drops the contents of exchanges that are not looked up again.
    pub fn forget_exchanges(&mut self) {
        self.requests.clear();
        let histories = self.by_agent.values_mut();
        histories.for_each(ConversationHistory::forget_exchanges);
    }
}

/// The agent whose conversation an event belongs to.
fn conversing_agent(event: &Event) -> Option<&str> {
    match event {
        Event::ModelRequested { agent_id, .. }
        | Event::ModelAnswered { agent_id, .. }
        | Event::AnswerRefused { agent_id, .. }
        | Event::ConversationOpened { agent_id, .. }
        | Event::ConversationClosed { agent_id, .. }
        | Event::ToolCalled { agent_id, .. }
        | Event::ToolReturned { agent_id, .. }
        | Event::EnvironmentsRestarted { agent_id, .. } => Some(agent_id),
        _ => None,
    }
}

/// The conversations of one agent, by scope and place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConversationHistory {
    requests: HashMap<RequestPlace, RecordedRequest>,
    answers: HashMap<RequestPlace, RecordedAnswer>,
    refusals: HashMap<RequestPlace, AnswerRefusal>,
    /// The files with which each conversation began.
    opened: HashMap<ConversationScope, BTreeMap<String, String>>,
    begun: HashSet<(RequestPlace, u32)>,
    /// The tool of each call.
    tools: HashMap<(RequestPlace, u32), String>,
    /// What happened while an answer was being made, in order.
    inline_steps: HashMap<RequestPlace, Vec<InlineStep>>,
    results: HashMap<(RequestPlace, u32), CallResult>,
    /// The text with which a request reports a restart of the environments.
    restarts: HashMap<RequestPlace, String>,
    changed: HashMap<ConversationScope, RecordedChanges>,
    closed: HashMap<ConversationScope, ClosedConversation>,
    last_closed: Option<ConversationScope>,
}

impl ConversationHistory {
    fn apply(&mut self, line: u64, event: &Event) {
        match event {
            Event::ModelRequested {
                place,
                continues,
                objection,
                model,
                request,
                ..
            } => {
                let recorded = RecordedRequest {
                    line,
                    continues: *continues,
                    model: model.clone(),
                    objection: *objection,
                    content: request.clone(),
                };
                self.requests.insert(*place, recorded);
            }
            Event::ModelAnswered {
                place,
                answer,
                error,
                ..
            } => self.answered(*place, answer.as_ref(), error.as_ref()),
            Event::AnswerRefused {
                place,
                fault,
                had_a_block,
                ..
            } => {
                let refusal = AnswerRefusal {
                    fault: fault.clone(),
                    had_a_block: *had_a_block,
                };
                self.refusals.insert(*place, refusal);
            }
            Event::ConversationOpened { scope, files, .. } => {
                self.opened.insert(*scope, files.clone());
                self.changed.insert(*scope, RecordedChanges::default());
            }
            Event::ConversationClosed {
                scope,
                words,
                killed,
                bound,
                ..
            } => {
                let closed = ClosedConversation {
                    words: words.clone(),
                    killed: killed.clone(),
                    bound: bound.clone(),
                };
                self.closed.insert(*scope, closed);
                self.last_closed = Some(*scope);
            }
            other => self.apply_call(other),
        }
    }

    fn answered(&mut self, place: RequestPlace, answer: Option<&Value>, error: Option<&String>) {
        let answer = answer.and_then(|value| Answer::deserialize(value).ok());
        let error = error.map(|message| PermanentError {
            kind: PermanentErrorKind::of_recorded_text(message),
            message: message.clone(),
        });
        if let Some(recorded) = answer.map(Ok).or(error.map(Err)) {
            self.answers.insert(place, recorded);
        }
    }

    fn apply_call(&mut self, event: &Event) {
        match event {
            Event::ToolCalled {
                place,
                call,
                tool_name,
                arguments,
                ..
            } => {
                self.begun.insert((*place, *call));
                self.tools.insert((*place, *call), tool_name.clone());
                let step = InlineStep::Call {
                    number: *call,
                    tool: tool_name.clone(),
                    arguments: arguments.clone(),
                };
                self.inline_steps.entry(*place).or_default().push(step);
            }
            Event::ToolReturned {
                place,
                call,
                tool_name,
                ran,
                is_error,
                output,
                screen,
                changed,
                ..
            } => {
                self.add_changes(place.scope, changed.as_deref());
                self.tools.insert((*place, *call), tool_name.clone());
                let result = CallResult {
                    ran: *ran,
                    is_error: *is_error,
                    output: output.clone(),
                    screen: screen.clone(),
                };
                self.results.insert((*place, *call), result);
            }
            Event::EnvironmentsRestarted {
                place,
                words,
                changed,
                ..
            } => {
                self.add_changes(place.scope, changed.as_deref());
                self.restarts.insert(*place, words.clone());
                let steps = self.inline_steps.entry(*place).or_default();
                steps.push(InlineStep::Restart);
            }
            _ => {}
        }
    }

    fn add_changes(&mut self, scope: ConversationScope, changed: Option<&[FileMark]>) {
        self.changed.entry(scope).or_default().add(changed);
    }

    fn drop_contents(&mut self, place: RequestPlace) {
        if let Some(request) = self.requests.get_mut(&place) {
            request.content = Value::Null;
        }
        if let Some(Ok(answer)) = self.answers.get_mut(&place) {
            answer.content = Vec::new();
        }
        for step in self.inline_steps.get_mut(&place).into_iter().flatten() {
            if let InlineStep::Call { arguments, .. } = step {
                *arguments = Value::Null;
            }
        }
        let mut number = 0;
        while let Some(result) = self.results.get_mut(&(place, number)) {
            (result.output, result.screen) = (String::new(), String::new());
            number += 1;
        }
    }

    /// How the last conversation ended stays.
    fn forget_exchanges(&mut self) {
        let last = self.last_closed.and_then(|scope| {
            let closed = self.closed.remove(&scope)?;
            Some((scope, closed))
        });
        *self = ConversationHistory {
            last_closed: self.last_closed,
            closed: last.into_iter().collect(),
            ..ConversationHistory::default()
        };
    }

    pub fn request(&self, place: RequestPlace) -> Option<&RecordedRequest> {
        self.requests.get(&place)
    }

    pub fn answer(&self, place: RequestPlace) -> Option<&RecordedAnswer> {
        self.answers.get(&place)
    }

    /// The line of the last request of a scope.
    pub(crate) fn last_request(&self, scope: ConversationScope) -> Option<u64> {
        let requests = (0..).map_while(|turn| self.requests.get(&scope.turn(turn)));
        requests.last().map(|request| request.line)
    }

    /// Why the answer at a place was not used, if it was not.
    pub fn refusal(&self, place: RequestPlace) -> Option<&AnswerRefusal> {
        self.refusals.get(&place)
    }

    /// The places of all answers, in order.
    pub fn answer_places(&self) -> BTreeSet<RequestPlace> {
        self.answers.keys().copied().collect()
    }

    /// Whether the answer at this place called a tool, or its request reported a restart of the environments.
    pub(crate) fn uses_environments(&self, place: RequestPlace) -> bool {
        self.begun.contains(&(place, 0)) || self.restarts.contains_key(&place)
    }

    /// The files with which a conversation began.
    pub fn files(&self, scope: ConversationScope) -> Option<&BTreeMap<String, String>> {
        self.opened.get(&scope)
    }

    pub fn has_begun(&self, place: RequestPlace, call: u32) -> bool {
        self.begun.contains(&(place, call))
    }

    /// Whether a call began and has no result: its effect is unknown, and a replay does not repeat it.
    pub fn has_unknown_outcomes(&self) -> bool {
        self.begun
            .iter()
            .any(|call| !self.results.contains_key(call))
    }

    /// What happened while the answer at this place was being made, in order.
    pub fn inline_steps(&self, place: RequestPlace) -> &[InlineStep] {
        self.inline_steps.get(&place).map_or(&[], Vec::as_slice)
    }

    /// The first number that no call at this place has.
    pub fn next_number(&self, place: RequestPlace) -> u32 {
        let known = self.tools.keys().filter(|(of, _)| *of == place);
        known.map(|(_, number)| number + 1).max().unwrap_or(0)
    }

    /// The tool that a call named.
    pub fn tool(&self, place: RequestPlace, call: u32) -> Option<&str> {
        self.tools.get(&(place, call)).map(String::as_str)
    }

    pub fn result(&self, place: RequestPlace, call: u32) -> Option<&CallResult> {
        self.results.get(&(place, call))
    }

    /// The text with which the request at this place reports a restart; empty where an older version did not record it.
    pub fn restart(&self, place: RequestPlace) -> Option<&str> {
        self.restarts.get(&place).map(String::as_str)
    }

    /// What calls changed since a conversation began, as far as it was recorded.
    pub fn changed(&self, scope: ConversationScope) -> Option<&RecordedChanges> {
        self.changed.get(&scope)
    }

    pub fn closed(&self, scope: ConversationScope) -> Option<&ClosedConversation> {
        self.closed.get(&scope)
    }

    pub fn last_closed(&self) -> Option<&ClosedConversation> {
        self.closed.get(&self.last_closed?)
    }
}
