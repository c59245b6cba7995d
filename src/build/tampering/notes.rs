//! Names files that can steer the checks and are new or changed: configuration, manifests, build scripts, and modules
//! that hide ones of the standard library. Only if there are tests of the user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::build::tampering::given::GivenFile;
use crate::build::tampering::manifests::{self, ManifestKind, TestSettings};
use crate::build::tampering::python;
use crate::build::tampering::rules::TamperingRules;
use crate::error::Result;
use crate::text::shorten::first_names;
use crate::workspace::generated::is_tool_folder;
use crate::workspace::{EntryKind, ReadOutcome, RecordedWalk, WalkStep, Workspace, WorkspaceEntry};

const NODE_MODULES: &str = "node_modules";
/// Programs that `npm` puts on the `PATH` of its scripts.
const NODE_PROGRAMS: &str = "node_modules/.bin";
/// A longer file is named without being read.
const MAX_BYTES: u64 = 1 << 20;
/// How many files are named at once, and how many programs or fields in one note.
const MAX_FILES: usize = 50;
const MAX_NAMES: usize = 8;

impl TamperingRules {
    /// Notes on those of the given files that can steer the checks.
    pub(crate) fn notes_on<'a>(
        &self,
        workspace: &Workspace,
        paths: impl Iterator<Item = &'a String>,
    ) -> Result<Vec<String>> {
        if !self.has_tests {
            return Ok(Vec::new());
        }
        let paths = paths.map(PathBuf::from);
        let found = paths.filter(|path| self.may_steer(path)).collect();
        self.notes(workspace, found)
    }

    /// Notes on everything that a walk has found, or that was deleted, and can steer the checks.
    pub(crate) fn notes_on_all(
        &self,
        workspace: &Workspace,
        walk: &RecordedWalk,
    ) -> Result<Vec<String>> {
        if !self.has_tests {
            return Ok(Vec::new());
        }
        let given = self.given.paths().filter(|path| self.may_steer(path));
        let mut found: BTreeSet<PathBuf> = given.map(Path::to_owned).collect();
        walk.walk(&mut |entry| {
            if matches!(entry.kind, EntryKind::Dir { .. }) {
                return if is_entered(entry) {
                    WalkStep::On
                } else {
                    WalkStep::Skip
                };
            }
            if self.may_steer(&entry.path) {
                found.insert(entry.path.clone());
            }
            WalkStep::On
        });
        self.notes(workspace, found)
    }

    fn notes(&self, workspace: &Workspace, found: BTreeSet<PathBuf>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let mut programs: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        for path in found {
            let Some(change) = self.change(workspace, &path)? else {
                continue;
            };
            match path
                .parent()
                .filter(|folder| folder.ends_with(NODE_PROGRAMS))
            {
                Some(folder) => programs
                    .entry(folder.to_owned())
                    .or_default()
                    .push(shown(path.strip_prefix(folder).unwrap_or(&path))),
                None => notes.push(format!("{} {change}", shown(&path))),
            }
        }
        for (folder, names) in programs {
            notes.push(format!(
                "{} can steer the checks: new or changed programs: {}",
                shown(&folder),
                first_names(&names, MAX_NAMES)
            ));
        }
        let more = notes.len().saturating_sub(MAX_FILES);
        notes.truncate(MAX_FILES);
        if more > 0 {
            notes.push(format!(
                "{more} more files can steer the checks and are new or changed"
            ));
        }
        Ok(notes)
    }

    /// Whether a file has a name under which it can steer a test run.
    fn may_steer(&self, path: &Path) -> bool {
        if path.iter().any(is_tool_folder) {
            return path
                .parent()
                .is_some_and(|folder| folder.ends_with(NODE_PROGRAMS));
        }
        manifests::kind(path).is_some() || self.marks_tests(path) || self.hidden_by(path).is_some()
    }

    /// Whether it is the `__init__.py` of a folder of tests, or of one around it.
    fn marks_tests(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(python::module_name);
        let folder = path.parent().unwrap_or(Path::new(""));
        name == Some("__init__") && (self.tests.are_in(folder) || self.tests.are_below(folder))
    }

    /// The module of the standard library that a file hides.
    fn hidden_by(&self, path: &Path) -> Option<String> {
        let folder = path.parent()?;
        let is_searched = |folder: &Path| {
            let mut searched = self.folders.iter().flatten();
            folder.as_os_str().is_empty() || searched.any(|searched| searched == folder)
        };
        if !is_searched(folder) && !folder.parent().is_some_and(is_searched) {
            return None;
        }
        let mut modules = python::modules(path, false).into_iter();
        let hiding = modules.find(|module| {
            module.form != python::ModuleForm::Portion
                && is_searched(&module.folder)
                && python::is_stdlib(&module.name)
        });
        hiding.map(|module| module.name)
    }

    /// How a file that may steer the checks differs from what was given, as the end of a note.
    fn change(&self, workspace: &Workspace, path: &Path) -> Result<Option<String>> {
        let given = self.given.get(path);
        let now = match workspace.read_file(path, MAX_BYTES)? {
            ReadOutcome::File(bytes) => Some(bytes),
            ReadOutcome::Missing if given.is_none() => return Ok(None),
            ReadOutcome::Missing => return Ok(Some("can steer the checks: it was removed".into())),
            ReadOutcome::TooLarge(_) | ReadOutcome::Other => None,
        };
        let is_as_given = match (given, &now) {
            (Some(given), Some(bytes)) => given.has_content(bytes),
            // A given link is either still there, or restored if it is protected.
            (Some(given), None) => given.is_link(),
            (None, _) => false,
        };
        if is_as_given {
            return Ok(None);
        }
        let how = if given.is_some() { "changed" } else { "new" };
        Ok(match manifests::kind(path) {
            Some(kind) => self.changed_settings(kind, given, now.as_deref(), how),
            None => self.changed_module(path, now.as_deref(), how),
        })
    }

    fn changed_module(&self, path: &Path, now: Option<&[u8]>, how: &str) -> Option<String> {
        if self.marks_tests(path) {
            let folder = path.parent().unwrap_or(Path::new(""));
            let has_hook =
                now.is_none_or(|bytes| memchr::memmem::find(bytes, b"load_tests").is_some());
            let counts = self.tests.are_in(folder) || has_hook;
            return counts.then(|| format!("can steer the checks: {how}, in a folder of tests"));
        }
        Some(match self.hidden_by(path) {
            Some(module) => {
                format!("hides the module {module} of Python's standard library from the checks")
            }
            None => format!("can steer the checks: {how}"),
        })
    }

    /// Compares the settings of a manifest that can steer a test run.
    fn changed_settings(
        &self,
        kind: ManifestKind,
        given: Option<GivenFile<'_>>,
        now: Option<&[u8]>,
        how: &str,
    ) -> Option<String> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let parsed = |text: &[u8]| manifests::test_settings(kind, text, &words);
        let Some(after) = now.and_then(parsed) else {
            return Some(format!(
                "can steer the checks: {how}, and it could not be read in its format"
            ));
        };
        if kind == ManifestKind::Whole {
            return Some(format!("can steer the checks: {how}"));
        }
        let before = match given {
            None => Some(TestSettings::new()),
            Some(given) => given.content().and_then(|text| parsed(&text)),
        };
        match before.map(|before| manifests::differing(&before, &after)) {
            Some(fields) if fields.is_empty() => None,
            Some(fields) => Some(format!(
                "can steer the checks: {how} in {}",
                first_names(&fields, MAX_NAMES)
            )),
            None => Some(format!("can steer the checks: {how}")),
        }
    }
}

/// Whether a folder can contain files that steer the checks; of `node_modules` only `.bin`.
fn is_entered(folder: &WorkspaceEntry) -> bool {
    let name = folder.path.file_name().unwrap_or_default();
    let around = folder.path.parent();
    if around.is_some_and(|around| around.ends_with(NODE_MODULES)) {
        return name == ".bin";
    }
    name == NODE_MODULES || !is_tool_folder(name)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}
