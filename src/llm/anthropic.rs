//! The Messages API of Anthropic, also as other servers implement it.
//!
//! Encodes requests, and assembles answers from a stream or a body. Blocks other than text and tool calls are kept as
//! they are: thinking has to be sent back with its signature.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use crate::llm::answer_reader::read_parts;
use crate::llm::assembly::{
    AnswerAssembly, AnswerSize, AssemblyError, StreamEvent, check_arguments, parse_event, tool_use,
};
use crate::llm::client::ModelClient;
use crate::llm::endpoint::{Endpoint, EndpointClient, EndpointRequest};
use crate::llm::error::LlmError;
use crate::llm::http::HttpPart;
use crate::llm::json::max_memory;
use crate::llm::message::{
    Answer, ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage,
};
use crate::llm::tokens::update_usage;

/// Every compatible server and every model accepts this version.
const VERSION: &str = "2023-06-01";

/// The API accepts four cache marks; one is on the system prompt.
const MARKS_IN_MESSAGES: usize = 3;

/// The memory that an unfinished block takes beside its text.
const DRAFT_OVERHEAD: usize = 512;

/// A client of the Messages API.
#[derive(Debug)]
pub(crate) struct Anthropic {
    endpoint: EndpointClient,
}

impl Anthropic {
    /// The base URL may end in `/v1`.
    pub(crate) fn new(endpoint: Endpoint) -> Anthropic {
        Anthropic {
            endpoint: EndpointClient::new(endpoint),
        }
    }

    fn url(&self) -> String {
        let base = self.endpoint.base_url();
        format!(
            "{}/v1/messages",
            base.strip_suffix("/v1")
                .unwrap_or(base)
                .trim_end_matches('/')
        )
    }
}

impl ModelClient for Anthropic {
    fn encode(&self, request: &ModelRequest) -> String {
        let mut body =
            json!({"model": request.model, "max_tokens": request.max_tokens, "stream": true});
        if let Some(temperature) = request.temperature {
            body["temperature"] = temperature.into();
        }
        if let Some(effort) = &request.effort {
            body["output_config"] = json!({"effort": effort});
        }
        if !request.tools.is_empty() {
            body["tools"] = request
                .tools
                .iter()
                .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}))
                .collect();
        }
        if !request.system.trim().is_empty() {
            body["system"] = json!([marked(
                json!({"type": "text", "text": request.system}),
                true,
                &mut 0
            )]);
        }
        body["messages"] = messages(&request.messages);
        body.to_string()
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.endpoint.set_deadline(until);
    }

    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError> {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("anthropic-version"),
            HeaderValue::from_static(VERSION),
        )]);
        let key_header = (HeaderName::from_static("x-api-key"), "");
        let request = EndpointRequest {
            url: self.url(),
            headers,
            key_header,
            body,
        };
        self.endpoint
            .attempt(request, &mut AnthropicDraft::default(), watch)
    }
}

fn messages(messages: &[Message]) -> Value {
    let is_marked = |block: &&ContentBlock| {
        matches!(
            block,
            ContentBlock::Text { cache: true, .. } | ContentBlock::ToolResult { cache: true, .. }
        )
    };
    let marks = messages
        .iter()
        .flat_map(|message| &message.content)
        .filter(is_marked)
        .count();
    let mut unmarked = marks.saturating_sub(MARKS_IN_MESSAGES);
    let encoded = messages
        .iter()
        .map(|message| encode_message(message, &mut unmarked));
    encoded
        .filter(|message| message["content"] != json!([]))
        .collect()
}

/// `unmarked` is how many of the first cache marks are still to be omitted.
fn encode_message(message: &Message, unmarked: &mut usize) -> Value {
    let mut blocks: Vec<&ContentBlock> = message.content.iter().collect();
    // The API requires tool results before any text.
    blocks.sort_by_key(|block| !matches!(block, ContentBlock::ToolResult { .. }));
    let content: Vec<Value> = blocks
        .into_iter()
        .filter_map(|block| encode_block(block, unmarked))
        .collect();
    let role = if message.role == Role::User {
        "user"
    } else {
        "assistant"
    };
    json!({"role": role, "content": content})
}

fn encode_block(block: &ContentBlock, unmarked: &mut usize) -> Option<Value> {
    Some(match block {
        // The API refuses blank texts.
        ContentBlock::Text { text, .. } if text.trim().is_empty() => return None,
        ContentBlock::Text { text: given, cache } => {
            marked(json!({"type": "text", "text": given}), *cache, unmarked)
        }
        ContentBlock::ToolUse {
            id, name, input, ..
        } => {
            let input = if input.is_object() {
                input.clone()
            } else {
                json!({})
            };
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
        ContentBlock::ToolResult {
            id,
            text,
            screen,
            is_error,
            cache,
        } => {
            let content = format!("{text}{screen}");
            let result = json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error});
            marked(result, *cache, unmarked)
        }
        ContentBlock::Opaque { value } => value.clone(),
    })
}

fn marked(mut block: Value, cache: bool, unmarked: &mut usize) -> Value {
    if cache && *unmarked > 0 {
        *unmarked -= 1;
    } else if cache {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    block
}

/// Reads a complete response.
pub fn read(parts: Vec<HttpPart>) -> Result<Answer, LlmError> {
    read_parts(parts, &mut AnthropicDraft::default())
}

/// An unfinished answer.
#[derive(Debug, Default)]
struct AnthropicDraft {
    blocks: BTreeMap<u64, BlockDraft>,
    model: String,
    stop_reason: Option<String>,
    refusal_category: Option<String>,
    usage: TokenUsage,
    is_complete: bool,
    size: AnswerSize,
}

/// An unfinished block: its start event, and what deltas added to its fields.
#[derive(Debug, Default)]
struct BlockDraft {
    start: Map<String, Value>,
    text: String,
    json: String,
    thinking: String,
    signature: String,
}

impl AnswerAssembly for AnthropicDraft {
    fn event(&mut self, data: &str) -> Result<StreamEvent, AssemblyError> {
        let mut event = parse_event(data)?;
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.envelope(&event["message"]),
            "content_block_start" => {
                self.size.keep(max_memory(data) + DRAFT_OVERHEAD)?;
                self.blocks
                    .insert(index, BlockDraft::new(event["content_block"].take()));
            }
            "content_block_delta" => self.delta(index, &event["delta"])?,
            "content_block_stop" => {}
            "message_delta" => {
                self.stop(&event["delta"]);
                update_usage(&mut self.usage, &event["usage"]);
            }
            "message_stop" => {
                self.is_complete = true;
                return Ok(StreamEvent::End);
            }
            _ => return Ok(StreamEvent::Ignored),
        }
        Ok(StreamEvent::Progress)
    }

    fn whole(&mut self, body: &Value) -> Result<(), AssemblyError> {
        let content = body["content"]
            .as_array()
            .filter(|content| content.iter().all(|block| block["type"].is_string()));
        let content = content.ok_or(AssemblyError::NotAnAnswer)?;
        self.size.keep(content.len() * DRAFT_OVERHEAD)?;
        self.envelope(body);
        self.blocks = (0..)
            .zip(content.iter().cloned().map(BlockDraft::new))
            .collect();
        self.is_complete = true;
        Ok(())
    }

    fn usage(&self) -> TokenUsage {
        self.usage
    }

    fn bytes_written(&self) -> u64 {
        self.size.bytes_written()
    }

    fn finish(&mut self) -> Result<Answer, AssemblyError> {
        if !self.is_complete {
            return Err(AssemblyError::Incomplete);
        }
        check_arguments(self.blocks.values().map(|block| block.json.as_str()))?;
        let content: Vec<ContentBlock> = std::mem::take(&mut self.blocks)
            .into_values()
            .map(BlockDraft::finish)
            .collect();
        let calls_tools = content
            .iter()
            .any(|block| matches!(block, ContentBlock::ToolUse { .. }));
        let stop = match self.stop_reason.take().as_deref() {
            Some("tool_use") => StopReason::ToolUse,
            None if calls_tools => StopReason::ToolUse,
            Some("end_turn" | "stop_sequence") | None => StopReason::EndTurn,
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some("pause_turn") => StopReason::PauseTurn,
            Some("refusal") => StopReason::Refusal(
                self.refusal_category
                    .take()
                    .unwrap_or_else(|| "refusal".into()),
            ),
            Some(other) => StopReason::other(other),
        };
        Ok(Answer {
            content,
            stop,
            usage: self.usage,
            model: std::mem::take(&mut self.model),
            request_id: None,
            bill: None,
        })
    }
}

impl AnthropicDraft {
    fn envelope(&mut self, message: &Value) {
        self.model = message["model"].as_str().unwrap_or_default().to_owned();
        self.stop(message);
        update_usage(&mut self.usage, &message["usage"]);
    }

    /// Takes the stop reason of a message or a delta.
    fn stop(&mut self, holder: &Value) {
        let reason = holder["stop_reason"].as_str().map(str::to_owned);
        self.stop_reason = reason.or(self.stop_reason.take());
        let category = holder["stop_details"]["category"]
            .as_str()
            .map(str::to_owned);
        self.refusal_category = category.or(self.refusal_category.take());
    }

    fn delta(&mut self, index: u64, delta: &Value) -> Result<(), AssemblyError> {
        let (field, kind) = match delta["type"].as_str().unwrap_or_default() {
            "text_delta" => ("text", "text"),
            "input_json_delta" => ("partial_json", "tool_use"),
            "thinking_delta" => ("thinking", "thinking"),
            "signature_delta" => ("signature", "thinking"),
            _ => return Ok(()),
        };
        let piece = delta[field].as_str().unwrap_or_default();
        match field {
            "signature" => self.size.keep(piece.len())?,
            _ => self.size.keep_written(piece)?,
        }
        let block = match self.blocks.get_mut(&index) {
            Some(block) => block,
            None => {
                self.size.keep(DRAFT_OVERHEAD)?;
                self.blocks
                    .entry(index)
                    .or_insert(BlockDraft::new(json!({"type": kind})))
            }
        };
        block.push(field, piece);
        Ok(())
    }
}

impl BlockDraft {
    fn new(start: Value) -> BlockDraft {
        let start = if let Value::Object(start) = start {
            start
        } else {
            Map::new()
        };
        BlockDraft {
            start,
            ..BlockDraft::default()
        }
    }

    fn push(&mut self, field: &str, piece: &str) {
        match field {
            "text" => self.text.push_str(piece),
            "partial_json" => self.json.push_str(piece),
            "thinking" => self.thinking.push_str(piece),
            _ => self.signature.push_str(piece),
        }
    }

    fn finish(mut self) -> ContentBlock {
        let field = |name: &str| {
            self.start
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match field("type").as_str() {
            "text" => ContentBlock::text(field("text") + &self.text),
            "tool_use" => {
                // Some servers send the whole input in the start event.
                let given = self
                    .start
                    .get("input")
                    .filter(|input| !input.is_null())
                    .map(Value::to_string);
                let arguments = if self.json.is_empty() {
                    given.unwrap_or_default()
                } else {
                    self.json
                };
                tool_use(&field("id"), &field("name"), &arguments)
            }
            _ => {
                self.extend("text", &self.text.clone());
                self.extend("thinking", &self.thinking.clone());
                self.extend("signature", &self.signature.clone());
                if let Ok(input) = serde_json::from_str(&self.json) {
                    self.start.insert("input".into(), input);
                }
                ContentBlock::Opaque {
                    value: Value::Object(self.start),
                }
            }
        }
    }

    fn extend(&mut self, name: &str, added: &str) {
        if !added.is_empty() {
            let before = self
                .start
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default();
            self.start
                .insert(name.into(), (before.to_owned() + added).into());
        }
    }
}

#[cfg(test)]
mod tests;
