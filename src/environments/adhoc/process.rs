//! The process behind one of the user's environments: started with its setup, one line of JSON each way.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::environments::adhoc::mcp::program::read_server;
use crate::environments::adhoc::messages::{HostLines, HostMessage, cleaned};
use crate::environments::adhoc::program_file::InvalidProgram;
use crate::environments::adhoc::{AdhocKind, FoundEnvironment, read_program};
use crate::environments::channel::{Channel, ChannelEvent, WatchedFds, is_temporary};
use crate::process::child::{ChildProcess, StopMode};
use crate::process::{Job, JobEnd, Launcher};
use crate::text::shorten::first_bytes;

const HOST: &str = include_str!("host.py");
const TYPES: &str = include_str!("types.py");
const INTERACTIVE: &str = include_str!("interactive.py");

/// A longer line is printed in pieces.
const MAX_PRINTED_LINE: usize = 1 << 16;
/// How many of the last lines on stderr are kept, and how much of each.
const KEPT_LINES: usize = 8;
const KEPT_BYTES: usize = 500;
/// How long the last lines of a host that has ended are waited for.
const PRINT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a host may take to exit after it has closed its channel.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);

/// What every host is started with.
#[derive(Debug, Clone)]
pub(crate) struct HostStart {
    pub launcher: Launcher,
    pub project: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    /// The interpreter, if there is one.
    pub python: Option<PathBuf>,
}

/// A running host.
pub(super) struct HostProcess {
    pub(super) child: ChildProcess,
    channel: Channel,
    lines: HostLines,
    printed: PrintedLines,
    /// Whether a host that has to report that it is ready has not done so.
    pub(super) is_loading: bool,
    /// The deadline of a requested screen.
    pub(super) screen_due: Option<Instant>,
    /// The deadline of a requested shutdown.
    pub(super) end_due: Option<Instant>,
}

/// Why a host could not be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("python3 is not on PATH")]
    NoPython,
    #[error(transparent)]
    InvalidProgram(#[from] InvalidProgram),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl HostProcess {
    /// Starts a host. `print` writes a line to the user; `patience` limits the sending of the setup.
    pub(super) fn launch(
        found: &FoundEnvironment,
        start: &HostStart,
        print: fn(&str),
        patience: Duration,
    ) -> Result<HostProcess, LaunchError> {
        let setup = match found.kind {
            AdhocKind::Executable | AdhocKind::Mcp => None,
            AdhocKind::Python | AdhocKind::Yaml => Some(setup_message(found, start)?),
        };
        let job = job(found, start)?;
        let (child, stream) = ChildProcess::start_duplex(&start.launcher.with_terminals(), &job)?;
        let printed = forward(&child, &found.name, print)?;
        let mut process = HostProcess {
            child,
            channel: Channel::new(stream)?,
            lines: HostLines::default(),
            printed,
            is_loading: found.kind != AdhocKind::Executable,
            screen_due: None,
            end_due: None,
        };
        if let Some(setup) = setup {
            process.send(&setup, Instant::now() + patience);
        }
        Ok(process)
    }

    /// Sends a message. Errors are ignored: a host that does not read is found late or dead by the next wait.
    pub(super) fn send(&mut self, value: &Value, deadline: Instant) {
        let line = format!("{value}\n");
        let mut rest = line.as_bytes();
        while !rest.is_empty() && Instant::now() < deadline {
            match self.channel.send_some(rest, Some(deadline), None) {
                Ok(left) => rest = left,
                Err(_) => return,
            }
        }
    }

    /// Closes its stdin.
    pub(super) fn close_input(&mut self) {
        self.channel.close_output();
    }

    /// Waits a little for a host that has closed its channel to exit, then ends it; returns how it ended, and the last
    /// lines that it printed.
    pub(super) fn end_after_exit(mut self) -> (String, String) {
        let patience = Timespec::try_from(EXIT_PATIENCE).unwrap_or_default();
        let mut fds = [PollFd::from_borrowed_fd(self.child.over(), PollFlags::IN)];
        while poll(&mut fds, Some(&patience)) == Err(rustix::io::Errno::INTR) {}
        (self.stop(), self.printed.rest())
    }

    /// Ends the host; returns how it ended.
    pub(super) fn end(mut self) -> String {
        self.stop()
    }

    fn stop(&mut self) -> String {
        match self.child.end(StopMode::Soon) {
            JobEnd::Exited(code) => format!("exit status {code}"),
            JobEnd::Signalled(number) => format!("signal {number}"),
            JobEnd::CannotStart(why) => format!("cannot start: {why}"),
            JobEnd::SandboxFailed(failure) => format!("cannot start: no sandbox: {failure}"),
            JobEnd::Limit(which) => which,
            JobEnd::TimedOut | JobEnd::Idle | JobEnd::OutputLimit => "ended".into(),
        }
    }

    /// The next message; nothing if `deadline` has passed or `wake` is readable before there is one.
    pub(super) fn receive(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> Option<HostMessage> {
        loop {
            if let Some(message) = self.lines.take() {
                return Some(message);
            }
            if !self.channel.is_open() {
                return Some(HostMessage::Closed);
            }
            let watched = WatchedFds {
                wake,
                ..WatchedFds::default()
            };
            let event = self.channel.wait(watched, deadline);
            let bytes = self.channel.receive();
            let is_empty = bytes.is_empty();
            self.lines.push(bytes);
            if is_empty && self.channel.is_open() && event != ChannelEvent::Ready {
                return None;
            }
        }
    }
}

/// A Python host enters the project only after its own imports, and gets `PYTHONPATH` in its setup, so that no file of
/// the project can replace what it imports.
fn job(found: &FoundEnvironment, start: &HostStart) -> Result<Job, LaunchError> {
    let timeout = Duration::MAX;
    let in_project = |command, env| Job {
        command,
        cwd: start.project.clone(),
        env,
        timeout,
    };
    match found.kind {
        AdhocKind::Executable => {
            let command = vec![found.path.clone().into()];
            return Ok(in_project(command, start.env.clone()));
        }
        AdhocKind::Mcp => {
            let program = read_server(&found.path)?;
            let is_given = |name: &OsString| program.env.iter().any(|(given, _)| given == name);
            let mut env = start.env.clone();
            env.retain(|(name, _)| !is_given(name));
            env.extend(program.env);
            return Ok(in_project(program.command, env));
        }
        AdhocKind::Python | AdhocKind::Yaml => {}
    }
    let python = start.python.clone().ok_or(LaunchError::NoPython)?;
    let mut env = start.env.clone();
    env.retain(|(name, _)| name != "PYTHONPATH");
    Ok(Job {
        command: vec![python.into(), "-u".into(), "-c".into(), HOST.into()],
        cwd: PathBuf::from("/"),
        env,
        timeout,
    })
}

/// The first message to a Python host.
fn setup_message(found: &FoundEnvironment, start: &HostStart) -> Result<Value, InvalidProgram> {
    let search_path = start.env.iter().rfind(|(name, _)| name == "PYTHONPATH");
    let mut setup = json!({
        "name": found.name,
        "project": start.project,
        "folder": found.path.parent(),
        "search_path": search_path.map(|(_, value)| value.to_string_lossy()),
        "sources": {"types": TYPES, "interactive": INTERACTIVE},
    });
    if found.kind == AdhocKind::Yaml {
        let program = read_program(&found.path)?;
        setup["program"] = json!({
            "command": program.command,
            "prompt": program.prompt,
            "description": program.description,
        });
    }
    Ok(setup)
}

/// The last lines that a host has printed to stderr.
struct PrintedLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Closed when the host has closed its stderr.
    is_over: Receiver<()>,
}

impl PrintedLines {
    /// The last lines of a host that has ended, indented.
    fn rest(&self) -> String {
        let _ = self.is_over.recv_timeout(PRINT_PATIENCE);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |line: &String| format!("  {}\n", cleaned(line));
        lines.iter().map(line).collect()
    }
}

/// Starts a thread that prints what the host writes to stderr, line by line, with its name; it ends with the host.
fn forward(child: &ChildProcess, name: &str, print: fn(&str)) -> io::Result<PrintedLines> {
    let output = child.output().try_clone()?;
    let name = name.to_owned();
    let lines: Arc<Mutex<VecDeque<String>>> = Arc::default();
    let kept = lines.clone();
    let print = move |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        print(&format!("[{name}] {}", line.trim_end()));
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(first_bytes(line.trim_end(), KEPT_BYTES).to_owned());
    };
    let (over, is_over) = channel();
    thread::spawn(move || {
        forward_lines(output, &print);
        drop(over);
    });
    Ok(PrintedLines { lines, is_over })
}

fn forward_lines(mut output: PipeReader, print: &impl Fn(&[u8])) {
    let mut rest = Vec::new();
    let mut bytes = vec![0; 1 << 14];
    loop {
        let mut fds = [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, None);
        match output.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => rest.extend_from_slice(&bytes[..count]),
            Err(error) if is_temporary(&error) => continue,
            Err(_) => break,
        }
        print_lines(&mut rest, print);
    }
    if !rest.is_empty() {
        print(&rest);
    }
}

/// Prints the complete lines of `rest`, and removes them from it.
fn print_lines(rest: &mut Vec<u8>, print: &impl Fn(&[u8])) {
    loop {
        let newline = memchr::memchr(b'\n', rest);
        let is_long = rest.len() > MAX_PRINTED_LINE;
        let Some(end) = newline.or(is_long.then_some(MAX_PRINTED_LINE)) else {
            return;
        };
        let line: Vec<u8> = rest.drain(..=end).collect();
        print(&line);
    }
}
