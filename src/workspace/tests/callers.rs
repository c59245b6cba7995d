//! Hostile scenes, tried through every caller: answers, inputs, snapshots, the editor and apply.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::workspace::snapshot::Snapshot;
use crate::workspace::tests::{TestDir, as_ordinary_user, mount, unmount, write};
use crate::workspace::{PathError, ProjectDir, ReadOutcome};

const NEW: &str = "new";
const CALLERS: [Caller; 4] = [
    Caller::Answer,
    Caller::Input,
    Caller::Restore,
    Caller::Editor,
];

/// The code that writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    Answer,
    /// Protection puts a file of the user in its place.
    Input,
    /// A snapshot from before the attack is restored.
    Restore,
    Editor,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The file is at the path itself, without links.
    Written,
    /// The file is at this path, where a link leads.
    Through(&'static str),
    Refused,
}

use Outcome::{Refused, Through, Written};

/// An attack on the way to a file, and what becomes of the write: by answers, by inputs and snapshots, by the editor.
struct Scene {
    name: &'static str,
    /// The file that is written; it is there, with an old content, before the attack.
    path: &'static str,
    attack: fn(&TestDir),
    answer: Outcome,
    forced: Outcome,
    editor: Outcome,
}

impl Scene {
    fn expected(&self, caller: Caller) -> Outcome {
        match caller {
            Caller::Answer => self.answer,
            Caller::Input | Caller::Restore => self.forced,
            Caller::Editor => self.editor,
        }
    }
}

const SCENES: [Scene; 20] = [
    Scene {
        name: "an absolute link out on the way",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", dir.outside()),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a climbing link out on the way",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", "../outside"),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a climbing link out further down",
        path: "d/e/f",
        attack: |dir| replace_by_link(dir, "d/e", "../../outside"),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a link to nothing outside",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", "../outside/new"),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a link that leads out behind a missing folder",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", "missing/../../outside"),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a chain of links that leads out",
        path: "d/f",
        attack: |dir| {
            dir.link("chain", "../outside");
            replace_by_link(dir, "d", "chain");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a magic link",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", "/proc/self/cwd/.."),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a link out in place of the file",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d/f", dir.outside().join("precious")),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a link inside on the way",
        path: "d/f",
        attack: |dir| {
            dir.file("real/x", "x");
            replace_by_link(dir, "d", "real");
        },
        answer: Through("real/f"),
        forced: Written,
        editor: Through("real/f"),
    },
    Scene {
        name: "an absolute link inside on the way",
        path: "d/f",
        attack: |dir| {
            dir.file("real/x", "x");
            replace_by_link(dir, "d", dir.path("real"));
        },
        answer: Refused,
        forced: Written,
        editor: Through("real/f"),
    },
    Scene {
        name: "a link inside in place of the file",
        path: "d/f",
        attack: |dir| {
            dir.file("d/real", "old");
            replace_by_link(dir, "d/f", "real");
        },
        answer: Written,
        forced: Written,
        editor: Through("d/real"),
    },
    Scene {
        name: "a link to a missing file inside",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d/f", "../not/yet"),
        answer: Written,
        forced: Written,
        editor: Through("not/yet"),
    },
    Scene {
        name: "a link to itself",
        path: "d/f",
        attack: |dir| replace_by_link(dir, "d", "d"),
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "more links than are followed",
        path: "d/f",
        attack: |dir| {
            dir.file("l0/x", "");
            (1..=40).for_each(|n| dir.link(&format!("l{n}"), format!("l{}", n - 1)));
            replace_by_link(dir, "d", "l40");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a pipe in place of the file",
        path: "d/f",
        attack: |dir| {
            fs::remove_file(dir.path("d/f")).expect("rm");
            mknodat(CWD, dir.path("d/f"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a pipe on the way",
        path: "d/f",
        attack: |dir| {
            fs::remove_dir_all(dir.path("d")).expect("rm");
            mknodat(CWD, dir.path("d"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a socket in place of the file",
        path: "d/f",
        attack: |dir| {
            fs::remove_file(dir.path("d/f")).expect("rm");
            drop(UnixListener::bind(dir.path("d/f")).expect("bind"));
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a file on the way",
        path: "d/f",
        attack: |dir| {
            fs::remove_dir_all(dir.path("d")).expect("rm");
            dir.file("d", "x");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a folder in place of the file",
        path: "d/f",
        attack: |dir| {
            fs::remove_file(dir.path("d/f")).expect("rm");
            dir.file("d/f/x", "x");
        },
        answer: Refused,
        forced: Written,
        editor: Refused,
    },
    Scene {
        name: "a hard link to a file outside",
        path: "d/f",
        attack: |dir| {
            fs::remove_file(dir.path("d/f")).expect("rm");
            fs::hard_link(dir.outside().join("precious"), dir.path("d/f")).expect("link");
        },
        answer: Written,
        forced: Written,
        editor: Written,
    },
];

fn replace_by_link(dir: &TestDir, path: &str, target: impl AsRef<Path>) {
    let at = dir.path(path);
    match at.is_dir() {
        true => fs::remove_dir_all(&at).expect("rm"),
        false => fs::remove_file(&at).expect("rm"),
    }
    symlink(target, at).expect("symlink");
}

/// Writes a file as the editor does: `edit` where it exists, else `create`.
pub(super) fn edit(dir: &TestDir, path: &str) -> Result<(), PathError> {
    let project = ProjectDir::open(&dir.path("")).expect("open");
    match project.read(Path::new(path)) {
        Ok(file) => project.write(&file.path, NEW.as_bytes(), Some(&file.meta)),
        Err(PathError::Missing) => {
            let found = project.find_new(Path::new(path))?;
            let old = found.existing()?;
            project.write(&found, NEW.as_bytes(), old.as_ref())
        }
        Err(error) => Err(error),
    }
}

/// Attacks a tree and lets a caller write; returns whether it did.
fn attempt(caller: Caller, dir: &TestDir, path: &str, attack: impl FnOnce(&TestDir)) -> bool {
    dir.file(path, "old");
    if caller == Caller::Restore {
        dir.file(path, NEW);
        let snapshot =
            Snapshot::take(&dir.workspace, &std::env::temp_dir(), &|_| false).expect("take");
        attack(dir);
        return snapshot
            .restore(&dir.workspace, &|_| panic!("copied"))
            .is_ok();
    }
    attack(dir);
    match caller {
        Caller::Answer => dir.change(&[write(path, NEW)]).is_ok(),
        Caller::Editor => edit(dir, path).is_ok(),
        Caller::Input | Caller::Restore => dir
            .workspace
            .put_file(Path::new(path), &mut NEW.as_bytes(), 0o644, true)
            .is_ok(),
    }
}

/// Whether a temporary entry was left anywhere.
fn is_clean(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).expect("readdir");
    entries.map(|entry| entry.expect("entry")).all(|entry| {
        let is_folder = entry.file_type().expect("type").is_dir();
        !entry.file_name().to_string_lossy().starts_with(".orch")
            && (!is_folder || is_clean(&entry.path()))
    })
}

#[test]
fn no_scene_leads_a_caller_out() {
    let start = Instant::now();
    for scene in &SCENES {
        for caller in CALLERS {
            let dir = TestDir::in_memory();
            let done = attempt(caller, &dir, scene.path, scene.attack);
            let context = format!("{}, {caller:?}", scene.name);
            let expected = scene.expected(caller);
            assert_eq!(done, expected != Refused, "{context}");
            let at = match expected {
                Refused => None,
                Written => Some(scene.path),
                Through(real) => Some(real),
            };
            if let Some(at) = at {
                assert_eq!(dir.read(at), NEW, "{context}");
                let real = dir.path(at).canonicalize().expect("canonicalize");
                let top = dir.path("").canonicalize().expect("canonicalize");
                assert_eq!(real, top.join(at), "{context}");
            }
            dir.assert_outside_is_whole();
            assert!(is_clean(&dir.path("")), "{context}");
        }
    }
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "a pipe was opened"
    );
}

#[test]
fn no_scene_lets_a_caller_read_outside() {
    for scene in &SCENES {
        let dir = TestDir::in_memory();
        dir.file(scene.path, "old");
        (scene.attack)(&dir);
        let is_hard_link = scene.name.starts_with("a hard link");
        for path in [scene.path, "d/precious", "d/e/precious"] {
            let read = dir.workspace.read_file(Path::new(path), 100).expect(path);
            let project = ProjectDir::open(&dir.path("")).expect("open");
            let viewed = project.read(Path::new(path)).ok().map(|file| file.content);
            for content in [
                match read {
                    ReadOutcome::File(content) => Some(content),
                    _ => None,
                },
                viewed,
                project.read_straight(Path::new(path), 100).ok(),
            ] {
                let is_precious = content.is_some_and(|content| content == b"precious");
                assert!(!is_precious || is_hard_link, "{}: {path}", scene.name);
            }
        }
        let copies = tempfile::tempdir().expect("tempdir");
        let _snapshot = Snapshot::take(&dir.workspace, copies.path(), &|_| false).expect("take");
        assert!(
            is_hard_link || !holds_precious(copies.path()),
            "{}",
            scene.name
        );
    }
}

/// Whether a file below a folder has the content that is outside.
pub(super) fn holds_precious(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).expect("readdir");
    entries.map(|entry| entry.expect("entry")).any(|entry| {
        match entry.file_type().expect("type").is_dir() {
            true => holds_precious(&entry.path()),
            false => fs::read(entry.path()).is_ok_and(|content| content == b"precious"),
        }
    })
}

#[test]
fn no_caller_writes_into_a_mount() {
    for caller in CALLERS {
        for (path, is_file) in [("d/f", false), ("d/new/f", false), ("d/f", true)] {
            let dir = TestDir::new();
            dir.file("d/f", "old");
            let (what, at) = match is_file {
                true => (dir.outside().join("precious"), dir.path("d/f")),
                false => (dir.outside(), dir.path("d")),
            };
            let mut is_mounted = false;
            let done = attempt(caller, &dir, path, |_| is_mounted = mount(&what, &at));
            if !is_mounted {
                return;
            }
            unmount(&at);
            assert!(!done, "{caller:?} {path}");
            dir.assert_outside_is_whole();
        }
    }
}

#[test]
fn the_editor_alone_reads_what_is_mounted() {
    let dir = TestDir::new();
    dir.file("d/x", "");
    if !mount(&dir.outside(), &dir.path("d")) {
        return;
    }
    let path = Path::new("d/precious");
    let read = dir.workspace.read_file(path, 100).expect("read");
    let project = ProjectDir::open(&dir.path("")).expect("open");
    let viewed = project.read(path).map(|file| file.content);
    let copies = tempfile::tempdir().expect("tempdir");
    let _snapshot = Snapshot::take(&dir.workspace, copies.path(), &|_| false).expect("take");
    let is_copied = holds_precious(copies.path());
    unmount(&dir.path("d"));
    assert_eq!((read, is_copied), (ReadOutcome::Other, false));
    assert_eq!(viewed, Ok(b"precious".into()));
}

#[test]
fn permissions_stop_the_editor_alone() {
    as_ordinary_user(|| {
        for (locked, mode) in [("d", 0o500), ("d/f", 0o400), ("d", 0o000)] {
            for caller in CALLERS {
                let dir = TestDir::new();
                let done = attempt(caller, &dir, "d/f", |dir| dir.chmod(locked, mode));
                let name = format!("{caller:?} {locked} {mode:o}");
                assert_eq!(done, caller != Caller::Editor, "{name}");
                dir.chmod("d", 0o700);
                dir.chmod("d/f", 0o600);
                let expected = if done { NEW } else { "old" };
                assert_eq!(dir.read("d/f"), expected, "{name}");
            }
        }
    });
}

#[test]
fn set_id_bits_are_dropped_and_other_modes_kept() {
    for (caller, mode) in [
        (Caller::Answer, 0o751),
        (Caller::Input, 0o644),
        (Caller::Editor, 0o751),
    ] {
        let dir = TestDir::new();
        assert!(attempt(caller, &dir, "f", |dir| dir.chmod("f", 0o6751)));
        assert_eq!(dir.mode("f"), mode, "{caller:?}");
    }
}
