//! Keys in answers: the log and the run use the same redacted text; a placeholder key for a local server is not redacted.

use std::fs;

use serde_json::json;

use crate::agent_mode::done;
use crate::support::project::{Project, RUN, RUN_JSON, checked_by};
use crate::support::reply::{self, bash};
use crate::support::server::Server;

/// Too short to be redacted for a local server, long enough for a remote one.
const SHORT: &str = "lm-studio";
const LONG: &str = "sk-a-key-of-more-than-sixteen";

fn code(key: &str) -> String {
    format!("KEY = \"{key}\"\nANSWER = 42\n")
}

fn spec(generator: &str) -> String {
    checked_by("grep -q 42 code.py") + &format!("generator: {{provider: openai{generator}}}\n")
}

const REPLAY: &[&str] = &[
    "run",
    "--spec",
    "specs/spec.yaml",
    "--replay",
    "recorded.log",
];

/// Expects the same file after the run, after a crash just after the answer, and after a replay, with and without a key.
fn check(spec: &str, reply: reply::Reply, more: Vec<reply::Reply>, key: &str, expected: &str) {
    let server = Server::start([reply].into_iter().chain(more));
    let project = Project::with(spec, &server).env("OPENAI_API_KEY", key);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("code.py"), expected, "live");
    let (log, state) = (project.read(&project.log_path()), project.state());
    let kept = log
        .lines()
        .take_while(|line| !line.contains("\"to_state\":\"TESTING\""))
        .map(|line| format!("{line}\n"));
    project.write(
        &project.log_path(),
        kept.filter(|line| !line.contains("FilesApplied"))
            .collect::<String>(),
    );
    let mut before = state.clone();
    for (field, value) in [
        ("state", json!("GENERATING")),
        ("reason", json!(null)),
        ("test_passed", json!(false)),
    ] {
        before[field] = value;
    }
    project.write("state.json", before.to_string());
    fs::remove_file(project.path("workspace/code.py")).unwrap();
    let asked = server.count();
    if spec.contains("mode: agent") {
        // A finished conversation is not repeated: its files are what the tools wrote.
        project.write("workspace/code.py", expected);
    }
    project.run(RUN).exits(0);
    assert_eq!(
        (project.workspace("code.py").as_str(), server.count()),
        (expected, asked),
        "after a crash"
    );
    for key in [Some(key), None] {
        let player = Project::new()
            .spec(spec)
            .file("recorded.log", &log)
            .without("OPENAI_API_KEY");
        let player = if let Some(key) = key {
            player.env("OPENAI_API_KEY", key)
        } else {
            player
        };
        player.run(REPLAY).exits(0);
        assert_eq!(
            player.workspace("code.py"),
            expected,
            "replayed with {key:?}"
        );
    }
}

#[test]
fn a_short_key_for_a_local_server_is_not_redacted() {
    let written = code(SHORT);
    check(
        &spec(""),
        reply::files(&[("code.py", &written)]),
        vec![],
        SHORT,
        &written,
    );
    let agent = bash(&format!("cat > code.py <<'E'\n{written}E"));
    check(&spec(", mode: agent"), agent, vec![done()], SHORT, &written);
}

#[test]
fn a_key_in_an_answer_is_redacted_in_the_run_and_in_the_log() {
    let (written, redacted) = (code(LONG), code("[redacted]"));
    check(
        &spec(""),
        reply::files(&[("code.py", &written)]),
        vec![],
        LONG,
        &redacted,
    );
    let agent = bash(&format!("cat > code.py <<'E'\n{written}E"));
    check(&spec(", mode: agent"), agent, vec![done()], LONG, &redacted);
}

#[test]
fn a_short_key_for_a_remote_server_is_redacted() {
    // The provider of the spec is on this machine; the other one, whose key this is, is not.
    let server = Server::start([reply::files(&[("code.py", &code(SHORT))])]);
    let spec = checked_by("grep -q 42 code.py");
    let project = Project::with(&spec, &server)
        .env("OPENAI_API_KEY", SHORT)
        .env("OPENAI_BASE_URL", "https://models.example.com/v1");
    project.run(RUN_JSON).exits(0);
    assert_eq!(project.workspace("code.py"), code("[redacted]"));
    assert!(!project.read(&project.log_path()).contains(SHORT));
}

#[test]
fn the_base_url_of_the_spec_decides_what_is_local() {
    let server = Server::start([reply::files(&[("code.py", &code(SHORT))])]);
    let spec = spec(&format!(", base_url: \"{}/v1\"", server.url()));
    let project = Project::new()
        .spec(spec)
        .env("OPENAI_API_KEY", SHORT)
        .env("OPENAI_BASE_URL", "https://a.example/v1");
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("code.py"), code(SHORT));
}

#[test]
fn a_key_with_quotes_is_redacted_where_json_escapes_it() {
    let key = "sk-\"quoted\"-and-\\-long";
    let server = Server::start([reply::files(&[("code.py", &code(key))])]);
    let project = Project::with(spec(""), &server).env("OPENAI_API_KEY", key);
    project.run(&[RUN, &["--debug"]].concat()).exits(0);
    assert_eq!(project.workspace("code.py"), code("[redacted]"));
    for (path, content) in project.files() {
        let text = String::from_utf8_lossy(&content).into_owned();
        assert!(!text.contains("quoted"), "{path}: {text}");
    }
}
