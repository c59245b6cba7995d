//! What the scripted model answers, in both dialects, whole or as a stream, well or badly.
//!
//! A reply says what is answered and how the wire behaves meanwhile; `server.rs` does it.

use serde_json::{Value, json};

/// The two dialects that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Anthropic,
    OpenAi,
}

/// One scripted answer.
#[derive(Debug, Clone)]
pub struct Reply {
    text: String,
    input: u64,
    output: u64,
    cache_write: u64,
    cache_read: u64,
    stop: &'static str,
    raw: Option<(String, Vec<u8>)>,
    error_after: Option<usize>,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub whole: bool,
    pub held: bool,
    pub stall_after: Option<usize>,
    pub pings: bool,
    pub cut_after: Option<usize>,
    pub ends_after: Option<usize>,
    pub reset: bool,
    pub piece: usize,
}

/// Returns an answer of whole files in the format.
pub fn files(files: &[(&str, &str)]) -> Reply {
    text(&files.iter().map(|(path, content)| block(path, content)).collect::<String>())
}

/// Returns the answer of most tests: `answer.txt` with this line in it.
pub fn answer(line: &str) -> Reply {
    files(&[("answer.txt", &format!("{line}\n"))])
}

/// Returns one file in the format.
pub fn block(path: &str, content: &str) -> String {
    let end = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
    format!("<file path=\"{path}\">\n{content}{end}</file>\n")
}

/// Returns an answer with this text.
pub fn text(text: &str) -> Reply {
    Reply {
        text: text.to_owned(),
        input: 100,
        output: 20,
        cache_write: 0,
        cache_read: 0,
        stop: "end_turn",
        raw: None,
        error_after: None,
        status: 200,
        headers: Vec::new(),
        whole: false,
        held: false,
        stall_after: None,
        pings: false,
        cut_after: None,
        ends_after: None,
        reset: false,
        piece: usize::MAX,
    }
}

/// Returns an error status with a body that its provider would send.
pub fn status(status: u16) -> Reply {
    error(status, "scripted_error", "a scripted error")
}

/// Returns an error status with this type and message.
pub fn error(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({"type": "error", "error": {"type": kind, "code": kind, "message": message}});
    raw(status, "application/json", body.to_string())
}

/// Returns a body as it stands.
pub fn raw(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
    Reply { status, raw: Some((content_type.to_owned(), body.into())), whole: true, ..text("") }
}

impl Reply {
    /// Sets the tokens that are shown as used.
    pub fn usage(self, input: u64, output: u64) -> Reply {
        Reply { input, output, ..self }
    }

    /// Sets input tokens that were written to and read from the cache, beside the others.
    pub fn cached(self, cache_write: u64, cache_read: u64) -> Reply {
        Reply { cache_write, cache_read, ..self }
    }

    /// Sets why the model stopped, in the words of Anthropic.
    pub fn stop(self, stop: &'static str) -> Reply {
        Reply { stop, ..self }
    }

    pub fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers with one JSON body instead of a stream.
    pub fn json(self) -> Reply {
        Reply { whole: true, ..self }
    }

    /// Holds the answer back until `Server::release`.
    pub fn held(self) -> Reply {
        Reply { held: true, ..self }
    }

    /// Is silent after so many events, until `Server::release`.
    pub fn stall_after(self, events: usize) -> Reply {
        Reply { stall_after: Some(events), ..self }
    }

    /// Sends pings while it is silent otherwise.
    pub fn pinging(self) -> Reply {
        Reply { pings: true, ..self }
    }

    /// Closes the connection after so many events, in the middle of the body.
    pub fn cut_after(self, events: usize) -> Reply {
        Reply { cut_after: Some(events), ..self }
    }

    /// Ends the body in good order after so many events, though the answer is not complete.
    pub fn ends_after(self, events: usize) -> Reply {
        Reply { ends_after: Some(events), ..self }
    }

    /// Sends an error event after so many events.
    pub fn fails_after(self, events: usize) -> Reply {
        Reply { error_after: Some(events), ..self }
    }

    /// Resets the connection instead of answering.
    pub fn reset(self) -> Reply {
        Reply { reset: true, ..self }
    }

    /// Writes at most so many bytes at once.
    pub fn chunked_by(self, bytes: usize) -> Reply {
        Reply { piece: bytes, ..self }
    }

    /// Returns content type and body of an answer that is no stream.
    pub fn body(&self, dialect: Dialect) -> (String, Vec<u8>) {
        let json = |value: Value| ("application/json".to_owned(), value.to_string().into_bytes());
        match (&self.raw, dialect) {
            (Some(raw), _) => raw.clone(),
            (None, Dialect::Anthropic) => {
                let mut message = self.message(json!([{"type": "text", "text": self.text}]));
                message["stop_reason"] = json!(self.stop);
                json(message)
            }
            (None, Dialect::OpenAi) => json(json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1,
                "model": "scripted", "choices": [{"index": 0, "finish_reason": self.finish(),
                "message": {"role": "assistant", "content": self.text}}], "usage": self.openai_usage()})),
        }
    }

    /// Returns the events of the stream, each as it stands on the wire.
    pub fn events(&self, dialect: Dialect) -> Vec<String> {
        let mut events = match dialect {
            Dialect::Anthropic => self.anthropic_events(),
            Dialect::OpenAi => self.openai_events(),
        };
        if let Some(after) = self.error_after {
            events.truncate(after);
            let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
            events.push(format!("event: error\ndata: {error}\n\n"));
        }
        events
    }

    fn anthropic_events(&self) -> Vec<String> {
        let start = json!({"type": "message_start", "message": self.message(json!([]))});
        let open = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
        let deltas = self.pieces().into_iter().map(
            |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        );
        let end = [
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": self.stop, "stop_sequence": null},
                "usage": {"output_tokens": self.output}}),
            json!({"type": "message_stop"}),
        ];
        let frame = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        [start, open].into_iter().chain(deltas).chain(end).map(frame).collect()
    }

    fn openai_events(&self) -> Vec<String> {
        let chunk = |delta: Value, finish: Value| {
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null})
        };
        let start = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
        let deltas = self.pieces().into_iter().map(|text| chunk(json!({"content": text}), Value::Null));
        let end = [
            chunk(json!({}), json!(self.finish())),
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [], "usage": self.openai_usage()}),
        ];
        let frames = [start].into_iter().chain(deltas).chain(end).map(|event| format!("data: {event}\n\n"));
        frames.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }

    fn message(&self, content: Value) -> Value {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_write, "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output}})
    }

    fn finish(&self) -> &'static str {
        match self.stop {
            "max_tokens" => "length",
            "refusal" => "content_filter",
            _ => "stop",
        }
    }

    fn openai_usage(&self) -> Value {
        let prompt = self.input + self.cache_read;
        json!({"prompt_tokens": prompt, "completion_tokens": self.output, "total_tokens": prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cache_read}})
    }

    /// The text in some two hundred pieces at the most, none of them shorter than a few characters.
    fn pieces(&self) -> Vec<String> {
        let characters: Vec<char> = self.text.chars().collect();
        characters.chunks(12.max(characters.len() / 200)).map(|piece| piece.iter().collect()).collect()
    }
}
