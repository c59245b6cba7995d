//! What hostile checks do to a tree, undone.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::workspace::snapshot::Snapshot;
use crate::workspace::tests::Place;
use crate::workspace::{EntryKind, WalkStep, WorkspaceEntry};

/// Everything that a restored tree has to have again.
fn picture(place: &Place) -> Vec<(WorkspaceEntry, Option<Vec<u8>>)> {
    let mut seen = Vec::new();
    place
        .workspace
        .walk(&mut |entry| {
            let content = matches!(entry.kind, EntryKind::File { .. })
                .then(|| fs::read(place.path(&entry.path)).expect("read"));
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

fn tree() -> Place {
    let place = Place::new();
    for path in [
        "a.py",
        "pkg/b.py",
        "pkg/sub/c.py",
        "tests/t.py",
        "tests/u.py",
    ] {
        place.file(path, path);
    }
    place.chmod("a.py", 0o755);
    place.link("pkg/link", "sub");
    fs::create_dir(place.path("empty")).expect("mkdir");
    place.chmod("empty", 0o700);
    place
}

fn undone(mischief: impl FnOnce(&Place)) {
    let place = tree();
    let before = picture(&place);
    let snapshot = Snapshot::take(&place.workspace, &std::env::temp_dir()).expect("take");
    mischief(&place);
    snapshot.restore(&place.workspace).expect("restore");
    assert_eq!(picture(&place), before);
    place.assert_outside_is_whole();
}

#[test]
fn nothing_happened() {
    let place = tree();
    let inode = || {
        fs::metadata(place.path("pkg/b.py"))
            .map(|found| (found.ino(), found.ctime_nsec()))
            .expect("stat")
    };
    let before = inode();
    Snapshot::take(&place.workspace, &std::env::temp_dir())
        .expect("take")
        .restore(&place.workspace)
        .expect("restore");
    assert_eq!(inode(), before);
}

#[test]
fn files_changed_made_and_deleted() {
    undone(|place| {
        place.file("a.py", "A.py");
        place.file("pkg/b.py", "longer than before");
        place.file("new/deep/file", "x");
        place.file("pkg/new", "x");
        place.chmod("tests/t.py", 0o777);
        fs::remove_file(place.path("tests/u.py")).expect("rm");
        fs::remove_dir(place.path("empty")).expect("rmdir");
        fs::remove_file(place.path("pkg/link")).expect("rm");
        symlink("elsewhere", place.path("pkg/link")).expect("symlink");
    });
}

#[test]
fn names_and_kinds_swapped() {
    undone(|place| {
        fs::rename(place.path("pkg"), place.path("moved")).expect("mv");
        fs::rename(place.path("tests/t.py"), place.path("tests/v.py")).expect("mv");
        fs::rename(place.path("tests/u.py"), place.path("tests/t.py")).expect("mv");
        fs::remove_file(place.path("a.py")).expect("rm");
        place.file("a.py/x", "x");
        fs::remove_dir(place.path("empty")).expect("rmdir");
        place.file("empty", "x");
    });
}

#[test]
fn links_in_place_of_folders() {
    undone(|place| {
        fs::remove_dir_all(place.path("tests")).expect("rm");
        place.link("tests", place.outside());
        fs::remove_file(place.path("a.py")).expect("rm");
        place.link("a.py", place.outside().join("precious"));
        fs::rename(place.path("pkg"), place.path("gkp")).expect("mv");
        place.link("pkg", "gkp");
    });
}

#[test]
fn everything_locked() {
    undone(|place| {
        for path in ["pkg/sub", "pkg", "tests/t.py", "tests", ""] {
            place.chmod(path, 0o000);
        }
    });
}

#[test]
fn everything_gone() {
    undone(|place| {
        assert!(place.workspace.clear(&[]).expect("clear").is_empty());
    });
}

#[test]
fn a_tree_that_was_locked_before() {
    let place = tree();
    place.chmod("pkg/b.py", 0o000);
    place.chmod("pkg", 0o000);
    let snapshot = Snapshot::take(&place.workspace, &std::env::temp_dir()).expect("take");
    place.chmod("pkg", 0o700);
    fs::remove_dir_all(place.path("pkg")).expect("rm");
    snapshot.restore(&place.workspace).expect("restore");
    assert_eq!(place.mode("pkg"), 0o000);
    place.chmod("pkg", 0o700);
    place.chmod("pkg/b.py", 0o600);
    assert_eq!(place.read("pkg/b.py"), "pkg/b.py");
}

#[test]
fn pipes_stay_where_they_are_and_go_where_they_are_new() {
    let place = tree();
    let pipe = |name: &str| {
        assert!(
            Command::new("mkfifo")
                .arg(place.path(name))
                .status()
                .expect("mkfifo")
                .success()
        )
    };
    pipe("old");
    let snapshot = Snapshot::take(&place.workspace, &std::env::temp_dir()).expect("take");
    pipe("new");
    snapshot.restore(&place.workspace).expect("restore");
    assert!(place.path("old").exists() && !place.path("new").exists());
}

#[test]
fn nothing_hides_in_the_deep() {
    let place = tree();
    let deep = "d/".repeat(256);
    fs::create_dir_all(place.path(&deep)).expect("mkdir");
    let snapshot = Snapshot::take(&place.workspace, &std::env::temp_dir()).expect("take");
    fs::write(place.path(Path::new(&deep).join("hidden")), "x").expect("write");
    snapshot.restore(&place.workspace).expect("restore");
    assert!(place.path(&deep).exists() && !place.path(Path::new(&deep).join("hidden")).exists());
}
