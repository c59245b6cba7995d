//! Provider claude-code with the real program and a scripted server behind it.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::claude::real;
use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::server::{Received, Server};

fn project(server: &Server, more: &str) -> Option<Project> {
    let spec = format!(
        "{}generator: {{provider: claude-code}}\n{more}",
        answer_spec()
    );
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", real()?.display());
    Some(Project::with(spec, server).env("PATH", &path))
}

/// A server for a client that also sends health checks.
fn serving(replies: impl IntoIterator<Item = Reply>) -> Server {
    Server::start(replies)
}

/// The requests for a message, without health checks and others.
fn asked(server: &Server) -> Vec<Received> {
    server
        .requests()
        .into_iter()
        .filter(|request| request.path.starts_with("/v1/messages"))
        .collect()
}

#[test]
fn the_real_program_builds() {
    let server = serving([reply::answer("41"), reply::answer("42")]);
    let Some(project) = project(&server, "budget: {usd: 1.0}\n") else {
        return;
    };
    project.run(RUN).exits(0);
    let asked = asked(&server);
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].body["tools"], Value::Array(vec![]));
    assert!(asked[0].text().contains("Write the answer to answer.txt"));
    assert!(asked[1].text().contains("answer.txt says 41"));
    assert!(asked[0].raw.len() < 20_000, "{} bytes", asked[0].raw.len());
    let usage = project.state()["usage"].clone();
    assert_eq!(
        (&usage["llm_calls"], &usage["input_tokens"]),
        (&2.into(), &200.into())
    );
    assert!(
        usage["cost_usd"].as_f64().is_some_and(|cost| 0.0 < cost),
        "{usage}"
    );
    project.nothing_left();
}

#[test]
fn no_answer_makes_the_real_program_read_or_run_anything() {
    let server = serving([reply::answer("42")]);
    let more = "workspace: {copy: [{from: starter, to: .}]}\n";
    let Some(project) = project(&server, more) else {
        return;
    };
    let (secret, ran) = (project.outside("home/secret"), project.outside("home/ran"));
    std::fs::write(&secret, "THE-SECRET").unwrap();
    let hook = serde_json::json!({"hooks": {"SessionStart": [{"hooks": [{"type": "command",
        "command": format!("touch {}", ran.display())}]}]}});
    project.write("specs/starter/.claude/settings.json", hook.to_string());
    project.write(
        "specs/starter/CLAUDE.md",
        format!("MEMO @{}\n", secret.display()),
    );
    project.write(
        "specs/starter/note.txt",
        format!("@{0} @~/secret !cat {0}\n", secret.display()),
    );
    project.run(RUN).exits(0);
    let raw = &asked(&server)[0].raw;
    assert!(
        raw.contains("note.txt") && !raw.contains("THE-SECRET"),
        "{raw}"
    );
    assert!(!ran.exists(), "the hook of the workspace ran");
}

#[test]
fn a_session_of_the_real_program_is_resumed_after_a_kill() {
    let server = serving([reply::answer("41").held(), reply::answer("42")]);
    let Some(project) = project(&server, "") else {
        return;
    };
    let mut running = project.start(RUN);
    running.until("the model is asked", || asked(&server).len() == 1);
    running.signal(Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
    let asked = asked(&server);
    let session = |request: &Received| request.body["metadata"]["user_id"].as_str().map(session_of);
    assert_eq!((asked.len(), session(&asked[1])), (2, session(&asked[0])));
    project.nothing_left();
}

fn session_of(user: &str) -> String {
    serde_json::from_str::<Value>(user).unwrap()["session_id"].to_string()
}

#[test]
fn an_answer_continued_by_the_real_program_is_one_answer() {
    let replies = [
        reply::text("<file path=\"answer.txt\">\n4").stop("max_tokens"),
        reply::text("2\n</file>\n"),
    ];
    let server = serving(replies);
    let Some(project) = project(&server, "") else {
        return;
    };
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("answer.txt"), "42\n");
}

#[test]
fn errors_of_the_real_program_are_classified() {
    let cases = [
        (400, 1, "generation_error"),
        (401, 4, "provider_unauthorized"),
        (529, 4, "provider_unavailable"),
    ];
    for (status, code, reason) in cases {
        let server = Server::answering(move |_| reply::status(status));
        let Some(project) = project(&server, "") else {
            return;
        };
        assert_eq!(
            project.run(RUN_JSON).exits(code).outcome_and_reason().1,
            reason,
            "{status}"
        );
        project.nothing_left();
    }
    let server = serving([]);
    let Some(project) = project(&server, "") else {
        return;
    };
    let project = project.without("ANTHROPIC_API_KEY");
    assert_eq!(
        project.run(RUN_JSON).exits(4).outcome_and_reason().1,
        "provider_unauthorized"
    );
    assert_eq!(asked(&server).len(), 0);
}
