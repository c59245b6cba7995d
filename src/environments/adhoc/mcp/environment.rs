//! An MCP server as an environment.
//!
//! It loads in the background, like every host: until its tools are known, it counts as running. A server that dies,
//! is silent or sends what is not a message is reported, and is started again by its next command.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::environments::adhoc::mcp::command;
use crate::environments::adhoc::mcp::connection::{McpConnection, McpNews};
use crate::environments::adhoc::messages::HostMessage;
use crate::environments::adhoc::own::{LOADING_PATIENCE, OwnEnvironment};
use crate::environments::adhoc::process::{HostProcess, HostStart, LaunchError};
use crate::environments::adhoc::{AdhocKind, FoundEnvironment, find_one};
use crate::environments::output::on_own_line;
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};

/// How long the screen waits for a list of tools that has changed.
const LIST_PATIENCE: Duration = Duration::from_secs(2);
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);
/// How many invalid lines are printed, and after how many the server is stopped.
const PRINTED_GARBAGE: usize = 20;
const MAX_GARBAGE: usize = 10_000;
/// So many messages are handled before the time is looked at again.
const MESSAGES_AT_ONCE: usize = 100;
/// More lines are not shown of a screen.
const MAX_LINES: usize = 400;
/// Bytes of the list of tools on the screen, which every result repeats, and of the list that is asked for.
const SHOWN_LIST: usize = 8 << 10;
const PRINTED_LIST: usize = 15 << 10;

/// An MCP server of the user.
pub(crate) struct McpEnvironment {
    found: FoundEnvironment,
    start: HostStart,
    print: fn(&str),
    connection: Option<McpConnection>,
    /// A command that begins when the tools are known.
    waiting: Option<String>,
    garbage: usize,
    /// The screen without a server.
    ended: String,
    last_end: String,
    /// Why the last start failed.
    problem: Option<String>,
}

impl McpEnvironment {
    /// Starts a server, which loads in the background. `print` writes a line to the user.
    pub(crate) fn new(
        found: FoundEnvironment,
        start: HostStart,
        print: fn(&str),
    ) -> McpEnvironment {
        let mut environment = McpEnvironment {
            found,
            start,
            print,
            connection: None,
            waiting: None,
            garbage: 0,
            ended: String::new(),
            last_end: String::new(),
            problem: None,
        };
        environment.load();
        environment
    }

    fn load(&mut self) {
        if let Err(error) = self.launch() {
            self.failed_to_load(&error.to_string());
        }
    }

    fn launch(&mut self) -> Result<(), LaunchError> {
        self.problem = None;
        self.garbage = 0;
        let process = HostProcess::launch(&self.found, &self.start, self.print, LOADING_PATIENCE)?;
        self.connection = Some(McpConnection::begin(process, &self.start.project));
        Ok(())
    }

    fn is_loading(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.process.is_loading)
    }

    fn failed_to_load(&mut self, why: &str) {
        let problem = format!("Failed to load environment '{}': {why}", self.found.name);
        (self.print)(&problem);
        self.end();
        self.ended.clone_from(&problem);
        self.problem = Some(problem);
    }

    /// Ends the server.
    fn end(&mut self) {
        self.waiting = None;
        if let Some(connection) = self.connection.take() {
            connection.process.end();
        }
    }

    fn died(&mut self) -> Response {
        let was_loading = self.is_loading();
        let (how, printed) = match self.connection.take() {
            Some(connection) => connection.process.end_after_exit(),
            None => ("ended".to_owned(), String::new()),
        };
        let printed = match printed.is_empty() {
            true => String::new(),
            false => format!("; it printed:\n{}", printed.trim_end()),
        };
        if was_loading {
            return self.not_loaded(&format!("its server ended ({how}){printed}"));
        }
        self.is_over(&how);
        Response::failed(on_own_line(format!(
            "environment {} ended ({how}); its state is lost, and the next command starts it again{printed}",
            self.found.name
        )))
    }

    fn is_over(&mut self, how: &str) {
        self.end();
        self.last_end = how.to_owned();
        self.ended = format!("{} (ended: {how})", self.found.name);
    }

    /// The end of a wait for a server that cannot be used.
    fn not_loaded(&mut self, why: &str) -> Response {
        self.failed_to_load(why);
        self.last_end = "it could not be loaded".into();
        Response::failed(on_own_line(self.ended.clone()))
    }

    fn receive(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> Option<HostMessage> {
        self.connection.as_mut()?.process.receive(deadline, wake)
    }

    /// Handles a message; returns the end of what is being waited for.
    fn take_message(&mut self, message: HostMessage) -> Option<Response> {
        let news = match message {
            HostMessage::Closed => return Some(self.died()),
            HostMessage::Invalid(text) => return self.take_garbage(&text),
            HostMessage::Object(message) => self.connection.as_mut()?.handle(message),
        };
        match news {
            McpNews::Nothing => None,
            McpNews::Log(text) => {
                self.log(&text);
                None
            }
            McpNews::Loaded => self.loaded(),
            McpNews::Unusable(why) if self.is_loading() => Some(self.not_loaded(&why)),
            McpNews::Unusable(why) => {
                self.log(&why);
                self.loaded()
            }
            McpNews::Called(response) => {
                let word = if response.success {
                    "succeeded"
                } else {
                    "failed"
                };
                self.last_end = format!("it {word}");
                Some(response)
            }
        }
    }

    fn log(&self, text: &str) {
        (self.print)(&format!("[{}] {}", self.found.name, text.trim_end()));
    }

    /// A line that is not a message does no harm, but a flood of them ends the server.
    fn take_garbage(&mut self, text: &str) -> Option<Response> {
        self.garbage += 1;
        if self.garbage <= PRINTED_GARBAGE {
            self.log(&format!("not a message of MCP: {text}"));
        }
        if self.garbage < MAX_GARBAGE {
            return None;
        }
        let problem = format!("its server printed {MAX_GARBAGE} lines that are no messages");
        if self.is_loading() {
            return Some(self.not_loaded(&problem));
        }
        self.is_over(&problem);
        Some(Response::failed(format!(
            "environment {} was stopped: {problem}\n",
            self.found.name
        )))
    }

    /// The tools are known: begins the command that waits for them, or ends the wait for the server itself.
    fn loaded(&mut self) -> Option<Response> {
        let was_loading = self.is_loading();
        if let Some(connection) = self.connection.as_mut().filter(|_| was_loading) {
            connection.process.is_loading = false;
            (self.print)(&format!("Loaded ad-hoc environment: {}", self.found.name));
        }
        match self.waiting.take() {
            Some(command) => self.call(&command),
            None if was_loading => Some(Response::done(format!("Loaded {}", self.found.name))),
            None => None,
        }
    }

    /// Begins a call; returns a response if there is none to wait for.
    fn call(&mut self, text: &str) -> Option<Response> {
        let connection = self.connection.as_mut()?;
        if text.trim().is_empty() {
            return Some(Response::done(connection.screen(PRINTED_LIST)));
        }
        match command::parse(text).and_then(|line| connection.take(line)) {
            Ok(description) => description.map(Response::done),
            Err(problem) => Some(Response::failed(problem)),
        }
    }

    /// Handles what the server has sent while it was idle.
    fn read_now(&mut self) {
        for _ in 0..MESSAGES_AT_ONCE {
            match self.receive(Some(Instant::now()), None) {
                Some(message) => drop(self.take_message(message)),
                None => return,
            }
        }
    }
}

impl OwnEnvironment for McpEnvironment {
    fn is_offered(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> bool {
        while self.is_loading() && Instant::now() < deadline {
            match self.receive(Some(deadline), wake) {
                Some(message) => drop(self.take_message(message)),
                None => return true,
            }
        }
        self.problem.is_none()
    }
}

impl Environment for McpEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        self.read_now();
        if self.connection.is_none()
            && let Err(error) = self.launch()
        {
            return Some(Response::failed(format!(
                "Failed to start the environment {}: {error}\n",
                self.found.name
            )));
        }
        let is_listing = self
            .connection
            .as_ref()
            .is_some_and(McpConnection::is_listing);
        if self.is_loading() || is_listing {
            self.waiting = Some(command.to_owned());
            return None;
        }
        self.call(command)
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        for count in 1.. {
            let Some(connection) = &mut self.connection else {
                return WaitResult::Ended(self.died());
            };
            let ends = connection.call_ends();
            let deadline = [until.deadline, ends].into_iter().flatten().min();
            let message = connection.process.receive(deadline, Some(until.wake));
            match message {
                Some(message) => {
                    if let Some(response) = self.take_message(message) {
                        return WaitResult::Ended(response);
                    }
                }
                None if ends.is_some_and(|ends| ends <= Instant::now()) => {
                    self.last_end = "it was interrupted".into();
                    return WaitResult::Ended(connection.give_up());
                }
                None if until.is_over() => return WaitResult::Late,
                None => return WaitResult::Woken,
            }
            if count % MESSAGES_AT_ONCE == 0 {
                break;
            }
        }
        match until.is_over() {
            true => WaitResult::Late,
            false => WaitResult::Woken,
        }
    }

    fn take_output(&mut self) -> String {
        let progress = self
            .connection
            .as_mut()
            .and_then(McpConnection::take_progress);
        progress.unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        let is_calling = self
            .connection
            .as_ref()
            .is_some_and(McpConnection::is_calling);
        is_calling || self.waiting.is_some() || self.is_loading()
    }

    fn interrupt(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.cancel();
        }
    }

    fn restart(&mut self) {
        self.end();
        let folder = self.found.path.parent().and_then(Path::parent);
        let found = find_one(folder.unwrap_or(&self.start.project), &self.found.name);
        match found.filter(|found| found.kind == AdhocKind::Mcp) {
            None => self.failed_to_load("its file is gone"),
            Some(found) => {
                self.found = found;
                self.load();
                self.is_offered(Instant::now() + LOADING_PATIENCE, None);
            }
        }
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn prepare_screen(&mut self) {
        if !self.is_running() {
            self.read_now();
        }
    }

    fn screen(&mut self) -> ScreenSection {
        let due = Instant::now() + LIST_PATIENCE;
        while !self.is_running()
            && self
                .connection
                .as_ref()
                .is_some_and(McpConnection::is_listing)
            && let Some(message) = self.receive(Some(due), None)
        {
            drop(self.take_message(message));
        }
        let content = match &self.connection {
            None => self.ended.clone(),
            Some(_) if self.is_loading() => "[loading]".to_owned(),
            Some(connection) => connection.screen(SHOWN_LIST),
        };
        let max_lines = content
            .lines()
            .count()
            .clamp(ScreenSection::MAX_LINES, MAX_LINES);
        ScreenSection { content, max_lines }
    }

    fn prepare_shutdown(&mut self) {
        if self.is_running() {
            return;
        }
        if let Some(connection) = &mut self.connection {
            connection.process.close_input();
            connection.process.end_due = Some(Instant::now() + SHUTDOWN_PATIENCE);
        }
    }

    fn shutdown(&mut self) {
        let due = self
            .connection
            .as_ref()
            .and_then(|connection| connection.process.end_due);
        if let Some(due) = due {
            while Instant::now() < due
                && let Some(HostMessage::Object(_) | HostMessage::Invalid(_)) =
                    self.receive(Some(due), None)
            {}
        }
        self.end();
    }
}
