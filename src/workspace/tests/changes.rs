//! The changes of an answer: what is written, what is refused, and what a second writer cannot do.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::error::Error;
use crate::workspace::tests::{Place, delete, mount, unmount, write};
use crate::workspace::{ChangeRefusal, FileChange};

#[test]
fn files_are_written_and_deleted() {
    let place = Place::new();
    place.file("old/deep/x", "x");
    place.file("old.py", "x");
    let changes = [
        write("a.py", "1"),
        write("pkg/sub/b.py", "2"),
        delete("old"),
        delete("old.py"),
        delete("never/was"),
    ];
    place.change(&changes).expect("change");
    assert_eq!(
        (place.read("a.py"), place.read("pkg/sub/b.py")),
        ("1".into(), "2".into())
    );
    assert_eq!(place.names(), ["a.py", "pkg"]);
}

#[test]
fn the_same_changes_again_lead_to_the_same_tree() {
    let place = Place::new();
    place.file("d/old", "x");
    place.file("real/x", "x");
    place.link("l", "real");
    let changes = [
        delete("d"),
        write("d/new", "1"),
        delete("l"),
        write("l/f", "2"),
        delete("real/x"),
    ];
    for _ in 0..3 {
        place.change(&changes).expect("change");
        assert_eq!(place.names(), ["d", "l", "real"]);
        assert!(!place.path("d/old").exists() && !place.path("real/f").exists());
        assert_eq!(
            (place.read("d/new"), place.read("l/f")),
            ("1".into(), "2".into())
        );
    }
}

#[test]
fn many_files_at_once() {
    let place = Place::new();
    let changes: Vec<FileChange> = (0..500)
        .map(|n| write(&format!("d{}/f{n}", n % 7), &n.to_string()))
        .collect();
    place.change(&changes).expect("change");
    assert_eq!(place.read("d2/f499"), "499");
    assert_eq!(place.names().len(), 7);
}

#[test]
fn modes() {
    let place = Place::new();
    place.file("script", "old");
    place.chmod("script", 0o4755);
    place.file("locked", "old");
    place.chmod("locked", 0o000);
    place.file("plain", "");
    place
        .change(&[
            write("script", "new"),
            write("locked", "new"),
            write("fresh", "new"),
        ])
        .expect("change");
    assert_eq!((place.mode("script"), place.mode("locked")), (0o755, 0o600));
    assert_eq!(place.mode("fresh"), place.mode("plain"));
    place
        .change(&[
            write("new/run", "#!/bin/sh\n"),
            write("plain", "#!/bin/sh\n"),
        ])
        .expect("change");
    assert_eq!(
        place.mode("new/run"),
        place.mode("fresh") | (place.mode("fresh") & 0o444) >> 2
    );
    assert_eq!(
        place.mode("plain"),
        place.mode("fresh"),
        "a file that is there keeps its mode"
    );
    // The same answer once more, as after a crash.
    place
        .change(&[write("new/run", "#!/bin/sh\n")])
        .expect("change");
    assert_eq!(
        place.mode("new/run") & 0o111,
        (place.mode("fresh") & 0o444) >> 2
    );
}

#[test]
fn locked_folders_are_opened_up() {
    let place = Place::new();
    place.file("d/e/old", "x");
    place.file("r/old", "x");
    place.chmod("d/e", 0o000);
    place.chmod("d", 0o000);
    place.chmod("r", 0o555);
    place
        .change(&[
            write("d/e/new", "1"),
            delete("d/e/old"),
            write("r/new", "1"),
            delete("r/old"),
        ])
        .expect("change");
    assert_eq!(
        (place.read("d/e/new"), place.read("r/new")),
        ("1".into(), "1".into())
    );
    assert!(!place.path("d/e/old").exists() && !place.path("r/old").exists());
}

#[test]
fn hard_links_are_broken() {
    let place = Place::new();
    fs::hard_link(place.outside().join("precious"), place.path("f")).expect("link");
    place.change(&[write("f", "new")]).expect("change");
    assert_eq!(place.read("f"), "new");
    place.assert_outside_is_whole();
}

#[test]
fn files_and_folders_in_each_others_way() {
    let place = Place::new();
    place.file("file", "x");
    place.file("folder/x", "x");
    place.assert_conflict(&[write("file/x", "")]);
    place.assert_conflict(&[write("folder", "")]);
    place.assert_conflict(&[write("new", ""), write("new/x", "")]);
    match place.workspace.check(&[write("file/x/y", "")]) {
        Err(ChangeRefusal::Conflict(text)) => assert!(text.contains("`file` is a file"), "{text}"),
        other => panic!("{other:?}"),
    }
    place
        .change(&[
            write("file/x", "1"),
            delete("file"),
            delete("folder"),
            write("folder", "2"),
        ])
        .expect("change");
    assert_eq!(
        (place.read("file/x"), place.read("folder")),
        ("1".into(), "2".into())
    );
}

#[test]
fn links_inside_are_folders_to_go_through_and_files_to_replace() {
    let place = Place::new();
    place.file("real/x", "x");
    place.file("other/deep/x", "x");
    place.link("l", "real");
    place.link("real/up", "../other/./deep/..");
    place.link("f", "real/x");
    place.link("loop", "loop");
    place.link("made", "not/yet");
    let changes = [
        write("l/a", "1"),
        write("l/up/b", "2"),
        write("f", "3"),
        write("loop", "4"),
        write("made/c", "5"),
        delete("l/x"),
    ];
    for _ in 0..2 {
        place.change(&changes).expect("change");
        assert_eq!(
            (place.read("real/a"), place.read("other/b"), place.read("f")),
            ("1".into(), "2".into(), "3".into())
        );
        assert_eq!(
            (place.read("loop"), place.read("not/yet/c")),
            ("4".into(), "5".into())
        );
        assert!(
            !place.path("real/x").exists()
                && place.path("l").is_symlink()
                && !place.path("f").is_symlink()
        );
    }
}

#[test]
fn conflicts_through_links() {
    let place = Place::new();
    place.file("real/x", "x");
    place.link("l", "real");
    place.link("m", "l");
    place.link("one", "two");
    place.link("two", "one");
    place.assert_conflict(&[write("l/y", ""), write("real/y", "")]);
    place.assert_conflict(&[write("l", ""), write("m/y", "")]);
    place.assert_conflict(&[write("l/x/y", "")]);
    place.assert_conflict(&[write("one/x", "")]);
    place
        .change(&[delete("l"), write("real/y", "1"), write("l/y", "2")])
        .expect("change");
    assert_eq!(
        (place.read("real/y"), place.read("l/y")),
        ("1".into(), "2".into())
    );
}

#[test]
fn links_that_lead_out_are_violations() {
    let place = Place::new();
    place.file("d/x", "");
    let outside = place.outside();
    place.link("absolute", &outside);
    place.link("climbing", "../outside");
    place.link("d/climbing", "../../outside");
    place.link("dangling", "../outside/new");
    place.link("later", "missing/../../outside/new");
    place.link("file", outside.join("precious"));
    place.link("chain", "chain2");
    place.link("chain2", "d/climbing");
    place.link("proc", "/proc/self/cwd/..");
    place.link("inside", place.path("d"));
    for link in [
        "absolute",
        "climbing",
        "d/climbing",
        "dangling",
        "later",
        "file",
        "chain",
        "proc",
        "inside",
    ] {
        place.assert_violation(&[write("fine", "1"), write(&format!("{link}/f"), "")]);
        place.assert_violation(&[write("fine", "1"), write(link, "")]);
        place.assert_violation(&[write("fine", "1"), delete(&format!("{link}/precious"))]);
        assert!(!place.path("fine").exists(), "{link}");
    }
}

#[test]
fn a_deleted_link_goes_and_its_target_stays() {
    let place = Place::new();
    place.link("out", place.outside());
    place.link("file", place.outside().join("precious"));
    place
        .change(&[delete("out"), delete("file"), write("out/f", "1")])
        .expect("change");
    assert_eq!(place.names(), ["out"]);
    place.assert_outside_is_whole();
}

#[test]
fn special_files_are_violations_at_once() {
    let place = Place::new();
    mknodat(CWD, place.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).expect("bind");
    let start = Instant::now();
    for name in ["pipe", "socket", "pipe/x"] {
        place.assert_violation(&[write(name, "")]);
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    place
        .change(&[delete("pipe"), write("pipe", "1")])
        .expect("change");
    assert_eq!(place.read("pipe"), "1");
}

#[test]
fn mounts_are_never_entered() {
    let place = Place::new();
    place.file("d/m/x", "");
    if !mount(&place.outside(), &place.path("d/m")) {
        return;
    }
    for changes in [
        [write("d/m/f", "")],
        [write("d/m", "")],
        [delete("d/m/precious")],
        [delete("d/m")],
    ] {
        place.assert_violation(&changes);
    }
    assert!(place.workspace.apply(&[delete("d")]).is_err());
    place.assert_outside_is_whole();
    unmount(&place.path("d/m"));
}

#[test]
fn left_overs_are_swept() {
    let place = Place::new();
    place.file(".orchestrator-stage-1/0", "x");
    place.file(".orchestrator-stage-2", "x");
    place.file("a", "x");
    place.workspace.sweep().expect("sweep");
    assert_eq!(place.names(), ["a"]);
}

/// Swaps the folder `d` and a link to the outside until told to end, or for a minute.
fn swap(place: &Place, done: &AtomicBool) {
    let (folder, link) = (place.path("d"), place.path("swap"));
    let start = Instant::now();
    let mut folders = 0;
    for round in 0.. {
        if done.load(Ordering::Relaxed) || start.elapsed() > Duration::from_secs(60) {
            break;
        }
        let _ = renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE);
        // Pauses of all lengths hit all steps of a write, and let some through.
        std::thread::sleep(Duration::from_micros(round * 37 % 2000));
        // A forced write replaces the link by a folder; it is put up again so that the race goes on.
        if !folder.is_symlink() && !link.is_symlink() {
            folders += 1;
            let _ = fs::rename(&link, place.path(format!("old{folders}")));
            let _ = symlink(place.outside(), &link);
        }
    }
}

/// Tries until enough went well, and returns how often it did and did not.
fn race(enough: usize, attempt: impl Fn(&Place, usize) -> bool) -> (usize, usize) {
    let place = Place::in_memory();
    place.file("d/x", "");
    place.link("swap", place.outside());
    let done = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        scope.spawn(|| swap(&place, &done));
        let (mut well, mut tries) = (0, 0);
        while well < enough && tries < 30_000 {
            well += usize::from(attempt(&place, tries));
            tries += 1;
        }
        done.store(true, Ordering::Relaxed);
        (well, tries - well)
    });
    place.assert_outside_is_whole();
    counts
}

#[test]
fn a_swap_of_folder_and_link_leads_nowhere() {
    let broken = Mutex::new(Vec::new());
    let (written, refused) = race(2_000, |place, n| {
        let change = if n % 2 == 0 {
            delete("d/precious")
        } else {
            write(&format!("d/e{n}/f"), "x")
        };
        let done = place.workspace.apply(&[change]);
        if let Err(error @ Error::Io { .. }) = &done {
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
fn a_swap_leads_forced_writes_nowhere_either() {
    let (written, _) = race(2_000, |place, n| {
        let path = format!("d/e{n}/f");
        let put = place
            .workspace
            .put_file(Path::new(&path), &mut "x".as_bytes(), 0o644, false)
            .is_ok();
        let _ = place.workspace.remove(Path::new("d/precious"));
        let _ = place.workspace.make_dir(Path::new("d/precious"), 0o700);
        put
    });
    assert!(written > 0);
}
