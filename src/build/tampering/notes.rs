//! Names what can steer the checks and was not given like that: configuration, manifests, build scripts, and modules
//! that hide ones of the standard library. Only where there are tests of the user's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::build::context::Context;
use crate::build::generators::WrittenFiles;
use crate::build::tampering::manifests::{self, TestSettings};
use crate::build::tampering::{EXEMPT, GivenFile, TamperingRules, is_exempt, python};
use crate::error::Result;
use crate::workspace::{EntryKind, ReadOutcome, WalkStep};

/// Folders that tools fill: nothing in them is named.
const NOT_ENTERED: [&str; 3] = [".git", "target", "venv"];
/// A longer file is named without being read.
const LONGEST: u64 = 1 << 20;
/// So many files are named at once, and so many programs or fields in one note.
const MOST_FILES: usize = 50;
const MOST_NAMES: usize = 8;

/// Names what a phase has just written.
pub fn note_written(context: &mut Context, written: &WrittenFiles) -> Result<()> {
    if !context.rules.has_tests {
        return Ok(());
    }
    let paths = written
        .written
        .iter()
        .chain(&written.deleted)
        .map(PathBuf::from);
    let found = paths.filter(|path| context.rules.may_steer(path)).collect();
    note(context, found)
}

/// Names everything that stands in the workspace, or is gone from it.
pub fn note_all(context: &mut Context) -> Result<()> {
    if !context.rules.has_tests {
        return Ok(());
    }
    let rules = &context.rules;
    let mut found: BTreeSet<PathBuf> = rules
        .given
        .keys()
        .filter(|path| rules.may_steer(path))
        .cloned()
        .collect();
    context.workspace.walk(&mut |entry| {
        let name = entry
            .path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let in_modules = || {
            entry
                .path
                .parent()
                .is_some_and(|folder| folder.ends_with("node_modules"))
        };
        match &entry.kind {
            EntryKind::Dir { .. } if NOT_ENTERED.contains(&name) || name == EXEMPT[0] => {
                return WalkStep::Skip;
            }
            EntryKind::Dir { .. } if in_modules() && name != ".bin" => return WalkStep::Skip,
            EntryKind::Dir { .. } => {}
            _ if rules.may_steer(&entry.path) => drop(found.insert(entry.path.clone())),
            _ => {}
        }
        WalkStep::On
    })?;
    note(context, found)
}

fn note(context: &mut Context, found: BTreeSet<PathBuf>) -> Result<()> {
    let mut notes = Vec::new();
    let mut programs: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for path in found {
        let Some(change) = change(context, &path)? else {
            continue;
        };
        match path
            .parent()
            .filter(|folder| folder.ends_with("node_modules/.bin"))
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
            listed(&names)
        ));
    }
    let more = notes.len().saturating_sub(MOST_FILES);
    notes.truncate(MOST_FILES);
    if more > 0 {
        notes.push(format!(
            "{more} more files can steer the checks and are new or changed"
        ));
    }
    notes
        .into_iter()
        .try_for_each(|note| context.log.note(note))
}

impl TamperingRules {
    /// Whether a file has a name under which it can steer a test run.
    fn may_steer(&self, path: &Path) -> bool {
        if is_exempt(path) {
            return path
                .parent()
                .is_some_and(|folder| folder.ends_with("node_modules/.bin"));
        }
        let in_tool_s_folder = path
            .iter()
            .any(|part| NOT_ENTERED.iter().any(|name| part == *name));
        !in_tool_s_folder
            && (manifests::kind(path).is_some()
                || self.marks_tests(path)
                || self.hidden_by(path).is_some())
    }

    /// Whether it is the `__init__.py` of a folder of tests, or of one around it.
    fn marks_tests(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(python::module_name);
        let folder = path.parent().unwrap_or(Path::new(""));
        name == Some("__init__") && (self.tests.lie_in(folder) || self.tests.lie_below(folder))
    }

    /// Returns the module of the standard library that a file hides.
    fn hidden_by(&self, path: &Path) -> Option<String> {
        let folder = path.parent()?;
        let is_near = |folder: &Path| {
            folder.as_os_str().is_empty()
                || self
                    .folders
                    .iter()
                    .flatten()
                    .any(|searched| searched == folder)
        };
        if !is_near(folder) && !folder.parent().is_some_and(is_near) {
            return None;
        }
        let modules = python::modules(path, false)
            .into_iter()
            .filter(|module| module.form != python::ModuleForm::Portion);
        let mut hiding =
            modules.filter(|module| is_near(&module.folder) && python::is_stdlib(&module.name));
        hiding.next().map(|module| module.name)
    }
}

/// Returns what is to be said of a file that may steer the checks, if it is not as it was given.
fn change(context: &Context, path: &Path) -> Result<Option<String>> {
    let rules = &context.rules;
    let given = rules.given.get(path);
    let now = match context.workspace.read_file(path, LONGEST)? {
        ReadOutcome::File(bytes) => Some(bytes),
        ReadOutcome::Missing if given.is_none() => return Ok(None),
        ReadOutcome::Missing => return Ok(Some("can steer the checks: it was removed".into())),
        ReadOutcome::TooLarge(_) | ReadOutcome::Other => None,
    };
    if let (Some(given), Some(bytes)) = (given, &now)
        && given.has_content(bytes)
    {
        return Ok(None);
    }
    if let (Some(GivenFile::Link { .. }), None) = (given, &now) {
        // A link that was given is either still there, or put back where it is protected.
        return Ok(None);
    }
    let how = if given.is_some() { "changed" } else { "new" };
    if let Some(kind) = manifests::kind(path) {
        return Ok(steered(rules, kind, given, now.as_deref(), how));
    }
    if rules.marks_tests(path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let has_hook =
            now.is_none_or(|bytes| memchr::memmem::find(&bytes, b"load_tests").is_some());
        let counts = rules.tests.lie_in(folder) || has_hook;
        return Ok(counts.then(|| format!("can steer the checks: {how}, in a folder of tests")));
    }
    if let Some(module) = rules.hidden_by(path) {
        return Ok(Some(format!(
            "hides the module {module} of Python's standard library from the checks"
        )));
    }
    Ok(Some(format!("can steer the checks: {how}")))
}

/// Compares what in a manifest can steer a test run.
fn steered(
    rules: &TamperingRules,
    kind: manifests::ManifestKind,
    given: Option<&GivenFile>,
    now: Option<&[u8]>,
    how: &str,
) -> Option<String> {
    let words: Vec<&str> = rules.words.iter().map(String::as_str).collect();
    let parsed = |text: &[u8]| manifests::test_settings(kind, text, &words);
    let Some(after) = now.and_then(parsed) else {
        return Some(format!(
            "can steer the checks: {how}, and it could not be read in its format"
        ));
    };
    if kind == manifests::ManifestKind::Whole {
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
            listed(&fields)
        )),
        None => Some(format!("can steer the checks: {how}")),
    }
}

fn listed(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(MOST_NAMES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}
