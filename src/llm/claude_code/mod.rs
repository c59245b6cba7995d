//! The `claude` command line as a client: it calls its server itself, with the user's own login.
//!
//! It runs outside the sandbox, in an empty scratch directory, with no tools but ours and no settings but the user's.
//! The prompt may contain output of a hostile program, so everything that would read files or run commands because of
//! the prompt (`@file`, `/command`) is switched off. We choose the session's id, so that a crash does not lose it.

mod child;
pub(super) mod env;
mod invocation;
mod result;
mod stream;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cancel::CancelToken;
use crate::llm::claude_code::result::ClaudeFailure;
use crate::llm::client::{AgentSession, ProviderSession, SessionStart};
use crate::llm::error::{LlmError, Spent};
use crate::llm::mcp::Toolbox;
use crate::llm::message::{Answer, ContentBlock, Message, ModelRequest, Role};
use crate::process::Launcher;
use crate::secrets::Secrets;

/// The program's name on PATH.
pub(super) const PROGRAM: &str = "claude";

/// How often the program is started because it found a session where none was expected, or none where one was.
const SESSION_TRIES: u32 = 3;

/// How `claude` is started, independent of the request.
#[derive(Debug)]
pub(super) struct ClaudeSetup {
    pub launcher: Launcher,
    pub program: PathBuf,
    /// Where its scratch directories are made, and the root that they are for.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// Its environment; some variables are added for each invocation.
    pub env: BTreeMap<OsString, OsString>,
    pub idle_timeout: Duration,
    pub secrets: Secrets,
    pub cancel: CancelToken,
}

#[derive(Debug)]
pub(super) struct ClaudeCode {
    setup: ClaudeSetup,
    /// The id of the last session, and how the next invocation enters it.
    known: Option<(String, SessionStart)>,
    deadline: Option<Instant>,
}

/// The body of a request: the whole conversation for a new session, the last message for one that knows the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ClaudePrompt {
    model: String,
    effort: Option<String>,
    system: String,
    all: String,
    new: String,
}

impl ClaudeCode {
    pub(super) fn new(setup: ClaudeSetup) -> ClaudeCode {
        ClaudeCode {
            setup,
            known: None,
            deadline: None,
        }
    }

    /// Returns how the next invocation enters a session: as the caller says, unless an earlier invocation found out more.
    fn start_of(&self, session: &ProviderSession) -> SessionStart {
        match &self.known {
            Some((id, start)) if *id == session.id => start.clone(),
            _ => session.start.clone(),
        }
    }

    fn set_start(&mut self, session: &ProviderSession, start: SessionStart) {
        self.known = Some((session.id.clone(), start));
    }
}

impl AgentSession for ClaudeCode {
    fn encode(&self, request: &ModelRequest) -> String {
        let prompt = ClaudePrompt {
            model: request.model.clone(),
            effort: request.effort.clone(),
            system: request.system.clone(),
            all: conversation_text(&request.messages),
            new: request
                .messages
                .last()
                .map(message_text)
                .unwrap_or_default(),
        };
        serde_json::to_string(&prompt).unwrap_or_default()
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    fn attempt(
        &mut self,
        session: &ProviderSession,
        body: &str,
        mut tools: Option<&mut dyn Toolbox>,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        let prompt: ClaudePrompt =
            serde_json::from_str(body).map_err(|error| LlmError::permanent(error.to_string()))?;
        for _ in 0..SESSION_TRIES {
            let start = self.start_of(session);
            let tools = tools.as_mut().map(|tools| &mut **tools as &mut dyn Toolbox);
            match self.invoke(&prompt, session, tools, watch) {
                Ok(answer) => return Ok(answer),
                Err(ClaudeFailure::NoSession) => {
                    self.set_start(session, without_session(&start, &session.start));
                }
                Err(ClaudeFailure::SessionInUse) => self.set_start(session, SessionStart::Continue),
                Err(ClaudeFailure::Other(error)) => return Err(error),
            }
        }
        let message = format!("claude neither finds nor begins the session {}", session.id);
        Err(LlmError::transient(message, Spent::Nothing))
    }
}

/// Returns how to enter a session that the program did not find when it was entered as `tried`. A fork that was never
/// written is forked again; where the session to copy is missing, the whole conversation is sent.
fn without_session(tried: &SessionStart, wanted: &SessionStart) -> SessionStart {
    match (tried, wanted) {
        (SessionStart::Continue, SessionStart::Fork { .. }) => wanted.clone(),
        _ => SessionStart::Fresh,
    }
}

/// A conversation as one text, for a new session.
fn conversation_text(messages: &[Message]) -> String {
    let mut all = String::new();
    for message in messages {
        if !all.is_empty() {
            let heading = if message.role == Role::User {
                "What was said to it"
            } else {
                "Your answer so far"
            };
            all += &format!("\n\n# {heading}\n\n");
        }
        all += &message_text(message);
    }
    all
}

fn message_text(message: &Message) -> String {
    let texts = message.content.iter().filter_map(|block| match block {
        ContentBlock::Text { text, .. } => Some(text.trim_end()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_session_is_entered_another_way() {
        let fork = || SessionStart::Fork { from: "a".into() };
        let check = |tried, wanted, expected| {
            assert_eq!(without_session(&tried, &wanted), expected);
        };
        check(
            SessionStart::Continue,
            SessionStart::Continue,
            SessionStart::Fresh,
        );
        check(
            SessionStart::Continue,
            SessionStart::Fresh,
            SessionStart::Fresh,
        );
        check(SessionStart::Continue, fork(), fork());
        check(fork(), fork(), SessionStart::Fresh);
    }
}
