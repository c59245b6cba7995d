//! Why an attempt gave no answer, and what it may have cost.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::llm::message::TokenUsage;

/// What an attempt without an answer may have cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spent {
    /// Refused with an error status, or never sent.
    Nothing,
    /// It broke off; this usage was reported or estimated until then.
    Shown(TokenUsage),
    /// It failed, and the provider reports this usage and cost in USD.
    Billed(TokenUsage, f64),
    /// It was sent, and nothing is known: the worst case counts.
    Unknown,
}

/// Why one attempt gave no answer. The messages contain text from outside: redacted, escaped, possibly hostile.
#[derive(Debug, Clone, PartialEq)]
pub enum LlmError {
    /// Worth another attempt: 408, 409, 429, 5xx, connection errors, silence, a broken stream, an invalid answer.
    Transient {
        message: String,
        retry_after: Option<Duration>,
        spent: Spent,
    },
    /// Nothing came for too long; worth another attempt.
    Silent { message: String, spent: Spent },
    /// 401, 402, 403: the key or the account is refused.
    Unauthorized { message: String },
    /// 429 because the limit of the account is reached.
    LimitReached { message: String },
    /// The provider stopped at the limit in USD that it was given.
    OverBudget { message: String, spent: Spent },
    /// 400 for an optional field, which the client leaves out from now on: encode the request again.
    FieldRefused { message: String },
    /// Any other refusal: 400, 404, 413, a redirect.
    Permanent(PermanentError),
    /// The run was cancelled, or the deadline passed.
    Stopped { spent: Spent },
}

impl LlmError {
    /// Returns a failure that is worth another attempt, after the usual delay.
    pub(super) fn transient(message: impl Into<String>, spent: Spent) -> LlmError {
        LlmError::Transient {
            message: message.into(),
            retry_after: None,
            spent,
        }
    }

    /// Returns a permanent error of no special kind.
    pub(super) fn permanent(message: impl Into<String>) -> LlmError {
        LlmError::Permanent(PermanentError {
            kind: PermanentErrorKind::Other,
            message: message.into(),
        })
    }

    /// Returns what the attempt may have cost.
    pub fn spent(&self) -> Spent {
        match self {
            LlmError::Transient { spent, .. }
            | LlmError::Silent { spent, .. }
            | LlmError::OverBudget { spent, .. }
            | LlmError::Stopped { spent } => *spent,
            LlmError::Unauthorized { .. }
            | LlmError::LimitReached { .. }
            | LlmError::FieldRefused { .. }
            | LlmError::Permanent(_) => Spent::Nothing,
        }
    }

    /// Returns the text of the error, to be changed.
    pub(super) fn message_mut(&mut self) -> Option<&mut String> {
        match self {
            LlmError::Transient { message, .. }
            | LlmError::Silent { message, .. }
            | LlmError::Unauthorized { message }
            | LlmError::LimitReached { message }
            | LlmError::OverBudget { message, .. }
            | LlmError::FieldRefused { message }
            | LlmError::Permanent(PermanentError { message, .. }) => Some(message),
            LlmError::Stopped { .. } => None,
        }
    }
}

impl fmt::Display for LlmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LlmError::Transient { message, .. }
            | LlmError::Silent { message, .. }
            | LlmError::Unauthorized { message }
            | LlmError::LimitReached { message }
            | LlmError::OverBudget { message, .. }
            | LlmError::FieldRefused { message } => f.write_str(message),
            LlmError::Permanent(error) => error.fmt(f),
            LlmError::Stopped { .. } => f.write_str("the run was asked to stop"),
        }
    }
}

impl std::error::Error for LlmError {}

/// A refusal that another attempt would not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermanentError {
    pub kind: PermanentErrorKind,
    pub message: String,
}

impl fmt::Display for PermanentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PermanentError {}

/// What a permanent error says of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermanentErrorKind {
    /// The request is longer than the model's context.
    ContextTooLong,
    /// The body is larger than the server takes (413).
    RequestTooLarge,
    /// The server does not have the model.
    UnknownModel,
    /// The server has nothing at this address (404, 405).
    UnknownPath,
    Other,
}

impl PermanentErrorKind {
    /// Returns the kind of an error of which an older log has only the text.
    pub fn of_recorded_text(message: &str) -> PermanentErrorKind {
        if says_context_too_long(message) {
            PermanentErrorKind::ContextTooLong
        } else if message.starts_with("HTTP 413") {
            PermanentErrorKind::RequestTooLarge
        } else {
            PermanentErrorKind::Other
        }
    }
}

/// Whether an error text has one of the phrases with which servers refuse a request that exceeds the context. Few of them
/// give a code for it.
pub(super) fn says_context_too_long(message: &str) -> bool {
    const PHRASES: [&str; 11] = [
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
    PHRASES.iter().any(|phrase| message.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_old_error_follows_from_its_text() {
        let check = |text, kind: PermanentErrorKind, word: &str| {
            assert_eq!(PermanentErrorKind::of_recorded_text(text), kind, "{text}");
            assert_eq!(serde_json::to_value(kind).unwrap(), word);
        };
        check(
            "HTTP 400 (x): This model's maximum context length is 8192 tokens",
            PermanentErrorKind::ContextTooLong,
            "context_too_long",
        );
        check(
            "HTTP 413 (request_too_large): Prompt is too long",
            PermanentErrorKind::ContextTooLong,
            "context_too_long",
        );
        check(
            "HTTP 413: x",
            PermanentErrorKind::RequestTooLarge,
            "request_too_large",
        );
        check("HTTP 404: x", PermanentErrorKind::Other, "other");
    }
}
