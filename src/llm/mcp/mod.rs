//! Tools for a client that calls them itself, over the Model Context Protocol.
//!
//! The client starts this binary under a hidden word (`relay.rs`), which does nothing but pass bytes on to a socket of
//! the orchestrator (`desk.rs`); there alone the tools are, and what is said about them (`protocol.rs`). So the tools
//! belong to whoever writes the log, whatever becomes of the client.

pub mod protocol;
pub mod relay;
pub mod server;

use std::os::fd::BorrowedFd;

use serde_json::Value;

use crate::llm::message::ToolOffer;

/// The word that makes this binary a relay when it is the first argument; the socket's path follows.
pub const RELAY_COMMAND: &str = "__mcp";

/// What a call came to, as the model is told it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    pub text: String,
    pub is_error: bool,
}

/// A call while it is made.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    pub name: &'a str,
    pub arguments: &'a Value,
    /// The model's turn that it belongs to, counted from 1 in this answer; 0 where that is not known.
    pub turn: u32,
    /// Readable when nobody waits for the call any more: what runs is then to be interrupted.
    pub cancelled: BorrowedFd<'a>,
}

/// Tools that are called while an answer is being made.
pub trait Toolbox {
    /// Returns what is offered.
    fn offers(&self) -> Vec<ToolOffer>;

    /// Makes one call to its end and returns what it came to; nothing where the run ends and no answer is wanted.
    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome>;
}
