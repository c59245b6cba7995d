//! The messages of the Model Context Protocol, in both of its generations, as far as they concern tools.
//!
//! The older generation begins with `initialize`, the newer one with `server/discover`, and has a `resultType` in every
//! result. Most results ignore what they do not know, so the same answers serve both; an empty one must be empty for
//! the older one.

use serde_json::{Map, Value, json};

use crate::json_rpc::{self, MCP_VERSIONS, RpcError, RpcMessage};
use crate::llm::json::parse;
use crate::llm::mcp::ToolOutcome;
use crate::llm::message::ToolOffer;

/// The newest supported version of the newer generation.
const NEWEST: &str = "2026-07-28";
const SUPPORTED: [&str; 2] = [NEWEST, MCP_VERSIONS[0]];
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

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
    CallTool(NamedCall),
}

/// The tool that a request calls, and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedCall {
    pub name: String,
    pub arguments: Value,
}

/// Reads one line.
pub(super) fn read(line: &[u8]) -> McpMessage {
    let message = parse_line(line).and_then(json_rpc::read);
    let read = message.and_then(|message| match message {
        RpcMessage::Answer { .. } => Ok(McpMessage::Ignored),
        RpcMessage::Notification { method, params } => Ok(notification(&method, &params)),
        RpcMessage::Request { id, method, params } => match self::method(&method, &params) {
            Ok(method) => Ok(McpMessage::Request(McpRequest { id, method })),
            Err(error) => Err(error.answer(&id)),
        },
    });
    read.unwrap_or_else(McpMessage::Refused)
}

/// Parses one line; the error is the answer to one that is not JSON.
pub(crate) fn parse_line(line: &[u8]) -> Result<Value, Value> {
    parse(line).map_err(|problem| RpcError::not_json(&problem).answer(&Value::Null))
}

fn notification(method: &str, params: &Value) -> McpMessage {
    match method {
        "notifications/cancelled" => McpMessage::Cancelled(params["requestId"].clone()),
        _ => McpMessage::Ignored,
    }
}

fn method(name: &str, params: &Map<String, Value>) -> Result<McpMethod, RpcError> {
    let capabilities = json!({"tools": {}});
    match name {
        "initialize" => Ok(McpMethod::Known(initialized(params, capabilities)?)),
        "server/discover" => Ok(McpMethod::Known(discovered(capabilities, ""))),
        "ping" => Ok(McpMethod::Known(
            generation(params).result(complete(json!({}))),
        )),
        "tools/list" => only_page(params).map(|()| McpMethod::ListTools),
        "tools/call" => Ok(McpMethod::CallTool(named_call(params)?)),
        other => Err(RpcError::unknown_method(other)),
    }
}

/// Refuses a request for a page: all lists have one.
pub(crate) fn only_page(params: &Map<String, Value>) -> Result<(), RpcError> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(RpcError::invalid_params("there is no such page")),
    }
}

/// Reads the parameters of `tools/call`.
pub(crate) fn named_call(params: &Map<String, Value>) -> Result<NamedCall, RpcError> {
    let Some(Value::String(name)) = params.get("name") else {
        return Err(RpcError::invalid_params("\"name\" must be a string"));
    };
    let arguments = params
        .get("arguments")
        .filter(|arguments| !arguments.is_null());
    Ok(NamedCall {
        name: name.clone(),
        arguments: arguments.cloned().unwrap_or_else(|| json!({})),
    })
}

/// Returns the result of `tools/list`.
pub(crate) fn listed(offers: &[ToolOffer]) -> Value {
    let tool = |offer: &ToolOffer| json!({"name": offer.name, "description": offer.description, "inputSchema": offer.schema});
    let tools: Vec<Value> = offers.iter().map(tool).collect();
    cached(json!({"tools": tools}))
}

/// Returns the result of `tools/call`.
pub(crate) fn called(outcome: &ToolOutcome) -> Value {
    complete(
        json!({"content": [{"type": "text", "text": outcome.text}], "isError": outcome.is_error}),
    )
}

/// Returns the answer to a request that exceeds the queue.
pub(super) fn busy(id: &Value) -> Value {
    RpcError::internal("too many requests wait").answer(id)
}

/// Marks a result as whole, as the newer generation needs it.
pub(crate) fn complete(mut result: Value) -> Value {
    result["resultType"] = "complete".into();
    result
}

/// Marks a result that the newer generation may cache as one that is out of date at once.
pub(crate) fn cached(mut result: Value) -> Value {
    result["ttlMs"] = 0.into();
    result["cacheScope"] = "private".into();
    complete(result)
}

/// The generation of the client: requests of the newer one name their version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpGeneration {
    Older,
    Newer,
}

impl McpGeneration {
    /// Leaves out what is of the newer generation alone: clients of the older one may refuse unknown fields.
    pub(crate) fn result(self, mut result: Value) -> Value {
        if self == McpGeneration::Older
            && let Some(fields) = result.as_object_mut()
        {
            fields
                .retain(|name, _| !["resultType", "ttlMs", "cacheScope"].contains(&name.as_str()));
        }
        result
    }
}

pub(crate) fn generation(params: &Map<String, Value>) -> McpGeneration {
    match named_version(params) {
        Some(_) => McpGeneration::Newer,
        None => McpGeneration::Older,
    }
}

/// Returns the version that a request of the newer generation names.
pub(crate) fn named_version(params: &Map<String, Value>) -> Option<&str> {
    params.get("_meta")?.get(VERSION_KEY)?.as_str()
}

/// Refuses an unknown version that a request names.
pub(crate) fn check_version(version: &str) -> Result<(), RpcError> {
    match version == NEWEST || MCP_VERSIONS.contains(&version) {
        true => Ok(()),
        false => Err(RpcError::unsupported_version(version, &SUPPORTED)),
    }
}

/// Returns the result of `initialize`; an unknown version gets the newest one.
pub(crate) fn initialized(
    params: &Map<String, Value>,
    capabilities: Value,
) -> Result<Value, RpcError> {
    let Some(Value::String(version)) = params.get("protocolVersion") else {
        let message = "\"protocolVersion\" must be a string";
        return Err(RpcError::invalid_params(message));
    };
    let version = MCP_VERSIONS.iter().find(|known| *known == version);
    let version = version.unwrap_or(&MCP_VERSIONS[0]);
    Ok(complete(
        json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": server()}),
    ))
}

/// Returns the result of `server/discover`.
pub(crate) fn discovered(capabilities: Value, instructions: &str) -> Value {
    let mut result = json!({
        "supportedVersions": SUPPORTED,
        "capabilities": capabilities,
        "_meta": {"io.modelcontextprotocol/serverInfo": server()},
    });
    if !instructions.is_empty() {
        result["instructions"] = instructions.into();
    }
    cached(result)
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
        assert_eq!(odd["protocolVersion"], MCP_VERSIONS[0]);
        let McpMethod::Known(new) = method_of("server/discover", json!({"_meta": {}})) else {
            panic!()
        };
        assert_eq!(
            (&new["resultType"], &new["supportedVersions"][0]),
            (&json!("complete"), &json!(NEWEST))
        );
        assert_eq!(method_of("tools/list", json!({})), McpMethod::ListTools);
        let call = |arguments: Value| {
            McpMethod::CallTool(NamedCall {
                name: "bash".into(),
                arguments,
            })
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
