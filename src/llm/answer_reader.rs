//! Reads the response of one attempt and assembles the answer, within the time limits.
//!
//! Whether a body is a stream or one JSON object is decided by its first bytes, whatever was requested and whatever its
//! content type is.

use std::collections::VecDeque;

use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::llm::assembly::{AnswerAssembly, AssemblyError, StreamEvent, parse_body};
use crate::llm::clock::{AttemptClock, ExpiredLimit, TOTAL_TIMEOUT};
use crate::llm::error::{LlmError, Spent};
use crate::llm::http::{HttpExchange, HttpFailure, HttpPart};
use crate::llm::http_error::{EXCERPT_BYTES, error_of_response, excerpt, names_field};
use crate::llm::message::Answer;
use crate::llm::sse::{BYTE_ORDER_MARK, MAX_EVENT, SseParser};
use crate::llm::tokens::spent_so_far;

/// An error body is not read beyond this.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// A body that begins with more white space than this is what its content type says.
const MAX_LOOKAHEAD: usize = 64 * 1024;

const EVENT_STREAM: &str = "text/event-stream";

/// A response that is being read.
pub(super) struct AnswerReader<'a> {
    exchange: HttpExchange,
    clock: AttemptClock,
    assembly: &'a mut dyn AnswerAssembly,
    watch: &'a mut dyn FnMut(&str),
    bytes_sent: usize,
    /// Parts that were received and not yet read.
    lookahead: VecDeque<HttpPart>,
}

impl<'a> AnswerReader<'a> {
    pub(super) fn new(
        exchange: HttpExchange,
        clock: AttemptClock,
        assembly: &'a mut dyn AnswerAssembly,
        watch: &'a mut dyn FnMut(&str),
        bytes_sent: usize,
    ) -> AnswerReader<'a> {
        AnswerReader {
            exchange,
            clock,
            assembly,
            watch,
            bytes_sent,
            lookahead: VecDeque::new(),
        }
    }

    pub(super) fn read(mut self) -> Result<Answer, LlmError> {
        let HttpPart::Head { status, headers } = self.next()? else {
            return Err(self.transient("a body without a head"));
        };
        if !(200..300).contains(&status) {
            return Err(self.error_response(status, &headers));
        }
        let content_type = content_type(&headers);
        match self.is_stream(&content_type)? {
            true => self.read_stream()?,
            false => self.read_whole(status, &content_type)?,
        }
        let mut answer = self.assembly.finish().map_err(|error| self.broken(error))?;
        answer.request_id = request_id(&headers);
        Ok(answer)
    }

    fn next(&mut self) -> Result<HttpPart, LlmError> {
        if let Some(part) = self.lookahead.pop_front() {
            return Ok(part);
        }
        let next = self.exchange.next(self.clock.next_limit());
        next.map_err(|failure| error_of_failure(failure, &self.clock, self.spent()))
    }

    fn spent(&self) -> Spent {
        spent_so_far(
            self.assembly.usage(),
            self.assembly.bytes_written(),
            self.bytes_sent,
        )
    }

    fn transient(&self, message: impl Into<String>) -> LlmError {
        LlmError::transient(message, self.spent())
    }

    fn broken(&self, error: AssemblyError) -> LlmError {
        self.transient(error.to_string())
    }

    /// The status decides; of the body as much is read as arrives.
    fn error_response(&mut self, status: u16, headers: &HeaderMap) -> LlmError {
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BODY {
            match self.exchange.next(self.clock.next_limit()) {
                Ok(HttpPart::Chunk(bytes)) => body.extend(bytes),
                Err(HttpFailure::Stopped) => {
                    return LlmError::Stopped {
                        spent: Spent::Nothing,
                    };
                }
                _ => break,
            }
        }
        body.truncate(MAX_ERROR_BODY);
        self.assembly
            .refused(status, &|field| names_field(&body, field));
        error_of_response(status, headers, &body)
    }

    /// Receives parts until the first bytes show what the body is.
    fn is_stream(&mut self, content_type: &str) -> Result<bool, LlmError> {
        let has_stream_type = content_type == EVENT_STREAM;
        let mut start = Vec::new();
        loop {
            let found = match begins_as_stream(&start) {
                // A JSON object is one under any content type; other bodies are what their type says.
                Some(false) => Some(has_stream_type && !begins_as_object(&start)),
                None if start.len() > MAX_LOOKAHEAD => Some(has_stream_type),
                found => found,
            };
            if let Some(is_stream) = found {
                self.lookahead.push_front(HttpPart::Chunk(start));
                return Ok(is_stream);
            }
            match self.next()? {
                HttpPart::Chunk(bytes) => start.extend(bytes),
                end => {
                    self.lookahead.extend([HttpPart::Chunk(start), end]);
                    return Ok(has_stream_type);
                }
            }
            if !has_stream_type {
                self.clock.restart_idle();
            }
        }
    }

    fn read_stream(&mut self) -> Result<(), LlmError> {
        let (mut parser, mut start, mut has_progress) = (SseParser::new(), Vec::new(), false);
        while let HttpPart::Chunk(bytes) = self.next()? {
            start.extend(bytes.iter().take(EXCERPT_BYTES.saturating_sub(start.len())));
            match self
                .read_events(&mut parser, &bytes)
                .map_err(|error| self.broken(error))?
            {
                StreamEvent::Ignored => {}
                StreamEvent::Progress => has_progress = true,
                StreamEvent::End => return Ok(()),
            }
        }
        match has_progress {
            true => Ok(()),
            false => {
                Err(self.transient(format!("a stream without an answer: {}", excerpt(&start))))
            }
        }
    }

    /// Returns the most significant event in these bytes. After an end or an error the rest is not read.
    fn read_events(
        &mut self,
        parser: &mut SseParser,
        bytes: &[u8],
    ) -> Result<StreamEvent, AssemblyError> {
        let mut most = Ok(StreamEvent::Ignored);
        let pushed = parser.push(bytes, &mut |_, data| {
            if let Ok(before @ (StreamEvent::Ignored | StreamEvent::Progress)) = most {
                most = self.event(data).map(|event| event.max(before));
            }
        });
        match most? {
            StreamEvent::End => Ok(StreamEvent::End),
            event => Ok(pushed.map(|()| event)?),
        }
    }

    fn event(&mut self, data: &str) -> Result<StreamEvent, AssemblyError> {
        if data.is_empty() {
            return Ok(StreamEvent::Ignored);
        }
        if data.starts_with('{') {
            (self.watch)(data);
        }
        let event = self.assembly.event(data)?;
        if event == StreamEvent::Progress {
            self.clock.restart_idle();
        }
        Ok(event)
    }

    fn read_whole(&mut self, status: u16, content_type: &str) -> Result<(), LlmError> {
        let mut body = Vec::new();
        while let HttpPart::Chunk(bytes) = self.next()? {
            self.clock.restart_idle();
            body.extend(bytes);
            if body.len() > MAX_EVENT {
                return Err(self.transient(format!("the answer is larger than {MAX_EVENT} bytes")));
            }
        }
        take_whole(content_type, &body, self.assembly).map_err(|error| {
            let shown_type = match content_type {
                "" => "no content type".to_owned(),
                other => excerpt(other.as_bytes()),
            };
            self.transient(format!(
                "HTTP {status} ({shown_type}), but {error}: {}",
                excerpt(&body)
            ))
        })?;
        (self.watch)(&String::from_utf8_lossy(&body));
        Ok(())
    }
}

/// Returns the error of an exchange that failed, after an attempt that may have cost `spent`.
pub(super) fn error_of_failure(
    failure: HttpFailure,
    clock: &AttemptClock,
    spent: Spent,
) -> LlmError {
    match failure {
        HttpFailure::Unsendable(message) => LlmError::permanent(message),
        HttpFailure::NotSent(message) => LlmError::transient(message, Spent::Nothing),
        HttpFailure::Broken(message) => LlmError::transient(message, spent),
        HttpFailure::Stopped => LlmError::Stopped { spent },
        HttpFailure::TimedOut => match clock.expired() {
            ExpiredLimit::Deadline => LlmError::Stopped { spent },
            ExpiredLimit::Total => LlmError::transient(
                format!(
                    "the answer was not complete after {} s",
                    TOTAL_TIMEOUT.as_secs()
                ),
                spent,
            ),
            ExpiredLimit::Idle(limit) => LlmError::Silent {
                message: format!("silence for {} s (idle timeout)", limit.as_secs_f64()),
                spent,
            },
        },
    }
}

/// Reads an answer from a response that is complete.
pub(super) fn read_parts(
    parts: Vec<HttpPart>,
    assembly: &mut dyn AnswerAssembly,
) -> Result<Answer, LlmError> {
    let exchange =
        HttpExchange::of(parts).map_err(|error| LlmError::permanent(error.to_string()))?;
    let clock = AttemptClock::start(TOTAL_TIMEOUT, Some(TOTAL_TIMEOUT), None);
    AnswerReader::new(exchange, clock, assembly, &mut |_| {}, 0).read()
}

/// Whether a body is an event stream by its first bytes; `None` where more of them are needed.
fn begins_as_stream(start: &[u8]) -> Option<bool> {
    const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
    if BYTE_ORDER_MARK.starts_with(start) {
        return None;
    }
    let start = start
        .strip_prefix(BYTE_ORDER_MARK)
        .unwrap_or(start)
        .trim_ascii_start();
    if FIELDS.iter().any(|field| start.starts_with(field)) {
        return Some(true);
    }
    let may_become = FIELDS.iter().any(|field| field.starts_with(start));
    if may_become { None } else { Some(false) }
}

fn begins_as_object(start: &[u8]) -> bool {
    start.trim_ascii_start().starts_with(b"{")
}

fn take_whole(
    content_type: &str,
    body: &[u8],
    assembly: &mut dyn AnswerAssembly,
) -> Result<(), AssemblyError> {
    let is_json = ["", "application/json", EVENT_STREAM].contains(&content_type)
        || content_type.ends_with("+json");
    match is_json {
        true => assembly.whole(&parse_body(body)?),
        false => Err(AssemblyError::NotAnAnswer),
    }
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = headers
        .get("request-id")
        .or_else(|| headers.get("x-request-id"))?;
    Some(excerpt(value.as_bytes())).filter(|id| !id.is_empty())
}
