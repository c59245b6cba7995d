//! The Messages API of Anthropic, also as other servers implement it.
//!
//! Encodes requests, and assembles answers from a stream or a body. Blocks other than text and tool calls are kept as
//! they are: thinking has to be sent back with its signature.

use std::collections::BTreeMap;
use std::time::Instant;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
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
    Answer, CallInput, ContentBlock, Message, ModelRequest, ResultText, Role, StopReason,
    TokenUsage, ToolOffer,
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

    fn url(&self, name: &str) -> String {
        let base = self.endpoint.base_url();
        let base = base.strip_suffix("/v1").unwrap_or(base);
        format!("{}/v1/{name}", base.trim_end_matches('/'))
    }
}

impl ModelClient for Anthropic {
    fn encode(&self, request: &ModelRequest) -> String {
        let effort = request.effort.as_deref();
        let system = Some(request.system.as_str()).filter(|system| !system.trim().is_empty());
        let body = AnthropicBody {
            model: &request.model,
            max_tokens: request.max_tokens,
            stream: true,
            temperature: request.temperature,
            output_config: effort.map(|effort| OutputConfig { effort }),
            tools: request.tools.iter().map(AnthropicTool::of).collect(),
            system: system.map(|text| {
                [AnthropicBlock::Text {
                    text,
                    cache_control: Some(CacheControl::Ephemeral),
                }]
            }),
            messages: messages(&request.messages),
        };
        serde_json::to_string(&body).unwrap_or_default()
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
            url: self.url("messages"),
            models_url: self.url("models"),
            headers,
            key_header,
            body,
        };
        self.endpoint
            .attempt(request, &mut AnthropicDraft::default(), watch)
    }
}

/// A request as the API has it; the order of the fields is that of the body.
#[derive(Serialize)]
struct AnthropicBody<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[AnthropicBlock<'a>; 1]>,
    messages: Vec<AnthropicMessage<'a>>,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

impl AnthropicTool<'_> {
    fn of(offer: &ToolOffer) -> AnthropicTool<'_> {
        AnthropicTool {
            name: &offer.name,
            description: &offer.description,
            input_schema: &offer.schema,
        }
    }
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: Role,
    content: Vec<AnthropicBlock<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: CallInput<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: ResultText<'a>,
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    #[serde(untagged)]
    Opaque(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

fn messages(messages: &[Message]) -> Vec<AnthropicMessage<'_>> {
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
        .filter(|message| !message.content.is_empty())
        .collect()
}

/// `unmarked` is how many of the first cache marks are still to be omitted.
fn encode_message<'a>(message: &'a Message, unmarked: &mut usize) -> AnthropicMessage<'a> {
    let mut blocks: Vec<&ContentBlock> = message.content.iter().collect();
    // The API requires tool results before any text.
    blocks.sort_by_key(|block| !matches!(block, ContentBlock::ToolResult { .. }));
    AnthropicMessage {
        role: message.role,
        content: blocks
            .into_iter()
            .filter_map(|block| encode_block(block, unmarked))
            .collect(),
    }
}

fn encode_block<'a>(block: &'a ContentBlock, unmarked: &mut usize) -> Option<AnthropicBlock<'a>> {
    Some(match block {
        // The API refuses blank texts.
        ContentBlock::Text { text, .. } if text.trim().is_empty() => return None,
        ContentBlock::Text { text, cache } => AnthropicBlock::Text {
            text,
            cache_control: cache_control(*cache, unmarked),
        },
        ContentBlock::ToolUse {
            id, name, input, ..
        } => AnthropicBlock::ToolUse {
            id,
            name,
            input: CallInput(input),
        },
        ContentBlock::ToolResult {
            id,
            text,
            screen,
            is_error,
            cache,
        } => AnthropicBlock::ToolResult {
            tool_use_id: id,
            content: ResultText { text, screen },
            is_error: *is_error,
            cache_control: cache_control(*cache, unmarked),
        },
        ContentBlock::Opaque { value } => AnthropicBlock::Opaque(value),
    })
}

fn cache_control(cache: bool, unmarked: &mut usize) -> Option<CacheControl> {
    if cache && *unmarked > 0 {
        *unmarked -= 1;
        return None;
    }
    cache.then_some(CacheControl::Ephemeral)
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
            "text" if field("text").is_empty() => ContentBlock::text(self.text),
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
