//! Nothing outside of the project is read or written, nor what is hidden, and nothing inside makes the editor wait.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::Scene;
use crate::environments::Environment;
use crate::environments::editor::{EditorEnvironment, FrozenPaths};
use crate::workspace::hidden::HiddenPaths;

#[test]
fn paths_and_links_that_lead_out_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "start\nneedle\nend\n").unwrap();
    let secret = outside.path().join("secret").display().to_string();
    let mut scene = Scene::new([("f", "start\nend\n"), ("sub/x", "")]);
    symlink(&secret, scene.path("file")).unwrap();
    symlink(outside.path(), scene.path("folder")).unwrap();
    symlink("../../..", scene.path("sub/up")).unwrap();
    symlink("loop", scene.path("loop")).unwrap();
    let up = format!("..{secret}");
    for path in [
        &secret,
        &up,
        "file",
        "folder/secret",
        &format!("sub/up{secret}"),
        "../f",
        "sub/../../f",
        "loop",
        "/etc/passwd",
    ] {
        let viewed = scene.refused(&format!("view {path} /start/ /end/"));
        let edited = scene.refused(&format!("edit {path} 1\nx"));
        let created = scene.refused(&format!("create {path}\nx"));
        let searched = scene
            .editor
            .begin(&format!("search \"needle\" {path}"))
            .unwrap()
            .output;
        for output in [viewed, edited, created, searched] {
            assert!(
                !output.contains("needle") && !output.contains("root:"),
                "{output}"
            );
        }
    }
    for path in [
        "folder/new",
        "../new",
        "sub/up/new",
        "new/../../new",
        "/new-file-of-the-editor",
    ] {
        scene.refused(&format!("create {path}\nx"));
    }
    assert!(!scene.path("new").exists());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "start\nneedle\nend\n");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn links_that_stay_inside_are_followed() {
    let mut scene = Scene::new([("a/b/real", "start\nend\n")]);
    symlink("a/b", scene.path("folder")).unwrap();
    symlink("../../folder/real", scene.path("a/b/round")).unwrap();
    symlink(scene.path("a/b/real"), scene.path("absolute")).unwrap();
    symlink("a/b/not yet", scene.path("dangling")).unwrap();
    for path in [
        "folder/real",
        "folder/round",
        "absolute",
        "folder/../b/real",
    ] {
        scene.ok(&format!("view {path} /start/ /end/"));
    }
    scene.ok("edit a/b/real 1\nSTART");
    for id in 1..=4 {
        assert_eq!(scene.texts(id), ["START", "end"]);
    }
    scene.ok("create dangling\nx");
    assert_eq!(scene.read("a/b/not yet"), "x\n");
}

#[test]
fn special_files_are_refused_at_once() {
    let mut scene = Scene::new([("f", "a\nneedle\n")]);
    mknodat(
        CWD,
        scene.path("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    mknodat(
        CWD,
        scene.path(".gitignore"),
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    symlink("/dev/zero", scene.path(".ignore")).unwrap();
    symlink("pipe", scene.path("to-pipe")).unwrap();
    for path in ["pipe", "to-pipe"] {
        assert!(
            scene
                .refused(&format!("view {path} /a/ /b/"))
                .contains("pipe, socket or device")
        );
        assert!(
            scene
                .refused(&format!("create {path}\nx"))
                .contains("pipe, socket or device")
        );
        assert!(
            scene
                .refused(&format!("search \"a\" {path}"))
                .contains("pipe, socket or device")
        );
    }
    assert_eq!(scene.ok("search \"needle\""), "Matches:\n  f:2: needle");
    scene.ok("view f /a/ /needle/");
    fs::remove_file(scene.path("f")).unwrap();
    mknodat(
        CWD,
        scene.path("f"),
        FileType::Fifo,
        Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    assert!(
        scene
            .screen()
            .contains("[ERROR: it is a pipe, socket or device]")
    );
}

#[test]
fn a_folder_that_is_swapped_for_a_link_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("f"), "start\nneedle\nend\n").unwrap();
    let mut scene = Scene::new([("sub/f", "start\nharmless\nend\n")]);
    symlink(outside.path(), scene.path("link")).unwrap();
    let (one, other, stop) = (
        scene.path("sub"),
        scene.path("link"),
        AtomicBool::new(false),
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for _ in 0..300 {
            for command in [
                "view sub/f /start/ /end/",
                "edit sub/f 2\nmine",
                "search \"needle\"",
                "search \"needle\" sub/f",
            ] {
                let output = scene.editor.begin(command).unwrap().output;
                assert!(!output.contains("f:2: needle"), "{output}");
            }
            assert!(!scene.screen().contains("needle"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(
        fs::read_to_string(outside.path().join("f")).unwrap(),
        "start\nneedle\nend\n"
    );
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let mut scene = Scene::new([("f", "start\na\nend\n")]);
    scene.ok("view f /start/ /end/");
    fs::set_permissions(scene.path("f"), fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new()
        .write(true)
        .open(scene.path("f"))
        .is_err()
    {
        assert!(scene.refused("edit f 2\nx").contains("Permission denied"));
        assert_eq!(scene.read("f"), "start\na\nend\n");
    }
}

/// A project with a workflow in it that is also the root of its run. The hidden files hold the word `needle`.
fn workflow_scene() -> Scene {
    let hidden = "start\nneedle\nend\n";
    let mut scene = Scene::new([
        ("flow/START.md", hidden),
        ("flow/README.md", "start\nopen\nend\n"),
        ("state.json", hidden),
        ("state.json.tmp-1", hidden),
        ("logs/a.log", hidden),
        ("logs/deep/b.log", hidden),
        ("sub/state.json", "start\nopen\nend\n"),
    ]);
    symlink("flow/START.md", scene.path("link")).unwrap();
    symlink("flow", scene.path("folder")).unwrap();
    symlink("logs", scene.path("to-logs")).unwrap();
    symlink(scene.path("state.json"), scene.path("absolute")).unwrap();
    symlink("flow/GONE.md", scene.path("dangling")).unwrap();
    symlink("../sub", scene.path("logs/out")).unwrap();
    fs::hard_link(scene.path("flow/START.md"), scene.path("hard")).unwrap();
    let editor = EditorEnvironment::new(scene.folder.path()).unwrap();
    scene.editor = editor.freezing(FrozenPaths {
        hidden: HiddenPaths {
            paths: ["flow/START.md", "flow/GONE.md"].map(Into::into).into(),
            root: Some("".into()),
        },
        ..FrozenPaths::default()
    });
    scene
}

#[test]
fn hidden_files_are_absent() {
    let mut scene = workflow_scene();
    let absolute = scene.path("state.json").display().to_string();
    for path in [
        "flow/START.md",
        "flow/../flow/./START.md",
        "folder/START.md",
        "link",
        "hard",
        "state.json",
        "sub/../state.json",
        &absolute,
        "absolute",
        "state.json.tmp-1",
        "logs/a.log",
        "logs/deep/b.log",
        "to-logs/a.log",
        "logs/out/state.json",
        "logs/../sub/state.json",
    ] {
        let viewed = scene.refused(&format!("view {path} /start/ /end/"));
        assert!(viewed.contains("file not found"), "{path}: {viewed}");
        let edited = scene.refused(&format!("edit {path} 1\nx"));
        assert!(edited.contains("file not found"), "{path}: {edited}");
        let searched = scene.editor.begin(&format!("search \"needle\" {path}"));
        let output = searched.unwrap().output;
        assert!(
            !output.contains("needle\n") && !output.contains(":2:"),
            "{path}: {output}"
        );
    }
    for glob in [
        "",
        " logs",
        " logs/",
        " to-logs",
        " *.log",
        " **/*.md",
        " state.json*",
    ] {
        assert_eq!(
            scene.ok(&format!("search \"needle\"{glob}")),
            "No matches",
            "{glob}"
        );
    }
    assert_eq!(
        scene.ok("search \"open\""),
        "Matches:\n  flow/README.md:2: open\n  sub/state.json:2: open"
    );
}

#[test]
fn hidden_names_cannot_be_created() {
    let mut scene = workflow_scene();
    for path in [
        "flow/START.md",
        "flow/GONE.md",
        "flow/GONE.md/below",
        "dangling",
        "folder/GONE.md",
        "state.json",
        "state.json.tmp-2",
        ".orchestrator.lock",
        "logs",
        "logs/new",
        "logs/new/deep",
        "to-logs/new",
        "sub/../logs/new",
    ] {
        let created = scene.refused(&format!("create {path}\nx"));
        assert!(
            created.contains("the name is reserved"),
            "{path}: {created}"
        );
    }
    assert_eq!(scene.read("flow/START.md"), "start\nneedle\nend\n");
    assert!(!scene.path("flow/GONE.md").exists() && !scene.path(".orchestrator.lock").exists());
    assert_eq!(fs::read_dir(scene.path("logs")).unwrap().count(), 3);
    for path in [
        "flow/notes.md",
        "folder/more.md",
        "state.json.bak",
        "sub/logs/x",
    ] {
        scene.ok(&format!("create {path}\nx"));
    }
    scene.ok("view flow/README.md /start/ /end/");
    scene.ok("edit flow/README.md 2\nchanged");
}
