//! The Chat Completions API against servers on loopback: every form of response.

mod requests;

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NEW_LIMIT, OpenAi, OpenAiDraft, ServerFields};
use crate::cancel::CancelToken;
use crate::llm::assembly::AnswerAssembly;
use crate::llm::client::ModelClient;
use crate::llm::endpoint::Endpoint;
use crate::llm::error::{LlmError, Spent};
use crate::llm::message::{
    Answer, ContentBlock, Message, ModelRequest, Role, StopReason, TokenUsage, ToolOffer,
};
use crate::llm::test_server::{ScriptStep, TestServer};
use crate::secrets::ApiKey;

const SSE: &str = "200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req_7";
const JSON: &str = "200 OK\r\ncontent-type: application/json; charset=utf-8";

fn client(url: &str) -> OpenAi {
    let stop = CancelToken::never().unwrap();
    let key = ApiKey::new("sk-0123456789abcdef");
    OpenAi::new(Endpoint {
        base_url: url.into(),
        key,
        idle_timeout: Duration::from_secs(60),
        cancel: stop,
    })
}

fn attempt(head: &str, body: &str) -> Result<Answer, LlmError> {
    client(&TestServer::answering(head, body).url).attempt("{}", &mut |_| {})
}

fn events(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

fn done(stream: &[Value]) -> String {
    events(stream) + "data: [DONE]\n\n"
}

fn delta(delta: Value) -> Value {
    json!({"id": "chatcmpl-9", "model": "gpt-x", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"model": "gpt-x", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(call: Value) -> Value {
    delta(json!({"tool_calls": [call]}))
}

fn tool_stream() -> Vec<Value> {
    vec![
        delta(json!({"role": "assistant", "content": null})),
        delta(json!({"content": "Listing"})),
        delta(json!({"content": " ä."})),
        call(
            json!({"index": 0, "id": "call_a", "type": "function", "function": {"name": "bash", "arguments": ""}}),
        ),
        call(json!({"index": 0, "function": {"arguments": "{\"comm"}})),
        call(
            json!({"index": 1, "id": "call_b", "function": {"name": "screen", "arguments": "{}"}}),
        ),
        call(json!({"index": 0, "id": "", "function": {"arguments": "and\":\"ls\"}"}})),
        finish("tool_calls"),
        json!({"model": "gpt-x", "choices": [], "usage": {"prompt_tokens": 120, "completion_tokens": 15,
            "prompt_tokens_details": {"cached_tokens": 64}}}),
    ]
}

fn tool_answer() -> Answer {
    let call = |id: &str, name: &str, input| ContentBlock::ToolUse {
        id: id.into(),
        name: name.into(),
        input,
        raw: None,
    };
    Answer {
        content: vec![
            ContentBlock::text("Listing ä."),
            call("call_a", "bash", json!({"command": "ls"})),
            call("call_b", "screen", json!({})),
        ],
        stop: StopReason::ToolUse,
        usage: TokenUsage {
            input: 56,
            cache_write: 0,
            cache_read: 64,
            output: 15,
        },
        model: "gpt-x".into(),
        request_id: Some("req_7".into()),
        bill: None,
    }
}

fn request() -> ModelRequest {
    ModelRequest {
        model: "gpt-x".into(),
        max_tokens: 100,
        temperature: None,
        effort: None,
        system: "You write.".into(),
        tools: vec![],
        messages: vec![Message {
            role: Role::User,
            content: vec![ContentBlock::cached("Files."), ContentBlock::text("Go.")],
        }],
        varying: Vec::new(),
    }
}

fn encoded(url: &str, request: &ModelRequest) -> Value {
    serde_json::from_str(&client(url).encode(request)).unwrap()
}

#[test]
fn a_stream_becomes_an_answer() {
    assert_eq!(attempt(SSE, &done(&tool_stream())).unwrap(), tool_answer());
    assert_eq!(
        attempt(SSE, &events(&tool_stream())).unwrap(),
        tool_answer(),
        "no [DONE], but a finish_reason"
    );
}

#[test]
fn a_whole_body_becomes_the_same_answer() {
    let body = json!({"id": "chatcmpl-9", "model": "gpt-x", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "Listing ä.", "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
            {"id": "call_b", "type": "function", "function": {"name": "screen", "arguments": ""}}]}}],
        "usage": {"prompt_tokens": 120, "completion_tokens": 15, "prompt_tokens_details": {"cached_tokens": 64}}});
    let answer = attempt(&format!("{JSON}\r\nx-request-id: req_7"), &body.to_string()).unwrap();
    assert_eq!(answer, tool_answer());
}

#[test]
fn streams_of_other_servers_are_understood() {
    // No finish_reason but at the end, empty content beside a call, a usage chunk with a choice.
    let stream = [
        json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        json!({"choices": [{"index": 0, "delta": {"content": "", "tool_calls": [
            {"index": 0, "id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
    ];
    let answer = attempt(SSE, &done(&stream)).unwrap();
    assert_eq!(
        (answer.stop, answer.content.len()),
        (StopReason::ToolUse, 1)
    );
    assert_eq!(
        answer.usage,
        TokenUsage {
            input: 3,
            output: 2,
            ..TokenUsage::default()
        }
    );
}

#[test]
fn calls_without_index_or_id_are_separated() {
    let stream = [
        call(json!({"id": "a", "function": {"name": "one", "arguments": "{\"x\""}})),
        call(json!({"function": {"arguments": ":1}"}})),
        delta(json!({"tool_calls": [
            {"function": {"name": "two", "arguments": {"y": 2}}}, {"function": {"name": "three"}}]})),
    ];
    let whole = json!({"choices": [{"message": {"tool_calls": [
        {"function": {"name": "one", "arguments": "{}"}}, {"function": {"name": "two", "arguments": "{}"}}]}}]});
    let names = |answer: Answer| -> Vec<String> {
        let name = |block| {
            if let ContentBlock::ToolUse { id, name, .. } = block {
                format!("{id} {name}")
            } else {
                "".into()
            }
        };
        answer.content.into_iter().map(name).collect()
    };
    assert_eq!(names(attempt(SSE, &done(&stream[..2])).unwrap()), ["a one"]);
    assert_eq!(
        names(attempt(SSE, &done(&stream[2..])).unwrap()),
        ["call_0 two", "call_1 three"]
    );
    assert_eq!(
        names(attempt(JSON, &whole.to_string()).unwrap()),
        ["call_0 one", "call_1 two"]
    );
}

/// The calls of a stream as `id name arguments`.
fn calls(stream: &[Value]) -> Vec<String> {
    let shown = |block| match block {
        ContentBlock::ToolUse {
            id,
            name,
            input,
            raw,
        } => format!("{id} {name} {}", raw.unwrap_or_else(|| input.to_string())),
        other => format!("{other:?}"),
    };
    attempt(SSE, &done(stream))
        .unwrap()
        .content
        .into_iter()
        .map(shown)
        .collect()
}

#[test]
fn calls_with_the_same_index_are_separated_by_their_ids() {
    let whole = |index: Value, id: &str, arguments: &str| {
        let function = json!({"name": "bash", "arguments": arguments});
        let mut call = json!({"index": index, "id": id, "type": "function", "function": function});
        call.as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null() && value != "");
        call
    };
    let expected = ["a bash {\"x\":1}", "b bash {\"x\":2}"];
    let (one, two) = ("{\"x\":1}", "{\"x\":2}");
    // Ollama: each event, or each entry of one event, is a whole call.
    assert_eq!(
        calls(&[
            call(whole(json!(0), "a", one)),
            call(whole(json!(0), "b", two))
        ]),
        expected
    );
    let together = json!({"tool_calls": [whole(json!(0), "a", one), whole(json!(0), "b", two)]});
    assert_eq!(calls(&[delta(together)]), expected);
    // Pieces with their id, and with an index of 0 or none.
    for index in [json!(0), Value::Null] {
        let piece = |id: &str, arguments: &str| call(whole(index.clone(), id, arguments));
        let pieces = [
            piece("a", "{\"x\""),
            piece("b", "{\"x\":"),
            piece("a", ":1}"),
            piece("b", "2}"),
        ];
        assert_eq!(calls(&pieces), expected, "{index}");
    }
    // A piece without an id belongs to the newest call of its index.
    let bare = |arguments: &str| call(json!({"index": 0, "function": {"arguments": arguments}}));
    let mixed = [
        call(whole(json!(0), "a", one)),
        call(whole(json!(0), "b", "{\"x\"")),
        bare(":2}"),
    ];
    assert_eq!(calls(&mixed), expected);
    // Whole calls without any id.
    let nameless = [
        call(whole(json!(0), "", one)),
        call(whole(json!(0), "", two)),
    ];
    assert_eq!(
        calls(&nameless),
        ["call_0 bash {\"x\":1}", "call_1 bash {\"x\":2}"]
    );
    let nameless = [
        call(whole(Value::Null, "", one)),
        call(whole(Value::Null, "", two)),
    ];
    assert_eq!(
        calls(&nameless),
        ["call_0 bash {\"x\":1}", "call_1 bash {\"x\":2}"]
    );
    // A repeated call is not a second one.
    assert_eq!(
        calls(&[
            call(whole(json!(0), "a", one)),
            call(whole(json!(0), "a", one))
        ]),
        expected[..1]
    );
    // Equal ids under different indices are different calls.
    assert_eq!(
        calls(&[
            call(whole(json!(0), "a", one)),
            call(whole(json!(1), "a", two))
        ])
        .len(),
        2
    );
}

#[test]
fn content_may_be_a_list_of_parts() {
    let part = |text: &str| json!({"type": "text", "text": text});
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    let stream = [
        delta(json!({"content": [thinking]})),
        delta(json!({"content": [part("a"), part("b")]})),
        delta(json!({"content": [part("c")]})),
        delta(json!({"content": "d"})),
        finish("stop"),
    ];
    assert_eq!(attempt(SSE, &done(&stream)).unwrap().text(), "abcd");
    let whole = |content: Value| {
        let body = json!({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]});
        attempt(JSON, &body.to_string()).unwrap().text()
    };
    assert_eq!(whole(json!([thinking, part("a")])), "a");
    assert_eq!(
        whole(json!([
            part("a"),
            part("b\n"),
            part("c"),
            part("\nd"),
            part("")
        ])),
        "a\nb\nc\nd"
    );
    assert_eq!(whole(json!(["a", {"text": "b"}, 7, null])), "a\nb");
}

#[test]
fn a_refused_field_is_omitted_from_then_on() {
    let refuse = |param: &str| {
        let body = json!({"error": {"message": format!("Unsupported parameter: '{param}'."), "param": param}});
        format!("HTTP/1.1 400 No\r\nconnection: close\r\n\r\n{body}")
    };
    let fields = [
        "max_tokens",
        "temperature",
        "stream_options",
        "max_completion_tokens",
    ];
    let server = TestServer::start(
        fields
            .iter()
            .map(|field| vec![ScriptStep::send(refuse(field))])
            .collect(),
    );
    let mut client = client(&server.url);
    let asked = ModelRequest {
        temperature: Some(0.0),
        ..request()
    };
    let expected = [
        "with max_completion_tokens",
        "without temperature",
        "without stream_options",
    ];
    for how in expected {
        let error = client
            .attempt(&client.encode(&asked), &mut |_| {})
            .unwrap_err();
        assert!(
            matches!(&error, LlmError::FieldRefused { message } if message.ends_with(how)),
            "{error:?}"
        );
    }
    let body = client.encode(&asked);
    let error = client.attempt(&body, &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, LlmError::Permanent(_)),
        "no field is changed twice: {error:?}"
    );
    let sent: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(sent["max_completion_tokens"], 100);
    assert!(
        fields[..3].iter().all(|field| sent.get(field).is_none()),
        "{sent}"
    );
}

#[test]
fn a_field_that_was_not_sent_or_a_request_that_is_too_long_is_not_repeated() {
    let too_long =
        "max_tokens is too large: 100. This model's maximum context length is 64 tokens.";
    for message in [
        "temperature is out of range",
        "max_completion_tokens is unknown",
        too_long,
    ] {
        let server =
            TestServer::answering("400 No", json!({"error": {"message": message}}).to_string());
        let mut client = client(&server.url);
        let body = client.encode(&request());
        let error = client.attempt(&body, &mut |_| {}).unwrap_err();
        assert!(matches!(error, LlmError::Permanent(_)), "{error:?}");
        assert_eq!(client.encode(&request()), body);
    }
    let mut of_openai = ServerFields {
        limit: NEW_LIMIT,
        limit_was_refused: false,
        temperature: true,
        stream_options: true,
    };
    let how = of_openai.adapt(
        &["max_completion_tokens"],
        &json!({"max_completion_tokens": 1}),
    );
    assert_eq!(
        (how.as_deref(), of_openai.limit),
        (Some("with max_tokens"), "max_tokens")
    );
}

#[test]
fn each_finish_reason_is_mapped() {
    let check = |reason: Value, message: Value, expected| {
        let body = json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})
            .to_string();
        let answer = attempt(JSON, &body).unwrap();
        assert_eq!((answer.stop.clone(), answer.text().as_str()), expected);
    };
    check(
        json!("stop"),
        json!({"content": "Hi"}),
        (StopReason::EndTurn, "Hi"),
    );
    check(
        json!("stop"),
        json!({"content": null}),
        (StopReason::EndTurn, ""),
    );
    check(
        json!("length"),
        json!({"content": "Hi"}),
        (StopReason::MaxTokens, "Hi"),
    );
    check(
        json!("content_filter"),
        json!({"content": ""}),
        (StopReason::Refusal("content_filter".into()), ""),
    );
    check(
        json!("stop"),
        json!({"refusal": "No."}),
        (StopReason::Refusal("refusal".into()), "No."),
    );
    check(
        json!("brand_new"),
        json!({"content": "Hi"}),
        (StopReason::Other("brand_new".into()), "Hi"),
    );
    check(
        Value::Null,
        json!({"content": "Hi"}),
        (StopReason::EndTurn, "Hi"),
    );
}

#[test]
fn a_cut_stream_is_an_error() {
    let stream = tool_stream();
    // Without reported usage, the two bytes of the body are the input and the text is the output, three bytes per token.
    for (kept, output) in [
        (1, None),
        (2, Some(3)),
        (3, Some(4)),
        (4, Some(4)),
        (5, Some(6)),
        (6, Some(7)),
        (7, Some(10)),
    ] {
        let error = attempt(SSE, &events(&stream[..kept])).unwrap_err();
        let shown = |output| {
            Spent::Shown(TokenUsage {
                input: 1,
                output,
                ..TokenUsage::default()
            })
        };
        let expected = output.map_or(Spent::Unknown, shown);
        assert!(
            matches!(&error, LlmError::Transient { spent, .. } if *spent == expected),
            "{kept}: {error:?}"
        );
    }
    let bare = attempt(SSE, "data: [DONE]\n\n").unwrap_err();
    assert!(matches!(bare, LlmError::Transient { .. }), "{bare:?}");
}

#[test]
fn an_error_in_the_stream_is_transient() {
    let stream = events(&[
        delta(json!({"content": "Hi"})),
        json!({"error": {"message": "boom", "code": 500}}),
    ]);
    let error = attempt(SSE, &stream).unwrap_err();
    assert!(
        matches!(&error, LlmError::Transient { message, .. } if message.contains("boom")),
        "{error:?}"
    );
}

#[test]
fn arguments_that_are_not_an_object_are_kept_raw_and_not_sent_back() {
    let stream = [call(
        json!({"index": 0, "id": "a", "function": {"name": "bash", "arguments": "{\"x"}}),
    )];
    let content = attempt(SSE, &done(&stream)).unwrap().content;
    let expected = ContentBlock::ToolUse {
        id: "a".into(),
        name: "bash".into(),
        input: Value::Null,
        raw: Some("{\"x".into()),
    };
    assert_eq!(content, [expected]);
    let back = ModelRequest {
        messages: vec![Message {
            role: Role::Assistant,
            content,
        }],
        ..request()
    };
    let call = &encoded("http://localhost", &back)["messages"][1]["tool_calls"][0];
    assert_eq!(call["function"]["arguments"], "{}");
}

proptest! {
    #[test]
    fn no_event_panics(index in any::<u64>(), text in any::<String>(), number in any::<f64>()) {
        let odd = [json!(text), json!(number), json!([text]), json!({"content": text, "tool_calls": [number]}),
            json!({"tool_calls": [{"index": index}, {"id": "x"}, {"function": text}]})];
        let mut draft = OpenAiDraft::default();
        for odd in odd {
            let event = json!({"choices": [{"index": 0, "delta": odd, "message": odd, "finish_reason": odd}], "usage": odd});
            let _ = draft.event(&event.to_string());
            let _ = draft.whole(&event);
            let _ = draft.event(&json!({"choices": odd}).to_string());
        }
        let _ = draft.event(&text);
        let _ = draft.finish();
    }
}
