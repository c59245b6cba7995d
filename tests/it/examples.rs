//! The examples of agent mode, with a scripted model and from their recordings, with every command run again.
//!
//! The answers are in `examples/`. After a change of the prompts `UPDATE_RECORDINGS=1` rewrites the
//! recordings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

const EXAMPLES: [&str; 3] = ["words", "rpn", "slug"];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A project with the specs of the examples and the real home, which has the toolchains.
fn project() -> Project {
    let project = Project::new();
    copy(
        &repository().join("specs/agent"),
        &project.path("specs/agent"),
    );
    let home = std::env::home_dir().unwrap();
    project.env("HOME", home.to_str().unwrap())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn replies(name: &str) -> Vec<Reply> {
    let text =
        fs::read_to_string(repository().join(format!("tests/it/examples/{name}.json"))).unwrap();
    let turns: Vec<Value> = serde_json::from_str(&text).unwrap();
    turns.iter().map(scripted_reply).collect()
}

fn scripted_reply(turn: &Value) -> Reply {
    let calls = turn["calls"].as_array().unwrap();
    calls.iter().fold(
        reply::text(turn["text"].as_str().unwrap()),
        |reply, call| reply.and_call(call["tool"].as_str().unwrap(), call["arguments"].clone()),
    )
}

/// Runs an example with a scripted model; returns the project.
fn with_a_model(name: &str) -> BTreeMap<String, Vec<u8>> {
    let server = Server::start(replies(name));
    let project = project().model(&server);
    project
        .run(&["run", "--spec", &format!("specs/agent/{name}.yaml")])
        .exits(0);
    if std::env::var_os("UPDATE_RECORDINGS").is_some() {
        fs::copy(
            project.path(&project.log_path()),
            repository().join(format!("specs/agent/{name}.log")),
        )
        .unwrap();
    }
    own_files(&project)
}

/// The files that an example wrote, without compiler output.
fn own_files(project: &Project) -> BTreeMap<String, Vec<u8>> {
    let mut files = project.workspace_files();
    files.retain(|name, _| !name.starts_with("target/"));
    files
}

#[test]
fn the_recorded_examples_replay_offline() {
    for name in EXAMPLES {
        let made = with_a_model(name);
        let project = project().without("ANTHROPIC_API_KEY");
        let (spec, log) = (
            format!("specs/agent/{name}.yaml"),
            format!("specs/agent/{name}.log"),
        );
        project
            .run(&["run", "--spec", &spec, "--replay", &log])
            .exits(0);
        assert_eq!(own_files(&project), made, "{name}");
        project.nothing_left();
    }
}
