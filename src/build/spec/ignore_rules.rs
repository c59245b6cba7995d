//! Ignore files (`.gitignore`, `.ignore`) and the patterns of `exclude`, which follow the same rules.
//!
//! Ignore files are those of a copied folder and below it, also outside a repository. As in other tools a deeper file
//! wins over one above it, and `.ignore` over `.gitignore`.

use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::input_error::InputError;
use crate::source::text_file::load;

/// The rules of one folder: those of the folders above it, and its own ignore files.
pub(super) struct IgnoreRules {
    above: Option<Rc<IgnoreRules>>,
    gitignore: Option<Gitignore>,
    ignore: Option<Gitignore>,
}

impl IgnoreRules {
    /// Reads the ignore files of a folder.
    pub(super) fn enter(
        folder: &Path,
        above: Option<Rc<IgnoreRules>>,
    ) -> Result<Rc<IgnoreRules>, InputError> {
        Ok(Rc::new(IgnoreRules {
            above,
            gitignore: ignore_file(folder, ".gitignore")?,
            ignore: ignore_file(folder, ".ignore")?,
        }))
    }

    pub(super) fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        self.matched(path, is_folder, |rules| rules.ignore.as_ref())
            .or_else(|| self.matched(path, is_folder, |rules| rules.gitignore.as_ref()))
            .unwrap_or(false)
    }

    /// Whether the deepest file of a kind that matches a path ignores it.
    fn matched(
        &self,
        path: &Path,
        is_folder: bool,
        kind: fn(&IgnoreRules) -> Option<&Gitignore>,
    ) -> Option<bool> {
        let mut next = Some(self);
        while let Some(rules) = next {
            match kind(rules).map_or(Match::None, |patterns| patterns.matched(path, is_folder)) {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None => next = rules.above.as_deref(),
            }
        }
        None
    }
}

/// One pattern of `exclude` as a line of an ignore file.
pub(super) fn exclude_pattern(text: &str) -> Result<String, ignore::Error> {
    let text = text.trim();
    let line = match text.strip_prefix("./").unwrap_or(text) {
        comment if comment.starts_with('#') => format!("\\{comment}"),
        other => other.to_owned(),
    };
    patterns(Path::new("/"), std::slice::from_ref(&line)).map(|_| line)
}

/// Compiles lines of an ignore file at `top`.
pub(super) fn patterns(top: &Path, lines: &[String]) -> Result<Gitignore, ignore::Error> {
    let mut builder = GitignoreBuilder::new(top);
    for line in lines {
        builder.add_line(None, line)?;
    }
    builder.build()
}

/// The patterns of an ignore file, if there is one; invalid lines are skipped, as in other tools.
fn ignore_file(folder: &Path, name: &str) -> Result<Option<Gitignore>, InputError> {
    let path = folder.join(name);
    if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let bytes = load(&path).map_err(|error| InputError::unreadable(&path, error))?;
    let text = String::from_utf8_lossy(&bytes);
    let mut builder = GitignoreBuilder::new(folder);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    let unusable = |error| InputError::unreadable(&path, io::Error::other(error));
    builder.build().map(Some).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::exclude_pattern;

    proptest! {
        #[test]
        fn any_text_can_be_tried_as_a_pattern(text in r"[a*?\[\]{}!#/\\ ,.~-]{0,30}|\PC{0,20}") {
            let _ = exclude_pattern(&text);
        }
    }

    #[test]
    fn patterns_are_those_of_ignore_files() {
        let check = |text, expected: &str| assert_eq!(exclude_pattern(text).unwrap(), expected);
        for text in [
            "*.csv",
            "data/",
            "/top",
            "a/**/b",
            "!keep",
            "[ab].txt",
            "with space",
            "[",
            "\\#x",
        ] {
            check(text, text);
        }
        check("./data/", "data/");
        check("#x", "\\#x");
        for text in ["[z-a]", "a{b"] {
            assert!(exclude_pattern(text).is_err(), "{text}");
        }
    }
}
