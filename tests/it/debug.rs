//! `--debug`: a file per step beside the log, and stream events in the log.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, answer_spec};
use crate::support::reply;
use crate::support::server::Server;

const DEBUG: &[&str] = &["run", "--spec", "specs/spec.yaml", "--debug"];

fn run(arguments: &[&str]) -> Project {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(arguments).exits(0);
    project
}

/// The content of all debug files, with their names.
fn files(project: &Project) -> String {
    let folder = format!("logs/{}/", project.state_text("run_id"));
    let files = project
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with(&folder));
    files
        .map(|(path, content)| format!("{path}\n{}\n", String::from_utf8_lossy(&content)))
        .collect()
}

#[test]
fn every_step_writes_its_debug_files() {
    let project = run(DEBUG);
    let all = files(&project);
    for expected in [
        "Write the answer to answer.txt.",
        "answer.txt says 41",
        "not the answer",
        "transitions.log",
    ] {
        assert!(all.contains(expected), "no {expected:?} in\n{all}");
    }
    let transitions = project.read(&format!(
        "logs/{}/transitions.log",
        project.state_text("run_id")
    ));
    for phase in ["GENERATING", "TESTING", "PATCHING", "SUCCESS"] {
        assert!(transitions.contains(phase), "no {phase} in\n{transitions}");
    }
    project.nothing_left();
}

#[test]
fn without_debug_there_are_no_files_and_no_stream_events() {
    let project = run(RUN);
    let folder = project.path(&format!("logs/{}", project.state_text("run_id")));
    let names = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["attempts"]);
    assert!(project.events("ModelStreamed").is_empty());
}

#[test]
fn stream_events_in_the_log_add_up_to_the_answer() {
    let project = run(DEBUG);
    let pieces = project.events("ModelStreamed");
    assert!(2 < pieces.len());
    let first: String = pieces
        .iter()
        .filter(|line| line["phase"] == "GENERATING")
        .map(|line| line["piece"].to_string())
        .collect();
    assert!(first.contains("text_delta"), "{first}");
}

#[test]
fn an_unwritable_debug_folder_does_not_stop_the_run() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(DEBUG);
    server.wait_for(1);
    let folder = project.path(&format!("logs/{}", project.state_text("run_id")));
    fs::remove_file(folder.join("transitions.log")).unwrap();
    fs::create_dir(folder.join("transitions.log")).unwrap();
    server.release();
    running.wait().exits(0).says("an observer failed");
    assert_eq!(project.state()["state"], "SUCCESS");
}

#[test]
fn a_resumed_run_adds_to_its_debug_files() {
    let server = Server::start([reply::answer("41"), reply::status(401), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(DEBUG).exits(4);
    let before = files(&project).len();
    project.run(DEBUG).exits(0);
    assert!(before < files(&project).len());
    assert!(
        files(&project).contains("answer.txt says 41"),
        "the first part is still there"
    );
}

#[test]
fn a_conversation_writes_each_prompt_and_each_call_with_its_result() {
    let call = reply::bash("echo 'a\nb'; echo 42 > answer.txt");
    let server = Server::start([
        call,
        reply::call("telnet", json!({})),
        reply::text("Ended."),
    ]);
    let project = Project::with(crate::agent_mode::agent_spec(""), &server);
    project.run(DEBUG).exits(0);
    let folder = format!("logs/{}/", project.state_text("run_id"));
    let files: Vec<(String, Vec<u8>)> = project
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with(&folder))
        .collect();
    let ending = |ending: &str| {
        files
            .iter()
            .filter(|(path, _)| path.ends_with(ending))
            .collect::<Vec<_>>()
    };
    let text = |file: &(String, Vec<u8>)| String::from_utf8_lossy(&file.1).into_owned();
    let prompts = ending(".prompt.json");
    assert_eq!((prompts.len(), ending(".answer.json").len()), (3, 3));
    for (prompt, sent) in prompts.into_iter().zip(server.requests()) {
        let prompt: Value = serde_json::from_str(&text(prompt)).unwrap();
        assert_eq!(
            prompt["messages"].as_array().map(Vec::len),
            sent.body["messages"].as_array().map(Vec::len)
        );
        assert!(
            prompt["system"]
                .as_str()
                .unwrap()
                .contains("The checks decide"),
            "each prompt is whole"
        );
    }
    let results = ending(".result.txt");
    assert_eq!(results.len(), 2);
    assert!(
        text(results[0]).starts_with("a\nb\n"),
        "{}",
        text(results[0])
    );
    assert!(
        text(results[1]).starts_with("not run: there is no tool"),
        "{}",
        text(results[1])
    );
    assert!(text(ending("_bash.call.json")[0]).contains("echo 42 > answer.txt"));
    assert!(text(ending("_bash.meta.json")[0]).contains("\"is_error\": false"));
    assert!(
        project.events("PromptSent").is_empty(),
        "the log holds only what is new"
    );
    project.nothing_left();
}
