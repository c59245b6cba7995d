//! The rules of a run: which paths are refused, decided by the path alone.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::build::spec::inputs::Inputs;
use crate::build::spec::{CheckSpec, Spec};
use crate::build::tampering::given::GivenFiles;
use crate::build::tampering::installed;
use crate::build::tampering::python::{
    self, CUSTOMIZE, PythonModule, PythonRunners, ReservedNames,
};
use crate::build::tampering::test_modules::TestModules;
use crate::process::check_env::CallerEnv;

/// Folders of installed packages, in which nothing is refused. `target` and `venv` may be folders of the project.
const EXEMPT: [&str; 2] = [".venv", "node_modules"];
pub(super) const ENTRY_POINTS: &str = "entry_points.txt";

/// What the rules are based on: fixed before anything is generated.
pub(crate) struct TamperingRules {
    pub(super) given: GivenFiles,
    pub(super) has_tests: bool,
    pub(super) names: ReservedNames,
    pub(super) tests: TestModules,
    /// For each check the folders in which its interpreter looks for modules, besides the top.
    pub(super) folders: Vec<Vec<PathBuf>>,
    /// The folders in the `PYTHONPATH`s of the checks, and their ancestors.
    pub(super) path_ancestors: HashSet<PathBuf>,
    /// The words of all commands.
    pub(super) words: Vec<String>,
}

impl TamperingRules {
    /// The rules of a run in `workspace`.
    pub(crate) fn new(
        spec: &Spec,
        inputs: &Arc<Inputs>,
        workspace: &Path,
        base: &CallerEnv,
    ) -> TamperingRules {
        let checks = &spec.checks;
        let runners = checks
            .iter()
            .map(|check| PythonRunners::of(&check.command))
            .fold(PythonRunners::default(), PythonRunners::and);
        let installed = match runners.python {
            true => installed_modules(checks, workspace, base),
            false => HashSet::new(),
        };
        let ancestors =
            |folder: PathBuf| folder.ancestors().map(Path::to_owned).collect::<Vec<_>>();
        TamperingRules {
            given: GivenFiles::new(Arc::clone(inputs)),
            has_tests: !inputs.protect.is_empty() || checks.iter().any(|check| check.hidden),
            names: ReservedNames::new(runners, installed),
            tests: TestModules::of(inputs),
            folders: checks
                .iter()
                .map(|check| searched_folders(check, workspace))
                .collect(),
            path_ancestors: checks
                .iter()
                .flat_map(|check| python_path(check, workspace))
                .flat_map(ancestors)
                .collect(),
            words: checks
                .iter()
                .flat_map(|check| &check.command)
                .flat_map(|word| word.split_whitespace())
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Whether there are tests that the model did not write: protected or hidden ones.
    pub(crate) fn has_tests(&self) -> bool {
        self.has_tests
    }

    /// Why a file may not be in the scope, by its path alone.
    pub(super) fn refused(
        &self,
        path: &Path,
        is_link: bool,
        scope: &RuleScope<'_>,
    ) -> Option<String> {
        if is_exempt(path) {
            return None;
        }
        let modules = python::modules(path, is_link);
        let reason = self.refused_module(&modules, scope);
        if reason.is_some() || !self.has_tests {
            return reason;
        }
        let is_namesake = |module| self.tests.has_namesake(module);
        if !self.given.is_test(path) && modules.iter().any(is_namesake) {
            return Some("it has the import name of a test module beside it, so it could be imported instead".into());
        }
        refused_start_file(path, is_link, scope).map(str::to_owned)
    }

    /// Why Python may not find one of these modules.
    fn refused_module(&self, modules: &[PythonModule], scope: &RuleScope<'_>) -> Option<String> {
        let customizes = |module: &&PythonModule| CUSTOMIZE.contains(&module.name.as_str());
        if modules
            .iter()
            .filter(customizes)
            .any(|module| scope.contains(&module.folder))
        {
            return Some("Python imports it at every start, before the tests".into());
        }
        let mut searched = modules.iter().filter(|module| scope.is_searched(module));
        searched.find_map(|module| {
            let owner = self.names.shadowed(module)?;
            let name = &module.name;
            Some(format!(
                "Python would import it instead of the module {name}, which {owner}"
            ))
        })
    }

    /// The folders in which the interpreters of all checks look.
    pub(super) fn all_folders(&self) -> BTreeSet<&Path> {
        let folders = self.folders.iter().flatten().map(PathBuf::as_path);
        folders.chain([Path::new("")]).collect()
    }

    /// The folders in which the interpreter of one check looks.
    pub(super) fn folders_of_check(&self, index: usize) -> BTreeSet<&Path> {
        let folders = self.folders.get(index).into_iter().flatten();
        folders
            .map(PathBuf::as_path)
            .chain([Path::new("")])
            .collect()
    }
}

/// Where the rules are applied.
pub(super) enum RuleScope<'a> {
    /// An answer, and the packages that it writes into.
    Answer {
        folders: BTreeSet<&'a Path>,
        is_package: &'a dyn Fn(&Path) -> bool,
    },
    /// The workspace before a check that looks into these folders.
    Workspace { folders: &'a BTreeSet<&'a Path> },
}

impl RuleScope<'_> {
    /// Whether a folder is in the scope, for files that are refused anywhere in an answer.
    fn contains(&self, folder: &Path) -> bool {
        match self {
            RuleScope::Answer { .. } => true,
            RuleScope::Workspace { folders } => folders.contains(folder),
        }
    }

    /// Whether an interpreter looks for the module in its folder, or could after one line in an answer.
    fn is_searched(&self, module: &PythonModule) -> bool {
        let folder = module.folder.as_path();
        match self {
            RuleScope::Answer {
                folders,
                is_package,
            } => {
                folders.contains(folder)
                    || (python::is_unmistakable(&module.name) && !is_package(folder))
            }
            RuleScope::Workspace { folders } => folders.contains(folder),
        }
    }
}

/// Refuses `.pth` files and entry points of packages, which run code before the tests.
fn refused_start_file(path: &Path, is_link: bool, scope: &RuleScope<'_>) -> Option<&'static str> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_pth = path.extension().is_some_and(|ending| ending == "pth");
    if is_pth && scope.contains(folder) {
        return Some("Python runs the lines of .pth files at every start, before the tests");
    }
    let metadata = [(path, is_link), (folder, path.ends_with(ENTRY_POINTS))];
    let is_plugin = |(path, counts): &(&Path, bool)| {
        *counts && is_metadata(path) && path.parent().is_some_and(|around| scope.contains(around))
    };
    metadata
        .iter()
        .any(is_plugin)
        .then_some("its entry points load plugins into test runners")
}

/// Whether `importlib.metadata` takes a folder for metadata of a package; it ignores case.
pub(super) fn is_metadata(folder: &Path) -> bool {
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    name.ends_with(".dist-info") || name.ends_with(".egg-info") || name == "egg-info"
}

fn is_exempt(path: &Path) -> bool {
    path.iter()
        .any(|part| EXEMPT.iter().any(|name| part == *name))
}

/// The modules beside the interpreters that the checks may start.
fn installed_modules(checks: &[CheckSpec], workspace: &Path, base: &CallerEnv) -> HashSet<String> {
    let own_paths = checks
        .iter()
        .filter_map(|check| check.env.get("PATH"))
        .map(OsStr::new);
    let programs = checks
        .iter()
        .filter_map(|check| check.command.first())
        .map(Path::new)
        .filter(|program| program.is_absolute());
    let paths = std::iter::once(base.path()).chain(own_paths);
    installed::imported(base, paths, programs, workspace)
}

/// The folders of the workspace in the `PYTHONPATH` of a check.
fn python_path(check: &CheckSpec, workspace: &Path) -> Vec<PathBuf> {
    let path = check.env.get("PYTHONPATH").map_or("", String::as_str);
    path.split(':')
        .filter(|entry| !entry.is_empty())
        .filter_map(|entry| below(Path::new(entry), workspace))
        .collect()
}

/// The folders in which the interpreter of a check looks for modules, besides the top.
fn searched_folders(check: &CheckSpec, workspace: &Path) -> Vec<PathBuf> {
    let scripts = python::script_folders(&check.command)
        .into_iter()
        .filter_map(|folder| below(Path::new(folder), workspace));
    let mut folders = python_path(check, workspace);
    folders.extend(scripts);
    folders
}

/// The path relative to the workspace, or nothing if it leads out.
fn below(path: &Path, workspace: &Path) -> Option<PathBuf> {
    let path = path.strip_prefix(workspace).unwrap_or(path);
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}
