//! `--debug`: a file per step beside the log, and the pieces of a stream in it.

use std::fs;

use crate::project::{Project, RUN, answer_spec};
use crate::reply;
use crate::server::Server;

const DEBUG: &[&str] = &["run", "--spec", "specs/spec.yaml", "--debug"];

fn run(arguments: &[&str]) -> Project {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(arguments).exits(0);
    project
}

/// Everything that stands in the debug files, with their names.
fn files(project: &Project) -> String {
    let folder = format!("logs/{}/", project.state_text("run_id"));
    let files = project.picture().into_iter().filter(|(path, _)| path.starts_with(&folder));
    files.map(|(path, content)| format!("{path}\n{}\n", String::from_utf8_lossy(&content))).collect()
}

#[test]
fn every_step_leaves_its_files() {
    let project = run(DEBUG);
    let all = files(&project);
    for expected in ["Write the answer to answer.txt.", "answer.txt says 41", "not the answer", "transitions.log"] {
        assert!(all.contains(expected), "no {expected:?} in\n{all}");
    }
    let transitions = project.read(&format!("logs/{}/transitions.log", project.state_text("run_id")));
    for phase in ["GENERATING", "TESTING", "PATCHING", "SUCCESS"] {
        assert!(transitions.contains(phase), "no {phase} in\n{transitions}");
    }
    project.nothing_left();
}

#[test]
fn without_it_there_are_none_and_no_pieces_in_the_log() {
    let project = run(RUN);
    assert_eq!(fs::read_dir(project.path("logs")).unwrap().count(), 1);
    assert!(project.events("ModelStreamed").is_empty());
}

#[test]
fn the_pieces_of_a_stream_are_in_the_log_and_make_up_the_answer() {
    let project = run(DEBUG);
    let pieces = project.events("ModelStreamed");
    assert!(2 < pieces.len());
    let first: String =
        pieces.iter().filter(|line| line["phase"] == "GENERATING").map(|line| line["piece"].to_string()).collect();
    assert!(first.contains("text_delta"), "{first}");
}

#[test]
fn a_folder_that_cannot_be_written_breaks_no_run() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(DEBUG);
    server.wait_for(1);
    let folder = project.path(&format!("logs/{}", project.state_text("run_id")));
    fs::remove_dir_all(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    server.release();
    running.wait().exits(0);
    assert_eq!(project.state()["state"], "SUCCESS");
}

#[test]
fn a_resumed_run_adds_to_its_files() {
    let server = Server::start([reply::answer("41"), reply::status(401), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(DEBUG).exits(4);
    let before = files(&project).len();
    project.run(DEBUG).exits(0);
    assert!(before < files(&project).len());
    assert!(files(&project).contains("answer.txt says 41"), "the first part is still there");
}
