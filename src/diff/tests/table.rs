//! The table of changed files is that of git.

use super::git::GitFolder;
use super::{Tree, VersionKind, git, path, tree_stat, version};
use crate::diff::{FileStat, stat_table};

fn text(lines: usize) -> Vec<u8> {
    (0..lines)
        .flat_map(|line| format!("{line}\n").into_bytes())
        .collect()
}

/// Compares the tables of git at several widths.
fn check(old: &[(&[u8], VersionKind, Vec<u8>)], new: &[(&[u8], VersionKind, Vec<u8>)]) {
    let [old, new] = [old, new].map(|files| -> Tree {
        let files = files.iter();
        files
            .map(|(name, kind, content)| (path(name), version(*kind, content)))
            .collect()
    });
    let stat = tree_stat(&old, &new);
    let folder = GitFolder::new();
    for width in [1, 30, 40, 60, 80, 100, 200] {
        let expected = folder.diff(&old, &new, &[&format!("--stat={width}")]);
        let expected = String::from_utf8(expected).unwrap();
        assert_eq!(stat_table(&stat, width), expected, "{width}");
    }
}

#[test]
fn tables_are_those_of_git() {
    use VersionKind::{Executable, Link, Regular};
    if !git::is_installed() {
        return;
    }
    check(&[], &[(b"x", Regular, text(1))]);
    check(&[(b"x", Regular, text(2))], &[(b"x", Regular, text(1))]);
    check(&[(b"x", Regular, text(2))], &[(b"x", Executable, text(2))]);
    check(
        &[(b"x", Regular, b"\0".to_vec())],
        &[(b"x", Executable, b"\0".to_vec())],
    );
    check(
        &[(b"x", Regular, text(2))],
        &[(b"x", Link, b"target".to_vec())],
    );
    check(&[], &[(b"x", Regular, Vec::new())]);
    check(&[], &[(b"x", Regular, vec![0; 12345])]);
    check(
        &[
            (
                b"a/long/path/to/a/file/with/a/long/name.txt",
                Regular,
                text(70),
            ),
            (b"b", Regular, text(300)),
            (b"c\xff d", Regular, vec![0; 1000]),
            (b"d", Regular, text(5)),
        ],
        &[
            (
                b"a/long/path/to/a/file/with/a/long/name.txt",
                Regular,
                text(35),
            ),
            (b"b", Regular, text(499)),
            (b"c\xff d", Regular, vec![0; 70]),
            (b"d", Regular, b"other\n".to_vec()),
        ],
    );
    check(
        &[(
            b"a_very_long_name_without_any_folder_in_it_at_all",
            Regular,
            text(3),
        )],
        &[(
            b"a_very_long_name_without_any_folder_in_it_at_all",
            Regular,
            text(2000),
        )],
    );
}

#[test]
fn nothing_is_said_about_no_files() {
    assert_eq!(stat_table(&[], 80), "");
}

#[test]
fn the_summary_counts_lines_and_files() {
    let stat = |added, deleted| FileStat::Text { added, deleted };
    let files = [(path(b"a"), stat(3, 0)), (path(b"b"), stat(1, 1))];
    assert_eq!(
        stat_table(&files, 80),
        " a | 3 +++\n b | 2 +-\n 2 files changed, 4 insertions(+), 1 deletion(-)\n"
    );
}
