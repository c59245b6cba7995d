//! Races, tried through every caller: a folder and a link to the outside are swapped while files are written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::workspace::snapshot::Snapshot;
use crate::workspace::tests::callers::{edit, holds_precious};
use crate::workspace::tests::{TestDir, write};
use crate::workspace::{CarriedContent, CarriedEntry, CarryFolder, ProjectDir};

/// Swaps the folder `d` and a link to the outside until `done`, or for a minute.
fn swap(dir: &TestDir, done: &AtomicBool) {
    let (folder, link) = (dir.path("d"), dir.path("swap"));
    let start = Instant::now();
    let mut folders = 0;
    for round in 0.. {
        if done.load(Ordering::Relaxed) || start.elapsed() > Duration::from_secs(60) {
            break;
        }
        let _ = renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE);
        // Pauses of all lengths hit all steps of a write, and let some through.
        std::thread::sleep(Duration::from_micros(round * 37 % 2000));
        // A forced write replaces the link by a folder; a new one keeps the race going.
        if !folder.is_symlink() && !link.is_symlink() {
            folders += 1;
            let _ = fs::rename(&link, dir.path(format!("old{folders}")));
            let _ = symlink(dir.outside(), &link);
        }
    }
}

/// Tries until `enough` attempts succeeded; returns how many did and did not.
fn race(enough: usize, attempt: impl Fn(&TestDir, usize) -> bool) -> (usize, usize) {
    let dir = TestDir::in_memory();
    dir.file("d/x", "");
    dir.link("swap", dir.outside());
    let done = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        scope.spawn(|| swap(&dir, &done));
        let (mut succeeded, mut tries) = (0, 0);
        while succeeded < enough && tries < 30_000 {
            succeeded += usize::from(attempt(&dir, tries));
            tries += 1;
        }
        done.store(true, Ordering::Relaxed);
        (succeeded, tries - succeeded)
    });
    dir.assert_outside_is_whole();
    counts
}

#[test]
fn a_swap_of_folder_and_link_does_not_lead_answers_out() {
    let broken = std::sync::Mutex::new(Vec::new());
    let (written, refused) = race(2_000, |dir, n| {
        let change = match n % 2 {
            0 => crate::workspace::tests::delete("d/precious"),
            _ => write(&format!("d/e{n}/f"), "x"),
        };
        let done = dir.workspace.apply(&[change]);
        if let Err(error @ crate::error::Error::Io { .. }) = &done {
            broken.lock().expect("lock").push(error.to_string());
        }
        n % 2 == 1 && done.is_ok()
    });
    assert_eq!(broken.into_inner().expect("lock"), [""; 0]);
    assert!(
        written > 0 && refused > 0,
        "{written} written, {refused} refused"
    );
}

#[test]
fn a_swap_of_folder_and_link_does_not_lead_inputs_out() {
    let (written, _) = race(2_000, |dir, n| {
        let path = format!("d/e{n}/f");
        let put = dir
            .workspace
            .put_file(Path::new(&path), &mut "x".as_bytes(), 0o644, false)
            .is_ok();
        let _ = dir.workspace.remove(Path::new("d/precious"));
        let _ = dir.workspace.make_dir(Path::new("d/precious"), 0o700);
        put
    });
    assert!(written > 0);
}

#[test]
fn a_swap_of_folder_and_link_does_not_lead_snapshots_out() {
    let (restored, _) = race(150, |dir, n| {
        let copies = tempfile::tempdir_in("/dev/shm")
            .unwrap_or_else(|_| tempfile::tempdir().expect("tempdir"));
        let Ok(snapshot) = Snapshot::take(&dir.workspace, copies.path(), &|_| false) else {
            return false;
        };
        assert!(!holds_precious(copies.path()));
        let _ = dir.workspace.remove(Path::new("d/x"));
        let path = format!("d/new{n}");
        let _ = dir
            .workspace
            .put_file(Path::new(&path), &mut "x".as_bytes(), 0o644, false);
        snapshot
            .restore(&dir.workspace, &|_| panic!("copied"))
            .is_ok()
    });
    assert!(restored > 0);
}

#[test]
fn a_swap_of_folder_and_link_does_not_lead_the_editor_out() {
    let (written, refused) = race(1_000, |dir, n| {
        let project = ProjectDir::open(&dir.path("")).expect("open");
        for path in ["d/precious", "swap/precious"] {
            assert!(project.read(Path::new(path)).is_err());
            assert!(project.read_straight(Path::new(path), 100).is_err());
        }
        edit(dir, &format!("d/e{n}/f")).is_ok() && edit(dir, &format!("d/e{n}/f")).is_ok()
    });
    assert!(
        written > 0 && refused > 0,
        "{written} written, {refused} refused"
    );
}

#[test]
fn a_swap_of_folder_and_link_does_not_lead_apply_out() {
    let (written, refused) = race(1_000, |dir, n| {
        let folder = CarryFolder::open(&dir.path("")).expect("open");
        let [made, staged, placed] = ["", "/.new", "/f"].map(|name| format!("d/e{n}{name}"));
        for path in ["d/precious", "swap/precious"].map(Path::new) {
            let found = folder.look(path, 100).expect("look");
            assert!(!matches!(found, CarriedEntry::File { .. }), "{found:?}");
            let _ = folder.remove(path);
        }
        let content = CarriedContent::File {
            content: b"x",
            is_executable: false,
            like: None,
            sync: false,
        };
        let (staged, placed) = (Path::new(&staged), Path::new(&placed));
        folder.make_folder(Path::new(&made), None).is_ok()
            && folder.stage(staged, content).is_ok()
            && folder.rename_new(staged, placed).is_ok()
    });
    assert!(
        written > 0 && refused > 0,
        "{written} written, {refused} refused"
    );
}
