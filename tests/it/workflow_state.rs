//! `state.json` of a workflow and what reads it: its fields, `status`, `reset`, the lock, and a file that is corrupt.

use std::fs;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::project::Project;
use crate::support::reply;
use crate::support::running::Running;
use crate::support::server::Server;
use crate::support::workflow::{FLOW, FLOW_JSON, outcome, workflow};

/// The names of an object's fields, sorted.
fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn the_state_has_exactly_its_fields() {
    let server = Server::start([
        reply::text("<call return=\"R\">S</call>"),
        reply::text("never sent").held(),
    ]);
    let project = workflow(&[
        ("START.md", "One, {{input}}."),
        (
            "S.sh",
            "mkdir sub; echo '<fork next=\"M\" cd=\"sub\" x=\"1\" input=\"for it\">W</fork>'",
        ),
        ("W.sh", "exit 3"),
        ("M.md", "Two."),
        ("R.md", "Three."),
    ])
    .model(&server);
    let mut running = project.start(&[FLOW, &["--input", "it", "--jobs", "3"]].concat());
    server.wait_for(2);
    running.until("the worker has failed", || {
        project.agents() == ["main running", "main_w1 failed"]
    });
    let state = project.state();
    assert_eq!(
        names(&state),
        [
            "agents",
            "created_at",
            "fork_counters",
            "input",
            "kind",
            "options",
            "reason",
            "results",
            "run_id",
            "seq",
            "state",
            "state_hashes",
            "updated_at",
            "usage",
            "version",
            "workflow"
        ]
    );
    for (field, expected) in [
        ("version", json!(1)),
        ("kind", json!("workflow")),
        ("workflow", json!("flow/START.md")),
        ("input", json!("it")),
        ("state", json!("RUNNING")),
        ("reason", Value::Null),
        ("fork_counters", json!({"main": 1})),
        ("options", json!({"jobs": 3})),
        ("results", json!({})),
    ] {
        assert_eq!(state[field], expected, "{field}");
    }
    let usage = [
        "cost_usd",
        "input_tokens",
        "llm_calls",
        "lost_usd",
        "output_tokens",
    ];
    assert_eq!(names(&state["usage"]), usage);
    assert_eq!(state["usage"]["llm_calls"], 1);
    assert_eq!(state["usage"]["input_tokens"], 100);
    let hash = |name: &str| {
        let digest = Sha256::digest(fs::read(project.path("flow").join(name)).unwrap());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    };
    let hashes = ["M.md", "R.md", "S.sh", "START.md", "W.sh"];
    assert_eq!(names(&state["state_hashes"]), hashes);
    for name in hashes {
        assert_eq!(state["state_hashes"][name], hash(name));
    }
    let main = project.agent("main");
    let session = main["stack"][0]["session_id"].clone();
    assert!(session.is_string(), "{main}");
    assert_eq!(
        main,
        json!({
            "id": "main", "current_state": "M.md", "session_id": null, "branch_from": session, "cwd": ".",
            "stack": [{"return": "R.md", "session_id": session, "branch_from": null, "cwd": "."}],
            "pending_input": null, "vars": {}, "status": "running", "waits_for": [], "retry_count": 0, "error": null
        })
    );
    assert_eq!(
        project.agent("main_w1"),
        json!({
            "id": "main_w1", "current_state": "W.sh", "session_id": null, "branch_from": null, "cwd": "sub",
            "stack": [], "pending_input": "for it", "vars": {"x": "1"}, "status": "failed", "waits_for": [],
            "retry_count": 0, "error": "W.sh: exit code 3"
        })
    );
    drop(running);
    project.nothing_left();
}

#[test]
fn at_the_end_agents_are_gone_and_the_log_is_taken_into_account() {
    let project = workflow(&[
        ("START.sh", "echo '<fork next=\"B\">W</fork>'"),
        ("W.sh", "echo '<result>w</result>'"),
        ("B.sh", "echo '<result>b</result>'"),
    ]);
    project.succeed(&[]);
    let state = project.state();
    assert_eq!(state["state"], "SUCCESS");
    assert_eq!(state["reason"], "completed");
    assert_eq!(state["agents"], json!([]));
    assert_eq!(state["results"], json!({"main": "b", "main_w1": "w"}));
    assert_eq!(state["seq"], project.log().len());
    let time =
        |field: &str| chrono::DateTime::parse_from_rfc3339(state[field].as_str().unwrap()).unwrap();
    assert!(time("created_at") <= time("updated_at"));
}

#[test]
fn a_workflow_outside_of_the_root_is_named_absolutely() {
    let project = Project::new();
    let flow = project.outside("flow");
    fs::create_dir(&flow).unwrap();
    fs::write(flow.join("START.sh"), "echo '<result>x</result>'").unwrap();
    project.run(&["run", "--workflow", "../flow"]).exits(0);
    let expected = flow.canonicalize().unwrap().join("START.sh");
    assert_eq!(project.state_text("workflow"), expected.to_string_lossy());
    let ran = project
        .run(&["run", "--workflow", &flow.to_string_lossy()])
        .exits(0);
    assert!(ran.stderr.contains("this run is over"), "{}", ran.stderr);
}

#[test]
fn the_result_has_the_fields_of_every_run_and_the_payload() {
    let server = Server::start([reply::text("<result>two\nlines \u{1b}[31m</result>")]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let result = project.run(FLOW_JSON).exits(0).result();
    assert_eq!(result["result"], "two\nlines \u{1b}[31m");
    assert_eq!(result["outcome"], "SUCCESS");
    assert_eq!(result["reason"], "completed");
    assert_eq!(result["run_id"], project.state()["run_id"]);
    assert_eq!(result["usage"], project.state()["usage"]);
    assert_eq!(result["next"], Value::Null);
    // A pipe gets the payload in full, and one newline.
    let ran = project.run(FLOW).exits(0);
    assert_eq!(ran.stdout, "two\nlines \u{1b}[31m\n");
}

#[test]
fn status_shows_the_agents_and_their_results() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">ASK</fork><fork>BAD</fork><fork>GOOD</fork>'",
        ),
        ("ASK.sh", "echo '<ask next=\"END\">Which one?</ask>'"),
        ("BAD.sh", "echo why >&2; exit 1"),
        ("GOOD.sh", "echo '<result>good</result>'"),
        ("END.sh", "echo '<result></result>'"),
    ]);
    project.fail(&["--input", "it"]);
    let shown = project.run(&["status"]).exits(0).stdout;
    for line in [
        "state        FAILED\n",
        "reason       agent_failed\n",
        "workflow     flow/START.sh\n",
        "folder       workspace\n",
        "input        it\n",
        "agent        main: waiting for workers, then END.sh\n               waits for: main_ask1, main_bad2\n",
        "agent        main_ask1: asking, then END.sh\n               question: Which one?\n",
        "               answer it with: --answer main_ask1=TEXT\n",
        "agent        main_bad2: failed at BAD.sh\n               error: BAD.sh: exit code 1: why\n",
        "result       main_good3: good\n",
    ] {
        assert!(shown.contains(line), "no {line:?} in\n{shown}");
    }
    let as_json = project.run(&["status", "--json"]).exits(0).stdout;
    assert_eq!(
        serde_json::from_str::<Value>(&as_json).unwrap(),
        project.state()
    );
    let before = project.files();
    project.run(&["status"]).exits(0);
    assert_eq!(project.files(), before);
}

#[test]
fn reset_deletes_the_state_alone() {
    let script = "echo made > made; mkdir deep; echo x > deep/file; echo '<result>x</result>'";
    let project = workflow(&[("START.sh", script)]).file("workspace/mine", "mine");
    project.succeed(&[]);
    let (log, mut before) = (project.log_path(), project.files());
    project.run(&["reset"]).exits(0);
    let state = before.remove("state.json").unwrap();
    // It is kept beside the log, for `status`.
    before.insert(log.replace(".log", "/state.json"), state);
    assert!(project.files() == before);
    assert!(project.exists(&log) && project.workspace("deep/file") == "x\n");
    // Of a run that failed, and where the file cannot be read.
    project.write("flow/START.sh", "exit 1");
    project.fail(&[]);
    project.run(&["reset"]).exits(0);
    project.write("state.json", "{");
    project.run(&["reset"]).exits(0);
    assert!(!project.exists("state.json"));
    assert_eq!(project.workspace_names(), ["deep/file", "made", "mine"]);
}

/// A workflow that waits at a gate in its folder, and its running process.
fn waiting() -> (Project, Running) {
    let project = workflow(&[(
        "START.sh",
        "mkfifo gate; read line < gate; echo '<result>x</result>'",
    )]);
    let mut running = project.start(FLOW);
    let gate = project.path("workspace/gate");
    running.until("the script waits", || gate.exists());
    (project, running)
}

#[test]
fn a_root_in_use_is_refused() {
    let (project, running) = waiting();
    let before = project.state();
    for command in [FLOW, &["reset"]] {
        project.run(command).exits(75);
    }
    let ran = project.run(FLOW_JSON).exits(75);
    assert_eq!(ran.outcome_and_reason().0, "REFUSED");
    let shown = project.run(&["status"]).exits(0).stdout;
    assert!(
        shown.contains("agent        main: running, at START.sh\n"),
        "{shown}"
    );
    assert_eq!(project.state(), before);
    fs::write(project.path("workspace/gate"), "\n").unwrap();
    assert_eq!(running.wait().exits(0).stdout, "x\n");
}

#[test]
fn a_corrupt_state_is_kept_beside_and_not_resumed() {
    let states = [(
        "START.sh",
        "test -e go || exit 1; echo '<result>x</result>'",
    )];
    let project = workflow(&states);
    project.fail(&[]);
    let good = project.state();
    let with = |field: &str, value: Value| {
        let mut state = good.clone();
        state[field] = value;
        state.to_string()
    };
    let without = |field: &str| {
        let mut state = good.clone();
        state.as_object_mut().unwrap().remove(field);
        state.to_string()
    };
    let twice = json!([good["agents"][0], good["agents"][0]]);
    for text in [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "\0".repeat(100),
        with("state", json!("DONE")),
        with("run_id", json!("../../etc")),
        with("unknown", json!(1)),
        with("agents", json!({})),
        with("agents", twice),
        with("created_at", json!("yesterday")),
        without("seq"),
        without("input"),
    ] {
        project.write("state.json", &text);
        let ran = project.run(FLOW_JSON).exits(3);
        assert_eq!(outcome(&ran), "FAILED state_corrupt", "{text}");
        assert_eq!(ran.result()["next"], Value::Null);
        assert_eq!(project.state_text("state"), "FAILED");
        assert_eq!(project.state_text("reason"), "state_corrupt");
        let kept = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().unwrap();
            let is_kept = name.starts_with("state.json.corrupt-");
            is_kept.then(|| fs::read_to_string(entry.path()).unwrap())
        };
        let files = fs::read_dir(project.root()).unwrap().flatten();
        let copies: Vec<String> = files.filter_map(kept).collect();
        assert!(copies.contains(&text), "{copies:?}");
    }
    // It stays so until it is thrown away.
    project.write("workspace/go", "");
    project.run(FLOW).exits(3);
    project.run(&["status"]).exits(0);
    assert_eq!(project.succeed(&["--no-resume"]), "x");
}

#[test]
fn a_corrupt_state_is_thrown_away_on_request() {
    let project = workflow(&[("START.sh", "echo '<result>x</result>'")]).file("state.json", "{");
    project.run(&["status"]).exits(3);
    let ran = project.run(&[FLOW, &["--no-resume"]].concat()).exits(0);
    assert!(
        ran.stderr.contains("[run] state.json was corrupt"),
        "{}",
        ran.stderr
    );
}

#[test]
fn flags_of_specs_are_refused_and_those_of_workflows_need_one() {
    let project = workflow(&[("START.sh", "echo '<result>x</result>'")]).spec("name: x\n");
    for flag in [
        &["--max-retries", "2"][..],
        &["--continue"],
        &["--keep-best"],
        &["--provider", "template"],
    ] {
        project.run(&[FLOW, flag].concat()).exits(64);
    }
    for flag in [
        &["--input", "x"][..],
        &["--jobs", "2"],
        &["--answer", "x"],
        &["--project-dir", "."],
        &["--price", "1,2"],
        &["--timeout", "1"],
        &["--network"],
        &["--read", "/"],
        &["--keep-env", "X"],
    ] {
        project
            .run(&[&["run", "--spec", "specs/spec.yaml"], flag].concat())
            .exits(64);
    }
    for wrong in [
        &["--jobs", "0"][..],
        &["--timeout", "-1"],
        &["--price", "x"],
        &["--budget", "-1"],
    ] {
        project.run(&[FLOW, wrong].concat()).exits(64);
    }
    assert!(!project.exists("state.json"));
}
