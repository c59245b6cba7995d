//! Python modules by name: what a file is imported as, and which names belong to a runner or to what it imports before
//! the tests.
//!
//! The tables were made from `sys.modules` as the first test module sees it, with CPython 3.8 to 3.13 and pytest 7 to
//! 9; the new names of 3.14 are added. Modules built into the interpreter cannot be shadowed and are not listed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Modules that every Python start imports if they exist. (Debian's `sitecustomize` tries the last one.)
pub(super) const CUSTOMIZE: [&str; 3] = ["sitecustomize", "usercustomize", "apport_python_hook"];
/// Runners, and the modules of pytest: refused whatever the checks are.
const RUNNERS: &str = "pytest _pytest pluggy iniconfig packaging pygments unittest doctest nose nose2 coverage tox nox";
/// What older versions of pytest import in addition.
const OF_PYTEST: &str =
    "py exceptiongroup tomli typing_extensions colorama attr attrs importlib_metadata zipp";
/// Names that no project uses for a module: refused in an answer in every folder that is not a package.
const UNMISTAKABLE: [&str; 4] = ["pytest", "_pytest", "pluggy", "iniconfig"];
/// Runners for which a folder without `__init__.py` is refused, too, if it contains a module.
const WHOLE_FOLDERS: &str = "pytest _pytest pluggy iniconfig unittest pygments";

const IMPORTED_BY_UNITTEST: &str = include_str!("imported_by_unittest.txt");
const IMPORTED_BY_PYTEST: &str = include_str!("imported_by_pytest.txt");
const STDLIB: &str = include_str!("stdlib_modules.txt");

/// A name under which Python could import a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonModule {
    /// The folder that would have to be on `sys.path`.
    pub folder: PathBuf,
    pub name: String,
    pub form: ModuleForm,
}

/// The form of a module on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModuleForm {
    /// `name.py`, `name.pyc`, `name.so`, or a link that may be any of it.
    File,
    /// `name/__init__.py` and the like.
    Package,
    /// Another module in the folder `name/`; without an `__init__.py` it counts only if nothing else has the name.
    Portion,
}

/// The name of the module in a file of this name.
pub(super) fn module_name(file_name: &str) -> Option<&str> {
    let (name, ending) = file_name.split_once('.')?;
    let is_extension = |ending: &str| ending.starts_with("cpython-") || ending.starts_with("pypy");
    let is_module = match ending {
        "py" | "pyc" | "so" | "abi3.so" => true,
        other => other.strip_suffix(".so").is_some_and(is_extension),
    };
    (is_module && !name.is_empty()).then_some(name)
}

/// Every way in which Python could import a file or a link at this path.
pub(super) fn modules(path: &Path, is_link: bool) -> Vec<PythonModule> {
    let name_of = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
    let (Some(name), Some(folder)) = (name_of(path), path.parent()) else {
        return Vec::new();
    };
    let in_folder = |folder: &Path, name: &str, form: ModuleForm| PythonModule {
        folder: folder.to_owned(),
        name: name.to_owned(),
        form,
    };
    let mut found = Vec::new();
    if is_link && !name.contains('.') {
        // It may point to a folder with anything in it.
        found.push(in_folder(folder, &name, ModuleForm::Package));
    }
    let Some(module) = module_name(&name) else {
        return found;
    };
    let is_init = module == "__init__";
    if !is_init {
        found.push(in_folder(folder, module, ModuleForm::File));
    }
    if let (Some(package), Some(around)) = (name_of(folder), folder.parent()) {
        let form = match is_init {
            true => ModuleForm::Package,
            false => ModuleForm::Portion,
        };
        found.push(in_folder(around, &package, form));
    }
    found
}

/// Whether a name belongs to the standard library.
pub(super) fn is_stdlib(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| STDLIB.lines().collect());
    NAMES.contains(name)
}

/// The Python runners that checks may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PythonRunners {
    pub pytest: bool,
    /// Any Python program; most use unittest, and all start alike.
    pub python: bool,
}

impl PythonRunners {
    /// What a command may start. A script, or a tool that runs others, may start all of them.
    pub(super) fn of(command: &[String]) -> PythonRunners {
        let words: Vec<&str> = command.iter().flat_map(|word| words(word)).collect();
        let has = |is: &dyn Fn(&str) -> bool| {
            words
                .iter()
                .any(|word| is(word.rsplit('/').next().unwrap_or(word)))
        };
        let is_opaque = is_script(command) || has(&|word| is_among(OPAQUE, word));
        let pytest = is_opaque || has(&|word| word.starts_with("pytest") || word == "py.test");
        let python =
            pytest || has(&|word| word == "unittest" || is_among(PYTHONS, word)) || has(&is_python);
        PythonRunners { pytest, python }
    }

    pub(super) fn and(self, other: PythonRunners) -> PythonRunners {
        PythonRunners {
            pytest: self.pytest || other.pytest,
            python: self.python || other.python,
        }
    }
}

/// The folders that a command puts first on `sys.path`: that of its script, and those that it changes to.
pub(super) fn script_folders(command: &[String]) -> Vec<&str> {
    let words: Vec<&str> = command.iter().flat_map(|word| words(word)).collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let rest = &words[at + 1..];
        if *word == "cd" {
            found.extend(rest.first());
        }
        if is_python(word.rsplit('/').next().unwrap_or(word)) {
            let mut script = rest
                .iter()
                .skip_while(|word| word.starts_with('-') && !matches!(**word, "-m" | "-c"));
            let script = script.next().filter(|word| word.ends_with(".py"));
            found.extend(
                script
                    .and_then(|script| script.rsplit_once('/'))
                    .map(|(folder, _)| folder),
            );
        }
    }
    found
}

fn is_python(word: &str) -> bool {
    ["python", "pypy"]
        .iter()
        .any(|name| is_version_of(word, name))
}

/// Programs that start what their configuration file names.
const OPAQUE: &str =
    "make gmake just tox nox ninja rake bazel invoke inv task hatch pre-commit doit";
/// Programs that start Python under another name.
const PYTHONS: &str = "uv uvx poetry pdm pipenv rye ipython coverage";
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "busybox"];

/// Whether a word is in a table, which has spaces between its words.
fn is_among(table: &str, word: &str) -> bool {
    table.split(' ').any(|known| known == word)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '/' | '-'))
        .filter(|word| !word.is_empty())
}

/// `python`, `python3`, `python3.12`, but not `python-config`.
fn is_version_of(word: &str, name: &str) -> bool {
    word.strip_prefix(name)
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// Whether the command is a script of the project: `./run`, `bin/check`, `bash run.sh`, `sh -c "./run"`.
fn is_script(command: &[String]) -> bool {
    let Some(program) = command.first() else {
        return false;
    };
    let is_shell = program
        .rsplit('/')
        .next()
        .is_some_and(|name| SHELLS.contains(&name));
    let mut of_shell = command.iter().skip(1).filter(|_| is_shell);
    match of_shell.next() {
        Some(word) if !word.starts_with('-') => true,
        Some(_) => of_shell
            .flat_map(|word| words(word))
            .any(|word| word.starts_with("./")),
        None => program.contains('/') && !program.starts_with('/'),
    }
}

/// The names that a module of a project must not have, each with what it belongs to.
#[derive(Debug, Clone, Default)]
pub(super) struct ReservedNames(HashMap<String, &'static str>);

impl ReservedNames {
    /// `installed` is what pytest, its plugins and the interpreter import in addition.
    pub(super) fn new(runners: PythonRunners, installed: HashSet<String>) -> ReservedNames {
        let mut names = HashMap::new();
        if runners.python {
            let installed = installed.into_iter();
            names.extend(installed.map(|name| {
                (
                    name,
                    "an installed plugin or the interpreter imports before the tests",
                )
            }));
        }
        let mut add = |known: &mut dyn Iterator<Item = &str>, what| {
            names.extend(known.map(|name| (name.to_owned(), what)));
        };
        if runners.pytest {
            add(
                &mut IMPORTED_BY_PYTEST.lines().chain(OF_PYTEST.split(' ')),
                "pytest imports before the tests",
            );
        }
        if runners.python {
            add(
                &mut IMPORTED_BY_UNITTEST.lines(),
                "Python or unittest imports before the tests",
            );
        }
        add(&mut RUNNERS.split(' '), "is a test runner or part of one");
        ReservedNames(names)
    }

    /// What owns the module that a file would be imported instead of, if the name is reserved.
    pub(super) fn shadowed(&self, module: &PythonModule) -> Option<&'static str> {
        let is_complete =
            module.form != ModuleForm::Portion || is_among(WHOLE_FOLDERS, &module.name);
        self.0.get(&module.name).filter(|_| is_complete).copied()
    }

    /// Whether a folder of this name may be a package that shadows something.
    pub(super) fn may_shadow(&self, name: &str) -> bool {
        CUSTOMIZE.contains(&name) || self.0.contains_key(name)
    }
}

/// Whether a name is refused in every folder that is not a package.
pub(super) fn is_unmistakable(name: &str) -> bool {
    UNMISTAKABLE.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_python_imports() {
        for (file, module) in [
            ("x.py", Some("x")),
            ("x.pyc", Some("x")),
            ("x.so", Some("x")),
            ("x.abi3.so", Some("x")),
            ("x.cpython-311-x86_64-linux-gnu.so", Some("x")),
            ("x.pypy39-pp73-x86_64-linux-gnu.so", Some("x")),
            ("x.txt", None),
            ("x", None),
            (".py", None),
            ("x.y.py", None),
            ("x.cpython-311.pyc", None),
            ("libx.so.6", None),
        ] {
            assert_eq!(module_name(file), module, "{file}");
        }
    }

    fn names(command: &str) -> ReservedNames {
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        ReservedNames::new(
            PythonRunners::of(&command),
            HashSet::from(["pytest_mock".to_owned()]),
        )
    }

    fn is_shadow(command: &str, path: &str) -> bool {
        let top = modules(Path::new(path), false)
            .into_iter()
            .filter(|module| module.folder == Path::new(""));
        top.map(|module| names(command).shadowed(&module))
            .any(|shadowed| shadowed.is_some())
    }

    #[test]
    fn folders_that_a_command_puts_on_the_path() {
        for (command, folders) in [
            ("python3 tests/run.py x/y.py", vec!["tests"]),
            ("python3 -B -u ./a/b/run.py", vec!["./a/b"]),
            ("python3 -m pytest tests/a.py", vec![]),
            ("python3 run.py", vec![]),
            ("sh -c cd sub && python3 -m unittest", vec!["sub"]),
            ("cat a/b.py", vec![]),
        ] {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(script_folders(&command), folders, "{command:?}");
        }
    }

    #[test]
    fn runners_are_refused_whatever_the_command() {
        for path in [
            "pytest.py",
            "_pytest/__init__.py",
            "pluggy.so",
            "iniconfig.pyc",
            "packaging/__init__.py",
            "unittest/case.py",
        ] {
            assert!(is_shadow("cargo test", path), "{path}");
        }
        for path in [
            "packaging/build.py",
            "packaging/debian/rules",
            "coverage/index.html",
            "pytest_helper.py",
            "unittest.txt",
        ] {
            assert!(!is_shadow("python3 -m pytest", path), "{path}");
        }
    }

    #[test]
    fn imports_of_a_runner_are_refused_where_it_may_run() {
        for (command, path, refused) in [
            ("python3 -m unittest", "difflib.py", true),
            ("python3 -m unittest", "signal/__init__.py", true),
            ("python3 -m unittest", "signal/x.py", false),
            ("python3 -m unittest", "json.py", false),
            ("python3 -m unittest", "colorsys.py", false),
            ("python3 -m pytest", "difflib.py", true),
            ("python3 -m pytest", "json.py", true),
            ("python3 -m pytest", "colorsys.py", false),
            ("python3 -m pytest", "exceptiongroup.py", true),
            ("python3 -m pytest", "pytest_mock/__init__.py", true),
            ("cargo test", "pytest_mock.py", false),
            ("cargo test", "types.py", false),
            ("sh -c grep -q GOOD calc.py", "json.py", false),
            (
                "sh -c cd x && python3.12 -m unittest",
                "encodings/__init__.py",
                true,
            ),
            ("make test", "json.py", true),
            ("./run", "json.py", true),
            ("bash run.sh", "types.py", true),
            ("go test ./...", "types.py", false),
            ("python3 manage.py test", "traceback.py", true),
        ] {
            assert_eq!(is_shadow(command, path), refused, "{command}: {path}");
        }
    }
}
