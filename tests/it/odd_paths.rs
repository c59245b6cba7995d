//! Odd paths: a deleted current directory, names that a shell or a terminal would misread, a root that moves,
//! a state that is a folder, a disk that is full when the state is corrupt.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use rustix::process::Signal;

use crate::support::project::{BINARY, Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::{Ran, Running};
use crate::support::server::Server;

#[test]
fn a_deleted_current_directory_is_refused() {
    let project = Project::new().spec(answer_spec());
    let line = "mkdir ../gone && cd ../gone && rmdir ../gone && exec \"$@\"";
    for arguments in [
        &["status"][..],
        &["reset"],
        &["status", "--root", "tmp"],
        RUN,
    ] {
        project.run_in_shell(line, arguments).exits(64);
    }
    let spec = project.path("specs/spec.yaml").display().to_string();
    let ran = project
        .run_in_shell(line, &["run", "--json", "--spec", &spec])
        .exits(64);
    assert_eq!(ran.outcome_and_reason(), ("REFUSED".into(), "usage".into()));
    let root = project.root().display().to_string();
    project
        .run_in_shell(line, &["status", "--root", &root])
        .exits(0);
}

#[test]
fn a_bad_command_line_is_one_json_object_in_any_directory() {
    let project = Project::new();
    for arguments in [
        &["--root", ".", "run", "--json", "--bad"][..],
        &["--root=.", "run", "--bad", "--json"],
    ] {
        assert_eq!(
            project.run(arguments).exits(64).outcome_and_reason(),
            ("REFUSED".into(), "usage".into())
        );
    }
}

/// Stops a run in a root of this name at its first request.
fn stopped_in(project: &Project, server: &Server, root: &OsStr, through_environment: bool) -> Ran {
    fs::create_dir(project.root().join(root)).unwrap();
    let mut command = project.command(BINARY, RUN_JSON);
    if through_environment {
        command.env("ORCHESTRATOR_ROOT", root);
    } else {
        command.arg(
            [OsStr::new("--root="), root]
                .into_iter()
                .collect::<OsString>(),
        );
    }
    let running = Running::start(command, project.root());
    server.wait_for(1);
    running.signal(Signal::INT);
    running.wait().exits(130)
}

#[test]
fn the_suggested_command_works_for_any_root() {
    let names: [&[u8]; 6] = [
        b"plain",
        b"it's $(a) \"root\"",
        b"two\nlines",
        b"-dash",
        b"latin \xe9%d\\n",
        b"red\x1b[31m",
    ];
    for (index, name) in names.into_iter().enumerate() {
        let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        let ran = stopped_in(&project, &server, OsStr::from_bytes(name), index == 0);
        let next = ran.result()["next"].as_str().unwrap().to_owned();
        assert!(
            ran.stderr.contains(&format!("next: {next}\n")),
            "{}",
            ran.transcript()
        );
        project
            .run_in_shell(
                &format!("exec \"$1\" {}", next.split_once(' ').unwrap().1),
                &[],
            )
            .exits(0);
        assert_eq!(server.count(), 2, "{next}");
        assert!(!project.exists("state.json"));
    }
}

#[test]
fn file_names_are_printed_without_control_sequences() {
    let project = Project::new().file("\u{1b}[2J/spec.yaml", answer_spec());
    for arguments in [
        &["lint", "--spec", "\u{1b}[2J/spec.yaml"][..],
        &["status", "--root", "\u{1b}[2J"],
    ] {
        let ran = project.run(arguments).exits(0);
        assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.transcript());
    }
}

#[test]
fn reset_removes_a_state_that_is_a_folder() {
    let project = Project::new()
        .file("state.json/precious", "x")
        .file("workspace/made.txt", "");
    project.run(&["reset"]).exits(0);
    assert!(!project.exists("state.json"));
    // Only the state of a build says that the workspace was generated.
    assert!(project.exists("workspace/made.txt"));
    let kept = fs::read_dir(project.root())
        .unwrap()
        .flatten()
        .find(|entry| entry.path().join("precious").exists());
    assert!(kept.is_some(), "what it held is kept");
}

#[test]
fn a_corrupt_state_that_cannot_be_moved_is_kept() {
    let project = Project::new()
        .spec(answer_spec())
        .file("state.json", "torn")
        .file("workspace/made.txt", "");
    // Half a kilobyte is enough for the lock, and too little for a state.
    let line = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    project.run_in_shell(line, RUN_JSON).exits(74);
    assert_eq!(project.read("state.json"), "torn");
    project.run(RUN).exits(3);
    assert!(project.exists("workspace/made.txt"));
}

#[test]
fn a_state_with_very_many_file_names_is_valid() {
    let server = Server::start([reply::status(401), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let mut state = project.state();
    state["attempt_files"] = (0..40_000).map(|index| format!("{index:0>150}")).collect();
    project.write("state.json", state.to_string());
    project.run(RUN).exits(0);
}

#[test]
fn a_replay_log_that_is_not_a_regular_file_is_refused() {
    let project = Project::new().spec(answer_spec());
    project.run_in_shell("mkfifo pipe", &[]).exits(0);
    for path in ["pipe", "specs", "/dev/zero", "none.log"] {
        let ran = project
            .run(&[RUN_JSON, &["--replay", path]].concat())
            .exits(64);
        assert_eq!(
            ran.outcome_and_reason(),
            ("REFUSED".into(), "usage".into()),
            "{path}"
        );
    }
}

#[test]
fn the_second_process_names_the_pid_of_the_first() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server)
        .file(".orchestrator.lock", "pid 4294967 since long ago\n");
    let first = project.start(RUN);
    let second = project.start(RUN);
    server.wait_for(1);
    let ids = [first.id(), second.id()].map(|id| format!("(pid {id} "));
    server.release();
    let said = first.wait().stderr + &second.wait().stderr;
    assert!(ids.iter().any(|id| said.contains(id)), "{said}");
}

#[test]
fn a_check_never_runs_in_a_folder_that_took_the_roots_name() {
    let server = Server::start([reply::answer("42").held()]);
    let project = Project::with(checked_by("touch seen"), &server);
    let running = project.start(RUN_JSON);
    server.wait_for(1);
    fs::rename(project.root(), project.outside("moved")).unwrap();
    fs::create_dir_all(project.path("workspace")).unwrap();
    server.release();
    let ran = running.wait().exits(74);
    assert_eq!(
        ran.outcome_and_reason(),
        ("INTERRUPTED".into(), "io_error".into())
    );
    assert!(!project.exists("workspace/seen"), "{}", ran.transcript());
    let mut command = project.command(BINARY, RUN);
    command.current_dir(project.outside("moved"));
    Running::start(command, project.root()).wait().exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn a_temporary_directory_in_the_workspace_is_not_used() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    fs::create_dir(project.path("workspace")).unwrap();
    let workspace = project.path("workspace").display().to_string();
    let project = project.env("TMPDIR", &workspace);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt"]);
}

#[test]
fn a_long_copy_can_be_stopped() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec() + "workspace: {copy: [many]}\n", &server);
    for index in 0..4000 {
        project.write(&format!("specs/many/{index:04}"), "");
    }
    let mut running = project.start(RUN_JSON);
    running.until("the copying begins", || {
        project.exists("workspace/many/0000")
    });
    running.signal(Signal::INT);
    assert_eq!(
        running.wait().exits(130).outcome_and_reason().0,
        "INTERRUPTED"
    );
    assert!(!project.exists("workspace/many/3999"));
    project.run(RUN).exits(0);
    assert!(project.exists("workspace/many/3999"));
}

#[test]
fn a_foreign_workspace_is_one_that_has_a_file() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    fs::create_dir_all(project.path("workspace/a/b")).unwrap();
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt"]);
    let project = Project::new()
        .spec(answer_spec())
        .file("workspace/a/b/mine.txt", "");
    project.run(&["reset"]).exits(64);
    assert_eq!(project.workspace_names(), ["a/b/mine.txt"]);
}

#[test]
fn a_run_whose_state_cannot_be_saved_is_refused() {
    let project =
        Project::new().spec(answer_spec() + "generator: {provider: template, template: t/}\n");
    let project = project.file("specs/t/0/answer.txt", "42\n");
    let line = "ulimit -f 0; exec \"$@\"";
    let ran = project.run_in_shell(line, RUN_JSON);
    let result = ran.exits(74).result();
    assert_eq!(
        (result["outcome"].as_str(), result["run_id"].is_null()),
        (Some("REFUSED"), true)
    );
    assert!(!project.exists("state.json"));
    assert_eq!(
        fs::read_dir(project.path("logs"))
            .map(Iterator::count)
            .unwrap_or(0),
        0
    );
}

#[test]
fn clamped_values_are_in_the_notes() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec() + "max_retries: 77\n", &server);
    let ran = project.run(RUN_JSON).exits(0);
    assert!(
        ran.result()["notes"].to_string().contains("clamped"),
        "{}",
        ran.transcript()
    );
    assert!(ran.stderr.contains("clamped"), "{}", ran.transcript());
}
