//! The command line: exit codes, `--json` on every path, `status`, `reset`, the root and its lock, refusals.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::project::{BINARY, Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::{Ran, Running};
use crate::support::server::Server;

/// The command is refused with this code and reason, and nothing in the root has changed.
fn check_refused(project: &Project, arguments: &[&str], code: i32, reason: &str) -> Ran {
    let before = project.files();
    let ran = project.run(arguments).exits(code);
    assert_eq!(
        ran.outcome_and_reason(),
        ("REFUSED".into(), reason.into()),
        "{}",
        ran.transcript()
    );
    assert_eq!(project.files(), before, "{}", ran.transcript());
    assert!(!ran.stderr.is_empty());
    ran
}

#[test]
fn a_bad_command_line_is_refused() {
    let project = Project::new().spec(answer_spec());
    for arguments in [
        &["run", "--json"][..],
        &["run", "--json", "--spec"],
        &[
            "run",
            "--json",
            "--spec",
            "specs/spec.yaml",
            "--max-retries",
            "many",
        ],
        &[
            "run",
            "--json",
            "--spec",
            "specs/spec.yaml",
            "--no-such-flag",
        ],
        &[
            "run",
            "--json",
            "--spec",
            "specs/spec.yaml",
            "--provider",
            "nobody",
        ],
        &["run", "--json", "--spec", "specs/spec.yaml", "extra"],
        &[
            "run",
            "--json",
            "--spec",
            "specs/spec.yaml",
            "--root",
            "not/there",
        ],
    ] {
        check_refused(&project, arguments, 64, "usage");
    }
    project.run(&["dance"]).exits(64);
    project.run(&[]).exits(64);
}

#[test]
fn help_and_version_go_to_stdout() {
    let project = Project::new();
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["status", "--help"],
        &["runs", "--help"],
        &["attempts", "--help"],
        &["diff", "--help"],
        &["restore", "--help"],
        &["reset", "--help"],
        &["lint", "--help"],
        &["diagram", "--help"],
        &["serve", "--help"],
        &["init", "--help"],
        &["doctor", "--help"],
    ] {
        let ran = project.run(arguments).exits(0);
        assert!(ran.stdout.contains("--root"), "{}", ran.transcript());
    }
    assert!(
        project
            .run(&["--version"])
            .exits(0)
            .stdout
            .contains(env!("CARGO_PKG_VERSION"))
    );
}

/// The spec is refused, and the message names the file and this.
fn check_spec(text: &str, named: &str) {
    let project = Project::new().spec(text);
    let ran = check_refused(&project, RUN_JSON, 65, "spec_invalid");
    assert!(
        ran.stderr.contains("spec.yaml") && ran.stderr.contains(named),
        "{named:?}\n{}",
        ran.transcript()
    );
}

#[test]
fn an_invalid_spec_is_refused() {
    check_spec("name: x\ndescription: y\ncolour: red\n", "colour");
    check_spec("name: x\n", "description");
    check_spec("name: x\ndescription: y\nchecks: []\n", "checks");
    check_spec("name: x\nname: y\ndescription: z\n", "2");
    check_spec("name: [x\n", "spec.yaml");
    check_spec(
        "name: x\ndescription: y\nworkspace: {copy: [missing/]}\n",
        "missing",
    );
    check_spec(
        "name: x\ndescription: y\nchecks: [{name: a, command: []}]\n",
        "command",
    );
    check_spec(
        "name: x\ndescription: y\nchecks: [{name: a, command: [a], files: [b]}]\n",
        "hidden",
    );
    check_spec(
        "name: x\ndescription: y\nmax_retries: \"5\"\n",
        "max_retries",
    );
    check_spec("name: x\ndescription: y\nmax_retries: 5.5\n", "max_retries");
    check_spec(
        "name: x\ndescription: y\ngenerator: {format_retries: 4}\n",
        "format_retries",
    );
    check_spec(
        "name: x\ndescription: y\nworkspace: {copy: [{from: spec.yaml, to: ../evil}]}\n",
        "..",
    );
}

#[test]
fn a_mistake_is_reported_with_line_and_column() {
    let project =
        Project::new().spec("name: x\ndescription: y\nchecks:\n  - name: a\n    comand: [true]\n");
    let ran = check_refused(&project, RUN_JSON, 65, "spec_invalid");
    assert!(ran.stderr.contains(":5:5"), "{}", ran.transcript());
}

#[test]
fn an_unreadable_spec_is_refused_before_any_change() {
    let project = Project::new()
        .file("specs/binary.yaml", b"name: \xff\xfe\n")
        .file("specs/folder/x", "");
    for path in [
        "specs/none.yaml",
        "specs/binary.yaml",
        "specs/folder",
        "/dev/zero",
    ] {
        check_refused(
            &project,
            &["run", "--json", "--spec", path],
            65,
            "spec_invalid",
        );
    }
    let large = Project::new().file(
        "specs/spec.yaml",
        "description: ".to_owned() + &"x".repeat(60_000_000),
    );
    large.run(RUN).exits(65);
}

#[test]
fn a_spec_may_be_json_or_markdown() {
    let server = Server::answering(|_| reply::answer("42"));
    let front = "---\nname: front\nchecks: [{name: a, command: [grep, -qx, '42', answer.txt]}]\n---\nBuild the-thing.\n";
    let json = r#"{"name": "j", "description": "Build the-thing.", "checks": [{"name": "a", "command": ["true"]}]}"#;
    let project = Project::new()
        .model(&server)
        .file("specs/front.md", front)
        .file("specs/j.json", json);
    for path in ["specs/front.md", "specs/j.json"] {
        project.run(&["run", "--spec", path]).exits(0);
        assert_eq!(project.state()["spec_file"], path);
    }
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.text().contains("Build the-thing."))
    );
}

#[test]
fn the_root_option_selects_the_root() {
    let server = Server::answering(|_| reply::answer("42"));
    let project = Project::with(answer_spec(), &server)
        .file("other/keep", "")
        .file("third/keep", "");
    project.run(&[RUN, &["--root", "other"]].concat()).exits(0);
    assert!(project.exists("other/state.json") && !project.exists("state.json"));
    let project = project.env("ORCHESTRATOR_ROOT", "third");
    project.run(RUN).exits(0);
    assert!(project.exists("third/state.json") && !project.exists("state.json"));
    let ran = project
        .run(&["status", "--json", "--root", "other"])
        .exits(0);
    let other: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        other,
        serde_json::from_str::<Value>(&project.read("other/state.json")).unwrap()
    );
}

#[test]
fn status_prints_the_state_and_changes_nothing() {
    let project = Project::new();
    assert_eq!(
        project.run(&["status", "--json"]).exits(0).stdout.trim(),
        "null"
    );
    assert!(!project.run(&["status"]).exits(0).stdout.trim().is_empty());
    let server = Server::start([reply::answer("41"), reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let before = project.files();
    let shown: Value =
        serde_json::from_str(&project.run(&["status", "--json"]).exits(0).stdout).unwrap();
    assert_eq!(shown, project.state());
    let readable = project.run(&["status"]).exits(0).stdout;
    for word in ["PATCHING", "specs/spec.yaml", &project.state_text("run_id")] {
        assert!(readable.contains(word), "no {word} in\n{readable}");
    }
    assert_eq!(project.files(), before);
}

#[test]
fn a_corrupt_state_is_kept_and_exits_3_until_reset() {
    let sound = || {
        let server = Server::start([reply::status(401)]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(4);
        project
    };
    let corruptions: [fn(String) -> String; 8] = [
        |_| String::new(),
        |text| text[..text.len() / 2].to_owned(),
        |text| text + "\0\0\0\0",
        |text| text.replace("GENERATING", "DANCING"),
        |text| text.replacen("\"version\":", "\"colour\":1,\"version\":", 1),
        |text| text.replace("\"retry_count\":", "\"retry_count\":\"x\",\"r\":"),
        |_| "[]".into(),
        |text| text.replace("\"run_id\":\"", "\"run_id\":\"../../"),
    ];
    for corrupt in corruptions {
        let project = sound();
        let bad = corrupt(compact(&project.read("state.json")));
        project.write("state.json", &bad);
        project.run(&["status"]).exits(3);
        assert_eq!(project.read("state.json"), bad, "status changes nothing");
        for _ in 0..2 {
            let ran = project.run(RUN_JSON).exits(3);
            assert_eq!(
                ran.outcome_and_reason(),
                ("FAILED".into(), "state_corrupt".into()),
                "{bad}"
            );
        }
        let kept = fs::read_dir(project.root()).unwrap().flatten();
        let kept: Vec<_> = kept
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("state.json.corrupt-")
            })
            .collect();
        assert_eq!(kept.len(), 1, "{bad}");
        assert_eq!(fs::read_to_string(kept[0].path()).unwrap(), bad);
        project.write("specs/spec.yaml", answer_spec() + "max_retries: 3\n");
        project.run(RUN).exits(3);
        project.run(&["reset"]).exits(0);
        assert!(!project.exists("state.json"));
    }
}

/// The same JSON without spaces.
fn compact(text: &str) -> String {
    serde_json::from_str::<Value>(text).unwrap().to_string()
}

#[test]
fn reset_empties_the_workspace_and_nothing_else() {
    let server = Server::start([reply::files(&[("a/b/c", "x\n"), ("answer.txt", "42\n")])]);
    let project = Project::with(answer_spec(), &server).file("workspace/.gitkeep", "");
    project.run(RUN).exits(0);
    let log = project.log_path();
    project.run(&["reset"]).exits(0);
    assert!(
        !project.exists("state.json") && project.exists(&log) && project.exists("specs/spec.yaml")
    );
    assert_eq!(project.workspace_names(), [".gitkeep"]);
    assert_eq!(fs::read_dir(project.path("workspace")).unwrap().count(), 1);
    project.run(&["reset"]).exits(0);
    assert_eq!(
        project.run(&["status", "--json"]).exits(0).stdout.trim(),
        "null"
    );
}

#[test]
fn a_foreign_workspace_is_left_alone() {
    let server = Server::start([reply::answer("42")]);
    let project =
        Project::with(answer_spec(), &server).file("workspace/thesis.txt", "years of work\n");
    check_refused(&project, RUN_JSON, 64, "usage");
    check_refused(
        &project,
        &[RUN_JSON, &["--no-resume"]].concat(),
        64,
        "usage",
    );
    project.run(&["reset"]).exits(64);
    assert_eq!(project.workspace("thesis.txt"), "years of work\n");
    assert_eq!(server.count(), 0);
}

#[test]
fn a_root_is_used_by_one_process_at_a_time() {
    let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN);
    server.wait_for(1);
    let ran = check_refused(&project, RUN_JSON, 75, "root_locked");
    assert!(
        ran.stderr.contains(&running.id().to_string()),
        "{}",
        ran.transcript()
    );
    assert!(ran.result()["next"].is_string());
    project.run(&["reset"]).exits(75);
    assert!(
        project
            .run(&["status"])
            .exits(0)
            .stdout
            .contains("GENERATING")
    );
    running.signal(Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
}

#[test]
fn a_linked_workspace_or_logs_folder_is_refused() {
    for name in ["workspace", "logs"] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        fs::create_dir(project.outside("precious")).unwrap();
        fs::write(project.outside("precious/thesis.txt"), "x").unwrap();
        symlink(project.outside("precious"), project.path(name)).unwrap();
        check_refused(&project, RUN_JSON, 2, "safety_violation");
        assert_eq!(server.count(), 0);
        let reset = project.run(&["reset"]);
        assert!(
            name == "logs" || reset.code == Some(2),
            "{}",
            reset.transcript()
        );
        assert_eq!(
            fs::read_dir(project.outside("precious")).unwrap().count(),
            1
        );
    }
}

#[test]
fn a_file_where_a_folder_belongs_is_refused() {
    for name in ["workspace", "logs"] {
        let project = Project::new().spec(answer_spec()).file(name, "mine\n");
        let ran = project.run(RUN_JSON);
        assert!(
            matches!(ran.code, Some(2 | 64 | 74)),
            "{}",
            ran.transcript()
        );
        assert_eq!(
            (
                ran.outcome_and_reason().0.as_str(),
                project.read(name).as_str()
            ),
            ("REFUSED", "mine\n")
        );
    }
}

#[test]
fn a_state_that_is_not_a_regular_file_is_corrupt() {
    for make in [
        "mkfifo state.json",
        "mkdir state.json",
        "ln -s specs/spec.yaml state.json",
    ] {
        let project = Project::new().spec(answer_spec());
        project.run_in_shell(make, &[]).exits(0);
        project.run(RUN_JSON).exits(3);
        assert_eq!(project.read("specs/spec.yaml"), answer_spec());
    }
}

#[test]
fn a_state_of_a_workflow_is_left_alone() {
    let server = Server::start([reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let state = project
        .read("state.json")
        .replace("\"build\"", "\"workflow\"");
    project.write("state.json", &state);
    check_refused(&project, RUN_JSON, 64, "usage");
}

#[test]
fn a_root_that_cannot_be_written_is_an_io_error() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    // A file size limit of 0 also restricts root, which permissions do not.
    let ran = project
        .run_in_shell("trap '' XFSZ; ulimit -f 0; exec \"$@\"", RUN_JSON)
        .exits(74);
    assert_eq!(ran.outcome_and_reason().1, "io_error");
    assert!(
        ran.stderr.contains(&project.root().display().to_string()),
        "{}",
        ran.transcript()
    );
    assert_eq!(server.count(), 0);
    project.run(RUN).exits(0);
}

#[test]
fn every_outcome_is_one_json_object() {
    let ends: [(reply::Reply, &str, i32, &str, &str); 5] = [
        (reply::answer("42"), "true", 0, "SUCCESS", "tests_passed"),
        (reply::text("words"), "true", 1, "FAILED", "no_output"),
        (
            reply::files(&[("../x", "")]),
            "true",
            2,
            "FAILED",
            "safety_violation",
        ),
        (
            reply::status(403),
            "true",
            4,
            "PAUSED",
            "provider_unauthorized",
        ),
        (
            reply::answer("42"),
            "kill -9 $$",
            1,
            "FAILED",
            "patch_error",
        ),
    ];
    for (answer, script, code, outcome, reason) in ends {
        let server = Server::start([answer, reply::status(404)]);
        let project = Project::with(
            checked_by(script) + "generator: {format_retries: 0}\n",
            &server,
        );
        let ran = project.run(RUN_JSON).exits(code);
        assert_eq!(ran.outcome_and_reason(), (outcome.into(), reason.into()));
        let result = ran.result();
        assert_eq!(result["run_id"], project.state()["run_id"]);
        assert_eq!(result["usage"], project.state()["usage"]);
        let next = result["next"].as_str().unwrap_or_default();
        assert_eq!(!next.is_empty(), code == 4 || code == 1, "{result}");
        assert_eq!(next.contains("--continue"), code == 1, "{result}");
        assert!(
            result["notes"].is_array() && result["message"].is_string(),
            "{result}"
        );
    }
}

#[test]
fn paths_are_relative_to_the_current_directory() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let mut command = project.command(BINARY, &["run", "--spec", "spec.yaml", "--root", ".."]);
    command.current_dir(project.path("specs"));
    Running::start(command, project.root()).wait().exits(0);
    assert!(project.exists("state.json") && !project.exists("specs/state.json"));
}

#[test]
fn resume_is_the_default() {
    let server = Server::start([reply::status(401), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let run = project.state_text("run_id");
    project.run(&[RUN, &["--resume"]].concat()).exits(0);
    assert_eq!(project.state_text("run_id"), run);
}

#[test]
fn no_variable_disables_the_sandbox_or_redirects_the_model() {
    let decoy = Server::answering(|_| reply::answer("42"));
    let server = Server::start([
        reply::files(&[
            (".env", &format!("ANTHROPIC_BASE_URL={}\n", decoy.url())),
            ("answer.txt", "41\n"),
        ]),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server)
        .file(".env", format!("ANTHROPIC_BASE_URL={}\n", decoy.url()));
    project.run(RUN).exits(0);
    assert_eq!((decoy.count(), server.count()), (0, 2));
}
