//! The client of one MCP server: asks for its tools, calls them, and answers what the server asks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::environments::Response;
use crate::environments::adhoc::mcp::command::ToolLine;
use crate::environments::adhoc::mcp::content;
use crate::environments::adhoc::mcp::tools::{self, McpTool};
use crate::environments::adhoc::messages::cleaned;
use crate::environments::adhoc::process::HostProcess;
use crate::json_rpc::{self, MCP_VERSIONS, RpcError, RpcMessage};
use crate::text::shorten::cut_chars;

/// How long a server may take to read a message.
const SEND_PATIENCE: Duration = Duration::from_secs(10);
/// How long a cancelled call is waited for; a server need not answer it.
const CANCEL_PATIENCE: Duration = Duration::from_millis(500);
/// How many pages of tools are asked for.
const MAX_PAGES: usize = 100;
/// How many characters of the server's instructions are shown.
const SHOWN_INSTRUCTIONS: usize = 600;

/// What a message of the server leads to.
#[derive(Debug)]
pub(super) enum McpNews {
    Nothing,
    /// The server is ready.
    Loaded,
    /// The server cannot be used.
    Unusable(String),
    /// The call has ended.
    Called(Response),
    /// For the user.
    Log(String),
}

/// A call without an answer.
struct OpenCall {
    id: u64,
    tool: String,
    /// When it counts as ended, after it was cancelled.
    ends: Option<Instant>,
    progress: Option<String>,
}

/// A request for the list of tools without an answer.
struct OpenListing {
    id: u64,
    pages: usize,
    tools: Vec<McpTool>,
}

/// A server that was started.
pub(super) struct McpConnection {
    pub(super) process: HostProcess,
    project: PathBuf,
    last_id: u64,
    initialize: Option<u64>,
    listing: Option<OpenListing>,
    /// The list of tools has changed since it was asked for.
    is_stale: bool,
    call: Option<OpenCall>,
    tools: Vec<McpTool>,
    title: String,
    instructions: String,
}

impl McpConnection {
    /// Begins the session with a server.
    pub(super) fn begin(process: HostProcess, project: &Path) -> McpConnection {
        let mut connection = McpConnection {
            process,
            project: project.to_owned(),
            last_id: 0,
            initialize: None,
            listing: None,
            is_stale: false,
            call: None,
            tools: Vec::new(),
            title: String::new(),
            instructions: String::new(),
        };
        let params = json!({
            "protocolVersion": MCP_VERSIONS[0],
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "orchestrator", "version": env!("CARGO_PKG_VERSION")},
        });
        connection.initialize = Some(connection.request("initialize", params));
        connection
    }

    /// Whether the list of tools is being asked for.
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    pub(super) fn is_calling(&self) -> bool {
        self.call.is_some()
    }

    /// When the call counts as ended, if it was cancelled.
    pub(super) fn call_ends(&self) -> Option<Instant> {
        self.call.as_ref()?.ends
    }

    /// What the server said last about the progress of the call.
    pub(super) fn take_progress(&mut self) -> Option<String> {
        self.call.as_mut()?.progress.take()
    }

    /// Calls a tool, or returns the description of one; the error is for the agent.
    pub(super) fn take(&mut self, line: ToolLine) -> Result<Option<String>, String> {
        match line {
            ToolLine::Call { tool, arguments } => self.call(tool, arguments).map(|()| None),
            ToolLine::Describe { tool } => {
                let found = self.known(&tool)?;
                Ok(Some(cleaned(&tools::list(
                    std::slice::from_ref(found),
                    usize::MAX,
                ))))
            }
        }
    }

    fn known(&self, tool: &str) -> Result<&McpTool, String> {
        let found = self.tools.iter().find(|known| known.name == tool);
        found.ok_or_else(|| {
            format!(
                "there is no tool {tool:?}; there are {}\n",
                tools::names(&self.tools)
            )
        })
    }

    fn call(&mut self, tool: String, arguments: Value) -> Result<(), String> {
        self.known(&tool)?;
        let id = self.last_id + 1;
        let meta = json!({"progressToken": id});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.request("tools/call", params);
        self.call = Some(OpenCall {
            id,
            tool,
            ends: None,
            progress: None,
        });
        Ok(())
    }

    /// Asks the server to cancel the call.
    pub(super) fn cancel(&mut self) {
        let Some(call) = &mut self.call else {
            return;
        };
        call.ends = Some(Instant::now() + CANCEL_PATIENCE);
        let params = json!({"requestId": call.id, "reason": "interrupted"});
        self.send(&json_rpc::notification("notifications/cancelled", params));
    }

    /// Ends a cancelled call that the server did not answer.
    pub(super) fn give_up(&mut self) -> Response {
        let tool = self.call.take().map(|call| call.tool).unwrap_or_default();
        Response::failed(format!(
            "[interrupted: the server was asked to cancel {tool}]\n"
        ))
    }

    /// The screen: what the server is, and its tools, cut to `limit` bytes.
    pub(super) fn screen(&self, limit: usize) -> String {
        let count = match self.tools.len() {
            0 => "no tools".to_owned(),
            1 => "1 tool".to_owned(),
            count => format!("{count} tools"),
        };
        let usage = "a command is the name of a tool and its arguments: TOOL {json}";
        let head = format!("{}: {count}; {usage}\n", self.title);
        cleaned(&(head + &tools::list(&self.tools, limit) + &self.instructions))
    }

    fn send(&mut self, message: &Value) {
        self.process.send(message, Instant::now() + SEND_PATIENCE);
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.send(&json_rpc::request(self.last_id, method, params));
        self.last_id
    }

    /// Handles a message of the server.
    pub(super) fn handle(&mut self, message: Value) -> McpNews {
        match json_rpc::read(message) {
            Err(_) => McpNews::Log("sent a message that is not of JSON-RPC".into()),
            Ok(RpcMessage::Request { id, method, .. }) => {
                let answer = match self.asked(&method) {
                    Ok(result) => json_rpc::answer(&id, result),
                    Err(error) => error.answer(&id),
                };
                self.send(&answer);
                McpNews::Nothing
            }
            Ok(RpcMessage::Notification { method, params }) => self.notified(&method, &params),
            Ok(RpcMessage::Answer { id, outcome }) => match id.as_u64() {
                Some(id) => self.answered(id, outcome),
                None => McpNews::Nothing,
            },
        }
    }

    /// Answers a request of the server.
    fn asked(&self, method: &str) -> Result<Value, RpcError> {
        match method {
            "ping" => Ok(json!({})),
            "roots/list" => Ok(json!({"roots": [{
                "uri": file_uri(&self.project),
                "name": "project",
            }]})),
            other => Err(RpcError::unknown_method(other)),
        }
    }

    fn notified(&mut self, method: &str, params: &Value) -> McpNews {
        match method {
            "notifications/tools/list_changed" if self.initialize.is_none() => {
                self.is_stale = true;
                self.list_if_stale();
            }
            "notifications/progress" => {
                if let Some(call) = self.call.as_mut()
                    && params["progressToken"] == call.id
                {
                    call.progress = Some(progress_text(params));
                }
            }
            "notifications/message" => {
                let level = params["level"].as_str().unwrap_or("info");
                let text = match &params["data"] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                return McpNews::Log(format!("{level}: {text}"));
            }
            _ => {}
        }
        McpNews::Nothing
    }

    fn list_if_stale(&mut self) {
        if self.listing.is_none() && std::mem::take(&mut self.is_stale) {
            self.list(json!({}), 1, Vec::new());
        }
    }

    fn list(&mut self, params: Value, pages: usize, tools: Vec<McpTool>) {
        let id = self.request("tools/list", params);
        self.listing = Some(OpenListing { id, pages, tools });
    }

    fn answered(&mut self, id: u64, outcome: Result<Value, RpcError>) -> McpNews {
        if self.initialize == Some(id) {
            return self.initialized(outcome);
        }
        if let Some(listing) = self.listing.take_if(|listing| listing.id == id) {
            return self.listed(listing, outcome);
        }
        match self.call.take_if(|call| call.id == id) {
            Some(call) => McpNews::Called(called(&call.tool, outcome)),
            None => McpNews::Nothing,
        }
    }

    fn initialized(&mut self, outcome: Result<Value, RpcError>) -> McpNews {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return McpNews::Unusable(format!("its server refused: {error}")),
        };
        let version = result["protocolVersion"].as_str().unwrap_or_default();
        if !MCP_VERSIONS.contains(&version) {
            return McpNews::Unusable(format!(
                "unknown protocol version {version:?} of its server; known are {}",
                MCP_VERSIONS.join(", ")
            ));
        }
        self.initialize = None;
        let none = Map::new();
        let server = result["serverInfo"].as_object().unwrap_or(&none);
        let info = |name: &str| server.get(name).and_then(Value::as_str);
        let words = ["name", "version"].into_iter().filter_map(info);
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        self.title = format!("MCP server {}", words.join(" "));
        self.instructions = instructions(&result);
        self.send(&json_rpc::notification(
            "notifications/initialized",
            json!({}),
        ));
        if result["capabilities"].get("tools").is_none() {
            return McpNews::Loaded;
        }
        self.list(json!({}), 1, Vec::new());
        McpNews::Nothing
    }

    fn listed(&mut self, mut listing: OpenListing, outcome: Result<Value, RpcError>) -> McpNews {
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                return McpNews::Unusable(format!("its server did not list its tools: {error}"));
            }
        };
        let tools = result["tools"].as_array().into_iter().flatten();
        listing.tools.extend(tools.filter_map(McpTool::read));
        if let Some(cursor) = result["nextCursor"].as_str()
            && listing.pages < MAX_PAGES
        {
            self.list(json!({"cursor": cursor}), listing.pages + 1, listing.tools);
            return McpNews::Nothing;
        }
        self.tools = listing.tools;
        self.list_if_stale();
        match self.listing {
            Some(_) => McpNews::Nothing,
            None => McpNews::Loaded,
        }
    }
}

/// The response to a call.
fn called(tool: &str, outcome: Result<Value, RpcError>) -> Response {
    let result = match outcome {
        Ok(result) => result,
        Err(error) => return Response::failed(cleaned(&format!("{tool} failed: {error}\n"))),
    };
    let kind = result["resultType"].as_str().unwrap_or("complete");
    if kind != "complete" {
        return Response::failed(format!(
            "{tool} failed: its result is {kind:?}, which is not supported\n"
        ));
    }
    Response {
        output: cleaned(&content::text_of(&result)),
        success: result["isError"] != true,
        running: false,
    }
}

fn progress_text(params: &Value) -> String {
    let total = match &params["total"] {
        Value::Number(total) => format!(" of {total}"),
        _ => String::new(),
    };
    let message = match params["message"].as_str() {
        Some(message) => format!(": {message}"),
        None => String::new(),
    };
    cleaned(&format!(
        "[progress {}{total}{message}]\n",
        params["progress"]
    ))
}

fn instructions(result: &Value) -> String {
    match result["instructions"].as_str().map(str::trim) {
        None | Some("") => String::new(),
        Some(text) => format!("\n{}\n", cut_chars(text, SHOWN_INSTRUCTIONS, "…")),
    }
}

/// The address of a folder.
fn file_uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes().iter();
    let encoded = bytes.map(|byte| match byte {
        b'/' | b'-' | b'_' | b'.' | b'~' => char::from(*byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    format!("file://{}", encoded.collect::<String>())
}
