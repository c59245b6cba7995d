//! A loopback server for tests: it reads one request per connection and follows a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// One step of an answer. After the last one the connection is closed.
pub(crate) enum ScriptStep {
    Send(Vec<u8>),
    /// Sends this repeatedly until the client disconnects.
    Endless(Vec<u8>),
    /// Sends nothing until the client disconnects.
    Hold,
    Close,
    Reset,
}

impl ScriptStep {
    pub(crate) fn send(bytes: impl Into<Vec<u8>>) -> ScriptStep {
        ScriptStep::Send(bytes.into())
    }
}

/// A server that answers one connection per script, in order.
pub(crate) struct TestServer {
    pub url: String,
    /// The received requests, head and body.
    pub requests: Receiver<String>,
}

impl TestServer {
    pub(crate) fn start(scripts: Vec<Vec<ScriptStep>>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            for script in scripts {
                let (connection, _) = listener.accept().unwrap();
                let _ = sender.send(read_request(&connection).unwrap_or_default());
                thread::spawn(move || play(connection, script));
            }
        });
        TestServer { url, requests }
    }

    /// Returns a server with one response: this status line and headers, then the body.
    pub(crate) fn answering(head: &str, body: impl AsRef<[u8]>) -> TestServer {
        let head = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n");
        TestServer::start(vec![vec![
            ScriptStep::send(head),
            ScriptStep::send(body.as_ref()),
        ]])
    }
}

fn read_request(connection: &TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(connection);
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        text.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    text.push_str(&String::from_utf8_lossy(&body));
    Ok(text)
}

fn play(mut connection: TcpStream, script: Vec<ScriptStep>) {
    for step in script {
        match step {
            ScriptStep::Send(bytes) => drop(connection.write_all(&bytes)),
            ScriptStep::Endless(bytes) => while connection.write_all(&bytes).is_ok() {},
            ScriptStep::Hold => drop(connection.read(&mut [0])),
            ScriptStep::Close => return,
            ScriptStep::Reset => {
                rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO)).unwrap();
                return;
            }
        }
    }
}
