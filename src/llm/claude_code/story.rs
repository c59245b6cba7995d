//! What `claude` tells while it works, line by line: signs of life, the text so far, and in the end a result.
//!
//! Lines that are no JSON and lines of unknown types are passed over, but they are no sign of life and there is a limit
//! to them. Nothing is decided here; what a result means is `verdict.rs`'s to say.

use serde_json::Value;

use crate::llm::endpoint::{Kept, parse, tokens};
use crate::llm::refusal::excerpt;
use crate::llm::{Spent, Usage};

/// More of what cannot be understood is not listened to.
const MOST_STRAY: usize = 16 << 20;

/// The model's name on words that are the program's own.
const SYNTHETIC: &str = "<synthetic>";

/// What a line was.
#[derive(Debug, PartialEq)]
pub enum Heard {
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
pub struct Story {
    /// The model's last message; one that was cut off is continued by the next.
    pub text: String,
    pub model: String,
    /// How many messages of the model there were.
    pub turns: u32,
    /// The program's own word for what went wrong with its server.
    pub trouble: Option<String>,
    /// The status of the last failure that it retried.
    pub status: Option<u64>,
    message: String,
    is_cut: bool,
    retries: u32,
    usage: Usage,
    kept: Kept,
    stray: usize,
    first_stray: Option<String>,
}

impl Story {
    /// Takes one line; an error says why it is of no use to go on.
    pub fn hear(&mut self, line: &str) -> Result<Heard, String> {
        let Some(value) = parse(line.as_bytes()).ok().filter(Value::is_object) else { return self.pass_over(line) };
        match value["type"].as_str().unwrap_or_default() {
            "system" => Ok(self.system(&value)),
            "stream_event" => Ok(self.piece(&value["event"])),
            "assistant" => {
                self.retries = 0;
                self.assistant(&value)?;
                Ok(Heard::Something)
            }
            "user" => {
                self.retries = 0;
                Ok(Heard::Something)
            }
            "result" => Ok(Heard::Result(value)),
            _ => self.pass_over(line),
        }
    }

    fn pass_over(&mut self, line: &str) -> Result<Heard, String> {
        self.stray += line.len() + 1;
        if !line.starts_with('{') && !line.trim().is_empty() {
            self.first_stray.get_or_insert_with(|| excerpt(line.as_bytes()));
        }
        match self.stray > MOST_STRAY {
            true => Err(format!("claude floods its output{}", self.oddity())),
            false => Ok(Heard::Nothing),
        }
    }

    fn system(&mut self, value: &Value) -> Heard {
        match value["subtype"].as_str().unwrap_or_default() {
            "init" => {
                self.model = value["model"].as_str().unwrap_or_default().to_owned();
                Heard::Something
            }
            "api_retry" => {
                self.retries += 1;
                self.status = value["error_status"].as_u64();
                let status = self.status.map_or_else(String::new, |status| format!("HTTP {status}, "));
                let error = excerpt(value["error"].as_str().unwrap_or("unknown").as_bytes());
                Heard::Retrying(self.retries, format!("{status}{error}"))
            }
            _ => Heard::Nothing,
        }
    }

    /// A raw event of the server's stream.
    fn piece(&mut self, event: &Value) -> Heard {
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let shown = read_usage(&event["message"]["usage"]);
                self.usage.input += shown.input;
                self.usage.cache_write += shown.cache_write;
                self.usage.cache_read += shown.cache_read;
            }
            "message_delta" => {
                self.usage.output += read_usage(&event["usage"]).output;
                self.is_cut = event["delta"]["stop_reason"] == "max_tokens";
            }
            "content_block_start" | "content_block_delta" | "content_block_stop" | "message_stop" => {}
            _ => return Heard::Nothing,
        }
        Heard::Something
    }

    fn assistant(&mut self, value: &Value) -> Result<(), String> {
        let message = &value["message"];
        if let Some(trouble) = value["error"].as_str() {
            self.trouble = Some(trouble.to_owned());
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
            self.turns += 1;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            let text = block["text"].as_str().filter(|_| block["type"] == "text").unwrap_or_default();
            self.kept.add(text.len())?;
            self.text.push_str(text);
        }
        Ok(())
    }

    /// Returns what was spent as far as it was shown.
    pub fn spent(&self) -> Spent {
        if self.usage == Usage::default() { Spent::Unknown } else { Spent::Shown(self.usage) }
    }

    /// Returns the first thing that could not be understood, as the end of a sentence.
    pub fn oddity(&self) -> String {
        self.first_stray.as_ref().map_or_else(String::new, |stray| format!(": {stray}"))
    }
}

/// Returns a count of tokens as the Messages API words it.
pub fn read_usage(value: &Value) -> Usage {
    let count = |name: &str| tokens(&value[name]).unwrap_or_default();
    Usage {
        input: count("input_tokens"),
        cache_write: count("cache_creation_input_tokens"),
        cache_read: count("cache_read_input_tokens"),
        output: count("output_tokens"),
    }
}
