//! What is left out of a folder that is copied: what ignore files and `exclude` match, secrets, the spec itself, and
//! the files of hidden checks.
//!
//! An entry of the spec itself is never left out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ignore::gitignore::Gitignore;

use super::ignore_rules::{IgnoreRules, patterns};
use super::input_error::InputError;
use super::inputs::PlacedInputs;
use super::model::Spec;
use crate::source::diagnostic::escape;
use crate::workspace::safe_path::SafePath;

/// How many names a message lists.
const SHOWN_NAMES: usize = 10;

/// Files that hold secrets, and folders such as a virtual environment `.env`.
const SECRET_NAMES: [&str; 4] = [".env", ".netrc", ".npmrc", ".pypirc"];
/// Endings and beginning of the names of key files; folders with such names are copied.
const SECRET_ENDINGS: [&str; 2] = [".pem", ".key"];
const SECRET_PREFIX: &str = "id_";
const ENV_PREFIX: &str = ".env.";
const ENV_EXAMPLE: &str = ".env.example";

/// Why something was left out, in the order of the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExclusionReason {
    Ignored,
    Excluded,
    Secret,
    Spec,
    Hidden,
}

impl ExclusionReason {
    /// The parts of the summary for the names with this reason: a count, or the names.
    fn summary(self, names: &[&str]) -> Vec<String> {
        let remark = match self {
            ExclusionReason::Ignored => return vec![format!("{} ignored", names.len())],
            ExclusionReason::Excluded => return vec![format!("{} excluded", names.len())],
            ExclusionReason::Secret => "",
            ExclusionReason::Spec => " (the spec)",
            ExclusionReason::Hidden => " (hidden)",
        };
        let more = names.len().saturating_sub(SHOWN_NAMES);
        let more = (0 < more).then(|| format!("{more} more{remark}"));
        let shown = names.iter().take(SHOWN_NAMES);
        shown
            .map(|name| format!("{}{remark}", escape(name)))
            .chain(more)
            .collect()
    }
}

/// Paths that a spec keeps apart from what it copies and protects, links resolved.
#[derive(Debug, Default)]
pub(super) struct ReservedPaths {
    spec: BTreeSet<PathBuf>,
    hidden: BTreeSet<PathBuf>,
}

impl ReservedPaths {
    /// The spec's own file, and what its hidden checks name.
    pub(super) fn of(spec: &Spec) -> ReservedPaths {
        let sources = spec.checks.iter().flat_map(|check| &check.files);
        ReservedPaths {
            spec: real_paths(&spec.file).collect(),
            hidden: sources
                .flat_map(|source| real_paths(&source.from))
                .collect(),
        }
    }

    /// Whether a hidden check names this resolved path.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.contains(path)
    }

    fn reason(&self, path: &Path) -> Option<ExclusionReason> {
        if self.is_hidden(path) {
            Some(ExclusionReason::Hidden)
        } else {
            (self.spec.contains(path)).then_some(ExclusionReason::Spec)
        }
    }
}

/// The target of a path, and the path of the link itself if it is one.
fn real_paths(path: &Path) -> impl Iterator<Item = PathBuf> {
    let link = path.parent().zip(path.file_name());
    let link = link.and_then(|(folder, name)| Some(folder.canonicalize().ok()?.join(name)));
    path.canonicalize().ok().into_iter().chain(link)
}

/// Decides what of a folder is left out.
pub(super) struct InputFilter<'a> {
    /// `None`: neither ignore files nor secrets count, as for the files of a hidden check.
    reserved: Option<&'a ReservedPaths>,
    exclude: Option<Gitignore>,
}

impl InputFilter<'_> {
    /// The filter of an entry of a spec whose folder is `top`, links resolved.
    pub(super) fn new<'a>(
        reserved: Option<&'a ReservedPaths>,
        exclude: &[String],
        top: &Path,
    ) -> Result<InputFilter<'a>, InputError> {
        let exclude = (!exclude.is_empty()).then(|| patterns(top, exclude));
        let exclude = exclude
            .transpose()
            .map_err(|error| InputError::unreadable(top, io::Error::other(error)))?;
        Ok(InputFilter { reserved, exclude })
    }

    /// The ignore rules of a folder, where ignore files count.
    pub(super) fn enter(
        &self,
        folder: &Path,
        above: Option<Rc<IgnoreRules>>,
    ) -> Result<Option<Rc<IgnoreRules>>, InputError> {
        self.reserved
            .map(|_| IgnoreRules::enter(folder, above))
            .transpose()
    }

    /// Why something in a folder with these rules is left out, if it is.
    pub(super) fn exclusion(
        &self,
        rules: Option<&IgnoreRules>,
        path: &Path,
        is_folder: bool,
    ) -> Option<ExclusionReason> {
        let is_matched = |patterns: &Gitignore| patterns.matched(path, is_folder).is_ignore();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let reserved = self.reserved.and_then(|reserved| reserved.reason(path));
        if reserved.is_some() {
            reserved
        } else if self.exclude.as_ref().is_some_and(is_matched) {
            Some(ExclusionReason::Excluded)
        } else if self.reserved.is_some() && is_secret(&name, is_folder) {
            Some(ExclusionReason::Secret)
        } else {
            let is_ignored = rules.is_some_and(|rules| rules.is_ignored(path, is_folder));
            is_ignored.then_some(ExclusionReason::Ignored)
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

/// What was left out, by its path in the workspace.
#[derive(Debug, Default)]
pub(super) struct ExcludedFiles(BTreeMap<String, ExclusionReason>);

impl ExcludedFiles {
    pub(super) fn add(&mut self, folder: Option<&SafePath>, name: &str, reason: ExclusionReason) {
        let path = folder.map_or(name.to_owned(), |folder| format!("{folder}/{name}"));
        self.0.insert(path, reason);
    }

    /// One line about what was left out, if anything was; what another entry brought was not.
    pub(super) fn summary(&self, brought: [&PlacedInputs; 2]) -> Option<String> {
        let brought: BTreeSet<&str> = brought
            .into_iter()
            .flatten()
            .map(|(to, _)| to.as_str())
            .collect();
        let mut by_reason: BTreeMap<ExclusionReason, Vec<&str>> = BTreeMap::new();
        for (path, reason) in &self.0 {
            if !brought.contains(path.as_str()) {
                by_reason.entry(*reason).or_default().push(path);
            }
        }
        let parts: Vec<String> = by_reason
            .iter()
            .flat_map(|(reason, names)| reason.summary(names))
            .collect();
        (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn secrets_are_recognised_by_their_names() {
        for name in [
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
        ] {
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
        // A folder cannot be a key, but a virtual environment may be named `.env`.
        assert!(
            !is_secret("id_service", true) && !is_secret("a.key", true) && is_secret(".env", true)
        );
    }
}
