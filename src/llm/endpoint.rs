//! One attempt at one endpoint: send, wait no longer than allowed, take the answer or say what came instead.
//!
//! Common to all dialects. A dialect gives the request and an `AnswerAssembly` that understands what comes back; whether
//! that is a stream or one body is decided by what it begins with, whatever was asked for and whatever it is called.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::cancel::CancelToken;
use crate::llm::error::{LlmError, Spent};
use crate::llm::http::{HttpExchange, HttpFailure, HttpPart, HttpPost, Transport};
use crate::llm::http_error::{EXCERPT_BYTES, excerpt, names, refusal, said};
use crate::llm::message::{Answer, ContentBlock, TokenUsage};
use crate::llm::secret::ApiKey;
use crate::llm::sse::{BYTE_ORDER_MARK, MAX_EVENT, SseParser};

/// No attempt takes longer, however steadily it streams.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// An error text beyond this is not read.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// What may be kept of an answer: far more than any model writes, far less than a hostile stream can send.
const MAX_KEPT: usize = 16 * 1024 * 1024;

/// The most values in one piece of JSON.
const MAX_INTRICACY: usize = 1 << 18;

const EVENT_STREAM: &str = "text/event-stream";

/// How much blank space before a body is looked at.
const MOST_LOOKED_AT: usize = 64 * 1024;

/// How many bytes a token is taken to have where nobody has counted.
pub const BYTES_PER_TOKEN: u64 = 3;

/// No count of tokens above this is believed, so that sums cannot overflow.
const MAX_TOKENS_SHOWN: u64 = 1 << 40;

/// Where a model is asked, and how long it may be silent.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub base_url: String,
    pub key: Option<ApiKey>,
    pub idle_timeout: Duration,
    pub cancel: CancelToken,
}

/// What an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamEvent {
    /// A ping, or something unknown: no sign of life.
    Nothing,
    Something,
    /// The answer is complete; what follows is not looked at.
    End,
}

/// Puts an answer together; the texts of its errors say what was wrong with it.
pub(super) trait AnswerAssembly {
    /// Takes one event of a stream.
    fn event(&mut self, data: &str) -> Result<StreamEvent, String>;
    /// Takes a whole answer at once.
    fn whole(&mut self, body: &Value) -> Result<(), String>;
    /// Returns the usage shown so far.
    fn usage(&self) -> TokenUsage;
    /// Returns how many bytes of the model's own words have come so far: text, thinking, arguments of calls.
    fn words(&self) -> u64;
    /// Learns of a refusal; `names` says whether that speaks of a field.
    fn refused(&mut self, _status: u16, _names: &dyn Fn(&str) -> bool) {}
    /// Returns the answer, if all of it came.
    fn finish(&mut self) -> Result<Answer, String>;
}

/// Returns the error that an event or a body carries in place of content.
pub(super) fn error_in(value: &Value) -> Option<String> {
    let carries =
        value["error"].is_object() || value["error"].is_string() || value["type"] == "error";
    carries.then(|| {
        format!(
            "the server reports an error: {}",
            said(value, value.to_string().as_bytes())
        )
    })
}

/// Parses the data of an event.
pub(super) fn parse_event(data: &str) -> Result<Value, String> {
    let value = parse(data.as_bytes()).map_err(|problem| {
        format!(
            "an event of the stream is no JSON ({problem}): {}",
            excerpt(data.as_bytes())
        )
    })?;
    error_in(&value).map_or(Ok(value), Err)
}

/// Parses JSON that is not so intricate that its tree would be many times larger than its text.
pub(super) fn parse(json: &[u8]) -> Result<Value, String> {
    if values(json) > MAX_INTRICACY {
        return Err("it has too many parts".into());
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Returns how many values a piece of JSON has at the most; what stands in its texts is none.
fn values(json: &[u8]) -> usize {
    let (mut count, mut in_text, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Returns what a piece of JSON takes in memory, at the most, when its tree is kept.
pub(super) fn weight(json: &str) -> usize {
    json.len() + values(json.as_bytes()) * size_of::<Value>()
}

/// Refuses pieces of JSON that are too intricate together to be kept as trees.
pub(super) fn refuse_intricate<'a>(pieces: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let count: usize = pieces.map(|piece| values(piece.as_bytes())).sum();
    if count > MAX_INTRICACY {
        Err("the arguments of its calls have too many parts".into())
    } else {
        Ok(())
    }
}

/// Returns a tool call; arguments that are no JSON object are kept as they came.
pub(super) fn tool_use(id: &str, name: &str, arguments: &str) -> ContentBlock {
    let (id, name) = (id.to_owned(), name.to_owned());
    if arguments.trim().is_empty() {
        return ContentBlock::ToolUse {
            id,
            name,
            input: Value::Object(Default::default()),
            raw: None,
        };
    }
    match serde_json::from_str::<Value>(arguments) {
        Ok(input) if input.is_object() => ContentBlock::ToolUse {
            id,
            name,
            input,
            raw: None,
        },
        _ => ContentBlock::ToolUse {
            id,
            name,
            input: Value::Null,
            raw: Some(arguments.to_owned()),
        },
    }
}

/// Returns a count of tokens, if it is one.
pub(super) fn tokens(value: &Value) -> Option<u64> {
    value.as_u64().map(|count| count.min(MAX_TOKENS_SHOWN))
}

/// Counts what is kept of an answer, and how much of it the model has written.
#[derive(Debug, Default)]
pub(super) struct AnswerSize {
    bytes: usize,
    words: u64,
}

impl AnswerSize {
    /// Adds to the count, or refuses.
    pub fn add(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MAX_KEPT {
            Err(format!("the answer holds more than {MAX_KEPT} bytes"))
        } else {
            Ok(())
        }
    }

    /// Adds words of the model's own, or refuses.
    pub fn add_words(&mut self, words: &str) -> Result<(), String> {
        self.pass_words(words);
        self.add(words.len())
    }

    /// Counts words of the model's own that are not kept.
    pub fn pass_words(&mut self, words: &str) {
        self.words = self.words.saturating_add(words.len() as u64);
    }

    /// Returns how many bytes the model has written.
    pub fn words(&self) -> u64 {
        self.words
    }
}

/// Returns what a request that broke off has cost as far as it showed: its input, or that of a body of so many bytes;
/// and the larger of the output it showed and what so many bytes of words come to. Some servers show zeros until the
/// end: that is no knowledge.
pub(super) fn spent(shown: TokenUsage, words: u64, asked: usize) -> Spent {
    if shown == TokenUsage::default() && words == 0 {
        return Spent::Unknown;
    }
    let output = shown.output.max(words.div_ceil(BYTES_PER_TOKEN));
    match shown.all_input() {
        0 => Spent::Shown(TokenUsage {
            input: (asked as u64).div_ceil(BYTES_PER_TOKEN),
            output,
            ..shown
        }),
        _ => Spent::Shown(TokenUsage { output, ..shown }),
    }
}

/// An endpoint with its connections.
#[derive(Debug)]
pub(super) struct EndpointClient {
    endpoint: Endpoint,
    transport: Transport,
    hurry: Option<Instant>,
}

/// What one dialect wants sent.
pub(super) struct EndpointRequest<'a> {
    pub url: String,
    pub headers: HeaderMap,
    /// The header for the key, and what stands before the key in it.
    pub key_header: (HeaderName, &'static str),
    pub body: &'a str,
}

impl EndpointClient {
    pub fn new(endpoint: Endpoint) -> EndpointClient {
        EndpointClient {
            transport: Transport::new(endpoint.idle_timeout),
            endpoint,
            hurry: None,
        }
    }

    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.hurry = until;
    }

    pub fn base_url(&self) -> &str {
        self.endpoint.base_url.trim().trim_end_matches('/')
    }

    /// Makes one attempt. Nothing that it returns or shows to `watch` contains the key.
    pub fn attempt(
        &mut self,
        call: EndpointRequest<'_>,
        assembly: &mut dyn AnswerAssembly,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        let Some(key) = self.endpoint.key.clone() else {
            return self.exchange(call, assembly, watch);
        };
        let mut watch_redacted = |piece: &str| match key.redact_answer(piece) {
            Some(redacted) => watch(&redacted),
            None => watch(piece),
        };
        match self.exchange(call, assembly, &mut watch_redacted) {
            Ok(answer) => redact_answer(answer, &key),
            Err(error) => Err(redact_error(error, &key)),
        }
    }

    fn exchange(
        &mut self,
        call: EndpointRequest<'_>,
        assembly: &mut dyn AnswerAssembly,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, LlmError> {
        if self.endpoint.cancel.requested().is_some() {
            return Err(LlmError::Stopped {
                spent: Spent::Nothing,
            });
        }
        let asked = call.body.len();
        let post = self.post(call)?;
        let clock = AttemptClock::start(self.endpoint.idle_timeout, self.hurry);
        let started = self.transport.start(post, &self.endpoint.cancel);
        let exchange = started.map_err(|failure| clock.error(failure, Spent::Nothing))?;
        AnswerReader {
            exchange,
            clock,
            assembly,
            watch,
            asked,
            ahead: VecDeque::new(),
        }
        .answer()
    }

    fn post(&self, call: EndpointRequest<'_>) -> Result<HttpPost, LlmError> {
        let mut headers = call.headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &self.endpoint.key {
            let (name, prefix) = call.key_header;
            let unfit = || LlmError::Unauthorized {
                message: "the key holds characters that no key has".into(),
            };
            headers.insert(name, key.header(prefix).ok_or_else(unfit)?);
        }
        Ok(HttpPost {
            url: call.url,
            headers,
            body: call.body.to_owned(),
        })
    }
}

/// The two limits of an attempt.
struct AttemptClock {
    idle: Duration,
    idle_until: Instant,
    total_until: Instant,
    /// When the caller wants it to end, as if by a signal.
    hurry: Option<Instant>,
}

impl AttemptClock {
    fn start(idle: Duration, hurry: Option<Instant>) -> AttemptClock {
        let total_until = Instant::now() + TOTAL_TIMEOUT;
        let mut clock = AttemptClock {
            idle,
            idle_until: total_until,
            total_until,
            hurry,
        };
        clock.heard();
        clock
    }

    fn heard(&mut self) {
        self.idle_until = Instant::now()
            .checked_add(self.idle)
            .unwrap_or(self.total_until);
    }

    fn deadline(&self) -> Instant {
        let until = self.idle_until.min(self.total_until);
        self.hurry.map_or(until, |hurry| hurry.min(until))
    }

    fn error(&self, failure: HttpFailure, spent: Spent) -> LlmError {
        let message = match failure {
            HttpFailure::Unsendable(message) => return LlmError::permanent(message),
            HttpFailure::NotSent(message) => {
                return LlmError::transient(message, Spent::Nothing);
            }
            HttpFailure::Stopped => return LlmError::Stopped { spent },
            HttpFailure::TimedOut if self.hurry.is_some_and(|hurry| hurry <= Instant::now()) => {
                return LlmError::Stopped { spent };
            }
            HttpFailure::Broken(message) => message,
            HttpFailure::TimedOut if self.total_until <= self.idle_until => {
                format!(
                    "the answer was not complete after {} s",
                    TOTAL_TIMEOUT.as_secs()
                )
            }
            HttpFailure::TimedOut => {
                format!("silence for {} s (idle timeout)", self.idle.as_secs_f64())
            }
        };
        LlmError::transient(message, spent)
    }
}

/// An answer on its way in.
struct AnswerReader<'a> {
    exchange: HttpExchange,
    clock: AttemptClock,
    assembly: &'a mut dyn AnswerAssembly,
    watch: &'a mut dyn FnMut(&str),
    /// How many bytes were sent.
    asked: usize,
    /// Parts that were looked at and not yet taken.
    ahead: VecDeque<HttpPart>,
}

impl AnswerReader<'_> {
    fn answer(mut self) -> Result<Answer, LlmError> {
        let HttpPart::Head { status, headers } = self.next()? else {
            return Err(self.transient("a body without a head".into()));
        };
        if !(200..300).contains(&status) {
            return Err(self.refused(status, &headers));
        }
        let kind = content_type(&headers);
        match self.is_stream(&kind)? {
            true => self.stream()?,
            false => self.whole(status, &kind)?,
        }
        let mut answer = self
            .assembly
            .finish()
            .map_err(|problem| self.transient(problem))?;
        answer.request_id = request_id(&headers);
        Ok(answer)
    }

    fn next(&mut self) -> Result<HttpPart, LlmError> {
        if let Some(part) = self.ahead.pop_front() {
            return Ok(part);
        }
        let next = self.exchange.next(self.clock.deadline());
        next.map_err(|failure| self.clock.error(failure, self.spent()))
    }

    fn spent(&self) -> Spent {
        spent(self.assembly.usage(), self.assembly.words(), self.asked)
    }

    fn transient(&self, message: String) -> LlmError {
        LlmError::transient(message, self.spent())
    }

    /// The status is the answer here; as much of the text is read as comes.
    fn refused(&mut self, status: u16, headers: &HeaderMap) -> LlmError {
        let mut body = Vec::new();
        while body.len() < MAX_ERROR_BODY {
            match self.exchange.next(self.clock.deadline()) {
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
        self.assembly.refused(status, &|field| names(&body, field));
        refusal(status, headers, &body)
    }

    /// Looks at the body until it shows what it is.
    fn is_stream(&mut self, content_type: &str) -> Result<bool, LlmError> {
        let is_called_stream = content_type == EVENT_STREAM;
        let mut start = Vec::new();
        loop {
            let found = match begins_as_stream(&start) {
                // JSON has many names; all else keeps its own.
                Some(false) => Some(is_called_stream && !begins_as_object(&start)),
                None if start.len() > MOST_LOOKED_AT => Some(is_called_stream),
                found => found,
            };
            if let Some(is_stream) = found {
                self.ahead.push_front(HttpPart::Chunk(start));
                return Ok(is_stream);
            }
            match self.next()? {
                HttpPart::Chunk(bytes) => start.extend(bytes),
                end => {
                    self.ahead.extend([HttpPart::Chunk(start), end]);
                    return Ok(is_called_stream);
                }
            }
            if !is_called_stream {
                self.clock.heard();
            }
        }
    }

    fn stream(&mut self) -> Result<(), LlmError> {
        let (mut parser, mut start, mut understood) = (SseParser::new(), Vec::new(), false);
        while let HttpPart::Chunk(bytes) = self.next()? {
            start.extend(bytes.iter().take(EXCERPT_BYTES.saturating_sub(start.len())));
            match self
                .hear(&mut parser, &bytes)
                .map_err(|problem| self.transient(problem))?
            {
                StreamEvent::Nothing => {}
                StreamEvent::Something => understood = true,
                StreamEvent::End => return Ok(()),
            }
        }
        if understood {
            Ok(())
        } else {
            Err(self.transient(format!("a stream without an answer: {}", excerpt(&start))))
        }
    }

    /// Returns the most that was heard in these bytes; after an end or an error nothing more is looked at.
    fn hear(&mut self, parser: &mut SseParser, bytes: &[u8]) -> Result<StreamEvent, String> {
        let mut most = Ok(StreamEvent::Nothing);
        let pushed = parser.push(bytes, &mut |_, data| {
            if let Ok(before @ (StreamEvent::Nothing | StreamEvent::Something)) = most {
                most = self.event(data).map(|heard| heard.max(before));
            }
        });
        match most? {
            StreamEvent::End => Ok(StreamEvent::End),
            heard => pushed.map(|()| heard).map_err(|error| error.to_string()),
        }
    }

    fn event(&mut self, data: &str) -> Result<StreamEvent, String> {
        if data.is_empty() {
            return Ok(StreamEvent::Nothing);
        }
        if data.starts_with('{') {
            (self.watch)(data);
        }
        let heard = self.assembly.event(data)?;
        if heard == StreamEvent::Something {
            self.clock.heard();
        }
        Ok(heard)
    }

    fn whole(&mut self, status: u16, content_type: &str) -> Result<(), LlmError> {
        let mut body = Vec::new();
        while let HttpPart::Chunk(bytes) = self.next()? {
            self.clock.heard();
            body.extend(bytes);
            if body.len() > MAX_EVENT {
                return Err(self.transient(format!("the answer is larger than {MAX_EVENT} bytes")));
            }
        }
        take_whole(content_type, &body, self.assembly).map_err(|problem| {
            let kind = excerpt(
                if content_type.is_empty() {
                    "no content type"
                } else {
                    content_type
                }
                .as_bytes(),
            );
            self.transient(format!(
                "HTTP {status} ({kind}), but {problem}: {}",
                excerpt(&body)
            ))
        })?;
        (self.watch)(&String::from_utf8_lossy(&body));
        Ok(())
    }
}

/// Reads an answer out of parts that are all there.
pub(super) fn read(
    parts: Vec<HttpPart>,
    assembly: &mut dyn AnswerAssembly,
) -> Result<Answer, LlmError> {
    let broken = |error: io::Error| LlmError::permanent(error.to_string());
    let exchange = HttpExchange::of(parts).map_err(broken)?;
    let (clock, ahead) = (AttemptClock::start(TOTAL_TIMEOUT, None), VecDeque::new());
    AnswerReader {
        exchange,
        clock,
        assembly,
        watch: &mut |_| {},
        asked: 0,
        ahead,
    }
    .answer()
}

/// Whether a body is an event stream by its first bytes; nothing where they do not say it yet.
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

fn content_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

fn take_whole(
    content_type: &str,
    body: &[u8],
    assembly: &mut dyn AnswerAssembly,
) -> Result<(), String> {
    let is_json = ["", "application/json", EVENT_STREAM].contains(&content_type)
        || content_type.ends_with("+json");
    if !is_json {
        return Err("this is no answer".into());
    }
    let value = parse(body).map_err(|problem| format!("this is no JSON ({problem})"))?;
    error_in(&value).map_or(Ok(()), Err)?;
    assembly.whole(&value)
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let value = headers
        .get("request-id")
        .or_else(|| headers.get("x-request-id"))?;
    Some(excerpt(value.as_bytes())).filter(|id| !id.is_empty())
}

fn redact_answer(answer: Answer, key: &ApiKey) -> Result<Answer, LlmError> {
    // A stream may have cut the key in pieces, so it is looked for in the whole.
    let text = serde_json::to_string(&answer).unwrap_or_default();
    let Some(redacted) = key.redact_answer(&text) else {
        return Ok(answer);
    };
    serde_json::from_str(&redacted).map_err(|_| {
        let problem = "the answer contains the key and cannot be cleaned of it";
        LlmError::transient(problem, spent(answer.usage, 0, 0))
    })
}

fn redact_error(mut error: LlmError, key: &ApiKey) -> LlmError {
    if let Some(message) = error.message_mut() {
        *message = key.redact(message);
    }
    error
}

#[cfg(test)]
mod tests;
