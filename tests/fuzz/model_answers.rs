//! Responses of model servers: streams, bodies and errors of both APIs.

use orchestrator::internals::llm::{Answer, HttpPart, LlmError, SseParser, anthropic, openai};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::harness::{examples, fuzz};
use crate::memory::most_held;

const WORDS: [&str; 40] = [
    "data: ",
    "event: ",
    "\n\n",
    "\r\n",
    ":\n",
    "{",
    "[",
    "]",
    "}",
    ",",
    "null",
    "\"error\":",
    "\"type\":\"error\"",
    "\"type\":\"message_start\"",
    "\"type\":\"content_block_start\"",
    "\"type\":\"content_block_delta\"",
    "\"type\":\"message_delta\"",
    "data: {\"type\":\"message_stop\"}\n\n",
    "\"index\":",
    "\"content_block\":{",
    "\"delta\":{",
    "\"text_delta\"",
    "\"input_json_delta\"",
    "\"partial_json\":\"",
    "\"thinking_delta\"",
    "\"usage\":{",
    "\"output_tokens\":",
    "\"input_tokens\":",
    "\"choices\":[",
    "\"tool_calls\":[",
    "\"function\":{",
    "\"arguments\":\"",
    "\"finish_reason\":\"",
    "data: [DONE]\n\n",
    "\"prompt_tokens\":",
    "\"stop_reason\":\"",
    "retry-after: ",
    "\\u0000",
    "\"type\":\"tool_use\"",
    "\"message\":{",
];

/// Splits an example into its parts: a status line, headers, an empty line, and the body in this many pieces.
fn parts(bytes: &[u8], pieces: usize) -> Vec<HttpPart> {
    let end = bytes
        .windows(2)
        .position(|window| window == b"\n\n")
        .map_or(bytes.len(), |at| at + 2);
    let (head, body) = bytes.split_at(end);
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines
        .next()
        .and_then(|line| std::str::from_utf8(line).ok()?.parse().ok())
        .unwrap_or(200);
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line
            .iter()
            .position(|byte| *byte == b':')
            .unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value.trim_ascii()),
        ) {
            headers.insert(name, value);
        }
    }
    let chunks = body
        .chunks(body.len() / pieces + 1)
        .map(|chunk| HttpPart::Chunk(chunk.to_vec()));
    std::iter::once(HttpPart::Head { status, headers })
        .chain(chunks)
        .chain([HttpPart::End])
        .collect()
}

/// Without `retry_after`, which depends on the current time when it was a date.
fn undated(mut answer: Result<Answer, LlmError>) -> Result<Answer, LlmError> {
    if let Err(LlmError::Transient { retry_after, .. }) = &mut answer {
        *retry_after = None;
    }
    answer
}

fn dialect(name: &str, read: fn(Vec<HttpPart>) -> Result<Answer, LlmError>) {
    fuzz(name, &WORDS, |bytes| {
        let answer = read(parts(bytes, 1));
        assert_eq!(undated(read(parts(bytes, 20))), undated(answer.clone()));
        if let Ok(answer) = answer {
            let sum = answer.usage.all_input() + answer.usage.output;
            assert!(sum < u64::MAX / 4);
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(
                serde_json::from_str::<Answer>(&text).unwrap().text(),
                answer.text()
            );
        }
    });
}

#[test]
fn anthropic_answer() {
    dialect("anthropic_answer", anthropic::read);
}

#[test]
fn openai_answer() {
    dialect("openai_answer", openai::read);
}

/// A truncated response is an error, unless the whole answer is there.
fn cut(name: &str, read: fn(Vec<HttpPart>) -> Result<Answer, LlmError>) {
    for example in examples(name) {
        let Ok(whole) = read(parts(&example, 1)) else {
            continue;
        };
        let body = example
            .windows(2)
            .position(|window| window == b"\n\n")
            .unwrap_or(0)
            + 2;
        for end in body..example.len() {
            if let Ok(answer) = read(parts(&example[..end], 1)) {
                assert_eq!(
                    (answer.text(), answer.stop),
                    (whole.text(), whole.stop.clone()),
                    "{name}, cut at {end}"
                );
            }
        }
    }
}

#[test]
fn an_answer_cut_at_any_byte_is_an_error() {
    cut("anthropic_answer", anthropic::read);
    cut("openai_answer", openai::read);
}

fn events(bytes: &[u8], piece: usize) -> (Vec<(Option<String>, String)>, bool) {
    let (mut parser, mut events) = (SseParser::new(), Vec::new());
    let is_whole = bytes.chunks(piece).all(|chunk| {
        parser
            .push(chunk, &mut |name, data| {
                events.push((name.map(str::to_owned), data.to_owned()))
            })
            .is_ok()
    });
    (events, is_whole)
}

#[test]
fn sse() {
    let words = [
        "data:", "data: ", "event:", "id:", "retry: ", ":", "\n", "\r", "\r\n", "\n\n", "\u{feff}",
        "data\n",
    ];
    fuzz("sse", &words, |bytes| {
        let whole = events(bytes, bytes.len().max(1));
        assert_eq!(events(bytes, 1 + bytes.len() / 5000), whole);
    });
}

/// A stream of events with many small values each.
fn intricate(event: impl Fn(usize, &str) -> String) -> Vec<HttpPart> {
    let values = "0,".repeat(1 << 17) + "0";
    let body: String = (0..50)
        .map(|index| format!("data: {}\n\n", event(index, &values)))
        .collect();
    parts(
        format!("200\ncontent-type: text/event-stream\n\n{body}").as_bytes(),
        1,
    )
}

#[test]
fn a_stream_of_small_values_uses_bounded_memory() {
    let blocks = intricate(|index, values| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"x","a":[{values}]}}}}"#
        )
    });
    let inputs = intricate(|index, values| {
        format!(
            r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{{\"a\":[{values}]}}"}}}}"#
        ) + if index == 49 {
            "\n\ndata: {\"type\":\"message_stop\"}"
        } else {
            ""
        }
    });
    let calls = intricate(|index, values| {
        let call = format!(
            r#"{{"index":{index},"id":"a","function":{{"name":"b","arguments":"{{\"a\":[{values}]}}"}}}}"#
        );
        format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#)
            + if index == 49 { "\n\ndata: [DONE]" } else { "" }
    });
    for (name, read, parts) in [
        ("blocks", anthropic::read as fn(Vec<HttpPart>) -> _, blocks),
        ("inputs", anthropic::read, inputs),
        ("calls", openai::read, calls),
    ] {
        let (answer, held) = most_held(|| read(parts));
        assert!(
            held < 128 << 20,
            "{name}: {held} bytes for {}",
            answer.is_ok()
        );
    }
}
