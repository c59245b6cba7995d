//! Patches are byte for byte those of git.

use super::git::GitFolder;
use super::{Tree, executable, git, link, path, regular, tree_patch};
use crate::diff::FileVersion;

type Version = Option<FileVersion<'static>>;

/// Files that change, each in a folder of its own, so that git is asked once about all of them.
#[derive(Default)]
struct Changes {
    count: usize,
    old: Tree,
    new: Tree,
}

impl Changes {
    fn add(&mut self, name: &[u8], old: Version, new: Version) {
        self.count += 1;
        let path = path(format!("{:03}", self.count).as_bytes()).join(path(name));
        self.old.extend(old.map(|version| (path.clone(), version)));
        self.new.extend(new.map(|version| (path, version)));
    }

    /// Compares our patches with those of git.
    fn check(&self) {
        let expected = GitFolder::new().diff(&self.old, &self.new, &["--binary"]);
        let (patches, expected) = (tree_patch(&self.old, &self.new), shown(&expected));
        for (patch, expected) in shown(&patches).iter().zip(&expected) {
            assert_eq!(patch, expected);
        }
        assert_eq!(shown(&patches).len(), expected.len());
        assert!(self.count <= expected.len());
    }
}

/// Patches as texts that an assertion prints well. Compressed data is left out: it depends on the implementation of zlib.
fn shown(patches: &[u8]) -> Vec<String> {
    let text = patches.escape_ascii().to_string().replace("\\n", "\n");
    let patches = text.split("diff --git ").skip(1);
    patches.map(without_data).collect()
}

fn without_data(patch: &str) -> String {
    match patch.split_once("GIT binary patch") {
        Some((header, data)) => {
            let literals = data.lines().filter(|line| line.starts_with("literal "));
            literals.fold(header.to_owned(), |text, line| text + line + "\n")
        }
        None => patch.to_owned(),
    }
}

fn numbers(count: usize) -> Vec<u8> {
    (1..=count)
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect()
}

fn replaced(text: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(text.to_owned()).unwrap();
    assert!(text.contains(from));
    text.replacen(from, to, 1).into_bytes()
}

#[test]
fn files_that_are_created_and_deleted() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    for version in [
        regular(b"one\ntwo\n"),
        regular(b"one line"),
        regular(b""),
        executable(b"#!/bin/sh\n"),
        link(b"to/there"),
        regular(b"\0binary"),
        executable(b"\0"),
    ] {
        changes.add(b"x", None, version.clone());
        changes.add(b"x", version, None);
    }
    changes.check();
}

#[test]
fn changes_of_modes_and_kinds() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    changes.add(b"x", regular(b"same\n"), executable(b"same\n"));
    changes.add(b"x", executable(b"one\n"), regular(b"two\n"));
    changes.add(b"x", regular(b"\0same"), executable(b"\0same"));
    changes.add(b"x", regular(b"\0one"), executable(b"\0two"));
    changes.add(b"x", regular(b""), executable(b""));
    changes.add(b"x", regular(b"one\n"), link(b"one"));
    changes.add(b"x", link(b"one"), executable(b"one\n"));
    changes.add(b"x", link(b"one"), link(b"two"));
    changes.add(b"x", link(b"one"), regular(b"\0"));
    changes.add(b"x", link(b"one"), regular(b""));
    changes.check();
}

#[test]
fn contents_of_any_bytes() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    changes.add(b"x", regular(b""), regular(b"text\n"));
    changes.add(b"x", regular(b"text\n"), regular(b""));
    changes.add(b"x", regular(b"text\n"), regular(b"text"));
    changes.add(b"x", regular(b"text"), regular(b"text\n"));
    changes.add(b"x", regular(b"one\nlast"), regular(b"two\nlast"));
    changes.add(b"x", regular(b"one"), regular(b"two"));
    changes.add(b"x", regular(b"one\r\ntwo\r\n"), regular(b"one\r\ntwo\n"));
    changes.add(b"x", regular(b"\xff\n"), regular(b"\xfe\n"));
    changes.add(b"x", regular(b"a\rb\n"), regular(b"a\x1bb\n"));
    changes.add(b"x", regular(b"text\n"), regular(b"text\n\0"));
    changes.add(b"x", regular(b"\0\x01\x02"), regular(b""));
    for position in [7999, 8000] {
        let mut content = vec![b'x'; position];
        content.extend(b"\0\n");
        changes.add(b"x", regular(b"text\n"), regular(&content));
    }
    changes.check();
}

#[test]
fn names_are_quoted() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    for name in [
        b"dir/file.txt".as_slice(),
        b"with blank",
        b"with blank \xc3\xa4",
        b"dir with blank/file",
        "\u{e4}".as_bytes(),
        b"\xff",
        b"a\"b",
        b"a'b",
        b"a\\b",
        b"a\tb\nc\rd",
        b"\x01\x07\x08\x0b\x0c\x1b\x1f\x7f\x80",
        b"-x ~!#$%^&*()[]{};:,<>?",
    ] {
        changes.add(name, regular(b"one\n"), regular(b"two\n"));
        changes.add(name, None, regular(b"two\n"));
        changes.add(name, regular(b"two\n"), None);
        changes.add(name, regular(b"\0"), regular(b"\0\0"));
    }
    changes.check();
}

#[test]
fn hunks_have_three_lines_of_context() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    let old = numbers(40);
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\nx\n")),
    );
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\n")),
    );
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\n20\nx\ny\n")),
    );
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "1\n", "x\n1\n")),
    );
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n40\n", "\n")),
    );
    changes.add(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n40\n", "\n40")),
    );
    // Six equal lines between two changes are context of one hunk, seven of two.
    for second in [15, 16, 17, 18, 19] {
        let new = replaced(&old, "\n10\n", "\nx\n");
        let new = replaced(&new, &format!("\n{second}\n"), "\ny\nz\n");
        changes.add(b"x", regular(&old), regular(&new));
        changes.add(b"x", regular(&new), regular(&old));
    }
    changes.check();
}

#[test]
fn headers_of_hunks_repeat_the_heading_before() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    let long = format!("f{}", "o ".repeat(60));
    let umlauts = format!("{}{}", "f".repeat(79), "\u{e4}".repeat(4));
    for heading in [
        "fn main() {",
        "_private",
        "$dollar",
        "  indented",
        "1 number",
        "blank at end \t ",
        "form feed \x0c",
        "\u{e4}",
        "caf\u{e9}",
        long.as_str(),
        umlauts.as_str(),
    ] {
        let old = [heading.as_bytes(), b"\n", &numbers(40)].concat();
        let new = replaced(&old, "\n8\n", "\nx\n");
        let new = replaced(&new, "\n28\n", "\ny\n");
        changes.add(b"x", regular(&old), regular(&new));
        let later = replaced(&old, "\n18\n", "\nsecond heading\r\n");
        let new = replaced(&later, "\n28\n", "\ny\n");
        let new = replaced(&new, "\n3\n", "\nz\n");
        changes.add(b"x", regular(&later), regular(&new));
    }
    let old = [b"latin \xe4 one\n".as_slice(), &numbers(9)].concat();
    let new = [b"latin \xe4 one\n".as_slice(), &numbers(8)].concat();
    changes.add(b"x", regular(&old), regular(&new));
    changes.check();
}

#[test]
fn insertions_and_deletions_are_whole_blocks() {
    if !git::is_installed() {
        return;
    }
    let mut changes = Changes::default();
    let function = |name: &str| format!("fn {name}() {{\n    if x {{\n        y\n    }}\n}}\n");
    let texts: [(String, String); 4] = [
        (
            [function("a"), function("c")].join("\n"),
            [function("a"), function("b"), function("c")].join("\n"),
        ),
        (
            [function("a"), function("c")].concat(),
            [function("a"), function("b"), function("c")].concat(),
        ),
        (
            [function("a"), function("b")].join("\n"),
            [function("a"), function("b"), function("c")].join("\n"),
        ),
        (
            "list = [\n    {\n        1\n    },\n]\n".into(),
            "list = [\n    {\n        1\n    },\n    {\n        1\n    },\n]\n".into(),
        ),
    ];
    for (old, new) in texts {
        let [old, new] = [old, new].map(|text| regular(text.as_bytes()));
        changes.add(b"x", old.clone(), new.clone());
        changes.add(b"x", new, old);
    }
    changes.check();
}
