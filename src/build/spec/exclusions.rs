//! What stays behind when a folder is taken in: what its ignore files and the spec exclude, secrets, the spec itself, and
//! what a hidden check brings by itself.
//!
//! `.gitignore` and `.ignore` files are those of the folder and of what is below it, also outside a repository. As in
//! other tools a deeper file wins over one above it, and `.ignore` over `.gitignore`. What an entry of the spec names
//! itself is never asked about here: it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use super::diagnostic::escape;
use super::inputs::PlacedInputs;
use super::model::Spec;
use crate::regular_file::open_regular_file;
use crate::workspace::safe_path::SafePath;

/// The largest ignore file, in bytes.
const MAX_IGNORE_BYTES: u64 = 1 << 20;
/// How many names a message lists.
const SHOWN_NAMES: usize = 10;

/// Files that hold secrets; `id_` begins the name of a key, and folders of such names come.
const SECRET_NAMES: [&str; 4] = [".env", ".netrc", ".npmrc", ".pypirc"];
const SECRET_ENDINGS: [&str; 2] = [".pem", ".key"];
const SECRET_PREFIX: &str = "id_";
const ENV_PREFIX: &str = ".env.";
const ENV_EXAMPLE: &str = ".env.example";

/// Why something was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExclusionReason {
    Ignored,
    Excluded,
    Secret,
    Spec,
    Hidden,
}

/// What a spec keeps apart from what it copies and protects, by its real path.
#[derive(Debug, Default)]
pub struct ReservedPaths {
    spec: BTreeSet<PathBuf>,
    hidden: BTreeSet<PathBuf>,
}

impl ReservedPaths {
    /// Returns what this spec keeps apart: its own file, and what its hidden checks name.
    pub fn of(spec: &Spec) -> ReservedPaths {
        let sources = spec.checks.iter().flat_map(|check| &check.files);
        ReservedPaths {
            spec: both_names(&spec.file).into_iter().collect(),
            hidden: sources
                .flat_map(|source| both_names(&source.from))
                .collect(),
        }
    }

    /// Whether a real path is one that a hidden check names.
    pub fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.contains(path)
    }

    fn why(&self, path: &Path) -> Option<ExclusionReason> {
        match () {
            () if self.is_hidden(path) => Some(ExclusionReason::Hidden),
            () if self.spec.contains(path) => Some(ExclusionReason::Spec),
            () => None,
        }
    }
}

/// Returns where a path leads, and where it stands itself if it is a link.
fn both_names(path: &Path) -> Vec<PathBuf> {
    let itself = path.parent().zip(path.file_name());
    let itself = itself.and_then(|(folder, name)| Some(folder.canonicalize().ok()?.join(name)));
    path.canonicalize().ok().into_iter().chain(itself).collect()
}

/// The rules of one folder: those of the folders above it, and its own ignore files.
pub struct IgnoreRules {
    above: Option<Rc<IgnoreRules>>,
    gitignore: Option<Gitignore>,
    ignore: Option<Gitignore>,
}

impl IgnoreRules {
    /// Returns the rules in a folder, or why one of its ignore files cannot be understood.
    pub fn enter(folder: &Path, above: Option<Rc<IgnoreRules>>) -> Result<Rc<IgnoreRules>, String> {
        let read = |name: &str| ignore_file(folder, name);
        Ok(Rc::new(IgnoreRules {
            above,
            gitignore: read(".gitignore")?,
            ignore: read(".ignore")?,
        }))
    }

    fn is_ignored(&self, path: &Path, is_folder: bool) -> bool {
        let by_ignore = self.matched(path, is_folder, |rules| rules.ignore.as_ref());
        by_ignore
            .or_else(|| self.matched(path, is_folder, |rules| rules.gitignore.as_ref()))
            .unwrap_or(false)
    }

    /// Returns what the deepest file of a kind that names a path says of it.
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

/// Decides what of a folder stays behind.
pub struct InputFilter<'a> {
    /// `None`: neither ignore files nor secrets count, as for what a hidden check brings.
    pub reserved: Option<&'a ReservedPaths>,
    exclude: Option<Gitignore>,
}

impl InputFilter<'_> {
    /// Returns the filter of one entry of a spec whose folder is really at `top`.
    pub fn new<'a>(
        apart: Option<&'a ReservedPaths>,
        exclude: &[String],
        top: &Path,
    ) -> Result<InputFilter<'a>, String> {
        let exclude = (!exclude.is_empty())
            .then(|| patterns(top, exclude))
            .transpose()?;
        Ok(InputFilter {
            reserved: apart,
            exclude,
        })
    }

    /// Returns the rules in a folder, where ignore files count.
    pub fn enter(
        &self,
        folder: &Path,
        above: Option<Rc<IgnoreRules>>,
    ) -> Result<Option<Rc<IgnoreRules>>, String> {
        self.reserved
            .map(|_| IgnoreRules::enter(folder, above))
            .transpose()
    }

    /// Returns why something of a folder with these rules stays behind.
    pub fn leaves_out(
        &self,
        rules: Option<&IgnoreRules>,
        path: &Path,
        is_folder: bool,
    ) -> Option<ExclusionReason> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_excluded = self
            .exclude
            .as_ref()
            .is_some_and(|patterns| patterns.matched(path, is_folder).is_ignore());
        let apart = self.reserved.and_then(|apart| apart.why(path));
        match () {
            () if apart.is_some() => apart,
            () if is_excluded => Some(ExclusionReason::Excluded),
            () if self.reserved.is_some() && is_secret(&name, is_folder) => {
                Some(ExclusionReason::Secret)
            }
            () if rules.is_some_and(|rules| rules.is_ignored(path, is_folder)) => {
                Some(ExclusionReason::Ignored)
            }
            () => None,
        }
    }
}

/// Whether a file of this name holds secrets.
fn is_secret(name: &str, is_folder: bool) -> bool {
    let is_key = SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || name.starts_with(SECRET_PREFIX);
    SECRET_NAMES.contains(&name)
        || (name.starts_with(ENV_PREFIX) && name != ENV_EXAMPLE)
        || (is_key && !is_folder)
}

/// Returns one pattern of `exclude` as a line of an ignore file, or what is wrong with it.
pub fn exclude_pattern(text: &str) -> Result<String, String> {
    let text = text.trim();
    let line = match text.strip_prefix("./").unwrap_or(text) {
        comment if comment.starts_with('#') => format!("\\{comment}"),
        other => other.to_owned(),
    };
    patterns(Path::new("/"), std::slice::from_ref(&line)).map(|_| line)
}

fn patterns(top: &Path, lines: &[String]) -> Result<Gitignore, String> {
    let mut builder = GitignoreBuilder::new(top);
    for line in lines {
        builder
            .add_line(None, line)
            .map_err(|error| error.to_string())?;
    }
    builder.build().map_err(|error| error.to_string())
}

/// Returns the patterns of an ignore file where there is one; a line that is no pattern says nothing.
fn ignore_file(folder: &Path, name: &str) -> Result<Option<Gitignore>, String> {
    let path = folder.join(name);
    if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let cannot = |error: &dyn std::fmt::Display| {
        format!("cannot read {}: {error}", escape(&path.to_string_lossy()))
    };
    let mut bytes = Vec::new();
    let file = open_regular_file(&path, OFlags::empty()).map_err(|error| cannot(&error))?;
    file.take(MAX_IGNORE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| cannot(&error))?;
    if MAX_IGNORE_BYTES < bytes.len() as u64 {
        return Err(cannot(&"it is larger than 1 MiB"));
    }
    let mut builder = GitignoreBuilder::new(folder);
    for line in String::from_utf8_lossy(&bytes)
        .trim_start_matches('\u{feff}')
        .lines()
    {
        // As everywhere else, one bad line does not make the others invalid.
        let _ = builder.add_line(None, line);
    }
    builder.build().map(Some).map_err(|error| cannot(&error))
}

/// What stayed behind, by the place where it would have arrived.
#[derive(Debug, Default)]
pub struct ExcludedFiles(BTreeMap<String, ExclusionReason>);

impl ExcludedFiles {
    pub fn add(&mut self, to: Option<&SafePath>, name: &str, why: ExclusionReason) {
        self.0
            .insert(to.map_or(name.to_owned(), |to| format!("{to}/{name}")), why);
    }

    /// Returns the line that says what was left out, if anything was; what another entry brought is not.
    pub fn line(&self, lists: [&PlacedInputs; 2]) -> Option<String> {
        let came: BTreeSet<&str> = lists
            .into_iter()
            .flatten()
            .map(|(to, _)| to.as_str())
            .collect();
        let left: Vec<(&str, ExclusionReason)> = self
            .0
            .iter()
            .map(|(to, why)| (to.as_str(), *why))
            .filter(|(to, _)| !came.contains(to))
            .collect();
        let count = |wanted: ExclusionReason| left.iter().filter(|(_, why)| *why == wanted).count();
        let counted = [
            (count(ExclusionReason::Ignored), "ignored"),
            (count(ExclusionReason::Excluded), "excluded"),
        ];
        let mut parts: Vec<String> = counted
            .iter()
            .filter(|(number, _)| 0 < *number)
            .map(|(number, word)| format!("{number} {word}"))
            .collect();
        parts.extend(
            [
                (ExclusionReason::Secret, ""),
                (ExclusionReason::Spec, " (the spec)"),
                (ExclusionReason::Hidden, " (hidden)"),
            ]
            .iter()
            .flat_map(|(wanted, remark)| {
                let names = left
                    .iter()
                    .filter(|(_, why)| why == wanted)
                    .take(SHOWN_NAMES);
                let more = count(*wanted).saturating_sub(SHOWN_NAMES);
                let more = (0 < more).then(|| format!("{more} more{remark}"));
                names
                    .map(|(to, _)| format!("{}{remark}", escape(to)))
                    .chain(more)
                    .collect::<Vec<_>>()
            }),
        );
        (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{exclude_pattern, is_secret};

    proptest! {
        #[test]
        fn no_text_breaks_a_pattern(text in r"[a*?\[\]{}!#/\\ ,.~-]{0,30}|\PC{0,20}") {
            let _ = exclude_pattern(&text);
        }
    }

    #[test]
    fn secrets_are_known_by_their_names() {
        let secret = [
            ".env",
            ".env.local",
            ".env.production",
            "server.pem",
            ".pem",
            "tls.key",
            "id_rsa",
            "id_ed25519.pub",
            ".netrc",
            ".npmrc",
            ".pypirc",
        ];
        for name in secret {
            assert!(is_secret(name, false), "{name}");
        }
        for name in [
            ".env.example",
            "env",
            ".environment",
            "pem",
            "key.py",
            "keys",
            "valid_id.py",
            "npmrc",
            ".envrc",
        ] {
            assert!(!is_secret(name, false), "{name}");
        }
        // A folder is no key, but a virtual environment may be named `.env`.
        assert!(
            !is_secret("id_service", true) && !is_secret("a.key", true) && is_secret(".env", true)
        );
    }

    #[test]
    fn patterns_are_those_of_ignore_files() {
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
            assert_eq!(exclude_pattern(text), Ok(text.to_owned()));
        }
        assert_eq!(
            (exclude_pattern("./data/"), exclude_pattern("#x")),
            (Ok("data/".into()), Ok("\\#x".into()))
        );
        for text in ["[z-a]", "a{b"] {
            assert!(exclude_pattern(text).is_err(), "{text}");
        }
    }
}
