//! Run identity: which changes of a spec continue a paused run, and which start a new one.
//!
//! A paid run is paused by a 401 in PATCHING, something is changed, and the same command runs again; the server's
//! count of requests shows whether anything was requested twice.

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON};
use crate::support::reply;
use crate::support::server::Server;

/// A spec with many fields, as JSON (which is YAML, too).
fn spec() -> Value {
    json!({
        "name": "answer",
        "description": "Write the answer to answer.txt.",
        "workspace": {"copy": ["starter/"], "protect": ["tests/"]},
        "baseline": false,
        "checks": [
            {"name": "answer", "command": ["grep", "-qx", "42", "answer.txt"], "timeout": 60},
            {"name": "held", "command": ["true"], "hidden": true, "files": ["secret/"]},
        ],
        "budget": {"tokens": 500_000},
        "max_retries": 7,
        "generator": {"model": "model-1", "max_tokens": 2000, "price": {"input": 3, "output": 15}},
    })
}

/// A project whose run is paused in PATCHING after one answer.
fn paused(spec: &Value, replies: &[reply::Reply]) -> (Project, Server) {
    let server = Server::start(
        [reply::answer("41"), reply::status(401)]
            .into_iter()
            .chain(replies.iter().cloned()),
    );
    let project = Project::with(spec.to_string(), &server)
        .file("specs/tests/t.py", "T\n")
        .file("specs/starter/s.py", "S\n")
        .file("specs/secret/h.py", "H\n");
    project.run(RUN).exits(4);
    assert_eq!(project.state()["state"], "PATCHING");
    (project, server)
}

/// Pauses a run, changes something, and expects that the same run goes on with the next answer.
fn check_goes_on(what: &str, change: impl FnOnce(&Project)) -> (Project, Server) {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    let before = project.state_text("run_id");
    change(&project);
    let ran = project.run(RUN);
    assert_eq!(ran.code, Some(0), "{what}\n{}", ran.transcript());
    assert_eq!(
        (project.state_text("run_id"), server.count()),
        (before, 3),
        "{what}\n{}",
        ran.transcript()
    );
    assert_eq!(project.state()["retry_count"], 1, "{what}");
    assert!(
        !ran.stderr.contains("has changed"),
        "{what}\n{}",
        ran.transcript()
    );
    (project, server)
}

/// The spec with the value at a JSON pointer's place changed.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = spec();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[key] = value;
    spec
}

fn check_continues_with(pointer: &str, value: Value) -> (Project, Server) {
    let changed = with(pointer, value).to_string();
    check_goes_on(pointer, |project| {
        project.write("specs/spec.yaml", &changed)
    })
}

#[test]
fn bytecode_beside_protected_tests_does_not_start_a_new_run() {
    check_goes_on("bytecode", |project| {
        for folder in ["specs/tests", "specs/starter", "specs/secret"] {
            project.write(&format!("{folder}/__pycache__/t.cpython-312.pyc"), "bytes");
        }
        project.write("specs/tests/.pytest_cache/README.md", "cache\n");
    });
}

#[test]
fn a_comment_or_another_format_does_not_start_a_new_run() {
    check_goes_on("a comment", |project| {
        project.write("specs/spec.yaml", format!("# note\n{}\n# end\n", spec()))
    });
    let yaml = "max_retries: 7\nbudget: {tokens: 500_000}\nbaseline: false\nname: 'answer'\ngenerator:\n  price: {output: 15, \
                input: 3.0}\n  model: model-1\n  max_tokens: 2000\n  mode: files\nchecks:\n- {command: [grep, -qx, '42', \
                answer.txt], name: answer}\n- name: held\n  hidden: true\n  command: ['true']\n  files: [./secret]\nworkspace: \
                {protect: [./tests/], copy: [starter]}\ndescription: Write the answer to answer.txt.\n";
    let yaml = yaml.replace("500_000", "500000");
    check_goes_on("YAML in another order", |project| {
        project.write("specs/spec.yaml", &yaml)
    });
}

#[test]
fn an_equal_spec_in_another_file_continues_the_run() {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    let before = project.state_text("run_id");
    project.write("specs/other.json", spec().to_string());
    project.run(&["run", "--spec", "specs/other.json"]).exits(0);
    assert_eq!((project.state_text("run_id"), server.count()), (before, 3));
    assert_eq!(project.state()["spec_file"], "specs/other.json");
}

#[test]
fn a_raised_budget_does_not_start_a_new_run() {
    check_continues_with("/budget", json!({"tokens": 900_000, "usd": 5.0}));
}

#[test]
fn another_timeout_does_not_start_a_new_run() {
    check_continues_with("/checks/0/timeout", json!(90));
    check_continues_with("/on_timeout", json!("patch"));
    check_continues_with("/generator/idle_timeout", json!(99));
}

#[test]
fn stuck_after_and_snapshots_do_not_start_a_new_run() {
    check_continues_with("/stuck_after", json!(9));
    check_continues_with("/snapshots", json!({"keep": 3}));
}

#[test]
fn another_model_does_not_start_a_new_run() {
    let mut changed = spec();
    changed["generator"] = json!({"model": "model-2", "max_tokens": 3000, "temperature": 0.5, "price": {"input": 1, "output": 1}});
    let changed = changed.to_string();
    let (_, server) = check_goes_on("model", |project| {
        project.write("specs/spec.yaml", &changed)
    });
    let requests = server.requests();
    assert_eq!(
        (&requests[1].body["model"], &requests[1].body["max_tokens"]),
        (&json!("model-1"), &json!(2000))
    );
    assert_eq!(
        (&requests[2].body["model"], &requests[2].body["max_tokens"]),
        (&json!("model-2"), &json!(3000))
    );
    assert_eq!(requests[2].body["temperature"], 0.5);
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    project
        .run(&[RUN, &["--model", "model-3"]].concat())
        .exits(0);
    assert_eq!(
        (&server.requests()[2].body["model"], server.count()),
        (&json!("model-3"), 3)
    );
}

#[test]
fn changed_retries_apply_to_the_resumed_run() {
    let (project, server) = paused(
        &with("/max_retries", json!(1)),
        &[reply::answer("40"), reply::answer("42")],
    );
    project.write(
        "specs/spec.yaml",
        with("/max_retries", json!(2)).to_string(),
    );
    project.run(RUN).exits(0);
    assert_eq!(
        (server.count(), &project.state()["max_retries"]),
        (4, &json!(2))
    );
    let (project, server) = paused(&spec(), &[reply::answer("40"), reply::answer("42")]);
    project.write(
        "specs/spec.yaml",
        with("/max_retries", json!(1)).to_string(),
    );
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason().1,
        "retries_exhausted"
    );
    assert_eq!(
        (server.count(), &project.state()["max_retries"]),
        (3, &json!(1))
    );
}

#[test]
fn retries_of_the_command_line_hold_until_changed() {
    let server = Server::start([
        reply::answer("41"),
        reply::status(401),
        reply::status(401),
        reply::answer("42"),
    ]);
    let project = Project::with(
        spec()
            .to_string()
            .replace(r#""workspace""#, r#""sandbox":{},"workspace""#),
        &server,
    )
    .file("specs/tests/t.py", "T\n")
    .file("specs/starter/s.py", "S\n")
    .file("specs/secret/h.py", "H\n");
    project
        .run(&[RUN, &["--max-retries", "9"]].concat())
        .exits(4);
    project.run(RUN).exits(4);
    assert_eq!(project.state()["max_retries"], 9);
    project.write(
        "specs/spec.yaml",
        with("/max_retries", json!(3)).to_string(),
    );
    project.run(RUN).exits(0);
    assert_eq!(
        (&project.state()["max_retries"], server.count()),
        (&json!(3), 4)
    );
}

#[test]
fn a_lowered_budget_applies_to_the_resumed_run() {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    project.write(
        "specs/spec.yaml",
        with("/budget/tokens", json!(2000)).to_string(),
    );
    assert_eq!(
        project.run(RUN_JSON).exits(1).outcome_and_reason(),
        ("FAILED".into(), "budget".into())
    );
    assert_eq!(server.count(), 2);
}

#[test]
fn a_changed_check_timeout_applies_to_the_resumed_run() {
    let mut changed = spec();
    let script =
        "grep -qx 42 answer.txt || { test -e seen && exec sleep 600; touch seen; exit 1; }";
    changed["checks"] = json!([{"name": "answer", "command": ["sh", "-c", script], "timeout": 60}]);
    let (project, server) = paused(&changed, &[reply::answer("42")]);
    changed["checks"][0]["timeout"] = json!(1);
    changed["on_timeout"] = json!("patch");
    project.write("specs/spec.yaml", changed.to_string());
    project.run(RUN).exits(0);
    assert_eq!(server.count(), 3);
}

#[test]
fn a_run_continues_in_a_moved_root() {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    let before = project.state_text("run_id");
    let moved = project.outside("moved");
    std::fs::rename(project.root(), &moved).unwrap();
    std::fs::create_dir(project.root()).unwrap();
    let spec = moved.join("specs/spec.yaml").display().to_string();
    project
        .run(&[
            "run",
            "--spec",
            &spec,
            "--root",
            &moved.display().to_string(),
        ])
        .exits(0);
    let state: Value =
        serde_json::from_slice(&std::fs::read(moved.join("state.json")).unwrap()).unwrap();
    assert_eq!((&state["run_id"], server.count()), (&json!(before), 3));
}

/// Pauses a run, changes something, and expects another run.
fn check_another(what: &str, arguments: &[&str], change: impl FnOnce(&Project)) {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    let before = project.state_text("run_id");
    change(&project);
    let ran = project.run(&[RUN, arguments].concat());
    assert_eq!(ran.code, Some(0), "{what}\n{}", ran.transcript());
    assert_ne!(project.state_text("run_id"), before, "{what}");
    assert_eq!(
        (server.count(), &project.state()["retry_count"]),
        (3, &json!(0)),
        "{what}"
    );
    assert!(ran.stderr.contains(&before), "{what}\n{}", ran.transcript());
}

#[test]
fn a_changed_task_starts_a_new_run() {
    for (pointer, value) in [
        ("/description", json!("Write it to answer.txt.")),
        (
            "/checks/0/command",
            json!(["grep", "-qx", "42", "./answer.txt"]),
        ),
        ("/checks/0/env", json!({"A": "1"})),
        ("/sandbox", json!({"network": true})),
        ("/sandbox", json!({"read": ["/usr"]})),
    ] {
        let changed = with(pointer, value).to_string();
        check_another(pointer, &[], |project| {
            project.write("specs/spec.yaml", &changed)
        });
    }
    for path in [
        "specs/tests/t.py",
        "specs/starter/new.py",
        "specs/secret/h.py",
    ] {
        check_another(path, &[], |project| project.write(path, "changed\n"));
    }
    check_another("--provider", &["--provider", "openai"], |_| ());
}

#[test]
fn the_replaced_run_of_another_spec_is_kept_and_can_be_restored() {
    let (project, server) = paused(&spec(), &[reply::answer("42"), reply::answer("42")]);
    project.write("workspace/NOTES.txt", "mine\n");
    project.write("workspace/.gitkeep", "");
    let before = project.state();
    let first = project.state_text("run_id");
    project.write(
        "specs/other.yaml",
        with("/description", json!("Another one.")).to_string(),
    );
    let ran = project.run(&["run", "specs/other.yaml", "--json"]).exits(0);
    for word in [first.as_str(), "specs/spec.yaml", "is kept", "restore"] {
        assert!(ran.stderr.contains(word), "no {word}\n{}", ran.transcript());
    }
    assert!(
        ran.result()["notes"].to_string().contains(&first),
        "{}",
        ran.transcript()
    );
    assert!(project.exists("workspace/.gitkeep") && !project.exists("workspace/NOTES.txt"));
    // The command of the note brings the run back, and nothing is requested again.
    let command = format!("orchestrator reset && orchestrator restore 2 --run {first}");
    assert!(
        ran.result()["notes"].to_string().contains(&command),
        "{}",
        ran.transcript()
    );
    let line = command.replace("orchestrator ", "\"$1\" ");
    project.run_in_shell(&line, &[]).exits(0);
    assert_eq!(project.workspace("NOTES.txt"), "mine\n");
    assert_eq!(project.workspace("answer.txt"), "41\n");
    assert_eq!(project.state()["run_id"], before["run_id"]);
    assert_eq!(project.state()["state"], before["state"]);
    project.run(RUN).exits(0);
    assert_eq!((project.state_text("run_id"), server.count()), (first, 4));
    assert_eq!(project.state()["retry_count"], 1);
}

#[test]
fn keeping_the_replaced_run_continues_after_a_stop() {
    let (project, server) = paused(&spec(), &[reply::answer("42")]);
    let first = project.state_text("run_id");
    project.write(
        "specs/spec.yaml",
        with("/description", json!("Another one.")).to_string(),
    );
    project.write("workspace/answer.txt", "my own\n");
    std::fs::rename(project.path("logs/objects"), project.path("logs/moved")).unwrap();
    project.write("logs/objects", "in the way\n");
    let before = project.state();
    project.run(RUN).exits(74);
    assert_eq!(
        (project.state(), project.workspace("answer.txt").as_str()),
        (before, "my own\n")
    );
    std::fs::remove_file(project.path("logs/objects")).unwrap();
    std::fs::rename(project.path("logs/moved"), project.path("logs/objects")).unwrap();
    project.run(RUN).exits(0).says(&first);
    assert_eq!(
        (project.workspace("answer.txt").as_str(), server.count()),
        ("42\n", 3)
    );
    project.run(&["restore", "2", "--run", &first]).exits(0);
    assert_eq!(project.workspace("answer.txt"), "my own\n");
}
