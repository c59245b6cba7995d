//! The Messages API against servers on loopback: requests, and every form of response.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Anthropic, AnthropicDraft};
use crate::cancel::CancelToken;
use crate::llm::assembly::AnswerAssembly;
use crate::llm::client::ModelClient;
use crate::llm::endpoint::Endpoint;
use crate::llm::error::{LlmError, Spent};
use crate::llm::message::{
    Answer, ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage, ToolOffer,
};
use crate::llm::test_server::TestServer;
use crate::secrets::ApiKey;

const SSE: &str = "200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nrequest-id: req_7";
const JSON: &str = "200 OK\r\ncontent-type: application/json";

fn client(url: &str) -> Anthropic {
    let key = ApiKey::new("sk-ant-0123456789");
    let stop = CancelToken::never().unwrap();
    Anthropic::new(Endpoint {
        base_url: url.into(),
        key,
        idle_timeout: Duration::from_secs(60),
        cancel: stop,
    })
}

fn attempt(head: &str, body: &str) -> Result<Answer, LlmError> {
    client(&TestServer::answering(head, body).url).attempt("{}", &mut |_| {})
}

/// The stream of these events, each named by its own type as the API does.
fn events(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        })
        .collect()
}

fn start(usage: Value) -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "content": [], "usage": usage}})
}

fn block(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str, usage: Value) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn tool_stream() -> Vec<Value> {
    let mut stream = vec![
        start(json!({"input_tokens": 412, "output_tokens": 1, "cache_read_input_tokens": 2048})),
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "First "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "look."})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "ping"}),
        block(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "List"})),
        delta(1, json!({"type": "text_delta", "text": "ing ä."})),
        json!({"type": "news_of_tomorrow", "odd": [1]}),
        block(
            2,
            json!({"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}),
        ),
        delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "{\"comm"}),
        ),
        delta(
            2,
            json!({"type": "input_json_delta", "partial_json": "and\":\"ls\"}"}),
        ),
        block(
            3,
            json!({"type": "tool_use", "id": "toolu_2", "name": "screen", "input": {}}),
        ),
    ];
    stream.extend(stop("tool_use", json!({"output_tokens": 37})));
    stream
}

fn tool_answer() -> Answer {
    let thinking = json!({"type": "thinking", "thinking": "First look.", "signature": "c2ln"});
    let call = |id: &str, name: &str, input| ContentBlock::ToolUse {
        id: id.into(),
        name: name.into(),
        input,
        raw: None,
    };
    Answer {
        content: vec![
            ContentBlock::Opaque { value: thinking },
            ContentBlock::text("Listing ä."),
            call("toolu_1", "bash", json!({"command": "ls"})),
            call("toolu_2", "screen", json!({})),
        ],
        stop: StopReason::ToolUse,
        usage: TokenUsage {
            input: 412,
            cache_write: 0,
            cache_read: 2048,
            output: 37,
        },
        model: "claude-x".into(),
        request_id: Some("req_7".into()),
        bill: None,
    }
}

fn request() -> ModelRequest {
    ModelRequest {
        model: "claude-x".into(),
        max_tokens: 100,
        temperature: None,
        effort: None,
        system: "You write.".into(),
        tools: vec![],
        messages: vec![Message {
            role: Role::User,
            content: vec![ContentBlock::text("Go.")],
        }],
        varying: Vec::new(),
    }
}

fn encoded(request: &ModelRequest) -> Value {
    serde_json::from_str(&client("http://localhost").encode(request)).unwrap()
}

#[test]
fn a_stream_becomes_an_answer() {
    assert_eq!(
        attempt(SSE, &events(&tool_stream())).unwrap(),
        tool_answer()
    );
}

#[test]
fn a_whole_body_becomes_the_same_answer() {
    let body = json!({"id": "chatcmpl-1", "type": "message", "role": "assistant", "model": "claude-x", "content": [
        {"type": "thinking", "thinking": "First look.", "signature": "c2ln"},
        {"type": "text", "text": "Listing ä."},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "toolu_2", "name": "screen", "input": {}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 412, "cache_read_input_tokens": 2048, "output_tokens": 37}});
    let answer = attempt(&format!("{JSON}\r\nrequest-id: req_7"), &body.to_string()).unwrap();
    assert_eq!(answer, tool_answer());
}

#[test]
fn the_request_has_its_headers_and_path() {
    let body = json!({"content": [], "stop_reason": "end_turn"}).to_string();
    for suffix in ["", "/", "/v1", "/v1/", "//"] {
        let server = TestServer::answering(JSON, &body);
        client(&format!("{}{suffix}", server.url))
            .attempt("{\"a\":1}", &mut |_| {})
            .unwrap();
        let sent = server.requests.recv().unwrap();
        assert!(sent.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{sent}");
        let lower = sent.to_lowercase();
        for header in [
            "x-api-key: sk-ant-0123456789",
            "anthropic-version: 2023-06-01",
            "content-type: application/json",
        ] {
            assert!(lower.contains(&format!("\r\n{header}\r\n")), "{sent}");
        }
        assert!(sent.ends_with("\r\n\r\n{\"a\":1}"), "{sent}");
    }
}

#[test]
fn each_stop_reason_is_mapped() {
    let check = |reason: Value, expected| {
        let body =
            json!({"content": [], "stop_reason": reason, "stop_details": {"category": "cyber"}})
                .to_string();
        assert_eq!(attempt(JSON, &body).unwrap().stop, expected);
    };
    check(json!("end_turn"), StopReason::EndTurn);
    check(json!("stop_sequence"), StopReason::EndTurn);
    check(json!("tool_use"), StopReason::ToolUse);
    check(json!("max_tokens"), StopReason::MaxTokens);
    check(
        json!("model_context_window_exceeded"),
        StopReason::MaxTokens,
    );
    check(json!("pause_turn"), StopReason::PauseTurn);
    check(json!("refusal"), StopReason::Refusal("cyber".into()));
    check(json!("brand_new"), StopReason::Other("brand_new".into()));
    check(Value::Null, StopReason::EndTurn);
}

#[test]
fn usage_is_the_last_value_of_each_field() {
    let mut stream = vec![start(
        json!({"input_tokens": 0, "output_tokens": 0, "cache_creation_input_tokens": 5}),
    )];
    stream.push(json!({"type": "message_delta", "delta": {}, "usage": {"input_tokens": 30, "output_tokens": 4}}));
    stream.extend(stop(
        "end_turn",
        json!({"input_tokens": null, "output_tokens": 9, "cache_read_input_tokens": 2}),
    ));
    let usage = attempt(SSE, &events(&stream)).unwrap().usage;
    assert_eq!(
        usage,
        TokenUsage {
            input: 30,
            cache_write: 5,
            cache_read: 2,
            output: 9
        }
    );
}

#[test]
fn huge_counts_do_not_overflow() {
    let usage = json!({"input_tokens": u64::MAX, "cache_creation_input_tokens": u64::MAX,
        "cache_read_input_tokens": u64::MAX, "output_tokens": -1});
    let body = json!({"content": [], "stop_reason": "end_turn", "usage": usage}).to_string();
    assert!(attempt(JSON, &body).unwrap().usage.all_input() > 0);
}

#[test]
fn arguments_that_are_not_an_object_are_kept_raw() {
    for raw in [
        "{\"command\": \"ls",
        "[1]",
        "\"ls\"",
        "NaN",
        &"[".repeat(100_000),
    ] {
        let call = json!({"type": "tool_use", "id": "t", "name": "bash", "input": {}});
        let mut stream = vec![
            block(0, call),
            delta(0, json!({"type": "input_json_delta", "partial_json": raw})),
        ];
        stream.extend(stop("tool_use", json!({})));
        let content = attempt(SSE, &events(&stream)).unwrap().content;
        let expected = ContentBlock::ToolUse {
            id: "t".into(),
            name: "bash".into(),
            input: Value::Null,
            raw: Some(raw.to_owned()),
        };
        assert_eq!(content, [expected]);
    }
}

#[test]
fn a_cut_stream_is_an_error_that_shows_its_cost() {
    let stream = tool_stream();
    for kept in 1..stream.len() {
        let error = attempt(SSE, &events(&stream[..kept])).unwrap_err();
        let LlmError::Transient {
            spent: Spent::Shown(usage),
            ..
        } = error
        else {
            panic!("{kept}: {error:?}")
        };
        assert_eq!(usage.all_input(), 2460);
    }
    let zeros = events(&[start(json!({"input_tokens": 0, "output_tokens": 0}))]);
    let error = attempt(SSE, &zeros).unwrap_err();
    assert!(
        matches!(
            error,
            LlmError::Transient {
                spent: Spent::Unknown,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn an_error_event_is_transient() {
    let stream = events(&[
        start(json!({"input_tokens": 3})),
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ]);
    let error = attempt(SSE, &stream).unwrap_err();
    let shown = Spent::Shown(TokenUsage {
        input: 3,
        ..TokenUsage::default()
    });
    assert!(
        matches!(&error, LlmError::Transient { message, spent, .. }
        if message.contains("Overloaded") && *spent == shown),
        "{error:?}"
    );
}

#[test]
fn a_block_without_a_start_event_is_understood() {
    let mut stream = vec![delta(0, json!({"type": "text_delta", "text": "Hi"}))];
    stream.extend(stop("end_turn", json!({})));
    assert_eq!(attempt(SSE, &events(&stream)).unwrap().text(), "Hi");
}

#[test]
fn a_request_has_only_the_fields_that_are_set() {
    let expected = json!({"model": "claude-x", "max_tokens": 100, "stream": true,
        "system": [{"type": "text", "text": "You write.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Go."}]}]});
    assert_eq!(encoded(&request()), expected);
    let tool = ToolOffer {
        name: "bash".into(),
        description: "Runs.".into(),
        schema: json!({"type": "object"}),
    };
    let full = ModelRequest {
        temperature: Some(0.0),
        effort: Some("low".into()),
        tools: vec![tool],
        ..request()
    };
    let full = encoded(&full);
    assert_eq!(full["temperature"], json!(0.0));
    assert_eq!(full["output_config"], json!({"effort": "low"}));
    assert_eq!(
        full["tools"],
        json!([{"name": "bash", "description": "Runs.", "input_schema": {"type": "object"}}])
    );
}

#[test]
fn blocks_are_sent_back_unchanged() {
    let answer = tool_answer();
    let broken = ContentBlock::ToolUse {
        id: "t".into(),
        name: "bash".into(),
        input: Value::Null,
        raw: Some("{".into()),
    };
    let result = ContentBlock::ToolResult {
        id: "toolu_1".into(),
        text: "a.py".into(),
        screen: String::new(),
        cache: false,
        is_error: false,
    };
    let messages = vec![
        Message {
            role: Role::Assistant,
            content: answer.content,
        },
        Message {
            role: Role::User,
            content: vec![ContentBlock::text("Note."), ContentBlock::text(" "), result],
        },
        Message {
            role: Role::Assistant,
            content: vec![broken],
        },
        Message {
            role: Role::Assistant,
            content: vec![ContentBlock::text("")],
        },
    ];
    let body = encoded(&ModelRequest {
        messages,
        system: String::new(),
        ..request()
    });
    assert_eq!(body.get("system"), None);
    let expected = json!([
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "First look.", "signature": "c2ln"},
            {"type": "text", "text": "Listing ä."},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
            {"type": "tool_use", "id": "toolu_2", "name": "screen", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py", "is_error": false},
            {"type": "text", "text": "Note."}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "bash", "input": {}}]}]);
    assert_eq!(body["messages"], expected);
}

#[test]
fn only_the_last_cache_marks_are_sent() {
    let content = (0..5)
        .map(|number| ContentBlock::cached(number.to_string()))
        .collect();
    let body = encoded(&ModelRequest {
        messages: vec![Message {
            role: Role::User,
            content,
        }],
        ..request()
    });
    let blocks = body["messages"][0]["content"].as_array().unwrap();
    let marks: Vec<bool> = blocks
        .iter()
        .map(|block| block.get("cache_control").is_some())
        .collect();
    assert_eq!(marks, [false, false, true, true, true]);
}

proptest! {
    #[test]
    fn no_event_panics(kind in 0usize..6, index in any::<u64>(), text in any::<String>(), number in any::<f64>()) {
        let kinds = ["message_start", "content_block_start", "content_block_delta", "message_delta", "ping", "error"];
        let odd = [json!(text), json!(number), json!([text]), json!({"type": text, "text": text, "content": number})];
        let mut draft = AnthropicDraft::default();
        for odd in odd {
            let event = json!({"type": kinds[kind], "index": index, "message": odd, "content_block": odd, "delta": odd,
                "usage": odd, "error": odd});
            let _ = draft.event(&event.to_string());
            let _ = draft.whole(&json!({"content": [odd], "usage": odd, "stop_reason": odd}));
        }
        let _ = draft.event(&text);
        let _ = draft.finish();
    }
}
