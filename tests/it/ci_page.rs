//! The examples in `docs/ci.md` are YAML, and their commands work.

use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::support::project::{BINARY, Project};
use crate::support::reply;
use crate::support::server::Server;

const SPEC: &str = "name: calculator\ndescription: A calculator.\n\
    checks: [{name: unit, command: [grep, -qx, '42', answer.txt]}]\n";

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ci.md");
    fs::read_to_string(page).unwrap()
}

fn examples() -> Vec<Value> {
    let page = page();
    let block = Regex::new("(?s)\n```yaml\n(.*?)```\n").unwrap();
    let texts = block.captures_iter(&page);
    texts
        .map(|found| serde_yaml::from_str(&found[1]).unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

/// A command of a job, and whether it has the key: a step of GitHub only if it names it, a replay never.
type JobCommand = (String, bool);

/// The command lines of the jobs: `run` of GitHub's steps, `script` of GitLab.
fn command_lines(example: &Value) -> Vec<JobCommand> {
    match example {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("run", Value::String(script)) => {
                    let has_key = example["env"].get("ANTHROPIC_API_KEY").is_some();
                    vec![(script.clone(), has_key)]
                }
                ("script", Value::Array(lines)) => {
                    let lines = lines.iter().map(|line| line.as_str().unwrap());
                    lines
                        .map(|line| (line.to_owned(), !line.contains("--replay")))
                        .collect()
                }
                _ => command_lines(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(command_lines).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_commands_of_the_ci_page_work() {
    let folder = Path::new(BINARY).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let examples = examples();
    assert_eq!(examples.len(), 3);
    let recorded = recording();
    for example in &examples {
        let lines = command_lines(example);
        assert!(!lines.is_empty(), "{example}");
        let server = Server::start(vec![reply::answer("42")]);
        let project = Project::new()
            .model(&server)
            .env("PATH", &format!("{folder}:{path}"))
            .file("specs/calculator.yaml", SPEC)
            .file("recordings/calculator.log", &recorded);
        for (line, has_key) in lines.iter().filter(|(line, _)| !line.starts_with("cargo ")) {
            let unset = "unset ANTHROPIC_API_KEY OPENAI_API_KEY OPENAI_BASE_URL";
            let line = match has_key {
                true => format!("set -e; {line}"),
                false => format!("{unset}; set -e; {line}"),
            };
            project.run_in_shell(&line, &[]).exits(0);
        }
        assert_eq!(project.workspace("answer.txt"), "42\n");
    }
}

/// The log of a run of the page's spec.
fn recording() -> String {
    let server = Server::start(vec![reply::answer("42")]);
    let project = Project::new()
        .model(&server)
        .file("specs/calculator.yaml", SPEC);
    project.run(&["run", "specs/calculator.yaml"]).exits(0);
    let mut logs = fs::read_dir(project.path("logs")).unwrap();
    let log = logs.find_map(|entry| {
        let path = entry.unwrap().path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        is_log.then_some(path)
    });
    fs::read_to_string(log.unwrap()).unwrap()
}

#[test]
fn a_job_that_finds_the_cached_paths_does_not_repeat_the_run() {
    let page = page();
    let cached = Regex::new(r"(?m)^ +path: \|\n((?: {12}\S+\n)+)").unwrap();
    let cached = cached.captures(&page).unwrap();
    let server = Server::start(vec![reply::answer("41"), reply::answer("42")]);
    let first = Project::new()
        .model(&server)
        .file("specs/calculator.yaml", SPEC);
    let limited = ["run", "specs/calculator.yaml", "--max-retries", "1"];
    let result = first.run(&limited).exits(0);
    let second = Project::new()
        .model(&server)
        .file("specs/calculator.yaml", SPEC);
    for path in cached[1].split_whitespace() {
        let (from, to) = (first.path(path), second.path(path));
        let copied = second.run_in_shell(
            &format!("rm -rf {1}; cp -a {0} {1}", from.display(), to.display()),
            &[],
        );
        copied.exits(0);
    }
    let again = second.run(&limited).exits(0);
    assert_eq!(again.stdout, result.stdout);
}
