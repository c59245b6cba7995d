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
pub mod provider;
pub mod retry;
pub mod secret;
pub mod sse;

mod client;
mod error;
mod http_error;
mod message;
#[cfg(test)]
pub(crate) mod test_server;

pub use client::{AgentSession, Model, ModelClient, ProviderSession, SessionStart, session_id};
pub use error::{LlmError, PermanentError, PermanentErrorKind, Spent};
pub use message::{
    Answer, Bill, ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage, ToolOffer,
};
