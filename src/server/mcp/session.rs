//! What the client of the MCP server has sent: requests that need no environment are answered when they are read, so that
//! a long command does not delay a ping; the others wait for their turn.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use crate::conversation::tools::{self, CallRefusal, ToolAction, ToolCommand};
use crate::environments::registry::{ControlAction, UrgentAction};
use crate::json_rpc::{self, RpcError, RpcMessage};
use crate::llm::ToolOffer;
use crate::llm::mcp::protocol::{self, McpGeneration, NamedCall};
use crate::server::lines::{InputLine, LONGEST_LINE, LineSplitter};
use crate::server::mcp::batches::{BatchId, Batches};
use crate::server::order::{OrderedRequest, QueuedItem, RequestOrder};
use crate::server::streams::InputQueue;

/// The only versions with batches.
const WITH_BATCHES: [&str; 2] = ["2025-03-26", "2024-11-05"];
const SCREEN: &str = "screen://";

/// A request that needs an environment.
#[derive(Debug)]
pub(super) struct McpWork {
    id: Value,
    batch: Option<BatchId>,
    generation: McpGeneration,
    pub kind: WorkKind,
    is_cancelled: bool,
}

#[derive(Debug)]
pub(super) enum WorkKind {
    Call(EnvironmentCall),
    /// Read the screen of this environment.
    Screen(String),
}

/// A call of a tool.
#[derive(Debug)]
pub(super) struct EnvironmentCall {
    pub name: String,
    pub command: Result<ToolCommand, CallRefusal>,
    /// What notifications about its progress have to name.
    pub progress: Option<Value>,
}

impl OrderedRequest for McpWork {
    fn environment(&self) -> Option<&str> {
        match &self.kind {
            WorkKind::Call(call) if !self.is_cancelled && call.command.is_ok() => Some(&call.name),
            _ => None,
        }
    }

    fn urgent(&self) -> Option<UrgentAction> {
        let WorkKind::Call(EnvironmentCall {
            command: Ok(command),
            ..
        }) = &self.kind
        else {
            return None;
        };
        match command.action {
            ToolAction::Control(ControlAction::Interrupt) => Some(UrgentAction::Interrupt),
            ToolAction::Control(ControlAction::Restart) => Some(UrgentAction::Restart),
            ToolAction::Control(ControlAction::Wait) | ToolAction::Run(_) => None,
        }
    }
}

/// What the server does next.
#[derive(Debug)]
pub(super) enum McpItem {
    Send(Value),
    CarryOut(QueuedItem<McpWork>),
}

/// A request that is carried out.
#[derive(Debug)]
struct CurrentRequest {
    id: Value,
    is_cancelled: bool,
}

/// How a request is answered.
enum Handling {
    Now(Value),
    InTurn(WorkKind),
}

/// The connection with one client.
#[derive(Debug)]
pub(super) struct McpSession {
    lines: LineSplitter,
    is_closed: bool,
    order: RequestOrder<McpWork>,
    outbox: VecDeque<Value>,
    batches: Batches,
    current: Option<CurrentRequest>,
    /// The version that `initialize` has led to.
    version: Option<String>,
    offers: Vec<ToolOffer>,
    /// The addresses of screens that the client wants to know changes of.
    subscribed: BTreeSet<String>,
    instructions: String,
}

impl McpSession {
    pub(super) fn new(offers: Vec<ToolOffer>, instructions: String) -> McpSession {
        McpSession {
            lines: LineSplitter::default(),
            is_closed: false,
            order: RequestOrder::default(),
            outbox: VecDeque::new(),
            batches: Batches::default(),
            current: None,
            version: None,
            offers,
            subscribed: BTreeSet::new(),
            instructions,
        }
    }

    pub(super) fn offers(&self) -> &[ToolOffer] {
        &self.offers
    }

    /// Sets the tools, and notifies the client if they differ.
    pub(super) fn set_offers(&mut self, offers: Vec<ToolOffer>) {
        let is_same = offers
            .iter()
            .map(|offer| &offer.name)
            .eq(self.offers.iter().map(|offer| &offer.name));
        self.offers = offers;
        if !is_same && self.version.is_some() {
            for list in ["tools", "resources"] {
                let method = format!("notifications/{list}/list_changed");
                self.send(json_rpc::notification(&method, json!({})));
            }
        }
    }

    /// Whether the client wants to know when the screen of this environment changes.
    pub(super) fn is_subscribed(&self, name: &str) -> bool {
        self.subscribed.contains(&address(name))
    }

    /// Notifies the client that a screen has changed.
    pub(super) fn screen_changed(&mut self, name: &str) {
        let params = json!({"uri": address(name)});
        let method = "notifications/resources/updated";
        self.send(json_rpc::notification(method, params));
    }

    pub(super) fn send(&mut self, message: Value) {
        self.outbox.push_back(message);
    }

    /// Takes the next message to the client.
    pub(super) fn take_message(&mut self) -> Option<Value> {
        self.outbox.pop_front()
    }

    /// Records that a request is carried out now.
    pub(super) fn begin(&mut self, work: &McpWork) {
        self.current = Some(CurrentRequest {
            id: work.id.clone(),
            is_cancelled: false,
        });
    }

    /// Records that a command of this environment begins.
    pub(super) fn begin_command(&mut self, environment: &str) {
        self.order.begin(environment, self.order.read_count());
    }

    /// Whether the client no longer wants the answer that is being worked on.
    pub(super) fn is_cancelled(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.is_cancelled)
    }

    /// Takes an interrupt or restart for the command that runs in this environment.
    pub(super) fn take_urgent(&mut self, environment: &str) -> UrgentAction {
        self.order.take_urgent(environment)
    }

    /// Answers a request that was carried out, unless it was cancelled meanwhile.
    pub(super) fn finish(&mut self, work: &McpWork, result: Result<Value, RpcError>) {
        let is_cancelled = self.is_cancelled();
        self.current = None;
        let answer = (!is_cancelled).then(|| match result {
            Ok(result) => json_rpc::answer(&work.id, work.generation.result(result)),
            Err(error) => error.answer(&work.id),
        });
        self.reply(work.batch, answer);
    }

    fn reply(&mut self, batch: Option<BatchId>, answer: Option<Value>) {
        let message = match batch {
            None => answer,
            Some(batch) => self.batches.leave(batch, answer),
        };
        self.outbox.extend(message);
    }

    fn line(&mut self, line: InputLine) {
        let value = match line {
            InputLine::Text(line) => protocol::parse_line(&line),
            InputLine::TooLong => Err(RpcError::invalid_request(format!(
                "the line is longer than {LONGEST_LINE} bytes"
            ))
            .answer(&Value::Null)),
        };
        match value {
            Err(answer) => self.send(answer),
            Ok(Value::Array(messages)) => self.batch(messages),
            Ok(message) => self.message(message, None),
        }
    }

    fn batch(&mut self, messages: Vec<Value>) {
        let version = self.version.as_deref().unwrap_or("none");
        let problem = match () {
            () if !WITH_BATCHES.contains(&version) => Some(format!(
                "one object a line is expected: version 2025-03-26 alone has batches, and this session has {version}"
            )),
            () if messages.is_empty() => Some("the batch is empty".to_owned()),
            () => None,
        };
        if let Some(problem) = problem {
            return self.send(RpcError::invalid_request(problem).answer(&Value::Null));
        }
        let batch = self.batches.begin();
        for message in messages {
            self.message(message, Some(batch));
        }
        self.reply(Some(batch), None);
    }

    fn message(&mut self, message: Value, batch: Option<BatchId>) {
        match json_rpc::read(message) {
            Ok(RpcMessage::Answer { .. }) => {}
            Ok(RpcMessage::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(&params["requestId"]);
                }
            }
            Ok(RpcMessage::Request { id, method, params }) => {
                self.enter(batch);
                self.request(id, batch, &method, &params);
            }
            Err(answer) => {
                self.enter(batch);
                self.reply(batch, Some(answer));
            }
        }
    }

    fn enter(&mut self, batch: Option<BatchId>) {
        if let Some(batch) = batch {
            self.batches.enter(batch);
        }
    }

    fn request(
        &mut self,
        id: Value,
        batch: Option<BatchId>,
        method: &str,
        params: &Map<String, Value>,
    ) {
        let handling = match (method, batch) {
            ("initialize", Some(_)) => Err(RpcError::invalid_request(
                "initialize cannot be part of a batch",
            )),
            _ => self.handle(method, params),
        };
        let generation = match method {
            "server/discover" => McpGeneration::Newer,
            _ => protocol::generation(params),
        };
        match handling {
            Ok(Handling::InTurn(kind)) => self.order.add(McpWork {
                id,
                batch,
                generation,
                kind,
                is_cancelled: false,
            }),
            Ok(Handling::Now(result)) => {
                let result = generation.result(result);
                self.reply(batch, Some(json_rpc::answer(&id, result)));
            }
            Err(error) => self.reply(batch, Some(error.answer(&id))),
        }
    }

    fn handle(&mut self, method: &str, params: &Map<String, Value>) -> Result<Handling, RpcError> {
        self.check_time(method, params)?;
        let result = match method {
            "initialize" => self.initialize(params)?,
            "server/discover" => {
                protocol::discovered(json!({"tools": {}, "resources": {}}), &self.instructions)
            }
            "ping" => protocol::complete(json!({})),
            "tools/call" => return call(params),
            "tools/list" => {
                protocol::only_page(params)?;
                protocol::listed(&self.offers)
            }
            "resources/list" => {
                protocol::only_page(params)?;
                self.resources()
            }
            "resources/templates/list" => protocol::cached(json!({"resourceTemplates": []})),
            "resources/read" => {
                let (_, name) = self.resource(params)?;
                return Ok(Handling::InTurn(WorkKind::Screen(name)));
            }
            "resources/subscribe" => {
                let (uri, _) = self.resource(params)?;
                self.subscribed.insert(uri);
                protocol::complete(json!({}))
            }
            "resources/unsubscribe" => {
                self.subscribed.remove(uri_of(params)?);
                protocol::complete(json!({}))
            }
            other => return Err(RpcError::unknown_method(other)),
        };
        Ok(Handling::Now(result))
    }

    /// Refuses what comes before `initialize`, unless it names a version itself, as the newer generation does.
    fn check_time(&self, method: &str, params: &Map<String, Value>) -> Result<(), RpcError> {
        if ["initialize", "ping"].contains(&method) {
            return Ok(());
        }
        match protocol::named_version(params) {
            Some(version) => protocol::check_version(version),
            None if self.version.is_some() || method == "server/discover" => Ok(()),
            None => Err(RpcError::invalid_request(
                "the session has not begun: initialize comes first",
            )),
        }
    }

    fn initialize(&mut self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        let capabilities = json!({
            "tools": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
        });
        let mut result = protocol::initialized(params, capabilities)?;
        result["instructions"] = self.instructions.as_str().into();
        self.version = result["protocolVersion"].as_str().map(str::to_owned);
        Ok(result)
    }

    fn resources(&self) -> Value {
        let resource = |offer: &ToolOffer| {
            json!({
                "uri": address(&offer.name),
                "name": offer.name,
                "description": format!("The screen of {}: what it shows now.", offer.name),
                "mimeType": "text/plain",
            })
        };
        let resources: Vec<Value> = self.offers.iter().map(resource).collect();
        protocol::cached(json!({"resources": resources}))
    }

    /// The address of a screen, and its environment.
    fn resource(&self, params: &Map<String, Value>) -> Result<(String, String), RpcError> {
        let uri = uri_of(params)?;
        let offer = self.offers.iter().find(|offer| address(&offer.name) == uri);
        let offer = offer.ok_or_else(|| RpcError::no_resource(uri))?;
        Ok((uri.to_owned(), offer.name.clone()))
    }

    fn cancel(&mut self, id: &Value) {
        if let Some(current) = self.current.as_mut().filter(|current| current.id == *id) {
            current.is_cancelled = true;
            return;
        }
        for work in self.order.waiting().filter(|work| work.id == *id) {
            work.is_cancelled = true;
        }
    }
}

impl InputQueue for McpSession {
    type Item = McpItem;

    fn push(&mut self, bytes: &[u8]) {
        let lines = self.lines.push(bytes);
        lines.into_iter().for_each(|line| self.line(line));
    }

    fn close(&mut self) {
        if let Some(line) = self.lines.end() {
            self.line(line);
        }
        self.is_closed = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn take(&mut self) -> Option<McpItem> {
        loop {
            if let Some(message) = self.take_message() {
                return Some(McpItem::Send(message));
            }
            let item = self.order.take()?;
            if !item.request.is_cancelled {
                return Some(McpItem::CarryOut(item));
            }
            self.reply(item.request.batch, None);
        }
    }
}

fn call(params: &Map<String, Value>) -> Result<Handling, RpcError> {
    let NamedCall { name, arguments } = protocol::named_call(params)?;
    let raw = arguments.to_string();
    let progress = params
        .get("_meta")
        .map(|meta| meta["progressToken"].clone())
        .filter(|token| token.is_string() || token.is_number());
    Ok(Handling::InTurn(WorkKind::Call(EnvironmentCall {
        name,
        command: tools::read(&arguments, Some(&raw)),
        progress,
    })))
}

/// The address of the screen of an environment.
pub(super) fn address(name: &str) -> String {
    format!("{SCREEN}{name}")
}

fn uri_of(params: &Map<String, Value>) -> Result<&str, RpcError> {
    let uri = params.get("uri").and_then(Value::as_str);
    uri.ok_or_else(|| RpcError::invalid_params("\"uri\" must be a string"))
}
