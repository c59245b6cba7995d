//! A model on a loopback socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

/// Gives prepared answers, then always the same one.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// Prepared answers, the next one last.
    pub(crate) answers: Arc<Mutex<Vec<Vec<u8>>>>,
    /// The last request, head and body.
    request: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    pub(crate) fn start(repeated: Vec<u8>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            answers: Arc::default(),
            request: Arc::default(),
        };
        let (answers, request) = (server.answers.clone(), server.request.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, request) = (answers.clone(), request.clone());
                let repeated = repeated.clone();
                thread::spawn(move || {
                    serve(&stream, &request, || {
                        let prepared = answers.lock().unwrap().pop();
                        prepared.unwrap_or_else(|| repeated.clone())
                    })
                });
            }
        });
        server
    }

    /// A connection, and the request that was sent last.
    pub(crate) fn connect(&self) -> (TcpStream, Vec<u8>) {
        (
            TcpStream::connect(self.address).unwrap(),
            self.request.lock().unwrap().clone(),
        )
    }
}

/// Answers on one connection until its other end is closed.
fn serve(
    stream: &TcpStream,
    seen: &Mutex<Vec<u8>>,
    answer: impl Fn() -> Vec<u8>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let (mut request, mut length) = (String::new(), 0);
        while !request.ends_with("\r\n\r\n") {
            let begin = request.len();
            if reader.read_line(&mut request)? == 0 {
                return Ok(());
            }
            let value = request[begin..].strip_prefix("content-length:");
            length = value.map_or(length, |value| value.trim().parse().unwrap());
        }
        reader.by_ref().take(length).read_to_string(&mut request)?;
        *seen.lock().unwrap() = request.into_bytes();
        (&mut &*stream).write_all(&answer())?;
    }
}

/// The response that streams these events.
pub(crate) fn streamed(events: &[Value]) -> Vec<u8> {
    let body: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}
