//! Targets that were changed meanwhile: all are listed, nothing is written.

use std::fs;
use std::os::unix::fs::symlink;

use crate::apply::{changed, expected, set_mode, taken_in, user_files};
use crate::support::project::Project;
use crate::support::restrictions::Restrictions;

/// Asserts that `apply` and `apply --check` list these conflicts and write nothing.
fn conflicts(project: &Project, expected: &[&str]) {
    let before = project.files();
    for arguments in [&["apply", "--check"][..], &["apply"]] {
        let ran = project.run(arguments).exits(1);
        let found: Vec<&str> = ran
            .stderr
            .lines()
            .filter_map(|line| line.strip_prefix("conflict: project/"))
            .collect();
        assert_eq!(found, expected, "{}", ran.transcript());
        let mut after = project.files();
        after.retain(|path, _| !path.starts_with("logs/objects/"));
        let mut before = before.clone();
        before.retain(|path, _| !path.starts_with("logs/objects/"));
        assert_eq!(after, before, "{arguments:?}");
    }
}

#[test]
fn a_changed_a_deleted_and_a_new_target_are_conflicts() {
    let project = changed();
    project.write("project/change.py", "mine\n");
    project.write("project/new/er.py", "mine\n");
    fs::remove_file(project.path("project/delete.py")).unwrap();
    conflicts(
        &project,
        &[
            "change.py: it was changed since it was copied",
            "new/er.py: it was made since the folder was copied, or was left out of the copy",
        ],
    );
    fs::remove_file(project.path("project/change.py")).unwrap();
    fs::remove_file(project.path("project/new/er.py")).unwrap();
    conflicts(&project, &["change.py: it was deleted since it was copied"]);
    project.write("project/change.py", "old\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(user_files(&project), expected());
}

#[test]
fn a_target_that_was_changed_and_is_deleted_in_the_workspace_is_a_conflict() {
    let project = changed();
    project.write("project/delete.py", "mine\n");
    conflicts(&project, &["delete.py: it was changed since it was copied"]);
}

#[test]
fn a_target_whose_executable_bit_was_changed_is_a_conflict() {
    let project = changed();
    set_mode(&project.path("project/change.py"), 0o755);
    conflicts(&project, &["change.py: it was changed since it was copied"]);
}

#[test]
fn a_target_that_is_as_the_workspace_has_it_is_none() {
    let project = changed();
    project.write("project/change.py", "new\n");
    project.write("project/new/er.py", "n = 1\n");
    fs::remove_file(project.path("project/delete.py")).unwrap();
    let ran = project.run(&["apply"]).exits(0);
    assert!(ran.stdout.starts_with("nothing to apply"), "{}", ran.stdout);
}

#[test]
fn another_kind_of_entry_is_a_conflict() {
    let project = changed();
    let target = project.path("project/change.py");
    fs::remove_file(&target).unwrap();
    symlink("keep.py", &target).unwrap();
    conflicts(
        &project,
        &["change.py: it is a link that was changed since it was copied"],
    );
    fs::remove_file(&target).unwrap();
    fs::create_dir(&target).unwrap();
    conflicts(&project, &["change.py: a folder is there"]);
    fs::remove_dir(&target).unwrap();
    project
        .run_in_shell("mkfifo project/change.py", &[])
        .exits(0);
    conflicts(&project, &["change.py: a pipe, socket or device is there"]);
}

#[test]
fn a_link_or_a_file_where_a_folder_is_needed_is_a_conflict() {
    let project = changed();
    project.write("workspace/folder/only.py", "changed\n");
    let precious = project.outside("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("only.py"), "only\n").unwrap();
    fs::remove_dir_all(project.path("project/folder")).unwrap();
    symlink(&precious, project.path("project/folder")).unwrap();
    project.write("project/new", "a file\n");
    conflicts(
        &project,
        &[
            "folder/only.py: folder is not a folder",
            "new/er.py: new is not a folder",
        ],
    );
    let only = fs::read_to_string(precious.join("only.py")).unwrap();
    assert_eq!(only, "only\n");
}

#[test]
fn a_folder_with_other_files_where_a_file_goes_is_a_conflict() {
    let project = taken_in();
    fs::remove_dir_all(project.path("workspace/folder")).unwrap();
    project.write("workspace/folder", "a file\n");
    project.write("project/folder/own.py", "own\n");
    conflicts(&project, &["folder: a folder with other files is there"]);
}

#[test]
fn a_target_in_a_folder_that_was_deleted_is_a_conflict() {
    let project = taken_in();
    project.write("workspace/folder/only.py", "changed\n");
    fs::remove_dir_all(project.path("project/folder")).unwrap();
    conflicts(
        &project,
        &["folder/only.py: it was deleted since it was copied"],
    );
}

#[test]
fn a_copied_folder_that_is_gone_is_a_conflict() {
    let project = changed();
    fs::remove_dir_all(project.path("project")).unwrap();
    for arguments in [&["apply", "--check"][..], &["apply"]] {
        project
            .run(arguments)
            .exits(1)
            .says("conflict: project: what it was copied from is gone");
        assert!(!project.exists("project"));
    }
}

#[test]
fn two_copies_of_a_file_that_differ_are_a_conflict() {
    let spec = "name: a\ndescription: b\nworkspace: {copy: [{from: ../project, to: one}, {from: ../project, to: two}]}\n\
                checks: [{command: [sh, -c, 'true']}]\ngenerator: {provider: template, template: template}\n";
    let project = Project::new()
        .spec(spec)
        .file("specs/template/0/one/a", "a\n")
        .file("project/a", "a\n");
    project.run(crate::support::project::RUN).exits(0);
    project.write("workspace/one/a", "1\n");
    project.write("workspace/two/a", "2\n");
    conflicts(
        &project,
        &["a: one/a and two/a of the workspace differ and lead here"],
    );
    project.write("workspace/two/a", "1\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(project.read("project/a"), "1\n");
}

#[test]
fn without_write_permission_in_one_folder_everything_is_undone() {
    let restrictions = Restrictions::unprivileged();
    let project = changed();
    project.write("workspace/folder/only.py", "changed\n");
    project.write("workspace/zzz/last.py", "last\n");
    let before = user_files(&project);
    let owner = restrictions.uid();
    project
        .run_in_shell(&format!("chown -R {owner} .."), &[])
        .exits(0);
    let project = project.restricted(restrictions);
    let folder = project.path("project/folder");
    set_mode(&folder, 0o555);
    let inode = |path: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(project.path(path)).unwrap().ino()
    };
    let files = ["project/change.py", "project/delete.py"];
    let inodes = files.map(inode);
    project
        .run(&["apply"])
        .exits(74)
        .says("project/folder/only.py")
        .says("the project is as it was");
    assert_eq!(user_files(&project), before);
    assert_eq!(files.map(inode), inodes);
    assert!(!project.exists("project/new") && !project.exists("project/zzz"));
    assert!(!project.exists("logs/apply.json"));
    // The same for a file that is deleted in such a folder.
    fs::remove_file(project.path("workspace/folder/only.py")).unwrap();
    project.run(&["apply"]).exits(74);
    assert_eq!(user_files(&project), before);
    set_mode(&folder, 0o755);
    project.run(&["apply"]).exits(0);
    assert_eq!(project.read("project/zzz/last.py"), "last\n");
    assert!(!project.exists("project/folder/only.py"));
}
