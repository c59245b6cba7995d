//! Python projects: pytest or unittest, and the interpreter that has their packages.

use std::fs;
use std::path::PathBuf;

use crate::cli::init::host::venv_has;
use crate::cli::init::project::{DetectedProject, InspectedFolder, ReadablePath, base_name, words};

const MARKERS: [&str; 7] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    "requirements.txt",
    "Pipfile",
];
/// Files whose mention of pytest says that the tests need it.
const SETTINGS: [&str; 9] = [
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "tox.ini",
    "pytest.ini",
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
    "Pipfile",
];
const TEST_FOLDERS: [&str; 2] = ["tests", "test"];
const ENVIRONMENTS: [&str; 3] = [".venv", "venv", "env"];
/// Files that list what a project needs.
const REQUIREMENTS: [&str; 4] = [
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
    "requirements-test.txt",
];
/// Names of optional dependencies that the tests need.
const EXTRAS: [&str; 4] = ["test", "tests", "testing", "dev"];
const WHY: &str = "the virtual environment, which is used in place";

pub(super) fn detect(folder: &InspectedFolder<'_>) -> Option<DetectedProject> {
    let marker = marker(folder)?;
    let interpreter = PythonProgram::find(folder);
    let has_tests = folder.files.iter().any(|name| is_test(name));
    let wants_pytest = wants_pytest(folder, has_tests);
    let uses_pytest = wants_pytest || (!has_tests && interpreter.has_pytest);
    let mut command = vec![interpreter.program.clone(), "-m".to_owned()];
    command.extend(match uses_pytest {
        true => words("pytest"),
        false => unittest_arguments(folder),
    });
    let mut project = DetectedProject {
        toolchain: match uses_pytest {
            true => "Python with pytest",
            false => "Python with unittest",
        },
        family: "python",
        marker: folder.top_path(&marker),
        folder: folder.below.clone(),
        has_tests,
        command,
        timeout: 300,
        protect: folder.tests(&TEST_FOLDERS, |name| is_test(name) || is_conftest(name)),
        exclude: excluded(folder),
        ..DetectedProject::default()
    };
    if has_src_layout(folder) {
        project.env.push(("PYTHONPATH", "src:.".to_owned()));
        project
            .remarks
            .push("src/ is on PYTHONPATH: the copy is tested, not an installed package.".into());
    }
    interpreter.explain(folder, uses_pytest, &mut project);
    project.read.extend(interpreter.read);
    Some(project)
}

fn marker(folder: &InspectedFolder<'_>) -> Option<String> {
    let script = || {
        let at_top = |name: &&&str| name.ends_with(".py") && !name.contains('/');
        let tested = |name: &&&str| is_test(name) && TEST_FOLDERS.contains(&first_part(name));
        let names = &folder.files;
        let found = names.iter().find(at_top).or(names.iter().find(tested));
        found.map(|name| (*name).to_owned())
    };
    folder.first_of(&MARKERS).or_else(script)
}

fn first_part(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn is_test(path: &str) -> bool {
    let name = base_name(path);
    let stem = name.strip_suffix(".py");
    stem.is_some_and(|stem| {
        stem.starts_with("test_") || stem.ends_with("_test") || matches!(stem, "test" | "tests")
    })
}

fn is_conftest(path: &str) -> bool {
    base_name(path) == "conftest.py"
}

/// Whether the settings or the tests ask for pytest. Test functions without a class are for it, too.
fn wants_pytest(folder: &InspectedFolder<'_>, has_tests: bool) -> bool {
    let is_named = |name: &&str| {
        folder
            .text(name)
            .is_some_and(|text| text.contains("pytest"))
    };
    let mentions = |text: &str| text.contains("import pytest") || text.contains("from pytest");
    SETTINGS.iter().any(is_named)
        || folder.files.iter().any(|name| is_conftest(name))
        || folder.any_text(is_test, mentions)
        || (has_tests && !folder.any_text(is_test, |text| text.contains("unittest")))
}

/// The arguments of `python -m` that find the tests.
fn unittest_arguments(folder: &InspectedFolder<'_>) -> Vec<String> {
    let mut arguments = words("unittest discover -v");
    let start = TEST_FOLDERS.iter().find(|start| folder.has_files_in(start));
    if let Some(start) = start {
        arguments.extend(words(&format!("-s {start}")));
        if folder.has_file(&format!("{start}/__init__.py")) {
            arguments.extend(words("-t ."));
        }
    }
    let names = folder.files.iter().filter(|name| is_test(name));
    if names.clone().next().is_some()
        && names
            .clone()
            .all(|name| !base_name(name).starts_with("test"))
    {
        arguments.extend(words("-p *_test.py"));
    }
    arguments
}

fn has_src_layout(folder: &InspectedFolder<'_>) -> bool {
    let mut names = folder
        .files
        .iter()
        .filter_map(|name| name.strip_prefix("src/"));
    names.any(|name| name.ends_with(".py") && name.split('/').count() <= 2)
}

/// What Python's tools write; the rest is usually in `.gitignore`.
fn excluded(folder: &InspectedFolder<'_>) -> Vec<String> {
    let environments = ENVIRONMENTS
        .iter()
        .filter(|name| is_environment(folder, name));
    let written = [".tox", ".nox", ".eggs"].into_iter();
    let written = written.filter(|name| folder.path.join(name).is_dir());
    environments
        .copied()
        .chain(written)
        .map(|name| folder.pattern(name))
        .collect()
}

fn is_environment(folder: &InspectedFolder<'_>, name: &str) -> bool {
    let path = folder.path.join(name);
    path.join("pyvenv.cfg").is_file() && path.join("bin/python").exists()
}

/// The Python that runs the tests.
struct PythonProgram {
    /// As the command names it.
    program: String,
    has_pytest: bool,
    read: Option<ReadablePath>,
}

impl PythonProgram {
    /// A virtual environment in the project, poetry's, or the active one; else `python3`.
    fn find(folder: &InspectedFolder<'_>) -> PythonProgram {
        let mut inside = ENVIRONMENTS
            .iter()
            .filter(|name| is_environment(folder, name));
        if let Some(name) = inside.next() {
            return PythonProgram {
                program: folder.original(&format!("{name}/bin/python")),
                has_pytest: venv_has(&folder.path.join(name), "pytest"),
                read: Some(readable(format!("../{}", folder.top_path(name)))),
            };
        }
        let elsewhere = poetry_environment(folder).or_else(|| folder.host.virtual_environment());
        match elsewhere {
            Some(path) => PythonProgram {
                program: path.join("bin/python").display().to_string(),
                has_pytest: venv_has(&path, "pytest"),
                read: Some(readable(path.display().to_string())),
            },
            None => PythonProgram {
                program: "python3".into(),
                has_pytest: folder.host.python_imports("pytest"),
                read: None,
            },
        }
    }

    /// Says what is missing, and how to get it.
    fn explain(
        &self,
        folder: &InspectedFolder<'_>,
        uses_pytest: bool,
        project: &mut DetectedProject,
    ) {
        if self.program.starts_with('/') {
            let remark = "The interpreter is on this machine only.";
            project.remarks.push(remark.into());
        }
        let (install, lacks_pytest) = (installer(folder), uses_pytest && !self.has_pytest);
        if self.read.is_none() && (install.is_some() || lacks_pytest) {
            project.is_provisional = true;
            let make = install.map_or_else(|| new_environment(folder), str::to_owned);
            project.setup.push(make);
            let lack = if lacks_pytest {
                ", which has no pytest"
            } else {
                ""
            };
            project.warnings.push(format!(
                "there is no virtual environment, and the check uses python3{lack}"
            ));
        } else if lacks_pytest {
            let python = self.program.trim_start_matches("../");
            let install = install.map(str::to_owned);
            project
                .setup
                .push(install.unwrap_or(format!("{python} -m pip install pytest")));
            project.warnings.push(format!("{python} has no pytest"));
        }
    }
}

fn readable(path: String) -> ReadablePath {
    ReadablePath {
        path,
        why: WHY,
        exists: true,
    }
}

/// The command that installs what a lock file lists.
fn installer(folder: &InspectedFolder<'_>) -> Option<&'static str> {
    let by_file = [
        ("uv.lock", "uv sync"),
        ("poetry.lock", "poetry install"),
        ("pdm.lock", "pdm install"),
        ("Pipfile.lock", "pipenv sync --dev"),
    ];
    let found = by_file.into_iter().find(|(file, _)| folder.has_file(file));
    found.map(|(_, command)| command)
}

/// Makes a virtual environment where no tool manages one, with what the project lists.
fn new_environment(folder: &InspectedFolder<'_>) -> String {
    let lists = REQUIREMENTS.iter().filter(|name| folder.has_file(name));
    let lists = lists.map(|name| format!("-r {name}"));
    let wanted = lists.chain(itself(folder)).chain(["pytest".to_owned()]);
    let wanted: Vec<String> = wanted.collect();
    format!(
        "python3 -m venv .venv && .venv/bin/pip install {}",
        wanted.join(" ")
    )
}

/// How pip installs the project itself with its dependencies, if it has any. Without `src/` setuptools would find folders of
/// a root, such as `specs/`, to be packages.
fn itself(folder: &InspectedFolder<'_>) -> Option<String> {
    let settings: toml::Table = folder.text("pyproject.toml")?.parse().ok()?;
    let has_backend = settings
        .get("build-system")
        .and_then(|table| table.get("build-backend")?.as_str())
        .is_some_and(|backend| !backend.starts_with("setuptools"));
    let project = settings.get("project")?;
    let optional = project.get("optional-dependencies");
    let extra = EXTRAS
        .iter()
        .find(|name| optional.is_some_and(|optional| optional.get(**name).is_some()));
    let is_needed = extra.is_some() || project.get("dependencies").is_some();
    let path = match extra {
        Some(extra) => format!("-e '.[{extra}]'"),
        None => "-e .".to_owned(),
    };
    (is_needed && (has_backend || has_src_layout(folder))).then_some(path)
}

/// The only virtual environment that poetry has made for a project of this name.
fn poetry_environment(folder: &InspectedFolder<'_>) -> Option<PathBuf> {
    let settings = folder.text("pyproject.toml")?;
    if !folder.has_file("poetry.lock") && !settings.contains("[tool.poetry]") {
        return None;
    }
    let settings: toml::Table = settings.parse().ok()?;
    let poetry = settings.get("tool").and_then(|tool| tool.get("poetry"));
    let tables = [settings.get("project"), poetry];
    let mut names = tables
        .into_iter()
        .flatten()
        .filter_map(|table| table.get("name"));
    let name = names.find_map(|name| name.as_str())?.to_lowercase();
    let all = folder.host.home()?.join(".cache/pypoetry/virtualenvs");
    let entries = fs::read_dir(all).ok()?.flatten();
    let mut found = entries.filter(|entry| {
        let entry = entry.file_name().to_string_lossy().into_owned();
        let rest = entry.strip_prefix(&format!("{name}-"));
        // Eight characters of a hash come before the version.
        rest.and_then(|rest| rest.get(8..))
            .is_some_and(|version| version.starts_with("-py"))
    });
    let only = found.next()?.path();
    (found.next().is_none() && only.join("bin/python").exists()).then_some(only)
}
