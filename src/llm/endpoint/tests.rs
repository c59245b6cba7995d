//! What can go wrong in an attempt, the same for each API.

use std::time::Duration;

use serde_json::json;

use super::Endpoint;
use crate::cancel::CancelToken;
use crate::llm::anthropic::Anthropic;
use crate::llm::client::ModelClient;
use crate::llm::error::{LlmError, Spent};
use crate::llm::message::{Answer, TokenUsage};
use crate::llm::openai::OpenAi;
use crate::llm::sse::MAX_EVENT;
use crate::llm::test_server::{ScriptStep, TestServer};
use crate::secrets::ApiKey;

const KEY: &str = "sk-0123456789abcdef";
const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const START: &str = "data: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":9}}}\n\n";
const STOP: &str = "data: {\"type\":\"message_stop\"}\n\n";

fn endpoint(url: &str) -> Endpoint {
    let stop = CancelToken::never().unwrap();
    Endpoint {
        base_url: url.into(),
        key: ApiKey::new(KEY),
        idle_timeout: Duration::from_secs(60),
        cancel: stop,
    }
}

fn impatient(server: &TestServer) -> Anthropic {
    Anthropic::new(Endpoint {
        idle_timeout: Duration::from_millis(200),
        ..endpoint(&server.url)
    })
}

fn attempt(client: &mut dyn ModelClient) -> Result<Answer, LlmError> {
    client.attempt("{}", &mut |_| {})
}

fn play(steps: Vec<ScriptStep>) -> Result<Answer, LlmError> {
    attempt(&mut Anthropic::new(endpoint(
        &TestServer::start(vec![steps]).url,
    )))
}

fn text_delta(text: &str) -> String {
    let delta = json!({"type": "text_delta", "text": text});
    format!(
        "data: {}\n\n",
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    )
}

/// Both APIs return the expected error for this response.
fn both(head: &str, body: &[u8], expected: impl Fn(&LlmError) -> bool) {
    for anthropic in [true, false] {
        let endpoint = endpoint(&TestServer::answering(head, body).url);
        let mut client: Box<dyn ModelClient> = if anthropic {
            Box::new(Anthropic::new(endpoint))
        } else {
            Box::new(OpenAi::new(endpoint))
        };
        let error = attempt(client.as_mut()).unwrap_err();
        assert!(
            expected(&error),
            "{head} {}: {error:?}",
            String::from_utf8_lossy(&body[..body.len().min(99)])
        );
    }
}

/// A 200 that is not an answer gives a transient error that shows its text.
fn nonsense(kind: &str, body: &[u8], shown: &str) {
    both(&format!("200 OK\r\ncontent-type: {kind}"), body, |error| {
        matches!(error, LlmError::Transient { message, retry_after: None, spent: Spent::Unknown }
            if message.contains(shown) && message.chars().count() < 500)
    });
}

#[test]
fn a_200_that_is_not_an_answer_is_transient_and_shown() {
    nonsense("text/html", b"<html>\n\x1b[31mhi", r"<html>\n\u{1b}[31mhi");
    nonsense("application/json", b"", "not JSON");
    nonsense("application/json", b"{}", "{}");
    nonsense("application/json", b"[1]", "[1]");
    nonsense("application/json", b"null", "null");
    nonsense("application/json", br#"{"content":NaN}"#, "NaN");
    nonsense(
        "application/json",
        br#"{"content":"x","choices":"x"}"#,
        "choices",
    );
    nonsense(
        "application/json",
        br#"{"error":{"message":"broken inside"}}"#,
        "broken inside",
    );
    nonsense(
        "application/json",
        br#"{"type":"error","error":{"type":"api_error","message":"oh"}}"#,
        "oh",
    );
    nonsense(
        "application/json",
        b"\xef\xbb\xbf{\"content\":[],\"choices\":[{\"message\":{}}]}",
        "content",
    );
    nonsense("application/json", b"{\"content\":[\"\xff\"]}", "content");
    nonsense("application/json", "[".repeat(100_000).as_bytes(), "[[[[");
    nonsense(
        "application/json",
        "{\"content\":".repeat(100_000).as_bytes(),
        "content",
    );
    nonsense(
        "application/json",
        br#"{"content":[1],"choices":[1]}"#,
        "[1]",
    );
    let intricate = ["{\"content\":[", &"{},".repeat(1 << 18), "{}]}"].concat();
    nonsense("application/json", intricate.as_bytes(), "262144 values");
    nonsense(
        "text/event-stream",
        ["data: ", &intricate, "\n\n"].concat().as_bytes(),
        "262144 values",
    );
    nonsense(
        "text/plain",
        br#"{"content":[],"choices":[{"message":{}}]}"#,
        "text/plain",
    );
    nonsense("application/octet-stream", b"\x00\x01\xfe", r"\u{0}\u{1}");
    nonsense("text/event-stream", b"<html>", "<html>");
    nonsense("text/event-stream", b"", "stream");
    nonsense("text/event-stream", b"data: hello\n\n", "hello");
    nonsense("text/event-stream", b"data: \xff\n\n", "UTF-8");
    nonsense("text/event-stream", b"data: {\"a\":NaN}\n\n", "NaN");
    nonsense(
        "text/event-stream",
        ["data: ", &"[".repeat(100_000), "\n\n"].concat().as_bytes(),
        "[[[[",
    );
    both("204 No Content", b"", |error| {
        matches!(
            error,
            LlmError::Transient {
                spent: Spent::Unknown,
                ..
            }
        )
    });
}

#[test]
fn an_answer_cut_at_any_byte_is_an_error() {
    let body =
        json!({"content": [{"type": "text", "text": "ä"}], "stop_reason": "end_turn"}).to_string();
    let head = "200 OK\r\ncontent-type: application/json";
    for kept in 0..body.len() {
        let server = TestServer::answering(head, &body.as_bytes()[..kept]);
        let error = attempt(&mut Anthropic::new(endpoint(&server.url))).unwrap_err();
        assert!(
            matches!(error, LlmError::Transient { .. }),
            "{kept}: {error:?}"
        );
    }
    assert_eq!(
        attempt(&mut Anthropic::new(endpoint(
            &TestServer::answering(head, &body).url
        )))
        .unwrap()
        .text(),
        "ä"
    );
}

#[test]
fn the_first_bytes_of_a_body_decide_whether_it_is_a_stream() {
    let stream = [START, &text_delta("hi"), STOP].concat();
    let whole =
        json!({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}).to_string();
    let kinds = [
        "text/event-stream",
        "application/json",
        "text/plain",
        "application/octet-stream",
        "text/html",
    ];
    let said = |kind: &str, body: &str, piece: usize| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n");
        play(
            [head.as_bytes()]
                .into_iter()
                .chain(body.as_bytes().chunks(piece))
                .map(ScriptStep::send)
                .collect(),
        )
    };
    for kind in kinds {
        for start in [
            "",
            "\u{feff}",
            "\n\n",
            ": hello\n\n",
            "event: x\n",
            "id: 7\n",
            "retry: 9\n\n",
        ] {
            for piece in [1, 1 << 16] {
                let answer = said(kind, &format!("{start}{stream}"), piece);
                assert_eq!(answer.unwrap().text(), "hi", "{kind} {start:?} {piece}");
            }
        }
    }
    for kind in &kinds[..2] {
        assert_eq!(
            said(kind, &format!(" \n{whole}"), 1).unwrap().text(),
            "hi",
            "{kind}"
        );
    }
    // These only begin like a stream.
    for body in ["dat", "data", "database: down", "identity", "\n", ""] {
        assert!(
            matches!(
                said("application/json", body, 1),
                Err(LlmError::Transient { .. })
            ),
            "{body}"
        );
    }
}

#[test]
fn the_part_of_an_answer_that_arrived_is_counted() {
    let cut = |pieces: &[String]| {
        let chunk = |text: &String| ScriptStep::send(format!("{:x}\r\n{text}\r\n", text.len()));
        let chunked = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let steps = [ScriptStep::send(chunked)]
            .into_iter()
            .chain(pieces.iter().map(chunk))
            .chain([ScriptStep::Close])
            .collect();
        let mut client = Anthropic::new(endpoint(&TestServer::start(vec![steps]).url));
        match client.attempt(&"b".repeat(300), &mut |_| {}).unwrap_err() {
            LlmError::Transient { spent, .. } => spent,
            other => panic!("{other:?}"),
        }
    };
    let start = |input: u64, output: u64| {
        let usage = json!({"input_tokens": input, "output_tokens": output});
        format!(
            "data: {}\n\n",
            json!({"type": "message_start", "message": {"usage": usage}})
        )
    };
    let delta = |kind: &str, field: &str, text: &str| {
        let delta = json!({"type": kind, field: text});
        format!(
            "data: {}\n\n",
            json!({"type": "content_block_delta", "index": 0, "delta": delta})
        )
    };
    let shown = |input, output| {
        Spent::Shown(TokenUsage {
            input,
            output,
            ..TokenUsage::default()
        })
    };
    assert_eq!(cut(&[start(0, 0)]), Spent::Unknown);
    assert_eq!(cut(&[start(9, 1)]), shown(9, 1));
    assert_eq!(cut(&[start(9, 1), text_delta("four")]), shown(9, 2));
    assert_eq!(cut(&[start(9, 50), text_delta("four")]), shown(9, 50));
    assert_eq!(cut(&[start(0, 0), text_delta("four")]), shown(100, 2));
    let others = [
        ("thinking_delta", "thinking"),
        ("input_json_delta", "partial_json"),
    ];
    for (kind, field) in others {
        assert_eq!(
            cut(&[start(9, 1), delta(kind, field, "seven b")]),
            shown(9, 3),
            "{kind}"
        );
    }
}

#[test]
fn error_responses_are_mapped_and_redacted_alike() {
    let echo = format!("{{\"error\":{{\"message\":\"bad key {KEY}\"}}}}");
    both("401 No", echo.as_bytes(), |error| {
        *error
            == LlmError::Unauthorized {
                message: "HTTP 401: bad key [redacted]".into(),
            }
    });
    both("429 Slow\r\nretry-after: 7", b"{}", |error| {
        let expected = Some(Duration::from_secs(7));
        matches!(error, LlmError::Transient { retry_after, spent: Spent::Nothing, .. } if *retry_after == expected)
    });
    both(
        "302 Go\r\nlocation: http://127.0.0.1:1/",
        b"",
        |error| matches!(error, LlmError::Permanent(error) if error.message.contains("http://127.0.0.1:1/")),
    );
    both("413 Much", b"", |error| {
        matches!(error, LlmError::Permanent(_))
    });
}

#[test]
fn a_broken_connection_shows_what_it_may_have_cost() {
    let unknown = |steps| {
        let error = play(steps).unwrap_err();
        assert!(
            matches!(
                error,
                LlmError::Transient {
                    spent: Spent::Unknown,
                    ..
                }
            ),
            "{error:?}"
        );
    };
    unknown(vec![ScriptStep::Close]);
    unknown(vec![ScriptStep::Reset]);
    unknown(vec![ScriptStep::send(SSE), ScriptStep::Close]);
    let refused = attempt(&mut Anthropic::new(endpoint("http://127.0.0.1:1"))).unwrap_err();
    assert!(
        matches!(
            refused,
            LlmError::Transient {
                spent: Spent::Nothing,
                ..
            }
        ),
        "{refused:?}"
    );
    let chunked =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{START}\r\n", START.len());
    let error = play(vec![
        ScriptStep::send(chunked),
        ScriptStep::send(chunk),
        ScriptStep::Close,
    ])
    .unwrap_err();
    let shown = Spent::Shown(TokenUsage {
        input: 9,
        ..TokenUsage::default()
    });
    assert!(
        matches!(error, LlmError::Transient { spent, .. } if spent == shown),
        "{error:?}"
    );
}

#[test]
fn silence_ends_an_attempt_at_any_point() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    for before in [
        "",
        SSE,
        &format!("{SSE}{START}"),
        &format!("{SSE}data: {{\"ty"),
        head,
    ] {
        let server = TestServer::start(vec![vec![ScriptStep::send(before), ScriptStep::Hold]]);
        let error = attempt(&mut impatient(&server)).unwrap_err();
        assert!(
            matches!(&error, LlmError::Silent { message, .. } if message.contains("0.2 s")),
            "{error:?}"
        );
    }
    let server = TestServer::start(vec![vec![
        ScriptStep::send("HTTP/1.1 500 Oh\r\ncontent-length: 9\r\n\r\nsome"),
        ScriptStep::Hold,
    ]]);
    let error = attempt(&mut impatient(&server)).unwrap_err();
    assert!(
        matches!(&error, LlmError::Transient { message, .. } if message == "HTTP 500: some"),
        "{error:?}"
    );
}

#[test]
fn pings_and_comments_do_not_count_as_progress() {
    let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    for noise in [
        ping,
        ": still here\n\n",
        "\n",
        "data: {\"type\":\"unheard_of\"}\n\n",
    ] {
        let server = TestServer::start(vec![vec![
            ScriptStep::send(SSE),
            ScriptStep::send(START),
            ScriptStep::Endless(noise.into()),
        ]]);
        let error = attempt(&mut impatient(&server)).unwrap_err();
        let (LlmError::Transient { message, .. } | LlmError::Silent { message, .. }) = &error
        else {
            panic!("{error:?}")
        };
        assert!(
            message.contains("idle") || message.contains("larger"),
            "{message}"
        );
    }
}

#[test]
fn cancelling_ends_an_attempt() {
    let server = TestServer::start(vec![vec![
        ScriptStep::send(SSE),
        ScriptStep::send(START),
        ScriptStep::Hold,
    ]]);
    let endpoint = endpoint(&server.url);
    let stop = endpoint.cancel.clone();
    let mut client = Anthropic::new(endpoint);
    let stopped = client.attempt("{}", &mut |_| stop.request()).unwrap_err();
    assert_eq!(
        stopped,
        LlmError::Stopped {
            spent: Spent::Shown(TokenUsage {
                input: 9,
                ..TokenUsage::default()
            })
        }
    );
    assert_eq!(
        attempt(&mut client).unwrap_err(),
        LlmError::Stopped {
            spent: Spent::Nothing
        }
    );
}

#[test]
fn an_endless_body_is_cut() {
    let big = text_delta(&"x".repeat(1 << 20));
    let flood = ScriptStep::Endless(big.into_bytes());
    let error = play(vec![ScriptStep::send(SSE), ScriptStep::send(START), flood]).unwrap_err();
    assert!(
        matches!(&error, LlmError::Transient { message, .. } if message.contains("more than")),
        "{error:?}"
    );
    let error = play(vec![
        ScriptStep::send(SSE),
        ScriptStep::send("data: \""),
        ScriptStep::Endless(vec![b'x'; 1 << 16]),
    ])
    .unwrap_err();
    assert!(
        matches!(&error, LlmError::Transient { message, .. } if message.contains("one event")),
        "{error:?}"
    );
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n\"";
    let error = play(vec![
        ScriptStep::send(json),
        ScriptStep::Endless(vec![b'x'; MAX_EVENT / 8]),
    ])
    .unwrap_err();
    assert!(
        matches!(&error, LlmError::Transient { message, .. } if message.contains("larger")),
        "{error:?}"
    );
}

#[test]
fn only_the_first_complete_answer_counts() {
    let twice = [
        SSE,
        START,
        &text_delta("one"),
        STOP,
        START,
        &text_delta("two"),
        STOP,
        "data: junk\n\n",
    ]
    .concat();
    assert_eq!(
        play(vec![ScriptStep::send(twice), ScriptStep::Hold])
            .unwrap()
            .text(),
        "one"
    );
}

#[test]
fn stream_events_are_shown_as_they_arrive_without_the_key() {
    let (half, rest) = KEY.split_at(9);
    let stream = [
        SSE,
        START,
        &text_delta(KEY),
        &text_delta(half),
        &text_delta(rest),
        ": x\n\n",
        STOP,
    ]
    .concat();
    let bytes = stream.into_bytes();
    let steps = bytes.chunks(7).map(ScriptStep::send).collect();
    let mut pieces = Vec::new();
    let server = TestServer::start(vec![steps]);
    let watch = &mut |piece: &str| pieces.push(piece.to_owned());
    let answer = Anthropic::new(endpoint(&server.url))
        .attempt("{}", watch)
        .unwrap();
    assert_eq!(answer.text(), "[redacted][redacted]");
    assert_eq!(pieces.len(), 5);
    assert!(
        pieces[1].contains("[redacted]") && !pieces.concat().contains(KEY),
        "{pieces:?}"
    );
}

#[test]
fn an_invalid_key_is_not_sent() {
    let key = ApiKey::new("two\nlines");
    let error = attempt(&mut OpenAi::new(Endpoint {
        key,
        ..endpoint("http://127.0.0.1:1")
    }))
    .unwrap_err();
    assert!(
        matches!(&error, LlmError::Unauthorized { message } if !message.contains("lines")),
        "{error:?}"
    );
}

#[test]
fn an_invalid_base_url_is_permanent() {
    for url in ["", "localhost:80", "not a url", "ftp://localhost"] {
        let error = attempt(&mut OpenAi::new(endpoint(url))).unwrap_err();
        assert!(matches!(error, LlmError::Permanent(_)), "{url}: {error:?}");
    }
}
