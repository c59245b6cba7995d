//! JSON-RPC 2.0 as the Model Context Protocol uses it: messages of a server and of a client, one object per line.

use std::fmt;

use serde_json::{Map, Value, json};

/// The versions of the Model Context Protocol that begin with `initialize`, the newest first.
pub(crate) const MCP_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A valid message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RpcMessage {
    /// The id goes back as it came.
    Request {
        id: Value,
        method: String,
        params: Map<String, Value>,
    },
    Notification {
        method: String,
        params: Value,
    },
    Answer {
        id: Value,
        outcome: Result<Value, RpcError>,
    },
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The text is not JSON.
    pub(crate) fn not_json(problem: &impl fmt::Display) -> RpcError {
        RpcError::new(-32700, format!("invalid JSON: {problem}"))
    }

    /// The JSON is not a request, or comes at the wrong time.
    pub(crate) fn invalid_request(message: impl Into<String>) -> RpcError {
        RpcError::new(-32600, message)
    }

    pub(crate) fn unknown_method(name: &str) -> RpcError {
        RpcError::new(-32601, format!("there is no method {name:?}"))
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> RpcError {
        RpcError::new(-32602, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> RpcError {
        RpcError::new(-32603, message)
    }

    pub(crate) fn unsupported_version(requested: &str, supported: &[&str]) -> RpcError {
        RpcError {
            data: Some(json!({"supported": supported, "requested": requested})),
            ..RpcError::new(
                -32022,
                format!("unsupported protocol version {requested:?}"),
            )
        }
    }

    /// The address is not that of a resource.
    pub(crate) fn no_resource(uri: &str) -> RpcError {
        RpcError {
            data: Some(json!({"uri": uri})),
            ..RpcError::new(-32002, format!("there is no resource {uri:?}"))
        }
    }

    /// Returns the answer to the request with this id.
    pub(crate) fn answer(&self, id: &Value) -> Value {
        let RpcError {
            code,
            message,
            data,
        } = self;
        let mut answer =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
        if let Some(data) = data {
            answer["error"]["data"] = data.clone();
        }
        answer
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

/// Reads one message; the error is the answer to one that is invalid.
pub(crate) fn read(value: Value) -> Result<RpcMessage, Value> {
    let id = value["id"].clone();
    let is_valid_id = id.is_string() || id.is_number();
    read_object(value, is_valid_id)
        .map_err(|error| error.answer(if is_valid_id { &id } else { &Value::Null }))
}

fn read_object(value: Value, is_valid_id: bool) -> Result<RpcMessage, RpcError> {
    let Value::Object(mut fields) = value else {
        return Err(RpcError::invalid_request("one object a line is expected"));
    };
    if fields.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Err(RpcError::invalid_request("\"jsonrpc\" must be \"2.0\""));
    }
    let (id, params) = (fields.remove("id"), fields.remove("params"));
    match (fields.remove("method"), id) {
        (None, id) => answer_of(id, fields),
        (Some(Value::String(method)), None) => Ok(RpcMessage::Notification {
            method,
            params: params.unwrap_or_default(),
        }),
        (Some(Value::String(method)), Some(id)) if is_valid_id => Ok(RpcMessage::Request {
            id,
            method,
            params: fields_of(params)?,
        }),
        (Some(Value::String(_)), Some(_)) => Err(RpcError::invalid_request(
            "\"id\" must be a string or a number",
        )),
        _ => Err(RpcError::invalid_request("\"method\" must be a string")),
    }
}

fn answer_of(id: Option<Value>, mut fields: Map<String, Value>) -> Result<RpcMessage, RpcError> {
    let outcome = match (fields.remove("result"), fields.remove("error")) {
        (Some(result), None) => Ok(result),
        (_, Some(error)) => Err(RpcError {
            code: error["code"].as_i64().unwrap_or_default(),
            message: error["message"].as_str().unwrap_or("no message").to_owned(),
            data: error.get("data").cloned(),
        }),
        (None, None) => return Err(RpcError::invalid_request("\"method\" must be a string")),
    };
    Ok(RpcMessage::Answer {
        id: id.unwrap_or_default(),
        outcome,
    })
}

fn fields_of(params: Option<Value>) -> Result<Map<String, Value>, RpcError> {
    match params {
        None => Ok(Map::new()),
        Some(Value::Object(params)) => Ok(params),
        Some(_) => Err(RpcError::invalid_params("\"params\" must be an object")),
    }
}

/// Returns the answer to a request.
pub(crate) fn answer(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
