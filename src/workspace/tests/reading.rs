//! Reading and walking: nothing is followed, nothing blocks, everything is bounded.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::workspace::rules::Access;
use crate::workspace::tests::{TestDir, mount, unmount};
use crate::workspace::walk::WalkReach;
use crate::workspace::{EntryKind, ReadOutcome, RecordStep, WalkEnd, WalkStep, Workspace};

fn read(dir: &TestDir, path: &str) -> ReadOutcome {
    dir.workspace.read_file(Path::new(path), 4).expect(path)
}

fn walked(workspace: &Workspace) -> Vec<String> {
    let mut seen = Vec::new();
    let ended = workspace.walk(&mut |entry| {
        seen.push(entry.path.to_string_lossy().into_owned());
        if entry.path.ends_with("skipped") {
            WalkStep::Skip
        } else {
            WalkStep::On
        }
    });
    assert_eq!(ended.expect("walk"), WalkEnd::Whole);
    seen
}

#[test]
fn only_regular_files_of_a_size_are_read() {
    let dir = TestDir::new();
    dir.file("d/four", "1234");
    dir.file("five", "12345");
    dir.link("out", dir.outside().join("precious"));
    dir.link("folder", "d");
    mknodat(CWD, dir.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    assert_eq!(read(&dir, "d/four"), ReadOutcome::File(b"1234".into()));
    assert_eq!(read(&dir, "five"), ReadOutcome::TooLarge(5));
    for path in ["missing", "missing/x"] {
        assert_eq!(read(&dir, path), ReadOutcome::Missing);
    }
    for path in [
        "out",
        "folder/four",
        "pipe",
        "d",
        "five/x",
        "../outside/precious",
        "",
    ] {
        assert_eq!(read(&dir, path), ReadOutcome::Other, "{path}");
    }
}

#[test]
fn a_walk_is_sorted_and_follows_nothing() {
    let dir = TestDir::new();
    for path in ["b/z", "b/a/x", "a", "c.py", "skipped/x"] {
        dir.file(path, "12");
    }
    dir.link("b/up", "..");
    dir.link("out", dir.outside());
    fs::write(dir.path(OsStr::from_bytes(b"\xff")), "").expect("write");
    mknodat(CWD, dir.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    let expected = [
        "a", "b", "b/a", "b/a/x", "b/up", "b/z", "c.py", "out", "pipe", "skipped", "\u{fffd}",
    ]
    .map(String::from);
    assert_eq!(walked(&dir.workspace), expected);
}

#[test]
fn entries_are_described() {
    let dir = TestDir::new();
    dir.file("d/f", "12");
    dir.chmod("d/f", 0o640);
    dir.link("d/l", "../x");
    mknodat(CWD, dir.path("d/p"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    let mut kinds = Vec::new();
    dir.workspace
        .walk(&mut |entry| {
            assert!(entry.ino > 0 && entry.mtime.0 > 0 && entry.ctime.0 > 0);
            kinds.push(entry.kind.clone());
            WalkStep::On
        })
        .expect("walk");
    let mode = dir.mode("d");
    let link = EntryKind::Link {
        target: "../x".into(),
    };
    assert_eq!(
        kinds,
        [
            EntryKind::Dir { mode },
            EntryKind::File {
                size: 2,
                mode: 0o640
            },
            link,
            EntryKind::Special
        ]
    );
}

#[test]
fn a_walk_is_bounded() {
    let dir = TestDir::new();
    let deep = "d/".repeat(300);
    fs::create_dir_all(dir.path(deep)).expect("mkdir");
    assert_eq!(walked(&dir.workspace).len(), 256);
    let reach = WalkReach {
        entries: 10,
        access: Access::AsIs,
    };
    let mut seen = 0;
    let ended = dir.workspace.walk_far(reach, &mut |_| {
        seen += 1;
        WalkStep::On
    });
    assert_eq!((ended.expect("walk"), seen), (WalkEnd::Cut, 10));
    let ended = dir.workspace.walk(&mut |_| WalkStep::Stop);
    assert_eq!(ended.expect("walk"), WalkEnd::Whole);
}

#[test]
fn what_cannot_be_entered_is_visited() {
    let dir = TestDir::new();
    dir.file("locked/x", "");
    dir.file("m/x", "");
    dir.chmod("locked", 0o000);
    let is_root = rustix::process::geteuid().is_root();
    let seen: Vec<String> = walked(&dir.workspace);
    assert_eq!(
        seen,
        if is_root {
            vec!["locked", "locked/x", "m", "m/x"]
        } else {
            vec!["locked", "m", "m/x"]
        }
    );
    dir.chmod("locked", 0o700);
    if mount(&dir.outside(), &dir.path("m")) {
        let seen = walked(&dir.workspace);
        unmount(&dir.path("m"));
        assert_eq!(seen, ["locked", "locked/x", "m"]);
    }
}

#[test]
fn a_recorded_walk_is_visited_like_the_tree() {
    let dir = TestDir::new();
    for path in ["a", "b/a/x", "b/z", "b.py", "left/out", "skipped/x/y", "z"] {
        dir.file(path, path);
    }
    dir.link("b/up", "../a");
    let walk = dir
        .workspace
        .record_walk(&mut |entry| match entry.path.to_str() {
            Some("left") => RecordStep::Omit,
            Some("skipped/x") => RecordStep::Record,
            _ => RecordStep::Enter,
        })
        .expect("walk");
    let mut seen = Vec::new();
    walk.walk(&mut |entry| {
        seen.push(entry.clone());
        WalkStep::On
    });
    let mut expected = Vec::new();
    dir.workspace
        .walk(&mut |entry| {
            let is_in = |name: &str| entry.path.starts_with(name);
            if !is_in("left") && !is_in("skipped/x/y") {
                expected.push(entry.clone());
            }
            WalkStep::On
        })
        .expect("walk");
    assert_eq!(seen, expected);
    let mut paths = Vec::new();
    walk.walk(&mut |entry| {
        paths.push(entry.path.display().to_string());
        match entry.path.to_str() {
            Some("b") => WalkStep::Skip,
            Some("skipped") => WalkStep::Stop,
            _ => WalkStep::On,
        }
    });
    assert_eq!(paths, ["a", "b", "b.py", "skipped"]);
}

#[test]
fn recorded_walks_are_compared_by_ranges() {
    let dir = TestDir::new();
    for path in ["a/x", "b/x", "c/x"] {
        dir.file(path, path);
    }
    let record = || {
        dir.workspace
            .record_walk(&mut |_| RecordStep::Enter)
            .expect("walk")
    };
    let before = record();
    dir.file("b/x", "changed");
    dir.file("a0", "new");
    let after = record();
    let same = |own, other| before.has_same_entries(&[own], (&after, &[other]));
    assert!(same(0..2, 0..2) && same(4..6, 5..7));
    assert!(!same(2..4, 3..5) && !same(0..2, 0..1) && !same(0..2, 5..7));
    assert!(before.has_same_entries(&[0..2, 4..6], (&after, &[0..1, 1..2, 5..7])));
}
