//! Refuses an answer, and a check, for files that would decide the checks and that the user did not give.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::build::tampering::rules::{ENTRY_POINTS, RuleScope, TamperingRules, is_metadata};
use crate::error::{Result, Violation};
use crate::workspace::safe_path::SafePath;
use crate::workspace::{EntryKind, FileChange, ReadOutcome, WalkStep, Workspace, WorkspaceEntry};

/// What a user can do about a refusal.
const REMEDY: &str = "if it is yours, name it in `workspace.copy`; else it needs another name";

/// The path and content that a change writes.
pub(crate) fn written(change: &FileChange) -> Option<(&SafePath, &[u8])> {
    match change {
        FileChange::Write { path, content } => Some((path, content)),
        FileChange::Delete { .. } => None,
    }
}

/// A file that is refused unless the user gave it or it is empty.
struct Suspect {
    path: PathBuf,
    /// The target of a link.
    link: Option<PathBuf>,
    rule: String,
}

impl TamperingRules {
    /// Refuses an answer that writes a file which decides the checks.
    pub(crate) fn check_answer<'a>(
        &self,
        workspace: &Workspace,
        written: impl Iterator<Item = Option<(&'a SafePath, &'a [u8])>>,
    ) -> Result<()> {
        let written: Vec<(&Path, &[u8])> = written
            .flatten()
            .map(|(path, content)| (Path::new(path.as_str()), content))
            .collect();
        let is_package = |folder: &Path| {
            let marker = folder.join("__init__.py");
            written.iter().any(|(path, _)| *path == marker)
                || !matches!(
                    workspace.read_file(&marker, u64::MAX),
                    Ok(ReadOutcome::Missing)
                )
        };
        let scope = RuleScope::Answer {
            folders: self.all_folders(),
            is_package: &is_package,
        };
        for (path, content) in &written {
            let given = self.given.get(path);
            let is_given = given.is_some_and(|given| given.has_content(content));
            let is_harmless = path.ends_with(ENTRY_POINTS) && !names_entry_points(content);
            if is_given || is_harmless || self.given.is_protected(path) {
                continue;
            }
            if let Some(rule) = self.refused(path, false, &scope) {
                return Err(violation(path, &rule).into());
            }
        }
        Ok(())
    }

    /// Refuses a check whose interpreter would find a file that the user did not give.
    pub(crate) fn check_workspace(&self, workspace: &Workspace, index: usize) -> Result<()> {
        let violations = self.violations(workspace, &self.folders_of_check(index))?;
        match violations.into_iter().next() {
            Some(violation) => Err(violation.into()),
            None => Ok(()),
        }
    }

    /// Everything for which a check of the run would be refused.
    pub(crate) fn all_violations(&self, workspace: &Workspace) -> Result<Vec<Violation>> {
        self.violations(workspace, &self.all_folders())
    }

    fn violations(
        &self,
        workspace: &Workspace,
        folders: &BTreeSet<&Path>,
    ) -> Result<Vec<Violation>> {
        let mut violations = Vec::new();
        for suspect in self.suspects(workspace, folders)? {
            if !self.is_accepted(workspace, &suspect)? {
                violations.push(violation(&suspect.path, &suspect.rule));
            }
        }
        Ok(violations)
    }

    fn suspects(&self, workspace: &Workspace, folders: &BTreeSet<&Path>) -> Result<Vec<Suspect>> {
        let tests = match self.has_tests {
            true => self
                .tests
                .open_folders
                .iter()
                .map(PathBuf::as_path)
                .collect(),
            false => Vec::new(),
        };
        let checked: HashSet<&Path> = folders.iter().copied().chain(tests).collect();
        let entered: HashSet<&Path> = checked.iter().flat_map(|path| path.ancestors()).collect();
        let searched: HashSet<&Path> = folders.iter().flat_map(|path| path.ancestors()).collect();
        let scope = RuleScope::Workspace { folders };
        let mut suspects = Vec::new();
        workspace.walk_whole(&mut |entry| {
            let path = entry.path.as_path();
            if matches!(entry.kind, EntryKind::Dir { .. }) {
                let is_checked = path.parent().is_some_and(|folder| checked.contains(folder));
                return match entered.contains(path) || (is_checked && self.may_contain(path)) {
                    true => WalkStep::On,
                    false => WalkStep::Skip,
                };
            }
            let is_searched = searched.contains(path);
            suspects.extend(self.suspect(entry, &scope, is_searched));
            WalkStep::On
        })?;
        Ok(suspects)
    }

    /// Whether a folder beside modules can contain a file that is refused.
    fn may_contain(&self, folder: &Path) -> bool {
        let name = folder
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        self.names.may_shadow(name) || is_metadata(folder) || self.tests.may_be_namesake(folder)
    }

    fn suspect(
        &self,
        entry: &WorkspaceEntry,
        scope: &RuleScope<'_>,
        is_searched: bool,
    ) -> Option<Suspect> {
        let path = entry.path.as_path();
        let link = match &entry.kind {
            EntryKind::Link { target } => Some(target.clone()),
            EntryKind::Dir { .. } | EntryKind::File { .. } | EntryKind::Special => None,
        };
        let rule = self.refused(path, link.is_some(), scope).or_else(|| {
            let is_on_path = is_searched && self.path_ancestors.contains(path);
            is_on_path.then(|| {
                "Python looks for modules in it (PYTHONPATH), and it is an archive or a link, not a folder".into()
            })
        })?;
        Some(Suspect {
            path: path.to_owned(),
            link,
            rule,
        })
    }

    fn is_accepted(&self, workspace: &Workspace, suspect: &Suspect) -> Result<bool> {
        let Suspect { path, link, .. } = suspect;
        if let Some(given) = self.given.get(path)
            && given.is_unchanged(workspace, path, link.as_deref())?
        {
            return Ok(true);
        }
        if link.is_some() || !path.ends_with(ENTRY_POINTS) {
            return Ok(false);
        }
        let content = workspace.read_file(path, u64::MAX)?;
        Ok(matches!(content, ReadOutcome::File(bytes) if !names_entry_points(&bytes)))
    }
}

fn violation(path: &Path, rule: &str) -> Violation {
    Violation::new(&path.to_string_lossy(), format!("{rule}; {REMEDY}"))
}

/// Whether metadata names entry points: anything but blank lines and comments.
fn names_entry_points(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    text.lines()
        .map(str::trim)
        .any(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}
