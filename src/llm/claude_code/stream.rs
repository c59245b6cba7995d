//! The output of `claude`, line by line: progress, the text so far, and at the end a result.
//!
//! Lines that are not JSON and lines of unknown types are ignored. They do not count as progress, and their total size
//! is limited. What a result means is decided in `result.rs`.

use std::fmt;

use serde_json::Value;

use crate::llm::assembly::{AnswerSize, AssemblyError};
use crate::llm::error::Spent;
use crate::llm::http_error::excerpt;
use crate::llm::json;
use crate::llm::message::{TokenUsage, add_text};
use crate::llm::tokens::{BYTES_PER_TOKEN, spent_so_far, update_usage};

/// The most bytes of lines that are ignored.
const MAX_IGNORED: usize = 16 << 20;

/// The model name of messages that the program itself wrote.
const SYNTHETIC: &str = "<synthetic>";

/// What a line of the output is.
#[derive(Debug, PartialEq)]
pub(super) enum StreamLine {
    Ignored,
    Progress,
    /// The program repeats a request to its server: for which time in a row, and why.
    Retrying(u32, String),
    Result(Value),
}

/// Why the rest of the output is not read.
#[derive(Debug)]
pub(super) enum StreamError {
    /// Too many lines were ignored; the first one follows.
    Flooded(String),
    Answer(AssemblyError),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Flooded(first) => write!(f, "claude floods its output{first}"),
            StreamError::Answer(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

/// What the output showed so far.
#[derive(Debug, Default)]
pub(super) struct ClaudeStream {
    /// The model's last message; a message that was cut off is continued by the next.
    pub text: String,
    pub model: String,
    /// How many messages the model has sent.
    pub turns: u32,
    /// The program's code for an error of its server.
    pub problem: Option<String>,
    /// The HTTP status of the last request that it repeated.
    pub retry_status: Option<u64>,
    message_id: String,
    is_cut_off: bool,
    /// Whether the current message has text.
    has_text: bool,
    retries: u32,
    usage: TokenUsage,
    bytes_sent: usize,
    /// The size of the current message, for which no usage is reported yet.
    bytes_written: u64,
    size: AnswerSize,
    bytes_ignored: usize,
    first_ignored: Option<String>,
}

impl ClaudeStream {
    /// Returns the state before the first line, after a prompt of so many bytes.
    pub(super) fn after_sending(bytes: usize) -> ClaudeStream {
        ClaudeStream {
            bytes_sent: bytes,
            ..ClaudeStream::default()
        }
    }

    /// Takes one line.
    pub(super) fn line(&mut self, line: &str) -> Result<StreamLine, StreamError> {
        let Some(value) = json::parse(line.as_bytes()).ok().filter(Value::is_object) else {
            return self.ignore(line);
        };
        match value["type"].as_str().unwrap_or_default() {
            "system" => Ok(self.system(&value)),
            "stream_event" => Ok(self.api_event(&value["event"])),
            "assistant" => {
                self.retries = 0;
                self.assistant(&value).map_err(StreamError::Answer)?;
                Ok(StreamLine::Progress)
            }
            "user" => {
                self.retries = 0;
                Ok(StreamLine::Progress)
            }
            "result" => Ok(StreamLine::Result(value)),
            _ => self.ignore(line),
        }
    }

    fn ignore(&mut self, line: &str) -> Result<StreamLine, StreamError> {
        self.bytes_ignored += line.len() + 1;
        if !line.starts_with('{') && !line.trim().is_empty() {
            self.first_ignored
                .get_or_insert_with(|| excerpt(line.as_bytes()));
        }
        match self.bytes_ignored > MAX_IGNORED {
            true => Err(StreamError::Flooded(self.unknown_output())),
            false => Ok(StreamLine::Ignored),
        }
    }

    fn system(&mut self, value: &Value) -> StreamLine {
        match value["subtype"].as_str().unwrap_or_default() {
            "init" => {
                self.model = value["model"].as_str().unwrap_or_default().to_owned();
                StreamLine::Progress
            }
            "api_retry" => {
                self.retries += 1;
                self.retry_status = value["error_status"].as_u64();
                let status = self
                    .retry_status
                    .map_or_else(String::new, |status| format!("HTTP {status}, "));
                let error = excerpt(value["error"].as_str().unwrap_or("unknown").as_bytes());
                StreamLine::Retrying(self.retries, format!("{status}{error}"))
            }
            _ => StreamLine::Ignored,
        }
    }

    /// Takes a raw event of the Messages API.
    fn api_event(&mut self, event: &Value) -> StreamLine {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let reported = read_usage(&event["message"]["usage"]);
                self.usage.input = self.usage.input.saturating_add(reported.input);
                self.usage.cache_write =
                    self.usage.cache_write.saturating_add(reported.cache_write);
                self.usage.cache_read = self.usage.cache_read.saturating_add(reported.cache_read);
            }
            "message_delta" => {
                self.bytes_written = 0;
                self.usage.output = self
                    .usage
                    .output
                    .saturating_add(read_usage(&event["usage"]).output);
                self.is_cut_off = event["delta"]["stop_reason"] == "max_tokens";
                // The continuation of a cut-off text is not a separate text, also under the same id.
                self.has_text &= !self.is_cut_off;
            }
            "content_block_delta" => {
                let fields = ["text", "thinking", "partial_json"];
                let texts = fields.map(|field| event["delta"][field].as_str());
                let lengths = texts.into_iter().flatten().map(|text| text.len() as u64);
                self.bytes_written += lengths.sum::<u64>();
            }
            "content_block_start" | "content_block_stop" | "message_stop" => {}
            _ => return StreamLine::Ignored,
        }
        StreamLine::Progress
    }

    fn assistant(&mut self, value: &Value) -> Result<(), AssemblyError> {
        let message = &value["message"];
        if let Some(problem) = value["error"].as_str() {
            self.problem = Some(problem.to_owned());
        }
        if message["model"] == SYNTHETIC || !value["parent_tool_use_id"].is_null() {
            return Ok(());
        }
        self.model = message["model"].as_str().unwrap_or(&self.model).to_owned();
        let id = message["id"].as_str().unwrap_or_default();
        if id != self.message_id {
            // A message after one that was cut off continues its text.
            if !std::mem::take(&mut self.is_cut_off) {
                self.text.clear();
            }
            self.message_id = id.to_owned();
            self.has_text = false;
            self.turns += 1;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let text = block["text"]
                .as_str()
                .filter(|_| block["type"] == "text")
                .unwrap_or_default();
            self.size.keep(text.len() + 1)?;
            // Only the first text of a message can continue a cut-off one; the others are separate.
            match self.has_text {
                true => add_text(&mut self.text, text),
                false => self.text.push_str(text),
            }
            self.has_text |= !text.is_empty();
        }
        Ok(())
    }

    /// Returns what was spent so far: the reported usage of complete messages, and an estimate of the current one.
    pub(super) fn spent(&self) -> Spent {
        let estimate = self.bytes_written.div_ceil(BYTES_PER_TOKEN);
        let usage = TokenUsage {
            output: self.usage.output.saturating_add(estimate),
            ..self.usage
        };
        spent_so_far(usage, 0, self.bytes_sent)
    }

    /// Returns the first line that is not JSON, as the end of a sentence.
    pub(super) fn unknown_output(&self) -> String {
        let first = self.first_ignored.as_ref();
        first.map_or_else(String::new, |first| format!(": {first}"))
    }
}

/// Returns the counters of a `usage` object of the Messages API.
pub(super) fn read_usage(value: &Value) -> TokenUsage {
    let mut usage = TokenUsage::default();
    update_usage(&mut usage, value);
    usage
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn after_lines(lines: &[Value]) -> (ClaudeStream, Vec<StreamLine>) {
        let mut stream = ClaudeStream::default();
        let read = lines
            .iter()
            .map(|line| stream.line(&line.to_string()).unwrap())
            .collect();
        (stream, read)
    }

    fn message(id: &str, text: &str) -> Value {
        json!({"type": "assistant", "parent_tool_use_id": null,
               "message": {"id": id, "model": "m", "content": [{"type": "text", "text": text}]}})
    }

    fn api_event(event: Value) -> Value {
        json!({"type": "stream_event", "event": event})
    }

    fn stopped(reason: &str) -> Value {
        api_event(
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}}),
        )
    }

    #[test]
    fn the_text_is_that_of_the_last_message() {
        assert_eq!(
            after_lines(&[message("a", "x"), message("a", "y\n"), message("a", "z")])
                .0
                .text,
            "x\ny\nz"
        );
        let (stream, _) = after_lines(&[message("a", "x"), stopped("end_turn"), message("b", "y")]);
        assert_eq!((stream.text.as_str(), stream.turns), ("y", 2));
        assert_eq!(
            after_lines(&[message("a", "x"), stopped("max_tokens"), message("b", "y")])
                .0
                .text,
            "xy"
        );
        assert_eq!(
            after_lines(&[message("a", "x"), stopped("max_tokens"), message("a", "y")])
                .0
                .text,
            "xy"
        );
        assert_eq!(
            after_lines(&[
                message("a", "x"),
                stopped("max_tokens"),
                message("b", "y"),
                message("c", "z")
            ])
            .0
            .text,
            "z"
        );
        let mut synthetic = message("b", "API Error");
        synthetic["message"]["model"] = SYNTHETIC.into();
        synthetic["error"] = "rate_limit".into();
        let (stream, _) = after_lines(&[message("a", "x"), synthetic]);
        assert_eq!(
            (stream.text.as_str(), stream.problem.as_deref()),
            ("x", Some("rate_limit"))
        );
    }

    #[test]
    fn retries_are_counted_until_a_message_arrives() {
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"});
        let (_, read) = after_lines(&[
            retry.clone(),
            api_event(json!({"type": "message_start"})),
            retry.clone(),
            message("a", ""),
            retry,
        ]);
        let why = || "HTTP 529, overloaded".to_owned();
        let (nth, progress) = (
            |count| StreamLine::Retrying(count, why()),
            || StreamLine::Progress,
        );
        assert_eq!(read, [nth(1), progress(), nth(2), progress(), nth(1)]);
    }

    #[test]
    fn reported_usage_and_estimates_are_what_was_spent() {
        let start = api_event(
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5,
            "cache_read_input_tokens": 2}}}),
        );
        let (stream, _) = after_lines(&[
            start.clone(),
            stopped("tool_use"),
            start.clone(),
            stopped("end_turn"),
        ]);
        assert_eq!(
            stream.spent(),
            Spent::Shown(TokenUsage {
                input: 10,
                cache_read: 4,
                cache_write: 0,
                output: 6
            })
        );
        assert_eq!(ClaudeStream::default().spent(), Spent::Unknown);
        let delta = |text: &str| {
            api_event(
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            )
        };
        let (stream, _) = after_lines(&[
            start.clone(),
            delta("seven b"),
            stopped("tool_use"),
            start.clone(),
            delta("four"),
        ]);
        assert_eq!(
            stream.spent(),
            Spent::Shown(TokenUsage {
                input: 10,
                cache_read: 4,
                cache_write: 0,
                output: 3 + 2
            })
        );
        let mut stream = ClaudeStream::after_sending(300);
        stream.line(&delta("four").to_string()).unwrap();
        assert_eq!(
            stream.spent(),
            Spent::Shown(TokenUsage {
                input: 100,
                output: 2,
                ..TokenUsage::default()
            })
        );
    }

    #[test]
    fn pings_and_unknown_lines_do_not_count_as_progress() {
        let lines = [
            api_event(json!({"type": "ping"})),
            json!({"type": "new"}),
            json!({}),
            json!({"type": "system"}),
        ];
        assert!(
            after_lines(&lines)
                .1
                .iter()
                .all(|line| *line == StreamLine::Ignored)
        );
    }

    proptest! {
        #[test]
        fn no_line_panics(
            lines in prop::collection::vec(
                prop_oneof![
                    ".{0,30}",
                    Just("{\"type\":\"assistant\"}".to_owned()),
                    Just("{\"type\":\"assistant\",\"message\":[1],\"error\":{}}".to_owned()),
                    Just("{\"type\":\"stream_event\",\"event\":{\"type\":\"message_delta\",\"usage\":-1}}".to_owned()),
                    Just("{\"type\":\"system\",\"subtype\":\"api_retry\",\"error\":7}".to_owned()),
                    Just("{\"type\":\"result\"}".to_owned()),
                ],
                0..20,
            ),
        ) {
            let mut stream = ClaudeStream::default();
            for line in lines {
                let _ = stream.line(&line);
            }
        }
    }
}
