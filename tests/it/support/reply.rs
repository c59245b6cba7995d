//! Replies of the scripted model, for both APIs, as one body or as a stream, valid or broken.
//!
//! A reply describes the answer and how the connection behaves; `server.rs` carries it out.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// The two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Anthropic,
    OpenAi,
}

/// One scripted answer.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    text: String,
    calls: Vec<Call>,
    /// Blocks before the text, verbatim (for example thinking); only for Anthropic's API.
    before: Vec<Value>,
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

/// A tool call: its id, its name, and its arguments as sent.
#[derive(Debug, Clone)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// An answer that calls a tool.
pub(crate) fn call(name: &str, arguments: Value) -> Reply {
    text("").and_call(name, arguments)
}

/// An answer that runs a line in `bash`.
pub(crate) fn bash(command: &str) -> Reply {
    call("bash", json!({"command": command}))
}

/// An answer of whole files in the format.
pub(crate) fn files(files: &[(&str, &str)]) -> Reply {
    text(
        &files
            .iter()
            .map(|(path, content)| block(path, content))
            .collect::<String>(),
    )
}

/// The answer of most tests: `answer.txt` with this line in it.
pub(crate) fn answer(line: &str) -> Reply {
    files(&[("answer.txt", &format!("{line}\n"))])
}

/// One file in the format.
pub(crate) fn block(path: &str, content: &str) -> String {
    let end = if content.is_empty() || content.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("<file path=\"{path}\">\n{content}{end}</file>\n")
}

/// An answer with this text.
pub(crate) fn text(text: &str) -> Reply {
    Reply {
        text: text.to_owned(),
        calls: Vec::new(),
        before: Vec::new(),
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

/// An error status with the provider's usual body.
pub(crate) fn status(status: u16) -> Reply {
    error(status, "scripted_error", "a scripted error")
}

/// An error status with this type and message.
pub(crate) fn error(status: u16, kind: &str, message: &str) -> Reply {
    let body = json!({"type": "error", "error": {"type": kind, "code": kind, "message": message}});
    raw(status, "application/json", body.to_string())
}

/// A body, verbatim.
pub(crate) fn raw(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
    Reply {
        status,
        raw: Some((content_type.to_owned(), body.into())),
        whole: true,
        ..text("")
    }
}

impl Reply {
    /// Adds a call of a tool.
    pub(crate) fn and_call(self, name: &str, arguments: Value) -> Reply {
        self.and_raw_call(name, &arguments.to_string())
    }

    /// Adds a call whose arguments are these bytes, whatever they are.
    pub(crate) fn and_raw_call(mut self, name: &str, arguments: &str) -> Reply {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let id = format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.calls.push(Call {
            id,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        });
        if self.stop == "end_turn" {
            self.stop("tool_use")
        } else {
            self
        }
    }

    /// Sets the ids of the calls; an empty one is not sent.
    pub(crate) fn ids(mut self, ids: &[&str]) -> Reply {
        self.calls
            .iter_mut()
            .zip(ids)
            .for_each(|(call, id)| call.id = (*id).to_owned());
        self
    }

    /// Adds text beside the calls.
    pub(crate) fn with_text(self, text: &str) -> Reply {
        Reply {
            text: text.to_owned(),
            ..self
        }
    }

    /// Puts a block of Anthropic's before the text.
    pub(crate) fn after_block(mut self, block: Value) -> Reply {
        self.before.push(block);
        self
    }

    /// Sets the tokens that are shown as used.
    pub(crate) fn usage(self, input: u64, output: u64) -> Reply {
        Reply {
            input,
            output,
            ..self
        }
    }

    /// Sets input tokens that were written to and read from the cache, beside the others.
    pub(crate) fn cached(self, cache_write: u64, cache_read: u64) -> Reply {
        Reply {
            cache_write,
            cache_read,
            ..self
        }
    }

    /// Sets the stop reason, in Anthropic's terms.
    pub(crate) fn stop(self, stop: &'static str) -> Reply {
        Reply { stop, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers with one JSON body instead of a stream.
    pub(crate) fn json(self) -> Reply {
        Reply {
            whole: true,
            ..self
        }
    }

    /// Holds the answer back until `Server::release`.
    pub(crate) fn held(self) -> Reply {
        Reply { held: true, ..self }
    }

    /// Sends nothing after this many events, until `Server::release`.
    pub(crate) fn stall_after(self, events: usize) -> Reply {
        Reply {
            stall_after: Some(events),
            ..self
        }
    }

    /// Sends pings while it is silent otherwise.
    pub(crate) fn pinging(self) -> Reply {
        Reply {
            pings: true,
            ..self
        }
    }

    /// Closes the connection after this many events, within the body.
    pub(crate) fn cut_after(self, events: usize) -> Reply {
        Reply {
            cut_after: Some(events),
            ..self
        }
    }

    /// Ends the body properly after this many events, although the answer is incomplete.
    pub(crate) fn ends_after(self, events: usize) -> Reply {
        Reply {
            ends_after: Some(events),
            ..self
        }
    }

    /// Sends an error event after this many events.
    pub(crate) fn fails_after(self, events: usize) -> Reply {
        Reply {
            error_after: Some(events),
            ..self
        }
    }

    /// Resets the connection instead of answering.
    pub(crate) fn reset(self) -> Reply {
        Reply {
            reset: true,
            ..self
        }
    }

    /// Writes at most this many bytes at once.
    pub(crate) fn chunked_by(self, bytes: usize) -> Reply {
        Reply {
            piece: bytes,
            ..self
        }
    }

    /// Content type and body of an answer that is not a stream.
    pub(crate) fn body(&self, dialect: Dialect) -> (String, Vec<u8>) {
        let json = |value: Value| {
            (
                "application/json".to_owned(),
                value.to_string().into_bytes(),
            )
        };
        match (&self.raw, dialect) {
            (Some(raw), _) => raw.clone(),
            (None, Dialect::Anthropic) => {
                let mut message = self.message(
                    self.anthropic_blocks()
                        .into_iter()
                        .map(|(block, _)| block)
                        .collect(),
                );
                message["stop_reason"] = json!(self.stop);
                json(message)
            }
            (None, Dialect::OpenAi) => json(
                json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1,
                "model": "scripted", "choices": [{"index": 0, "finish_reason": self.finish(),
                "message": self.openai_message()}], "usage": self.openai_usage()}),
            ),
        }
    }

    /// The events of the stream, each as sent.
    pub(crate) fn events(&self, dialect: Dialect) -> Vec<String> {
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
        let mut events = vec![json!({"type": "message_start", "message": self.message(json!([]))})];
        for (index, (block, deltas)) in self.anthropic_blocks().into_iter().enumerate() {
            let start = if deltas.is_empty() {
                block
            } else {
                emptied(block)
            };
            events.push(
                json!({"type": "content_block_start", "index": index, "content_block": start}),
            );
            let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            events.extend(deltas.into_iter().map(delta));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": self.stop, "stop_sequence": null},
            "usage": {"output_tokens": self.output}}));
        events.push(json!({"type": "message_stop"}));
        let frame = |event: Value| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap_or_default()
            )
        };
        events.into_iter().map(frame).collect()
    }

    /// Each block whole, and the pieces in which it is streamed; none if its start event has all of it.
    fn anthropic_blocks(&self) -> Vec<(Value, Vec<Value>)> {
        let mut blocks: Vec<(Value, Vec<Value>)> =
            self.before.iter().cloned().map(streamed).collect();
        if !self.text.is_empty() || self.calls.is_empty() {
            let deltas = pieces(&self.text)
                .into_iter()
                .map(|text| json!({"type": "text_delta", "text": text}));
            blocks.push((json!({"type": "text", "text": self.text}), deltas.collect()));
        }
        for Call {
            id,
            name,
            arguments,
        } in &self.calls
        {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
            let deltas = pieces(arguments).into_iter();
            let deltas =
                deltas.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            blocks.push((
                json!({"type": "tool_use", "id": id, "name": name, "input": input}),
                deltas.collect(),
            ));
        }
        blocks
    }

    fn openai_events(&self) -> Vec<String> {
        let chunk = |delta: Value, finish: Value| {
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null})
        };
        let start = chunk(json!({"role": "assistant", "content": ""}), Value::Null);
        let deltas = pieces(&self.text)
            .into_iter()
            .map(|text| json!({"content": text}));
        let calls = self
            .openai_call_deltas()
            .into_iter()
            .map(|call| json!({"tool_calls": [call]}));
        let deltas = deltas.chain(calls).map(|delta| chunk(delta, Value::Null));
        let end = [
            chunk(json!({}), json!(self.finish())),
            json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
                "choices": [], "usage": self.openai_usage()}),
        ];
        let frames = [start]
            .into_iter()
            .chain(deltas)
            .chain(end)
            .map(|event| format!("data: {event}\n\n"));
        frames.chain(["data: [DONE]\n\n".to_owned()]).collect()
    }

    fn openai_call_deltas(&self) -> Vec<Value> {
        let mut deltas = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            deltas.push(with_id(
                json!({"index": index, "function": {"name": call.name, "arguments": ""}}),
                call,
            ));
            let pieces = pieces(&call.arguments).into_iter();
            deltas.extend(
                pieces.map(|piece| json!({"index": index, "function": {"arguments": piece}})),
            );
        }
        deltas
    }

    fn openai_message(&self) -> Value {
        let function =
            |call: &Call| json!({"function": {"name": call.name, "arguments": call.arguments}});
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|call| with_id(function(call), call))
            .collect();
        match calls.is_empty() {
            true => json!({"role": "assistant", "content": self.text}),
            false => json!({"role": "assistant", "content": self.text, "tool_calls": calls}),
        }
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
            "tool_use" => "tool_calls",
            _ => "stop",
        }
    }

    fn openai_usage(&self) -> Value {
        let prompt = self.input + self.cache_read;
        json!({"prompt_tokens": prompt, "completion_tokens": self.output, "total_tokens": prompt + self.output,
            "prompt_tokens_details": {"cached_tokens": self.cache_read}})
    }
}

/// A text in some two hundred pieces at the most, none of them shorter than a few characters.
fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(12.max(characters.len() / 200))
        .map(|piece| piece.iter().collect())
        .collect()
}

/// A block that the test gives whole: thinking comes in pieces, all else with its start.
fn streamed(block: Value) -> (Value, Vec<Value>) {
    let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
    let mut deltas = Vec::new();
    if block["type"] == "thinking" {
        let thinking = pieces(&text("thinking")).into_iter();
        deltas.extend(thinking.map(|piece| json!({"type": "thinking_delta", "thinking": piece})));
        deltas.push(json!({"type": "signature_delta", "signature": text("signature")}));
    }
    (block, deltas)
}

/// The block as a stream starts it: what comes in pieces is not there yet.
fn emptied(mut block: Value) -> Value {
    for field in ["text", "thinking", "signature"] {
        if let Some(text) = block.get_mut(field) {
            *text = json!("");
        }
    }
    if let Some(input) = block.get_mut("input") {
        *input = json!({});
    }
    block
}

fn with_id(mut value: Value, call: &Call) -> Value {
    if !call.id.is_empty() {
        value["id"] = json!(call.id);
        value["type"] = json!("function");
    }
    value
}
