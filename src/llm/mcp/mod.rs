//! Tools for a client that calls them itself, over the Model Context Protocol.
//!
//! The client starts this binary under a hidden command (`relay.rs`), which copies bytes to a socket of the orchestrator
//! (`server.rs`). So the tools run in the process that writes the log, whatever happens to the client.

pub(crate) mod protocol;
pub(crate) mod relay;
pub(super) mod server;

use std::os::fd::BorrowedFd;

use serde_json::Value;

use crate::llm::message::ToolOffer;

/// The first argument that makes this binary a relay; the socket's path follows.
pub const RELAY_COMMAND: &str = "__mcp";

/// The result of a call, as the model gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolOutcome {
    pub text: String,
    pub is_error: bool,
}

/// A call of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolCall<'a> {
    pub name: &'a str,
    pub arguments: &'a Value,
    /// The model's turn in this answer, counted from 1; 0 where it is not known.
    pub turn: u32,
    /// Readable when the client no longer waits for the result: interrupt the call.
    pub cancelled: BorrowedFd<'a>,
}

/// Tools that are called while an answer is made.
pub(crate) trait Toolbox {
    fn offers(&self) -> Vec<ToolOffer>;

    /// Runs one call to its end. `None`: the run ends, and the answer with it.
    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome>;
}
