//! The HTTP transport: one request at a time, on a thread of its own, so that a wait for it can be cancelled.
//!
//! The thread is kept for the next request, unless it is still busy with one that was given up. It sends what it reads over a bounded channel, and one byte per part over a socket pair, which the caller
//! polls together with the cancel token.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use reqwest::Url;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;

use crate::cancel::{CancelToken, WakeReason};
use crate::llm::advice::connection_message;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest body, after decompression.
const MAX_BODY: u64 = 64 * 1024 * 1024;

const READ_SIZE: usize = 16 * 1024;

/// The thread stops reading while so many parts wait.
const PARTS_AHEAD: usize = 8;

#[derive(Debug)]
pub(super) struct HttpRequest {
    pub url: String,
    pub headers: HeaderMap,
    /// With a body it is a POST, else a GET.
    pub body: Option<String>,
}

/// A part of a response, in this order: one head, chunks, the end.
#[derive(Debug)]
pub enum HttpPart {
    Head { status: u16, headers: HeaderMap },
    Chunk(Vec<u8>),
    End,
}

/// Why no further part will arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HttpFailure {
    /// The URL is invalid.
    Unsendable(String),
    /// The server was not reached.
    NotSent(String),
    /// It was sent, then the connection broke or the body exceeded its limit.
    Broken(String),
    /// The caller's deadline passed.
    TimedOut,
    /// The run was cancelled.
    Stopped,
}

/// Makes exchanges, and keeps connections for the next one.
#[derive(Debug)]
pub(super) struct Transport {
    /// Limits each read, so that a thread without a caller ends.
    read_timeout: Duration,
    client: Option<Client>,
    /// The thread that builds the client.
    building: Option<JoinHandle<Result<Client, HttpFailure>>>,
    /// The thread of the last request. A request can be sent to it only while it waits for one.
    worker: Option<SyncSender<QueuedRequest>>,
}

/// A request, and where its response goes.
type QueuedRequest = (RequestBuilder, ExchangeSender);

impl Transport {
    /// Callers wait at most `longest_wait` for a part. The client is built in the background: for TLS all certificates of
    /// the system are loaded.
    pub(super) fn new(address: &str, longest_wait: Duration) -> Transport {
        let read_timeout = longest_wait.saturating_add(Duration::from_secs(1));
        let url = Url::parse(address).ok();
        let build = |url| {
            thread::Builder::new()
                .name("HTTP".into())
                .spawn(move || build(&url, read_timeout))
                .ok()
        };
        Transport {
            read_timeout,
            client: None,
            building: url.and_then(build),
            worker: None,
        }
    }

    /// Sends `request` in the background.
    pub(super) fn start(
        &mut self,
        request: HttpRequest,
        cancel: &CancelToken,
    ) -> Result<HttpExchange, HttpFailure> {
        let url = Url::parse(&request.url)
            .map_err(|error| HttpFailure::Unsendable(format!("{error} in {:?}", request.url)))?;
        let client = self.client(&url)?;
        let builder = match request.body {
            Some(body) => client.post(url).body(body),
            None => client.get(url),
        };
        let request = builder.headers(request.headers);
        let (part_sender, parts) = sync_channel(PARTS_AHEAD);
        let not_sent = |error| HttpFailure::NotSent(format!("cannot start a request: {error}"));
        let (wake, waker) = UnixStream::pair().map_err(not_sent)?;
        let sender = ExchangeSender {
            parts: part_sender,
            waker,
        };
        self.give_to_worker((request, sender)).map_err(not_sent)?;
        Ok(HttpExchange {
            parts,
            wake,
            cancel: cancel.clone(),
        })
    }

    /// Gives a request to the thread that waits for one, else to a new one.
    fn give_to_worker(&mut self, request: QueuedRequest) -> io::Result<()> {
        let given = match &self.worker {
            Some(worker) => worker.try_send(request),
            None => Err(TrySendError::Disconnected(request)),
        };
        let Err(
            TrySendError::Full((request, sender)) | TrySendError::Disconnected((request, sender)),
        ) = given
        else {
            return Ok(());
        };
        let (worker, posts) = sync_channel::<QueuedRequest>(0);
        thread::Builder::new().name("model".into()).spawn(move || {
            run(request, sender);
            posts
                .iter()
                .for_each(|(request, sender)| run(request, sender));
        })?;
        self.worker = Some(worker);
        Ok(())
    }

    fn client(&mut self, url: &Url) -> Result<Client, HttpFailure> {
        let client = match (self.client.take(), self.building.take()) {
            (Some(client), _) => client,
            (None, Some(building)) => building
                .join()
                .unwrap_or_else(|_| Err(HttpFailure::NotSent("cannot set up HTTP".into())))?,
            (None, None) => build(url, self.read_timeout)?,
        };
        self.client = Some(client.clone());
        Ok(client)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Dropping the last client joins its thread, which may hang in a name lookup.
        std::mem::forget(self.client.take());
    }
}

fn build(url: &Url, read_timeout: Duration) -> Result<Client, HttpFailure> {
    // An error means that another part of the program has installed one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("orchestrator/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        // In a blocking client this bounds the wait for the head and each read, not their sum.
        .timeout(read_timeout);
    if is_loopback(url) {
        builder = builder.no_proxy();
        if is_plain(url) {
            // Redirects are not followed, so no certificate is checked, and none has to be loaded.
            builder = builder.tls_certs_only([]);
        }
    }
    builder
        .build()
        .map_err(|error| HttpFailure::NotSent(format!("cannot set up HTTP: {}", explain(error))))
}

/// Whether an address needs no TLS: it leads to this machine.
fn is_plain(url: &Url) -> bool {
    url.scheme() == "http" && is_loopback(url)
}

/// Whether an address is one that requests can be sent to.
pub(crate) fn is_http_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Whether an address leads to this machine.
pub(crate) fn is_loopback_address(address: &str) -> bool {
    Url::parse(address).is_ok_and(|url| is_loopback(&url))
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A request and its response. Dropping it stops the thread.
#[derive(Debug)]
pub(super) struct HttpExchange {
    parts: Receiver<Result<HttpPart, HttpFailure>>,
    /// One byte for each part in the channel.
    wake: UnixStream,
    cancel: CancelToken,
}

impl HttpExchange {
    /// Returns an exchange with a complete response.
    pub(super) fn of(parts: Vec<HttpPart>) -> io::Result<HttpExchange> {
        let (sender, receiver) = sync_channel(parts.len());
        let (wake, mut waker) = UnixStream::pair()?;
        for part in parts {
            // Cannot fail: the channel holds all parts.
            let _ = sender.send(Ok(part));
            waker.write_all(&[0])?;
        }
        Ok(HttpExchange {
            parts: receiver,
            wake,
            cancel: CancelToken::never()?,
        })
    }

    /// Waits for the next part until `deadline`. A signal, or a deadline that has passed, takes precedence over a part.
    pub(super) fn next(&mut self, deadline: Instant) -> Result<HttpPart, HttpFailure> {
        if Instant::now() >= deadline && self.cancel.requested().is_none() {
            return Err(HttpFailure::TimedOut);
        }
        let broken = |error| HttpFailure::Broken(format!("cannot wait for the model: {error}"));
        match self
            .cancel
            .wait(Some(self.wake.as_fd()), Some(deadline))
            .map_err(broken)?
        {
            WakeReason::Stopped(_) => return Err(HttpFailure::Stopped),
            WakeReason::TimedOut => return Err(HttpFailure::TimedOut),
            WakeReason::Ready => {}
        }
        self.wake.read(&mut [0]).map_err(broken)?;
        self.parts.recv().unwrap_or_else(|_| {
            Err(HttpFailure::Broken(
                "the request ended without a response".into(),
            ))
        })
    }
}

/// The thread's side of an exchange.
#[derive(Debug)]
struct ExchangeSender {
    parts: SyncSender<Result<HttpPart, HttpFailure>>,
    waker: UnixStream,
}

impl ExchangeSender {
    /// Returns whether the exchange still exists.
    fn send(&mut self, part: Result<HttpPart, HttpFailure>) -> bool {
        self.parts.send(part).is_ok() && self.waker.write_all(&[0]).is_ok()
    }
}

fn run(request: RequestBuilder, mut sender: ExchangeSender) {
    match request.send() {
        Ok(response) => {
            let head = HttpPart::Head {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
            };
            if sender.send(Ok(head)) {
                read_body(response, &mut sender);
            }
        }
        Err(error) => {
            sender.send(Err(failure(error)));
        }
    }
}

fn read_body(mut response: Response, sender: &mut ExchangeSender) {
    let (mut buffer, mut total) = ([0; READ_SIZE], 0);
    loop {
        let part = match response.read(&mut buffer) {
            Ok(0) => Ok(HttpPart::End),
            Ok(count) => {
                total += count as u64;
                match total <= MAX_BODY {
                    true => Ok(HttpPart::Chunk(buffer[..count].to_vec())),
                    false => Err(HttpFailure::Broken(format!(
                        "the answer is larger than {MAX_BODY} bytes"
                    ))),
                }
            }
            Err(error) => Err(HttpFailure::Broken(format!(
                "the answer broke off: {}",
                with_causes(&error)
            ))),
        };
        let is_last = !matches!(part, Ok(HttpPart::Chunk(_)));
        if !sender.send(part) || is_last {
            return;
        }
    }
}

fn failure(error: reqwest::Error) -> HttpFailure {
    if error.is_builder() {
        HttpFailure::Unsendable(explain(error))
    } else if error.is_connect() {
        HttpFailure::NotSent(connection_message(error.url(), &causes(&error)))
    } else {
        HttpFailure::Broken(format!("no answer to the request: {}", explain(error)))
    }
}

fn explain(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}

/// The messages of the causes of an error, the innermost last.
fn causes(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(error.source(), |error| error.source())
        .map(|error| error.to_string())
        .collect()
}

/// Joins the messages of an error and its causes, without repetitions.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if texts.last().is_none_or(|last| !last.contains(&text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use reqwest::header::HeaderMap;

    use super::{
        HttpExchange, HttpFailure, HttpPart, HttpRequest, MAX_BODY, Transport, is_loopback_address,
    };
    use crate::cancel::CancelToken;
    use crate::llm::test_server::{ScriptStep, TestServer};

    const LONG: Duration = Duration::from_secs(60);

    fn start(url: &str, cancel: &CancelToken) -> Result<HttpExchange, HttpFailure> {
        let post = HttpRequest {
            url: url.into(),
            headers: HeaderMap::new(),
            body: Some("{}".into()),
        };
        Transport::new(&post.url, LONG).start(post, cancel)
    }

    /// Returns the status and the body, or the failure.
    fn collect(mut exchange: HttpExchange) -> (u16, Result<Vec<u8>, HttpFailure>) {
        let (mut status, mut body) = (0, Vec::new());
        loop {
            match exchange.next(Instant::now() + LONG) {
                Ok(HttpPart::Head { status: given, .. }) => status = given,
                Ok(HttpPart::Chunk(bytes)) => body.extend(bytes),
                Ok(HttpPart::End) => return (status, Ok(body)),
                Err(failure) => return (status, Err(failure)),
            }
        }
    }

    fn exchange(steps: Vec<ScriptStep>) -> (u16, Result<Vec<u8>, HttpFailure>) {
        let server = TestServer::start(vec![steps]);
        collect(start(&server.url, &CancelToken::never().unwrap()).unwrap())
    }

    #[test]
    fn loopback_is_known_by_its_address() {
        for url in [
            "http://127.0.0.1:8080/v1",
            "http://localhost/v1",
            "http://LOCALHOST",
            "http://[::1]:1/",
            "https://u:p@127.9.9.9/",
        ] {
            assert!(is_loopback_address(url), "{url}");
        }
        for url in [
            "https://api.openai.com/v1",
            "http://192.0.2.1:9/v1",
            "http://localhost.evil.example/",
            "http://127.0.0.1@evil.example/",
            "localhost",
        ] {
            assert!(!is_loopback_address(url), "{url}");
        }
    }

    #[test]
    fn head_and_body_come_in_order() {
        let chunked = "HTTP/1.1 201 Fine\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";
        let (status, body) = exchange(vec![
            ScriptStep::send(chunked),
            ScriptStep::send("1\r\nc\r\n0\r\n\r\n"),
        ]);
        assert_eq!((status, body.unwrap()), (201, b"abc".to_vec()));
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
        for cut in [ScriptStep::Close, ScriptStep::Reset] {
            let (_, body) = exchange(vec![ScriptStep::send(head), cut]);
            assert!(matches!(body, Err(HttpFailure::Broken(_))), "{body:?}");
        }
    }

    #[test]
    fn a_wrong_chunk_size_is_an_error() {
        let lie = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffff\r\nabc";
        assert!(matches!(
            exchange(vec![ScriptStep::send(lie), ScriptStep::Close]).1,
            Err(HttpFailure::Broken(_))
        ));
    }

    #[test]
    fn a_request_without_a_response_is_broken_and_one_without_a_connection_is_not_sent() {
        for cut in [ScriptStep::Close, ScriptStep::Reset] {
            assert!(matches!(exchange(vec![cut]).1, Err(HttpFailure::Broken(_))));
        }
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let refused =
            collect(start(&format!("http://{free}/"), &CancelToken::never().unwrap()).unwrap()).1;
        assert!(
            matches!(&refused, Err(HttpFailure::NotSent(text)) if text.contains("refused")),
            "{refused:?}"
        );
    }

    #[test]
    fn tls_to_a_server_without_tls_is_not_sent() {
        let server = TestServer::start(vec![vec![ScriptStep::send("HTTP/1.1 200 OK\r\n\r\n")]]);
        let url = server.url.replace("http:", "https:");
        let failed = collect(start(&url, &CancelToken::never().unwrap()).unwrap()).1;
        assert!(matches!(failed, Err(HttpFailure::NotSent(_))), "{failed:?}");
    }

    #[test]
    fn an_invalid_url_is_unsendable() {
        for url in ["", "localhost", "ftp://localhost/", "http://"] {
            let failed = match start(url, &CancelToken::never().unwrap()) {
                Ok(exchange) => collect(exchange).1.map(|_| ()),
                Err(failure) => Err(failure),
            };
            assert!(
                matches!(failed, Err(HttpFailure::Unsendable(_))),
                "{url}: {failed:?}"
            );
        }
    }

    #[test]
    fn an_endless_body_is_cut_at_the_limit() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n";
        let server = TestServer::start(vec![vec![
            ScriptStep::send(head),
            ScriptStep::Endless(vec![b'x'; 1 << 20]),
        ]]);
        let mut exchange = start(&server.url, &CancelToken::never().unwrap()).unwrap();
        let mut total = 0;
        let end = loop {
            match exchange.next(Instant::now() + LONG) {
                Ok(HttpPart::Chunk(bytes)) => total += bytes.len() as u64,
                Ok(_) => {}
                Err(failure) => break failure,
            }
        };
        assert!(matches!(end, HttpFailure::Broken(text) if text.contains("larger")));
        assert!(total <= MAX_BODY);
    }

    #[test]
    fn a_request_does_not_wait_for_one_that_was_given_up() {
        let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
        let server = TestServer::start(vec![
            vec![ScriptStep::Hold],
            vec![ScriptStep::send(answer)],
            vec![ScriptStep::send(answer)],
        ]);
        let (mut transport, cancel) = (
            Transport::new("http://127.0.0.1", LONG),
            CancelToken::never().unwrap(),
        );
        let mut start = || {
            let post = HttpRequest {
                url: server.url.clone(),
                headers: HeaderMap::new(),
                body: Some("{}".into()),
            };
            transport.start(post, &cancel).unwrap()
        };
        let given_up = start();
        server.requests.recv().unwrap();
        drop(given_up);
        for _ in 0..2 {
            assert_eq!(collect(start()).1, Ok(b"ok".to_vec()));
        }
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_at_a_signal() {
        let server = TestServer::start(vec![vec![ScriptStep::Hold]]);
        let cancel = CancelToken::never().unwrap();
        let mut silent = start(&server.url, &cancel).unwrap();
        assert_eq!(
            silent
                .next(Instant::now() + Duration::from_millis(20))
                .unwrap_err(),
            HttpFailure::TimedOut
        );
        let asked = cancel.clone();
        let signal = std::thread::spawn(move || asked.request());
        assert_eq!(
            silent.next(Instant::now() + LONG).unwrap_err(),
            HttpFailure::Stopped
        );
        signal.join().unwrap();
    }

    #[test]
    fn a_flood_does_not_hide_a_passed_deadline() {
        let server = TestServer::start(vec![vec![
            ScriptStep::send("HTTP/1.1 200 OK\r\n\r\n"),
            ScriptStep::Endless(vec![b'x'; 4096]),
        ]]);
        let mut flood = start(&server.url, &CancelToken::never().unwrap()).unwrap();
        flood.next(Instant::now() + LONG).unwrap();
        assert_eq!(
            flood.next(Instant::now()).unwrap_err(),
            HttpFailure::TimedOut
        );
    }
}
