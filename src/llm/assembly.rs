//! How an answer is assembled from what a server sends: the part that each API implements, and what they share.

use std::fmt;

use serde_json::Value;

use crate::llm::http_error::{error_message, excerpt};
use crate::llm::json::{self, JsonError};
use crate::llm::message::{Answer, ContentBlock, TokenUsage};
use crate::llm::sse::SseError;

/// The most that is kept of an answer: far more than any model writes, far less than a hostile stream can send.
const MAX_KEPT: usize = 16 * 1024 * 1024;

/// What an event of a stream was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamEvent {
    /// A ping, or something unknown: does not count as progress.
    Ignored,
    Progress,
    /// The answer is complete; the rest of the stream is not read.
    End,
}

/// An answer under assembly, in the form of one API.
pub(super) trait AnswerAssembly {
    /// Takes one event of a stream.
    fn event(&mut self, data: &str) -> Result<StreamEvent, AssemblyError>;
    /// Takes a whole answer at once.
    fn whole(&mut self, body: &Value) -> Result<(), AssemblyError>;
    /// Returns the usage reported so far.
    fn usage(&self) -> TokenUsage;
    /// Returns how many bytes the model has written so far: text, thinking, arguments of calls.
    fn bytes_written(&self) -> u64;
    /// Takes the status of a refusal; `names` says whether its body names a field of the request.
    fn refused(&mut self, _status: u16, _names: &dyn Fn(&str) -> bool) {}
    /// Returns the answer, if all of it arrived.
    fn finish(&mut self) -> Result<Answer, AssemblyError>;
}

/// Why what a server sent is not an answer.
#[derive(Debug)]
pub(super) enum AssemblyError {
    /// An error in place of content, after a status of success.
    ReportedByServer(String),
    InvalidEvent {
        problem: JsonError,
        excerpt: String,
    },
    InvalidBody(JsonError),
    InvalidArguments(JsonError),
    InvalidStream(SseError),
    NotAnAnswer,
    TooLarge,
    Incomplete,
}

impl fmt::Display for AssemblyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssemblyError::ReportedByServer(message) => {
                write!(f, "the server reports an error: {message}")
            }
            AssemblyError::InvalidEvent { problem, excerpt } => {
                write!(
                    f,
                    "an event of the stream is not JSON ({problem}): {excerpt}"
                )
            }
            AssemblyError::InvalidBody(problem) => write!(f, "the body is not JSON ({problem})"),
            AssemblyError::InvalidArguments(problem) => {
                write!(f, "invalid arguments of its tool calls: {problem}")
            }
            AssemblyError::InvalidStream(problem) => problem.fmt(f),
            AssemblyError::NotAnAnswer => f.write_str("the body is not an answer"),
            AssemblyError::TooLarge => {
                write!(f, "the answer holds more than {MAX_KEPT} bytes")
            }
            AssemblyError::Incomplete => {
                f.write_str("the stream ended before the answer was complete")
            }
        }
    }
}

impl std::error::Error for AssemblyError {}

impl From<SseError> for AssemblyError {
    fn from(error: SseError) -> AssemblyError {
        AssemblyError::InvalidStream(error)
    }
}

/// Parses the data of an event.
pub(super) fn parse_event(data: &str) -> Result<Value, AssemblyError> {
    let parsed = json::parse(data.as_bytes());
    let value = parsed.map_err(|problem| AssemblyError::InvalidEvent {
        problem,
        excerpt: excerpt(data.as_bytes()),
    })?;
    refuse_error(&value).map(|()| value)
}

/// Parses a whole body.
pub(super) fn parse_body(body: &[u8]) -> Result<Value, AssemblyError> {
    let value = json::parse(body).map_err(AssemblyError::InvalidBody)?;
    refuse_error(&value).map(|()| value)
}

/// Refuses an event or a body that carries an error in place of content.
fn refuse_error(value: &Value) -> Result<(), AssemblyError> {
    let error = &value["error"];
    match error.is_object() || error.is_string() || value["type"] == "error" {
        true => Err(AssemblyError::ReportedByServer(error_message(
            value,
            value.to_string().as_bytes(),
        ))),
        false => Ok(()),
    }
}

/// Refuses arguments of tool calls whose trees would be too large together.
pub(super) fn check_arguments<'a>(
    arguments: impl Iterator<Item = &'a str>,
) -> Result<(), AssemblyError> {
    json::check_value_count(arguments.map(str::as_bytes)).map_err(AssemblyError::InvalidArguments)
}

/// Returns a tool call; arguments that are not a JSON object are kept as they came.
pub(super) fn tool_use(id: &str, name: &str, arguments: &str) -> ContentBlock {
    let (input, raw) = match serde_json::from_str::<Value>(arguments) {
        Ok(input) if input.is_object() => (input, None),
        _ if arguments.trim().is_empty() => (Value::Object(Default::default()), None),
        _ => (Value::Null, Some(arguments.to_owned())),
    };
    ContentBlock::ToolUse {
        id: id.to_owned(),
        name: name.to_owned(),
        input,
        raw,
    }
}

/// Counts the bytes of an answer: those that are kept in memory, and those that the model has written.
#[derive(Debug, Default)]
pub(super) struct AnswerSize {
    kept: usize,
    written: u64,
}

impl AnswerSize {
    /// Counts bytes that are kept.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), AssemblyError> {
        self.kept += bytes;
        match self.kept > MAX_KEPT {
            true => Err(AssemblyError::TooLarge),
            false => Ok(()),
        }
    }

    /// Counts a text of the model that is kept.
    pub(super) fn keep_written(&mut self, text: &str) -> Result<(), AssemblyError> {
        self.add_written(text);
        self.keep(text.len())
    }

    /// Counts a text of the model that is not kept.
    pub(super) fn add_written(&mut self, text: &str) {
        self.written = self.written.saturating_add(text.len() as u64);
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.written
    }
}
