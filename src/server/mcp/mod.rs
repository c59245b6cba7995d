//! Serves the environments as tools of an MCP server, and their screens as resources, on stdin and stdout.
//!
//! Requests run as in `serve`: one at a time, in the order in which they were read, on one thread. `session.rs` reads
//! and answers what needs no environment; this file carries out the rest.

mod batches;
mod session;
mod ticker;

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use serde_json::{Value, json};

use crate::cancel::CancelToken;
use crate::conversation::tool_text;
use crate::conversation::tools::{CallRefusal, ToolAction, ToolCommand};
use crate::environments::adhoc::{self, AdhocKind, FoundEnvironment};
use crate::environments::builtin::BUILT_IN;
use crate::environments::registry::{ControlAction, Registry, UrgentAction, Waiter};
use crate::environments::{Response, ScreenSection};
use crate::json_rpc::{self, RpcError};
use crate::llm::ToolOffer;
use crate::llm::mcp::ToolOutcome;
use crate::llm::mcp::protocol;
use crate::process::sandbox::SandboxPolicy;
use crate::secrets::Secrets;
use crate::server::mcp::session::{EnvironmentCall, McpItem, McpSession, McpWork, WorkKind};
use crate::server::mcp::ticker::Ticker;
use crate::server::order::QueuedItem;
use crate::server::streams::{AnswerWriter, Output, Streams};
use crate::server::{ServeEnd, end_of};

/// When progress is reported first, and how often after that.
const FIRST_PROGRESS: Duration = Duration::from_millis(500);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// How long a cancelled command may take to end; after that it keeps running, and the next request is carried out.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// What the MCP server knows of its environments.
pub(crate) struct McpServing<'a> {
    pub registry: &'a mut Registry,
    pub project: PathBuf,
    pub policy: Option<SandboxPolicy>,
}

/// Serves until the input ends, a signal comes, or stdout is closed; then ends every environment.
pub(crate) fn serve(serving: McpServing<'_>, cancel: &CancelToken) -> io::Result<ServeEnd> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let ticker = Ticker::new()?;
    let mut service = McpService {
        serving,
        used: Vec::new(),
        shown: BTreeMap::new(),
        ticker,
        wake: events.as_fd(),
    };
    let session = McpSession::new(service.offers(), service.instructions());
    let mut streams = Streams::new(cancel, events.as_fd(), session)?;
    streams.watch_timer(service.ticker.as_fd())?;
    let served = service.answer_all(&mut streams);
    let end = end_of(&streams, cancel);
    service.serving.registry.shutdown();
    served.map(|()| end)
}

type McpStreams<'a> = Streams<'a, McpSession>;

/// Carries out requests.
struct McpService<'a> {
    serving: McpServing<'a>,
    /// The environments used so far.
    used: Vec<String>,
    /// The screens that the client subscribes to, as it knows them.
    shown: BTreeMap<String, String>,
    ticker: Ticker,
    wake: BorrowedFd<'a>,
}

impl McpService<'_> {
    fn answer_all(&mut self, streams: &mut McpStreams<'_>) -> io::Result<()> {
        let output = Output::open()?;
        while let Some(item) = streams.next() {
            match item {
                McpItem::Send(message) => {
                    if write(&message, &output, streams).is_err() {
                        streams.end_at_once();
                    }
                }
                McpItem::CarryOut(item) => self.carry_out(&item, streams, &output),
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        item: &QueuedItem<McpWork>,
        streams: &mut McpStreams<'_>,
        output: &Output,
    ) {
        streams.queue.begin(&item.request);
        let result = match &item.request.kind {
            WorkKind::Screen(name) => self.screen(name),
            WorkKind::Call(call) => {
                let outcome = self.call(call, item.is_done, streams, output);
                Ok(protocol::called(&outcome))
            }
        };
        if !streams.is_over() {
            streams.queue.finish(&item.request, result);
        }
    }

    fn screen(&mut self, name: &str) -> Result<Value, RpcError> {
        let uri = session::address(name);
        let mut screens = self.serving.registry.screens().into_iter();
        let found = screens.find(|(known, _)| known == name);
        let (_, section) = found.ok_or_else(|| RpcError::no_resource(&uri))?;
        let content = json!({"uri": uri, "mimeType": "text/plain", "text": section.content});
        Ok(protocol::cached(json!({"contents": [content]})))
    }

    fn call(
        &mut self,
        call: &EnvironmentCall,
        is_done: bool,
        streams: &mut McpStreams<'_>,
        output: &Output,
    ) -> ToolOutcome {
        let (mut text, is_error) = match self.understood(call, streams) {
            Err(refusal) => (format!("not run: {refusal}\n"), true),
            Ok(command) => {
                let response = self.execute(call, command, is_done, streams, output);
                if !self.used.contains(&call.name) {
                    self.used.push(call.name.clone());
                }
                let is_error = !response.success;
                let policy = self.serving.policy.as_ref();
                let text = tool_text::output_text(response, &Secrets::default(), policy);
                (text, is_error)
            }
        };
        if !streams.is_over() {
            let screens = self.serving.registry.screens();
            self.notify(&screens, streams);
            text += &tool_text::screens_text(screens, &self.used, &call.name, &Secrets::default());
        }
        ToolOutcome { text, is_error }
    }

    fn understood<'c>(
        &self,
        call: &'c EnvironmentCall,
        streams: &McpStreams<'_>,
    ) -> Result<&'c ToolCommand, CallRefusal> {
        // A restart may find an environment that is new.
        let is_restart = matches!(
            &call.command,
            Ok(command) if command.action == ToolAction::Control(ControlAction::Restart)
        );
        if !is_restart && !self.serving.registry.has(&call.name) {
            return Err(tool_text::unknown_tool(&call.name, streams.queue.offers()));
        }
        call.command.as_ref().map_err(CallRefusal::clone)
    }

    fn execute(
        &mut self,
        call: &EnvironmentCall,
        command: &ToolCommand,
        is_done: bool,
        streams: &mut McpStreams<'_>,
        output: &Output,
    ) -> Response {
        let mut watch = CallWatch {
            call,
            began: Instant::now(),
            is_begun: matches!(command.action, ToolAction::Control(_)),
            cancelled: None,
            ticker: &self.ticker,
            streams,
            output,
        };
        let mut urgent = |environment: &str| watch.urgent(environment);
        let mut waiter = Waiter {
            wake: self.wake,
            urgent: &mut urgent,
        };
        self.ticker.start(FIRST_PROGRESS, PROGRESS_INTERVAL);
        let registry = &mut *self.serving.registry;
        let timeout = Some(command.timeout);
        let response = match &command.action {
            ToolAction::Run(text) => registry.command(&call.name, text, timeout, &mut waiter),
            ToolAction::Control(action) => {
                let timeout = timeout.filter(|_| *action == ControlAction::Wait);
                registry.control(&call.name, *action, timeout, is_done, &mut waiter)
            }
        };
        self.ticker.stop();
        response
    }

    /// Notifies the client which tools are new, and which screens have changed.
    fn notify(&mut self, screens: &[(String, ScreenSection)], streams: &mut McpStreams<'_>) {
        let session = &mut streams.queue;
        if screens.len() != session.offers().len() {
            session.set_offers(self.offers());
        }
        for (name, section) in screens {
            if !session.is_subscribed(name) {
                self.shown.remove(name);
            } else if self.shown.get(name) != Some(&section.content) {
                self.shown.insert(name.clone(), section.content.clone());
                session.screen_changed(name);
            }
        }
    }

    fn offers(&self) -> Vec<ToolOffer> {
        let names = self.serving.registry.names();
        let own = names.into_iter().filter(|name| !BUILT_IN.contains(name));
        let found = |name: &str| {
            adhoc::find_one(&self.serving.project, name).unwrap_or_else(|| FoundEnvironment {
                name: name.to_owned(),
                kind: AdhocKind::Executable,
                path: PathBuf::new(),
            })
        };
        tool_text::offers(&own.map(found).collect::<Vec<_>>())
    }

    fn instructions(&self) -> String {
        format!(
            "Every tool keeps its state between calls and works in {}. Calls run one after the other; a command that \
             takes longer than its timeout keeps running, and the actions wait, interrupt and restart control it. \
             What a tool shows now is its resource {}.",
            self.serving.project.display(),
            session::address("NAME")
        )
    }
}

/// What is done while a call is waited for.
struct CallWatch<'a, 'b> {
    call: &'a EnvironmentCall,
    began: Instant,
    /// Whether the queue knows that a command has begun.
    is_begun: bool,
    cancelled: Option<Instant>,
    ticker: &'a Ticker,
    streams: &'a mut McpStreams<'b>,
    output: &'a Output,
}

impl CallWatch<'_, '_> {
    fn urgent(&mut self, environment: &str) -> UrgentAction {
        self.streams.read_now();
        if !std::mem::replace(&mut self.is_begun, true) {
            self.streams.queue.begin_command(environment);
        }
        if self.ticker.has_ticked() && self.cancelled.is_none() {
            self.report_progress();
        }
        self.send_all();
        match self.cancelled {
            _ if self.streams.is_over() => UrgentAction::End,
            Some(since) if CANCEL_PATIENCE <= since.elapsed() => UrgentAction::End,
            None if self.streams.queue.is_cancelled() => {
                self.cancelled = Some(Instant::now());
                UrgentAction::Interrupt
            }
            _ => self.streams.queue.take_urgent(environment),
        }
    }

    fn report_progress(&mut self) {
        let Some(token) = &self.call.progress else {
            return;
        };
        let seconds = self.began.elapsed().as_millis() as f64 / 1000.0;
        let params = json!({
            "progressToken": token,
            "progress": seconds,
            "message": format!("{}: running for {seconds:.1} s", self.call.name),
        });
        let message = json_rpc::notification("notifications/progress", params);
        self.streams.queue.send(message);
    }

    /// Answers what needs no environment.
    fn send_all(&mut self) {
        while !self.streams.is_over()
            && let Some(message) = self.streams.queue.take_message()
        {
            if write(&message, self.output, self.streams).is_err() {
                self.streams.end_at_once();
            }
        }
    }
}

fn write(message: &Value, output: &Output, streams: &mut McpStreams<'_>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, AnswerWriter { output, streams });
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    out.flush()
}
