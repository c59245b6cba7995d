//! `apply`: what is carried back from the workspace, what is not, and what is printed.

mod conflicts;
mod crash;
mod skipped;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::project::{Project, RUN};
use crate::support::reply;
use crate::support::server::Server;

/// A spec that copies `project/` to the top and protects its tests; the checks pass at once.
const SPEC: &str = "name: a\ndescription: b\nworkspace:\n  copy: [{from: ../project, to: .}]\n  \
                    protect: [{from: ../project/tests, to: tests}]\nchecks: [{command: [sh, -c, 'true']}]\n\
                    generator: {provider: template, template: template}\n";

const GIVEN: [(&str, &str); 8] = [
    ("keep.py", "keep\n"),
    ("change.py", "old\n"),
    ("delete.py", "gone\n"),
    ("folder/only.py", "only\n"),
    ("tests/t.py", "TEST\n"),
    (".gitignore", "*.log\n/build/\n"),
    ("x.log", "ignored\n"),
    (".env", "SECRET=1\n"),
];

/// A project with a run that has taken `project/` in.
pub(super) fn taken_in() -> Project {
    run_of(with_project(Project::new()))
}

fn with_project(project: Project) -> Project {
    for (path, text) in GIVEN {
        project.write(&format!("project/{path}"), text);
    }
    project
        .spec(SPEC)
        .file("specs/template/0/keep.py", "keep\n")
}

fn run_of(project: Project) -> Project {
    project.run(RUN).exits(0);
    project
}

/// The same, with a changed, a new and a deleted file in the workspace.
pub(super) fn changed() -> Project {
    let project = taken_in();
    change(&project);
    project
}

fn change(project: &Project) {
    project.write("workspace/change.py", "new\n");
    project.write("workspace/new/er.py", "n = 1\n");
    fs::remove_file(project.path("workspace/delete.py")).unwrap();
}

/// The files of `project/` after these changes.
pub(super) fn expected() -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = GIVEN
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    files.insert("change.py".into(), "new\n".into());
    files.insert("new/er.py".into(), "n = 1\n".into());
    files.remove("delete.py");
    files
}

/// The files of `project/`; of a link, where it leads.
pub(super) fn user_files(project: &Project) -> BTreeMap<String, String> {
    let files = project.files().into_iter();
    files
        .filter_map(|(path, content)| {
            let path = path.strip_prefix("project/")?.to_owned();
            Some((path, String::from_utf8_lossy(&content).into_owned()))
        })
        .collect()
}

pub(super) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn new_changed_and_deleted_files_are_carried_back() {
    let project = changed();
    let ran = project.run(&["apply"]).exits(0);
    assert_eq!(user_files(&project), expected());
    assert_eq!(
        ran.stdout,
        "M project/change.py\nD project/delete.py\nA project/new/er.py\napplied: 1 changed, 1 added, 1 deleted\n"
    );
    assert_eq!(ran.stderr, "");
    let applied = &project.events("ChangesApplied")[0];
    let path = |name: &str| {
        let real = project.root().canonicalize().unwrap();
        real.join(name).display().to_string()
    };
    assert_eq!(
        applied["written"],
        serde_json::json!([path("project/change.py"), path("project/new/er.py")])
    );
    assert_eq!(
        applied["deleted"],
        serde_json::json!([path("project/delete.py")])
    );
    assert!(!project.exists("logs/apply.json"));
    project.nothing_left();
}

#[test]
fn a_check_tells_the_same_and_writes_nothing() {
    let project = changed();
    let before = project.files();
    let ran = project.run(&["apply", "--check"]).exits(0);
    assert_eq!(
        ran.stdout,
        "M project/change.py\nD project/delete.py\nA project/new/er.py\nwould apply: 1 changed, 1 added, 1 deleted\n"
    );
    assert_eq!(project.files(), before);
}

#[test]
fn the_second_time_there_is_nothing_to_do() {
    let project = changed();
    project.run(&["apply"]).exits(0);
    for arguments in [&["apply"][..], &["apply", "--check"]] {
        let ran = project.run(arguments).exits(0);
        assert!(ran.stdout.starts_with("nothing to apply"), "{}", ran.stdout);
    }
    assert_eq!(user_files(&project), expected());
    assert_eq!(project.events("ChangesApplied").len(), 1);
}

#[test]
fn later_changes_are_applied_on_top_of_what_was_applied() {
    let project = changed();
    project.run(&["apply"]).exits(0);
    project.write("workspace/change.py", "newer\n");
    fs::remove_dir_all(project.path("workspace/new")).unwrap();
    project.write("workspace/delete.py", "gone\n");
    let ran = project.run(&["apply"]).exits(0);
    assert!(ran.stdout.contains("D project/new/er.py"), "{}", ran.stdout);
    let mut files = expected();
    files.insert("change.py".into(), "newer\n".into());
    files.insert("delete.py".into(), "gone\n".into());
    files.remove("new/er.py");
    assert_eq!(user_files(&project), files);
    assert!(!project.exists("project/new"));
    // Back to what was taken in.
    project.write("workspace/change.py", "old\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(project.read("project/change.py"), "old\n");
}

#[test]
fn other_changes_of_the_user_stay() {
    let project = changed();
    project.write("project/keep.py", "mine\n");
    project.write("project/own.py", "own\n");
    project.run(&["apply"]).exits(0);
    let mut files = expected();
    files.insert("keep.py".into(), "mine\n".into());
    files.insert("own.py".into(), "own\n".into());
    assert_eq!(user_files(&project), files);
}

#[test]
fn targets_are_named_relative_to_the_current_directory() {
    let project = changed();
    let shown = |folder: &str| {
        let line = format!("cd {folder} && \"$@\"");
        let root = project.root().display().to_string();
        let ran = project.run_in_shell(&line, &["--root", &root, "apply", "--check"]);
        ran.exits(0).stdout
    };
    assert!(shown("project").contains("M change.py\n"));
    let absolute = project.root().canonicalize().unwrap();
    let absolute = absolute.join("project/change.py").display().to_string();
    assert!(shown("specs").contains(&format!("M {absolute}\n")));
}

#[test]
fn folders_that_become_empty_are_removed_if_the_workspace_has_them_no_longer() {
    let project = taken_in();
    fs::remove_dir_all(project.path("workspace/folder")).unwrap();
    project.run(&["apply"]).exits(0);
    assert!(!project.exists("project/folder"));
    // A folder that the workspace still has stays, and so does one with a file of the user.
    for keeps in ["mkdir -p workspace/folder", "touch project/folder/own.py"] {
        let project = taken_in();
        fs::remove_dir_all(project.path("workspace/folder")).unwrap();
        project.run_in_shell(keeps, &[]).exits(0);
        project.run(&["apply"]).exits(0);
        assert!(!project.exists("project/folder/only.py"));
        assert!(project.exists("project/folder"), "{keeps}");
    }
}

#[test]
fn a_file_may_become_a_folder_and_a_folder_a_file() {
    let project = taken_in();
    let workspace = project.path("workspace");
    fs::remove_file(workspace.join("delete.py")).unwrap();
    project.write("workspace/delete.py/inner.py", "inner\n");
    fs::remove_dir_all(workspace.join("folder")).unwrap();
    project.write("workspace/folder", "a file\n");
    let ran = project.run(&["apply"]).exits(0);
    assert_eq!(
        ran.stdout,
        "D project/delete.py\nA project/delete.py/inner.py\nA project/folder\nD project/folder/only.py\n\
         applied: 2 added, 2 deleted\n"
    );
    assert_eq!(project.read("project/delete.py/inner.py"), "inner\n");
    assert_eq!(project.read("project/folder"), "a file\n");
    let ran = project.run(&["apply"]).exits(0);
    assert!(ran.stdout.starts_with("nothing to apply"), "{}", ran.stdout);
    project.nothing_left();
}

#[test]
fn the_executable_bit_is_carried_and_other_permissions_stay() {
    let project = taken_in();
    let [target, new] = ["project/change.py", "workspace/change.py"].map(|path| project.path(path));
    set_mode(&target, 0o640);
    set_mode(&new, 0o777);
    project.write("workspace/plain.py", "x\n");
    set_mode(&project.path("workspace/plain.py"), 0o666);
    project.write("workspace/run.sh", "#!/bin/sh\n");
    set_mode(&project.path("workspace/run.sh"), 0o700);
    // Other permissions are not a change.
    set_mode(&project.path("workspace/keep.py"), 0o600);
    let ran = project
        .run_in_shell("umask 027; \"$@\"", &["apply"])
        .exits(0);
    assert!(!ran.stdout.contains("keep.py"), "{}", ran.stdout);
    assert_eq!(mode(&target), 0o750);
    assert_eq!(mode(&project.path("project/plain.py")), 0o640);
    assert_eq!(mode(&project.path("project/run.sh")), 0o750);
    assert_eq!(mode(&project.path("project/keep.py")), 0o644);
    set_mode(&new, 0o644);
    project.write("workspace/change.py", "newer\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(mode(&target), 0o640);
    assert_eq!(project.read("project/change.py"), "newer\n");
}

#[test]
fn other_hard_links_keep_their_content() {
    let project = changed();
    let other = project.outside("other.py");
    fs::hard_link(project.path("project/change.py"), &other).unwrap();
    project.run(&["apply"]).exits(0);
    assert_eq!(fs::read_to_string(&other).unwrap(), "old\n");
    assert_eq!(project.read("project/change.py"), "new\n");
    assert_eq!(fs::metadata(&other).unwrap().nlink(), 1);
}

#[test]
fn a_link_is_carried_as_a_link_and_may_replace_a_file() {
    let project = taken_in();
    fs::remove_file(project.path("workspace/change.py")).unwrap();
    symlink("keep.py", project.path("workspace/change.py")).unwrap();
    symlink("../keep.py", project.path("workspace/folder/up.py")).unwrap();
    let ran = project.run(&["apply"]).exits(0);
    assert_eq!(
        ran.stdout,
        "T project/change.py\nA project/folder/up.py\napplied: 1 changed, 1 added\n"
    );
    let target = |path: &str| fs::read_link(project.path(path)).unwrap();
    assert_eq!(target("project/change.py"), Path::new("keep.py"));
    assert_eq!(target("project/folder/up.py"), Path::new("../keep.py"));
    fs::remove_file(project.path("workspace/change.py")).unwrap();
    project.write("workspace/change.py", "a file again\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(project.read("project/change.py"), "a file again\n");
    assert_eq!(project.read("project/keep.py"), "keep\n");
}

#[test]
fn the_copied_folder_itself_may_be_reached_through_a_link() {
    let project = with_project(Project::new());
    fs::rename(project.path("project"), project.outside("elsewhere")).unwrap();
    symlink("../elsewhere", project.path("project")).unwrap();
    let project = run_of(project);
    change(&project);
    project.run(&["apply"]).exits(0);
    let changed = fs::read_to_string(project.outside("elsewhere/change.py")).unwrap();
    assert_eq!(changed, "new\n");
}

#[test]
fn single_files_and_the_deepest_folder_go_to_their_own_places() {
    let spec = "name: a\ndescription: b\nworkspace:\n  copy: [{from: ../project, to: .}, {from: ../other, to: folder}, \
                {from: ../one.py, to: single.py}]\nchecks: [{command: [sh, -c, 'true']}]\n\
                generator: {provider: template, template: template}\n";
    let project = run_of(
        with_project(Project::new())
            .spec(spec)
            .file("other/deep.py", "deep\n")
            .file("one.py", "one\n"),
    );
    for path in [
        "folder/deep.py",
        "folder/new.py",
        "folder/only.py",
        "single.py",
    ] {
        project.write(&format!("workspace/{path}"), "changed\n");
    }
    project.run(&["apply"]).exits(0);
    for path in [
        "other/deep.py",
        "other/new.py",
        "one.py",
        "project/folder/only.py",
    ] {
        assert_eq!(project.read(path), "changed\n", "{path}");
    }
    assert!(!project.exists("project/folder/new.py"));
    assert!(!project.exists("project/single.py"));
}

#[test]
fn a_run_that_has_not_succeeded_is_applied_with_a_note() {
    let spec = SPEC.replace("'true'", "'exit 1'");
    let project = with_project(Project::new())
        .spec(spec + "max_retries: 1\n")
        .file("specs/template/0/change.py", "first\n")
        .file("specs/template/1/change.py", "second\n");
    project.run(RUN).exits(1);
    project
        .run(&["apply"])
        .exits(0)
        .says("note: the checks of this run have not passed");
    assert_eq!(project.read("project/change.py"), "second\n");
    // A continued run goes on from what was applied.
    project.write("specs/template/0/change.py", "third\n");
    project.write("specs/template/1/change.py", "fourth\n");
    let again: Vec<&str> = RUN.iter().copied().chain(["--continue"]).collect();
    project.run(&again).exits(1);
    let ran = project.run(&["apply"]).exits(0);
    assert!(ran.stdout.contains("M project/change.py"), "{}", ran.stdout);
    assert_eq!(project.read("project/change.py"), "fourth\n");
}

#[test]
fn without_a_run_and_with_a_workflow_there_is_nothing_to_apply() {
    let project = Project::new();
    project.run(&["apply"]).exits(64).says("no run in");
    let project = Project::new().file("flow/START.sh", "echo '<result></result>'");
    project.run(&["run", "--workflow", "flow"]).exits(0);
    project.run(&["apply"]).exits(64).says("workflow");
}

#[test]
fn while_a_run_works_nothing_is_applied() {
    let server = Server::start([reply::answer("42").held()]);
    let spec = SPEC.replace("'true'", "'exit 1'").replace(
        "generator: {provider: template, template: template}\n",
        "max_retries: 1\n",
    );
    let project = with_project(Project::new()).spec(spec).model(&server);
    let running = project.start(RUN);
    server.wait_for(1);
    for arguments in [&["apply"][..], &["apply", "--check"]] {
        project.run(arguments).exits(75);
    }
    running.signal(rustix::process::Signal::KILL);
    running.wait();
}

#[test]
fn a_deleted_log_is_not_made_again() {
    let project = changed();
    let log = project.path(&project.log_path());
    fs::remove_file(&log).unwrap();
    project.run(&["apply"]).exits(0);
    assert_eq!(user_files(&project), expected());
    assert!(!log.exists());
}

#[test]
fn a_missing_workspace_deletes_nothing() {
    let project = changed();
    fs::remove_dir_all(project.path("workspace")).unwrap();
    let before = user_files(&project);
    project.run(&["apply"]).exits(64);
    assert_eq!(user_files(&project), before);
}
