//! A client of `serve`: writes requests to its stdin, reads answers from its stdout and validates each.
//!
//! Every wait has a deadline, and a failure shows the server's stderr. A command that has to wait
//! for the test reads from a `Gate`.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::running::{Ran, Running, until};

const DEADLINE: Duration = Duration::from_secs(60);
const BUILT_IN: [&str; 3] = ["bash", "python", "editor"];

/// A request to run a command.
pub(crate) fn command(environment: &str, command: &str) -> Value {
    json!({"type": "command", "environment": environment, "command": command})
}

/// A request for a control action.
pub(crate) fn control(environment: &str, action: &str) -> Value {
    json!({"type": "control", "environment": environment, "action": action})
}

/// A request with further fields.
pub(crate) trait Request {
    fn timeout(self, seconds: f64) -> Value;
    fn id(self, id: impl Into<Value>) -> Value;
}

impl Request for Value {
    fn timeout(mut self, seconds: f64) -> Value {
        self["timeout"] = seconds.into();
        self
    }

    fn id(mut self, id: impl Into<Value>) -> Value {
        self["id"] = id.into();
        self
    }
}

/// A running server and its client.
pub(crate) struct Serving {
    running: Running,
    input: Option<PipeWriter>,
    output: Output,
}

enum Output {
    Read(Receiver<Vec<u8>>),
    Unread(PipeReader),
    Closed,
}

impl Serving {
    /// Starts a server in the root of the project.
    pub(crate) fn start(project: &Project) -> Serving {
        Serving::with(project, &[])
    }

    /// Starts a server with further arguments.
    pub(crate) fn with(project: &Project, arguments: &[&str]) -> Serving {
        Serving::unread(project, arguments).read()
    }

    /// Begins to read the answers.
    pub(crate) fn read(mut self) -> Serving {
        let Output::Unread(output) = std::mem::replace(&mut self.output, Output::Closed) else {
            panic!("the answers are being read already")
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut output = BufReader::with_capacity(1 << 20, output);
            let mut line = Vec::new();
            while output
                .read_until(b'\n', &mut line)
                .is_ok_and(|count| 0 < count)
            {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        self.output = Output::Read(lines);
        self
    }

    /// Starts a server whose answers are not read.
    pub(crate) fn unread(project: &Project, arguments: &[&str]) -> Serving {
        Serving::unread_at(project, "", arguments)
    }

    /// Starts a server in a folder of the root.
    pub(crate) fn at(project: &Project, folder: &str, arguments: &[&str]) -> Serving {
        Serving::unread_at(project, folder, arguments).read()
    }

    fn unread_at(project: &Project, folder: &str, arguments: &[&str]) -> Serving {
        let root = project.path(folder).display().to_string();
        let arguments: Vec<&str> = ["serve", "--project-dir", &root]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let (stdin, input) = pipe().unwrap();
        let (output, stdout) = pipe().unwrap();
        let mut server = project.command(&project.binary(), &arguments);
        server.stdin(stdin).stdout(stdout);
        let running = Running::start(server, project.root());
        Serving {
            running,
            input: Some(input),
            output: Output::Unread(output),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.running.id()
    }

    /// Runs a command in an environment.
    pub(crate) fn ask(&mut self, environment: &str, text: &str) -> Answer {
        self.request(&command(environment, text))
    }

    pub(crate) fn bash(&mut self, text: &str) -> Answer {
        self.ask("bash", text)
    }

    pub(crate) fn python(&mut self, text: &str) -> Answer {
        self.ask("python", text)
    }

    pub(crate) fn editor(&mut self, text: &str) -> Answer {
        self.ask("editor", text)
    }

    pub(crate) fn control(&mut self, environment: &str, action: &str) -> Answer {
        self.request(&control(environment, action))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, request: &Value) -> Answer {
        self.send(request);
        self.answer()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &Value) {
        self.write(format!("{request}\n"));
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let written = self
            .input
            .as_mut()
            .expect("the input is closed")
            .write_all(bytes.as_ref());
        written.unwrap_or_else(|error| {
            panic!(
                "the server does not read: {error}\n{}",
                self.stderr_so_far()
            )
        });
    }

    /// Waits for the next answer.
    pub(crate) fn answer(&mut self) -> Answer {
        self.line()
            .unwrap_or_else(|| panic!("no more answers\n{}", self.stderr_so_far()))
    }

    /// Waits for the next answer, or for the end of all answers.
    pub(crate) fn line(&mut self) -> Option<Answer> {
        let Output::Read(lines) = &self.output else {
            panic!("nobody reads")
        };
        match lines.recv_timeout(DEADLINE) {
            Ok(line) => Some(Answer::read(&line)),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(_) => panic!("no answer within {DEADLINE:?}\n{}", self.stderr_so_far()),
        }
    }

    /// All answers to the end.
    pub(crate) fn answers(&mut self) -> impl Iterator<Item = Answer> {
        std::iter::from_fn(|| self.line())
    }

    /// The server's stderr so far.
    pub(crate) fn stderr_so_far(&self) -> String {
        self.running.stderr_so_far()
    }

    /// Waits until stderr contains the text.
    pub(crate) fn until_stderr_has(&mut self, text: &str) {
        self.running.until_stderr_has(text);
    }

    /// Sends a signal to the server.
    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Closes the server's input; requests that it has read are still answered.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the reading end of the server's output.
    pub(crate) fn close_output(&mut self) {
        assert!(
            matches!(self.output, Output::Unread(_)),
            "a thread reads the output"
        );
        self.output = Output::Closed;
    }

    /// Waits for the end of a server that was ended by something else.
    pub(crate) fn wait(self) -> Ran {
        let _input = self.input;
        self.running.wait()
    }

    /// Closes the server's input and waits for its end; no answer may be left.
    pub(crate) fn end(mut self) -> Ran {
        self.close_input();
        assert!(self.line().is_none(), "an answer that nobody asked for");
        self.wait()
    }
}

/// One answer line of the server, validated.
#[derive(Debug, Clone)]
pub(crate) struct Answer(Value);

impl Answer {
    fn read(line: &[u8]) -> Answer {
        let text = || String::from_utf8_lossy(&line[..line.len().min(500)]).into_owned();
        assert!(line.ends_with(b"\n"), "half a line: {}", text());
        let value: Value =
            serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {}", text()));
        match value["type"].as_str() {
            Some("error") => assert!(
                value["message"]
                    .as_str()
                    .is_some_and(|message| !message.is_empty()),
                "{value}"
            ),
            Some("response") => {
                assert!(value["response"]["output"].is_string(), "{}", text());
                assert!(value["response"]["success"].is_boolean(), "{}", text());
                let screens = value["screen"]
                    .as_object()
                    .unwrap_or_else(|| panic!("no screens: {}", text()));
                assert!(
                    BUILT_IN.iter().all(|name| screens.contains_key(*name)),
                    "{screens:?}"
                );
                assert!(screens.values().all(|screen| screen["content"].is_string() && screen["max_lines"].is_u64()));
            }
            _ => panic!("neither a response nor an error: {}", text()),
        }
        Answer(value)
    }

    /// The answer as a line.
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn id(&self) -> &Value {
        &self.0["id"]
    }

    /// The message of an error.
    pub(crate) fn error(&self) -> &str {
        assert_eq!(self.0["type"], "error", "{}", self.0);
        self.0["message"].as_str().unwrap()
    }

    pub(crate) fn output(&self) -> &str {
        self.0["response"]["output"]
            .as_str()
            .unwrap_or_else(|| panic!("no response: {}", self.0))
    }

    pub(crate) fn is_success(&self) -> bool {
        self.0["response"]["success"] == true
    }

    /// Whether the command is still running; then it must not be reported as a success.
    pub(crate) fn is_running(&self) -> bool {
        let running = self.0["response"]["running"] == true;
        assert!(
            !running || !self.is_success(),
            "running, and a success: {}",
            self.0
        );
        running
    }

    /// The output of a command that succeeded.
    pub(crate) fn shows(&self) -> &str {
        assert!(self.is_success(), "it failed: {}", self.output());
        self.output()
    }

    /// The output of a command that failed.
    pub(crate) fn fails(&self) -> &str {
        assert!(
            !self.is_success() && !self.is_running(),
            "it did not fail: {}",
            self.output()
        );
        self.output()
    }

    /// The output, without its last line, of a command that keeps running after its timeout.
    pub(crate) fn goes_on(&self) -> &str {
        assert!(self.is_running(), "it does not run: {}", self.output());
        let output = self.output().trim_end_matches('\n');
        let (before, last) = output.rsplit_once('\n').map_or(("", output), |(_, last)| {
            (&output[..output.len() - last.len()], last)
        });
        assert!(last.contains("running"), "{output}");
        before
    }

    /// The content of a section.
    pub(crate) fn screen(&self, name: &str) -> &str {
        self.section(name)["content"]
            .as_str()
            .unwrap_or_else(|| panic!("no screen of {name}: {}", self.0["screen"]))
    }

    pub(crate) fn max_lines(&self, name: &str) -> u64 {
        self.section(name)["max_lines"].as_u64().unwrap()
    }

    fn section(&self, name: &str) -> &Value {
        &self.0["screen"][name]
    }

    /// The names of the sections, sorted.
    pub(crate) fn sections(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0["screen"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }
}

/// A named pipe in the project: its reader blocks until the gate opens, which is when it is dropped.
pub(crate) struct Gate {
    path: std::path::PathBuf,
    open: Option<File>,
}

impl Gate {
    pub(crate) fn new(project: &Project, name: &str) -> Gate {
        let path = project.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        Gate { path, open: None }
    }

    /// Waits until a reader is at the gate.
    pub(crate) fn reached(mut self) -> Gate {
        until("somebody stands at the gate", || {
            let opened = open(&self.path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
            self.open = opened.ok().map(File::from);
            self.open.is_some()
        });
        self
    }

    /// Releases the reader and waits until it has left.
    pub(crate) fn open(self) {
        drop(self.reached());
    }
}
