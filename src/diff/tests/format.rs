//! Patches are byte for byte those of git.

use super::git::GitFolder;
use super::{Tree, executable, git, link, path, regular, tree_patch};
use crate::diff::FileVersion;

type Version = Option<FileVersion<'static>>;

fn one_file(name: &[u8], version: Version) -> Tree {
    version
        .map(|version| (path(name), version))
        .into_iter()
        .collect()
}

/// Compares our patch of one file with that of git, which must not be empty. Compressed data is left out: it depends on
/// the implementation of zlib.
fn check(name: &[u8], old: Version, new: Version) {
    let (old, new) = (one_file(name, old), one_file(name, new));
    let expected = GitFolder::new().diff(&old, &new, &["--binary"]);
    assert!(!expected.is_empty());
    assert_eq!(shown(&tree_patch(&old, &new)), shown(&expected));
}

/// The patch as text that an assertion prints well.
fn shown(patch: &[u8]) -> String {
    let text = patch.escape_ascii().to_string().replace("\\n", "\n");
    match text.split_once("GIT binary patch") {
        Some((header, data)) => {
            let literals = data.lines().filter(|line| line.starts_with("literal "));
            literals.fold(header.to_owned(), |text, line| text + line + "\n")
        }
        None => text,
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
    for version in [
        regular(b"one\ntwo\n"),
        regular(b"one line"),
        regular(b""),
        executable(b"#!/bin/sh\n"),
        link(b"to/there"),
        regular(b"\0binary"),
        executable(b"\0"),
    ] {
        check(b"x", None, version.clone());
        check(b"x", version, None);
    }
}

#[test]
fn changes_of_modes_and_kinds() {
    if !git::is_installed() {
        return;
    }
    check(b"x", regular(b"same\n"), executable(b"same\n"));
    check(b"x", executable(b"one\n"), regular(b"two\n"));
    check(b"x", regular(b"\0same"), executable(b"\0same"));
    check(b"x", regular(b"\0one"), executable(b"\0two"));
    check(b"x", regular(b""), executable(b""));
    check(b"x", regular(b"one\n"), link(b"one"));
    check(b"x", link(b"one"), executable(b"one\n"));
    check(b"x", link(b"one"), link(b"two"));
    check(b"x", link(b"one"), regular(b"\0"));
    check(b"x", link(b"one"), regular(b""));
}

#[test]
fn contents_of_any_bytes() {
    if !git::is_installed() {
        return;
    }
    check(b"x", regular(b""), regular(b"text\n"));
    check(b"x", regular(b"text\n"), regular(b""));
    check(b"x", regular(b"text\n"), regular(b"text"));
    check(b"x", regular(b"text"), regular(b"text\n"));
    check(b"x", regular(b"one\nlast"), regular(b"two\nlast"));
    check(b"x", regular(b"one"), regular(b"two"));
    check(b"x", regular(b"one\r\ntwo\r\n"), regular(b"one\r\ntwo\n"));
    check(b"x", regular(b"\xff\n"), regular(b"\xfe\n"));
    check(b"x", regular(b"a\rb\n"), regular(b"a\x1bb\n"));
    check(b"x", regular(b"text\n"), regular(b"text\n\0"));
    check(b"x", regular(b"\0\x01\x02"), regular(b""));
    for position in [7999, 8000] {
        let mut content = vec![b'x'; position];
        content.extend(b"\0\n");
        check(b"x", regular(b"text\n"), regular(&content));
    }
}

#[test]
fn names_are_quoted() {
    if !git::is_installed() {
        return;
    }
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
        check(name, regular(b"one\n"), regular(b"two\n"));
        check(name, None, regular(b"two\n"));
        check(name, regular(b"two\n"), None);
        check(name, regular(b"\0"), regular(b"\0\0"));
    }
}

#[test]
fn hunks_have_three_lines_of_context() {
    if !git::is_installed() {
        return;
    }
    let old = numbers(40);
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\nx\n")),
    );
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\n")),
    );
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n20\n", "\n20\nx\ny\n")),
    );
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "1\n", "x\n1\n")),
    );
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n40\n", "\n")),
    );
    check(
        b"x",
        regular(&old),
        regular(&replaced(&old, "\n40\n", "\n40")),
    );
    // Six equal lines between two changes are context of one hunk, seven of two.
    for second in [15, 16, 17, 18, 19] {
        let new = replaced(&old, "\n10\n", "\nx\n");
        let new = replaced(&new, &format!("\n{second}\n"), "\ny\nz\n");
        check(b"x", regular(&old), regular(&new));
        check(b"x", regular(&new), regular(&old));
    }
}

#[test]
fn headers_of_hunks_repeat_the_heading_before() {
    if !git::is_installed() {
        return;
    }
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
        check(b"x", regular(&old), regular(&new));
        let later = replaced(&old, "\n18\n", "\nsecond heading\r\n");
        let new = replaced(&later, "\n28\n", "\ny\n");
        let new = replaced(&new, "\n3\n", "\nz\n");
        check(b"x", regular(&later), regular(&new));
    }
    let old = [b"latin \xe4 one\n".as_slice(), &numbers(9)].concat();
    let new = [b"latin \xe4 one\n".as_slice(), &numbers(8)].concat();
    check(b"x", regular(&old), regular(&new));
}
