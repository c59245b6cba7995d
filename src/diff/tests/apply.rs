//! `git apply` turns one tree into another by our patches, and back.

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

use super::git::GitFolder;
use super::{
    Tree, VersionKind, git, link, path, read_tree, regular, tree_patch, version, write_tree,
};
use crate::diff::FileVersion;

/// Few names, so that the same path is often in both trees; `dir` and `a` are files in some and folders in others.
const NAMES: &[&[u8]] = &[
    b"plain.txt",
    b"with blank",
    b" leading and trailing ",
    "\u{e4}\u{f6} \u{6f22}".as_bytes(),
    b"not\xff\xfeutf8",
    b"quo\"te",
    b"single'quote",
    b"back\\slash",
    b"tab\there",
    b"new\nline",
    b"bell\x07 \x1b[31m\x7f",
    b"-dash",
    b"b/x",
    b"dir",
    b"dir/inner",
    b"dir/deep/er",
    b"dir with blank/\xc3\xa4",
    b"a",
    b"a/b",
    b"a/x",
];

/// Lines that look like parts of a patch, and others.
const LINES: &[&[u8]] = &[
    b"",
    b"one",
    b"two",
    b"three",
    b"\tfour ",
    b"carriage\r",
    b"\r",
    b"\xff\xfe not utf-8",
    b"-- a/plain.txt",
    b"++ b/plain.txt",
    b"@@ -1,3 +1,3 @@",
    b"\\ No newline at end of file",
    b"diff --git a/plain.txt b/plain.txt",
    b"GIT binary patch",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::collection::vec(select(LINES), 0..40);
    (lines, any::<bool>()).prop_map(|(lines, has_newline)| {
        let mut text = lines.join(&b'\n');
        if has_newline {
            text.push(b'\n');
        }
        text
    })
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => text(),
        1 => Just(Vec::new()),
        2 => prop::collection::vec(prop_oneof![Just(0), any::<u8>()], 1..600),
        // The zero byte is behind those that git looks at.
        1 => text().prop_map(|text| [&b"line\n".repeat(1600), b"\0".as_slice(), &text].concat()),
    ]
}

fn file() -> impl Strategy<Value = FileVersion<'static>> {
    // No link leads to itself: git refuses to create a file where a folder is such a link.
    let targets: &[&[u8]] = &[b"b", b"../out of it", b"\xc3\xa4\xff", b"two\nlines\n"];
    prop_oneof![
        4 => content().prop_map(|content| version(VersionKind::Regular, &content)),
        2 => content().prop_map(|content| version(VersionKind::Executable, &content)),
        1 => select(targets).prop_map(|target| version(VersionKind::Link, target)),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    prop::collection::vec((select(NAMES), file()), 0..10).prop_map(|files| {
        let mut tree = Tree::new();
        for (name, file) in files {
            let path = path(name);
            // A path is a file or a folder.
            if !tree
                .keys()
                .any(|other| other.starts_with(&path) || path.starts_with(other))
            {
                tree.insert(path, file);
            }
        }
        tree
    })
}

/// The second tree shares files with the first, some with another mode or with lines cut out.
fn trees() -> impl Strategy<Value = (Tree, Tree)> {
    let kept = prop::collection::vec((0..5_u8, any::<prop::sample::Index>()), NAMES.len());
    (tree(), tree(), kept).prop_map(|(old, mut new, kept)| {
        for ((path, file), (how, at)) in old.iter().zip(kept) {
            let mut file = file.clone();
            match how {
                1 if file.kind == VersionKind::Regular => file.kind = VersionKind::Executable,
                2 if !file.is_link() && !file.content.is_empty() => {
                    let from = at.index(file.content.len());
                    let to = (from + 9).min(file.content.len());
                    file.content.to_mut().drain(from..to);
                }
                3 | 4 => continue,
                _ => {}
            }
            if let Some(other) = new.get_mut(path) {
                *other = file;
            }
        }
        (old, new)
    })
}

fn check(old: &Tree, new: &Tree) -> Result<(), TestCaseError> {
    let patch = tree_patch(old, new);
    prop_assert_eq!(patch.is_empty(), old == new);
    if patch.is_empty() {
        return Ok(());
    }
    let folder = GitFolder::new();
    write_tree(&folder.tree(), old);
    let shown = patch.escape_ascii().to_string();
    prop_assert_eq!(folder.apply(&patch, &[]), Ok(()), "{}", shown);
    prop_assert!(&read_tree(&folder.tree()) == new, "{}", shown);
    prop_assert_eq!(folder.apply(&patch, &["--reverse"]), Ok(()), "{}", shown);
    let restored = without_modes(&read_tree(&folder.tree()));
    prop_assert!(restored == without_modes(old), "{}", shown);
    Ok(())
}

/// `git apply --reverse` restores a deleted executable or link as a regular file, with patches of git as with ours.
fn without_modes(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for file in tree.values_mut() {
        file.kind = VersionKind::Regular;
    }
    tree
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn git_applies_the_patch_between_any_two_trees((old, new) in trees()) {
        if git::is_installed() {
            check(&old, &new)?;
        }
    }
}

/// Every kind of name, with a text that is created, changed and deleted.
#[test]
fn git_applies_patches_of_every_name() {
    if !git::is_installed() {
        return;
    }
    let names: Vec<_> = (NAMES.iter())
        .filter(|name| !name.starts_with(b"dir/") && !name.starts_with(b"a/"))
        .collect();
    let tree = |content: &[u8]| -> Tree {
        let files = names.iter().map(|name| path(name));
        files.zip(regular(content).into_iter().cycle()).collect()
    };
    for (old, new) in [
        (Tree::new(), tree(b"one\n")),
        (tree(b"one\n"), tree(b"two\n")),
        (tree(b"one\n"), tree(b"\0")),
        (tree(b"two\n"), Tree::new()),
    ] {
        check(&old, &new).unwrap();
    }
}

#[test]
fn a_folder_becomes_a_file_or_a_link_and_back() {
    if !git::is_installed() {
        return;
    }
    let folder = Tree::from([(path(b"x/y/z"), version(VersionKind::Regular, b"text\n"))]);
    for other in [regular(b"file\n"), regular(b"\0"), regular(b""), link(b"y")] {
        let other = Tree::from([(path(b"x"), other.unwrap())]);
        check(&folder, &other).unwrap();
        check(&other, &folder).unwrap();
    }
}

/// The last lines of compressed data have every possible length.
#[test]
fn git_applies_patches_of_binary_files_of_many_sizes() {
    if !git::is_installed() {
        return;
    }
    let mut seed = 1_u32;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut content = vec![0; length];
        for byte in &mut content[1..] {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (seed >> 24) as u8;
        }
        content
    };
    let mut tree = || -> Tree {
        let sizes = (990..1050).chain([100_000]);
        let files = sizes.map(|size| (size.to_string(), noise(size)));
        files
            .map(|(name, content)| (name.into(), version(VersionKind::Regular, &content)))
            .collect()
    };
    check(&tree(), &tree()).unwrap();
}

#[test]
fn git_applies_patches_of_long_texts() {
    if !git::is_installed() {
        return;
    }
    let tree = |step: usize| -> Tree {
        let lines = (0..5000_usize).map(|line| format!("{}\n", line - line % step));
        let text: String = lines.collect();
        Tree::from([(path(b"x"), version(VersionKind::Regular, text.as_bytes()))])
    };
    check(&tree(1), &tree(7)).unwrap();
}
