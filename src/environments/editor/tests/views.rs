//! Views: how they open, what they show, how they go.

use std::fs;
use std::time::{Duration, Instant};

use super::{FUNCTIONS, Scene};
use crate::environments::Environment;

#[test]
fn a_view_is_told_and_shown() {
    let mut scene = Scene::new([("src/m.py", FUNCTIONS)]);
    assert_eq!(scene.screen(), "Editor (no views)");
    assert_eq!(
        scene.ok("view src/m.py /^def beta/ /return/"),
        "Added view [1] src/m.py /^def beta/ to /return/"
    );
    let screen = "Views:\n  [1] src/m.py /^def beta/ to /return/ (match 1/1)\n      6  def beta(y):\n      7      z = y\n\
                  \x20     8  \n      9      return z";
    assert_eq!(scene.screen(), screen);
    scene.ok("view ./src/m.py /^def a/ to /return/ the first");
    assert!(scene.screen().ends_with(
        "\n\n  [2] src/m.py /^def a/ to /return/ (match 1/1) \"the first\"\n      3  def alpha(x):\n      4      return x"
    ));
    assert_eq!(scene.ok("close 1"), "Closed view [1]");
    assert!(scene.screen().starts_with("Views:\n  [2] "));
    scene.ok("close 2");
    assert_eq!(scene.screen(), "Editor (no views)");
}

#[test]
fn the_end_is_the_first_one_after_the_start_line() {
    let mut scene = Scene::new([("f", "a b\nx\nb 1\nb 2\na b")]);
    scene.ok("view f /a/ /b/");
    assert_eq!(scene.span(1), (1, 3));
    assert!(scene.header(1).ends_with("(match 1/2)"));
}

#[test]
fn matches_go_around() {
    let mut scene = Scene::new([("m.py", FUNCTIONS)]);
    scene.ok("view m.py /^def / /return/");
    for (command, answer, span) in [
        ("next_match 1", "Showing match 2/3", (6, 9)),
        ("next_match [1]", "Showing match 3/3", (11, 12)),
        ("next_match 1", "Showing match 1/3", (3, 4)),
        ("prev_match 1", "Showing match 3/3", (11, 12)),
    ] {
        assert_eq!(scene.ok(command), answer);
        assert_eq!(scene.span(1), span);
    }
    scene.write("m.py", "def only():\n    return 1\n");
    assert!(scene.header(1).ends_with("(match 1/1)"));
    assert_eq!(scene.ok("prev_match 1"), "Showing match 1/1");
}

#[test]
fn what_others_write_is_seen_at_once() {
    let mut scene = Scene::new([("f", "start\nold\nend\n")]);
    scene.ok("view f /start/ /end/");
    for round in 0..20 {
        // Same size, and likely the same time.
        scene.write("f", format!("start\n{round:03}\nend\n"));
        assert_eq!(scene.texts(1)[1], format!("{round:03}"));
    }
}

#[test]
fn a_view_without_its_end_shows_the_rest() {
    let truncated = "\n    [TRUNCATED: end pattern not found within 1000 lines]";
    let mut scene = Scene::new([("short", "a\nb\nc\n"), ("long", &"line\n".repeat(3000))]);
    scene.ok("view short /b/ /never/");
    assert_eq!(scene.span(1), (2, 3));
    assert!(scene.screen().ends_with(truncated));
    scene.ok("view long /line/ /never/");
    assert_eq!(scene.span(2), (1, 1000));
    assert!(scene.header(2).ends_with("(match 1/3000)"));
    assert!(scene.screen().ends_with(truncated));
    let section = scene.editor.screen();
    assert!(section.content.lines().count() <= section.max_lines);
}

#[test]
fn an_end_at_the_last_line_there_is_room_for() {
    let mut scene = Scene::new([("just", &format!("a\n{}b\n", "x\n".repeat(998)))]);
    scene.write("over", format!("a\n{}b\n", "x\n".repeat(999)));
    scene.ok("view just /a/ /b/");
    scene.ok("view over /a/ /b/");
    assert_eq!((scene.span(1), scene.span(2)), ((1, 1000), (1, 1000)));
    assert_eq!(scene.screen().matches("TRUNCATED").count(), 1);
}

#[test]
fn five_lines_of_a_thousand_fit_the_section() {
    let mut scene = Scene::new([("long", &"line\n".repeat(1000))]);
    for _ in 0..5 {
        scene.ok("view long /line/ /never/");
    }
    let section = scene.editor.screen();
    assert_eq!(section.content.lines().count(), 1 + 5 * 1002 + 4);
    assert!(section.content.lines().count() <= section.max_lines);
}

#[test]
fn views_that_are_lost_say_so_once() {
    let mut scene = Scene::new([
        ("gone", "a\nb\n"),
        ("broken", "a\nb\n"),
        ("binary", "a\nb\n"),
        ("fine", "a\nb\n"),
    ]);
    for name in ["gone", "broken", "binary", "fine"] {
        scene.ok(&format!("view {name} /a/ /b/"));
    }
    fs::remove_file(scene.path("gone")).unwrap();
    scene.write("broken", "x\n");
    scene.write("binary", "a\0b\n");
    let screen = scene.screen();
    assert!(
        screen.starts_with("Views:\n  [1] gone [ERROR: file not found]\n"),
        "{screen}"
    );
    assert!(
        screen.contains("\n  [2] broken [BROKEN: patterns not found]\n"),
        "{screen}"
    );
    assert!(
        screen.contains("\n  [3] binary [ERROR: it is a binary file]\n"),
        "{screen}"
    );
    assert!(scene.screen().starts_with("Views:\n  [4] fine "));
    scene.write("gone", "a\nb\n");
    assert!(
        scene
            .refused("next_match 1")
            .contains("no view [1]. Open views: [4]")
    );
}

#[test]
fn a_sixth_view_closes_the_first_and_ids_are_not_used_again() {
    let mut scene = Scene::new([("f", "a\nb\n")]);
    for _ in 0..5 {
        scene.ok("view f /a/ /b/");
    }
    scene.refused("view f /x/ /b/");
    let answer = scene.ok("view f /a/ /b/");
    assert!(
        answer.starts_with("Added view [6] f /a/ to /b/\nClosed view [1]"),
        "{answer}"
    );
    assert!(scene.screen().starts_with("Views:\n  [2] "));
    scene.editor.restart();
    assert_eq!(scene.screen(), "Editor (no views)");
    assert_eq!(scene.ok("view f /a/ /b/"), "Added view [7] f /a/ to /b/");
}

#[test]
fn what_cannot_be_viewed_opens_nothing() {
    let mut scene = Scene::new([
        ("f", "a\nb\n"),
        ("empty", ""),
        ("b.bin", "a\n\0\nb\n"),
        ("sub/x", ""),
    ]);
    for (command, reason) in [
        ("view f /nowhere/ /b/", "no line matches /nowhere/"),
        ("view empty /^/ /x/", "no line matches"),
        ("view missing /a/ /b/", "file not found"),
        ("view f/x /a/ /b/", "Not a directory"),
        ("view sub /a/ /b/", "folder"),
        ("view . /a/ /b/", "folder"),
        ("view b.bin /a/ /b/", "binary"),
        ("view f // /b/", "start pattern //: it is empty"),
        ("view f /a/ //", "end pattern //: it is empty"),
        ("view f /(?=a)/ /b/", "look-around"),
        ("view f /a/ /[/", "unclosed character class"),
        ("view f /a/ /b/ \0", "NUL"),
        ("frobnicate", "Unknown command: frobnicate"),
    ] {
        let output = scene.refused(command);
        assert!(output.contains(reason), "{command}: {output}");
        assert_eq!(scene.screen(), "Editor (no views)");
    }
}

#[test]
fn large_files_and_long_lines_are_bounded() {
    let mut scene = Scene::new([]);
    scene.write("big", format!("line\n{}\nlast\n", "y".repeat(32_000_000)));
    scene.write("fine", format!("line\n{}\nlast\n", "y".repeat(4_000_000)));
    assert!(scene.refused("view big /line/ /last/").contains("32 MB"));
    scene.ok("view fine /line/ /last/");
    assert_eq!(
        scene.texts(1)[1],
        format!("{}… (+3998000)", "y".repeat(2000))
    );
    assert!(scene.screen().len() < 10_000);
}

#[test]
fn patterns_that_blow_up_are_refused_in_time() {
    let mut scene = Scene::new([("f", &format!("{}!\nplain\n", "a".repeat(3_000_000)))]);
    let begun = Instant::now();
    scene.ok("view f /(a+)+$|plain/ /x/");
    scene.ok("view f /^(a|aa)+!$/ /plain/");
    let slow = r"view f /(?:(?:\w?){100}x|a?){40}b$/ /x/";
    assert!(!scene.editor.begin(slow).unwrap().success);
    // Generous, for a build without optimisation on a busy machine.
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn odd_paths_and_names() {
    let mut scene = Scene::new([("a b.txt", "a\nb\n"), ("sub/f", "a\nb\n")]);
    assert_eq!(
        scene.ok("view \"a b.txt\" /a/ /b/"),
        "Added view [1] a b.txt /a/ to /b/"
    );
    assert_eq!(
        scene.ok("view sub//../sub/./f /a/ /b/"),
        "Added view [2] sub/f /a/ to /b/"
    );
    let absolute = scene.path("sub/f").display().to_string();
    assert_eq!(
        scene.ok(&format!("view {absolute} /a/ /b/")),
        "Added view [3] sub/f /a/ to /b/"
    );
    let absolute = scene
        .path("sub/f")
        .canonicalize()
        .unwrap()
        .display()
        .to_string();
    scene.ok(&format!("view {absolute} /a/ /b/"));
    assert!(scene.header(4).starts_with("  [4] sub/f "));
}

#[test]
fn a_mark_of_byte_order_is_no_part_of_the_first_line() {
    let mut scene = Scene::new([("f", "\u{feff}a\r\nb\r\n")]);
    scene.ok("view f /^a$/ /^b$/");
    assert_eq!(scene.texts(1), ["a", "b"]);
    scene.ok("edit f 1\nA");
    assert_eq!(scene.read("f"), "\u{feff}A\r\nb\r\n");
}
