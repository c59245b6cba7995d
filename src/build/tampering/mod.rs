//! Tampering: files that decide a test run from outside the tests. Some are a violation, some are named to the user.
//!
//! A module that Python imports by itself or instead of the runner, metadata that loads plugins, and a second module of
//! a test's name can make any suite green: they are refused in an answer, and before each check where that check
//! would find them. Configuration of runners and builds is legitimate work, so beside tests of the user's it is named
//! and not refused. What the user gave, unchanged, is neither. `python.rs` knows names of modules, `installed.rs` what
//! lies beside the interpreter, `manifests.rs` what in a manifest counts, `notes.rs` names it.

mod installed;
mod manifests;
mod notes;
mod python;

pub use notes::{note_all, note_written};

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::build::context::Context;
use crate::build::spec::inputs::{InputKind, Inputs, WorkspaceInput};
use crate::build::spec::{CheckSpec, Spec};
use crate::build::tampering::python::{
    CUSTOMIZE, ModuleForm, PythonModule, PythonRunners, ReservedNames,
};
use crate::error::Result;
use crate::process::check_env::CallerEnv;
use crate::workspace::safe_path::{SafePath, Violation};
use crate::workspace::{EntryKind, FileChange, ReadOutcome, WalkStep, Workspace};

/// Folders that hold what others made: what is in them is judged by nobody, but for `node_modules/.bin`.
const EXEMPT: [&str; 2] = [".venv", "node_modules"];
const ENTRY_POINTS: &str = "entry_points.txt";
/// What a user can do about a refusal.
const REMEDY: &str = "if it is yours, name it in `workspace.copy`; else it needs another name";

/// What the rules of a run go by: settled once, before anything is generated.
pub struct TamperingRules {
    /// What the user gave, by place.
    given: HashMap<PathBuf, GivenFile>,
    /// Whether there are protected or hidden tests.
    has_tests: bool,
    names: ReservedNames,
    tests: TestModules,
    /// For each check the folders in which its interpreter looks for modules, besides the top.
    folders: Vec<Vec<PathBuf>>,
    /// What the `PYTHONPATH`s of the checks name, and the way there.
    path_ways: HashSet<PathBuf>,
    /// The words of all commands.
    words: Vec<String>,
}

/// Something that the user gave.
enum GivenFile {
    File {
        sha256: [u8; 32],
        content: OriginalContent,
    },
    Link {
        target: PathBuf,
    },
}

/// Where the content of a given file can be read.
enum OriginalContent {
    Held(std::sync::Arc<[u8]>),
    Source(PathBuf),
}

/// The Python modules among the user's tests, by the folder they lie in and their import name.
#[derive(Default)]
struct TestModules {
    /// Every file of the tests, Python or not.
    paths: HashSet<PathBuf>,
    /// The folders in which a Python module lies.
    folders: HashSet<PathBuf>,
    files: HashSet<(PathBuf, String)>,
    packages: HashSet<(PathBuf, String)>,
    /// The folders around these that are not protected as a whole: nobody else removes what is put there.
    open_folders: BTreeSet<PathBuf>,
}

impl TamperingRules {
    /// Returns the rules of a run in `workspace`.
    pub fn new(spec: &Spec, inputs: &Inputs, workspace: &Path, base: &CallerEnv) -> TamperingRules {
        let commands = || spec.checks.iter().map(|check| check.command.as_slice());
        let runners = commands()
            .map(PythonRunners::of)
            .fold(PythonRunners::default(), PythonRunners::and);
        let installed = match runners.python {
            true => {
                let own = spec
                    .checks
                    .iter()
                    .filter_map(|check| check.env.get("PATH"))
                    .map(OsStr::new);
                let programs = commands().filter_map(|words| words.first()).map(Path::new);
                let programs = programs.filter(|program| program.is_absolute());
                installed::imported(
                    base,
                    std::iter::once(base.path()).chain(own),
                    programs,
                    workspace,
                )
            }
            false => HashSet::new(),
        };
        TamperingRules {
            given: given(inputs),
            has_tests: !inputs.protect.is_empty() || spec.checks.iter().any(|check| check.hidden),
            names: ReservedNames::new(runners, installed),
            tests: TestModules::of(inputs),
            folders: spec
                .checks
                .iter()
                .map(|check| searched_folders(check, workspace))
                .collect(),
            path_ways: spec
                .checks
                .iter()
                .flat_map(|check| python_path(check, workspace))
                .flat_map(|folder| folder.ancestors().map(Path::to_owned).collect::<Vec<_>>())
                .collect(),
            words: commands()
                .flatten()
                .flat_map(|word| word.split_whitespace())
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Whether there are tests that are not the model's own: protected or hidden ones.
    pub fn has_tests(&self) -> bool {
        self.has_tests
    }

    /// Returns why a file may not be in `place`, by its path alone.
    fn refused(&self, path: &Path, is_link: bool, place: &RuleScope<'_>) -> Option<String> {
        if is_exempt(path) {
            return None;
        }
        let modules = python::modules(path, is_link);
        let customizes = |module: &&PythonModule| CUSTOMIZE.contains(&module.name.as_str());
        if modules
            .iter()
            .filter(customizes)
            .any(|module| place.holds(&module.folder))
        {
            return Some("Python imports it at every start, before the tests".into());
        }
        for module in modules.iter().filter(|module| place.is_searched(module)) {
            if let Some(why) = self.names.shadowed(module) {
                return Some(format!(
                    "Python would import it instead of the module {}, which {why}",
                    module.name
                ));
            }
        }
        if !self.has_tests {
            return None;
        }
        if !self.tests.paths.contains(path)
            && modules.iter().any(|module| self.tests.has_namesake(module))
        {
            return Some("it has the import name of a test module beside it, so it could be imported instead".into());
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let is_pth = path.extension().is_some_and(|ending| ending == "pth");
        if is_pth && place.holds(folder) {
            return Some(
                "Python runs the lines of .pth files at every start, before the tests".into(),
            );
        }
        let metadata = [(path, is_link), (folder, path.ends_with(ENTRY_POINTS))];
        let is_plugin = |(path, counts): &(&Path, bool)| {
            *counts && is_metadata(path) && path.parent().is_some_and(|around| place.holds(around))
        };
        metadata
            .iter()
            .any(is_plugin)
            .then(|| "its entry points load plugins into test runners".into())
    }

    /// Returns the folders in which the interpreters of all checks look.
    fn all_folders(&self) -> BTreeSet<&Path> {
        self.folders
            .iter()
            .flatten()
            .map(PathBuf::as_path)
            .chain([Path::new("")])
            .collect()
    }
}

/// Where the rules are applied.
enum RuleScope<'a> {
    /// An answer, and the packages that it writes into.
    Answer {
        folders: BTreeSet<&'a Path>,
        is_package: &'a dyn Fn(&Path) -> bool,
    },
    /// The workspace before a check that looks into these folders.
    Workspace { folders: &'a BTreeSet<&'a Path> },
}

impl RuleScope<'_> {
    /// Whether what lies in a folder is judged, for things that are refused anywhere in an answer.
    fn holds(&self, folder: &Path) -> bool {
        match self {
            RuleScope::Answer { .. } => true,
            RuleScope::Workspace { folders } => folders.contains(folder),
        }
    }

    /// Whether a module lies where an interpreter looks, or, in an answer, where one line lets it look.
    fn is_searched(&self, module: &PythonModule) -> bool {
        match self {
            RuleScope::Answer {
                folders,
                is_package,
            } => {
                let folder = module.folder.as_path();
                folders.contains(folder)
                    || (python::is_unmistakable(&module.name) && !is_package(folder))
            }
            RuleScope::Workspace { folders } => folders.contains(module.folder.as_path()),
        }
    }
}

impl TestModules {
    fn of(inputs: &Inputs) -> TestModules {
        let mut all = TestModules::default();
        let tests = || inputs.protect.iter().chain(inputs.hidden.iter().flatten());
        for input in tests().filter(|input| input.kind != InputKind::Dir) {
            let path = Path::new(input.to.as_str());
            all.paths.insert(path.to_owned());
            let (Some(folder), Some(name)) =
                (path.parent(), python::module_name(input.to.file_name()))
            else {
                continue;
            };
            all.folders.insert(folder.to_owned());
            if name != "__init__" {
                all.files.insert((folder.to_owned(), name.to_owned()));
                all.open_folders.insert(folder.to_owned());
            }
            for package in folder.ancestors() {
                let (Some(name), Some(around)) = (package.file_name(), package.parent()) else {
                    continue;
                };
                all.packages
                    .insert((around.to_owned(), name.to_string_lossy().into_owned()));
                all.open_folders.insert(around.to_owned());
            }
        }
        let is_folder = |input: &&WorkspaceInput| input.kind == InputKind::Dir;
        for folder in inputs
            .protect
            .iter()
            .filter(is_folder)
            .map(|input| Path::new(input.to.as_str()))
        {
            all.open_folders.remove(folder);
        }
        all
    }

    /// Whether a module has the import name of a test beside it.
    fn has_namesake(&self, module: &PythonModule) -> bool {
        let key = (module.folder.clone(), module.name.clone());
        match module.form {
            ModuleForm::File => self.files.contains(&key) || self.packages.contains(&key),
            ModuleForm::Package => self.files.contains(&key),
            ModuleForm::Portion => false,
        }
    }

    /// Whether a folder would, with an `__init__.py` in it, be imported instead of a test.
    fn may_be_namesake(&self, folder: &Path) -> bool {
        let (Some(name), Some(around)) = (folder.file_name(), folder.parent()) else {
            return false;
        };
        self.files
            .contains(&(around.to_owned(), name.to_string_lossy().into_owned()))
    }

    /// Whether a test lies in a folder itself.
    fn lie_in(&self, folder: &Path) -> bool {
        self.folders.contains(folder)
    }

    /// Whether a test lies in a folder or anywhere below it.
    fn lie_below(&self, folder: &Path) -> bool {
        let (Some(name), Some(around)) = (folder.file_name(), folder.parent()) else {
            return false;
        };
        self.packages
            .contains(&(around.to_owned(), name.to_string_lossy().into_owned()))
    }
}

fn given(inputs: &Inputs) -> HashMap<PathBuf, GivenFile> {
    let files = inputs
        .hidden
        .iter()
        .flatten()
        .chain(&inputs.copy)
        .chain(&inputs.protect);
    let known = files.filter_map(|input| {
        let given = match &input.kind {
            InputKind::File {
                sha256,
                content,
                source,
                ..
            } => {
                let content = content.clone().map_or_else(
                    || OriginalContent::Source(source.clone()),
                    OriginalContent::Held,
                );
                GivenFile::File {
                    sha256: *sha256,
                    content,
                }
            }
            InputKind::Link { target } => GivenFile::Link {
                target: target.clone(),
            },
            InputKind::Dir => return None,
        };
        Some((PathBuf::from(input.to.as_str()), given))
    });
    known.collect()
}

impl GivenFile {
    /// Returns the content as it was given, if it still can be read.
    fn content(&self) -> Option<Vec<u8>> {
        match self {
            GivenFile::File {
                content: OriginalContent::Held(content),
                ..
            } => Some(content.to_vec()),
            GivenFile::File {
                content: OriginalContent::Source(source),
                ..
            } => fs::read(source)
                .ok()
                .filter(|content| self.has_content(content)),
            GivenFile::Link { .. } => None,
        }
    }

    fn has_content(&self, bytes: &[u8]) -> bool {
        matches!(self, GivenFile::File { sha256, .. } if Sha256::digest(bytes)[..] == sha256[..])
    }

    fn is_unchanged(
        &self,
        workspace: &Workspace,
        path: &Path,
        link: Option<&Path>,
    ) -> Result<bool> {
        Ok(match self {
            GivenFile::Link { target } => link == Some(target),
            GivenFile::File { .. } => {
                matches!(workspace.read_file(path, u64::MAX)?, ReadOutcome::File(bytes) if self.has_content(&bytes))
            }
        })
    }
}

/// Whether a folder is metadata of a package in the eyes of `importlib.metadata`, which looks at no case.
fn is_metadata(folder: &Path) -> bool {
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    name.ends_with(".dist-info") || name.ends_with(".egg-info") || name == "egg-info"
}

/// Whether metadata names entry points: anything but blank lines and comments.
fn names_entry_points(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    text.lines()
        .map(str::trim)
        .any(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

fn is_exempt(path: &Path) -> bool {
    path.iter()
        .any(|part| EXEMPT.iter().any(|name| part == *name))
}

/// The folders below the workspace that the `PYTHONPATH` of a check names.
fn python_path(check: &CheckSpec, workspace: &Path) -> Vec<PathBuf> {
    let path = check
        .env
        .get("PYTHONPATH")
        .map(String::as_str)
        .unwrap_or_default();
    let entries = path.split(':').filter(|entry| !entry.is_empty());
    entries
        .filter_map(|entry| below(Path::new(entry), workspace))
        .collect()
}

/// The folders in which the interpreter of a check looks: that path, and where its command goes or finds its script.
fn searched_folders(check: &CheckSpec, workspace: &Path) -> Vec<PathBuf> {
    let scripts = python::script_folders(&check.command);
    let scripts = scripts
        .into_iter()
        .filter_map(|folder| below(Path::new(folder), workspace));
    python_path(check, workspace)
        .into_iter()
        .chain(scripts)
        .collect()
}

/// Returns a path from the workspace on, or nothing where it leads out.
fn below(path: &Path, workspace: &Path) -> Option<PathBuf> {
    let path = path.strip_prefix(workspace).unwrap_or(path);
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

/// Returns what a change writes.
pub fn written(change: &FileChange) -> Option<(&SafePath, &[u8])> {
    match change {
        FileChange::Write { path, content } => Some((path, content)),
        FileChange::Delete { .. } => None,
    }
}

/// Refuses an answer that writes a file which decides the checks. What is protected is put back anyway.
pub fn judge_answer<'a>(
    written: impl Iterator<Item = Option<(&'a SafePath, &'a [u8])>>,
    context: &Context,
) -> Result<()> {
    let written: Vec<(&Path, &[u8])> = written
        .flatten()
        .map(|(path, content)| (Path::new(path.as_str()), content))
        .collect();
    let protected: HashSet<&str> = context
        .inputs
        .protect
        .iter()
        .map(|input| input.to.as_str())
        .collect();
    let rules = &context.rules;
    let is_package = |folder: &Path| {
        let marker = folder.join("__init__.py");
        written.iter().any(|(path, _)| *path == marker)
            || !matches!(
                context.workspace.read_file(&marker, u64::MAX),
                Ok(ReadOutcome::Missing)
            )
    };
    let place = RuleScope::Answer {
        folders: rules.all_folders(),
        is_package: &is_package,
    };
    for (path, content) in &written {
        let is_given = rules
            .given
            .get(*path)
            .is_some_and(|given| given.has_content(content));
        let is_harmless = path.ends_with(ENTRY_POINTS) && !names_entry_points(content);
        if is_given || is_harmless || path.to_str().is_some_and(|path| protected.contains(path)) {
            continue;
        }
        if let Some(rule) = rules.refused(path, false, &place) {
            return Err(violation(path, &rule).into());
        }
    }
    Ok(())
}

fn violation(path: &Path, rule: &str) -> Violation {
    Violation::new(&path.to_string_lossy(), format!("{rule}; {REMEDY}"))
}

/// Refuses a check before which a file stands where its interpreter would take it, and the user did not give it.
pub fn judge_workspace(context: &Context, check: &CheckSpec) -> Result<()> {
    let checks = &context.spec.checks;
    let index = checks.iter().position(|known| known.name == check.name);
    let own = index
        .and_then(|index| context.rules.folders.get(index))
        .into_iter()
        .flatten();
    let folders = own.map(PathBuf::as_path).chain([Path::new("")]).collect();
    match violations(context, &folders)?.into_iter().next() {
        Some(violation) => Err(violation.into()),
        None => Ok(()),
    }
}

/// Returns everything that a check of the run would be refused for.
pub fn all_violations(context: &Context) -> Result<Vec<Violation>> {
    violations(context, &context.rules.all_folders())
}

fn violations(context: &Context, folders: &BTreeSet<&Path>) -> Result<Vec<Violation>> {
    let rules = &context.rules;
    let tests = rules.tests.open_folders.iter().map(PathBuf::as_path);
    let judged: HashSet<&Path> = folders
        .iter()
        .copied()
        .chain(tests.filter(|_| rules.has_tests))
        .collect();
    let ways: HashSet<&Path> = judged
        .iter()
        .flat_map(|folder| folder.ancestors())
        .collect();
    let searched: HashSet<&Path> = folders
        .iter()
        .flat_map(|folder| folder.ancestors())
        .collect();
    let place = RuleScope::Workspace { folders };
    let mut found: Vec<(PathBuf, Option<PathBuf>, String)> = Vec::new();
    context.workspace.walk_whole(&mut |entry| {
        let path = entry.path.as_path();
        if matches!(entry.kind, EntryKind::Dir { .. }) {
            let may_hold = || {
                let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
                let is_judged = path.parent().is_some_and(|folder| judged.contains(folder));
                is_judged && (rules.names.may_shadow(name) || is_metadata(path) || rules.tests.may_be_namesake(path))
            };
            return if ways.contains(path) || may_hold() { WalkStep::On } else { WalkStep::Skip };
        }
        let link = if let EntryKind::Link { target } = &entry.kind { Some(target.clone()) } else { None };
        let rule = rules.refused(path, link.is_some(), &place);
        let is_no_folder = || searched.contains(path) && rules.path_ways.contains(path);
        let rule = rule.or_else(|| {
            is_no_folder().then(|| {
                "Python looks for modules in it (PYTHONPATH), and it is an archive or a link, not a folder".into()
            })
        });
        found.extend(rule.map(|rule| (path.to_owned(), link, rule)));
        WalkStep::On
    })?;
    let mut violations = Vec::new();
    for (path, link, rule) in found {
        let is_given = match rules.given.get(&path) {
            Some(given) => given.is_unchanged(&context.workspace, &path, link.as_deref())?,
            None => false,
        };
        let is_harmless = link.is_none()
            && path.ends_with(ENTRY_POINTS)
            && {
                matches!(context.workspace.read_file(&path, u64::MAX)?, ReadOutcome::File(bytes) if !names_entry_points(&bytes))
            };
        if !is_given && !is_harmless {
            violations.push(violation(&path, &rule));
        }
    }
    Ok(violations)
}
