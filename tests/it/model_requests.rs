//! Requests to models: both providers, faults and retries, budgets, prices, and the key.

use serde_json::{Value, json};

use crate::support::project::{
    ANTHROPIC_KEY, OPENAI_KEY, Project, RUN, RUN_JSON, answer_spec, checked_by, holds,
};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

const PROVIDERS: [&str; 2] = ["anthropic", "openai"];

fn spec(provider: &str, more: &str) -> String {
    answer_spec() + &format!("generator: {{provider: {provider}, model: scripted, {more}}}\n")
}

#[test]
fn both_providers_generate_and_patch() {
    for provider in PROVIDERS {
        let server = Server::start([
            reply::answer("41").usage(10, 5),
            reply::answer("42").usage(20, 6),
        ]);
        let project = Project::with(spec(provider, "max_tokens: 1234"), &server);
        project.run(RUN).exits(0);
        let usage = &project.state()["usage"];
        assert_eq!(
            *usage,
            json!({"llm_calls": 2, "input_tokens": 30, "output_tokens": 11, "cost_usd": null, "lost_usd": null}),
            "{provider}"
        );
        assert_eq!(server.requests()[0].body["model"], "scripted");
    }
}

#[test]
fn requests_have_the_format_of_their_provider() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    Project::with(spec("anthropic", "max_tokens: 1234"), &server)
        .run(RUN)
        .exits(0);
    Project::with(spec("openai", "max_tokens: 1234"), &server)
        .run(RUN)
        .exits(0);
    let [ours, theirs] = &server.requests()[..] else {
        panic!("two requests")
    };
    assert_eq!(ours.path, "/v1/messages");
    assert_eq!(ours.headers["x-api-key"], ANTHROPIC_KEY);
    assert_eq!(ours.headers["anthropic-version"], "2023-06-01");
    assert_eq!(ours.body["max_tokens"], 1234);
    assert!(
        ours.raw
            .contains("\"cache_control\":{\"type\":\"ephemeral\"}"),
        "{}",
        ours.raw
    );
    assert_eq!(theirs.path, "/v1/chat/completions");
    assert_eq!(
        theirs.headers["authorization"],
        format!("Bearer {OPENAI_KEY}")
    );
    assert_eq!(theirs.body["stream_options"]["include_usage"], true);
    assert!(
        [
            &theirs.body["max_completion_tokens"],
            &theirs.body["max_tokens"]
        ]
        .contains(&&json!(1234))
    );
    for request in [ours, theirs] {
        assert_eq!(request.body["stream"], true);
        assert!(request.body.get("temperature").is_none());
    }
}

#[test]
fn the_temperature_is_sent_when_it_is_given() {
    for provider in PROVIDERS {
        let server = Server::start([reply::answer("42")]);
        Project::with(spec(provider, "temperature: 0.5"), &server)
            .run(RUN)
            .exits(0);
        assert_eq!(server.requests()[0].body["temperature"], 0.5);
    }
}

#[test]
fn an_answer_is_the_same_in_any_chunking() {
    let content = "42\näöü 漢字 👩‍💻 \u{85} \u{2028}\n";
    let spec = |provider: &str| spec(provider, "").replace("grep -qx 42", "grep -qxa 42");
    for provider in PROVIDERS {
        let shapes: [fn(Reply) -> Reply; 5] = [
            |reply| reply,
            Reply::json,
            |reply| reply.chunked_by(1),
            |reply| reply.chunked_by(7),
            |reply| reply.json().chunked_by(3),
        ];
        for shape in shapes {
            let server = Server::start([shape(reply::files(&[("answer.txt", content)]))]);
            let project = Project::with(spec(provider), &server);
            project.run(RUN).exits(0);
            assert_eq!(project.workspace("answer.txt"), content, "{provider}");
        }
    }
}

/// A temporary fault: the same request is sent again, and no build retry is counted.
pub(crate) fn check_transient(what: &str, fault: Reply) {
    for provider in PROVIDERS {
        let server = Server::start([fault.clone(), fault.clone(), reply::answer("42")]);
        let project = Project::with(spec(provider, ""), &server);
        let ran = project.run(RUN);
        assert_eq!(ran.code, Some(0), "{what} {provider}\n{}", ran.transcript());
        assert_eq!(server.count(), 3, "{what} {provider}");
        assert_eq!(project.state()["retry_count"], 0, "{what} {provider}");
        assert_eq!(
            project.state()["usage"]["llm_calls"],
            1,
            "{what} {provider}"
        );
        let raws: Vec<String> = server
            .requests()
            .into_iter()
            .map(|request| request.raw)
            .collect();
        assert!(
            raws.iter().all(|raw| *raw == raws[0]),
            "{what} {provider}: another request was sent"
        );
    }
}

#[test]
fn temporary_statuses_are_retried() {
    for status in [408, 409, 429, 500, 502, 503, 504, 529] {
        check_transient(&status.to_string(), reply::status(status));
    }
    check_transient(
        "retry-after",
        reply::status(429).header("retry-after", "60"),
    );
    check_transient(
        "an HTML page",
        reply::raw(502, "text/html", "<html>bad gateway</html>"),
    );
}

#[test]
fn broken_connections_and_streams_are_retried() {
    check_transient("reset", reply::answer("41").reset());
    check_transient("cut before anything", reply::answer("41").cut_after(0));
    check_transient("cut in the middle", reply::answer("41").cut_after(3));
    check_transient("ended in the middle", reply::answer("41").ends_after(3));
    check_transient(
        "ended before the last event",
        reply::text(&reply::block("answer.txt", "41\n")).ends_after(4),
    );
    check_transient("an error event", reply::answer("41").fails_after(3));
    check_transient(
        "200 with an HTML page",
        reply::raw(200, "text/html", "<html>login</html>"),
    );
    check_transient("200 with nothing", reply::raw(200, "application/json", ""));
    check_transient(
        "200 with half a JSON",
        reply::raw(200, "application/json", "{\"content\": ["),
    );
}

#[test]
fn a_silent_stream_is_ended_also_with_pings() {
    for fault in [
        reply::answer("41").held(),
        reply::answer("41").stall_after(3),
        reply::answer("41").stall_after(3).pinging(),
    ] {
        let server = Server::start([fault, reply::answer("42")]);
        let project =
            Project::with(spec("anthropic", ""), &server).env("ORCHESTRATOR_IDLE_TIMEOUT", "1");
        project.run(RUN).exits(0);
        assert_eq!(server.count(), 2);
    }
}

#[test]
fn persistent_faults_pause_the_run() {
    for fault in [
        reply::status(529),
        reply::answer("42").cut_after(2),
        reply::text("").reset(),
    ] {
        let server = Server::answering(move |_| fault.clone());
        let project = Project::with(answer_spec(), &server);
        let ran = project.run(RUN_JSON).exits(4);
        assert_eq!(
            ran.outcome_and_reason(),
            ("PAUSED".into(), "provider_unavailable".into())
        );
        assert_eq!(server.count(), 5);
        assert_eq!(project.state()["state"], "GENERATING");
        assert_eq!(project.state()["reason"], Value::Null);
    }
}

#[test]
fn a_refused_connection_pauses_the_run() {
    let project = Project::new().spec(answer_spec());
    assert_eq!(
        project.run(RUN_JSON).exits(4).outcome_and_reason().1,
        "provider_unavailable"
    );
}

#[test]
fn a_long_retry_after_pauses_at_once() {
    let server = Server::start([
        reply::status(429).header("retry-after", "61"),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server);
    assert_eq!(
        project.run(RUN_JSON).exits(4).outcome_and_reason().1,
        "provider_unavailable"
    );
    assert_eq!(server.count(), 1);
    project.run(RUN).exits(0);
}

#[test]
fn a_refused_key_pauses_at_once() {
    for status in [401, 402, 403] {
        let server = Server::start([reply::status(status), reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        let ran = project.run(RUN_JSON).exits(4);
        assert_eq!(
            ran.outcome_and_reason(),
            ("PAUSED".into(), "provider_unauthorized".into())
        );
        assert_eq!(server.count(), 1);
        project.run(RUN).exits(0);
        assert_eq!(server.count(), 2);
    }
}

#[test]
fn an_exhausted_account_pauses_at_once() {
    let spent = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "no more this month",
        "details": {"error_code": "enforced_spend_limit_reached"}}});
    let quota = json!({"error": {"message": "no more this month", "type": "insufficient_quota", "code": "insufficient_quota"}});
    for (provider, body) in PROVIDERS.into_iter().zip([spent, quota]) {
        let server = Server::start([
            reply::raw(429, "application/json", body.to_string()),
            reply::answer("42"),
        ]);
        let ran = Project::with(spec(provider, ""), &server)
            .run(RUN_JSON)
            .exits(4);
        assert_eq!(server.count(), 1, "{provider}");
        assert_eq!(ran.outcome_and_reason().0, "PAUSED");
    }
}

#[test]
fn other_errors_fail_the_run_with_their_message() {
    for status in [400, 404, 413] {
        let server = Server::start([
            reply::error(status, "odd", "because-of-xyz"),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        let ran = project.run(RUN_JSON).exits(1).says("because-of-xyz");
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), "generation_error".into())
        );
        assert_eq!(server.count(), 1);
        assert!(
            project.events("ModelAnswered")[0]["error"]
                .to_string()
                .contains("because-of-xyz")
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_named_with_what_to_try() {
    for (provider, url, expected) in [
        (
            "openai",
            "http://127.0.0.1:9/v1",
            "cannot connect to 127.0.0.1 port 9: ",
        ),
        (
            "anthropic",
            "http://localhost:9",
            "cannot connect to localhost port 9: ",
        ),
    ] {
        let spec = spec(provider, &format!("base_url: '{url}'"));
        let project = Project::new().spec(spec).env("ANTHROPIC_API_KEY", "k");
        let ran = project.run(RUN_JSON).exits(4).says(expected);
        ran.says("start the model's server, or set base_url to where it listens");
    }
}

#[test]
fn an_address_without_http_is_refused_before_anything_is_sent() {
    let project = Project::new()
        .spec(spec("openai", ""))
        .env("OPENAI_BASE_URL", "localhost:11434/v1");
    project
        .run(RUN_JSON)
        .exits(64)
        .says("invalid OPENAI_BASE_URL: expected an address that begins with http:// or https://, found localhost:11434/v1")
        .says("help: export OPENAI_BASE_URL=http://localhost:11434/v1");
    assert!(!project.exists("state.json"));
}

#[test]
fn a_failed_connection_shows_its_cause_alone() {
    let project = Project::new().spec(spec("openai", "base_url: 'http://127.0.0.1:9/v1'"));
    let ran = project
        .run(RUN_JSON)
        .exits(4)
        .says("cannot connect to 127.0.0.1 port 9: Connection refused; start the model's server");
    let full = ran.stderr.matches("Connection refused").count();
    let again = ran.stderr.matches("the same error again (retry ").count();
    assert_eq!((full, again), (2, 3), "{}", ran.transcript());
}

#[test]
fn a_path_that_the_server_does_not_have_is_named_with_what_to_try() {
    let server = Server::start([reply::raw(405, "text/plain", "Method Not Allowed")]);
    let url = server.url();
    for (base, shown) in [("api", "no such path"), ("v1", "Method Not Allowed")] {
        let spec = spec("openai", &format!("base_url: '{url}/{base}'"));
        let ran = Project::with(spec, &server).run(RUN_JSON).exits(1);
        ran.says(&format!(
            "{shown}; asked at {url}/{base}/chat/completions: base_url mostly ends in /v1"
        ));
    }
}

#[test]
fn an_unknown_model_gets_those_that_the_server_has_or_that_are_known() {
    let listed = r#"{"object":"list","data":[{"id":"llama3.2"},{"id":"qwen3-coder:30b"},{"id":"\u001b[31mred"}]}"#;
    let ollama = r#"{"error":{"message":"model 'qwen3-coder' not found","type":"api_error"}}"#;
    for (provider, body, list, expected) in [
        (
            "openai",
            ollama,
            reply::raw(200, "application/json", listed),
            "not found; the server has qwen3-coder:30b, \\u{1b}[31mred, llama3.2: set generator.model or --model",
        ),
        (
            "openai",
            r#"{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}"#,
            reply::status(500),
            "does not exist; known models are ",
        ),
        (
            "anthropic",
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-sonet"}}"#,
            reply::raw(200, "application/json", listed),
            "model: claude-sonet; the server has ",
        ),
    ] {
        let server = Server::start([reply::raw(404, "application/json", body), list]);
        let project = Project::with(
            spec(provider, "").replace("scripted", "qwen3-coder"),
            &server,
        );
        project.run(RUN_JSON).exits(1).says(expected);
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{provider}");
        assert!(requests[1].path.ends_with("/v1/models") && requests[1].raw.is_empty());
        project.nothing_left();
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let decoy = Server::answering(|_| reply::answer("42"));
    for status in [301, 302, 307, 308] {
        let away = reply::raw(status, "text/plain", "")
            .header("location", &format!("{}/v1/messages", decoy.url()));
        let server = Server::start([away]);
        Project::with(answer_spec(), &server).run(RUN).exits(1);
    }
    assert_eq!(decoy.count(), 0);
}

#[test]
fn the_base_url_of_the_spec_overrides_and_may_end_in_a_slash() {
    let server = Server::answering(|_| reply::answer("42"));
    for (provider, path) in [
        ("anthropic", ""),
        ("anthropic", "/"),
        ("openai", "/v1"),
        ("openai", "/v1/"),
    ] {
        let more = format!("base_url: \"{}{path}\"", server.url());
        Project::new().spec(spec(provider, &more)).run(RUN).exits(0);
    }
    assert_eq!(server.count(), 4);
}

#[test]
fn a_missing_key_is_reported_before_any_change() {
    let server = Server::start([]);
    for (provider, name) in [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
    ] {
        let project = Project::with(
            spec(provider, "base_url: \"https://models.invalid/v1\""),
            &server,
        )
        .without(name);
        let ran = project.run(RUN_JSON).exits(64).says(name);
        assert_eq!(ran.outcome_and_reason(), ("REFUSED".into(), "usage".into()));
        assert!(
            !project.exists("state.json")
                && !project.exists("workspace")
                && !project.exists("logs")
        );
    }
}

#[test]
fn a_local_server_needs_no_key() {
    let server = Server::start([reply::answer("42")]);
    let more = format!("base_url: \"{}/v1\"", server.url());
    Project::new()
        .spec(spec("openai", &more))
        .without("OPENAI_API_KEY")
        .run(RUN)
        .exits(0);
    assert!(!server.requests()[0].headers.contains_key("authorization"));
}

#[test]
fn the_key_is_in_no_file_no_message_and_no_child() {
    for (provider, key, last) in [
        ("anthropic", ANTHROPIC_KEY, 400),
        ("openai", OPENAI_KEY, 401),
    ] {
        let echo = |status| reply::error(status, "odd", &format!("you said {key}"));
        let server = Server::start([echo(500), reply::answer("41"), echo(529), echo(last)]);
        let script = "env; cat /proc/self/environ; cat /proc/$PPID/environ; exit 1";
        let project = Project::with(
            checked_by(script) + &format!("generator: {{provider: {provider}}}\n"),
            &server,
        );
        let ran = project.run(&[RUN_JSON, &["--debug"]].concat());
        for key in [ANTHROPIC_KEY, OPENAI_KEY] {
            assert!(
                !ran.stdout.contains(key) && !ran.stderr.contains(key),
                "{}",
                ran.transcript()
            );
            for request in server.requests() {
                assert!(
                    !holds(request.raw.as_bytes(), key.as_bytes()),
                    "a key is in a request"
                );
            }
        }
        project.nothing_left();
    }
}

#[test]
fn a_budget_that_the_first_request_could_break_sends_nothing() {
    for budget in ["{tokens: 100}", "{usd: 0.0001}"] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec() + "budget: " + budget + "\n", &server);
        let ran = project.run(RUN_JSON).exits(1);
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), "budget".into()),
            "{budget}"
        );
        assert_eq!(server.count(), 0, "{budget}");
    }
}

#[test]
fn a_budget_holds_across_requests_and_resumes() {
    let server = Server::start([
        reply::answer("41").usage(90_000, 10),
        reply::status(401),
        reply::answer("42"),
    ]);
    let project = Project::with(
        answer_spec() + "budget: {tokens: 100000}\ngenerator: {max_tokens: 100}\n",
        &server,
    );
    project.run(RUN).exits(4);
    project.run(RUN).exits(0);
    let server = Server::start([
        reply::answer("41").usage(90_000, 9_000),
        reply::answer("42"),
    ]);
    let project = Project::with(
        answer_spec() + "budget: {tokens: 100000}\ngenerator: {max_tokens: 1000}\n",
        &server,
    );
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "budget"
    );
    assert_eq!(server.count(), 1);
}

#[test]
fn a_request_whose_answer_was_lost_counts_in_the_budget() {
    // One worst case of 60,000 fits twice into the budget, not three times.
    let budget = "budget: {tokens: 150000}\ngenerator: {max_tokens: 60000}\n";
    let server = Server::start((0..5).map(|_| reply::answer("42").reset()));
    let project = Project::with(answer_spec() + budget, &server);
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "budget"
    );
    assert_eq!(server.count(), 2);
    // An error status costs nothing.
    let server = Server::start(
        (0..4)
            .map(|_| reply::status(500))
            .chain([reply::answer("42")]),
    );
    Project::with(answer_spec() + budget, &server)
        .run(RUN)
        .exits(0);
    // A stream that was cut off costs the usage it reported.
    let server = Server::start(
        (0..4)
            .map(|_| reply::answer("42").cut_after(3))
            .chain([reply::answer("42")]),
    );
    Project::with(answer_spec() + budget, &server)
        .run(RUN)
        .exits(0);
}

#[test]
fn prices_are_known_given_or_missing() {
    let cost = |generator: &str, reply: Reply| {
        let server = Server::start([reply]);
        let project = Project::with(answer_spec() + "generator: " + generator + "\n", &server);
        project.run(RUN).exits(0);
        project.state()["usage"].clone()
    };
    let near = |usage: Value, expected: f64| {
        let cost = usage["cost_usd"]
            .as_f64()
            .unwrap_or_else(|| panic!("no cost in {usage}"));
        assert!(
            (cost - expected).abs() < 1e-9,
            "{usage}, expected {expected}"
        );
    };
    let million = || reply::answer("42").usage(1_000_000, 100_000);
    assert_eq!(
        cost("{model: scripted}", million())["cost_usd"],
        Value::Null
    );
    near(
        cost(
            "{model: scripted, price: {input: 3.0, output: 15.0}}",
            million(),
        ),
        4.5,
    );
    near(cost("{model: claude-opus-5-5}", million()), 6.0);
    let cached = cost(
        "{model: claude-sonnet-5-5}",
        reply::answer("42").usage(1000, 100).cached(2000, 4000),
    );
    assert_eq!(cached["input_tokens"], 7000);
    near(cached, 0.002 + 0.001 + 2000.0 * 2.5e-6 + 4000.0 * 0.1e-6);
    let given = "{model: scripted, price: {input: 10.0, output: 0.0}}";
    near(
        cost(
            given,
            reply::answer("42").usage(0, 0).cached(100_000, 100_000),
        ),
        1.25 + 1.0,
    );
}

#[test]
fn a_dollar_budget_without_a_price_is_a_spec_error() {
    let server = Server::start([reply::answer("42")]);
    let unknown = answer_spec() + "budget: {usd: 2.0}\ngenerator: {model: scripted";
    Project::with(unknown.clone() + "}\n", &server)
        .run(RUN)
        .exits(65);
    Project::with(unknown + ", price: {input: 3.0, output: 15.0}}\n", &server)
        .run(RUN)
        .exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn punctuation_in_a_large_answer_does_not_matter() {
    let table = "1,[2],{3}\n".repeat(100_000);
    let answer = || reply::files(&[("answer.txt", "42\n"), ("table.csv", &table)]);
    for reply in [answer(), answer().json()] {
        let server = Server::start([reply]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(0);
        assert_eq!(project.workspace("table.csv"), table);
    }
}
