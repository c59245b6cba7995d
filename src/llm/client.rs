//! The two kinds of model clients: one that sends a request, and one that runs tools itself in a session it keeps.

use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::llm::error::LlmError;
use crate::llm::mcp::Toolbox;
use crate::llm::message::{Answer, ModelRequest};

/// A client for single requests over some transport.
pub(crate) trait ModelClient: Send {
    /// Returns the body that `attempt` would send. Deterministic, until the server refuses a field.
    fn encode(&self, request: &ModelRequest) -> String;

    /// Sets the time at which an attempt under way ends, as if the run had been cancelled.
    fn set_deadline(&mut self, deadline: Option<Instant>);

    /// Makes one attempt with an encoded body. `watch` gets each event of the stream as it arrives (JSON text).
    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError>;
}

/// A client that calls tools itself while it answers, in a session that the provider keeps.
pub(crate) trait AgentSession: Send {
    /// Returns the body that `attempt` would send. Deterministic.
    fn encode(&self, request: &ModelRequest) -> String;

    /// Sets the time at which an attempt under way ends, as if the run had been cancelled.
    fn set_deadline(&mut self, deadline: Option<Instant>);

    /// Makes one attempt in `session`, with these tools or with none. `watch` as in [`ModelClient::attempt`].
    fn attempt(
        &mut self,
        session: &ProviderSession,
        body: &str,
        tools: Option<&mut dyn Toolbox>,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError>;
}

/// A connected model of either kind.
pub(crate) enum Model {
    Client(Box<dyn ModelClient>),
    Session(Box<dyn AgentSession>),
}

impl Model {
    /// Returns the body of a request, see [`ModelClient::encode`].
    pub(crate) fn encode(&self, request: &ModelRequest) -> String {
        match self {
            Model::Client(client) => client.encode(request),
            Model::Session(client) => client.encode(request),
        }
    }

    /// Sets the time at which an attempt under way ends, as if the run had been cancelled.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        match self {
            Model::Client(client) => client.set_deadline(deadline),
            Model::Session(client) => client.set_deadline(deadline),
        }
    }

    /// Whether the provider runs tools itself, in a session that it keeps.
    pub(crate) fn is_session(&self) -> bool {
        matches!(self, Model::Session(_))
    }
}

/// A conversation that the provider keeps, and the limits of the next attempt in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProviderSession {
    pub id: String,
    pub start: SessionStart,
    /// Sent instead of the last message when the session continues after a crash.
    pub resume_prompt: Option<String>,
    pub usd_left: Option<f64>,
    pub turns_left: Option<u32>,
}

/// How an attempt enters its session. A session that the provider has lost starts afresh with the whole conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum SessionStart {
    #[default]
    Fresh,
    Continue,
    /// A copy of another session, which stays as it is.
    Fork {
        from: String,
    },
}

/// Returns the id (a UUID) of the session with this name: the same again after a crash.
pub(crate) fn session_id(name: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(name).into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}
