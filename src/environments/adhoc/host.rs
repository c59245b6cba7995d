//! The process behind one of the user's environments: a line of JSON each way.
//!
//! It is started before it is needed and asked for its screen after every command, so everything here has a limit in
//! time: one that is late, silent, babbling or dead is reported, does no harm, and starts anew at its next command.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::messages::{HostLines, HostMessage, cleaned, section};
use super::{AdhocKind, FoundEnvironment, program};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::process::child::{ChildProcess, StopMode};
use crate::process::{Job, JobEnd, Launcher};

/// How long a host may take until it is loaded before others stop waiting for it.
pub const LOADING_PATIENCE: Duration = Duration::from_secs(10);
const SCREEN_PATIENCE: Duration = Duration::from_secs(2);
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);
/// How long one that has closed its channel may take until it is gone by itself.
const PARTING_PATIENCE: Duration = Duration::from_secs(2);

const HOST: &str = include_str!("host.py");
const TYPES: &str = include_str!("types.py");
const INTERACTIVE: &str = include_str!("interactive.py");

/// What every host is started with.
#[derive(Debug, Clone)]
pub struct HostStart {
    pub launcher: Launcher,
    pub project: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    /// The interpreter, where there is one.
    pub python: Option<PathBuf>,
}

/// One of the user's environments.
pub struct HostEnvironment {
    found: FoundEnvironment,
    start: HostStart,
    tell: fn(&str),
    alive: Option<HostProcess>,
    /// What the last screen said.
    screen: ScreenSection,
    is_running: bool,
    end: String,
    /// Why the last start came to nothing.
    problem: Option<String>,
}

struct HostProcess {
    child: ChildProcess,
    channel: UnixStream,
    lines: HostLines,
    state: HostState,
    /// When an answer about the screen is late.
    screen_due: Option<Instant>,
    /// When its own end is late.
    end_due: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostState {
    Loading,
    Ready,
}

impl HostEnvironment {
    /// Starts a host; it loads while others do. `tell` writes a line to the user.
    pub fn new(found: FoundEnvironment, start: HostStart, tell: fn(&str)) -> HostEnvironment {
        let mut host = HostEnvironment {
            found,
            start,
            tell,
            alive: None,
            screen: ScreenSection::new("[loading]"),
            is_running: false,
            end: String::new(),
            problem: None,
        };
        host.load();
        host
    }

    /// Waits until the host is loaded or has failed, or until `wake`; returns whether it is to be offered. A late one is.
    pub fn is_offered(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> bool {
        while self.is_loading() {
            match self.hear(Some(deadline), wake) {
                Some(said) => self.loaded(said),
                None => return true,
            }
        }
        self.problem.is_none()
    }

    fn load(&mut self) {
        if let Err(problem) = self.launch() {
            self.failed(format!(
                "Failed to load environment '{}': {problem}",
                self.found.name
            ));
        }
    }

    fn failed(&mut self, problem: String) {
        (self.tell)(&problem);
        self.alive = None;
        self.screen = ScreenSection::new(problem.clone());
        self.problem = Some(problem);
    }

    /// Takes in the first word of a Python host.
    fn loaded(&mut self, said: HostMessage) {
        let name = self.found.name.clone();
        match said {
            HostMessage::Line(value) if value["ready"] == true => {
                (self.tell)(&format!("Loaded ad-hoc environment: {name}"));
                self.screen = ready(&name);
                if let Some(alive) = &mut self.alive {
                    alive.state = HostState::Ready;
                }
            }
            HostMessage::Line(value) => self.failed(
                value["failed"]
                    .as_str()
                    .unwrap_or("a host said something odd")
                    .to_owned(),
            ),
            HostMessage::Nonsense(text) => {
                self.failed(format!("Failed to load environment '{name}': {text}"))
            }
            HostMessage::Gone => {
                self.await_end();
                let how = self.reap();
                self.failed(format!(
                    "Failed to load environment '{name}': its host ended ({how})"
                ));
            }
        }
    }

    fn launch(&mut self) -> Result<(), String> {
        self.problem = None;
        let HostStart {
            launcher,
            project,
            env,
            python,
        } = &self.start;
        let interpreter = || python.clone().ok_or("there is no python3 on PATH");
        let command: Vec<OsString> = match self.found.kind {
            AdhocKind::Executable => vec![self.found.path.clone().into()],
            AdhocKind::Python | AdhocKind::Yaml => {
                vec![interpreter()?.into(), "-u".into(), "-c".into(), HOST.into()]
            }
        };
        let program = match self.found.kind {
            AdhocKind::Yaml => Some(program(&self.found.path)?),
            _ => None,
        };
        // A host enters the project only after its own imports: nothing there can take their place.
        let cwd = if self.found.kind == AdhocKind::Executable {
            project.clone()
        } else {
            PathBuf::from("/")
        };
        let mut env = env.clone();
        let is_host = self.found.kind != AdhocKind::Executable;
        let search_path = env
            .iter()
            .rfind(|(name, _)| name == "PYTHONPATH")
            .map(|(_, value)| value.to_string_lossy());
        let search_path = search_path.map(|path| path.into_owned());
        env.retain(|(name, _)| !is_host || name != "PYTHONPATH");
        let job = Job {
            command,
            cwd,
            env,
            timeout: Duration::MAX,
        };
        let (child, channel) = ChildProcess::start_duplex(&launcher.with_terminals(), &job)
            .map_err(|error| error.to_string())?;
        forward(&child, &self.found.name, self.tell).map_err(|error| error.to_string())?;
        channel
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        let state = if self.found.kind == AdhocKind::Executable {
            HostState::Ready
        } else {
            HostState::Loading
        };
        let mut alive = HostProcess {
            child,
            channel,
            lines: HostLines::default(),
            state,
            screen_due: None,
            end_due: None,
        };
        if is_host {
            let mut job = json!({
                "name": self.found.name,
                "project": project,
                "folder": self.found.path.parent(),
                "search_path": search_path,
                "sources": {"types": TYPES, "interactive": INTERACTIVE},
            });
            if let Some(program) = program {
                job["program"] = json!({"command": program.command, "prompt": program.prompt, "description": program.description});
            }
            alive.say(&job, Instant::now() + LOADING_PATIENCE);
        }
        self.screen = if alive.state == HostState::Ready {
            ready(&self.found.name)
        } else {
            ScreenSection::new("[loading]")
        };
        self.alive = Some(alive);
        Ok(())
    }

    /// Returns the next thing the host says, waiting until `deadline` or until `wake`; nothing is neither.
    fn hear(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> Option<HostMessage> {
        let alive = self.alive.as_mut()?;
        loop {
            if let Some(said) = alive.lines.take() {
                return Some(said);
            }
            let mut fds = vec![PollFd::from_borrowed_fd(
                alive.channel.as_fd(),
                PollFlags::IN,
            )];
            fds.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match poll(&mut fds, left.map(timespec).as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
            if !fds[0].revents().is_empty() {
                if !alive.read() {
                    return Some(alive.lines.take().unwrap_or(HostMessage::Gone));
                }
            } else {
                return None;
            }
        }
    }

    /// Waits a little for the end of a host that says nothing more, so that it is its own.
    fn await_end(&self) {
        if let Some(alive) = &self.alive {
            let mut fds = [PollFd::from_borrowed_fd(alive.child.over(), PollFlags::IN)];
            while poll(&mut fds, Some(&timespec(PARTING_PATIENCE))) == Err(rustix::io::Errno::INTR)
            {
            }
        }
    }

    /// Ends what is left of a host and returns how it ended, in words.
    fn reap(&mut self) -> String {
        match self
            .alive
            .take()
            .map(|mut alive| alive.child.end(StopMode::Soon))
        {
            Some(JobEnd::Exited(code)) => format!("exit status {code}"),
            Some(JobEnd::Signalled(number)) => format!("signal {number}"),
            Some(JobEnd::CannotStart(why)) => format!("cannot start: {why}"),
            Some(JobEnd::SandboxFailed(failure)) => format!("cannot start: no sandbox: {failure}"),
            Some(JobEnd::Limit(which)) => which.clone(),
            Some(JobEnd::TimedOut) | None => "ended".into(),
        }
    }

    /// Passes over an answer about the screen that came late; returns whether there is one to pass over.
    fn is_late_screen(&mut self, value: &Value) -> bool {
        let Some(alive) = &mut self.alive else {
            return false;
        };
        let is_due = alive.screen_due.is_some() && value.get("content").is_some();
        if is_due {
            alive.screen_due = None;
            self.screen = section(value);
        }
        is_due
    }

    fn died(&mut self) -> Response {
        self.await_end();
        let how = self.reap();
        self.is_over(&how);
        Response::failed(format!(
            "The environment {} has ended ({how}); its state is lost, the next command starts it anew",
            self.found.name
        ))
    }

    fn sent_invalid_response(&mut self, text: &str) -> Response {
        self.reap();
        self.is_over("it said what is no answer");
        Response::failed(format!(
            "The environment {} said what is no answer and was ended: {text}",
            self.found.name
        ))
    }

    fn is_over(&mut self, how: &str) {
        self.end = how.to_owned();
        self.is_running = false;
        self.screen = ScreenSection::new(format!("{} (ended: {how})", self.found.name));
    }

    fn answered(&mut self, value: &Value) -> Response {
        self.is_running = false;
        let (Some(text), Some(success)) = (value["output"].as_str(), value["success"].as_bool())
        else {
            return Response::failed(format!(
                "The environment {} gave no answer to the command: {value}",
                self.found.name
            ));
        };
        self.end = if success { "it succeeded" } else { "it failed" }.into();
        Response {
            output: cleaned(text),
            success,
            running: false,
        }
    }
}

impl Environment for HostEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        if self.alive.is_none()
            && let Err(problem) = self.launch()
        {
            return Some(Response::failed(format!(
                "Failed to start the environment {}: {problem}",
                self.found.name
            )));
        }
        let alive = self.alive.as_mut()?;
        alive.say(
            &json!({"type": "command", "command": command}),
            Instant::now() + LOADING_PATIENCE,
        );
        self.is_running = true;
        None
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        loop {
            match self.hear(until.deadline, Some(until.wake)) {
                Some(said) if self.is_loading() => {
                    self.loaded(said);
                    if let Some(response) = self.came_to_load() {
                        return WaitResult::Ended(response);
                    }
                }
                Some(HostMessage::Line(value)) if self.is_late_screen(&value) => {}
                Some(HostMessage::Line(value)) => return WaitResult::Ended(self.answered(&value)),
                Some(HostMessage::Nonsense(text)) => {
                    return WaitResult::Ended(self.sent_invalid_response(&text));
                }
                Some(HostMessage::Gone) => return WaitResult::Ended(self.died()),
                None if self.alive.is_none() => return WaitResult::Ended(self.died()),
                None if until
                    .deadline
                    .is_some_and(|deadline| deadline <= Instant::now()) =>
                {
                    return WaitResult::Late;
                }
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
        if let Some(alive) = &mut self.alive {
            alive.child.signal_group(Signal::INT);
        }
    }

    fn restart(&mut self) {
        self.reap();
        self.is_running = false;
        let home = self
            .found
            .path
            .parent()
            .and_then(Path::parent)
            .unwrap_or(&self.start.project);
        match super::find_one(home, &self.found.name) {
            Some(found) => self.found = found,
            None => {
                return self.failed(format!(
                    "Failed to load environment '{}': its file is gone",
                    self.found.name
                ));
            }
        }
        self.load();
        self.is_offered(Instant::now() + LOADING_PATIENCE, None);
    }

    fn problem(&self) -> Option<String> {
        self.problem.clone()
    }

    fn last_end(&self) -> String {
        self.end.clone()
    }

    fn prepare_screen(&mut self) {
        let is_busy = self.is_running();
        if let Some(alive) = self
            .alive
            .as_mut()
            .filter(|alive| !is_busy && alive.screen_due.is_none())
        {
            alive.say(&json!({"type": "screen"}), Instant::now() + SCREEN_PATIENCE);
            alive.screen_due = Some(Instant::now() + SCREEN_PATIENCE);
        }
    }

    fn screen(&mut self) -> ScreenSection {
        let due = self
            .alive
            .as_ref()
            .and_then(|alive| alive.screen_due)
            .filter(|_| !self.is_running());
        let Some(due) = due else {
            return self.screen.clone();
        };
        match self.hear(Some(due), None) {
            Some(HostMessage::Line(value)) => drop(self.is_late_screen(&value)),
            Some(HostMessage::Nonsense(text)) => drop(self.sent_invalid_response(&text)),
            Some(HostMessage::Gone) => drop(self.died()),
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
        let is_idle = !self.is_running();
        if let Some(alive) = self.alive.as_mut().filter(|_| is_idle) {
            let due = Instant::now() + SHUTDOWN_PATIENCE;
            alive.say(&json!({"type": "shutdown"}), due);
            alive.end_due = Some(due);
        }
    }

    fn shutdown(&mut self) {
        if let Some(due) = self.alive.as_ref().and_then(|alive| alive.end_due) {
            while let Some(HostMessage::Line(_)) = self.hear(Some(due), None) {}
        }
        self.reap();
    }
}

impl HostEnvironment {
    fn is_loading(&self) -> bool {
        self.alive
            .as_ref()
            .is_some_and(|alive| alive.state == HostState::Loading)
    }

    /// Returns what a wait for the loading came to; nothing where a command waits behind it.
    fn came_to_load(&mut self) -> Option<Response> {
        match &self.problem {
            None if self.is_running => None,
            None => Some(Response::done(format!("Loaded {}", self.found.name))),
            Some(problem) => {
                self.is_running = false;
                self.end = "it could not be loaded".into();
                Some(Response::failed(problem.clone()))
            }
        }
    }
}

impl HostProcess {
    /// Says something; a host that does not listen for so long is not told.
    fn say(&mut self, value: &Value, deadline: Instant) {
        let line = format!("{value}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() && Instant::now() < deadline {
            match self.channel.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let mut fds = [PollFd::from_borrowed_fd(
                        self.channel.as_fd(),
                        PollFlags::OUT,
                    )];
                    let _ = poll(&mut fds, Some(&timespec(left)));
                }
                Err(_) => return,
            }
        }
    }

    /// Reads what is there; whether there can be more.
    fn read(&mut self) -> bool {
        let mut bytes = vec![0; 1 << 16];
        match self.channel.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                self.lines.push(&bytes[..count]);
                true
            }
            Err(error) => matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }
}

/// What stands there until the first screen.
fn ready(name: &str) -> ScreenSection {
    ScreenSection::new(format!("{name} (ready)"))
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Passes what a host prints on to the user, line by line, behind its name; ends with the host.
fn forward(child: &ChildProcess, name: &str, tell: fn(&str)) -> io::Result<()> {
    let mut output = child.output().try_clone()?;
    let name = name.to_owned();
    thread::spawn(move || {
        let mut rest = Vec::new();
        let mut bytes = vec![0; 1 << 14];
        loop {
            let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, None);
            match output.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => rest.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            }
            while let Some(end) = rest
                .iter()
                .position(|byte| *byte == b'\n')
                .or((1 << 16 < rest.len()).then_some(1 << 16))
            {
                let line: Vec<u8> = rest.drain(..=end).collect();
                tell(&format!(
                    "[{name}] {}",
                    String::from_utf8_lossy(&line).trim_end()
                ));
            }
        }
        if !rest.is_empty() {
            tell(&format!("[{name}] {}", String::from_utf8_lossy(&rest)));
        }
    });
    Ok(())
}
