//! Patches for a terminal.

use super::git::GitFolder;
use super::{Tree, VersionKind, git, path, tree_patch, version};
use crate::diff::terminal_text;

fn tree(content: &[u8]) -> Tree {
    Tree::from([(path(b"x"), version(VersionKind::Regular, content))])
}

/// Git resets the colour more often than needed.
fn without_resets(text: &str) -> String {
    text.replace("\x1b[m", "")
}

#[test]
fn colors_are_those_of_git() {
    if !git::is_installed() {
        return;
    }
    let texts = [
        "fn main() {\n1\n2\n3\n4\n-- a\nold\n5\nlast",
        "fn main() {\n1\n2\n3\n4\n++ b\nnew\n5\nlast\n",
        "",
        "\0",
    ];
    // Git marks blanks at the ends of lines by default; this is left out.
    let options = ["-c", "color.diff.whitespace=normal"];
    for (old, new) in [(0, 1), (1, 0), (0, 2), (2, 1), (2, 3), (3, 0)] {
        let [old, new] = [old, new].map(|at: usize| tree(texts[at].as_bytes()));
        let folder = GitFolder::new().with_options(&options);
        let expected = folder.diff(&old, &new, &["--binary", "--color=always"]);
        let expected = String::from_utf8(expected).unwrap();
        let patch = tree_patch(&old, &new);
        let shown = terminal_text(&patch, true);
        let same = |text: &str| -> Vec<String> {
            let lines = without_resets(text);
            let lines = lines.lines().filter(|line| !is_data(line));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(same(&shown), same(&expected));
        let plain = terminal_text(&patch, false);
        assert_eq!(plain.as_bytes(), patch);
    }
}

/// Whether a line is compressed data, which depends on the implementation of zlib.
fn is_data(line: &str) -> bool {
    line.len() % 5 == 1 && line.starts_with(|first: char| first.is_ascii_alphabetic())
}

#[test]
fn each_color_ends_on_its_line() {
    let patch = tree_patch(&tree(b"old\n"), &tree(b"new\n"));
    let shown = terminal_text(&patch, true);
    assert!(shown.contains("\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n"));
    assert!(shown.ends_with("\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-old\x1b[m\n\x1b[32m+new\x1b[m\n"));
}

#[test]
fn control_characters_of_files_are_shown_and_not_obeyed() {
    let new = "\x1b]0;title\x07\tred\x1b[31m\rover\u{202e}\u{9b}\n".as_bytes();
    let patch = tree_patch(&tree(b"old\n"), &tree(&[new, b"\xff\n"].concat()));
    let shown = terminal_text(&patch, false);
    let line = "+\\u{1b}]0;title\\u{7}\tred\\u{1b}[31m\\rover\\u{202e}\\u{9b}\n+\u{fffd}\n";
    assert!(shown.ends_with(line), "{shown}");
}
