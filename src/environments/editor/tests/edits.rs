//! Edits: what they write, what they refuse, and where views are afterwards.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::{FUNCTIONS, Scene};

const OUTSIDE: &str = "Can only edit lines visible in a view";

fn opened(content: &str) -> Scene {
    let mut scene = Scene::new([("f", content)]);
    scene.ok("view f /^start/ /^end/");
    scene
}

#[test]
fn lines_are_replaced_and_seen() {
    let mut scene = opened("start\na\nb\nend\n");
    assert_eq!(scene.ok("edit f 2-3\n  A\n\n\tC  \n"), "Edited f lines 2-3");
    assert_eq!(scene.read("f"), "start\n  A\n\n\tC  \nend\n");
    assert_eq!(scene.texts(1), ["start", "  A", "", "\tC  ", "end"]);
    assert_eq!(
        scene.ok("edit ./f 2\nclose 1\nedit f 1-1"),
        "Edited f lines 2-2"
    );
    assert_eq!(
        scene.read("f"),
        "start\nclose 1\nedit f 1-1\n\n\tC  \nend\n"
    );
}

#[test]
fn no_content_deletes_and_an_empty_line_is_content() {
    for (command, after) in [
        ("edit f 2-3", "start\nend\n"),
        ("edit f 2-3\n", "start\nend\n"),
        ("edit f 2-3\n\n", "start\n\nend\n"),
        ("edit f 2-3\n\n\n", "start\n\n\nend\n"),
    ] {
        let mut scene = opened("start\na\nb\nend\n");
        scene.ok(command);
        assert_eq!(scene.read("f"), after, "{command:?}");
    }
}

#[test]
fn only_what_a_view_shows_can_be_edited() {
    let content = "zero\nstart\na\nend\nlast\n";
    let mut scene = opened(content);
    scene.write("g", "start\nend\n");
    for command in [
        "edit f 1\nx",
        "edit f 5\nx",
        "edit f 1-3\nx",
        "edit f 3-5\nx",
        "edit f 4-9\nx",
        "edit g 1\nx",
    ] {
        let output = scene.refused(command);
        assert!(output.starts_with(OUTSIDE), "{command}: {output}");
    }
    assert!(
        scene
            .refused("edit f 5\nx")
            .ends_with("f has 5 lines now, among them:\n      5  last")
    );
    assert!(
        scene
            .refused("edit f 7-8\nx")
            .ends_with("f has 5 lines now")
    );
    assert!(
        scene
            .refused("edit missing 1\nx")
            .ends_with("missing: file not found")
    );
    assert_eq!(scene.read("f"), content);
    let mut scene = Scene::new([("m.py", FUNCTIONS)]);
    scene.ok("view m.py /^def / /return/");
    assert!(scene.refused("edit m.py 7\nx").starts_with(OUTSIDE));
    scene.ok("next_match 1");
    scene.ok("edit m.py 7\n    z = 2");
}

#[test]
fn what_was_changed_underneath_is_refused_and_told() {
    let mut scene = opened("start\na\nas it was\nend\n");
    let changed = "start\na\nas others made it\nend\n";
    scene.write("f", changed);
    let output = scene.refused("edit f 3\nmine");
    assert_eq!(
        output,
        "File changed: f is not what its view showed; nothing was edited\nExpected:\n      3  as it was\n\
         f has 4 lines now, among them:\n      3  as others made it"
    );
    assert_eq!(scene.read("f"), changed);
    scene.ok("edit f 3\nmine");
    assert_eq!(scene.read("f"), "start\na\nmine\nend\n");
    scene.write("f", "start\n");
    assert!(
        scene
            .refused("edit f 3\nmine")
            .contains("f has 1 lines now")
    );
}

#[test]
fn a_change_elsewhere_in_the_file_is_no_obstacle() {
    let mut scene = opened("start\na\nend\ntail\n");
    scene.write("f", "start\na\nend\nother\nmore\n");
    scene.ok("edit f 2\nA");
    assert_eq!(scene.read("f"), "start\nA\nend\nother\nmore\n");
}

#[test]
fn a_change_past_what_is_shown_of_a_line_is_seen() {
    let long = "x".repeat(50_000);
    let mut scene = opened(&format!("start\n{long}y\nend\n"));
    scene.write("f", format!("start\n{long}z\nend\n"));
    assert!(scene.refused("edit f 2\nshort").starts_with("File changed"));
    scene.ok("edit f 2\nshort");
}

#[test]
fn endings_and_a_missing_final_newline_stay() {
    for (before, command, after) in [
        (
            "start\r\na\r\nend\r\n",
            "edit f 2\nx\ny",
            "start\r\nx\r\ny\r\nend\r\n",
        ),
        (
            "start\na\r\nend\r\n",
            "edit f 2\r\nx\r\ny\r\n",
            "start\nx\r\ny\r\nend\r\n",
        ),
        ("start\r\na\nend\r\n", "edit f 2\nx", "start\r\nx\nend\r\n"),
        (
            "start\na\nend",
            "edit f 3\nend of it",
            "start\na\nend of it",
        ),
        ("start\na\nend", "edit f 2-3\nend\nx\n", "start\nend\nx"),
        (
            "start\nform\x0cfeed\u{2028}\nend\n",
            "edit f 1\nbegin",
            "begin\nform\x0cfeed\u{2028}\nend\n",
        ),
    ] {
        let mut scene = opened(before);
        scene.ok(command);
        assert_eq!(scene.read("f"), after, "{command:?}");
    }
}

#[test]
fn bytes_that_are_no_utf8_survive() {
    let mut scene = Scene::new([]);
    scene.write("f", b"caf\xe9\nstart\nr\xe9sum\xe9\na\nend\n\xff tail\n");
    scene.ok("view f /^start/ /^end/");
    assert_eq!(scene.texts(1)[1], "r\u{fffd}sum\u{fffd}");
    assert!(
        scene
            .refused("edit f 3\nr\u{fffd}sum\u{fffd}!")
            .contains("not UTF-8")
    );
    scene.ok("edit f 4\né");
    let wanted: &[u8] = b"caf\xe9\nstart\nr\xe9sum\xe9\n\xc3\xa9\nend\n\xff tail\n";
    assert_eq!(fs::read(scene.path("f")).unwrap(), wanted);
}

#[test]
fn an_edited_boundary_becomes_the_whole_line_literally() {
    let mut scene = Scene::new([("m.py", FUNCTIONS)]);
    scene.ok("view m.py /^def beta/ to /return/");
    scene.ok("edit m.py 9\n    yield (z)  # a/b?");
    assert_eq!(
        scene.header(1),
        r"  [1] m.py /^def beta/ to /    yield \(z\)  \# a\/b\?/ (match 1/1)"
    );
    assert_eq!(scene.span(1), (6, 9));
    scene.ok("edit m.py 6-7\n# new\ndef delta(y):");
    assert!(
        scene.header(1).starts_with(r"  [1] m.py /\# new/ to /"),
        "{}",
        scene.header(1)
    );
    assert_eq!(scene.span(1), (6, 9));
    // Whole lines: neither part of a longer one nor the longer one.
    scene.write(
        "m.py",
        "# new x\n# new\n    yield (z)  # a/b?!\n    yield (z)  # a/b?\n",
    );
    assert_eq!(scene.span(1), (2, 4));
}

#[test]
fn a_boundary_of_two_views_is_edited_in_both() {
    let mut scene = Scene::new([("f", "start\na\nmid\nb\nend\n")]);
    scene.ok("view f /^start/ /^mid/");
    scene.ok("view f /^mid/ /^end/");
    scene.ok("edit f 3\nM1\nM2");
    assert_eq!(scene.texts(1), ["start", "a", "M1", "M2"]);
    assert_eq!(scene.texts(2), ["M1", "M2", "b", "end"]);
    scene.ok("edit f 3-4");
    assert_eq!(
        (scene.texts(1), scene.texts(2)),
        (
            vec!["start".into(), "a".into()],
            vec!["b".into(), "end".into()]
        )
    );
}

#[test]
fn after_a_deletion_the_nearest_line_that_remains_is_the_boundary() {
    let mut scene = opened("x\nstart\na\nb\nc\nend\ny\n");
    scene.ok("edit f 2-3");
    assert_eq!(
        (scene.span(1), scene.header(1)),
        ((2, 4), "  [1] f /b/ to /^end/ (match 1/1)".to_owned())
    );
    scene.ok("edit f 4");
    assert_eq!(
        (scene.span(1), scene.header(1)),
        ((2, 3), "  [1] f /b/ to /c/ (match 1/1)".to_owned())
    );
    scene.ok("edit f 2");
    assert_eq!(
        (scene.texts(1), scene.span(1)),
        (vec!["c".to_owned()], (2, 2))
    );
    scene.ok("edit f 2");
    assert_eq!(
        (scene.screen(), scene.read("f")),
        ("Editor (no views)".to_owned(), "x\ny\n".to_owned())
    );
}

#[test]
fn a_view_stays_on_the_edited_place() {
    let mut scene = Scene::new([("f", "def f\n1\nend\ndef f\n2\nend\ndef f\n3\nend\n")]);
    scene.ok("view f /^def f/ /^end/");
    scene.ok("view f /^def f/ /^end/");
    scene.ok("next_match 1");
    scene.ok("edit f 4\ndef f");
    assert_eq!(scene.texts(1), ["def f", "2", "end"]);
    // A match more, above the second one.
    scene.ok("edit f 2\ndef f\n1");
    assert_eq!(
        (scene.span(1), scene.texts(1)),
        ((5, 7), vec!["def f".into(), "2".into(), "end".into()])
    );
    assert_eq!(scene.span(2), (1, 4));
}

#[test]
fn lines_like_the_new_end_do_not_shorten_the_view() {
    let mut scene = Scene::new([("f.c", "int f() {\n  return 0;\n}\nint last;\n}\n")]);
    scene.ok("view f.c /^int f/ /^}$/");
    scene.ok("edit f.c 3\n}\n\nint g() {\n}");
    assert_eq!(
        scene.texts(1),
        ["int f() {", "  return 0;", "}", "", "int g() {", "}"]
    );
    scene.ok("edit f.c 3-5\n  //");
    assert_eq!(scene.texts(1), ["int f() {", "  return 0;", "  //", "}"]);
}

#[test]
fn the_last_line_of_a_cut_view_is_no_boundary() {
    let mut scene = Scene::new([("f", "start\na\nb\n")]);
    scene.ok("view f /^start/ /^end/");
    scene.ok("edit f 3\nb\nc");
    assert_eq!(scene.texts(1), ["start", "a", "b", "c"]);
    assert!(scene.header(1).contains("to /^end/"));
    scene.ok("edit f 4\nend");
    assert!(!scene.screen().contains("TRUNCATED"));
    scene.ok("edit f 1-4");
    assert_eq!(
        (scene.screen(), scene.read("f")),
        ("Editor (no views)".to_owned(), String::new())
    );
}

#[test]
fn modes_and_links_stay() {
    let mut scene = Scene::new([("deep/real.sh", "start\na\nend\n")]);
    fs::set_permissions(
        scene.path("deep/real.sh"),
        fs::Permissions::from_mode(0o751),
    )
    .unwrap();
    symlink("deep/real.sh", scene.path("link")).unwrap();
    scene.ok("view link /start/ /end/");
    assert_eq!(scene.ok("edit link 2\nA"), "Edited link lines 2-2");
    assert_eq!(
        scene.ok("edit deep/real.sh 2\nAA"),
        "Edited deep/real.sh lines 2-2"
    );
    assert!(
        fs::symlink_metadata(scene.path("link"))
            .unwrap()
            .is_symlink()
    );
    assert_eq!(scene.read("deep/real.sh"), "start\nAA\nend\n");
    assert_eq!(
        fs::metadata(scene.path("deep/real.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o751
    );
    let names: Vec<_> = fs::read_dir(scene.path("deep"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["real.sh"]);
}

#[test]
fn files_are_created_whole_and_never_over_others() {
    let mut scene = Scene::new([("full", "x\n"), ("empty", "")]);
    assert_eq!(
        scene.ok("create a/b/new.py\nimport os\n\n\tx  "),
        "Created a/b/new.py"
    );
    assert_eq!(scene.read("a/b/new.py"), "import os\n\n\tx  \n");
    scene.ok("create ./none");
    assert_eq!(scene.read("none"), "");
    scene.ok("create dos.txt\r\na\r\nb");
    assert_eq!(scene.read("dos.txt"), "a\r\nb\r\n");
    fs::set_permissions(scene.path("empty"), fs::Permissions::from_mode(0o755)).unwrap();
    scene.ok("create empty\n\n\nnow");
    assert_eq!(scene.read("empty"), "\n\nnow\n");
    assert_eq!(
        fs::metadata(scene.path("empty"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    assert!(scene.refused("create full\ny").contains("exists"));
    assert!(scene.refused("create a\ny").contains("folder"));
    assert!(scene.refused("create c/\ny").contains("folder"));
    assert!(
        scene
            .refused("create full/x\ny")
            .contains("Not a directory")
    );
    assert!(
        scene
            .refused(&format!("create large\n{}", "x".repeat(32_000_001)))
            .contains("32 MB")
    );
    assert_eq!(scene.read("full"), "x\n");
}
