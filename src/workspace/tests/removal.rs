//! Emptying: deep, locked, linked and mounted trees.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};

use crate::workspace::tests::{TestDir, can_run, mount, unmount};

/// Makes a chain of folders far deeper than any path can name.
fn dig(start: &Path, levels: usize) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder: OwnedFd = openat(CWD, start, flags, Mode::empty()).expect("open");
    for level in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).expect("mkdir");
        if level % 1000 == 0 {
            openat(&folder, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).expect("create");
        }
        folder = openat(&folder, "d", flags, Mode::empty()).expect("open");
    }
}

#[test]
fn everything_goes_but_what_is_kept() {
    let dir = TestDir::new();
    for path in ["a", "b/c/d", ".gitkeep", ".gitignore", "b/.gitkeep"] {
        dir.file(path, "");
    }
    dir.link("out", dir.outside());
    dir.link("b/out", dir.outside().join("precious"));
    mknodat(CWD, dir.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    assert!(
        dir.workspace
            .clear(&[".gitkeep", ".gitignore"])
            .expect("clear")
            .is_empty()
    );
    assert_eq!(dir.names(), [".gitignore", ".gitkeep"]);
    assert!(
        dir.workspace
            .is_empty_but(&[".gitkeep", ".gitignore"])
            .expect("look")
    );
    assert!(!dir.workspace.is_empty_but(&[".gitkeep"]).expect("look"));
    dir.assert_outside_is_whole();
}

#[test]
fn only_regular_files_are_kept() {
    let dir = TestDir::new();
    dir.file(".gitkeep/x", "");
    dir.link(".gitignore", dir.outside().join("precious"));
    let keep = [".gitkeep", ".gitignore"];
    assert!(!dir.workspace.is_empty_but(&keep).expect("look"));
    assert!(dir.workspace.clear(&keep).expect("clear").is_empty());
    assert!(dir.names().is_empty());
    dir.assert_outside_is_whole();
}

#[test]
fn fifty_thousand_levels() {
    let dir = TestDir::in_memory();
    dig(&dir.path(""), 50_000);
    dir.file("wide/x", "");
    (0..2_000).for_each(|n| fs::create_dir(dir.path(format!("wide/{n}"))).expect("mkdir"));
    assert!(dir.workspace.clear(&[]).expect("clear").is_empty());
    assert!(dir.names().is_empty());
}

#[test]
fn deep_trees_go_by_name_too() {
    let dir = TestDir::new();
    dir.file("a/b/x", "");
    dig(&dir.path("a/b"), 1_000);
    assert!(dir.workspace.remove(Path::new("a/b")).expect("remove"));
    assert_eq!(dir.names(), ["a"]);
    assert!(
        fs::read_dir(dir.path("a"))
            .expect("readdir")
            .next()
            .is_none()
    );
}

#[test]
fn locked_folders_go() {
    let dir = TestDir::new();
    // Deep enough that a locked folder has to be moved, too.
    let deep = "l/".repeat(70);
    dir.file(&format!("{deep}x/y"), "");
    for levels in (1..=70).rev() {
        dir.chmod(
            &"l/".repeat(levels),
            if levels % 2 == 0 { 0o000 } else { 0o500 },
        );
    }
    dir.chmod("", 0o000);
    assert!(dir.workspace.clear(&[]).expect("clear").is_empty());
    assert!(dir.names().is_empty());
}

#[test]
fn links_on_the_way_are_not_followed() {
    let dir = TestDir::new();
    dir.file("real/x", "");
    symlink("real", dir.path("l")).expect("symlink");
    dir.link("out", dir.outside());
    assert!(!dir.workspace.remove(Path::new("l/x")).expect("remove"));
    assert!(
        !dir.workspace
            .remove(Path::new("out/precious"))
            .expect("remove")
    );
    assert!(!dir.workspace.remove(Path::new("real/x/y")).expect("remove"));
    assert!(dir.workspace.remove(Path::new("out")).expect("remove"));
    assert_eq!(dir.names(), ["l", "real"]);
    assert!(dir.path("real/x").exists());
    dir.assert_outside_is_whole();
}

#[test]
fn mounts_stay_and_are_named() {
    let dir = TestDir::new();
    dir.file("a/m/x", "");
    dir.file("a/gone/x", "");
    dir.file("gone", "");
    if !mount(&dir.outside(), &dir.path("a/m")) {
        return;
    }
    let stuck = dir.workspace.clear(&[]).expect("clear");
    assert!(
        stuck.len() == 1 && stuck[0].starts_with("a/m ("),
        "{stuck:?}"
    );
    assert_eq!(dir.names(), ["a"]);
    assert!(!dir.path("a/gone").exists());
    dir.assert_outside_is_whole();
    unmount(&dir.path("a/m"));
}

#[test]
fn immutable_files_stay_and_are_named() {
    let dir = TestDir::new();
    dir.file("a/fixed", "");
    dir.file("a/gone", "");
    let attribute = |sign: &str| {
        Command::new("chattr")
            .arg(sign)
            .arg(dir.path("a/fixed"))
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !can_run(attribute("+i"), "chattr +i") {
        return;
    }
    let stuck = dir.workspace.clear(&[]).expect("clear");
    assert!(attribute("-i"));
    assert!(
        stuck.len() == 1 && stuck[0].starts_with("a/fixed ("),
        "{stuck:?}"
    );
    assert!(!dir.path("a/gone").exists());
}
