//! The messages of the Model Context Protocol: JSON-RPC, one object per line, in both of its generations.
//!
//! The older generation begins with `initialize`, the newer one with `server/discover`, and has a `resultType` in every
//! result. Each ignores what it does not know, so the same answers serve both.

use serde_json::{Map, Value, json};

use crate::llm::json::parse;
use crate::llm::mcp::ToolOutcome;
use crate::llm::message::ToolOffer;

/// The newest supported versions of the newer and of the older generation.
const NEWEST: &str = "2026-07-28";
const NEWEST_OLD: &str = "2025-11-25";
const OLD: [&str; 4] = [NEWEST_OLD, "2025-06-18", "2025-03-26", "2024-11-05"];

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;

/// A line of the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum McpMessage {
    Request(McpRequest),
    /// The client no longer wants the answer to this request.
    Cancelled(Value),
    /// Another notification, or an answer: gets no answer.
    Ignored,
    /// Invalid; this is the answer.
    Refused(Value),
}

/// A request; its id goes back as it came.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct McpRequest {
    pub id: Value,
    pub method: McpMethod,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum McpMethod {
    /// A method whose result needs no tools: this is the result.
    Known(Value),
    ListTools,
    CallTool {
        name: String,
        arguments: Value,
    },
}

/// An error of JSON-RPC: its code and message.
#[derive(Debug)]
struct RpcError(i64, String);

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError(code, message.into())
    }
}

/// Reads one line.
pub(super) fn read(line: &[u8]) -> McpMessage {
    let value = match parse(line) {
        Ok(value) => value,
        Err(problem) => {
            let message = format!("invalid JSON: {problem}");
            return McpMessage::Refused(error(&Value::Null, PARSE_ERROR, &message));
        }
    };
    let id = value["id"].clone();
    let is_valid_id = id.is_string() || id.is_number();
    read_object(&value, is_valid_id).unwrap_or_else(|RpcError(code, message)| {
        let id = if is_valid_id { id } else { Value::Null };
        McpMessage::Refused(error(&id, code, &message))
    })
}

fn read_object(value: &Value, is_valid_id: bool) -> Result<McpMessage, RpcError> {
    let invalid = |message: &str| RpcError::new(INVALID_REQUEST, message);
    let fields = value
        .as_object()
        .ok_or_else(|| invalid("one object a line is expected"))?;
    if value["jsonrpc"] != "2.0" {
        return Err(invalid("\"jsonrpc\" must be \"2.0\""));
    }
    match fields.get("method") {
        None if fields.contains_key("result") || fields.contains_key("error") => {
            Ok(McpMessage::Ignored)
        }
        Some(Value::String(method)) if !fields.contains_key("id") => {
            Ok(notification(method, &value["params"]))
        }
        Some(Value::String(_)) if !is_valid_id => {
            Err(invalid("\"id\" must be a string or a number"))
        }
        Some(Value::String(name)) => Ok(McpMessage::Request(McpRequest {
            id: value["id"].clone(),
            method: method(name, fields.get("params"))?,
        })),
        _ => Err(invalid("\"method\" must be a string")),
    }
}

fn notification(method: &str, params: &Value) -> McpMessage {
    match method {
        "notifications/cancelled" => McpMessage::Cancelled(params["requestId"].clone()),
        _ => McpMessage::Ignored,
    }
}

fn method(name: &str, params: Option<&Value>) -> Result<McpMethod, RpcError> {
    let none = Map::new();
    let invalid = |message: &str| RpcError::new(INVALID_PARAMS, message);
    let params = match params {
        None => &none,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("\"params\" must be an object")),
    };
    match name {
        "initialize" => match params.get("protocolVersion") {
            Some(Value::String(version)) => Ok(McpMethod::Known(initialized(version))),
            _ => Err(invalid("\"protocolVersion\" must be a string")),
        },
        "server/discover" => Ok(McpMethod::Known(discovered())),
        "ping" => Ok(McpMethod::Known(complete(json!({})))),
        "tools/list" if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) => {
            Err(invalid("there is no such page"))
        }
        "tools/list" => Ok(McpMethod::ListTools),
        "tools/call" => match params.get("name") {
            Some(Value::String(name)) => {
                let arguments = params
                    .get("arguments")
                    .filter(|arguments| !arguments.is_null());
                Ok(McpMethod::CallTool {
                    name: name.clone(),
                    arguments: arguments.cloned().unwrap_or_else(|| json!({})),
                })
            }
            _ => Err(invalid("\"name\" must be a string")),
        },
        other => Err(RpcError::new(
            METHOD_NOT_FOUND,
            format!("there is no method {other:?}"),
        )),
    }
}

/// Returns the answer to a request.
pub(super) fn answer(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Returns the result of `tools/list`.
pub(super) fn listed(offers: &[ToolOffer]) -> Value {
    let tool = |offer: &ToolOffer| json!({"name": offer.name, "description": offer.description, "inputSchema": offer.schema});
    let tools: Vec<Value> = offers.iter().map(tool).collect();
    complete(json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}))
}

/// Returns the result of `tools/call`.
pub(super) fn called(outcome: &ToolOutcome) -> Value {
    complete(
        json!({"content": [{"type": "text", "text": outcome.text}], "isError": outcome.is_error}),
    )
}

/// Returns the answer to a request that exceeds the queue.
pub(super) fn busy(id: &Value) -> Value {
    error(id, INTERNAL_ERROR, "too many requests wait")
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn complete(mut result: Value) -> Value {
    result["resultType"] = "complete".into();
    result
}

fn initialized(version: &str) -> Value {
    let version = OLD
        .iter()
        .find(|known| **known == version)
        .unwrap_or(&NEWEST_OLD);
    complete(
        json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server()}),
    )
}

fn discovered() -> Value {
    complete(json!({
        "supportedVersions": [NEWEST, NEWEST_OLD],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": server()},
    }))
}

fn server() -> Value {
    json!({"name": "orchestrator", "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(line: &str) -> (Value, i64) {
        match read(line.as_bytes()) {
            McpMessage::Refused(answer) => (
                answer["id"].clone(),
                answer["error"]["code"].as_i64().unwrap(),
            ),
            other => panic!("{line}: {other:?}"),
        }
    }

    fn method_of(method: &str, params: Value) -> McpMethod {
        let line =
            json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).to_string();
        match read(line.as_bytes()) {
            McpMessage::Request(McpRequest { id, method }) if id == 0 => method,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn an_invalid_line_gets_its_error_code() {
        for line in [
            "",
            "x",
            "{",
            "\u{feff}{}",
            "{\"a\":NaN}",
            &"[".repeat(100_000),
        ] {
            assert_eq!(code(line), (Value::Null, -32700), "{line:.20}");
        }
        for line in [
            "1",
            "[]",
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            "null",
            "{}",
        ] {
            assert_eq!(code(line), (Value::Null, -32600), "{line}");
        }
        let cases = [
            (r#"{"id":7,"method":"ping"}"#, json!(7), -32600),
            (
                r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#,
                json!("a"),
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                Value::Null,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
                Value::Null,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, json!(1), -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, json!(1), -32600),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#,
                json!(1),
                -32601,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
                json!(1),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
                json!(1),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#,
                json!(1),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#,
                json!(1),
                -32602,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#,
                json!(1),
                -32602,
            ),
        ];
        for (line, id, number) in cases {
            assert_eq!(code(line), (id, number), "{line}");
        }
    }

    #[test]
    fn both_generations_get_what_they_expect() {
        let McpMethod::Known(old) =
            method_of("initialize", json!({"protocolVersion": "2025-06-18"}))
        else {
            panic!()
        };
        assert_eq!(
            (&old["protocolVersion"], &old["capabilities"]),
            (&json!("2025-06-18"), &json!({"tools": {}}))
        );
        let McpMethod::Known(odd) =
            method_of("initialize", json!({"protocolVersion": "1999-01-01"}))
        else {
            panic!()
        };
        assert_eq!(odd["protocolVersion"], NEWEST_OLD);
        let McpMethod::Known(new) = method_of("server/discover", json!({"_meta": {}})) else {
            panic!()
        };
        assert_eq!(
            (&new["resultType"], &new["supportedVersions"][0]),
            (&json!("complete"), &json!(NEWEST))
        );
        assert_eq!(method_of("tools/list", json!({})), McpMethod::ListTools);
        let call = |arguments: Value| McpMethod::CallTool {
            name: "bash".into(),
            arguments,
        };
        assert_eq!(
            method_of("tools/call", json!({"name": "bash"})),
            call(json!({}))
        );
        assert_eq!(
            method_of("tools/call", json!({"name": "bash", "arguments": [1]})),
            call(json!([1]))
        );
    }

    #[test]
    fn notifications_and_answers_get_no_answer() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"whatever","params":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
        ] {
            assert_eq!(read(line.as_bytes()), McpMessage::Ignored, "{line}");
        }
        let cancelled =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        assert_eq!(
            read(cancelled.as_bytes()),
            McpMessage::Cancelled(json!("a"))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }

        #[test]
        fn a_request_gets_its_own_id_back(
            id in prop_oneof![any::<i64>().prop_map(Value::from), ".{0,9}".prop_map(Value::from)],
            method in prop_oneof![
                Just("ping".to_owned()), Just("tools/call".to_owned()), Just("initialize".to_owned()), ".{0,12}",
            ],
            params in prop_oneof![
                Just(json!({"name": "bash", "protocolVersion": "x"})), Just(json!({})), Just(json!([])), Just(json!(1)),
            ],
        ) {
            let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
            let answered = match read(line.as_bytes()) {
                McpMessage::Request(request) => request.id,
                McpMessage::Refused(answer) => answer["id"].clone(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(answered, id);
        }

        #[test]
        fn a_part_of_a_line_is_refused(cut in 0usize..80) {
            let line = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bash"}}"#;
            if cut < line.len() {
                let refused = matches!(read(&line[..cut]), McpMessage::Refused(_));
                prop_assert!(refused);
            }
        }
    }
}
