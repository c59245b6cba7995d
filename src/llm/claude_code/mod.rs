//! The `claude` command line as a client: it asks its server itself, with the user's own login.
//!
//! It runs outside the sandbox, in an empty private directory, with no tools but those it is offered here and no
//! settings but the user's. What it is told may hold words of a hostile program, so everything that reads files or runs
//! commands at a word of the prompt (`@file`, `/command`) is switched off. A session has an id of ours, so that a crash
//! does not lose it. `invocation.rs` starts the program and hears it.

mod child;
mod invocation;
pub mod result;
pub mod stream;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cancel::CancelToken;
use crate::events::RequestPlace;
use crate::llm::claude_code::result::ClaudeFailure;
use crate::llm::mcp::Toolbox;
use crate::llm::{
    Answer, ContentBlock, LlmError, Message, ModelClient, ModelRequest, ProviderSession, Role,
    Spent,
};
use crate::process::Launcher;
use crate::secrets::Secrets;

/// The program's name on PATH.
pub const PROGRAM: &str = "claude";

/// How often an invocation is repeated because the session was not what it was taken for.
const SESSION_TRIES: u32 = 3;

/// What `claude` is started with, whatever it is asked.
#[derive(Debug)]
pub struct ClaudeSetup {
    pub launcher: Launcher,
    pub program: PathBuf,
    /// Where its directories are made, and the root that they are for.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// The whole environment, but for what is set here.
    pub env: BTreeMap<OsString, OsString>,
    pub idle_timeout: Duration,
    pub secrets: Secrets,
    pub cancel: CancelToken,
}

/// A client that is another program.
#[derive(Debug)]
pub struct ClaudeCode {
    setup: ClaudeSetup,
    session: ProviderSession,
    until: Option<Instant>,
}

/// What is said to it: all of it, for a new session, and what is new, for one that knows the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ClaudePrompt {
    model: String,
    effort: Option<String>,
    system: String,
    all: String,
    new: String,
}

/// Returns the id of the session for a place of a run: the same again after a crash.
pub fn session_id(run_id: &str, place: RequestPlace) -> String {
    let RequestPlace {
        phase,
        retry_count,
        turn,
    } = place;
    let digest = Sha256::digest(format!("{run_id} {phase} {retry_count} {turn}"));
    let mut bytes = [0; 16];
    bytes
        .iter_mut()
        .zip(digest)
        .for_each(|(byte, digest)| *byte = digest);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}

impl ClaudeCode {
    /// Returns a client; nothing is started before it is asked.
    pub fn new(setup: ClaudeSetup) -> ClaudeCode {
        ClaudeCode {
            setup,
            session: ProviderSession::default(),
            until: None,
        }
    }

    /// Makes one attempt, in the session that is there or in a new one.
    fn ask(
        &mut self,
        body: &str,
        mut toolbox: Option<&mut dyn Toolbox>,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        let said: ClaudePrompt =
            serde_json::from_str(body).map_err(|error| LlmError::Permanent {
                message: error.to_string(),
            })?;
        for _ in 0..SESSION_TRIES {
            let toolbox = toolbox
                .as_mut()
                .map(|toolbox| &mut **toolbox as &mut dyn Toolbox);
            match self.invoke(&said, toolbox, watch) {
                Ok(answer) => return Ok(answer),
                Err(ClaudeFailure::NoSession) => self.session.has_begun = false,
                Err(ClaudeFailure::SessionInUse) => self.session.has_begun = true,
                Err(ClaudeFailure::Other(error)) => return Err(error),
            }
        }
        let message = format!(
            "claude neither finds nor begins the session {}",
            self.session.id
        );
        Err(LlmError::Transient {
            message,
            retry_after: None,
            spent: Spent::Nothing,
        })
    }
}

impl ModelClient for ClaudeCode {
    fn encode(&self, request: &ModelRequest) -> String {
        let said = ClaudePrompt {
            model: request.model.clone(),
            effort: request.effort.clone(),
            system: request.system.clone(),
            all: all(&request.messages),
            new: request.messages.last().map(text).unwrap_or_default(),
        };
        serde_json::to_string(&said).unwrap_or_default()
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError> {
        self.ask(body, None, watch)
    }

    fn converse(
        &mut self,
        body: &str,
        toolbox: &mut dyn Toolbox,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        self.ask(body, Some(toolbox), watch)
    }

    fn session(&mut self) -> Option<&mut ProviderSession> {
        Some(&mut self.session)
    }
}

/// A conversation as one text, for a session that knows nothing of it.
fn all(messages: &[Message]) -> String {
    let mut all = String::new();
    for message in messages {
        if !all.is_empty() {
            let whose = if message.role == Role::User {
                "What was said to it"
            } else {
                "Your answer so far"
            };
            all += &format!("\n\n# {whose}\n\n");
        }
        all += &text(message);
    }
    all
}

fn text(message: &Message) -> String {
    let texts = message.content.iter().filter_map(|block| match block {
        ContentBlock::Text { text, .. } => Some(text.trim_end()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}
