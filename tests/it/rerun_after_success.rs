//! The same command after SUCCESS: it is a success only if the workspace is the tested one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

/// A project whose run has succeeded with three files.
fn succeeded() -> (Project, Server) {
    let first = reply::files(&[
        ("answer.txt", "42\n"),
        ("pkg/util.py", "x = 1\n"),
        ("run.sh", "#!/bin/sh\n"),
    ]);
    let server = Server::start([first, reply::answer("42")]);
    let project = Project::with(answer_spec(), &server).file("workspace/.gitkeep", "");
    project.run(RUN).exits(0);
    (project, server)
}

fn remove(project: &Project, path: &str) {
    let path = project.path(path);
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap()
    } else {
        fs::remove_file(path).unwrap()
    }
}

/// Changes the workspace and expects that this is reported and nothing else happens.
fn check_reported(named: &str, change: impl FnOnce(&Project)) {
    let (project, server) = succeeded();
    change(&project);
    let before = project.files();
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "workspace_changed".into()),
        "{}",
        ran.transcript()
    );
    let result = ran.result();
    let message = result["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(&format!("workspace changed since: {named}")),
        "{named}\n{}",
        ran.transcript()
    );
    assert!(
        message.contains("--no-resume") && ran.stderr.contains(named),
        "{named}\n{}",
        ran.transcript()
    );
    assert_eq!(
        (&result["next"], &result["run_id"]),
        (
            &json!("orchestrator run --spec specs/spec.yaml --continue --json"),
            &project.state()["run_id"]
        )
    );
    assert_eq!(
        (project.state_text("state").as_str(), server.count()),
        ("SUCCESS", 1)
    );
    assert_eq!(project.files(), before, "{named}: something was written");
}

#[test]
fn a_changed_workspace_is_not_reported_as_success() {
    check_reported("answer.txt;", |project| {
        project.write("workspace/answer.txt", "41\n")
    });
    check_reported("new.py (new);", |project| {
        project.write("workspace/new.py", "x\n")
    });
    check_reported("pkg/util.py (deleted);", |project| {
        remove(project, "workspace/pkg")
    });
    check_reported(
        "answer.txt (deleted), pkg/util.py (deleted), run.sh (deleted);",
        |project| remove(project, "workspace"),
    );
    check_reported("run.sh;", |project| {
        fs::set_permissions(
            project.path("workspace/run.sh"),
            fs::Permissions::from_mode(0o644),
        )
        .unwrap();
    });
    check_reported("answer.txt;", |project| {
        project.write("workspace/pkg/util.py", "x = 1\n");
        remove(project, "workspace/answer.txt");
        symlink("run.sh", project.path("workspace/answer.txt")).unwrap();
    });
    check_reported("f00 (new), f01 (new)", |project| {
        (0..50).for_each(|n| project.write(&format!("workspace/f{n:02}"), "x"));
    });
}

#[test]
fn an_edit_that_keeps_size_and_time_is_detected() {
    check_reported("answer.txt;", |project| {
        project
            .run_in_shell(
                "cd workspace && cp -p answer.txt ../t && echo 41 >answer.txt && touch -r ../t answer.txt && rm ../t",
                &[],
            )
            .exits(0);
    });
}

#[test]
fn many_changes_are_listed_in_short() {
    check_reported("f00 (new), ", |project| {
        (0..50).for_each(|n| project.write(&format!("workspace/f{n:02}"), "x"));
        assert!(
            project.run(RUN_JSON).result()["message"]
                .as_str()
                .unwrap()
                .contains("f19 (new) and 30 more")
        );
    });
}

#[test]
fn unchanged_contents_are_still_a_success() {
    let (project, server) = succeeded();
    for path in [
        "__pycache__/answer.cpython-312.pyc",
        "pkg/util.pyc",
        ".pytest_cache/v/x",
        ".mypy_cache/x",
        "node_modules/left-pad/index.js",
        "target/debug/x",
        ".git/HEAD",
        ".venv/pyvenv.cfg",
        "answer.txt~",
        ".DS_Store",
        ".gitkeep",
    ] {
        project.write(&format!("workspace/{path}"), "x");
    }
    // Written again, touched, with another mode, with an additional empty folder.
    project.write("workspace/pkg/util.py", "x = 1\n");
    project
        .run_in_shell(
            "touch workspace/answer.txt; chmod 600 workspace/answer.txt; mkdir workspace/empty",
            &[],
        )
        .exits(0);
    let ran = project.run(RUN_JSON).exits(0);
    assert_eq!(
        ran.outcome_and_reason(),
        ("SUCCESS".into(), "tests_passed".into())
    );
    // A copied root has other inodes and times, but the same contents.
    let copy = project.outside("copy").display().to_string();
    project
        .run_in_shell(&format!("cp -r . {copy}"), &[])
        .exits(0);
    project.run(&[RUN, &["--root", &copy]].concat()).exits(0);
    project.write("workspace/answer.txt", "41\n");
    project.run(RUN).exits(1);
    project.write("workspace/answer.txt", "42\n");
    project.run(RUN).exits(0);
    assert_eq!(server.count(), 1);
}

#[test]
fn files_left_by_a_check_belong_to_the_tested_workspace() {
    let server = Server::start([reply::answer("42")]);
    let spec = checked_by("date +%N >report.txt; grep -qx 42 answer.txt")
        + "  - {name: held, command: [sh, -c, 'echo x >trace'], hidden: true}\n";
    let project = Project::with(spec, &server);
    project.run(RUN).exits(0);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt", "report.txt"]);
    project.write("workspace/report.txt", "mine\n");
    project.run(RUN).exits(1);
    assert_eq!(server.count(), 1);
}

#[test]
fn no_resume_starts_a_new_run() {
    let (project, server) = succeeded();
    let before = project.state_text("run_id");
    project.write("workspace/mine.py", "mine\n");
    project.run(RUN).exits(1);
    project.run(&[RUN, &["--no-resume"]].concat()).exits(0);
    assert_eq!(
        (project.workspace_names(), server.count()),
        (vec![".gitkeep".to_owned(), "answer.txt".to_owned()], 2)
    );
    assert_ne!(project.state_text("run_id"), before);
    project.run(RUN).exits(0);
}

#[test]
fn a_success_of_an_older_version_is_reported_as_before() {
    let (project, _server) = succeeded();
    let mut lines: Vec<Value> = project
        .log()
        .into_iter()
        .filter(|line| line["event"] != "WorkspaceTested")
        .collect();
    for (index, line) in lines.iter_mut().enumerate() {
        line["seq"] = (index + 1).into();
    }
    project.write(
        &project.log_path(),
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    remove(&project, "workspace/answer.txt");
    project.run(RUN).exits(0);
    fs::remove_dir_all(project.path("logs")).unwrap();
    project.run(RUN).exits(0);
}
