//! The Chat Completions API of OpenAI, also as many other servers implement it.
//!
//! Encodes requests, and assembles answers from a stream or a body. The API has neither cache marks nor a field to send
//! reasoning back.

mod calls;

use std::borrow::Cow;
use std::time::Instant;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Serialize;
use serde_json::Value;

use crate::llm::answer_reader::read_parts;
use crate::llm::assembly::{AnswerAssembly, AnswerSize, AssemblyError, StreamEvent, parse_event};
use crate::llm::client::ModelClient;
use crate::llm::endpoint::{Endpoint, EndpointClient, EndpointRequest};
use crate::llm::error::{LlmError, PermanentErrorKind};
use crate::llm::http::HttpPart;
use crate::llm::message::{
    Answer, CallInput, ContentBlock, Message, ModelRequest, ResultText, Role, StopReason,
    TokenUsage, ToolOffer, join_texts,
};
use crate::llm::openai::calls::CallDrafts;
use crate::llm::tokens::token_count;

/// A client of the Chat Completions API.
#[derive(Debug)]
pub(super) struct OpenAi {
    endpoint: EndpointClient,
    fields: ServerFields,
}

/// The fields in which servers differ, as far as this server's choice is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerFields {
    limit: &'static str,
    limit_was_refused: bool,
    temperature: bool,
    stream_options: bool,
}

const OLD_LIMIT: &str = "max_tokens";
const NEW_LIMIT: &str = "max_completion_tokens";
const TEMPERATURE: &str = "temperature";
const STREAM_OPTIONS: &str = "stream_options";

impl OpenAi {
    /// The base URL includes `/v1` where the server has it.
    pub(super) fn new(endpoint: Endpoint) -> OpenAi {
        let url = Url::parse(endpoint.base_url.trim());
        // OpenAI's reasoning models refuse the old name; many other servers know only that one.
        let is_openai = url.is_ok_and(|url| url.host_str() == Some("api.openai.com"));
        let limit = if is_openai { NEW_LIMIT } else { OLD_LIMIT };
        let fields = ServerFields {
            limit,
            limit_was_refused: false,
            temperature: true,
            stream_options: true,
        };
        OpenAi {
            endpoint: EndpointClient::new(endpoint),
            fields,
        }
    }
}

impl ServerFields {
    /// Replaces or omits the refused fields, each at most once; returns a description, or `None` if nothing changes.
    fn adapt(&mut self, refused: &[&str], sent: &Value) -> Option<String> {
        let is_refused = |field: &str| refused.contains(&field) && sent.get(field).is_some();
        let mut how = Vec::new();
        if is_refused(self.limit) && !self.limit_was_refused {
            self.limit_was_refused = true;
            self.limit = if self.limit == OLD_LIMIT {
                NEW_LIMIT
            } else {
                OLD_LIMIT
            };
            how.push(format!("with {}", self.limit));
        }
        for (field, is_sent) in [
            (TEMPERATURE, &mut self.temperature),
            (STREAM_OPTIONS, &mut self.stream_options),
        ] {
            if is_refused(field) && std::mem::take(is_sent) {
                how.push(format!("without {field}"));
            }
        }
        (!how.is_empty()).then(|| how.join(" and "))
    }
}

impl ModelClient for OpenAi {
    fn encode(&self, request: &ModelRequest) -> String {
        let fields = &self.fields;
        let limit = |name| (fields.limit == name).then_some(request.max_tokens);
        let system = Some(request.system.as_str()).filter(|system| !system.trim().is_empty());
        let system = system.map(|system| OpenAiMessage::System {
            content: system.into(),
        });
        let body = OpenAiBody {
            model: &request.model,
            stream: true,
            stream_options: fields.stream_options.then_some(StreamOptions {
                include_usage: true,
            }),
            max_tokens: limit(OLD_LIMIT),
            max_completion_tokens: limit(NEW_LIMIT),
            temperature: request.temperature.filter(|_| fields.temperature),
            reasoning_effort: request.effort.as_deref(),
            tools: request.tools.iter().map(OpenAiTool::of).collect(),
            messages: system
                .into_iter()
                .chain(request.messages.iter().flat_map(encode_message))
                .collect(),
        };
        serde_json::to_string(&body).unwrap_or_default()
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.endpoint.set_deadline(until);
    }

    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError> {
        let url = format!("{}/chat/completions", self.endpoint.base_url());
        let request = EndpointRequest {
            url,
            models_url: format!("{}/models", self.endpoint.base_url()),
            headers: HeaderMap::new(),
            key_header: (AUTHORIZATION, "Bearer "),
            body,
        };
        let mut draft = OpenAiDraft::default();
        let outcome = self.endpoint.attempt(request, &mut draft, watch);
        let Err(LlmError::Permanent(error)) = outcome else {
            return outcome;
        };
        // Some servers name the field of the token limit when the request is too long for the model.
        let refused = match error.kind {
            PermanentErrorKind::ContextTooLong => &[],
            _ => &draft.refused_fields[..],
        };
        let sent = serde_json::from_str(body).unwrap_or_default();
        Err(match self.fields.adapt(refused, &sent) {
            Some(how) => LlmError::FieldRefused {
                message: format!("{error}; asking again {how}"),
            },
            None => LlmError::Permanent(error),
        })
    }
}

/// A request as the API has it; the order of the fields is that of the body.
#[derive(Serialize)]
struct OpenAiBody<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiTool<'a>>,
    messages: Vec<OpenAiMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum OpenAiTool<'a> {
    Function {
        name: &'a str,
        description: &'a str,
        parameters: &'a Value,
    },
}

impl OpenAiTool<'_> {
    fn of(offer: &ToolOffer) -> OpenAiTool<'_> {
        OpenAiTool::Function {
            name: &offer.name,
            description: &offer.description,
            parameters: &offer.schema,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum OpenAiMessage<'a> {
    System {
        content: Cow<'a, str>,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<OpenAiCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: ResultText<'a>,
    },
}

#[derive(Serialize)]
struct OpenAiCall<'a> {
    id: &'a str,
    #[serde(flatten)]
    called: CalledTool<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", content = "function", rename_all = "snake_case")]
enum CalledTool<'a> {
    Function { name: &'a str, arguments: String },
}

/// Each tool result becomes a message, directly after the message with its call.
fn encode_message(message: &Message) -> Vec<OpenAiMessage<'_>> {
    let mut encoded: Vec<OpenAiMessage<'_>> =
        message.content.iter().filter_map(encode_result).collect();
    let tool_calls: Vec<OpenAiCall<'_>> = message.content.iter().filter_map(encode_call).collect();
    let text = joined_text(&message.content);
    let has_text = !text.is_empty();
    match message.role {
        Role::User if has_text => encoded.push(OpenAiMessage::User { content: text }),
        Role::Assistant if has_text || !tool_calls.is_empty() => {
            encoded.push(OpenAiMessage::Assistant {
                content: has_text.then_some(text),
                tool_calls,
            });
        }
        Role::User | Role::Assistant => {}
    }
    encoded
}

fn encode_result(block: &ContentBlock) -> Option<OpenAiMessage<'_>> {
    let ContentBlock::ToolResult {
        id, text, screen, ..
    } = block
    else {
        return None;
    };
    Some(OpenAiMessage::Tool {
        tool_call_id: id,
        content: ResultText { text, screen },
    })
}

fn encode_call(block: &ContentBlock) -> Option<OpenAiCall<'_>> {
    let ContentBlock::ToolUse {
        id, name, input, ..
    } = block
    else {
        return None;
    };
    // Servers that insert the arguments into a template fail on anything but a JSON object.
    let arguments = serde_json::to_string(&CallInput(input)).unwrap_or_default();
    Some(OpenAiCall {
        id,
        called: CalledTool::Function { name, arguments },
    })
}

/// Not every server accepts a list of parts.
fn joined_text(content: &[ContentBlock]) -> Cow<'_, str> {
    let texts = content.iter().filter_map(|block| match block {
        ContentBlock::Text { text, .. } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    match texts.collect::<Vec<_>>()[..] {
        [one] => one.into(),
        ref several => several.join("\n").into(),
    }
}

/// Reads a complete response.
pub fn read(parts: Vec<HttpPart>) -> Result<Answer, LlmError> {
    read_parts(parts, &mut OpenAiDraft::default())
}

/// An unfinished answer.
#[derive(Debug, Default)]
struct OpenAiDraft {
    text: String,
    refusal: String,
    calls: CallDrafts,
    model: String,
    finish_reason: Option<String>,
    prompt: u64,
    cached: u64,
    output: u64,
    is_complete: bool,
    has_choice: bool,
    /// Fields that an error response names.
    refused_fields: Vec<&'static str>,
    size: AnswerSize,
}

impl AnswerAssembly for OpenAiDraft {
    fn event(&mut self, data: &str) -> Result<StreamEvent, AssemblyError> {
        if data.trim() == "[DONE]" {
            self.is_complete = self.has_choice;
            return Ok(StreamEvent::End);
        }
        let chunk = parse_event(data)?;
        self.envelope(&chunk);
        let Some(choice) = first_choice(&chunk) else {
            return Ok(if chunk["usage"].is_object() {
                StreamEvent::Progress
            } else {
                StreamEvent::Ignored
            });
        };
        let delta = &choice["delta"];
        self.choice(choice, delta);
        self.calls
            .take_pieces(&delta["tool_calls"], &mut self.size)?;
        // The parts of one event are pieces of one text.
        self.add_text(
            &texts(&delta["content"]).concat(),
            delta["refusal"].as_str().unwrap_or_default(),
        )?;
        Ok(StreamEvent::Progress)
    }

    fn whole(&mut self, body: &Value) -> Result<(), AssemblyError> {
        let choice = first_choice(body)
            .filter(|choice| choice["message"].is_object())
            .ok_or(AssemblyError::NotAnAnswer)?;
        self.envelope(body);
        let message = &choice["message"];
        self.choice(choice, message);
        self.calls
            .take_whole(&message["tool_calls"], &mut self.size)?;
        let text = join_texts(texts(&message["content"]));
        self.add_text(&text, message["refusal"].as_str().unwrap_or_default())?;
        self.is_complete = true;
        Ok(())
    }

    /// This API counts cached tokens as part of the prompt.
    fn usage(&self) -> TokenUsage {
        let input = self.prompt.saturating_sub(self.cached);
        TokenUsage {
            input,
            cache_write: 0,
            cache_read: self.cached,
            output: self.output,
        }
    }

    fn bytes_written(&self) -> u64 {
        self.size.bytes_written()
    }

    fn refused(&mut self, status: u16, names: &dyn Fn(&str) -> bool) {
        if matches!(status, 400 | 422) {
            self.refused_fields = [OLD_LIMIT, NEW_LIMIT, TEMPERATURE, STREAM_OPTIONS]
                .into_iter()
                .filter(|field| names(field))
                .collect();
        }
    }

    fn finish(&mut self) -> Result<Answer, AssemblyError> {
        if !self.is_complete && self.finish_reason.is_none() {
            return Err(AssemblyError::Incomplete);
        }
        let stop = self.stop_reason();
        let calls = self.calls.finish()?;
        let usage = self.usage();
        let text = if self.text.is_empty() {
            &mut self.refusal
        } else {
            &mut self.text
        };
        let text = Some(std::mem::take(text))
            .filter(|text| !text.is_empty())
            .map(ContentBlock::text);
        let content = text.into_iter().chain(calls).collect();
        Ok(Answer {
            content,
            stop,
            usage,
            model: std::mem::take(&mut self.model),
            request_id: None,
            bill: None,
        })
    }
}

impl OpenAiDraft {
    fn envelope(&mut self, chunk: &Value) {
        if let Some(model) = chunk["model"].as_str() {
            self.model = model.to_owned();
        }
        let usage = &chunk["usage"];
        self.prompt = token_count(&usage["prompt_tokens"]).unwrap_or(self.prompt);
        self.output = token_count(&usage["completion_tokens"]).unwrap_or(self.output);
        self.cached =
            token_count(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(self.cached);
    }

    /// `message` is the choice's `delta` in a stream, else its `message`; they have the same fields.
    fn choice(&mut self, choice: &Value, message: &Value) {
        self.has_choice = true;
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.finish_reason = Some(reason.to_owned());
        }
        // Some servers send reasoning, which is billed as output.
        for field in ["reasoning_content", "reasoning"] {
            self.size
                .add_written(message[field].as_str().unwrap_or_default());
        }
    }

    fn add_text(&mut self, text: &str, refusal: &str) -> Result<(), AssemblyError> {
        self.size.keep_written(text)?;
        self.size.keep_written(refusal)?;
        self.text.push_str(text);
        self.refusal.push_str(refusal);
        Ok(())
    }

    fn stop_reason(&mut self) -> StopReason {
        match self.finish_reason.take().as_deref() {
            Some("content_filter") => StopReason::Refusal("content_filter".into()),
            Some("length") => StopReason::MaxTokens,
            _ if !self.refusal.is_empty() => StopReason::Refusal("refusal".into()),
            // Some servers send `stop` after a call.
            Some("tool_calls" | "stop") | None if !self.calls.is_empty() => StopReason::ToolUse,
            Some("stop" | "tool_calls") | None => StopReason::EndTurn,
            Some(other) => StopReason::other(other),
        }
    }
}

fn first_choice(body: &Value) -> Option<&Value> {
    let choices = body["choices"].as_array()?;
    choices
        .iter()
        .find(|choice| choice.is_object() && choice["index"].as_u64().unwrap_or(0) == 0)
}

/// Returns the texts of a `content` that is a string or a list of parts.
fn texts<'a>(content: &'a Value) -> Vec<&'a str> {
    let of_part = |part: &'a Value| match part["type"].as_str() {
        None if part.is_string() => part.as_str(),
        None | Some("text" | "output_text") => part["text"].as_str(),
        Some(_) => None,
    };
    match content {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(of_part).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
