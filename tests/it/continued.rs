//! `run --continue`: a new run where the last one failed for want of something, with its workspace and report.

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

const CONTINUE: &[&str] = &["run", "--spec", "specs/spec.yaml", "--continue"];

/// A project whose run has failed with this reason; the next answers are `more`.
fn failed(spec: &str, reason: &str, replies: Vec<Reply>) -> (Project, Server) {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    let ran = project
        .run(&["run", "--spec", "specs/spec.yaml", "--json"])
        .exits(1);
    assert_eq!(project.state()["reason"], reason, "{}", ran.transcript());
    let next = ran.result()["next"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        next,
        "orchestrator run --spec specs/spec.yaml --continue --json"
    );
    (project, server)
}

fn exhausted(more: &[Reply]) -> (Project, Server) {
    let first = [reply::answer("40"), reply::answer("41")];
    let spec = answer_spec() + "max_retries: 1\n";
    failed(
        &spec,
        "retries_exhausted",
        first.into_iter().chain(more.iter().cloned()).collect(),
    )
}

#[test]
fn it_goes_on_with_the_workspace_the_report_and_all_limits() {
    let (project, server) = exhausted(&[reply::answer("43"), reply::answer("42")]);
    let first = project.state_text("run_id");
    let log = project.read(&project.log_path());
    project.write("workspace/mine.txt", "mine\n");
    let workspace = project.workspace_files();
    assert_eq!(workspace.len(), 2);
    project
        .run(CONTINUE)
        .exits(0)
        .says(&format!("continues the run {first}"));
    let state = project.state();
    assert_ne!(state["run_id"], json!(first));
    assert_eq!(
        (&state["continues"], &state["retry_count"]),
        (&json!(first), &json!(1))
    );
    assert_eq!(state["usage"]["llm_calls"], 2);
    assert_eq!(project.workspace("mine.txt"), "mine\n");
    assert_eq!(
        project.read(&format!("logs/{first}.log")),
        log,
        "the log of the old run has changed"
    );
    assert_eq!(project.events("RunContinued")[0]["continues"], json!(first));
    assert_eq!(
        project.events("WorkflowStarted")[0]["continues"],
        json!(first)
    );
    // The workspace was changed, so the checks ran on it first.
    let asked = server.requests()[2].text();
    assert!(
        asked.contains("answer.txt says 41") && asked.contains("make all checks pass"),
        "{asked}"
    );
    assert_eq!(project.events("BaselineFinished").len(), 1);
}

#[test]
fn the_last_report_is_used_if_the_workspace_is_the_tested_one() {
    let (project, server) = exhausted(&[reply::answer("42")]);
    project.run(CONTINUE).exits(0);
    assert!(project.events("BaselineFinished").is_empty());
    let asked = server.requests()[2].text();
    assert!(asked.contains("answer.txt says 41"), "{asked}");
    assert!(asked.contains("This is attempt 1 of 2"), "{asked}");
}

#[test]
fn each_reason_that_allows_it_is_continued() {
    let priced = "generator: {format_retries: 0, max_tokens: 100, price: {input: 1, output: 1}}\n";
    let cases = [
        ("no_output", String::new(), vec![reply::text("prose")]),
        (
            "generation_error",
            String::new(),
            vec![reply::error(400, "odd", "odd")],
        ),
        (
            "patch_error",
            String::new(),
            vec![reply::answer("41"), reply::error(400, "odd", "odd")],
        ),
        ("stuck", String::new(), vec![reply::answer("41"); 3]),
        (
            "budget",
            "budget: {tokens: 2000}\n".into(),
            vec![reply::answer("41").usage(1950, 10)],
        ),
    ];
    for (reason, more, mut replies) in cases {
        replies.push(reply::answer("42"));
        let (project, _server) = failed(&(answer_spec() + priced + &more), reason, replies);
        let ran = project.run(CONTINUE);
        assert_eq!(ran.code, Some(0), "{reason}\n{}", ran.transcript());
        assert!(project.state()["continues"].is_string(), "{reason}");
    }
}

#[test]
fn it_is_refused_where_nothing_can_be_continued() {
    let nothing = Project::new().spec(answer_spec());
    nothing.run(CONTINUE).exits(64).says("there is no run here");
    assert!(!nothing.exists("state.json"));

    let server = Server::start([reply::answer("41"), reply::status(401)]);
    let paused = Project::with(answer_spec(), &server);
    paused.run(RUN).exits(4);
    let before = paused.state();
    paused
        .run(CONTINUE)
        .exits(64)
        .says("without --continue goes on");

    let server = Server::start([reply::files(&[("../x", "x")])]);
    let violation = Project::with(answer_spec(), &server);
    violation.run(RUN).exits(2);
    violation.run(CONTINUE).exits(64).says("safety_violation");

    let server = Server::start([reply::answer("42")]);
    let done = Project::with(answer_spec(), &server);
    done.run(RUN).exits(0);
    done.run(CONTINUE).exits(64).says("SUCCESS");
    assert_eq!(paused.state(), before);
    for flag in ["--no-resume", "--resume"] {
        done.run(&[CONTINUE, &[flag]].concat()).exits(64);
    }
}

#[test]
fn a_changed_success_goes_on_with_the_workspace_as_it_is() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    project.write("workspace/answer.txt", "7\n");
    project.write("workspace/mine.txt", "mine\n");
    project.run(RUN).exits(1).says("--continue");
    project.run(CONTINUE).exits(0);
    assert_eq!(project.workspace("mine.txt"), "mine\n");
    assert!(server.requests()[1].text().contains("answer.txt says 7"));
}

#[test]
fn the_spec_may_have_changed_and_new_files_are_taken_in() {
    let (project, server) = exhausted(&[reply::answer("44")]);
    let spec =
        checked_by("grep -qx 44 answer.txt && cat given.txt") + "workspace: {copy: [given.txt]}\n";
    let project = project.spec(spec).file("specs/given.txt", "given\n");
    project.run(CONTINUE).exits(0);
    assert_eq!(project.workspace("given.txt"), "given\n");
    assert_eq!(server.count(), 3);
    let diff = project.run(&["diff"]).exits(0).stdout;
    assert!(
        !diff.contains("given.txt"),
        "what was taken in later is no change\n{diff}"
    );
}

#[test]
fn the_chain_of_runs_is_shown_and_the_difference_covers_all_of_it() {
    let server = Server::start([
        reply::answer("40"),
        reply::answer("41"),
        reply::answer("42"),
    ]);
    let spec = answer_spec() + "max_retries: 1\nworkspace: {copy: [answer.txt]}\n";
    let project = Project::with(spec, &server).file("specs/answer.txt", "given\n");
    project.run(RUN).exits(1);
    let first = project.state_text("run_id");
    project.run(CONTINUE).exits(0);
    project
        .run(&["attempts"])
        .exits(0)
        .says_on_stdout(&format!("continues {first}"));
    let diff = project.run(&["diff"]).exits(0).stdout;
    assert!(diff.contains("-given\n+42\n"), "{diff}");
    let old = project
        .run(&["attempts", &first[..8], "--json"])
        .exits(0)
        .stdout;
    assert_eq!(serde_json::from_str::<Vec<Value>>(&old).unwrap().len(), 2);
}

#[test]
fn a_continued_run_is_replayed_from_the_workspace_that_it_began_with() {
    let (project, server) = exhausted(&[reply::answer("42")]);
    project.write("workspace/mine.txt", "mine\n");
    project.run(CONTINUE).exits(0);
    let (log, files) = (project.log_path(), project.workspace_files());
    let copy = format!("../{}", log.rsplit('/').next().unwrap());
    std::fs::copy(project.path(&log), project.path(&copy)).unwrap();
    project
        .run(&["run", "--spec", "specs/spec.yaml", "--replay", &log])
        .exits(0);
    assert_eq!((project.workspace_files(), server.count()), (files, 3));
    // In a root that does not have that workspace it cannot be.
    let other = Project::new().spec(answer_spec() + "max_retries: 1\n");
    let log = project.path(&copy).display().to_string();
    other
        .run(&["run", "--spec", "specs/spec.yaml", "--replay", &log])
        .exits(64)
        .says("is not in this root");
}
