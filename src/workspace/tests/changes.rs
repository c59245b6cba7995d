//! The changes of an answer: what is written, what is refused, and what a second writer cannot do.

use std::fs;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::workspace::tests::{TestDir, delete, mount, unmount, write};
use crate::workspace::{ChangeRefusal, FileChange};

#[test]
fn files_are_written_and_deleted() {
    let dir = TestDir::new();
    dir.file("old/deep/x", "x");
    dir.file("old.py", "x");
    let changes = [
        write("a.py", "1"),
        write("pkg/sub/b.py", "2"),
        delete("old"),
        delete("old.py"),
        delete("never/was"),
    ];
    dir.change(&changes).expect("change");
    assert_eq!(
        (dir.read("a.py"), dir.read("pkg/sub/b.py")),
        ("1".into(), "2".into())
    );
    assert_eq!(dir.names(), ["a.py", "pkg"]);
}

#[test]
fn the_same_changes_again_lead_to_the_same_tree() {
    let dir = TestDir::new();
    dir.file("d/old", "x");
    dir.file("real/x", "x");
    dir.link("l", "real");
    let changes = [
        delete("d"),
        write("d/new", "1"),
        delete("l"),
        write("l/f", "2"),
        delete("real/x"),
    ];
    for _ in 0..3 {
        dir.change(&changes).expect("change");
        assert_eq!(dir.names(), ["d", "l", "real"]);
        assert!(!dir.path("d/old").exists() && !dir.path("real/f").exists());
        assert_eq!(
            (dir.read("d/new"), dir.read("l/f")),
            ("1".into(), "2".into())
        );
    }
}

#[test]
fn many_files_at_once() {
    let dir = TestDir::new();
    let changes: Vec<FileChange> = (0..500)
        .map(|n| write(&format!("d{}/f{n}", n % 7), &n.to_string()))
        .collect();
    dir.change(&changes).expect("change");
    assert_eq!(dir.read("d2/f499"), "499");
    assert_eq!(dir.names().len(), 7);
}

#[test]
fn modes() {
    let dir = TestDir::new();
    dir.file("script", "old");
    dir.chmod("script", 0o4755);
    dir.file("locked", "old");
    dir.chmod("locked", 0o000);
    dir.file("plain", "");
    dir.change(&[
        write("script", "new"),
        write("locked", "new"),
        write("fresh", "new"),
    ])
    .expect("change");
    assert_eq!((dir.mode("script"), dir.mode("locked")), (0o755, 0o600));
    assert_eq!(dir.mode("fresh"), dir.mode("plain"));
    dir.change(&[
        write("new/run", "#!/bin/sh\n"),
        write("plain", "#!/bin/sh\n"),
    ])
    .expect("change");
    assert_eq!(
        dir.mode("new/run"),
        dir.mode("fresh") | (dir.mode("fresh") & 0o444) >> 2
    );
    assert_eq!(
        dir.mode("plain"),
        dir.mode("fresh"),
        "a file that is there keeps its mode"
    );
    // The same answer once more, as after a crash.
    dir.change(&[write("new/run", "#!/bin/sh\n")])
        .expect("change");
    assert_eq!(
        dir.mode("new/run") & 0o111,
        (dir.mode("fresh") & 0o444) >> 2
    );
}

#[test]
fn locked_folders_are_opened_up() {
    let dir = TestDir::new();
    dir.file("d/e/old", "x");
    dir.file("r/old", "x");
    dir.chmod("d/e", 0o000);
    dir.chmod("d", 0o000);
    dir.chmod("r", 0o555);
    dir.change(&[
        write("d/e/new", "1"),
        delete("d/e/old"),
        write("r/new", "1"),
        delete("r/old"),
    ])
    .expect("change");
    assert_eq!(
        (dir.read("d/e/new"), dir.read("r/new")),
        ("1".into(), "1".into())
    );
    assert!(!dir.path("d/e/old").exists() && !dir.path("r/old").exists());
}

#[test]
fn hard_links_are_broken() {
    let dir = TestDir::new();
    fs::hard_link(dir.outside().join("precious"), dir.path("f")).expect("link");
    dir.change(&[write("f", "new")]).expect("change");
    assert_eq!(dir.read("f"), "new");
    dir.assert_outside_is_whole();
}

#[test]
fn files_and_folders_in_each_others_way() {
    let dir = TestDir::new();
    dir.file("file", "x");
    dir.file("folder/x", "x");
    dir.assert_conflict(&[write("file/x", "")]);
    dir.assert_conflict(&[write("folder", "")]);
    dir.assert_conflict(&[write("new", ""), write("new/x", "")]);
    match dir.workspace.check(&[write("file/x/y", "")]) {
        Err(ChangeRefusal::Conflict(text)) => assert!(text.contains("`file` is a file"), "{text}"),
        other => panic!("{other:?}"),
    }
    dir.change(&[
        write("file/x", "1"),
        delete("file"),
        delete("folder"),
        write("folder", "2"),
    ])
    .expect("change");
    assert_eq!(
        (dir.read("file/x"), dir.read("folder")),
        ("1".into(), "2".into())
    );
}

#[test]
fn links_inside_are_folders_to_go_through_and_files_to_replace() {
    let dir = TestDir::new();
    dir.file("real/x", "x");
    dir.file("other/deep/x", "x");
    dir.link("l", "real");
    dir.link("real/up", "../other/./deep/..");
    dir.link("f", "real/x");
    dir.link("loop", "loop");
    dir.link("made", "not/yet");
    let changes = [
        write("l/a", "1"),
        write("l/up/b", "2"),
        write("f", "3"),
        write("loop", "4"),
        write("made/c", "5"),
        delete("l/x"),
    ];
    for _ in 0..2 {
        dir.change(&changes).expect("change");
        assert_eq!(
            (dir.read("real/a"), dir.read("other/b"), dir.read("f")),
            ("1".into(), "2".into(), "3".into())
        );
        assert_eq!(
            (dir.read("loop"), dir.read("not/yet/c")),
            ("4".into(), "5".into())
        );
        assert!(
            !dir.path("real/x").exists()
                && dir.path("l").is_symlink()
                && !dir.path("f").is_symlink()
        );
    }
}

#[test]
fn conflicts_through_links() {
    let dir = TestDir::new();
    dir.file("real/x", "x");
    dir.link("l", "real");
    dir.link("m", "l");
    dir.link("one", "two");
    dir.link("two", "one");
    dir.assert_conflict(&[write("l/y", ""), write("real/y", "")]);
    dir.assert_conflict(&[write("l", ""), write("m/y", "")]);
    dir.assert_conflict(&[write("l/x/y", "")]);
    dir.assert_conflict(&[write("one/x", "")]);
    dir.change(&[delete("l"), write("real/y", "1"), write("l/y", "2")])
        .expect("change");
    assert_eq!(
        (dir.read("real/y"), dir.read("l/y")),
        ("1".into(), "2".into())
    );
}

#[test]
fn links_that_lead_out_are_violations() {
    let dir = TestDir::new();
    dir.file("d/x", "");
    let outside = dir.outside();
    dir.link("absolute", &outside);
    dir.link("climbing", "../outside");
    dir.link("d/climbing", "../../outside");
    dir.link("dangling", "../outside/new");
    dir.link("later", "missing/../../outside/new");
    dir.link("file", outside.join("precious"));
    dir.link("chain", "chain2");
    dir.link("chain2", "d/climbing");
    dir.link("proc", "/proc/self/cwd/..");
    dir.link("inside", dir.path("d"));
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
        dir.assert_violation(&[write("fine", "1"), write(&format!("{link}/f"), "")]);
        dir.assert_violation(&[write("fine", "1"), write(link, "")]);
        dir.assert_violation(&[write("fine", "1"), delete(&format!("{link}/precious"))]);
        assert!(!dir.path("fine").exists(), "{link}");
    }
}

#[test]
fn a_deleted_link_goes_and_its_target_stays() {
    let dir = TestDir::new();
    dir.link("out", dir.outside());
    dir.link("file", dir.outside().join("precious"));
    dir.change(&[delete("out"), delete("file"), write("out/f", "1")])
        .expect("change");
    assert_eq!(dir.names(), ["out"]);
    dir.assert_outside_is_whole();
}

#[test]
fn special_files_are_violations_at_once() {
    let dir = TestDir::new();
    mknodat(CWD, dir.path("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("mkfifo");
    let _socket = std::os::unix::net::UnixListener::bind(dir.path("socket")).expect("bind");
    let start = Instant::now();
    for name in ["pipe", "socket", "pipe/x"] {
        dir.assert_violation(&[write(name, "")]);
    }
    assert!(start.elapsed() < Duration::from_secs(1));
    dir.change(&[delete("pipe"), write("pipe", "1")])
        .expect("change");
    assert_eq!(dir.read("pipe"), "1");
}

#[test]
fn mounts_are_never_entered() {
    let dir = TestDir::new();
    dir.file("d/m/x", "");
    if !mount(&dir.outside(), &dir.path("d/m")) {
        return;
    }
    for changes in [
        [write("d/m/f", "")],
        [write("d/m", "")],
        [delete("d/m/precious")],
        [delete("d/m")],
    ] {
        dir.assert_violation(&changes);
    }
    assert!(dir.workspace.apply(&[delete("d")]).is_err());
    dir.assert_outside_is_whole();
    unmount(&dir.path("d/m"));
}

#[test]
fn left_overs_are_swept() {
    let dir = TestDir::new();
    dir.file(".orchestrator-stage-1/0", "x");
    dir.file(".orchestrator-stage-2", "x");
    dir.file("a", "x");
    dir.workspace.sweep().expect("sweep");
    assert_eq!(dir.names(), ["a"]);
}
