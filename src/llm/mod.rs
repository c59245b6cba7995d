//! Clients of models: a request goes out, an answer comes back, whatever the provider.
//!
//! A client makes one attempt; `retry.rs` decides about the next one, `price.rs` knows what it costs. The log, the budget
//! and the tools belong to the caller.

pub(crate) mod anthropic;
pub(crate) mod http;
pub(crate) mod mcp;
pub(crate) mod openai;
pub(crate) mod price;
pub(crate) mod provider;
pub(crate) mod retry;
pub(crate) mod sse;
pub(crate) mod tokens;

mod advice;
mod answer_reader;
mod assembly;
mod claude_code;
mod client;
mod clock;
pub(crate) mod endpoint;
mod error;
mod http_error;
mod json;
mod line_buffer;
mod message;
mod retry_after;
pub(crate) mod streamed_text;
#[cfg(test)]
pub(crate) mod test_server;

pub(crate) use client::{Model, ProviderSession, SessionStart, session_id};
pub use error::LlmError;
pub(crate) use error::{PermanentError, PermanentErrorKind, Spent};
pub use message::Answer;
pub(crate) use message::{
    ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage, ToolOffer,
};
