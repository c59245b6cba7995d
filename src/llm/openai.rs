//! The Chat Completions dialect of OpenAI, and of the many servers that speak it too.
//!
//! Turns a request into a body and what comes back, streamed or whole, into an answer. Knows nothing of caching beyond
//! what the counters say, and sends no reasoning back: this dialect has no place for it.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use crate::llm::endpoint::{
    self, Assembly, Call, Caller, Endpoint, Heard, Kept, parse_event, refuse_intricate, tokens, tool_use,
};
use crate::llm::http::Part;
use crate::llm::{Answer, Block, LlmClient, LlmError, Message, Request, Role, StopReason, Usage};

/// What a call under way takes in memory beside its arguments.
const CALL_OVERHEAD: usize = 256;

/// A client of the Chat Completions API.
#[derive(Debug)]
pub struct OpenAi {
    caller: Caller,
}

impl OpenAi {
    /// Returns a client; the base URL includes `/v1` where the server has it.
    pub fn new(endpoint: Endpoint) -> OpenAi {
        OpenAi { caller: Caller::new(endpoint) }
    }

    /// OpenAI's reasoning models refuse the old name, and many other servers know only that.
    fn limit_field(&self) -> &'static str {
        let url = Url::parse(self.caller.base_url());
        let is_openai = url.is_ok_and(|url| url.host_str() == Some("api.openai.com"));
        if is_openai { "max_completion_tokens" } else { "max_tokens" }
    }
}

impl LlmClient for OpenAi {
    fn encode(&self, request: &Request) -> String {
        let mut body = json!({"model": request.model, "stream": true, "stream_options": {"include_usage": true}});
        body[self.limit_field()] = request.max_tokens.into();
        if let Some(temperature) = request.temperature {
            body["temperature"] = temperature.into();
        }
        if let Some(effort) = &request.effort {
            body["reasoning_effort"] = effort.as_str().into();
        }
        if !request.tools.is_empty() {
            body["tools"] = request
                .tools
                .iter()
                .map(|tool| {
                    let function =
                        json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
                    json!({"type": "function", "function": function})
                })
                .collect();
        }
        let system = Some(&request.system).filter(|system| !system.trim().is_empty());
        let system = system.map(|system| json!({"role": "system", "content": system}));
        body["messages"] = system.into_iter().chain(request.messages.iter().flat_map(encode_message)).collect();
        body.to_string()
    }

    fn hurry(&mut self, until: Option<Instant>) {
        self.caller.hurry(until);
    }

    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError> {
        let url = format!("{}/chat/completions", self.caller.base_url());
        let call = Call { url, headers: HeaderMap::new(), key_header: (AUTHORIZATION, "Bearer "), body };
        self.caller.attempt(call, &mut Draft::default(), watch)
    }
}

/// One message may become several: each tool result is one here, and they follow their calls directly.
fn encode_message(message: &Message) -> Vec<Value> {
    let mut encoded: Vec<Value> = message.content.iter().filter_map(encode_result).collect();
    let calls: Vec<Value> = message.content.iter().filter_map(encode_call).collect();
    let text = joined_text(&message.content);
    match message.role {
        Role::User if !text.is_empty() => encoded.push(json!({"role": "user", "content": text})),
        Role::Assistant if !calls.is_empty() => {
            let content = Some(text).filter(|text| !text.is_empty());
            encoded.push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
        }
        Role::Assistant if !text.is_empty() => encoded.push(json!({"role": "assistant", "content": text})),
        _ => {}
    }
    encoded
}

fn encode_result(block: &Block) -> Option<Value> {
    let Block::ToolResult { id, text, screen, .. } = block else { return None };
    Some(json!({"role": "tool", "tool_call_id": id, "content": format!("{text}{screen}")}))
}

fn encode_call(block: &Block) -> Option<Value> {
    let Block::ToolUse { id, name, input, .. } = block else { return None };
    // Servers that put the arguments into a template fail on what is no JSON object.
    let arguments = if input.is_object() { input.to_string() } else { "{}".into() };
    Some(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// A list of parts is not understood by every server; a string is.
fn joined_text(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text { text, .. } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Reads what a server of this dialect has sent, where all of it is there.
pub fn read(parts: Vec<Part>) -> Result<Answer, LlmError> {
    endpoint::read(parts, &mut Draft::default())
}

/// An answer as far as it has come.
#[derive(Debug, Default)]
struct Draft {
    text: String,
    refusal: String,
    calls: BTreeMap<u64, CallDraft>,
    /// The call that a piece without an index belongs to.
    last_call: u64,
    model: String,
    finish_reason: Option<String>,
    prompt: u64,
    cached: u64,
    output: u64,
    is_complete: bool,
    has_choice: bool,
    kept: Kept,
}

#[derive(Debug, Default)]
struct CallDraft {
    id: String,
    name: String,
    arguments: String,
}

impl CallDraft {
    /// Its result has to name the call, so one without an id gets one.
    fn finish((index, call): (u64, CallDraft)) -> Block {
        let id = if call.id.is_empty() { format!("call_{index}") } else { call.id };
        tool_use(&id, &call.name, &call.arguments)
    }
}

impl Assembly for Draft {
    fn event(&mut self, data: &str) -> Result<Heard, String> {
        if data.trim() == "[DONE]" {
            self.is_complete = self.has_choice;
            return Ok(Heard::End);
        }
        let chunk = parse_event(data)?;
        self.envelope(&chunk);
        let Some(choice) = first_choice(&chunk) else {
            return Ok(if chunk["usage"].is_object() { Heard::Something } else { Heard::Nothing });
        };
        self.choice(choice, &choice["delta"])?;
        Ok(Heard::Something)
    }

    fn whole(&mut self, body: &Value) -> Result<(), String> {
        let choice = first_choice(body).filter(|choice| choice["message"].is_object()).ok_or("this is no answer")?;
        self.envelope(body);
        self.choice(choice, &choice["message"])?;
        self.is_complete = true;
        Ok(())
    }

    /// Here the cached tokens are part of the prompt's.
    fn usage(&self) -> Usage {
        let input = self.prompt.saturating_sub(self.cached);
        Usage { input, cache_write: 0, cache_read: self.cached, output: self.output }
    }

    fn finish(&mut self) -> Result<Answer, String> {
        if !self.is_complete && self.finish_reason.is_none() {
            return Err("the stream ended before the answer was complete".into());
        }
        refuse_intricate(self.calls.values().map(|call| call.arguments.as_str()))?;
        let stop = self.stop_reason();
        let usage = self.usage();
        let text = if self.text.is_empty() { &mut self.refusal } else { &mut self.text };
        let text = Some(std::mem::take(text)).filter(|text| !text.is_empty()).map(Block::text);
        let calls = std::mem::take(&mut self.calls).into_iter().map(CallDraft::finish);
        let content = text.into_iter().chain(calls).collect();
        Ok(Answer { content, stop, usage, model: std::mem::take(&mut self.model), request_id: None, bill: None })
    }
}

impl Draft {
    fn envelope(&mut self, chunk: &Value) {
        if let Some(model) = chunk["model"].as_str() {
            self.model = model.to_owned();
        }
        let usage = &chunk["usage"];
        self.prompt = tokens(&usage["prompt_tokens"]).unwrap_or(self.prompt);
        self.output = tokens(&usage["completion_tokens"]).unwrap_or(self.output);
        self.cached = tokens(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(self.cached);
    }

    /// `message` is the choice's `delta` in a stream, else its `message`; they have the same fields.
    fn choice(&mut self, choice: &Value, message: &Value) -> Result<(), String> {
        self.has_choice = true;
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        for (field, kept) in [("content", &mut self.text), ("refusal", &mut self.refusal)] {
            let piece = message[field].as_str().unwrap_or_default();
            self.kept.add(piece.len())?;
            kept.push_str(piece);
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        for (position, call) in calls.enumerate() {
            self.call(position, call)?;
        }
        Ok(())
    }

    fn call(&mut self, position: usize, call: &Value) -> Result<(), String> {
        let id = call["id"].as_str().unwrap_or_default();
        let name = call["function"]["name"].as_str().unwrap_or_default();
        self.last_call = match call["index"].as_u64() {
            Some(index) => index,
            // Without an index a new id or a further entry begins a call.
            None if !id.is_empty() || position > 0 => {
                self.calls.keys().next_back().map_or(0, |last| last.saturating_add(1))
            }
            None => self.last_call,
        };
        let arguments = match &call["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let overhead = if self.calls.contains_key(&self.last_call) { 0 } else { CALL_OVERHEAD };
        self.kept.add(id.len() + name.len() + arguments.len() + overhead)?;
        let draft = self.calls.entry(self.last_call).or_default();
        keep_first(&mut draft.id, id);
        keep_first(&mut draft.name, name);
        draft.arguments.push_str(&arguments);
        Ok(())
    }

    fn stop_reason(&mut self) -> StopReason {
        match self.finish_reason.take().as_deref() {
            Some("content_filter") => StopReason::Refusal("content_filter".into()),
            Some("length") => StopReason::MaxTokens,
            _ if !self.refusal.is_empty() => StopReason::Refusal("refusal".into()),
            // Some servers say `stop` after a call.
            Some("tool_calls" | "stop") | None if !self.calls.is_empty() => StopReason::ToolUse,
            Some("stop" | "tool_calls") | None => StopReason::EndTurn,
            Some(other) => StopReason::Other(other.to_owned()),
        }
    }
}

fn first_choice(body: &Value) -> Option<&Value> {
    let choices = body["choices"].as_array()?;
    choices.iter().find(|choice| choice.is_object() && choice["index"].as_u64().unwrap_or(0) == 0)
}

fn keep_first(kept: &mut String, given: &str) {
    if kept.is_empty() {
        kept.push_str(given);
    }
}

#[cfg(test)]
mod tests;
