//! Clients of models: a request goes out, an answer comes back, whatever the provider.
//!
//! A client makes one attempt; `retry.rs` decides about the next one, `price.rs` knows what it costs. The log, the budget
//! and the tools belong to the caller.

pub mod anthropic;
pub mod http;
pub mod mcp;
pub mod openai;
pub mod price;
pub mod provider;
pub mod retry;
pub mod sse;
pub mod tokens;

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
#[cfg(test)]
pub(crate) mod test_server;

pub use client::{AgentSession, Model, ModelClient, ProviderSession, SessionStart, session_id};
pub use error::{LlmError, PermanentError, PermanentErrorKind, Spent};
pub use message::{
    Answer, Bill, ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage, ToolOffer,
};
