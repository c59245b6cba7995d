//! The examples of agent mode: their recordings are replayed, every command in them run again.
//!
//! What the model says in them stands in `examples/`. After a change of the prompts they are recorded anew with
//! `cargo test --test it record_the_examples -- --ignored`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::project::Project;
use crate::reply::{self, Reply};
use crate::server::Server;

const EXAMPLES: [&str; 3] = ["words", "rpn", "slug"];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A project with the examples' specs, in the home of whoever runs the tests: there the toolchains are.
fn project() -> Project {
    let project = Project::new();
    copy(&repository().join("specs/agent"), &project.path("specs/agent"));
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
    let text = fs::read_to_string(repository().join(format!("tests/it/examples/{name}.json"))).unwrap();
    let turns: Vec<Value> = serde_json::from_str(&text).unwrap();
    turns.iter().map(said).collect()
}

fn said(turn: &Value) -> Reply {
    let calls = turn["calls"].as_array().unwrap();
    calls.iter().fold(reply::text(turn["text"].as_str().unwrap()), |reply, call| {
        reply.and_call(call["tool"].as_str().unwrap(), call["arguments"].clone())
    })
}

#[test]
fn the_examples_replay_offline() {
    for name in EXAMPLES {
        let project = project().without("ANTHROPIC_API_KEY");
        let (spec, log) = (format!("specs/agent/{name}.yaml"), format!("specs/agent/{name}.log"));
        project.run(&["run", "--spec", &spec, "--replay", &log]).exits(0);
        project.nothing_left();
    }
}

#[test]
#[ignore = "it writes the recordings"]
fn record_the_examples() {
    for name in EXAMPLES {
        let server = Server::start(replies(name));
        let project = project().model(&server);
        project.run(&["run", "--spec", &format!("specs/agent/{name}.yaml")]).exits(0);
        fs::copy(project.path(&project.log_path()), repository().join(format!("specs/agent/{name}.log"))).unwrap();
    }
}
