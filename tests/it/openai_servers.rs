//! Deviations of OpenAI-compatible servers and of small models that are accepted.

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply::{self, Dialect, Reply, block};
use crate::support::server::Server;

fn spec(more: &str) -> String {
    answer_spec() + &format!("generator: {{provider: openai, model: scripted, {more}}}\n")
}

fn chunk(delta: Value) -> Value {
    json!({"object": "chat.completion.chunk", "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

/// The body of a stream of these deltas.
fn body(deltas: impl IntoIterator<Item = Value>, finish: &str) -> String {
    let end = [
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
    ];
    let events = deltas
        .into_iter()
        .map(chunk)
        .chain(end)
        .map(|event| format!("data: {event}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn stream(deltas: impl IntoIterator<Item = Value>, finish: &str) -> Reply {
    reply::raw(200, "text/event-stream", body(deltas, finish))
}

/// One request, and the check passes.
fn check_understood(what: &str, reply: Reply) {
    let server = Server::start([reply]);
    let project = Project::with(spec("format_retries: 0"), &server);
    let ran = project.run(RUN);
    assert_eq!(
        (ran.code, server.count()),
        (Some(0), 1),
        "{what}\n{}",
        ran.transcript()
    );
    assert_eq!(project.workspace("answer.txt"), "42\n", "{what}");
}

fn bash(command: &str) -> String {
    json!({"command": command}).to_string()
}

/// The answer makes this many calls, and each gets its result.
fn check_calls(what: &str, answer: Reply, calls: usize) {
    let server = Server::start([answer, reply::text("done")]);
    let project = Project::with(spec("mode: agent"), &server);
    let ran = project.run(RUN);
    assert_eq!(
        (ran.code, server.count()),
        (Some(0), 2),
        "{what}\n{}",
        ran.transcript()
    );
    let results = server.requests()[1].results();
    assert_eq!(results.len(), calls, "{what}: {results:?}");
    assert_eq!(project.events("ToolReturned").len(), calls, "{what}");
}

#[test]
fn calls_that_share_an_index_but_not_an_id_all_run() {
    let call = |id: &str, command: &str| {
        json!({"tool_calls": [{"index": 0, "id": id, "type": "function",
            "function": {"name": "bash", "arguments": bash(command)}}]})
    };
    let deltas = [
        call("call_a", "echo 4 > half"),
        call("call_b", "echo $(cat half)2 > answer.txt"),
    ];
    check_calls("events", stream(deltas.clone(), "tool_calls"), 2);
    let entries: Vec<Value> = deltas
        .iter()
        .map(|delta| delta["tool_calls"][0].clone())
        .collect();
    check_calls(
        "one event",
        stream(
            [json!({"role": "assistant", "tool_calls": entries})],
            "stop",
        ),
        2,
    );
}

#[test]
fn an_id_that_is_repeated_without_an_index_is_one_call() {
    let arguments = bash("echo 42 > answer.txt");
    let piece = |name: &str, arguments: &str| {
        let mut call =
            json!({"id": "call_a", "type": "function", "function": {"arguments": arguments}});
        if !name.is_empty() {
            call["function"]["name"] = json!(name);
        }
        json!({"tool_calls": [call]})
    };
    let pieces = arguments
        .as_bytes()
        .chunks(7)
        .map(|bytes| piece("", std::str::from_utf8(bytes).unwrap()));
    check_calls(
        "named once",
        stream([piece("bash", "")].into_iter().chain(pieces), "tool_calls"),
        1,
    );
    let pieces = arguments
        .as_bytes()
        .chunks(7)
        .map(|bytes| piece("bash", std::str::from_utf8(bytes).unwrap()));
    check_calls("named each time", stream(pieces, "tool_calls"), 1);
}

#[test]
fn content_may_be_a_list() {
    let text = block("answer.txt", "42\n");
    let part = |text: &str| json!({"type": "text", "text": text});
    check_understood(
        "a stream",
        stream([json!({"content": [part(&text)]})], "stop"),
    );
    let (head, tail) = text.split_at(9);
    let thought = json!({"type": "thinking", "thinking": [part("hm")]});
    let pieces = [
        json!({"content": [thought]}),
        json!({"content": [part(head)]}),
        json!({"content": tail}),
    ];
    check_understood("pieces", stream(pieces, "stop"));
    let message = json!({"role": "assistant", "content": [part("Here it is:"), part(&text)]});
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    check_understood(
        "a whole answer",
        reply::raw(200, "application/json", whole.to_string()),
    );
}

#[test]
fn a_stream_is_recognised_by_its_content() {
    let stream = body([json!({"content": block("answer.txt", "42\n")})], "stop");
    for kind in [
        "application/json",
        "text/plain; charset=utf-8",
        "application/octet-stream",
        "text/html",
    ] {
        check_understood(kind, reply::raw(200, kind, stream.clone()));
        check_understood(
            kind,
            reply::raw(200, kind, format!(": waiting\n\n{stream}")).chunked_by(1),
        );
    }
    let whole = reply::answer("42").body(Dialect::OpenAi).1;
    check_understood(
        "JSON as a stream",
        reply::raw(200, "text/event-stream", whole),
    );
    let server = Server::start([reply::raw(
        200,
        "text/event-stream",
        reply::answer("42").body(Dialect::Anthropic).1,
    )]);
    Project::with(answer_spec(), &server).run(RUN).exits(0);
}

fn refuses(param: &str, message: &str) -> Reply {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": null});
    reply::raw(400, "application/json", json!({"error": error}).to_string())
}

#[test]
fn a_refused_field_is_renamed_or_left_out_once() {
    let fields = [
        (
            "max_tokens",
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
            "",
        ),
        (
            "stream_options",
            "stream_options: Extra inputs are not permitted",
            "",
        ),
        (
            "temperature",
            "Unsupported value: 'temperature' does not support 0.5 with this model.",
            "temperature: 0.5",
        ),
    ];
    for (field, message, more) in fields {
        let server = Server::start([
            refuses(field, message),
            reply::answer("41"),
            reply::answer("42"),
        ]);
        let project = Project::with(spec(more), &server);
        project.run(RUN).exits(0).says(message);
        let requests = server.requests();
        assert_eq!(
            (requests.len(), &project.state()["retry_count"]),
            (3, &json!(1)),
            "{field}"
        );
        assert!(
            requests[0].body.get(field).is_some(),
            "{field} was not sent at all"
        );
        for request in &requests[1..] {
            let mut expected = requests[0].body.clone();
            let removed = expected.as_object_mut().unwrap().remove(field).unwrap();
            if field == "max_tokens" {
                expected["max_completion_tokens"] = removed;
            }
            expected["messages"] = request.body["messages"].clone();
            assert_eq!(request.body, expected, "{field}");
        }
        assert_eq!(requests[0].body["messages"], requests[1].body["messages"]);
        // The log has both requests with their hashes, and the answer belongs to the second.
        let asked = project.events("ModelRequested");
        let answered = project.events("ModelAnswered");
        assert_eq!((asked.len(), answered.len()), (3, 2), "{field}");
        assert_ne!(asked[0]["hash"], asked[1]["hash"]);
        assert_eq!(asked[0]["request"], asked[1]["request"]);
        assert_eq!(asked[1]["hash"], answered[0]["hash"]);
        assert_eq!(project.state()["usage"]["llm_calls"], 2);
        let replayed = project.run(&[RUN, &["--replay", &project.log_path()]].concat());
        assert_eq!(
            (replayed.code, server.count()),
            (Some(0), 3),
            "{field}\n{}",
            replayed.transcript()
        );
    }
}

#[test]
fn a_second_refusal_of_a_field_is_final() {
    let refused = || refuses("max_tokens", "max_tokens is not good");
    let server = Server::start([refused(), refused(), reply::answer("42")]);
    let project = Project::with(spec(""), &server);
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "generation_error"
    );
    assert_eq!(server.count(), 2);
    // All three, one after the other.
    let server = Server::start([
        refused(),
        refuses("stream_options", "no stream_options"),
        refuses("temperature", "no temperature"),
        reply::answer("42"),
    ]);
    Project::with(spec("temperature: 0.5"), &server)
        .run(RUN)
        .exits(0);
    let last = server.requests()[3].body.clone();
    assert_eq!(last["max_completion_tokens"], 16000);
    assert!(
        ["max_tokens", "stream_options", "temperature"]
            .iter()
            .all(|field| last.get(field).is_none()),
        "{last}"
    );
    // A field that was not sent is not removed.
    let server = Server::start([
        refuses("temperature", "temperature is off"),
        reply::answer("42"),
    ]);
    Project::with(spec(""), &server).run(RUN).exits(1);
    assert_eq!(server.count(), 1);
}

#[test]
fn a_refused_field_costs_nothing_and_the_repeat_must_fit_the_budget() {
    let server = Server::start([
        refuses("max_tokens", "no max_tokens"),
        reply::answer("42").usage(100, 10),
    ]);
    let money = "max_tokens: 1000, price: {input: 3.0, output: 15.0}";
    let project = Project::with(
        spec(money) + "budget: {usd: 0.05, tokens: 10000}\n",
        &server,
    );
    project.run(RUN).exits(0);
    assert_eq!(project.state()["usage"]["lost_usd"], 0.0);
    assert_eq!(server.count(), 2);
}

#[test]
fn a_conversation_continues_after_a_refused_field() {
    let server = Server::start([
        reply::bash("echo 4 > half"),
        refuses("max_tokens", "no max_tokens"),
        reply::bash("echo $(cat half)2 > answer.txt"),
        reply::status(401),
        reply::text("done"),
    ]);
    let project = Project::with(spec("mode: agent"), &server);
    project.run(RUN).exits(4);
    project.run(RUN).exits(0);
    assert_eq!(server.count(), 5);
    let lines = project.log();
    for line in lines
        .iter()
        .filter(|line| line["event"] == "ModelRequested" && !line["continues"].is_null())
    {
        let before = &lines[line["continues"].as_u64().unwrap() as usize - 1];
        assert_eq!(before["event"], "ModelRequested", "{line}");
    }
    assert_eq!(server.requests()[4].results().len(), 2);
}

#[test]
fn sloppy_formats_of_small_models_are_read() {
    let file = block("answer.txt", "42\n");
    let sketch = block("answer.txt", "...\n");
    let texts = [
        format!("<think>\nI could write\n{sketch}but no.\n</think>\n\n{file}"),
        format!("\n<think></think>{file}"),
        format!("Let me see.\n{sketch}\n</think>\n\n{file}"),
        block("answer.txt", "```\n42\n```\n"),
        block("answer.txt", "```text\n42\n```\n"),
        file.replace("</file>", "  </file> "),
        file.replace('"', "'"),
    ];
    for text in texts {
        check_understood(&text, reply::text(&text));
        check_understood(&text, reply::text(&text).json());
    }
    let kept = "# Title\n\n```text\n42\n```\n";
    let whole = "```text\n42\n```\n";
    let files = block("doc.md", kept) + &block("whole.md", whole) + &block("part.txt", kept);
    let server = Server::start([reply::text(&files)]);
    let project = Project::with(
        checked_by("true") + "generator: {provider: openai}\n",
        &server,
    );
    project.run(RUN).exits(0);
    assert_eq!(
        (
            project.workspace("doc.md").as_str(),
            project.workspace("whole.md").as_str()
        ),
        (kept, whole)
    );
    assert_eq!(project.workspace("part.txt"), kept);
}

#[test]
fn thinking_text_is_dropped() {
    let server = Server::start([
        reply::text("<think>\nhm, hm\n</think>\nSure!"),
        reply::answer("42"),
    ]);
    Project::with(spec(""), &server).run(RUN).exits(0);
    let said = server.requests()[1].text();
    assert!(said.contains("Sure!") && !said.contains("hm, hm"), "{said}");
    // The closing text of a conversation does not contain it, either.
    let server = Server::start([
        reply::bash("echo 41 > answer.txt"),
        reply::text("<think>\nhm, hm\n</think>\nThat is it."),
        reply::bash("echo 42 > answer.txt"),
        reply::text("done"),
    ]);
    Project::with(spec("mode: agent"), &server)
        .run(RUN)
        .exits(0);
    let said = server.requests()[2].text();
    assert!(
        said.contains("That is it.") && !said.contains("hm, hm"),
        "{said}"
    );
}

#[test]
fn text_blocks_are_joined_by_newlines() {
    let text = block("answer.txt", "42\n");
    let blocks = [
        json!({"type": "text", "text": "Here it is:"}),
        json!({"type": "text", "text": "And now"}),
    ];
    for reply in [reply::text(&text), reply::text(&text).json()] {
        let reply = blocks
            .iter()
            .fold(reply, |reply, block| reply.after_block(block.clone()));
        let server = Server::start([reply]);
        let project = Project::with(answer_spec() + "generator: {format_retries: 0}\n", &server);
        project.run(RUN).exits(0);
    }
}
