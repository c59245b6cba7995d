//! A server with real clients on its socket and tools that record their calls.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

use super::McpServer;
use crate::llm::mcp::{ToolCall, ToolOutcome, Toolbox};
use crate::llm::message::ToolOffer;

/// `echo` returns its arguments; `wait` waits until it is cancelled; `end` ends the run.
#[derive(Default)]
struct Tools {
    calls: Vec<String>,
    begun: Option<UnixStream>,
}

impl Toolbox for Tools {
    fn offers(&self) -> Vec<ToolOffer> {
        vec![ToolOffer {
            name: "echo".into(),
            description: "says it".into(),
            schema: json!({"type": "object"}),
        }]
    }

    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome> {
        let ToolCall {
            name,
            arguments,
            cancelled,
            ..
        } = call;
        self.calls.push(name.to_owned());
        match name {
            "end" => return None,
            "wait" => {
                self.begun
                    .iter_mut()
                    .for_each(|begun| begun.write_all(&[0]).unwrap());
                poll(
                    &mut [PollFd::from_borrowed_fd(cancelled, PollFlags::IN)],
                    None,
                )
                .unwrap();
            }
            _ => {}
        }
        Some(ToolOutcome {
            text: arguments.to_string(),
            is_error: name != "echo",
        })
    }
}

struct Client(BufReader<UnixStream>);

impl Client {
    fn new(server: &McpServer) -> Client {
        let stream = UnixStream::connect(server.path()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, text: &str) {
        self.0
            .get_mut()
            .write_all(format!("{text}\n").as_bytes())
            .unwrap();
    }

    fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id: Value = id.into();
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        );
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

fn server() -> (tempfile::TempDir, McpServer) {
    // Longer than a socket address can be.
    let folder = tempfile::Builder::new()
        .prefix(&"long-".repeat(30))
        .tempdir()
        .unwrap();
    let server = McpServer::open(folder.path()).unwrap();
    (folder, server)
}

fn wait_for_a_request(server: &McpServer) {
    poll(
        &mut [PollFd::from_borrowed_fd(
            server.readable_when_called(),
            PollFlags::IN,
        )],
        None,
    )
    .unwrap();
}

fn server_with_short_path() -> (tempfile::TempDir, McpServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = McpServer::open(folder.path()).unwrap();
    (folder, server)
}

#[test]
fn the_socket_may_have_a_long_path_and_is_removed() {
    let (folder, server) = server();
    assert!(server.path().exists());
    drop(server);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn calls_are_answered_in_order() {
    let (_folder, mut server) = server_with_short_path();
    let (mut tools, mut client) = (Tools::default(), Client::new(&server));
    client.request("a", "initialize", json!({"protocolVersion": "2025-06-18"}));
    assert_eq!(client.receive()["result"]["protocolVersion"], "2025-06-18");
    client.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    client.request(0, "tools/list", json!({}));
    client.request(
        1,
        "tools/call",
        json!({"name": "echo", "arguments": {"x": 1}}),
    );
    client.request(2, "tools/call", json!({"name": "other"}));
    let mut answers = Vec::new();
    while answers.len() < 3 {
        wait_for_a_request(&server);
        assert!(server.serve(&mut tools, 1));
        answers.extend((0..tools.calls.len() + 1 - answers.len()).map(|_| client.receive()));
    }
    assert_eq!(answers[0]["result"]["tools"][0]["name"], "echo");
    assert_eq!(answers[1]["result"]["content"][0]["text"], "{\"x\":1}");
    assert_eq!(
        (&answers[1]["id"], &answers[1]["result"]["isError"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(
        (&answers[2]["id"], &answers[2]["result"]["isError"]),
        (&json!(2), &json!(true))
    );
}

/// Runs one call of `wait` while the client does something else.
fn while_waiting(
    act: impl FnOnce(Client) -> Option<Client> + Send,
) -> (Vec<String>, Option<Client>, McpServer, tempfile::TempDir) {
    let (folder, mut server) = server_with_short_path();
    let mut client = Client::new(&server);
    client.request(1, "tools/call", json!({"name": "wait"}));
    wait_for_a_request(&server);
    let (begun, theirs) = UnixStream::pair().unwrap();
    let mut tools = Tools {
        begun: Some(theirs),
        ..Tools::default()
    };
    let client = std::thread::scope(|scope| {
        let acting = scope.spawn(move || {
            std::io::Read::read_exact(&mut &begun, &mut [0]).unwrap();
            act(client)
        });
        assert!(server.serve(&mut tools, 1));
        acting.join().unwrap()
    });
    (tools.calls, client, server, folder)
}

#[test]
fn a_ping_is_answered_during_a_long_call_which_can_be_cancelled() {
    let (calls, client, mut server, _folder) = while_waiting(|mut client| {
        client.request(9, "ping", json!({}));
        assert_eq!(client.receive()["id"], 9);
        client.request(2, "tools/call", json!({"name": "echo"}));
        client.request(3, "tools/call", json!({"name": "echo"}));
        client.send(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
        );
        client.send(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        );
        client.send(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        );
        Some(client)
    });
    assert_eq!(calls[0], "wait");
    let mut client = client.unwrap();
    let mut tools = Tools::default();
    server.serve(&mut tools, 1);
    assert_eq!(
        client.receive()["id"],
        3,
        "neither the cancelled call nor the one that waited behind it is answered"
    );
}

#[test]
fn calls_of_a_client_that_is_gone_are_cancelled() {
    let (calls, _, mut server, _folder) = while_waiting(|mut client| {
        client.request(2, "tools/call", json!({"name": "echo"}));
        None
    });
    assert_eq!(calls, ["wait"]);
    assert!(server.serve(&mut Tools::default(), 1));
    let mut client = Client::new(&server);
    client.request(1, "tools/call", json!({"name": "end"}));
    wait_for_a_request(&server);
    assert!(!server.serve(&mut Tools::default(), 1));
}

#[test]
fn an_invalid_line_is_refused_and_the_next_one_is_read() {
    let (_folder, server) = server_with_short_path();
    let mut client = Client::new(&server);
    client.send("nonsense");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send("");
    client.request("é", "nothing/of/the/kind", json!({}));
    let answer = client.receive();
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!("é"), &json!(-32601))
    );
}
