//! A client of `serve --mcp`, by hand: every line of the server has to be a message of JSON-RPC.

use std::io::{BufRead, BufReader, PipeWriter, Write, pipe};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::running::{Ran, Running};

const DEADLINE: Duration = Duration::from_secs(60);

/// A running server and its client.
pub(crate) struct McpClient {
    running: Running,
    input: Option<PipeWriter>,
    lines: Receiver<Value>,
    last_id: u64,
}

impl McpClient {
    /// Starts a server in the root of the project.
    pub(crate) fn start(project: &Project) -> McpClient {
        McpClient::with(project, &[])
    }

    /// Starts a server with further arguments.
    pub(crate) fn with(project: &Project, arguments: &[&str]) -> McpClient {
        let arguments = [&["serve", "--mcp"], arguments].concat();
        let (stdin, input) = pipe().unwrap();
        let (output, stdout) = pipe().unwrap();
        let mut server = project.command(&project.binary(), &arguments);
        server.stdin(stdin).stdout(stdout);
        let running = Running::start(server, project.root());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
                let first = message.get(0).unwrap_or(&message);
                assert_eq!(first["jsonrpc"], "2.0", "{message}");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        McpClient {
            running,
            input: Some(input),
            lines,
            last_id: 0,
        }
    }

    /// Begins a session of this version; returns the version that the server answers with.
    pub(crate) fn initialize(&mut self, version: &str) -> String {
        let client = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let answer = self.request("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let version = answer["result"]["protocolVersion"].as_str();
        version.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Starts a server, and a session of the newest version.
    pub(crate) fn ready(project: &Project) -> McpClient {
        let mut client = McpClient::start(project);
        client.initialize("2025-11-25");
        client
    }

    /// Writes bytes as they are.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("the input is closed");
        input.write_all(bytes.as_ref()).unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n"));
    }

    /// Sends a request; returns its id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and waits for its answer, which has to be the next message.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.message();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Sends a notification that a request is cancelled.
    pub(crate) fn cancel(&mut self, id: u64) {
        let params = json!({"requestId": id});
        let method = "notifications/cancelled";
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a call of a tool; returns its id.
    pub(crate) fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool; returns its text and whether it failed.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let id = self.begin(tool, arguments);
        let answer = self.message();
        assert_eq!(answer["id"], id, "{answer}");
        outcome(&answer)
    }

    pub(crate) fn bash(&mut self, command: &str) -> (String, bool) {
        self.call("bash", json!({"command": command}))
    }

    /// Waits for the next message.
    pub(crate) fn message(&mut self) -> Value {
        let message = self.next();
        message.unwrap_or_else(|| panic!("no more messages\n{}", self.running.stderr_so_far()))
    }

    /// Waits for the next message, or for the end of all messages.
    pub(crate) fn next(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!(
                "no message within {DEADLINE:?}\n{}",
                self.running.stderr_so_far()
            ),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Waits for the end of a server that was ended by something else.
    pub(crate) fn wait(self) -> Ran {
        let _input = self.input;
        self.running.wait()
    }

    /// Closes the server's input.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the server's input and waits for its end; no message may be left.
    pub(crate) fn end(mut self) -> Ran {
        self.close_input();
        assert_eq!(self.next(), None);
        self.wait()
    }
}

/// The text of the answer to a call, and whether the call failed.
pub(crate) fn outcome(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no result: {answer}"));
    (text.to_owned(), result["isError"] == true)
}
