//! What hostile checks do to a tree, undone.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::workspace::snapshot::Snapshot;
use crate::workspace::tests::TestDir;
use crate::workspace::{EntryKind, WalkStep, WorkspaceEntry};

/// Everything that a restored tree has to have again.
fn picture(dir: &TestDir) -> Vec<(WorkspaceEntry, Option<Vec<u8>>)> {
    let mut seen = Vec::new();
    dir.workspace
        .walk(&mut |entry| {
            let content = matches!(entry.kind, EntryKind::File { .. })
                .then(|| fs::read(dir.path(&entry.path)).expect("read"));
            seen.push((
                WorkspaceEntry {
                    ino: 0,
                    ctime: (0, 0),
                    ..entry.clone()
                },
                content,
            ));
            WalkStep::On
        })
        .expect("walk");
    seen
}

fn tree() -> TestDir {
    let dir = TestDir::new();
    for path in [
        "a.py",
        "pkg/b.py",
        "pkg/sub/c.py",
        "tests/t.py",
        "tests/u.py",
    ] {
        dir.file(path, path);
    }
    dir.chmod("a.py", 0o755);
    dir.link("pkg/link", "sub");
    fs::create_dir(dir.path("empty")).expect("mkdir");
    dir.chmod("empty", 0o700);
    dir
}

fn undone(mischief: impl FnOnce(&TestDir)) {
    let dir = tree();
    let before = picture(&dir);
    let snapshot = Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false).expect("take");
    mischief(&dir);
    snapshot
        .restore(&dir.workspace, &|_| panic!("copied"))
        .expect("restore");
    assert_eq!(picture(&dir), before);
    dir.assert_outside_is_whole();
}

#[test]
fn nothing_happened() {
    let dir = tree();
    let inode = || {
        fs::metadata(dir.path("pkg/b.py"))
            .map(|found| (found.ino(), found.ctime_nsec()))
            .expect("stat")
    };
    let before = inode();
    Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false)
        .expect("take")
        .restore(&dir.workspace, &|_| panic!("copied"))
        .expect("restore");
    assert_eq!(inode(), before);
}

#[test]
fn files_changed_made_and_deleted() {
    undone(|dir| {
        dir.file("a.py", "A.py");
        dir.file("pkg/b.py", "longer than before");
        dir.file("new/deep/file", "x");
        dir.file("pkg/new", "x");
        dir.chmod("tests/t.py", 0o777);
        fs::remove_file(dir.path("tests/u.py")).expect("rm");
        fs::remove_dir(dir.path("empty")).expect("rmdir");
        fs::remove_file(dir.path("pkg/link")).expect("rm");
        symlink("elsewhere", dir.path("pkg/link")).expect("symlink");
    });
}

#[test]
fn names_and_kinds_swapped() {
    undone(|dir| {
        fs::rename(dir.path("pkg"), dir.path("moved")).expect("mv");
        fs::rename(dir.path("tests/t.py"), dir.path("tests/v.py")).expect("mv");
        fs::rename(dir.path("tests/u.py"), dir.path("tests/t.py")).expect("mv");
        fs::remove_file(dir.path("a.py")).expect("rm");
        dir.file("a.py/x", "x");
        fs::remove_dir(dir.path("empty")).expect("rmdir");
        dir.file("empty", "x");
    });
}

#[test]
fn links_in_place_of_folders() {
    undone(|dir| {
        fs::remove_dir_all(dir.path("tests")).expect("rm");
        dir.link("tests", dir.outside());
        fs::remove_file(dir.path("a.py")).expect("rm");
        dir.link("a.py", dir.outside().join("precious"));
        fs::rename(dir.path("pkg"), dir.path("gkp")).expect("mv");
        dir.link("pkg", "gkp");
    });
}

#[test]
fn everything_locked() {
    undone(|dir| {
        for path in ["pkg/sub", "pkg", "tests/t.py", "tests", ""] {
            dir.chmod(path, 0o000);
        }
    });
}

#[test]
fn everything_gone() {
    undone(|dir| {
        assert!(dir.workspace.clear(&[]).expect("clear").is_empty());
    });
}

#[test]
fn a_tree_that_was_locked_before() {
    let dir = tree();
    dir.chmod("pkg/b.py", 0o000);
    dir.chmod("pkg", 0o000);
    let snapshot = Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false).expect("take");
    dir.chmod("pkg", 0o700);
    fs::remove_dir_all(dir.path("pkg")).expect("rm");
    snapshot
        .restore(&dir.workspace, &|_| panic!("copied"))
        .expect("restore");
    assert_eq!(dir.mode("pkg"), 0o000);
    dir.chmod("pkg", 0o700);
    dir.chmod("pkg/b.py", 0o600);
    assert_eq!(dir.read("pkg/b.py"), "pkg/b.py");
}

#[test]
fn pipes_stay_where_they_are_and_go_where_they_are_new() {
    let dir = tree();
    let pipe = |name: &str| {
        assert!(
            Command::new("mkfifo")
                .arg(dir.path(name))
                .status()
                .expect("mkfifo")
                .success()
        )
    };
    pipe("old");
    let snapshot = Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false).expect("take");
    pipe("new");
    snapshot
        .restore(&dir.workspace, &|_| panic!("copied"))
        .expect("restore");
    assert!(dir.path("old").exists() && !dir.path("new").exists());
}

#[test]
fn nothing_hides_in_the_deep() {
    let dir = tree();
    let deep = "d/".repeat(256);
    fs::create_dir_all(dir.path(&deep)).expect("mkdir");
    let snapshot = Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false).expect("take");
    fs::write(dir.path(Path::new(&deep).join("hidden")), "x").expect("write");
    snapshot
        .restore(&dir.workspace, &|_| panic!("copied"))
        .expect("restore");
    assert!(dir.path(&deep).exists() && !dir.path(Path::new(&deep).join("hidden")).exists());
}

#[test]
fn what_is_stored_elsewhere_is_not_copied() {
    let dir = tree();
    let before = picture(&dir);
    let is_stored = |entry: &WorkspaceEntry| entry.path.ends_with("b.py");
    let root = tempfile::tempdir().expect("tempdir");
    let snapshot = Snapshot::take(&dir.workspace, root.path(), &is_stored).expect("take");
    let copies = fs::read_dir(root.path()).expect("list").next();
    let copies = copies.expect("copies").expect("copies").path();
    assert_eq!(fs::read_dir(&copies).expect("list").count(), 4);
    dir.file("pkg/b.py", "other");
    dir.file("a.py", "other");
    dir.file("new", "");
    let stored = |entry: &WorkspaceEntry| {
        assert!(entry.path.ends_with("b.py"));
        Ok(b"pkg/b.py".to_vec())
    };
    snapshot.restore(&dir.workspace, &stored).expect("restore");
    assert_eq!(picture(&dir), before);
}
