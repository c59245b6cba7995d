//! Every rule on names, one short case each, and what holds for any text.

use std::path::{Component, Path};

use proptest::prelude::*;

use crate::workspace::safe_path::{SafePath, Violation};

fn refused(text: &str) -> Violation {
    SafePath::parse(text).expect_err(text)
}

fn accepted(text: &str) -> String {
    SafePath::parse(text).expect(text).as_str().to_owned()
}

#[test]
fn one_spelling() {
    for (text, expected) in [
        ("a.py", "a.py"),
        ("./a//b", "a/b"),
        ("a/./b/.", "a/b"),
        ("old/", "old"),
        ("pkg/calc.py", "pkg/calc.py"),
    ] {
        assert_eq!(accepted(text), expected);
    }
}

#[test]
fn odd_names_are_literal() {
    for text in [
        "a..b.py",
        ".hidden",
        "..x",
        "~/x",
        "$HOME/x",
        "%2e%2e/x",
        "a/-x",
        "*",
        "a/C:x",
        "é",
        "a∕b",
        ".gitignore",
        " a",
    ] {
        assert_eq!(accepted(text), text);
    }
}

#[test]
fn escapes() {
    for text in [
        "..",
        "../x",
        "a/../../x",
        "a/../b",
        "./../x",
        "a/..",
        "../workspace-evil/x",
        &"../".repeat(1365),
    ] {
        assert_eq!(
            refused(text).rule,
            "\"..\" leads out of the workspace",
            "{text}"
        );
    }
    for text in ["/", "/etc/passwd", "//x"] {
        assert!(refused(text).rule.contains("never absolute"), "{text}");
    }
}

#[test]
fn nothing_is_named() {
    for text in ["", ".", "./", "./."] {
        assert!(refused(text).rule.contains("empty"), "{text:?}");
    }
}

#[test]
fn characters() {
    for c in
        "\0\n\r\t\u{1b}\u{7f}\u{80}\u{9b}\\\u{2028}\u{202a}\u{202e}\u{2066}\u{2069}\u{200f}".chars()
    {
        let violation = refused(&format!("a{c}b"));
        assert!(
            violation.rule.contains(&format!("U+{:04X}", u32::from(c))),
            "{violation}"
        );
        assert!(
            violation.what.starts_with("a\\") && violation.what.is_ascii(),
            "{violation}"
        );
    }
    for text in ["..\\..\\x", "C:\\x", "\\\\host\\x"] {
        assert!(refused(text).rule.contains("U+005C"), "{text}");
    }
}

#[test]
fn forms() {
    for (text, word) in [
        ("C:x", "drive letter"),
        ("c:", "drive letter"),
        ("-rf", "\"-\""),
        ("./-rf/x", "\"-\""),
        ("a /b", "blank"),
        ("a/b.", "dot"),
        ("a/...", "dot"),
        ("a\u{a0}", "blank"),
        (".git/hooks/pre-commit", ".git"),
        ("sub/.GIT/config", ".git"),
    ] {
        assert!(
            refused(text).rule.contains(word),
            "{text}: {}",
            refused(text).rule
        );
    }
}

#[test]
fn limits_are_named() {
    assert_eq!(accepted(&"x".repeat(255)).len(), 255);
    assert!(refused(&"x".repeat(256)).rule.contains("255"));
    assert!(refused(&"x/".repeat(2500)).rule.contains("4096"));
    assert_eq!(accepted(&"x/".repeat(100)).len(), 199);
    assert!(refused(&"x/".repeat(101)).rule.contains("100 components"));
    assert!(refused(&"x".repeat(5000)).what.chars().count() < 210);
}

#[test]
fn parts_and_relations() {
    let path = SafePath::parse("a/b/c.py").expect("safe");
    assert_eq!(path.file_name(), "c.py");
    assert_eq!(path.components().collect::<Vec<_>>(), ["a", "b", "c.py"]);
    let parent = path.parent().expect("parent");
    assert_eq!(parent.as_str(), "a/b");
    assert_eq!(parent.parent().and_then(|a| a.parent()), None);
    assert!(path.starts_with(&parent) && parent.starts_with(&parent));
    assert!(!SafePath::parse("a/bc").expect("safe").starts_with(&parent));
}

#[test]
fn collisions() {
    let folded = |text: &str| SafePath::parse(text).expect(text).folded();
    for (one, other) in [
        ("A.py", "a.py"),
        ("caf\u{e9}", "cafe\u{301}"),
        ("Stra\u{df}e", "STRASSE"),
        ("D/\u{c9}.py", "d/e\u{301}.py"),
    ] {
        assert_eq!(folded(one), folded(other), "{one} {other}");
    }
    assert_ne!(folded("a.py"), folded("b.py"));
}

proptest! {
    #[test]
    fn what_is_accepted_stays_inside(text in "([a-z.~-]|[/.]|\\.\\./|\\PC|\\s){0,40}") {
        if let Ok(path) = SafePath::parse(&text) {
            let joined = Path::new("/root/workspace").join(path.as_str());
            prop_assert!(joined.starts_with("/root/workspace"));
            prop_assert!(Path::new(path.as_str()).components().all(|part| matches!(part, Component::Normal(_))));
            prop_assert_eq!(SafePath::parse(path.as_str()), Ok(path.clone()));
            prop_assert!(!path.folded().is_empty());
        }
    }

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        if let Err(violation) = SafePath::parse(&text) {
            prop_assert!(!violation.to_string().contains(char::is_control));
        }
    }
}
