//! The words of the protocol: JSON-RPC, one object a line, in both of its eras.
//!
//! The older era begins with `initialize`, the newer one with `server/discover` and a `resultType` in every result.
//! Who answers both needs to know neither: each ignores what it does not know.

use serde_json::{Map, Value, json};

use crate::llm::endpoint::parse;
use crate::llm::mcp::ToolOutcome;
use crate::llm::message::ToolOffer;

/// The newest versions of the newer and of the older era that are spoken here.
const NEWEST: &str = "2026-07-28";
const NEWEST_OLD: &str = "2025-11-25";
const OLD: [&str; 4] = [NEWEST_OLD, "2025-06-18", "2025-03-26", "2024-11-05"];

const NO_JSON: i64 = -32700;
const NO_REQUEST: i64 = -32600;
const NO_METHOD: i64 = -32601;
const BAD_PARAMETERS: i64 = -32602;
const BUSY: i64 = -32603;

/// What a line says.
#[derive(Debug, Clone, PartialEq)]
pub enum McpMessage {
    Request(McpRequest),
    /// The client does not want the answer to this request any more.
    Cancelled(Value),
    /// Nothing to be answered: another notification, or an answer to what nobody asked.
    Nothing,
    /// It cannot be understood; this is the answer.
    Refused(Value),
}

/// A request; its id goes back as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct McpRequest {
    pub id: Value,
    pub method: McpMethod,
}

/// What a request wants.
#[derive(Debug, Clone, PartialEq)]
pub enum McpMethod {
    /// Something that can be answered without the tools.
    Known(Value),
    ListTools,
    CallTool {
        name: String,
        arguments: Value,
    },
}

/// Reads one line.
pub fn read(line: &[u8]) -> McpMessage {
    let value = match parse(line) {
        Ok(value) => value,
        Err(problem) => {
            return McpMessage::Refused(error(
                &Value::Null,
                NO_JSON,
                &format!("no JSON: {problem}"),
            ));
        }
    };
    let Some(fields) = value.as_object() else {
        return McpMessage::Refused(error(
            &Value::Null,
            NO_REQUEST,
            "one object a line is expected",
        ));
    };
    let id = fields.get("id").cloned().unwrap_or_default();
    let is_known_id = id.is_string() || id.is_number();
    let refuse = |code, problem: &str| {
        McpMessage::Refused(error(
            if is_known_id { &id } else { &Value::Null },
            code,
            problem,
        ))
    };
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return refuse(NO_REQUEST, "\"jsonrpc\" must be \"2.0\"");
    }
    match fields.get("method") {
        None if fields.contains_key("result") || fields.contains_key("error") => {
            McpMessage::Nothing
        }
        Some(Value::String(method)) if !fields.contains_key("id") => {
            notification(method, &value["params"])
        }
        Some(Value::String(_)) if !is_known_id => {
            refuse(NO_REQUEST, "\"id\" must be a string or a number")
        }
        Some(Value::String(method)) => match action(method, fields.get("params")) {
            Ok(action) => McpMessage::Request(McpRequest { id, method: action }),
            Err((code, problem)) => refuse(code, &problem),
        },
        _ => refuse(NO_REQUEST, "\"method\" must be a string"),
    }
}

fn notification(method: &str, params: &Value) -> McpMessage {
    match method {
        "notifications/cancelled" => McpMessage::Cancelled(params["requestId"].clone()),
        _ => McpMessage::Nothing,
    }
}

fn action(method: &str, params: Option<&Value>) -> Result<McpMethod, (i64, String)> {
    let none = Map::new();
    let bad = |problem: &str| (BAD_PARAMETERS, problem.to_owned());
    let params = match params {
        None => &none,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(bad("\"params\" must be an object")),
    };
    match method {
        "initialize" => match params.get("protocolVersion") {
            Some(Value::String(version)) => Ok(McpMethod::Known(initialized(version))),
            _ => Err(bad("\"protocolVersion\" must be a string")),
        },
        "server/discover" => Ok(McpMethod::Known(discovered())),
        "ping" => Ok(McpMethod::Known(complete(json!({})))),
        "tools/list" if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) => {
            Err(bad("there is no such page"))
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
            _ => Err(bad("\"name\" must be a string")),
        },
        other => Err((NO_METHOD, format!("there is no method {other:?}"))),
    }
}

/// Returns the answer to a request, as a line's value.
pub fn answer(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Returns the result of a list of tools.
pub fn listed(offers: &[ToolOffer]) -> Value {
    let tool = |offer: &ToolOffer| json!({"name": offer.name, "description": offer.description, "inputSchema": offer.schema});
    let tools: Vec<Value> = offers.iter().map(tool).collect();
    complete(json!({"tools": tools, "ttlMs": 0, "cacheScope": "private"}))
}

/// Returns the result of a call.
pub fn called(outcome: &ToolOutcome) -> Value {
    complete(
        json!({"content": [{"type": "text", "text": outcome.text}], "isError": outcome.is_error}),
    )
}

/// Returns the answer to a request for which there is no room.
pub fn busy(id: &Value) -> Value {
    error(id, BUSY, "too many requests wait")
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

    fn wish_of(method: &str, params: Value) -> McpMethod {
        let line =
            json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).to_string();
        match read(line.as_bytes()) {
            McpMessage::Request(McpRequest { id, method: action }) if id == 0 => action,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_cannot_be_understood_has_its_number() {
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
    fn both_eras_find_what_they_expect() {
        let McpMethod::Known(old) = wish_of("initialize", json!({"protocolVersion": "2025-06-18"}))
        else {
            panic!()
        };
        assert_eq!(
            (&old["protocolVersion"], &old["capabilities"]),
            (&json!("2025-06-18"), &json!({"tools": {}}))
        );
        let McpMethod::Known(odd) = wish_of("initialize", json!({"protocolVersion": "1999-01-01"}))
        else {
            panic!()
        };
        assert_eq!(odd["protocolVersion"], NEWEST_OLD);
        let McpMethod::Known(new) = wish_of("server/discover", json!({"_meta": {}})) else {
            panic!()
        };
        assert_eq!(
            (&new["resultType"], &new["supportedVersions"][0]),
            (&json!("complete"), &json!(NEWEST))
        );
        assert_eq!(wish_of("tools/list", json!({})), McpMethod::ListTools);
        let call = |arguments: Value| McpMethod::CallTool {
            name: "bash".into(),
            arguments,
        };
        assert_eq!(
            wish_of("tools/call", json!({"name": "bash"})),
            call(json!({}))
        );
        assert_eq!(
            wish_of("tools/call", json!({"name": "bash", "arguments": [1]})),
            call(json!([1]))
        );
    }

    #[test]
    fn notifications_and_answers_get_none() {
        for line in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"whatever","params":7}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
        ] {
            assert_eq!(read(line.as_bytes()), McpMessage::Nothing, "{line}");
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
