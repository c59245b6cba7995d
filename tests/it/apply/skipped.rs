//! What is never carried; each is named with its reason.

use std::fs;
use std::os::unix::fs::symlink;

use crate::apply::{changed, expected, taken_in, user_files};
use crate::support::project::{Project, RUN};

/// Asserts that these lines say what is not carried, and nothing of it is.
fn skips(project: &Project, expected: &[&str]) {
    let before = user_files(project);
    let ran = project.run(&["apply"]).exits(0);
    let found: Vec<&str> = ran
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("not carried: "))
        .collect();
    assert_eq!(found, expected, "{}", ran.transcript());
    assert_eq!(user_files(project), before);
}

#[test]
fn protected_files_are_not_carried() {
    let project = taken_in();
    project.write("project/tests/t.py", "MINE\n");
    skips(&project, &[]);
    project.write("workspace/tests/t.py", "changed\n");
    project.write("workspace/tests/new.py", "new\n");
    skips(
        &project,
        &[
            "tests/new.py: it is protected",
            "tests/t.py: it is protected",
        ],
    );
}

#[test]
fn new_files_outside_every_copied_folder_are_not_carried() {
    let spec = "name: a\ndescription: b\nworkspace: {copy: [../project/]}\nchecks: [{command: [sh, -c, 'true']}]\n\
                generator: {provider: template, template: template}\n";
    let project = Project::new()
        .spec(spec)
        .file("specs/template/0/project/a", "a\n")
        .file("project/a", "a\n");
    project.run(RUN).exits(0);
    project.write("workspace/other/b", "b\n");
    skips(
        &project,
        &["other/b: it is outside every folder that `copy` names"],
    );
    assert!(!project.exists("other"));
}

#[test]
fn nothing_in_git_is_carried() {
    let project = taken_in();
    project.write("project/.git/config", "mine\n");
    project.write(
        "workspace/.git/hooks/pre-commit",
        "#!/bin/sh\ntouch marker\n",
    );
    project.write("workspace/.git/config", "[core]\n");
    project.write("workspace/folder/.GIT/config", "[core]\n");
    symlink(".git/hooks", project.path("workspace/hooks")).unwrap();
    skips(
        &project,
        &[
            ".git: .git is never written",
            "folder/.GIT: .git is never written",
            "hooks: the link leads out of the copied folder, or into .git",
        ],
    );
}

#[test]
fn what_a_copy_would_leave_out_is_not_carried() {
    let project = changed();
    project.write("workspace/x.log", "made by a check\n");
    project.write("workspace/build/out/a.o", "o\n");
    project.write("workspace/build/b.o", "o\n");
    project.write("workspace/.env", "TOKEN=1\n");
    project.write("workspace/new/id_rsa", "key\n");
    project.write("workspace/new/.env.example", "TOKEN=\n");
    let ran = project.run(&["apply"]).exits(0);
    let found: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(
        found,
        [
            "not carried: .env: its name is that of a file with secrets",
            "not carried: build: an ignore file of the project excludes it",
            "not carried: new/id_rsa: its name is that of a file with secrets",
            "not carried: x.log: an ignore file of the project excludes it",
        ]
    );
    let mut files = expected();
    files.insert("new/.env.example".into(), "TOKEN=\n".into());
    assert_eq!(user_files(&project), files);
    // Gone from the workspace: those of the user stay.
    for path in ["x.log", ".env"] {
        fs::remove_file(project.path(&format!("workspace/{path}"))).unwrap();
    }
    project.write("project/x.log", "made by a check\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(project.read("project/x.log"), "made by a check\n");
    assert_eq!(project.read("project/.env"), "SECRET=1\n");
}

#[test]
fn links_that_lead_out_are_not_carried() {
    let project = taken_in();
    let link = |target: &str, path: &str| {
        symlink(target, project.path(&format!("workspace/{path}"))).unwrap();
    };
    link("/etc/passwd", "absolute");
    link("../../outside", "folder/up");
    link("..", "top");
    link("absolute", "chain");
    link("loop", "loop");
    fs::remove_file(project.path("workspace/change.py")).unwrap();
    link("../secret", "change.py");
    let reason = "the link leads out of the copied folder, or into .git";
    let expected = ["absolute", "chain", "change.py", "folder/up", "loop", "top"];
    let expected = expected.map(|path| format!("{path}: {reason}"));
    skips(&project, &expected.each_ref().map(String::as_str));
}

#[test]
fn a_link_that_leads_out_in_the_project_is_not_carried() {
    let project = taken_in();
    symlink("/usr", project.path("project/usr")).unwrap();
    symlink("usr/bin", project.path("workspace/bin")).unwrap();
    skips(
        &project,
        &["bin: the link leads out of the copied folder, or into .git"],
    );
}

#[test]
fn what_snapshots_do_not_store_is_not_carried() {
    let project = taken_in();
    project.write("workspace/target/debug/a", "a\n");
    project.write("workspace/__pycache__/a.pyc", "a\n");
    project
        .run_in_shell("truncate -s 33M workspace/big workspace/change.py", &[])
        .exits(0);
    project.run_in_shell("mkfifo workspace/pipe", &[]).exits(0);
    fs::remove_file(project.path("workspace/keep.py")).unwrap();
    project
        .run_in_shell("mkfifo workspace/keep.py", &[])
        .exits(0);
    let reason = "it is larger than 32 MiB, or cannot be read as a file";
    skips(
        &project,
        &[
            &format!("big: {reason}"),
            &format!("change.py: {reason}"),
            &format!("keep.py: {reason}"),
            "target: folders that tools fill are not kept",
        ],
    );
}

#[test]
fn names_that_could_not_be_copied_are_not_carried() {
    let project = taken_in();
    project.write("workspace/a\\b", "x\n");
    project.write("workspace/-rf", "x\n");
    project.write("workspace/line\nbreak", "x\n");
    let ran = project.run(&["apply"]).exits(0);
    assert_eq!(ran.stderr.lines().count(), 3, "{}", ran.stderr);
    assert!(ran.stderr.contains("not carried: line\\nbreak: "));
    assert!(ran.stdout.starts_with("nothing to apply"), "{}", ran.stdout);
}

#[test]
fn what_belongs_to_the_run_is_not_carried_when_the_root_is_the_project() {
    let project = Project::new()
        .file(
            "build.yaml",
            "name: a\ndescription: b\nworkspace: {copy: [.]}\nchecks: [{command: [sh, -c, 'true']}]\n\
             generator: {provider: template, template: specs}\n",
        )
        .file("specs/0/code.py", "old\n")
        .file("code.py", "old\n");
    project.run(&["run", "build.yaml"]).exits(0);
    for path in [
        "workspace/mine",
        "logs/mine",
        "state.json",
        "state.json.tmp-1",
        "build.yaml",
        "code.py",
    ] {
        project.write(&format!("workspace/{path}"), "planted\n");
    }
    let state = project.state();
    let ran = project.run(&["apply"]).exits(0);
    let skipped: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(
        skipped,
        [
            "not carried: build.yaml: its place is that of the spec",
            "not carried: logs/mine: its place belongs to the run",
            "not carried: state.json: its place belongs to the run",
            "not carried: state.json.tmp-1: its place belongs to the run",
            "not carried: workspace/mine: its place belongs to the run",
        ]
    );
    assert_eq!(ran.stdout, "M code.py\napplied: 1 changed\n");
    assert_eq!(project.state(), state);
    assert!(!project.exists("logs/mine") && project.read("code.py") == "planted\n");
}
