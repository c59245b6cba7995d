//! Agent mode: a phase is a conversation. Stop reasons, truncation, refusals, console output.
//!
//! Tools and their results are in `agent_tools.rs`, bounds in
//! `agent_bounds.rs`, crashes and replay in `agent_resume.rs`, prompts in `agent_prompts.rs`.

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, checked_by, zombies_of};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::running::until;
use crate::support::server::{Received, Server, ToolResult};

/// A check that passes with 42 in `answer.txt` and otherwise prints its content.
pub(crate) const CHECK: &str =
    "grep -qx 42 answer.txt && exit; echo \"answer.txt says $(cat answer.txt)\"; exit 1";
pub(crate) const PROVIDERS: [&str; 2] = ["anthropic", "openai"];

/// A spec of agent mode; `generator` are more of its fields, as in `max_turns: 3`.
pub(crate) fn agent_spec(generator: &str) -> String {
    checked_by(CHECK) + &format!("generator: {{mode: agent, {generator}}}\n")
}

/// The call that makes the check green.
pub(crate) fn solve() -> Reply {
    bash("echo 42 > answer.txt")
}

/// The answer that ends a phase.
pub(crate) fn done() -> Reply {
    reply::text("It is done.")
}

/// Runs a spec with these answers, expects the exit code, and returns the project and the requests.
pub(crate) fn converse(spec: &str, replies: Vec<Reply>, code: i32) -> (Project, Vec<Received>) {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON).exits(code);
    project.nothing_left();
    (project, server.requests())
}

/// Runs the calls, then solves the task; returns the newest result after each call.
pub(crate) fn results(calls: Vec<Reply>) -> Vec<ToolResult> {
    let count = calls.len();
    // The shell may be in another directory by then.
    let solve = call(
        "python",
        json!({"command": "open('answer.txt', 'w').write('42\\n')"}),
    );
    let (_, requests) = converse(
        &agent_spec(""),
        calls.into_iter().chain([solve, done()]).collect(),
        0,
    );
    requests[1..=count].iter().map(Received::result).collect()
}

fn roles(request: &Received) -> Vec<String> {
    let messages = request.body["messages"].as_array().unwrap().iter();
    messages
        .map(|message| message["role"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_tool_call_is_answered_and_checks_run_after_the_last_turn() {
    for provider in PROVIDERS {
        let replies = vec![solve().with_text("I write it."), done()];
        let (project, requests) =
            converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
        assert_eq!(
            project.phases().join(" "),
            "INIT GENERATING TESTING SUCCESS"
        );
        assert_eq!(project.state()["attempt_files"], json!(["answer.txt"]));
        assert_eq!(
            (requests.len(), &project.state()["usage"]["llm_calls"]),
            (2, &json!(2))
        );
        let expected = match provider {
            "openai" => "system user assistant tool",
            _ => "user assistant user",
        };
        assert_eq!(roles(&requests[1]).join(" "), expected);
        assert!(
            requests[1].result().text.starts_with("(no output)\n"),
            "{:?}",
            requests[1].result()
        );
        assert!(requests[1].raw.contains("I write it."));
    }
}

#[test]
fn each_phase_starts_a_new_conversation() {
    for provider in PROVIDERS {
        let first = [
            bash("echo 41 > answer.txt; phase_variable=one"),
            reply::text("My closing words."),
        ];
        let second = [
            bash("echo \"[$phase_variable]\"; echo 42 > answer.txt"),
            done(),
        ];
        let replies = first.into_iter().chain(second).collect();
        let (project, requests) =
            converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
        assert_eq!(project.state()["retry_count"], 1);
        let opening = requests[2].text();
        for part in [
            "answer.txt says 41",
            "My closing words.",
            "Write the answer to answer.txt.",
            "answer.txt (3 bytes)",
        ] {
            assert!(opening.contains(part), "no {part:?} in\n{opening}");
        }
        assert!(
            !requests[2].raw.contains("phase_variable"),
            "the calls of the phase before are not repeated"
        );
        assert!(
            requests[3].result().text.starts_with("[]\n"),
            "{:?}",
            requests[3].result()
        );
    }
}

#[test]
fn text_that_looks_like_a_call_is_text() {
    for words in [
        "```bash\ntouch ran\n```",
        "<invoke name=\"bash\"><parameter name=\"command\">touch ran</parameter></invoke>",
        "{\"name\": \"bash\", \"arguments\": {\"command\": \"touch ran\"}}",
    ] {
        let (project, requests) = converse(&agent_spec(""), vec![solve(), reply::text(words)], 0);
        assert_eq!(
            (requests.len(), project.exists("workspace/ran")),
            (2, false)
        );
    }
}

#[test]
fn an_empty_answer_is_left_out_of_the_conversation() {
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    for provider in PROVIDERS {
        for empty in [
            reply::text(""),
            reply::text(" \n"),
            reply::text("").after_block(thinking.clone()),
        ] {
            let replies = vec![empty, solve(), done()];
            let (_, requests) = converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
            assert!(
                !roles(&requests[1]).contains(&"assistant".to_owned()),
                "{}",
                requests[1].raw
            );
            assert!(
                requests[1]
                    .text()
                    .contains("nothing in the workspace has changed")
            );
        }
    }
}

#[test]
fn a_phase_ends_with_any_stop_reason() {
    for stop in ["stop_sequence", "tool_use", "something_new"] {
        let (_, requests) = converse(&agent_spec(""), vec![solve(), done().stop(stop)], 0);
        assert_eq!(requests.len(), 2);
    }
}

#[test]
fn a_paused_turn_is_sent_back_unchanged_and_counts() {
    let used = json!({"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}});
    let paused = || {
        reply::text("Searching on.")
            .after_block(used.clone())
            .stop("pause_turn")
    };
    let (_, requests) = converse(&agent_spec(""), vec![paused(), solve(), done()], 0);
    assert_eq!(roles(&requests[1]), ["user", "assistant"]);
    assert_eq!(
        requests[1].body["messages"][1]["content"],
        json!([used, {"type": "text", "text": "Searching on."}])
    );
    assert_eq!(
        roles(&requests[2]),
        ["user", "assistant", "user"],
        "the paused answer and its end are one message"
    );
    let (project, requests) = converse(
        &agent_spec("max_turns: 2"),
        vec![paused(), paused(), solve()],
        1,
    );
    assert_eq!(
        (project.state_text("reason").as_str(), requests.len()),
        ("max_turns", 2)
    );
}

#[test]
fn thinking_goes_back_unchanged_in_every_later_request() {
    let thinking = json!({"type": "thinking", "thinking": "I ponder \u{20ac} it", "signature": "c2lnbmF0dXJl"});
    let redacted = json!({"type": "redacted_thinking", "data": "b3BhcXVl"});
    for whole in [false, true] {
        let first = bash("true")
            .with_text("First.")
            .after_block(thinking.clone())
            .after_block(redacted.clone());
        let first = if whole { first.json() } else { first };
        let (_, requests) = converse(&agent_spec(""), vec![first, solve(), done()], 0);
        for request in &requests[1..] {
            let content = request.body["messages"][1]["content"].as_array().unwrap();
            assert_eq!(content[..2], [thinking.clone(), redacted.clone()]);
            assert_eq!(content[2], json!({"type": "text", "text": "First."}));
        }
    }
}

#[test]
fn a_truncated_answer_runs_no_tool() {
    for provider in PROVIDERS {
        let cut = bash("touch ran")
            .and_raw_call("bash", "{\"command\": \"touch ra")
            .stop("max_tokens")
            .ids(&["a", "b"]);
        let alone = reply::text("")
            .and_raw_call("bash", "{\"comm")
            .stop("max_tokens");
        let replies = vec![cut, alone, solve(), done()];
        let (project, requests) =
            converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
        assert!(!project.exists("workspace/ran"));
        let results = requests[1].results();
        assert_eq!(
            (results.len(), results[0].id.as_str()),
            (1, "a"),
            "{results:?}"
        );
        assert!(results[0].text.contains("not run: cut off"), "{results:?}");
        assert!(
            !requests[1].raw.contains("\"id\":\"b\""),
            "the incomplete one is left out: {}",
            requests[1].raw
        );
        assert_eq!(requests[2].results().len(), 1);
        assert!(
            requests[2].text().contains("cut off"),
            "{}",
            requests[2].text()
        );
    }
}

#[test]
fn three_truncated_answers_in_a_row_end_the_phase() {
    let cut = || reply::text("and so on and").stop("max_tokens");
    let (project, _) = converse(
        &agent_spec(""),
        vec![cut(), cut(), solve(), cut(), cut(), done()],
        0,
    );
    assert_eq!(project.state()["state"], "SUCCESS");
    let (project, _) = converse(&agent_spec(""), vec![cut(), cut(), cut(), solve()], 1);
    assert_eq!(project.state_text("reason"), "generation_error");
    let wrong = [bash("echo 41 > answer.txt"), done()]
        .into_iter()
        .chain([cut(), cut(), cut()]);
    let (project, _) = converse(&agent_spec(""), wrong.collect(), 1);
    assert_eq!(project.state_text("reason"), "patch_error");
}

#[test]
fn a_refusal_ends_the_run_with_its_category() {
    for (provider, category) in [("anthropic", "refusal"), ("openai", "content_filter")] {
        let refused = reply::text("No.").stop("refusal");
        let (project, _) = converse(
            &agent_spec(&format!("provider: {provider}")),
            vec![refused],
            1,
        );
        assert_eq!(project.state_text("reason"), "generation_error");
        assert!(
            project.state_text("last_error").contains(category),
            "{}",
            project.state_text("last_error")
        );
    }
}

#[test]
fn a_model_without_tools_or_effort_fails_and_names_the_field_to_set() {
    for (message, field) in [
        (
            "registry.ollama.ai/library/x does not support tools",
            "mode",
        ),
        (
            "Unsupported parameter: 'reasoning_effort' is not supported with this model.",
            "effort",
        ),
    ] {
        let refusal = reply::error(400, "invalid_request_error", message);
        let (project, _) = converse(&agent_spec("effort: high"), vec![refusal], 1);
        let error = project.state_text("last_error");
        assert!(
            error.contains(&format!("generator.{field}")) || error.contains(&format!("`{field}")),
            "{error}"
        );
    }
}

#[test]
fn effort_is_sent_when_it_is_given() {
    for (provider, path) in [
        ("anthropic", "/output_config/effort"),
        ("openai", "/reasoning_effort"),
    ] {
        for (effort, expected) in [("effort: high", Some(&json!("high"))), ("", None)] {
            let replies = vec![solve(), done()];
            let (_, requests) = converse(
                &agent_spec(&format!("provider: {provider}, {effort}")),
                replies,
                0,
            );
            assert_eq!(requests[1].body.pointer(path), expected);
        }
    }
}

#[test]
fn agent_mode_without_a_model_is_refused() {
    let project = Project::new()
        .spec(checked_by("true") + "generator: {mode: agent, provider: template, template: t/}\n")
        .file("specs/t/0/x", "");
    project.run(RUN).exits(65);
}

#[test]
fn the_console_shows_each_call() {
    let server = Server::start([solve(), done()]);
    let project = Project::with(agent_spec(""), &server);
    project.run(RUN).exits(0).says("echo 42 > answer.txt");
}

#[test]
fn phases_leave_no_zombies() {
    let wrong = || bash("echo 41 > answer.txt");
    let replies = [wrong(), done(), wrong(), done(), solve(), done().held()];
    let server = Server::start(replies);
    let project = Project::with(agent_spec(""), &server);
    let running = project.start(RUN);
    server.wait_for(6);
    until("every ended child is reaped", || {
        zombies_of(running.id()).is_empty()
    });
    server.release();
    running.wait().exits(0);
}
