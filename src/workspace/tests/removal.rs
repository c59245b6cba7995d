//! Emptying: deep, locked, linked and mounted trees.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat};

use crate::workspace::tests::{Place, mount, unmount};

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
    let place = Place::new();
    for path in ["a", "b/c/d", ".gitkeep", ".gitignore", "b/.gitkeep"] {
        place.file(path, "");
    }
    place.link("out", place.outside());
    place.link("b/out", place.outside().join("precious"));
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    assert!(
        place
            .workspace
            .clear(&[".gitkeep", ".gitignore"])
            .expect("clear")
            .is_empty()
    );
    assert_eq!(place.names(), [".gitignore", ".gitkeep"]);
    assert!(
        place
            .workspace
            .is_empty_but(&[".gitkeep", ".gitignore"])
            .expect("look")
    );
    assert!(!place.workspace.is_empty_but(&[".gitkeep"]).expect("look"));
    place.assert_outside_is_whole();
}

#[test]
fn only_regular_files_are_kept() {
    let place = Place::new();
    place.file(".gitkeep/x", "");
    place.link(".gitignore", place.outside().join("precious"));
    let keep = [".gitkeep", ".gitignore"];
    assert!(!place.workspace.is_empty_but(&keep).expect("look"));
    assert!(place.workspace.clear(&keep).expect("clear").is_empty());
    assert!(place.names().is_empty());
    place.assert_outside_is_whole();
}

#[test]
fn fifty_thousand_levels() {
    let place = Place::in_memory();
    dig(&place.path(""), 50_000);
    place.file("wide/x", "");
    (0..2_000).for_each(|n| fs::create_dir(place.path(format!("wide/{n}"))).expect("mkdir"));
    assert!(place.workspace.clear(&[]).expect("clear").is_empty());
    assert!(place.names().is_empty());
}

#[test]
fn deep_trees_go_by_name_too() {
    let place = Place::new();
    place.file("a/b/x", "");
    dig(&place.path("a/b"), 1_000);
    assert!(place.workspace.remove(Path::new("a/b")).expect("remove"));
    assert_eq!(place.names(), ["a"]);
    assert!(
        fs::read_dir(place.path("a"))
            .expect("readdir")
            .next()
            .is_none()
    );
}

#[test]
fn locked_folders_go() {
    let place = Place::new();
    // Deep enough that a locked folder has to be moved, too.
    let deep = "l/".repeat(70);
    place.file(&format!("{deep}x/y"), "");
    for levels in (1..=70).rev() {
        place.chmod(
            &"l/".repeat(levels),
            if levels % 2 == 0 { 0o000 } else { 0o500 },
        );
    }
    place.chmod("", 0o000);
    assert!(place.workspace.clear(&[]).expect("clear").is_empty());
    assert!(place.names().is_empty());
}

#[test]
fn links_on_the_way_are_not_followed() {
    let place = Place::new();
    place.file("real/x", "");
    symlink("real", place.path("l")).expect("symlink");
    place.link("out", place.outside());
    assert!(!place.workspace.remove(Path::new("l/x")).expect("remove"));
    assert!(
        !place
            .workspace
            .remove(Path::new("out/precious"))
            .expect("remove")
    );
    assert!(
        !place
            .workspace
            .remove(Path::new("real/x/y"))
            .expect("remove")
    );
    assert!(place.workspace.remove(Path::new("out")).expect("remove"));
    assert_eq!(place.names(), ["l", "real"]);
    assert!(place.path("real/x").exists());
    place.assert_outside_is_whole();
}

#[test]
fn mounts_stay_and_are_named() {
    let place = Place::new();
    place.file("a/m/x", "");
    place.file("a/gone/x", "");
    place.file("gone", "");
    if !mount(&place.outside(), &place.path("a/m")) {
        return;
    }
    let stuck = place.workspace.clear(&[]).expect("clear");
    assert!(
        stuck.len() == 1 && stuck[0].starts_with("a/m ("),
        "{stuck:?}"
    );
    assert_eq!(place.names(), ["a"]);
    assert!(!place.path("a/gone").exists());
    place.assert_outside_is_whole();
    unmount(&place.path("a/m"));
}

#[test]
fn immutable_files_stay_and_are_named() {
    let place = Place::new();
    place.file("a/fixed", "");
    place.file("a/gone", "");
    let attribute = |sign: &str| {
        Command::new("chattr")
            .arg(sign)
            .arg(place.path("a/fixed"))
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !attribute("+i") {
        return;
    }
    let stuck = place.workspace.clear(&[]).expect("clear");
    assert!(attribute("-i"));
    assert!(
        stuck.len() == 1 && stuck[0].starts_with("a/fixed ("),
        "{stuck:?}"
    );
    assert!(!place.path("a/gone").exists());
}
