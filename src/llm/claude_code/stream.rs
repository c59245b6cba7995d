//! What `claude` tells while it works, line by line: signs of life, the text so far, and in the end a result.
//!
//! Lines that are no JSON and lines of unknown types are passed over, but they are no sign of life and there is a limit
//! to them. Nothing is decided here; what a result means is `verdict.rs`'s to say.

use serde_json::Value;

use crate::llm::endpoint::{AnswerSize, BYTES_PER_TOKEN, parse, spent, tokens};
use crate::llm::error::Spent;
use crate::llm::http_error::excerpt;
use crate::llm::message::{TokenUsage, add_text};

/// More of what cannot be understood is not listened to.
const MOST_STRAY: usize = 16 << 20;

/// The model's name on words that are the program's own.
const SYNTHETIC: &str = "<synthetic>";

/// What a line was.
#[derive(Debug, PartialEq)]
pub enum StreamLine {
    /// No sign of life.
    Nothing,
    Something,
    /// The program asks its server once more; how often it has done so in a row, and why.
    Retrying(u32, String),
    /// The last word.
    Result(Value),
}

/// What was told so far.
#[derive(Debug, Default)]
pub struct ClaudeStream {
    /// The model's last message; one that was cut off is continued by the next.
    pub text: String,
    pub model: String,
    /// How many messages of the model there were.
    pub turns: u32,
    /// The program's own word for what went wrong with its server.
    pub problem: Option<String>,
    /// The status of the last failure that it retried.
    pub status: Option<u64>,
    message: String,
    is_cut: bool,
    /// Whether the message under way has given some text.
    has_text: bool,
    retries: u32,
    usage: TokenUsage,
    /// How many bytes were sent, and how many bytes of the message under way have come.
    asked: usize,
    words: u64,
    kept: AnswerSize,
    stray: usize,
    first_stray: Option<String>,
}

impl ClaudeStream {
    /// Returns the begin of a story: so many bytes were sent.
    pub fn asked(bytes: usize) -> ClaudeStream {
        ClaudeStream {
            asked: bytes,
            ..ClaudeStream::default()
        }
    }

    /// Takes one line; an error says why it is of no use to go on.
    pub fn hear(&mut self, line: &str) -> Result<StreamLine, String> {
        let Some(value) = parse(line.as_bytes()).ok().filter(Value::is_object) else {
            return self.pass_over(line);
        };
        match value["type"].as_str().unwrap_or_default() {
            "system" => Ok(self.system(&value)),
            "stream_event" => Ok(self.piece(&value["event"])),
            "assistant" => {
                self.retries = 0;
                self.assistant(&value)?;
                Ok(StreamLine::Something)
            }
            "user" => {
                self.retries = 0;
                Ok(StreamLine::Something)
            }
            "result" => Ok(StreamLine::Result(value)),
            _ => self.pass_over(line),
        }
    }

    fn pass_over(&mut self, line: &str) -> Result<StreamLine, String> {
        self.stray += line.len() + 1;
        if !line.starts_with('{') && !line.trim().is_empty() {
            self.first_stray
                .get_or_insert_with(|| excerpt(line.as_bytes()));
        }
        match self.stray > MOST_STRAY {
            true => Err(format!("claude floods its output{}", self.oddity())),
            false => Ok(StreamLine::Nothing),
        }
    }

    fn system(&mut self, value: &Value) -> StreamLine {
        match value["subtype"].as_str().unwrap_or_default() {
            "init" => {
                self.model = value["model"].as_str().unwrap_or_default().to_owned();
                StreamLine::Something
            }
            "api_retry" => {
                self.retries += 1;
                self.status = value["error_status"].as_u64();
                let status = self
                    .status
                    .map_or_else(String::new, |status| format!("HTTP {status}, "));
                let error = excerpt(value["error"].as_str().unwrap_or("unknown").as_bytes());
                StreamLine::Retrying(self.retries, format!("{status}{error}"))
            }
            _ => StreamLine::Nothing,
        }
    }

    /// A raw event of the server's stream.
    fn piece(&mut self, event: &Value) -> StreamLine {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let shown = read_usage(&event["message"]["usage"]);
                self.usage.input = self.usage.input.saturating_add(shown.input);
                self.usage.cache_write = self.usage.cache_write.saturating_add(shown.cache_write);
                self.usage.cache_read = self.usage.cache_read.saturating_add(shown.cache_read);
            }
            "message_delta" => {
                self.words = 0;
                self.usage.output = self
                    .usage
                    .output
                    .saturating_add(read_usage(&event["usage"]).output);
                self.is_cut = event["delta"]["stop_reason"] == "max_tokens";
                // What follows a cut goes on in mid-word, also under the same id.
                self.has_text &= !self.is_cut;
            }
            "content_block_delta" => {
                let words = ["text", "thinking", "partial_json"]
                    .map(|field| event["delta"][field].as_str());
                self.words += words
                    .into_iter()
                    .flatten()
                    .map(|words| words.len() as u64)
                    .sum::<u64>();
            }
            "content_block_start" | "content_block_stop" | "message_stop" => {}
            _ => return StreamLine::Nothing,
        }
        StreamLine::Something
    }

    fn assistant(&mut self, value: &Value) -> Result<(), String> {
        let message = &value["message"];
        if let Some(problem) = value["error"].as_str() {
            self.problem = Some(problem.to_owned());
        }
        if message["model"] == SYNTHETIC || !value["parent_tool_use_id"].is_null() {
            return Ok(());
        }
        self.model = message["model"].as_str().unwrap_or(&self.model).to_owned();
        let id = message["id"].as_str().unwrap_or_default();
        if id != self.message {
            // A message that follows another is a new one, unless that was cut off: then it goes on in mid-word.
            if !std::mem::take(&mut self.is_cut) {
                self.text.clear();
            }
            self.message = id.to_owned();
            self.has_text = false;
            self.turns += 1;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let text = block["text"]
                .as_str()
                .filter(|_| block["type"] == "text")
                .unwrap_or_default();
            self.kept.add(text.len() + 1)?;
            // What goes on in mid-word is the first text of its message; all others are texts of their own.
            match self.has_text {
                true => add_text(&mut self.text, text),
                false => self.text.push_str(text),
            }
            self.has_text |= !text.is_empty();
        }
        Ok(())
    }

    /// Returns what was spent as far as it was shown: whole messages, and what has come of the one under way.
    pub fn spent(&self) -> Spent {
        let output = self
            .usage
            .output
            .saturating_add(self.words.div_ceil(BYTES_PER_TOKEN));
        spent(
            TokenUsage {
                output,
                ..self.usage
            },
            0,
            self.asked,
        )
    }

    /// Returns the first thing that could not be understood, as the end of a sentence.
    pub fn oddity(&self) -> String {
        self.first_stray
            .as_ref()
            .map_or_else(String::new, |stray| format!(": {stray}"))
    }
}

/// Returns a count of tokens as the Messages API words it.
pub fn read_usage(value: &Value) -> TokenUsage {
    let count = |name: &str| tokens(&value[name]).unwrap_or_default();
    TokenUsage {
        input: count("input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        output: count("output_tokens"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn told(lines: &[Value]) -> (ClaudeStream, Vec<StreamLine>) {
        let mut stream = ClaudeStream::default();
        let heard = lines
            .iter()
            .map(|line| stream.hear(&line.to_string()).unwrap())
            .collect();
        (stream, heard)
    }

    fn said(id: &str, text: &str) -> Value {
        json!({"type": "assistant", "parent_tool_use_id": null,
               "message": {"id": id, "model": "m", "content": [{"type": "text", "text": text}]}})
    }

    fn piece(event: Value) -> Value {
        json!({"type": "stream_event", "event": event})
    }

    fn stopped(reason: &str) -> Value {
        piece(
            json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}}),
        )
    }

    #[test]
    fn the_text_is_that_of_the_last_message() {
        assert_eq!(
            told(&[said("a", "x"), said("a", "y\n"), said("a", "z")])
                .0
                .text,
            "x\ny\nz"
        );
        let (stream, _) = told(&[said("a", "x"), stopped("end_turn"), said("b", "y")]);
        assert_eq!((stream.text.as_str(), stream.turns), ("y", 2));
        assert_eq!(
            told(&[said("a", "x"), stopped("max_tokens"), said("b", "y")])
                .0
                .text,
            "xy"
        );
        assert_eq!(
            told(&[said("a", "x"), stopped("max_tokens"), said("a", "y")])
                .0
                .text,
            "xy"
        );
        assert_eq!(
            told(&[
                said("a", "x"),
                stopped("max_tokens"),
                said("b", "y"),
                said("c", "z")
            ])
            .0
            .text,
            "z"
        );
        let mut synthetic = said("b", "API Error");
        synthetic["message"]["model"] = SYNTHETIC.into();
        synthetic["error"] = "rate_limit".into();
        let (stream, _) = told(&[said("a", "x"), synthetic]);
        assert_eq!(
            (stream.text.as_str(), stream.problem.as_deref()),
            ("x", Some("rate_limit"))
        );
    }

    #[test]
    fn retries_are_counted_until_something_is_said() {
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"});
        let (_, heard) = told(&[
            retry.clone(),
            piece(json!({"type": "message_start"})),
            retry.clone(),
            said("a", ""),
            retry,
        ]);
        let why = || "HTTP 529, overloaded".to_owned();
        let (nth, something) = (
            |count| StreamLine::Retrying(count, why()),
            || StreamLine::Something,
        );
        assert_eq!(heard, [nth(1), something(), nth(2), something(), nth(1)]);
    }

    #[test]
    fn what_was_shown_is_what_was_spent() {
        let start = piece(
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 5,
            "cache_read_input_tokens": 2}}}),
        );
        let (stream, _) = told(&[
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
        let words = |text: &str| {
            piece(
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            )
        };
        let (stream, _) = told(&[
            start.clone(),
            words("seven b"),
            stopped("tool_use"),
            start.clone(),
            words("four"),
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
        let mut stream = ClaudeStream::asked(300);
        stream.hear(&words("four").to_string()).unwrap();
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
    fn pings_and_the_unknown_are_no_sign_of_life() {
        let lines = [
            piece(json!({"type": "ping"})),
            json!({"type": "new"}),
            json!({}),
            json!({"type": "system"}),
        ];
        assert!(
            told(&lines)
                .1
                .iter()
                .all(|heard| *heard == StreamLine::Nothing)
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
                let _ = stream.hear(&line);
            }
        }
    }
}
