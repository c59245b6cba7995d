//! The voice: what is said to a model and what comes back, whatever the provider.
//!
//! A client makes one attempt; `retry.rs` decides about the next one; `price.rs` says what it costs. Nobody here
//! knows of phases, files or state: the engine writes the journal and asks.

pub mod anthropic;
pub mod claude_code;
pub mod endpoint;
pub mod http;
pub mod line_buffer;
pub mod mcp;
pub mod openai;
pub mod price;
pub mod retry;
pub mod secret;
pub mod sse;

mod client;
mod http_error;
#[cfg(test)]
mod test_server;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::{AgentSession, Model, ModelClient, ProviderSession, SessionStart, session_id};

/// One question to a model, complete in itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    pub model: String,
    pub max_tokens: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    pub system: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolOffer>,
    pub messages: Vec<Message>,
    /// Parts of the messages that differ from run to run by nature, such as what checks printed. Not sent, not recorded.
    #[serde(skip)]
    pub varying: Vec<String>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOffer {
    pub name: String,
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: Vec<ContentBlock>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// `cache` marks the end of a stable prefix (Anthropic's `cache_control`; others ignore it).
    Text {
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// `input` is null where the arguments were no JSON object; `raw` then holds them as they came.
    ToolUse {
        id: String,
        name: String,
        input: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw: Option<String>,
    },
    /// `screen` follows the text, and stands in the newest result alone; `cache` as of a text.
    ToolResult {
        id: String,
        text: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        screen: String,
        is_error: bool,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// A block that goes back to its provider unchanged (thinking, server tools).
    Opaque { value: Value },
}

impl ContentBlock {
    /// Returns a text block without a cache mark.
    pub fn text(text: impl Into<String>) -> ContentBlock {
        ContentBlock::Text {
            text: text.into(),
            cache: false,
        }
    }

    /// Returns a text block that ends a stable prefix.
    pub fn cached(text: impl Into<String>) -> ContentBlock {
        ContentBlock::Text {
            text: text.into(),
            cache: true,
        }
    }
}

/// A whole answer; a stream that broke off never becomes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub content: Vec<ContentBlock>,
    pub stop: StopReason,
    pub usage: TokenUsage,
    /// The model that says it answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The provider's name for this exchange, for support requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What it came to, where the provider itself counts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
}

/// What a provider that makes requests on its own says they came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    pub calls: u64,
    pub cost_usd: Option<f64>,
}

impl Answer {
    /// Returns how many calls of the model it took.
    pub fn calls(&self) -> u64 {
        self.bill.map_or(1, |bill| bill.calls)
    }

    /// Returns all text blocks, joined with a newline where one is missing; thinking and tool calls are no text.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            ContentBlock::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        join_texts(texts)
    }
}

/// Joins texts that stand for themselves: with a newline where one is missing, so that a tag stays alone on its line.
fn join_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut joined = String::new();
    texts
        .into_iter()
        .for_each(|text| add_text(&mut joined, text));
    joined
}

/// Adds a text that stands for itself.
fn add_text(joined: &mut String, text: &str) {
    let is_apart = joined.is_empty() || joined.ends_with('\n') || text.starts_with(['\n', '\r']);
    if !is_apart && !text.is_empty() {
        joined.push('\n');
    }
    joined.push_str(text);
}

/// Why the model stopped, in one vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    /// Cut off by the limit of output tokens, or by the end of the context window.
    MaxTokens,
    PauseTurn,
    /// Refused by the model or a filter, with its category where one was given.
    Refusal(String),
    Other(String),
}

/// Tokens of one answer. The three kinds of input exclude each other; their sum is all input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    pub input: u64,
    pub cache_write: u64,
    pub cache_read: u64,
    pub output: u64,
}

impl TokenUsage {
    /// Returns all input tokens, cached or not.
    pub fn all_input(&self) -> u64 {
        self.input
            .saturating_add(self.cache_write)
            .saturating_add(self.cache_read)
    }

    /// Returns all tokens.
    pub fn all(&self) -> u64 {
        self.all_input().saturating_add(self.output)
    }
}

/// What an attempt that gave no answer may have cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spent {
    /// Answered with an error status, or never sent.
    Nothing,
    /// It broke off after it had shown this.
    Shown(TokenUsage),
    /// It failed, and the provider says that it cost this.
    Billed(TokenUsage, f64),
    /// It was sent and nothing is known: the worst case.
    Unknown,
}

/// Why one attempt gave no answer. The texts come from outside: they are data, redacted, possibly hostile.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmError {
    /// Worth another attempt: 408, 409, 429, 5xx, connection errors, silence, a broken stream, nonsense.
    Transient {
        message: String,
        retry_after: Option<Duration>,
        spent: Spent,
    },
    /// 401, 402, 403: the key or the account is refused.
    Unauthorized { message: String },
    /// 429 that says the account's limit is reached.
    LimitReached { message: String },
    /// The provider stopped at the limit of money that it was given.
    OverBudget { message: String, spent: Spent },
    /// 400 for a field that the client can do without: the same request encoded anew may be taken.
    FieldRefused { message: String },
    /// Any other refusal: 400, 404, 413, a redirect.
    Permanent { message: String },
    /// The run was asked to stop meanwhile.
    Stopped { spent: Spent },
}

/// Whether the text of a permanent error says that the request was larger than the model's context.
pub fn is_too_long(message: &str) -> bool {
    const WORDS: [&str; 11] = [
        "contextwindowexceeded",
        "exceeds the maximum number of tokens",
        "prompt is too long",
        "input is too long",
        "maximum context length",
        "context_length_exceeded",
        "exceed_context_size",
        "exceeds the available context size",
        "exceeds the context window",
        "exceed context limit",
        "context window exceeded",
    ];
    let message = message.to_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}
