//! `init`: projects made by the tools' own generators; what it writes lints clean, and its check really runs.

mod files;
mod java;

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::needs;
use crate::support::project::Project;
use crate::support::reply;
use crate::support::running::Ran;
use crate::support::server::Server;

const SPEC: &str = "specs/root.yaml";
const PYTHON: &str = "def double(number):\n    return 2 * number\n";
const PYTEST: &str = "from calc import double\n\n\ndef test_double():\n    assert double(2) == 4\n";
const UNITTEST: &str = "import unittest\n\nfrom calc import double\n\n\nclass Calc(unittest.TestCase):\n    \
    def test_double(self):\n        self.assertEqual(double(2), 4)\n";
const RUST_TEST: &str = "#[test]\nfn adds() {\n    assert_eq!(part::add(1, 2), 3);\n}\n";

/// A project in which these shell lines were run.
fn made_by(project: Project, lines: &str) -> Project {
    project
        .run_in_shell(&format!("set -e; {lines}"), &[])
        .exits(0);
    project
}

/// A project with the user's real home, where rustup keeps its toolchains.
fn with_home() -> Project {
    Project::new().env("HOME", &std::env::var("HOME").unwrap())
}

/// Runs `init` and `lint`, which must find nothing.
fn initialised(project: &Project) -> Ran {
    let ran = project.run(&["init"]).exits(0);
    let spec = project.read(SPEC);
    assert!(
        spec.starts_with("# yaml-language-server: $schema=.orchestrator.schema.json\n"),
        "{spec}"
    );
    let linted = project.run(&["lint", SPEC]).exits(0);
    assert_eq!(linted.stdout, format!("{SPEC} is fine\n"));
    ran
}

/// The same, and the check passes before any work, with so many tests.
fn check_passes(project: &Project, tests: usize) -> Ran {
    let ran = initialised(project);
    let count = match tests {
        1 => "1 test".to_owned(),
        count => format!("{count} tests"),
    };
    project
        .run(&["run", "--spec", SPEC])
        .exits(0)
        .says(&format!("check tests: passed, {count}, "))
        .says_on_stdout("already_green");
    ran
}

#[test]
fn a_cargo_library() {
    let project = made_by(with_home(), "cargo init -q --lib --vcs none --name part");
    project.write("tests/adds.rs", RUST_TEST);
    check_passes(&project, 2).says_on_stdout("found: Rust (Cargo.toml)\n");
    let spec = project.read(SPEC);
    assert!(spec.contains("command: [cargo, test]\n"), "{spec}");
    assert!(spec.contains("- {from: ../tests, to: tests}\n"), "{spec}");
}

#[test]
fn a_cargo_program_gets_its_first_test() {
    let tested = "fn main() {}\n\n#[test]\nfn works() {}\n";
    let server = Server::start([reply::files(&[("src/main.rs", tested)])]);
    let project = made_by(
        with_home().model(&server),
        "cargo init -q --bin --name part",
    );
    initialised(&project)
        .says_on_stdout("added to .gitignore: /workspace/ /logs/ /state.json* /.orchestrator*\n");
    project
        .run(&["run", "--spec", SPEC])
        .exits(0)
        .says("check tests: failed, exit code 0, but no test was executed")
        .says("check tests: passed, 1 test");
}

#[test]
fn a_cargo_workspace() {
    let lines = "printf '[workspace]\\nresolver = \"3\"\\nmembers = []\\n' > Cargo.toml; \
                 cargo new -q --lib --vcs none part; cargo new -q --lib --vcs none other";
    let project = made_by(with_home(), lines);
    project.write("part/tests/adds.rs", RUST_TEST);
    check_passes(&project, 3).says_on_stdout("found: Rust workspace (Cargo.toml)\n");
    let spec = project.read(SPEC);
    assert!(
        spec.contains("command: [cargo, test, --workspace]\n"),
        "{spec}"
    );
    assert!(
        spec.contains("- {from: ../part/tests, to: part/tests}\n"),
        "{spec}"
    );
}

#[test]
fn a_node_project_with_its_own_runner() {
    if !needs::program("npm") {
        return;
    }
    let lines = "npm init -y >/dev/null 2>&1; npm pkg set scripts.test='node --test' 2>/dev/null";
    let project = made_by(Project::new(), lines);
    project.write("calc.test.js", "require('node:test')('a', () => {});\n");
    check_passes(&project, 1).says_on_stdout("found: Node (package.json)\n");
    let spec = project.read(SPEC);
    assert!(spec.contains("command: [npm, test]\n"), "{spec}");
    assert!(
        spec.contains("# The script `test` of package.json: node --test\n"),
        "{spec}"
    );
    assert!(
        spec.contains("- {from: ../calc.test.js, to: calc.test.js}\n"),
        "{spec}"
    );
}

#[test]
fn the_test_script_of_npm_init_is_none() {
    if !needs::program("npm") {
        return;
    }
    let project = made_by(Project::new(), "npm init -y >/dev/null 2>&1");
    project.write("test/calc.js", "require('node:test')('a', () => {});\n");
    check_passes(&project, 1);
    assert!(project.read(SPEC).contains("command: [node, --test]\n"));
}

#[test]
fn packages_of_node_are_read_in_place() {
    let Some(jest) = needs::jest() else { return };
    let lines = format!(
        "npm init -y >/dev/null 2>&1; npm pkg set scripts.test=jest devDependencies.jest=29 2>/dev/null; \
         cp -r {}/node_modules .",
        jest.display()
    );
    let project = made_by(Project::new(), &lines);
    project.write(
        "calc.test.js",
        "test('a', () => { expect(1 + 1).toBe(2); });\n",
    );
    check_passes(&project, 1);
    assert!(
        project
            .read(SPEC)
            .contains("    - ../node_modules # installed packages")
    );
    assert!(!project.exists("workspace/node_modules"));
}

#[test]
fn vitest_writes_into_a_node_modules_of_its_own() {
    let Some(vitest) = needs::vitest() else {
        return;
    };
    let lines = format!(
        "npm init -y >/dev/null 2>&1; npm pkg set type=module scripts.test=vitest devDependencies.vitest=4 2>/dev/null; \
         cp -r {}/node_modules .",
        vitest.display()
    );
    let project = made_by(Project::new(), &lines);
    project.write(
        "vitest.config.js",
        "import { defineConfig } from 'vitest/config';\nexport default defineConfig({});\n",
    );
    project.write(
        "calc.test.js",
        "import { test, expect } from 'vitest';\ntest('a', () => { expect(1 + 1).toBe(2); });\n",
    );
    check_passes(&project, 1);
    let command = "command: [sh, -c, \"mkdir -p node_modules && exec npm test\"]\n";
    assert!(
        project.read(SPEC).contains(command),
        "{}",
        project.read(SPEC)
    );
}

#[test]
fn packages_that_are_missing_are_named_with_the_command() {
    let manifest = r#"{"scripts": {"test": "vitest"}, "devDependencies": {"vitest": "1"}}"#;
    for (lock, install) in [
        ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn install --frozen-lockfile"),
        ("package-lock.json", "npm ci"),
        ("README.md", "npm install"),
    ] {
        let project = Project::new().file("package.json", manifest).file(lock, "");
        let ran = initialised(&project);
        let ran = ran.says_on_stdout("note: node_modules is missing");
        let ran = ran.says_on_stdout("\n  rm specs/root.yaml && orchestrator init --spec root ");
        ran.says_on_stdout(&format!("\n  {install} "));
        assert!(
            project.read(SPEC).contains("#     - ../node_modules #"),
            "{}",
            project.read(SPEC)
        );
    }
}

#[test]
fn a_go_module() {
    if !needs::program("go") {
        return;
    }
    let project = made_by(Project::new(), "go mod init example.com/calc 2>/dev/null");
    project.write("calc.go", "package calc\n\nfunc One() int { return 1 }\n");
    let test = "package calc\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n";
    project.write("calc_test.go", test);
    check_passes(&project, 1).says_on_stdout("found: Go (go.mod)\n");
    let spec = project.read(SPEC);
    assert!(spec.contains("command: [go, test, ./...]\n"), "{spec}");
    assert!(
        spec.contains("- {from: ../calc_test.go, to: calc_test.go}\n"),
        "{spec}"
    );
}

#[test]
fn a_go_workspace_tests_each_module() {
    let project = Project::new()
        .file("go.work", "go 1.21\nuse ./a\nuse ./b\n")
        .file("a/go.mod", "module a\n")
        .file("b/go.mod", "module b\n")
        .file("b/b_test.go", "package b\n");
    project
        .run(&["init"])
        .exits(0)
        .says_on_stdout("found: Go (go.work)\n");
    assert!(
        project
            .read(SPEC)
            .contains("command: [go, test, ./a/..., ./b/...]\n")
    );
}

#[test]
fn a_pytest_project_with_src_and_a_virtual_environment() {
    let Some(pytest) = needs::pytest() else {
        return;
    };
    let project = Project::new()
        .file(
            "pyproject.toml",
            "[project]\nname = \"calc\"\n[tool.pytest.ini_options]\n",
        )
        .file("src/calc/__init__.py", PYTHON)
        .file("tests/test_calc.py", PYTEST);
    symlink(pytest, project.path(".venv")).unwrap();
    check_passes(&project, 1).says_on_stdout("found: Python with pytest (pyproject.toml)\n");
    let spec = project.read(SPEC);
    assert!(
        spec.contains("command: [../.venv/bin/python, -m, pytest]\n"),
        "{spec}"
    );
    assert!(spec.contains("env: {PYTHONPATH: \"src:.\"}\n"), "{spec}");
    assert!(!project.exists("workspace/.venv"));
}

#[test]
fn a_virtual_environment_elsewhere_is_named_by_its_path() {
    let Some(pytest) = needs::pytest() else {
        return;
    };
    let project = Project::new()
        .env("VIRTUAL_ENV", &pytest.display().to_string())
        .file("setup.cfg", "[metadata]\nname = calc\n")
        .file("calc.py", PYTHON)
        .file("test_calc.py", PYTEST);
    check_passes(&project, 1);
    let spec = project.read(SPEC);
    assert!(
        spec.contains("# The interpreter is on this machine only.\n"),
        "{spec}"
    );
    assert!(
        spec.contains("- {from: ../test_calc.py, to: test_calc.py}\n"),
        "{spec}"
    );
}

#[test]
fn a_lock_file_without_an_environment_names_its_installer() {
    for (lock, install) in [("uv.lock", "uv sync"), ("poetry.lock", "poetry install")] {
        let project = Project::new()
            .file("pyproject.toml", "[project]\nname = \"calc\"\n")
            .file(lock, "")
            .file("test_calc.py", PYTEST);
        initialised(&project)
            .says_on_stdout("note: there is no virtual environment, and the check uses python3")
            .says_on_stdout(&format!("\n  {install} "))
            .says_on_stdout("\n  rm specs/root.yaml && orchestrator init --spec root ");
    }
}

#[test]
fn a_new_environment_gets_what_the_project_lists() {
    let backend = "[build-system]\nbuild-backend = \"hatchling.build\"\n";
    let tested = "[project]\nname = \"calc\"\noptional-dependencies = {test = [\"pytest\"]}\n";
    let plain = "[project]\nname = \"calc\"\ndependencies = []\n";
    for (path, text, wanted) in [
        ("pytest.ini", "", "pytest"),
        ("requirements.txt", "pytest\n", "-r requirements.txt pytest"),
        (
            "requirements-dev.txt",
            "pytest\n",
            "-r requirements-dev.txt pytest",
        ),
        (
            "pyproject.toml",
            &format!("{backend}{tested}"),
            "-e '.[test]' pytest",
        ),
        (
            "pyproject.toml",
            &format!("{backend}{plain}"),
            "-e . pytest",
        ),
        ("pyproject.toml", plain, "pytest"),
    ] {
        let project = with_python_that_lacks_pytest()
            .file("test_calc.py", PYTEST)
            .file(path, text);
        let line = format!("\n  python3 -m venv .venv && .venv/bin/pip install {wanted} ");
        initialised(&project).says_on_stdout(&line);
    }
}

/// A project whose `python3` has no packages.
fn with_python_that_lacks_pytest() -> Project {
    let project = Project::new();
    let folder = project.outside("bin");
    fs::create_dir(&folder).unwrap();
    symlink("/usr/bin/python3", folder.join("python3")).unwrap();
    project.env("PATH", &format!("{}:/usr/bin:/bin", folder.display()))
}

#[test]
fn a_unittest_project() {
    for (path, arguments) in [
        ("tests/test_calc.py", "-s, tests"),
        ("test/test_calc.py", "-s, test"),
        ("test_calc.py", ""),
        ("calc_test.py", "-p, \"*_test.py\""),
    ] {
        let project = Project::new().file("calc.py", PYTHON).file(path, UNITTEST);
        check_passes(&project, 1).says_on_stdout("found: Python with unittest");
        let command =
            format!("[python3, -m, unittest, discover, -v, {arguments}]").replace(", ]", "]");
        assert!(
            project.read(SPEC).contains(&command),
            "{}",
            project.read(SPEC)
        );
    }
    let project = Project::new()
        .file("calc.py", PYTHON)
        .file("tests/__init__.py", "")
        .file("tests/test_calc.py", UNITTEST);
    check_passes(&project, 1);
    assert!(project.read(SPEC).contains("-s, tests, -t, .]"));
}

#[test]
fn a_cmake_project() {
    if !needs::program("cmake") {
        return;
    }
    let lists = "cmake_minimum_required(VERSION 3.20)\nproject(calc C)\nenable_testing()\n\
                 add_executable(calc_test tests/calc.c)\nadd_test(NAME calc COMMAND calc_test)\n";
    let project = Project::new()
        .file("CMakeLists.txt", lists)
        .file("tests/calc.c", "int main(void) { return 0; }\n");
    check_passes(&project, 1).says_on_stdout("found: CMake with ctest (CMakeLists.txt)\n");
    assert_eq!(
        project.workspace_names(),
        ["CMakeLists.txt", "tests/calc.c"]
    );
}

#[test]
fn an_empty_folder_begins_a_python_project() {
    let files = [("calc.py", PYTHON), ("test_calc.py", UNITTEST)];
    let server = Server::start([reply::files(&files)]);
    let project = Project::new().model(&server);
    initialised(&project).says_on_stdout("found: no project yet");
    project
        .run(&["run", "--spec", SPEC])
        .exits(0)
        .says("check tests: passed, 1 test");
    project.nothing_left();
}

#[test]
fn a_project_of_another_kind_is_asked_for_its_command() {
    let project = Project::new().file("calc.rb", "puts 1\n");
    initialised(&project)
        .says_on_stdout("found: no known kind of project\n")
        .says_on_stdout(
            "note: no test command was found: write yours into the spec before you run it\n",
        );
    let project = Project::new()
        .file("Makefile", "all:\n\ntest: all\n\ttrue\n")
        .file("calc.rb", "");
    initialised(&project);
    assert!(project.read(SPEC).contains("command: [make, test]\n"));
}

#[test]
fn of_several_projects_one_is_chosen_and_the_others_are_named() {
    let manifest = r#"{"scripts": {"test": "node --test"}}"#;
    let project = Project::new()
        .file("calc.py", PYTHON)
        .file("test_calc.py", UNITTEST)
        .file("package.json", manifest);
    check_passes(&project, 1)
        .says_on_stdout("found: Python with unittest (calc.py)\n")
        .says_on_stdout("also found: Node (package.json): its check is a comment in the spec\n");
    let spec = project.read(SPEC);
    assert!(
        spec.contains(
            "  # Also found: Node (package.json). Its check:\n  # - name: node-tests\n  #   command: [npm, test]\n"
        ),
        "{spec}"
    );
    // The folders that its tools write are left out all the same.
    assert!(spec.contains("        - /node_modules/\n"), "{spec}");
    // Settings of a formatter do not make a Node project one in Python.
    let project = Project::new()
        .file("pyproject.toml", "[tool.ruff]\n")
        .file("package.json", manifest)
        .file("a.test.js", "require('node:test')('a', () => {});\n");
    check_passes(&project, 1).says_on_stdout("found: Node (package.json)\n");
}

#[test]
fn a_check_of_a_project_below_the_top_runs_in_its_folder() {
    let project = Project::new()
        .file("back end/requirements.txt", "")
        .file("back end/calc.py", PYTHON)
        .file("back end/test_calc.py", UNITTEST)
        .file("front/package.json", "{}");
    check_passes(&project, 1)
        .says_on_stdout("found: Python with unittest (back end/requirements.txt)\n")
        .says_on_stdout("also found: Node (front/package.json)");
    let command = "[sh, -c, \"cd 'back end' && exec python3 -m unittest discover -v\"]";
    assert!(
        project.read(SPEC).contains(command),
        "{}",
        project.read(SPEC)
    );
}

#[test]
fn the_environment_of_poetry_is_found() {
    let Some(pytest) = needs::pytest() else {
        return;
    };
    let project = Project::new()
        .file(
            "pyproject.toml",
            "[tool.poetry]\nname = \"Calc\"\n[tool.pytest.ini_options]\n",
        )
        .file("calc.py", PYTHON)
        .file("test_calc.py", PYTEST);
    let all = project.outside("home/.cache/pypoetry/virtualenvs");
    fs::create_dir_all(&all).unwrap();
    symlink(pytest, all.join("calc-AbC_dEf1-py3.11")).unwrap();
    fs::create_dir(all.join("calc-other-AbC_dEf1-py3.11")).unwrap();
    check_passes(&project, 1);
    assert!(
        project
            .read(SPEC)
            .contains("calc-AbC_dEf1-py3.11/bin/python")
    );
}
