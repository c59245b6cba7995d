//! Searches: which files, which lines, in which order, and how much of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use super::Scene;

fn files(scene: &mut Scene, arguments: &str) -> Vec<String> {
    let answer = scene.ok(&format!("search \"hit\"{arguments}"));
    answer
        .lines()
        .filter_map(|line| Some(line.strip_prefix("  ")?.split_once(':')?.0.to_owned()))
        .collect()
}

#[test]
fn the_answer_has_path_number_and_line() {
    let mut scene = Scene::new([
        ("a.py", "x\n  TODO one \ny TODO\n"),
        ("b/c.py", "\r\nTODO\r\n"),
        ("d.txt", "TODO"),
    ]);
    assert_eq!(
        scene.ok("search \"TODO\" *.py"),
        "Matches:\n  a.py:2:   TODO one \n  a.py:3: y TODO\n  b/c.py:2: TODO"
    );
    assert_eq!(
        scene.ok("search \"^TODO$\""),
        "Matches:\n  b/c.py:2: TODO\n  d.txt:1: TODO"
    );
    for nothing in [
        "search \"absent\"",
        "search \"TODO\" *.none",
        "search \"x\" no/such/**/place",
        "search \"x\" no/file",
    ] {
        assert_eq!(scene.ok(nothing), "No matches");
    }
    assert!(scene.refused("search \"\"").contains("it is empty"));
    assert!(
        scene
            .refused("search \"(a)\\1\"")
            .contains("backreferences")
    );
    assert!(scene.refused("search \"a\" [").contains("Invalid glob"));
}

#[test]
fn paths_are_in_the_order_of_their_bytes() {
    let mut scene = Scene::new([
        ("b", "hit"),
        ("a/z", "hit"),
        ("a.txt", "hit"),
        ("a-b/c", "hit"),
        ("Z", "hit"),
        ("é", "hit"),
    ]);
    assert_eq!(
        files(&mut scene, ""),
        ["Z", "a-b/c", "a.txt", "a/z", "b", "é"]
    );
}

#[test]
fn globs() {
    let mut scene = Scene::new([
        ("x.py", "hit"),
        ("s/y.py", "hit"),
        ("s/t/z.py", "hit"),
        ("s/t/z.rs", "hit"),
        ("o/y.py", "hit"),
    ]);
    for (glob, wanted) in [
        (" *.py", &["o/y.py", "s/t/z.py", "s/y.py", "x.py"][..]),
        (" **/*.py", &["o/y.py", "s/t/z.py", "s/y.py", "x.py"]),
        (" ./*.py", &["x.py"]),
        (" s/*.py", &["s/y.py"]),
        (" s/**/*.py", &["s/t/z.py", "s/y.py"]),
        (" s/*/z.{py,rs}", &["s/t/z.py", "s/t/z.rs"]),
        (" [so]/y.py", &["o/y.py", "s/y.py"]),
        (" y.py", &["o/y.py", "s/y.py"]),
        (" x.py", &["x.py"]),
        (" s/t", &["s/t/z.py", "s/t/z.rs"]),
        (" s/", &["s/t/z.py", "s/t/z.rs", "s/y.py"]),
        (" .", &["o/y.py", "s/t/z.py", "s/t/z.rs", "s/y.py", "x.py"]),
        (" \"s/t/*.rs\"", &["s/t/z.rs"]),
    ] {
        assert_eq!(files(&mut scene, glob), wanted, "{glob}");
    }
    let absolute = format!(" {}/s/*.py", scene.folder.path().display());
    assert_eq!(files(&mut scene, &absolute), ["s/y.py"]);
    assert!(scene.refused("search \"hit\" ../*").contains("outside"));
    assert!(scene.refused("search \"hit\" /etc/*").contains("outside"));
}

#[test]
fn ignore_files_hold_unless_a_file_is_named() {
    let mut scene = Scene::new([
        (".gitignore", "build/\n*.log\n!keep.log\n/only-top\n"),
        (".ignore", "skip.txt\n!sub/wanted.log\n"),
        ("sub/.gitignore", "local\n!wanted.log\n"),
        ("a.txt", "hit"),
        ("b.log", "hit"),
        ("keep.log", "hit"),
        ("build/out.txt", "hit"),
        ("skip.txt", "hit"),
        ("only-top", "hit"),
        ("sub/only-top", "hit"),
        ("sub/local", "hit"),
        ("sub/wanted.log", "hit"),
        ("local", "hit"),
    ]);
    let all = [
        "a.txt",
        "keep.log",
        "local",
        "sub/only-top",
        "sub/wanted.log",
    ];
    assert_eq!(files(&mut scene, ""), all);
    assert_eq!(
        files(&mut scene, " **/*.log"),
        ["keep.log", "sub/wanted.log"]
    );
    for named in ["build/out.txt", "skip.txt", "b.log", "sub/local"] {
        assert_eq!(files(&mut scene, &format!(" {named}")), [named]);
    }
    assert_eq!(files(&mut scene, " build"), ["build/out.txt"]);
    assert_eq!(files(&mut scene, " local"), ["local"]);
}

#[test]
fn hidden_files_match_where_the_dot_is_written_and_git_never() {
    let mut scene = Scene::new([
        (".hid", "hit"),
        ("a", "hit"),
        (".dir/b", "hit"),
        (".dir/.c", "hit"),
        (".git/d", "hit"),
        ("sub/.git/d", "hit"),
        ("sub/.hid", "hit"),
    ]);
    for everything in ["", " *", " **/*", " **"] {
        assert_eq!(files(&mut scene, everything), ["a"], "{everything}");
    }
    assert_eq!(files(&mut scene, " .hid"), [".hid", "sub/.hid"]);
    assert_eq!(files(&mut scene, " .dir/*"), [".dir/b"]);
    assert_eq!(files(&mut scene, " .dir"), [".dir/b"]);
    assert_eq!(files(&mut scene, " .dir/.*"), [".dir/.c"]);
    assert_eq!(files(&mut scene, " .{dir,x}/b"), [".dir/b"]);
    assert_eq!(files(&mut scene, " {sub,.dir}/*"), [".dir/b"]);
    assert_eq!(files(&mut scene, " .*/*"), [".dir/.c", ".dir/b"]);
    symlink(".git", scene.path("git")).unwrap();
    for never in [
        " .git/d",
        " .git",
        " .git/*",
        " sub/.git/*",
        " **/.git/**",
        " git/d",
        " git",
    ] {
        assert_eq!(
            scene.ok(&format!("search \"hit\"{never}")),
            "No matches",
            "{never}"
        );
    }
}

#[test]
fn links_binaries_and_large_files() {
    let mut scene = Scene::new([("real", "hit"), ("b.bin", "hit\0")]);
    symlink("real", scene.path("link")).unwrap();
    scene.write("large", "y".repeat(32_000_001));
    assert_eq!(
        scene.ok("search \"hit\""),
        "Matches:\n  real:1: hit\n[not searched: large is larger than 32 MB]"
    );
    assert_eq!(scene.ok("search \"hit\" link"), "Matches:\n  link:1: hit");
    assert!(scene.refused("search \"hit\" b.bin").contains("binary"));
    assert!(scene.refused("search \"hit\" large").contains("32 MB"));
}

#[test]
fn much_is_cut_in_the_middle() {
    let mut scene = Scene::new([]);
    for file in 0..3 {
        let lines: String = (0..40_000)
            .map(|line| format!("needle {line} {}\n", "x".repeat(100)))
            .collect();
        scene.write(&format!("f{file}.txt"), lines);
    }
    let answer = scene.ok("search \"needle\"");
    assert!(
        (9_900_000..10_000_000).contains(&answer.len()),
        "{}",
        answer.len()
    );
    assert!(answer.starts_with("Matches:\n  f0.txt:1: needle 0 x"));
    let shown = answer.lines().filter(|line| line.contains(".txt:")).count();
    assert!(answer.contains(&format!("\n  [... {} matches dropped, ", 120_000 - shown)));
    assert!(
        answer
            .lines()
            .last()
            .unwrap()
            .starts_with("  f2.txt:40000: needle 39999 ")
    );
    let few = scene.ok("search \"needle \\d?\\d?99 \" f1.txt");
    assert_eq!(few.lines().count(), 1 + 100);
}

#[test]
fn long_lines_and_hostile_trees_are_bounded() {
    let mut scene = Scene::new([(".gitignore", &"**/a*b?c[de]*f\n".repeat(200_000))]);
    scene.write(
        "min.js",
        format!("{}hit{}", "a".repeat(3_000_000), "b".repeat(3_000_000)),
    );
    scene.write("a.txt", format!("{}!\n", "a".repeat(1_000_000)));
    let deep = "d/".repeat(400);
    fs::create_dir_all(scene.path(&deep)).unwrap();
    scene.write(&format!("{deep}x"), "hit");
    let begun = Instant::now();
    let answer = scene.ok("search \"hit\"");
    assert!(
        answer.starts_with("Matches:\n  min.js:1: aaaa") && answer.ends_with("… (+5998003)"),
        "{}",
        answer.len()
    );
    assert_eq!(scene.ok("search \"^(a+)+$\""), "No matches");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );

    let slow = scene.ok(r#"search "(?:[^x]*\b){300}y""#);
    assert!(slow.starts_with("No matches"), "{slow}");
}

#[test]
fn a_pattern_that_is_slow_everywhere_stops_the_search() {
    let mut scene = Scene::new([]);
    for file in 0..40 {
        scene.write(&format!("f{file}"), "0110é10110 ".repeat(20_000));
    }
    let begun = Instant::now();
    let answer = scene.ok(r#"search "(?:[^x]*\b){300}y""#);
    assert!(
        answer.contains("takes too long to match]") && answer.contains("\n[stopped"),
        "{answer}"
    );
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}
