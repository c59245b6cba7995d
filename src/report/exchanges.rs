//! Model requests, answers and tool calls of a log, as a fold.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::events::{ConversationScope, Event, RequestPlace};
use crate::report::foreign::ForeignText;
use crate::report::model::{ModelExchange, ReportToolCall};
use crate::state::phase::Phase;

const MOST_EXCHANGES: usize = 1000;
const MOST_CALLS: usize = 200;
const MOST_NAMES: usize = 40;
const ASKED: usize = 12_000;
const ANSWERED: usize = 12_000;
const TOOL_TEXT: usize = 4_000;

/// The exchanges of a run so far.
#[derive(Default)]
pub(super) struct Exchanges {
    list: Vec<ModelExchange>,
    places: BTreeMap<(String, RequestPlace), usize>,
    /// The state of a workflow that each agent is in.
    states: BTreeMap<String, String>,
    left_out: u64,
}

impl Exchanges {
    pub(super) fn apply(&mut self, at: &str, event: &Event, foreign: &ForeignText<'_>) {
        match event {
            Event::StateStarted {
                agent_id,
                state_name,
                visit: Some(_),
                ..
            } => {
                let state = foreign.line(state_name);
                self.states.insert(agent_id.clone(), state);
            }
            Event::ModelRequested {
                agent_id,
                place,
                model,
                request,
                ..
            } => {
                let Some(exchange) = self.begin(agent_id, *place) else {
                    return;
                };
                exchange.agent_id = foreign.line(agent_id);
                exchange.at = at.to_owned();
                exchange.model = foreign.line(model);
                exchange.asked = foreign.block(&request_text(request), ASKED);
            }
            Event::ModelAnswered {
                agent_id, place, ..
            } => {
                if let Some(exchange) = self.at(agent_id, *place) {
                    add_answer(exchange, event, foreign);
                }
            }
            Event::AnswerRefused {
                agent_id,
                place,
                fault,
                ..
            } => {
                if let Some(exchange) = self.at(agent_id, *place) {
                    exchange.refused = Some(foreign.block(fault, TOOL_TEXT));
                }
            }
            _ => self.apply_call(event, foreign),
        }
    }

    fn apply_call(&mut self, event: &Event, foreign: &ForeignText<'_>) {
        match event {
            Event::ToolCalled {
                agent_id,
                place,
                call,
                tool_name,
                arguments,
            } => {
                let Some(exchange) = self.at(agent_id, *place) else {
                    return;
                };
                exchange.tools.retain(|known| known.call != *call);
                if exchange.tools.len() == MOST_CALLS {
                    exchange.tools_left_out += 1;
                    return;
                }
                exchange.tools.push(ReportToolCall {
                    call: *call,
                    name: foreign.line(tool_name),
                    arguments: foreign.block(&arguments_text(arguments), TOOL_TEXT),
                    ..ReportToolCall::default()
                });
            }
            Event::ToolReturned {
                agent_id,
                place,
                call,
                ran,
                is_error,
                output,
                execution_time_ms,
                changed,
                ..
            } => {
                let exchange = self.at(agent_id, *place);
                let called = exchange
                    .and_then(|known| known.tools.iter_mut().find(|known| known.call == *call));
                let Some(called) = called else { return };
                called.output = Some(foreign.block(output, TOOL_TEXT));
                (called.ran, called.is_error) = (*ran, *is_error);
                called.duration_ms = *execution_time_ms;
                let changed = changed.iter().flatten().take(MOST_NAMES);
                called.changed = changed.map(|mark| foreign.line(&mark.path)).collect();
            }
            _ => {}
        }
    }

    /// The exchange at a place; a request that is sent again after a crash replaces the one before.
    fn begin(&mut self, agent_id: &str, place: RequestPlace) -> Option<&mut ModelExchange> {
        let key = (agent_id.to_owned(), place);
        let index = match self.places.get(&key) {
            Some(index) => *index,
            None if self.list.len() == MOST_EXCHANGES => {
                self.left_out += 1;
                return None;
            }
            None => {
                self.list.push(ModelExchange::default());
                self.places.insert(key, self.list.len() - 1);
                self.list.len() - 1
            }
        };
        let state = self.states.get(agent_id).cloned();
        let exchange = self.list.get_mut(index)?;
        *exchange = ModelExchange {
            turn: place.turn,
            ..ModelExchange::default()
        };
        match place.scope {
            ConversationScope::Phase { phase, retry_count } => {
                exchange.phase = phase.name().to_owned();
                let before = if phase == Phase::Patching { 2 } else { 1 };
                exchange.attempt = Some(retry_count.saturating_add(before));
            }
            ConversationScope::Visit { visit } => {
                exchange.visit = Some(visit);
                exchange.state = state.unwrap_or_default();
            }
        }
        Some(exchange)
    }

    fn at(&mut self, agent_id: &str, place: RequestPlace) -> Option<&mut ModelExchange> {
        let index = *self.places.get(&(agent_id.to_owned(), place))?;
        self.list.get_mut(index)
    }

    /// The exchanges in the order of the log, and how many are beyond the bound.
    pub(super) fn finish(self) -> (Vec<ModelExchange>, u64) {
        (self.list, self.left_out)
    }
}

/// Adds the answer, or the error that came instead.
fn add_answer(exchange: &mut ModelExchange, event: &Event, foreign: &ForeignText<'_>) {
    let Event::ModelAnswered {
        cost_usd,
        duration_ms,
        answer,
        error,
        ..
    } = event
    else {
        return;
    };
    exchange.cost_usd = *cost_usd;
    exchange.duration_ms = Some(*duration_ms);
    let error = error.as_deref();
    exchange.error = error.map(|error| foreign.block(error, TOOL_TEXT));
    if let Some(answer) = answer {
        exchange.answered = Some(foreign.block(&answer_text(answer), ANSWERED));
        let tokens = |name: &str| answer["usage"][name].as_u64().unwrap_or_default();
        let input = ["input", "cache_write", "cache_read"].map(tokens);
        exchange.input_tokens = input.into_iter().fold(0, u64::saturating_add);
        exchange.output_tokens = tokens("output");
    }
}

/// The messages of a request, without the results of tools, which their calls have.
fn request_text(request: &Value) -> String {
    let mut parts = Vec::new();
    for key in ["messages", "input", "prompt", "message"] {
        push_texts(&request[key], &mut parts);
    }
    match parts.is_empty() {
        true if request["messages"].is_array() => "(results of the tool calls above)".to_owned(),
        true => request.to_string(),
        false => parts.join("\n\n"),
    }
}

/// The text of an answer; its tool calls are listed on their own.
fn answer_text(answer: &Value) -> String {
    let mut parts = Vec::new();
    push_texts(&answer["content"], &mut parts);
    parts.join("\n\n")
}

fn push_texts<'a>(value: &'a Value, parts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => parts.push(text),
        Value::Array(items) => items.iter().for_each(|item| push_texts(item, parts)),
        Value::Object(_) if value["type"] != "tool_result" && value["role"] != "tool" => {
            push_texts(&value["text"], parts);
            push_texts(&value["content"], parts);
        }
        _ => {}
    }
}

fn arguments_text(arguments: &Value) -> String {
    match arguments.as_object() {
        Some(fields) if fields.len() == 1 => match arguments["command"].as_str() {
            Some(command) => command.to_owned(),
            None => arguments.to_string(),
        },
        _ => arguments.to_string(),
    }
}
