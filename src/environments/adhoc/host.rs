//! One of the user's environments, in a process of its own (`process.rs`).
//!
//! It is started before it is needed and asked for its screen after every command, so every wait has a time limit. A
//! host that is late, silent, dead or sends garbage is reported, does not affect others, and is started again by its next
//! command.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::environments::adhoc::messages::{HostMessage, cleaned, section};
use crate::environments::adhoc::own::{LOADING_PATIENCE, OwnEnvironment};
use crate::environments::adhoc::process::{HostProcess, LaunchError};
use crate::environments::adhoc::{AdhocKind, FoundEnvironment, find_one};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};

pub(crate) use crate::environments::adhoc::process::HostStart;

const SCREEN_PATIENCE: Duration = Duration::from_secs(2);
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

/// One of the user's environments.
pub(crate) struct HostEnvironment {
    found: FoundEnvironment,
    start: HostStart,
    print: fn(&str),
    process: Option<HostProcess>,
    /// The last screen.
    screen: ScreenSection,
    is_running: bool,
    last_end: String,
    /// Why the last start failed.
    problem: Option<String>,
}

impl HostEnvironment {
    /// Starts a host, which loads in the background. `print` writes a line to the user.
    pub(crate) fn new(
        found: FoundEnvironment,
        start: HostStart,
        print: fn(&str),
    ) -> HostEnvironment {
        let mut host = HostEnvironment {
            found,
            start,
            print,
            process: None,
            screen: ScreenSection::new("[loading]"),
            is_running: false,
            last_end: String::new(),
            problem: None,
        };
        host.load();
        host
    }

    fn load(&mut self) {
        if let Err(error) = self.launch() {
            self.failed_to_load(&error.to_string());
        }
    }

    fn launch(&mut self) -> Result<(), LaunchError> {
        self.problem = None;
        let process = HostProcess::launch(&self.found, &self.start, self.print, LOADING_PATIENCE)?;
        self.screen = match process.is_loading {
            true => ScreenSection::new("[loading]"),
            false => ready(&self.found.name),
        };
        self.process = Some(process);
        Ok(())
    }

    fn failed_to_load(&mut self, why: &str) {
        self.failed(format!(
            "Failed to load environment '{}': {why}",
            self.found.name
        ));
    }

    fn failed(&mut self, problem: String) {
        (self.print)(&problem);
        self.process = None;
        self.screen = ScreenSection::new(problem.clone());
        self.problem = Some(problem);
    }

    /// Handles the first message of a Python host.
    fn loaded(&mut self, message: HostMessage) {
        match message {
            HostMessage::Object(value) if value["ready"] == true => {
                (self.print)(&format!("Loaded ad-hoc environment: {}", self.found.name));
                self.screen = ready(&self.found.name);
                if let Some(process) = &mut self.process {
                    process.is_loading = false;
                }
            }
            HostMessage::Object(value) => match value["failed"].as_str() {
                Some(problem) => self.failed(problem.to_owned()),
                None => self.failed_to_load("its host sent an invalid message"),
            },
            HostMessage::Invalid(text) => self.failed_to_load(&text),
            HostMessage::Closed => {
                let how = self.reap_after_exit();
                self.failed_to_load(&format!("its host ended ({how})"));
            }
        }
    }

    fn is_loading(&self) -> bool {
        self.process
            .as_ref()
            .is_some_and(|process| process.is_loading)
    }

    fn receive(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> Option<HostMessage> {
        self.process.as_mut()?.receive(deadline, wake)
    }

    /// Waits a little for a host that has closed its channel to exit, then ends it; returns how it ended.
    fn reap_after_exit(&mut self) -> String {
        let process = self.process.take();
        process.map_or_else(|| "ended".into(), |process| process.end_after_exit().0)
    }

    /// Ends the host.
    fn reap(&mut self) {
        if let Some(process) = self.process.take() {
            process.end();
        }
    }

    /// Keeps the answer to a request for the screen; returns whether it is one.
    fn take_screen(&mut self, value: &Value) -> bool {
        let Some(process) = &mut self.process else {
            return false;
        };
        let is_screen = process.screen_due.is_some() && value.get("content").is_some();
        if is_screen {
            process.screen_due = None;
            self.screen = section(value);
        }
        is_screen
    }

    fn died(&mut self) -> Response {
        let how = self.reap_after_exit();
        self.is_over(&how);
        Response::failed(format!(
            "environment {} ended ({how}); its state is lost, and the next command starts it again",
            self.found.name
        ))
    }

    fn sent_invalid_response(&mut self, text: &str) -> Response {
        self.reap();
        self.is_over("it sent an invalid response");
        Response::failed(format!(
            "environment {} sent an invalid response and was stopped: {text}",
            self.found.name
        ))
    }

    fn is_over(&mut self, how: &str) {
        self.last_end = how.to_owned();
        self.is_running = false;
        self.screen = ScreenSection::new(format!("{} (ended: {how})", self.found.name));
    }

    /// Handles the answer to a command.
    fn answered(&mut self, value: &Value) -> Response {
        self.is_running = false;
        let (Some(text), Some(success)) = (value["output"].as_str(), value["success"].as_bool())
        else {
            return Response::failed(format!(
                "invalid response of environment {}: expected output and success, found {value}",
                self.found.name
            ));
        };
        self.last_end = if success { "it succeeded" } else { "it failed" }.into();
        Response {
            output: cleaned(text),
            success,
            running: false,
        }
    }

    /// The end of a wait while it loads; nothing if a command waits for it.
    fn end_of_loading(&mut self) -> Option<Response> {
        match &self.problem {
            None if self.is_running => None,
            None => Some(Response::done(format!("Loaded {}", self.found.name))),
            Some(problem) => {
                self.is_running = false;
                self.last_end = "it could not be loaded".into();
                Some(Response::failed(problem.clone()))
            }
        }
    }

    /// Finds the file again, which may have another kind or be gone.
    fn find_again(&self) -> Option<FoundEnvironment> {
        let folder = self.found.path.parent().and_then(Path::parent);
        find_one(folder.unwrap_or(&self.start.project), &self.found.name)
    }
}

impl OwnEnvironment for HostEnvironment {
    fn is_offered(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> bool {
        while self.is_loading() {
            match self.receive(Some(deadline), wake) {
                Some(message) => self.loaded(message),
                None => return true,
            }
        }
        self.problem.is_none()
    }
}

impl Environment for HostEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        if self.process.is_none()
            && let Err(error) = self.launch()
        {
            return Some(Response::failed(format!(
                "Failed to start the environment {}: {error}",
                self.found.name
            )));
        }
        let process = self.process.as_mut()?;
        let message = json!({"type": "command", "command": command});
        process.send(&message, Instant::now() + LOADING_PATIENCE);
        self.is_running = true;
        None
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        loop {
            match self.receive(until.deadline, Some(until.wake)) {
                Some(message) if self.is_loading() => {
                    self.loaded(message);
                    if let Some(response) = self.end_of_loading() {
                        return WaitResult::Ended(response);
                    }
                }
                Some(HostMessage::Object(value)) if self.take_screen(&value) => {}
                Some(HostMessage::Object(value)) => {
                    return WaitResult::Ended(self.answered(&value));
                }
                Some(HostMessage::Invalid(text)) => {
                    return WaitResult::Ended(self.sent_invalid_response(&text));
                }
                Some(HostMessage::Closed) => return WaitResult::Ended(self.died()),
                None if self.process.is_none() => return WaitResult::Ended(self.died()),
                None if until.is_over() => return WaitResult::Late,
                None => return WaitResult::Woken,
            }
        }
    }

    fn take_output(&mut self) -> String {
        String::new()
    }

    fn is_running(&self) -> bool {
        self.is_running || self.is_loading()
    }

    fn interrupt(&mut self) {
        if let Some(process) = &mut self.process {
            process.child.signal_group(Signal::INT);
        }
    }

    fn restart(&mut self) {
        self.reap();
        self.is_running = false;
        let found = self.find_again();
        let Some(found) = found.filter(|found| found.kind != AdhocKind::Mcp) else {
            return self.failed_to_load("its file is gone");
        };
        self.found = found;
        self.load();
        self.is_offered(Instant::now() + LOADING_PATIENCE, None);
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn prepare_screen(&mut self) {
        if self.is_running() {
            return;
        }
        if let Some(process) = &mut self.process
            && process.screen_due.is_none()
        {
            let due = Instant::now() + SCREEN_PATIENCE;
            process.send(&json!({"type": "screen"}), due);
            process.screen_due = Some(due);
        }
    }

    fn screen(&mut self) -> ScreenSection {
        let due = self.process.as_ref().and_then(|process| process.screen_due);
        let Some(due) = due.filter(|_| !self.is_running()) else {
            return self.screen.clone();
        };
        match self.receive(Some(due), None) {
            Some(HostMessage::Object(value)) => drop(self.take_screen(&value)),
            Some(HostMessage::Invalid(text)) => drop(self.sent_invalid_response(&text)),
            Some(HostMessage::Closed) => drop(self.died()),
            None => {
                let content = format!(
                    "{}\n[the screen is late; this is the last one]",
                    self.screen.content
                );
                return ScreenSection {
                    content,
                    max_lines: self.screen.max_lines + 1,
                };
            }
        }
        self.screen.clone()
    }

    fn prepare_shutdown(&mut self) {
        if self.is_running() {
            return;
        }
        if let Some(process) = &mut self.process {
            let due = Instant::now() + SHUTDOWN_PATIENCE;
            process.send(&json!({"type": "shutdown"}), due);
            process.end_due = Some(due);
        }
    }

    fn shutdown(&mut self) {
        if let Some(due) = self.process.as_ref().and_then(|process| process.end_due) {
            while let Some(HostMessage::Object(_)) = self.receive(Some(due), None) {}
        }
        self.reap();
    }
}

/// The screen before the first one of the host.
fn ready(name: &str) -> ScreenSection {
    ScreenSection::new(format!("{name} (ready)"))
}
