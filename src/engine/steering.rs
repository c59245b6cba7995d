//! Files that steer a runner from outside the tests: some are a violation, some are only named to the user.
//!
//! A module that Python imports by itself, or instead of the runner, can make any suite green: it is refused in an
//! answer, and before each check where that check would find it. Configuration of runners is legitimate work, so
//! beside protected tests it is told, not refused. What the user gave, unchanged, is neither.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::engine::context::Context;
use crate::engine::spec::Check;
use crate::engine::spec::inputs::{Input, InputKind};
use crate::error::Result;
use crate::safety::door::{Change, Entry, Kind, Read, Walk};
use crate::safety::path::{SafePath, Violation};

/// Modules that every Python start imports.
const CUSTOMIZE: [&str; 2] = ["sitecustomize", "usercustomize"];
/// Modules that are a runner, or that a runner is made of.
const RUNNERS: [&str; 10] =
    ["pytest", "_pytest", "pluggy", "unittest", "doctest", "nose", "nose2", "coverage", "tox", "nox"];
/// What makes a name a module.
const MODULE_ENDINGS: [&str; 5] = ["py", "pyc", "pyo", "so", "pyd"];
/// Configuration that runners read by themselves.
const CONFIGURATION: [&str; 22] = [
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    "tox.ini",
    "tox.toml",
    "setup.cfg",
    "noxfile.py",
    ".coveragerc",
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    ".babelrc",
    ".npmrc",
    ".cargo/config.toml",
    ".cargo/config",
    ".config/nextest.toml",
    "rust-toolchain",
    "rust-toolchain.toml",
    "go.work",
    "phpunit.xml",
];
/// The same where only the beginning of the name is fixed.
const CONFIGURATION_STEMS: [&str; 7] = [
    "jest.config.",
    "vitest.config.",
    "vite.config.",
    "karma.conf.",
    "babel.config.",
    ".mocharc.",
    "playwright.config.",
];
/// Configuration that is the project's as well as the runner's: told only where it speaks to a runner.
const SHARED: [(&str, &[&str]); 2] = [
    ("pyproject.toml", &["[tool.pytest", "[tool.tox", "[tool.coverage"]),
    ("package.json", &["\"test\"", "\"jest\"", "\"vitest\"", "\"mocha\""]),
];
const SHARED_LIMIT: u64 = 1 << 20;
const STDLIB: &str = include_str!("stdlib_modules.txt");

/// Returns what a change writes.
pub fn written(change: &Change) -> Option<(&SafePath, &[u8])> {
    match change {
        Change::Write { path, content } => Some((path, content)),
        Change::Delete { .. } => None,
    }
}

/// Refuses an answer that writes a module which steers every check. What is protected is put back anyway.
pub fn judge_answer<'a>(
    written: impl Iterator<Item = Option<(&'a SafePath, &'a [u8])>>,
    context: &Context,
) -> Result<()> {
    for (path, _) in written.flatten() {
        let is_protected = context.inputs.protect.iter().any(|input| input.to == *path);
        if !is_protected && let Some(rule) = judged(path, &context.spec.checks, &context.root.join("workspace")) {
            return Err(Violation::new(path.as_str(), rule).into());
        }
    }
    Ok(())
}

fn judged(path: &SafePath, checks: &[Check], workspace: &Path) -> Option<String> {
    let path = Path::new(path.as_str());
    if steers(path, &CUSTOMIZE) || path.parent().is_some_and(|folder| steers(folder, &CUSTOMIZE)) {
        return Some("is imported by every Python before the tests; files that steer a runner are refused".into());
    }
    let folders = search_folders(checks, workspace);
    let below = folders.into_iter().find_map(|folder| path.strip_prefix(folder).ok().map(PathBuf::from))?;
    let shadows = match below.components().count() {
        1 => steers(&below, &RUNNERS),
        2 => below.parent().is_some_and(|folder| steers(folder, &RUNNERS)) && is_module(&below),
        _ => false,
    };
    shadows.then(|| "shadows a test runner; files that steer a runner are refused".into())
}

/// Whether the last component of a path is one of the modules, as a file or as a package's folder.
fn steers(path: &Path, modules: &[&str]) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    match name.split_once('.') {
        None => modules.contains(&name),
        Some((stem, _)) => modules.contains(&stem) && is_module(path),
    }
}

fn is_module(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| MODULE_ENDINGS.contains(&ending))
}

/// The folders in which the checks' interpreters look for modules: the top, and each check's own `PYTHONPATH`.
fn search_folders(checks: &[Check], workspace: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = checks.iter().flat_map(|check| python_path(check, workspace)).collect();
    // The longest first, so that a path is judged by the folder that is nearest to it.
    folders.push(PathBuf::new());
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
    folders.dedup();
    folders
}

fn python_path(check: &Check, workspace: &Path) -> Vec<PathBuf> {
    let value = check.env.get("PYTHONPATH").map(String::as_str).unwrap_or_default();
    let inside = |entry: &str| {
        let entry = Path::new(entry);
        let entry = entry.strip_prefix(workspace).unwrap_or(entry);
        let path: PathBuf = entry.components().filter(|part| part.as_os_str() != ".").collect();
        (path.is_relative() && !path.starts_with("..")).then_some(path)
    };
    value.split(':').filter(|entry| !entry.is_empty()).filter_map(inside).collect()
}

/// Refuses a check before which a module stands where its interpreter would import it, and the user did not give it.
pub fn judge_workspace(context: &Context, check: &Check) -> Result<()> {
    let mut folders = python_path(check, &context.root.join("workspace"));
    folders.push(PathBuf::new());
    let given = Given::of(context);
    let mut found = Vec::new();
    context.door.walk_whole(&mut |entry| {
        let folder = entry.path.parent().unwrap_or(Path::new(""));
        let package = folder.parent().filter(|_| steers(folder, &CUSTOMIZE) || steers(folder, &RUNNERS));
        let names: Vec<&str> = CUSTOMIZE.iter().chain(&RUNNERS).copied().collect();
        let is_file = !matches!(entry.kind, Kind::Dir { .. });
        if is_file && folders.iter().any(|at| at == folder) && steers(&entry.path, &names) {
            found.push(entry.path.clone());
        }
        let is_package = entry.path.file_stem().is_some_and(|stem| stem == "__init__") && is_module(&entry.path);
        if is_package && package.is_some_and(|package| folders.iter().any(|at| at == package)) {
            found.push(entry.path.clone());
        }
        let leads_on = folders.iter().any(|at| at.starts_with(&entry.path));
        let may_be_package = folders.iter().any(|at| at == folder) && steers(&entry.path, &names);
        if leads_on || may_be_package { Walk::On } else { Walk::Skip }
    })?;
    for path in found {
        if !given.is_unchanged(context, &path)? {
            let rule =
                format!("stands where check {:?} would import it; files that steer a runner are refused", check.name);
            return Err(Violation::new(&path.to_string_lossy(), rule).into());
        }
    }
    Ok(())
}

/// Names configuration of runners that was added or changed beside protected files, and modules of the workspace
/// that hide ones of the standard library.
pub fn note(context: &mut Context) -> Result<()> {
    let given = Given::of(context);
    let has_protected = !context.inputs.protect.is_empty();
    let mut found = Vec::new();
    context.door.walk(&mut |entry| {
        if let Some(what) = remark(entry, has_protected) {
            found.push((entry.path.clone(), what));
        }
        let name = entry.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if matches!(name, ".git" | "node_modules" | "target" | ".venv" | "venv") { Walk::Skip } else { Walk::On }
    })?;
    for (path, what) in found {
        if given.is_unchanged(context, &path)? || !speaks_to_a_runner(context, &path)? {
            continue;
        }
        context.scribe.note(format!("{} {what}", path.to_string_lossy().escape_debug()))?;
    }
    Ok(())
}

fn remark(entry: &Entry, has_protected: bool) -> Option<&'static str> {
    let path = &entry.path;
    let name = path.file_name()?.to_str()?;
    let is_file = !matches!(entry.kind, Kind::Dir { .. });
    let is_configuration = CONFIGURATION.iter().any(|known| path.ends_with(known))
        || CONFIGURATION_STEMS.iter().any(|stem| name.starts_with(stem))
        || SHARED.iter().any(|(known, _)| name == *known);
    if has_protected && is_file && is_configuration {
        return Some("can steer the checks; it was added or changed by the model or by a check");
    }
    let module = match path.components().count() {
        1 if is_file => name.strip_suffix(".py"),
        2 if name == "__init__.py" => path.parent().and_then(|folder| folder.to_str()),
        _ => None,
    };
    let hides = module.is_some_and(|module| STDLIB.lines().any(|known| known == module));
    hides.then_some("hides a module of Python's standard library from the checks")
}

/// Whether a file that is configuration of more than runners holds something for one.
fn speaks_to_a_runner(context: &Context, path: &Path) -> Result<bool> {
    let Some((_, words)) = SHARED.iter().find(|(name, _)| path.ends_with(name)) else { return Ok(true) };
    Ok(match context.door.read_file(path, SHARED_LIMIT)? {
        Read::File(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            words.iter().any(|word| text.contains(word))
        }
        _ => true,
    })
}

/// The user's own files, by their places.
struct Given(BTreeMap<PathBuf, [u8; 32]>);

impl Given {
    fn of(context: &Context) -> Given {
        let inputs = &context.inputs;
        let files = inputs.copy.iter().chain(&inputs.protect).filter_map(|input: &Input| match &input.kind {
            InputKind::File { sha256, .. } => Some((PathBuf::from(input.to.as_str()), *sha256)),
            _ => None,
        });
        Given(files.collect())
    }

    fn is_unchanged(&self, context: &Context, path: &Path) -> Result<bool> {
        let Some(hash) = self.0.get(path) else { return Ok(false) };
        Ok(match context.door.read_file(path, u64::MAX)? {
            Read::File(bytes) => Sha256::digest(&bytes)[..] == hash[..],
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check_with(python_path: Option<&str>) -> Check {
        Check {
            name: "unit".into(),
            place: Default::default(),
            command: vec!["true".into()],
            timeout: Duration::from_secs(1),
            env: python_path.map(|value| ("PYTHONPATH".to_owned(), value.to_owned())).into_iter().collect(),
            min_tests: None,
            hidden: false,
            files: Vec::new(),
        }
    }

    fn is_refused(path: &str, python_path: Option<&str>) -> bool {
        judged(&SafePath::parse(path).unwrap(), &[check_with(python_path)], Path::new("/root/workspace")).is_some()
    }

    #[test]
    fn modules_that_steer_are_refused() {
        for path in [
            "sitecustomize.py",
            "a/b/usercustomize.py",
            "sitecustomize/__init__.py",
            "pytest.py",
            "pytest/__init__.py",
            "unittest/case.py",
            "_pytest/x.py",
            "unittest.cpython-311-x86_64-linux-gnu.so",
        ] {
            assert!(is_refused(path, None), "{path}");
        }
        for path in [
            "pytest_helper.py",
            "lib/pytest.py",
            "unittest.txt",
            "coverage/index.html",
            "mysitecustomize.py",
            "tests/unittest/a/b.py",
        ] {
            assert!(!is_refused(path, None), "{path}");
        }
        assert!(is_refused("lib/pytest.py", Some("x:lib")));
        assert!(is_refused("lib/unittest/__init__.py", Some("./lib/")));
        assert!(is_refused("lib/pytest.py", Some("/elsewhere:/root/workspace/lib")));
        assert!(!is_refused("lib/pytest.py", Some("/lib:../lib")));
    }
}
