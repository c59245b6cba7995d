//! What a request contains.

use super::*;

#[test]
fn the_request_has_its_headers_and_path() {
    let body =
        json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).to_string();
    for suffix in ["/v1", "/v1/"] {
        let server = TestServer::answering(JSON, &body);
        client(&format!("{}{suffix}", server.url))
            .attempt("{}", &mut |_| {})
            .unwrap();
        let sent = server.requests.recv().unwrap();
        assert!(
            sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
            "{sent}"
        );
        assert!(
            sent.contains("\r\nauthorization: Bearer sk-0123456789abcdef\r\n"),
            "{sent}"
        );
    }
    let server = TestServer::answering(JSON, &body);
    let stop = CancelToken::never().unwrap();
    let idle_timeout = Duration::from_secs(60);
    let mut keyless = OpenAi::new(Endpoint {
        base_url: server.url.clone(),
        key: None,
        idle_timeout,
        cancel: stop,
    });
    keyless.attempt("{}", &mut |_| {}).unwrap();
    assert!(
        !server
            .requests
            .recv()
            .unwrap()
            .to_lowercase()
            .contains("authorization")
    );
}

#[test]
fn a_request_has_only_the_fields_that_are_set() {
    let expected = json!({"model": "gpt-x", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 100,
        "messages": [{"role": "system", "content": "You write."}, {"role": "user", "content": "Files.\nGo."}]});
    assert_eq!(encoded("http://localhost:8080/v1", &request()), expected);
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
    let full = encoded("https://api.openai.com/v1", &full);
    assert_eq!(
        (full.get("max_tokens"), &full["max_completion_tokens"]),
        (None, &json!(100))
    );
    assert_eq!(
        (&full["temperature"], &full["reasoning_effort"]),
        (&json!(0.0), &json!("low"))
    );
    let function =
        json!({"name": "bash", "description": "Runs.", "parameters": {"type": "object"}});
    assert_eq!(
        full["tools"],
        json!([{"type": "function", "function": function}])
    );
}

#[test]
fn a_conversation_is_sent_in_order() {
    let opaque = ContentBlock::Opaque {
        value: json!({"type": "thinking"}),
    };
    let content = [tool_answer().content, vec![opaque]].concat();
    let result = |id: &str| ContentBlock::ToolResult {
        id: id.into(),
        text: "ok".into(),
        screen: String::new(),
        cache: false,
        is_error: false,
    };
    let messages = vec![
        Message {
            role: Role::Assistant,
            content,
        },
        Message {
            role: Role::User,
            content: vec![
                ContentBlock::text("Note."),
                result("call_a"),
                result("call_b"),
            ],
        },
        Message {
            role: Role::Assistant,
            content: vec![],
        },
    ];
    let body = encoded(
        "http://localhost",
        &ModelRequest {
            messages,
            system: String::new(),
            ..request()
        },
    );
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let expected = json!([
        {"role": "assistant", "content": "Listing ä.", "tool_calls": [
            call("call_a", "bash", "{\"command\":\"ls\"}"), call("call_b", "screen", "{}")]},
        {"role": "tool", "tool_call_id": "call_a", "content": "ok"},
        {"role": "tool", "tool_call_id": "call_b", "content": "ok"},
        {"role": "user", "content": "Note."}]);
    assert_eq!(body["messages"], expected);
}
