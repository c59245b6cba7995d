//! Budget: accounts without credit, retry-after, and the cost of requests that were cut off.

use std::fs;

use chrono::{Duration, Utc};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::running::Ran;
use crate::support::server::Server;

/// USD per million tokens in most tests here.
const PRICE: &str = "model: scripted, price: {input: 3.0, output: 15.0}";

fn low_credit() -> Reply {
    reply::error(
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
    )
}

fn quota(status: u16) -> Reply {
    reply::error(
        status,
        "insufficient_quota",
        "You exceeded your current quota.",
    )
}

#[test]
fn a_run_without_credit_pauses_and_continues_with_credit() {
    let cases = [
        ("anthropic", low_credit()),
        ("openai", quota(429)),
        ("openai", quota(400)),
        ("openai", quota(503)),
        (
            "openai",
            reply::error(
                400,
                "billing_hard_limit_reached",
                "Billing hard limit has been reached",
            ),
        ),
    ];
    for (provider, fault) in cases {
        for mode in ["files", "agent"] {
            let good = match mode {
                "files" => vec![reply::answer("42")],
                _ => vec![reply::bash("echo 42 > answer.txt"), reply::text("done")],
            };
            let replies = [fault.clone(), fault.clone()].into_iter().chain(good);
            let server = Server::start(replies);
            let spec =
                answer_spec() + &format!("generator: {{provider: {provider}, mode: {mode}}}\n");
            let project = Project::with(spec, &server);
            for request in 1..=2 {
                let ran = project.run(RUN_JSON).exits(4);
                assert_eq!(
                    ran.outcome_and_reason(),
                    ("PAUSED".into(), "provider_unauthorized".into()),
                    "{provider} {mode}"
                );
                assert!(
                    ran.result()["next"]
                        .as_str()
                        .is_some_and(|next| next.contains("run"))
                );
                assert_eq!(
                    (server.count(), project.state_text("state").as_str()),
                    (request, "GENERATING")
                );
                assert_eq!(project.state()["reason"], Value::Null);
            }
            let run_id = project.state_text("run_id");
            project.run(RUN).exits(0);
            assert_eq!(project.state_text("run_id"), run_id);
        }
    }
}

#[test]
fn running_out_of_credit_while_patching_keeps_paid_answers() {
    let server = Server::start([reply::answer("41"), low_credit(), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    assert_eq!(project.state_text("state"), "PATCHING");
    project.run(RUN).exits(0);
    assert_eq!(
        (server.count(), &project.state()["retry_count"]),
        (3, &json!(1))
    );
}

#[test]
fn retry_after_may_be_a_date() {
    let date = |seconds: i64, format: &str| {
        (Utc::now() + Duration::seconds(seconds))
            .format(format)
            .to_string()
    };
    let forms = [
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %e %H:%M:%S %Y",
        "%d %b %Y %H:%M:%S GMT",
    ];
    for form in forms {
        let later = date(600, form);
        let server = Server::start([
            reply::status(429).header("retry-after", &later),
            reply::answer("42"),
        ]);
        let project = Project::with(answer_spec(), &server);
        let ran = project.run(RUN_JSON).exits(4).says("asks to wait");
        assert_eq!(
            (ran.outcome_and_reason().1.as_str(), server.count()),
            ("provider_unavailable", 1),
            "{later}"
        );
        project.run(RUN).exits(0);
        // A date that is past or near is waited for; with the scaled clock that takes no time.
        for seconds in [-3600, 30] {
            let asked = date(seconds, form);
            let server = Server::start([
                reply::status(503).header("retry-after", &asked),
                reply::answer("42"),
            ]);
            Project::with(answer_spec(), &server).run(RUN).exits(0);
            assert_eq!(server.count(), 2, "{asked}");
        }
    }
}

/// Starts a run with `--debug` and stops it after this many stream events of the request.
fn stop_after_pieces(project: &Project, pieces: usize, signal: Signal) -> Ran {
    let seen = || match fs::read_dir(project.path("logs")) {
        Ok(logs) => {
            let texts = logs
                .flatten()
                .filter_map(|log| fs::read_to_string(log.path()).ok());
            texts
                .map(|text| text.matches("\"ModelStreamed\"").count())
                .sum()
        }
        Err(_) => 0,
    };
    let before: usize = seen();
    let mut running = project.start(&[RUN_JSON, &["--debug"]].concat());
    running.until("the pieces have come", || seen() >= before + pieces);
    running.signal(signal);
    running.wait()
}

fn lost(project: &Project) -> f64 {
    let usage = project.state()["usage"].clone();
    usage["lost_usd"]
        .as_f64()
        .unwrap_or_else(|| panic!("no lost_usd in {usage}"))
}

fn assert_near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-9,
        "{found}, expected {expected}"
    );
}

/// An answer whose text is streamed in pieces of 12 bytes, with this usage shown at its start.
fn long(input: u64, output: u64) -> Reply {
    reply::answer(&"x".repeat(2000)).usage(input, output)
}

#[test]
fn a_stream_cut_by_a_signal_is_charged_with_its_reported_usage() {
    // The start, the start of the block, then ten pieces of twelve bytes: forty tokens.
    let shown = 12;
    for (input, output, expected) in [
        (20_000, 1, 0.06 + 40.0 * 15e-6),
        (20_000, 500, 0.06 + 500.0 * 15e-6),
    ] {
        let server = Server::start([
            long(input, output).stall_after(shown),
            reply::answer("42").usage(1000, 100),
        ]);
        let spec = answer_spec() + &format!("generator: {{{PRICE}}}\nbudget: {{usd: 5.0}}\n");
        let project = Project::with(spec, &server);
        let ran = stop_after_pieces(&project, shown, Signal::INT);
        assert_eq!(ran.code, Some(130), "{}", ran.transcript());
        assert_near(lost(&project), expected);
        assert_eq!(ran.result()["usage"], project.state()["usage"]);
        let status = project.run(&["status"]).exits(0);
        assert!(
            status.stdout.contains("requests that broke off"),
            "{}",
            status.stdout
        );
        project.run(RUN).exits(0);
        assert_near(lost(&project), expected);
        assert_near(
            project.state()["usage"]["cost_usd"].as_f64().unwrap(),
            0.003 + 0.0015,
        );
    }
}

#[test]
fn a_stream_cut_by_sigkill_is_charged_with_its_worst_case() {
    let server = Server::start([
        long(10, 1).stall_after(12),
        long(10, 1).stall_after(12),
        reply::answer("42"),
    ]);
    let spec = answer_spec() + &format!("generator: {{{PRICE}, max_tokens: 1000}}\n");
    let project = Project::with(spec, &server);
    for _ in 0..2 {
        stop_after_pieces(&project, 12, Signal::KILL);
    }
    project.run(RUN).exits(0);
    let worst = project.events("ModelRequested")[0]["worst"]["cost_usd"]
        .as_f64()
        .unwrap();
    assert!(worst > 0.015, "{worst}");
    assert_near(lost(&project), 2.0 * worst);
}

#[test]
fn a_stream_cut_by_the_server_is_charged_and_an_error_status_is_not() {
    let spec =
        |provider: &str| answer_spec() + &format!("generator: {{provider: {provider}, {PRICE}}}\n");
    let server = Server::start([
        long(20_000, 1).cut_after(12),
        long(20_000, 1).fails_after(12),
        reply::answer("42"),
    ]);
    let project = Project::with(spec("anthropic"), &server);
    project.run(RUN).exits(0);
    assert_near(lost(&project), 2.0 * (0.06 + 40.0 * 15e-6));
    // This API reports usage only at the end, so the input is estimated from the size of the body.
    let server = Server::start([long(20_000, 1).cut_after(11), reply::answer("42")]);
    let project = Project::with(spec("openai"), &server);
    project.run(RUN).exits(0);
    let input = server.requests()[0].raw.len().div_ceil(3) as f64;
    assert_near(lost(&project), input * 3e-6 + 40.0 * 15e-6);
    // Nothing arrived: the worst case counts.
    let server = Server::start([reply::answer("42").reset(), reply::answer("42")]);
    let project = Project::with(spec("openai"), &server);
    project.run(RUN).exits(0);
    assert_near(
        lost(&project),
        project.events("ModelRequested")[0]["worst"]["cost_usd"]
            .as_f64()
            .unwrap(),
    );
    let server = Server::start([reply::status(529), reply::status(500), reply::answer("42")]);
    let project = Project::with(spec("anthropic"), &server);
    project.run(RUN).exits(0);
    assert_eq!(project.state()["usage"]["lost_usd"], 0.0);
    // Without a price the cost is unknown.
    let server = Server::start([long(20_000, 1).cut_after(12), reply::answer("42")]);
    let project = Project::with(answer_spec() + "generator: {model: scripted}\n", &server);
    let ran = project.run(RUN_JSON).exits(0);
    assert_eq!(ran.result()["usage"]["lost_usd"], Value::Null);
}

#[test]
fn four_cut_streams_exceed_a_budget_for_one() {
    // A request of 0.16 USD at worst: some input, and 10,000 tokens of output at 15 USD a million.
    let spec = answer_spec()
        + &format!("generator: {{{PRICE}, max_tokens: 10000}}\nbudget: {{usd: 0.17}}\n");
    // Its text comes in pieces of 30 bytes; 178 of them are 1,780 tokens.
    let long = || reply::answer(&"x".repeat(5990)).usage(100, 1);
    let server = Server::start((0..4).map(|_| long().stall_after(180)));
    let project = Project::with(spec, &server);
    assert_eq!(
        stop_after_pieces(&project, 180, Signal::INT).code,
        Some(130)
    );
    let worst = project.events("ModelRequested")[0]["worst"]["cost_usd"]
        .as_f64()
        .unwrap();
    assert!((0.15..0.17).contains(&worst), "{worst}");
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(ran.outcome_and_reason(), ("FAILED".into(), "budget".into()));
    assert_eq!(server.count(), 1, "the second does not fit");
}

#[test]
fn tokens_of_cut_streams_are_counted() {
    let spec =
        answer_spec() + "generator: {model: scripted, max_tokens: 1000}\nbudget: {tokens: 6000}\n";
    let server = Server::start(
        (0..4)
            .map(|_| long(2000, 1).cut_after(152))
            .chain([reply::answer("42")]),
    );
    let project = Project::with(spec, &server);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(ran.outcome_and_reason().1, "budget");
    // Each counts with 2,000 of input and 150 pieces of 12 bytes: 2,600 tokens.
    assert_eq!(server.count(), 2);
    let charged: Vec<Value> = project
        .events("ErrorOccurred")
        .into_iter()
        .map(|line| line["charge"]["tokens"].clone())
        .collect();
    assert_eq!(charged[0], json!(2000 + 150 * 12 / 3));
}

#[test]
fn a_state_without_losses_is_read() {
    let server = Server::start([
        long(20_000, 1).cut_after(12),
        reply::status(401),
        reply::answer("42"),
    ]);
    let project = Project::with(
        answer_spec() + &format!("generator: {{{PRICE}}}\n"),
        &server,
    );
    project.run(RUN).exits(4);
    let expected = lost(&project);
    assert!(expected > 0.06);
    let mut state = project.state();
    state["usage"].as_object_mut().unwrap().remove("lost_usd");
    project.write("state.json", state.to_string());
    project.run(&["status"]).exits(0);
    project.run(RUN).exits(0);
    assert_near(lost(&project), expected);
}

#[test]
fn losses_are_kept_when_the_log_is_gone() {
    let server = Server::start([
        long(20_000, 1).cut_after(12),
        reply::status(401),
        reply::answer("42"),
    ]);
    let project = Project::with(
        answer_spec() + &format!("generator: {{{PRICE}}}\n"),
        &server,
    );
    project.run(RUN).exits(4);
    let expected = lost(&project);
    fs::remove_file(project.path(&project.log_path())).unwrap();
    project.run(RUN).exits(0);
    assert_near(lost(&project), expected);
    // They count in the budget, too.
    let server = Server::start([
        long(20_000, 1).cut_after(12),
        reply::status(401),
        reply::answer("42"),
    ]);
    let spec = answer_spec()
        + &format!("generator: {{{PRICE}, max_tokens: 3000}}\nbudget: {{usd: 0.12}}\n");
    let project = Project::with(spec, &server);
    project.run(RUN).exits(4);
    fs::remove_file(project.path(&project.log_path())).unwrap();
    project.write(
        "specs/spec.yaml",
        project
            .read("specs/spec.yaml")
            .replace("max_tokens: 3000", "max_tokens: 5000"),
    );
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "budget"
    );
}
