//! The scripted model: a real HTTP server on loopback that sends its replies in turn and records every request.
//!
//! Nothing here depends on time: an answer is held until the test releases it, and the test waits until a request
//! has arrived. A request without a reply is refused with a message.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;

use crate::support::reply::{self, Dialect, Reply};

const DEADLINE: Duration = Duration::from_secs(120);
const BETWEEN_PINGS: Duration = Duration::from_millis(20);

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub path: String,
    /// Keyed by lower-case name.
    pub headers: BTreeMap<String, String>,
    pub raw: String,
    pub body: Value,
}

/// A tool result in a request; only Anthropic's API marks errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolResult {
    pub id: String,
    pub text: String,
    pub is_error: Option<bool>,
}

impl Received {
    /// All text of the request, joined.
    pub(crate) fn text(&self) -> String {
        let mut said = String::new();
        texts(&self.body["system"], &mut said);
        texts(&self.body["messages"], &mut said);
        said
    }

    /// The results of tools in it, from the oldest on.
    pub(crate) fn results(&self) -> Vec<ToolResult> {
        let messages = self.body["messages"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut results = Vec::new();
        for message in messages {
            if message["role"] == "tool" {
                let (id, text) = (text(&message["tool_call_id"]), text(&message["content"]));
                results.push(ToolResult {
                    id,
                    text,
                    is_error: None,
                });
            }
            let blocks = message["content"].as_array().cloned().unwrap_or_default();
            results.extend(
                blocks
                    .iter()
                    .filter(|block| block["type"] == "tool_result")
                    .map(|block| ToolResult {
                        id: text(&block["tool_use_id"]),
                        text: text(&block["content"]),
                        is_error: block["is_error"].as_bool(),
                    }),
            );
        }
        results
    }

    /// The newest result of a tool.
    pub(crate) fn result(&self) -> ToolResult {
        self.results()
            .pop()
            .unwrap_or_else(|| panic!("no result in {}", self.raw))
    }

    fn dialect(&self) -> Option<Dialect> {
        match self.path.split('?').next() {
            Some("/v1/messages") => Some(Dialect::Anthropic),
            Some("/v1/chat/completions") => Some(Dialect::OpenAi),
            _ => None,
        }
    }
}

/// Adds every text below the value, without protocol fields.
pub(crate) fn texts(value: &Value, said: &mut String) {
    match value {
        Value::String(text) => said.extend([text.as_str(), "\n"]),
        Value::Array(items) => items.iter().for_each(|item| texts(item, said)),
        Value::Object(fields) => {
            let content = fields
                .iter()
                .filter(|(name, _)| matches!(name.as_str(), "text" | "content"));
            content.for_each(|(_, field)| texts(field, said));
        }
        _ => {}
    }
}

type Script = Box<dyn FnMut(&Received) -> Reply + Send>;

struct Play {
    script: Script,
    requests: Vec<Received>,
    /// The number of requests, from the first, that are released.
    released: usize,
    over: bool,
}

struct Stage {
    play: Mutex<Play>,
    changed: Condvar,
}

impl Stage {
    fn play(&self) -> MutexGuard<'_, Play> {
        self.play.lock().unwrap()
    }
}

/// A server that lives as long as this value.
pub(crate) struct Server {
    address: SocketAddr,
    stage: Arc<Stage>,
}

impl Server {
    /// Starts a server that gives these replies in turn.
    pub(crate) fn start(replies: impl IntoIterator<Item = Reply>) -> Server {
        let mut script: VecDeque<Reply> = replies.into_iter().collect();
        Server::answering(move |_| {
            let over = || {
                reply::error(
                    400,
                    "script_over",
                    "the script of the test has no reply for this request",
                )
            };
            script.pop_front().unwrap_or_else(over)
        })
    }

    /// Starts a server that computes each reply from the request.
    pub(crate) fn answering(script: impl FnMut(&Received) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let play = Play {
            script: Box::new(script),
            requests: Vec::new(),
            released: 0,
            over: false,
        };
        let stage = Arc::new(Stage {
            play: Mutex::new(play),
            changed: Condvar::new(),
        });
        let shared = stage.clone();
        thread::spawn(move || accept(&listener, &shared));
        Server { address, stage }
    }

    /// The address without a path.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests so far, in the order of their arrival.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.stage.play().requests.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.stage.play().requests.len()
    }

    /// Waits until this many requests have arrived.
    pub(crate) fn wait_for(&self, count: usize) {
        let missing = |play: &mut Play| play.requests.len() < count;
        let (play, end) = self
            .stage
            .changed
            .wait_timeout_while(self.stage.play(), DEADLINE, missing)
            .unwrap();
        let come = play.requests.len();
        // A panic while the lock is held would poison it.
        drop(play);
        assert!(!end.timed_out(), "{come} of {count} requests have come");
    }

    /// Releases every request that has arrived so far.
    pub(crate) fn release(&self) {
        let mut play = self.stage.play();
        play.released = play.requests.len();
        self.stage.changed.notify_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stage.play().over = true;
        self.stage.changed.notify_all();
        // A connection wakes the listener's thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn accept(listener: &TcpListener, stage: &Arc<Stage>) {
    for stream in listener.incoming().flatten() {
        if stage.play().over {
            return;
        }
        let stage = stage.clone();
        // Many tests end the client in the middle of an answer.
        thread::spawn(move || serve(stream, &stage).ok());
    }
}

fn serve(stream: TcpStream, stage: &Stage) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let received = read_request(&stream)?;
    let dialect = received.dialect();
    let (number, reply) = {
        let mut play = stage.play();
        let is_known = dialect.is_some() || received.path.ends_with("/models");
        let reply = match is_known {
            true => (play.script)(&received),
            false => reply::error(404, "not_found_error", "no such path"),
        };
        play.requests.push(received);
        stage.changed.notify_all();
        (play.requests.len(), reply)
    };
    Exchange {
        stream,
        stage,
        number,
        reply,
        dialect: dialect.unwrap_or(Dialect::Anthropic),
    }
    .answer()
}

fn read_request(stream: &TcpStream) -> io::Result<Received> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    let mut raw = vec![0; length];
    reader.read_exact(&mut raw)?;
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Received {
        path,
        headers,
        raw: String::from_utf8_lossy(&raw).into_owned(),
        body,
    })
}

/// One request being answered.
struct Exchange<'a> {
    stream: TcpStream,
    stage: &'a Stage,
    number: usize,
    reply: Reply,
    dialect: Dialect,
}

impl Exchange<'_> {
    fn answer(mut self) -> io::Result<()> {
        if self.reply.held {
            self.wait(false)?;
        }
        if self.reply.reset {
            // A close with lingering off and nothing read is a reset.
            return Ok(set_socket_linger(&self.stream, Some(Duration::ZERO))?);
        }
        match self.reply.whole {
            true => self.answer_whole(),
            false => self.stream_events(),
        }
    }

    fn answer_whole(&mut self) -> io::Result<()> {
        let (content_type, body) = self.reply.body(self.dialect);
        self.head(&content_type, &format!("content-length: {}", body.len()))?;
        self.write(&body)
    }

    fn stream_events(&mut self) -> io::Result<()> {
        self.head("text/event-stream", "transfer-encoding: chunked")?;
        for (index, event) in self.reply.events(self.dialect).into_iter().enumerate() {
            if self.reply.cut_after == Some(index) {
                return Ok(());
            }
            if self.reply.ends_after == Some(index) {
                break;
            }
            if self.reply.stall_after == Some(index) {
                self.wait(self.reply.pings)?;
            }
            self.write_chunk(event.as_bytes())?;
        }
        self.write_chunk(b"")
    }

    fn head(&mut self, content_type: &str, length: &str) -> io::Result<()> {
        let more: String = self
            .reply
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let status = self.reply.status;
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\n{length}\r\nconnection: close\r\n{more}\r\n"
        );
        self.stream.write_all(head.as_bytes())
    }

    /// Writes a chunk of the body; an empty one ends it.
    fn write_chunk(&mut self, content: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", content.len()).into_bytes();
        chunk.extend_from_slice(content);
        chunk.extend_from_slice(b"\r\n");
        self.write(&chunk)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        bytes
            .chunks(self.reply.piece)
            .try_for_each(|piece| self.stream.write_all(piece))
    }

    /// Waits until this request is released, with pings if the reply asks for them.
    fn wait(&mut self, pings: bool) -> io::Result<()> {
        let number = self.number;
        let mut play = self.stage.play();
        while play.released < number && !play.over {
            play = self
                .stage
                .changed
                .wait_timeout(play, BETWEEN_PINGS)
                .unwrap()
                .0;
            if pings {
                drop(play);
                self.write_chunk(b"event: ping\ndata: {\"type\": \"ping\"}\n\n")?;
                play = self.stage.play();
            }
        }
        if play.over {
            Err(io::ErrorKind::Interrupted.into())
        } else {
            Ok(())
        }
    }
}

mod tests {
    use super::*;

    /// Sends one request by hand and returns all that came back.
    fn ask(server: &Server, path: &str) -> String {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let body = r#"{"system": "be brief", "messages": [{"role": "user", "content": "hello"}]}"#;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: k\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn both_dialects_stream_to_their_end() {
        let server = Server::start([reply::answer("42"), reply::answer("42").chunked_by(3)]);
        let answer = ask(&server, "/v1/messages?beta=true");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(
            answer.contains(
                "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n\r\n0\r\n\r\n"
            ),
            "{answer}"
        );
        let answer = ask(&server, "/v1/chat/completions");
        assert!(answer.contains("\"finish_reason\":\"stop\""), "{answer}");
        assert!(
            answer.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"),
            "{answer}"
        );
    }

    #[test]
    fn requests_are_recorded_in_order_and_the_end_of_the_script_is_reported() {
        let server = Server::start([reply::text("one").json()]);
        assert!(ask(&server, "/v1/messages").contains("\"text\":\"one\""));
        assert!(ask(&server, "/v1/messages").starts_with("HTTP/1.1 400"));
        assert_eq!(server.count(), 2);
        assert_eq!(server.requests()[0].headers["x-api-key"], "k");
        assert_eq!(server.requests()[0].text(), "be brief\nhello\n");
    }

    #[test]
    fn a_held_answer_comes_when_it_is_released() {
        let server = Server::start([
            reply::text("late").held(),
            reply::text("late too").stall_after(2).pinging(),
        ]);
        thread::scope(|scope| {
            for number in 1..=2 {
                let asked = scope.spawn(|| ask(&server, "/v1/messages"));
                server.wait_for(number);
                server.release();
                assert!(asked.join().unwrap().contains("message_stop"));
            }
        });
    }

    #[test]
    fn broken_answers_break_at_the_given_point() {
        let replies = [
            reply::answer("1").cut_after(3),
            reply::answer("1").ends_after(3),
            reply::answer("1").fails_after(3),
        ];
        let server = Server::start(
            replies
                .into_iter()
                .chain([reply::text("").reset(), reply::status(529)]),
        );
        let answers: Vec<String> = (0..5).map(|_| ask(&server, "/v1/messages")).collect();
        assert_eq!(answers[0].matches("event: ").count(), 3);
        assert!(!answers[0].ends_with("0\r\n\r\n"));
        assert_eq!(answers[1].matches("event: ").count(), 3);
        assert!(answers[1].ends_with("0\r\n\r\n"));
        assert!(answers[2].contains("event: error"));
        assert_eq!(answers[3], "");
        assert!(answers[4].starts_with("HTTP/1.1 529"));
    }
}
