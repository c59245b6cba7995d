//! Unreachable servers, floods, wrong lengths, answers that come twice or too early.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::json;

use crate::model_requests::check_transient;
use crate::support::needs;
use crate::support::project::{ANTHROPIC_KEY, Project, RUN, RUN_JSON, answer_spec, holds};
use crate::support::reply::{self, Dialect, Reply};
use crate::support::running::Running;
use crate::support::server::Server;

/// The server cannot be reached: the run pauses after all attempts and names the cause.
fn check_unreachable(url: &str, words: &[&str]) {
    let project = Project::new()
        .spec(answer_spec())
        .env("ANTHROPIC_BASE_URL", url);
    let ran = project.run(RUN_JSON).exits(4);
    assert_eq!(
        ran.outcome_and_reason(),
        ("PAUSED".into(), "provider_unavailable".into()),
        "{url}"
    );
    let message = ran.result()["message"]
        .as_str()
        .unwrap_or_default()
        .to_lowercase();
    assert!(
        words.iter().any(|word| message.contains(word)),
        "{url}: {message}"
    );
    assert_eq!(
        project.events("ModelRequested").len() + project.events("ModelRetried").len(),
        5,
        "{url}"
    );
    assert_eq!(project.state()["usage"]["llm_calls"], 0, "{url}");
}

#[test]
fn an_unknown_host_name_pauses_the_run() {
    check_unreachable("http://no-such-host.invalid", &["dns", "resolve", "lookup"]);
}

#[test]
fn a_server_without_tls_pauses_the_run() {
    let server = Server::answering(|_| reply::answer("42"));
    check_unreachable(
        &server.url().replace("http:", "https:"),
        &["tls", "corrupt", "invalidcontenttype", "handshake"],
    );
    assert_eq!(server.count(), 0);
}

#[test]
fn an_untrusted_certificate_gets_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command
            .args(arguments.split(' '))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    };
    let made =
        "req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=127.0.0.1";
    if !openssl(made)
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        return needs::skip("there is no openssl here");
    }
    let mut server = openssl("s_server -accept 127.0.0.1:0 -key key -cert cert -quiet -naccept 9")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (sink, mut stdout) = (heard.clone(), server.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut piece) {
            sink.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    });
    let port = || listening_port(server.id());
    crate::support::running::until("the server listens", || port().is_some());
    check_unreachable(
        &format!("https://127.0.0.1:{}", port().unwrap()),
        &["certificate", "unknownissuer"],
    );
    server.kill().unwrap();
    server.wait().unwrap();
    reader.join().unwrap();
    assert!(!holds(&heard.lock().unwrap(), ANTHROPIC_KEY.as_bytes()));
}

/// The port on which a process listens, from `/proc`.
fn listening_port(process: u32) -> Option<u16> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|target| {
            target
                .to_string_lossy()
                .trim_start_matches("socket:[")
                .trim_end_matches(']')
                .to_owned()
        })
        .collect();
    fs::read_to_string("/proc/net/tcp")
        .ok()?
        .lines()
        .skip(1)
        .find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_ours = fields[3] == "0A" && sockets.iter().any(|socket| socket == fields[9]);
            is_ours.then(|| u16::from_str_radix(fields[1].split(':').nth(1)?, 16).ok())?
        })
}

#[test]
fn retry_after_is_honoured_up_to_a_minute() {
    let retried = [
        "0",
        "-5",
        "soon",
        "",
        "nan",
        "60",
        "Fri, 31 Dec 1999 23:59:59 GMT",
    ];
    for asked in retried {
        let server = Server::start([
            reply::status(429).header("retry-after", asked),
            reply::answer("42"),
        ]);
        Project::with(answer_spec(), &server).run(RUN).exits(0);
        assert_eq!(server.count(), 2, "{asked}");
    }
    for asked in [
        "61",
        "1000000000",
        "1e300",
        "inf",
        "Tue, 31 Dec 2999 23:59:59 GMT",
    ] {
        let server = Server::start([
            reply::status(429).header("retry-after", asked),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(4).says("asks to wait");
        assert_eq!(server.count(), 1, "{asked}");
    }
}

#[test]
fn a_body_that_is_not_an_answer_is_refused_with_any_status() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let whole = String::from_utf8(reply::answer("41").body(Dialect::Anthropic).1).unwrap();
    let cases: [(&str, Reply); 9] = [
        (
            "an error in a 200",
            reply::raw(
                200,
                "application/json",
                r#"{"type":"error","error":{"message":"x"}}"#,
            ),
        ),
        ("a 204", reply::raw(204, "application/json", "")),
        (
            "an answer as a page",
            reply::raw(200, "text/html", whole.clone()),
        ),
        (
            "a byte order mark",
            reply::raw(200, "application/json", format!("\u{feff}{whole}")),
        ),
        (
            "not UTF-8",
            reply::raw(
                200,
                "application/json",
                whole.replace("41", "4#").replace('#', "\u{1}").into_bytes(),
            ),
        ),
        (
            "bytes",
            reply::raw(
                200,
                "application/json",
                [b"{\"content\":\"".as_slice(), b"\xff\xfe", b"\"}"].concat(),
            ),
        ),
        (
            "NaN",
            reply::raw(
                200,
                "application/json",
                whole
                    .replace(":1,", ":NaN,")
                    .replace("\"usage\"", "\"n\":NaN,\"usage\""),
            ),
        ),
        ("depth", reply::raw(200, "application/json", deep.clone())),
        (
            "depth in a stream",
            reply::raw(200, "text/event-stream", format!("data: {deep}\n\n")),
        ),
    ];
    for (what, fault) in cases {
        check_transient(what, fault);
    }
}

#[test]
fn the_log_shows_the_escaped_start_of_an_unexpected_body() {
    let page = format!("<html>\u{1b}[31mlogin{}", "x".repeat(1000));
    let server = Server::start([reply::raw(200, "text/html", page), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let said = project.events("ErrorOccurred")[0]["error_message"].to_string();
    assert!(said.contains("<html>") && said.contains("login"), "{said}");
    assert!(!said.contains("\\u001b") && said.len() < 600, "{said}");
}

#[test]
fn a_redirect_to_itself_is_not_followed() {
    let server =
        Server::answering(|_| reply::raw(307, "text/plain", "").header("location", "/v1/messages"));
    Project::with(answer_spec(), &server).run(RUN).exits(1);
    assert_eq!(server.count(), 1);
}

/// A server with one reply for each connection, sent before or after it reads the request; returns its URL and a count.
fn scripted_server(words: Vec<(bool, Vec<u8>)>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, count) = (
        format!("http://{}", listener.local_addr().unwrap()),
        Arc::new(AtomicUsize::new(0)),
    );
    let counted = count.clone();
    thread::spawn(move || {
        for (is_early, word) in words {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            counted.fetch_add(1, Ordering::SeqCst);
            let mut piece = [0; 1 << 16];
            if is_early {
                let _ = stream.write_all(&word);
                let _ = stream.read(&mut piece);
            } else {
                let _ = stream.read(&mut piece);
                let _ = stream.write_all(&word);
            }
        }
    });
    (url, count)
}

/// An HTTP response; `length` may change its content-length.
fn on_the_wire(line: &str, length: impl Fn(usize) -> usize) -> Vec<u8> {
    let body = reply::answer(line).body(Dialect::Anthropic).1;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: of-another\r\ncontent-length: {}\r\n\r\n",
        length(body.len())
    );
    [head.into_bytes(), body].concat()
}

#[test]
fn the_first_complete_answer_counts() {
    let twice = [
        on_the_wire("42", |length| length),
        on_the_wire("41", |length| length),
    ]
    .concat();
    for (what, is_early, word) in [
        ("twice", false, twice.clone()),
        ("early", true, on_the_wire("42", |length| length)),
        ("both", true, twice),
    ] {
        // A response that precedes its request may be dropped with the connection.
        let (url, count) = scripted_server(vec![
            (is_early, word),
            (false, on_the_wire("42", |length| length)),
        ]);
        let project = Project::new()
            .spec(answer_spec())
            .env("ANTHROPIC_BASE_URL", &url);
        project.run(RUN).exits(0);
        assert_eq!(project.workspace("answer.txt"), "42\n", "{what}");
        assert!(count.load(Ordering::SeqCst) <= 2, "{what}");
        assert_eq!(project.state()["usage"]["llm_calls"], 1, "{what}");
    }
}

#[test]
fn a_body_shorter_than_announced_is_retried() {
    let chunked = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\ndata: {}\n\n";
    let faults = vec![
        (false, on_the_wire("41", |length| length + 1)),
        (false, chunked.to_vec()),
        (false, b"HTTP/1.1 200 OK\r\n".to_vec()),
    ];
    let (url, count) =
        scripted_server([faults, vec![(false, on_the_wire("42", |length| length))]].concat());
    let project = Project::new()
        .spec(answer_spec())
        .env("ANTHROPIC_BASE_URL", &url);
    project.run(RUN).exits(0);
    assert_eq!(
        (
            project.workspace("answer.txt").as_str(),
            count.load(Ordering::SeqCst)
        ),
        ("42\n", 4)
    );
}

#[test]
fn a_silent_server_is_reported_with_the_time_waited() {
    for fault in [
        reply::answer("41").held(),
        reply::answer("41").stall_after(3),
    ] {
        let server = Server::start([fault, reply::answer("42")]);
        let project = Project::with(answer_spec(), &server).env("ORCHESTRATOR_IDLE_TIMEOUT", "1");
        project.run(RUN).exits(0).says("silence for 1 s");
        assert_eq!(
            (project.workspace("answer.txt").as_str(), server.count()),
            ("42\n", 2)
        );
    }
}

/// Peak memory of a process so far, in kB.
fn most_held(running: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn floods_are_read_in_bounded_memory() {
    let stream = |body: Vec<u8>| reply::raw(200, "text/event-stream", body);
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x".repeat(50_000)}});
    let endless = format!("data: {delta}\n\n").repeat(700);
    let zipped = Command::new("sh")
        .args(["-c", "head -c 150000000 /dev/zero | gzip -9"])
        .output()
        .unwrap()
        .stdout;
    let floods = [
        stream(["data: ".as_bytes(), &vec![b'x'; 20 << 20]].concat()),
        reply::raw(200, "application/json", vec![b' '; 20 << 20]),
        stream(endless.into_bytes()),
        reply::raw(200, "application/json", zipped).header("content-encoding", "gzip"),
    ];
    // Peak memory of the binary when it sends the next request after these replies.
    let held_after = |replies: &[Reply]| {
        let server = Server::start(replies.iter().cloned().chain([reply::answer("42").held()]));
        let project = Project::with(answer_spec(), &server);
        let mut running = project.start(RUN);
        running.until("all floods have come and gone", || {
            server.count() == replies.len() + 1
        });
        let held = most_held(&running);
        server.release();
        running.wait().exits(0);
        held
    };
    let (calm, flooded) = (held_after(&[]), held_after(&floods));
    assert!(flooded - calm < 64 << 10, "{calm} kB, then {flooded} kB");
}
