//! Files outside the tests that control a test run: what is refused, what is noted, and what honest projects contain.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agent_mode::done;
use crate::support::project::{Project, RUN, RUN_JSON};
use crate::support::reply::bash;
use crate::support::running::Ran;
use crate::support::server::Server;

const PYTEST: &str = "python3 -m pytest";
const UNITTEST: &str = "python3 -m unittest discover -s tests";
const TEST: &str = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue(True)\n";
/// A check without Python.
const SHELL: &str = "true";

/// A run whose answer comes from a template: given files, an answer, checks.
struct Scene {
    project: Project,
    workspace: Value,
    checks: Vec<Value>,
}

impl Scene {
    /// A run without tests of the user.
    fn bare() -> Scene {
        Scene {
            project: Project::new(),
            workspace: json!({}),
            checks: Vec::new(),
        }
    }

    /// A run with a protected test in `tests/`.
    fn protected() -> Scene {
        Scene::bare()
            .given("tests/test_calc.py", TEST)
            .protect("tests/")
    }

    fn given(self, path: &str, text: &str) -> Scene {
        self.project.write(&format!("specs/{path}"), text);
        self
    }

    fn list(mut self, list: &str, entry: &str) -> Scene {
        let mut entries = self.workspace[list].as_array().cloned().unwrap_or_default();
        entries.push(in_its_place(entry));
        self.workspace[list] = entries.into();
        self
    }

    fn protect(self, entry: &str) -> Scene {
        self.list("protect", entry)
    }

    fn copy(self, entry: &str) -> Scene {
        self.list("copy", entry)
    }

    /// Adds a file of the answer.
    fn answer(self, path: &str, text: &str) -> Scene {
        self.project
            .write(&format!("specs/template/0/{path}"), text);
        self
    }

    fn check(mut self, command: &str) -> Scene {
        let name = format!("check{}", self.checks.len());
        self.checks
            .push(json!({"name": name, "command": command.split(' ').collect::<Vec<_>>()}));
        self
    }

    fn shell(mut self, script: &str) -> Scene {
        let name = format!("check{}", self.checks.len());
        self.checks
            .push(json!({"name": name, "command": ["sh", "-c", script]}));
        self
    }

    /// Sets a field of the last check.
    fn with(mut self, field: &str, value: Value) -> Scene {
        self.checks.last_mut().unwrap()[field] = value;
        self
    }

    fn run(&self) -> Ran {
        self.project.write("specs/template/0/answer.txt", "42\n");
        let spec = json!({
            "name": "tampering",
            "description": "x",
            "workspace": self.workspace,
            "baseline": false,
            "checks": self.checks,
            "max_retries": 1,
            "generator": {"provider": "template", "template": "template/"},
        });
        self.project.write("specs/spec.yaml", spec.to_string());
        self.project.run(RUN_JSON)
    }

    /// Expects a violation that names the file, before anything of the answer is written.
    fn refused(self, name: &str) {
        let ran = self.run();
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), "safety_violation".into()),
            "{name}: {}",
            ran.transcript()
        );
        assert!(ran.stderr.contains(name), "{name}: {}", ran.transcript());
        assert!(
            !self.project.exists("workspace/answer.txt"),
            "{name}: {}",
            ran.transcript()
        );
    }

    /// Runs to success and returns the notes about files.
    fn notes(self, name: &str) -> Vec<String> {
        let ran = self.run().exits(0);
        let notes = ran.result()["notes"].as_array().unwrap().clone();
        let about: Vec<String> = notes
            .iter()
            .map(|note| note.as_str().unwrap().to_owned())
            .filter(|note| note.contains(name))
            .collect();
        for note in &about {
            assert!(
                ran.stderr.contains(note),
                "not on the console: {note}: {}",
                ran.transcript()
            );
            assert!(
                self.project
                    .events("NoteAdded")
                    .iter()
                    .any(|line| line["note"] == **note),
                "not in the log: {note}"
            );
        }
        about
    }

    fn passes_silently(self, what: &str) {
        let ran = self.run().exits(0);
        assert_eq!(
            ran.result()["notes"],
            json!([]),
            "{what}: {}",
            ran.transcript()
        );
    }
}

/// A spec entry with the same path in the workspace.
fn in_its_place(entry: &str) -> Value {
    json!({"from": entry, "to": entry.trim_end_matches('/')})
}

#[test]
fn files_that_shadow_a_runner_or_its_imports_are_refused() {
    for (command, path) in [
        (SHELL, "iniconfig.py"),
        (SHELL, "packaging/__init__.py"),
        (SHELL, "pygments/__init__.py"),
        (SHELL, "_pytest/__init__.py"),
        (PYTEST, "pluggy.pyc"),
        (PYTEST, "json.py"),
        (PYTEST, "argparse/__init__.py"),
        (UNITTEST, "difflib.py"),
        (UNITTEST, "signal.so"),
        (UNITTEST, "types.abi3.so"),
        (UNITTEST, "traceback.cpython-311-x86_64-linux-gnu.so"),
        (UNITTEST, "encodings/__init__.pyc"),
        ("./run", "inspect.py"),
        ("python3 manage.py test", "logging.py"),
    ] {
        // It applies without tests of the user, too.
        Scene::bare()
            .check(command)
            .answer(path, "import os\n")
            .refused(path);
    }
}

#[test]
fn shadowing_is_refused_only_on_the_import_path() {
    let scene = || {
        Scene::protected()
            .shell(SHELL)
            .answer("pkg/__init__.py", "")
    };
    for path in [
        "pkg/types.py",
        "pkg/pytest.py",
        "pkg/packaging/__init__.py",
        "packaging/make.py",
        "coverage/index.html",
    ] {
        scene().answer(path, "x = 1\n").passes_silently(path);
    }
    scene()
        .check("true")
        .with("env", json!({"PYTHONPATH": "x:./lib/"}))
        .answer("lib/pluggy.py", "")
        .refused("pluggy");
    scene()
        .check("python3 -c 1")
        .with("env", json!({"PYTHONPATH": "lib"}))
        .answer("lib/types.py", "")
        .refused("types");
    scene()
        .check("python3 tools/run.py")
        .answer("tools/types.py", "")
        .refused("types");
    scene()
        .answer("vendor/pluggy/__init__.py", "")
        .refused("pluggy");
}

#[test]
fn files_that_shadow_imports_of_plugins_are_refused() {
    for (path, is_refused) in [
        ("own_plugin.py", true),
        ("needed/__init__.py", true),
        ("at_start.py", true),
        ("free.py", false),
    ] {
        let mut scene = Scene::bare()
            .check("python3 -m unittest -h")
            .answer(path, "x = 1\n");
        let python = scene.project.outside("venv/bin/python3");
        let packages = scene.project.outside("venv/lib/python3.11/site-packages");
        fs::create_dir_all(python.parent().unwrap()).unwrap();
        fs::create_dir_all(packages.join("own-1.dist-info")).unwrap();
        fs::write(&python, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(
            packages.join("own-1.dist-info/entry_points.txt"),
            "[pytest11]\nown = own_plugin.inner\n",
        )
        .unwrap();
        fs::write(
            packages.join("own-1.dist-info/METADATA"),
            "Name: own\nRequires-Dist: needed>=1\n",
        )
        .unwrap();
        fs::write(packages.join("start.pth"), "import at_start\n").unwrap();
        let path_variable = format!("{}:/usr/bin:/bin", python.parent().unwrap().display());
        scene.project = scene.project.env("PATH", &path_variable);
        match is_refused {
            true => scene.refused(path.split('/').next().unwrap()),
            false => assert!(!scene.run().stderr.contains("safety violation"), "{path}"),
        }
    }
}

#[test]
fn metadata_with_entry_points_and_pth_files_are_refused() {
    let plugin = "[pytest11]\nhelper = helper\n";
    for path in [
        "helper-1.0.dist-info/entry_points.txt",
        "helper.egg-info/entry_points.txt",
        "HELPER.Dist-Info/entry_points.txt",
        "lib/deep/helper.dist-info/entry_points.txt",
        "helper.egg/EGG-INFO/entry_points.txt",
        "evil.pth",
        "lib/deep/evil.pth",
    ] {
        Scene::protected()
            .shell(SHELL)
            .answer(path, plugin)
            .refused(path);
    }
    Scene::protected()
        .shell(SHELL)
        .answer(
            "x.dist-info/entry_points.txt",
            "[console_scripts]\nx = x:y\n",
        )
        .refused("x.dist-info");
    for (path, text) in [
        ("helper-1.0.dist-info/METADATA", "Name: helper\n"),
        ("helper.egg-info/PKG-INFO", "Name: helper\n"),
        ("helper.egg-info/entry_points.txt", "\n# nothing\n"),
        (
            ".venv/lib/python3/site-packages/a.dist-info/entry_points.txt",
            plugin,
        ),
        (".venv/lib/python3/site-packages/a.pth", "import a\n"),
        ("node_modules/x/a.pth", "import a\n"),
        ("entry_points.txt", plugin),
    ] {
        Scene::protected()
            .shell(SHELL)
            .answer(path, text)
            .passes_silently(path);
    }
    // Without tests of the user there is nothing to control.
    Scene::bare()
        .shell(SHELL)
        .answer("evil.pth", plugin)
        .passes_silently("evil.pth");
}

#[test]
fn a_second_module_with_the_name_of_a_test_is_refused() {
    for (protect, path) in [
        ("test_calc.py", "test_calc/__init__.py"),
        ("test_calc.py", "test_calc.so"),
        ("test_calc.py", "test_calc.pyc"),
        ("tests/test_calc.py", "tests.py"),
        (
            "tests/test_calc.py",
            "tests.cpython-311-x86_64-linux-gnu.so",
        ),
        ("tests/test_calc.py", "tests/test_calc/__init__.py"),
        ("a/b/test_calc.py", "a/b.py"),
        ("a/b/test_calc.py", "a.py"),
    ] {
        let entry = protect.split('/').next().unwrap().to_owned();
        let whole = Scene::bare()
            .given(protect, TEST)
            .protect(&entry)
            .shell(SHELL)
            .answer(path, "");
        whole.refused(path);
        let alone = Scene::bare()
            .given(protect, TEST)
            .protect(protect)
            .shell(SHELL)
            .answer(path, "");
        alone.refused(path);
        let hidden = Scene::bare()
            .given(protect, TEST)
            .shell(SHELL)
            .with("hidden", json!(true));
        hidden
            .with("files", json!([in_its_place(protect)]))
            .answer(path, "")
            .refused(path);
    }
    for (protect, path) in [
        ("tests/test_calc.py", "other/tests.py"),
        ("tests/test_calc.py", "tests_more.py"),
        ("test_calc.py", "test_calc/data.json"),
        ("data/table.csv", "data.py"),
    ] {
        Scene::bare()
            .given(protect, TEST)
            .protect(protect)
            .shell(SHELL)
            .answer(path, "")
            .passes_silently(path);
    }
}

#[test]
fn given_and_unchanged_files_are_not_refused() {
    let files = [
        ("iniconfig.py", "x = 1\n"),
        ("pytest.py", "x = 1\n"),
        ("own.pth", "\n"),
        ("own.egg-info/entry_points.txt", "[pytest11]\nx = x\n"),
        ("tests.py", TEST),
        ("conftest.py", "\n"),
        ("colorsys.py", "x = 1\n"),
    ];
    let given = || {
        files
            .iter()
            .fold(Scene::protected(), |scene, (path, text)| {
                scene.given(path, text).copy(path)
            })
    };
    given().shell(SHELL).shell(SHELL).passes_silently("given");
    for (path, _) in &files[..5] {
        given().shell(SHELL).answer(path, "changed\n").refused(path);
        let plants = given()
            .shell(&format!("echo changed > {path}"))
            .shell("touch ran");
        let ran = plants.run().exits(2);
        assert!(
            ran.stderr.contains(path) && !plants.project.exists("workspace/ran"),
            "{path}: {}",
            ran.transcript()
        );
    }
    assert_eq!(
        given()
            .shell(SHELL)
            .answer("conftest.py", "changed\n")
            .notes("conftest.py")
            .len(),
        1
    );
    // An answer that repeats it changes nothing.
    given()
        .shell(SHELL)
        .answer("pytest.py", "x = 1\n")
        .passes_silently("repeated");
}

#[test]
fn files_written_by_a_check_are_examined_before_the_next() {
    for plant in [
        "touch difflib.py",
        "mkdir pluggy; touch pluggy/__init__.py",
        "mkdir x; touch x/__init__.py; ln -s x pluggy",
        "mkdir a.dist-info; echo '[pytest11]' > a.dist-info/entry_points.txt",
        "mkdir a; ln -s a a.egg-info",
        "touch a.pth",
        "touch tests.py",
    ] {
        let scene = Scene::protected()
            .shell(plant)
            .shell("touch ran")
            .check(UNITTEST);
        let ran = scene.run().exits(2);
        assert!(
            ran.stderr.contains("safety violation") && !scene.project.exists("workspace/ran"),
            "{plant}: {}",
            ran.transcript()
        );
    }
    for plant in [
        "mkdir deep; touch deep/a.pth",
        "mkdir -p .venv/lib; touch .venv/lib/a.pth",
        "mkdir a.dist-info; touch a.dist-info/METADATA",
    ] {
        Scene::protected()
            .shell(plant)
            .shell(SHELL)
            .passes_silently(plant);
    }
}

#[test]
fn pythonpath_entries_must_be_folders() {
    for plant in ["echo zip > lib", "mkdir other; ln -s other lib"] {
        let scene = Scene::protected()
            .shell(plant)
            .shell("touch ran")
            .with("env", json!({"PYTHONPATH": "lib"}));
        let ran = scene.run().exits(2);
        assert!(
            ran.stderr.contains("PYTHONPATH") && !scene.project.exists("workspace/ran"),
            "{plant}: {}",
            ran.transcript()
        );
    }
}

#[test]
fn new_configuration_is_noted_with_what_it_controls() {
    for (path, text, words) in [
        (
            "pyproject.toml",
            "[ tool . pytest . ini_options ]\naddopts = \"-p x\"\n",
            "new in tool.pytest",
        ),
        (
            "package.json",
            "{\"scripts\": {\"t\\u0065st\": \"exit 0\"}}",
            "new in scripts.test",
        ),
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\nautotests = false\n",
            "new in package.autotests",
        ),
        (
            "sub/Cargo.toml",
            "[[test]]\nname = \"a\"\npath = \"b.rs\"\n",
            "new in test",
        ),
        (
            "go.mod",
            "module x\nreplace a => ./a\n",
            "new in module, replace",
        ),
        (
            "setup.cfg",
            "[tool:pytest]\naddopts = -p x\n",
            "new in tool:pytest",
        ),
        ("Cargo.toml", "[package\n", "could not be read"),
        ("package.json", "{", "could not be read"),
        ("conftest.py", "", "new"),
        ("build.rs", "fn main() {}\n", "new"),
        ("Makefile", "test:\n", "new"),
        (
            ".cargo/config.toml",
            "[target.x86_64-unknown-linux-gnu]\nrunner = \"true\"\n",
            "new",
        ),
        (".mocharc.json", "{}", "new"),
        ("build.gradle.kts", "\n", "new"),
        ("node_modules/.bin/jest", "#!/bin/sh\n", "programs: jest"),
        ("colorsys/__init__.py", "", "hides the module colorsys"),
        ("sched.py", "", "hides the module sched"),
    ] {
        let name = path.rsplit('/').next().unwrap();
        let notes = Scene::protected()
            .shell(SHELL)
            .answer(path, text)
            .notes(if name == "__init__.py" { path } else { name });
        assert_eq!(notes.len(), 1, "{path}: {notes:?}");
        assert!(notes[0].contains(words), "{path}: {notes:?}");
        Scene::bare()
            .shell(SHELL)
            .answer(path, text)
            .passes_silently(path);
    }
    let hidden = Scene::bare()
        .given("held/t.py", TEST)
        .shell(SHELL)
        .with("hidden", json!(true));
    assert_eq!(
        hidden
            .with("files", json!(["held/"]))
            .answer("conftest.py", "")
            .notes("conftest.py")
            .len(),
        1
    );
    let planted = Scene::protected().shell("echo 'fn main() {}' > build.rs");
    assert_eq!(planted.notes("build.rs").len(), 1);
}

#[test]
fn unrelated_changes_of_a_manifest_are_not_noted() {
    for (path, before, after) in [
        (
            "pyproject.toml",
            "[project]\nname = \"x\"\n[tool.pytest.ini_options]\nx = 1\n",
            "[project]\nname = \"y\"\ndependencies = [\"a\"]\n[tool.pytest]\nini_options.x = 1\n",
        ),
        (
            "package.json",
            "{\"scripts\": {\"test\": \"node --test\"}}",
            "{\"dependencies\": {\"a\": \"1\"}, \"scripts\": {\"start\": \"x\", \"test\": \"node --test\"}}",
        ),
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\nautotests = false\n",
            "[package]\nname = \"x\"\nautotests = false\n[dependencies]\nserde = \"1\"\n",
        ),
        (
            "go.mod",
            "module x\n\ngo 1.21\n",
            "module x\n\ngo 1.22\n\nrequire a v1\n",
        ),
    ] {
        Scene::protected()
            .given(path, before)
            .copy(path)
            .shell(SHELL)
            .answer(path, after)
            .passes_silently(path);
    }
    for (path, before, after, words) in [
        (
            "Cargo.toml",
            "[package]\nname = \"x\"\n",
            "[package]\nname = \"x\"\n[lib]\ntest = false\n",
            "changed in lib.test",
        ),
        (
            "package.json",
            "{\"jest\": {\"testMatch\": [\"a\"]}}",
            "{\"jest\": {\"testMatch\": []}}",
            "changed in jest",
        ),
        (
            "jest.config.js",
            "module.exports = {};\n",
            "module.exports = {testMatch: []};\n",
            "changed",
        ),
    ] {
        let scene = Scene::protected()
            .given(path, before)
            .copy(path)
            .shell(SHELL)
            .answer(path, after);
        let notes = scene.notes(path);
        assert!(
            notes.len() == 1 && notes[0].contains(words),
            "{path}: {notes:?}"
        );
    }
    let removed = Scene::protected()
        .given("pytest.ini", "[pytest]\n")
        .copy("pytest.ini")
        .shell("rm pytest.ini");
    assert!(removed.notes("pytest.ini")[0].contains("removed"));
}

#[test]
fn an_init_file_among_tests_is_noted() {
    let alone = || {
        Scene::bare()
            .given("tests/unit/test_calc.py", TEST)
            .protect("tests/unit/test_calc.py")
            .shell(SHELL)
    };
    assert_eq!(
        alone()
            .answer("tests/unit/__init__.py", "")
            .notes("tests/unit/__init__.py")
            .len(),
        1
    );
    assert_eq!(
        alone()
            .answer("tests/__init__.py", "def load_tests(*a):\n    pass\n")
            .notes("tests/__init__.py")
            .len(),
        1
    );
    alone()
        .answer("tests/__init__.py", "")
        .passes_silently("around");
    alone()
        .answer("calc/__init__.py", "def load_tests(*a):\n    pass\n")
        .passes_silently("elsewhere");
}

#[test]
fn in_agent_mode_all_findings_are_reported_once() {
    let plant = "echo 42 > answer.txt; touch difflib.py a.pth tests.py";
    let spec = json!({
        "name": "x",
        "description": "x",
        "workspace": {"protect": ["tests/"]},
        "baseline": false,
        "checks": [{"name": "unit", "command": UNITTEST.split(' ').collect::<Vec<_>>()}],
        "generator": {"mode": "agent"},
    });
    let run = |replies: Vec<crate::support::reply::Reply>, code| {
        let server = Server::start(replies);
        let project =
            Project::with(spec.to_string(), &server).file("specs/tests/test_calc.py", TEST);
        project.run(RUN).exits(code);
        server.requests()
    };
    let requests = run(
        vec![
            bash(plant),
            done(),
            bash("rm difflib.py a.pth tests.py"),
            done(),
        ],
        0,
    );
    for name in ["difflib.py", "a.pth", "tests.py"] {
        assert!(
            requests[2]
                .text()
                .contains(&format!("safety violation: \"{name}\"")),
            "{}",
            requests[2].text()
        );
    }
    let requests = run(vec![bash(plant), done(), bash("rm difflib.py"), done()], 2);
    assert_eq!(requests.len(), 4);
}

#[test]
fn a_django_project_is_not_refused() {
    let project = Scene::bare()
        .given("shop/tests/__init__.py", "")
        .given("shop/tests/test_given.py", TEST)
        .protect("shop/tests/")
        .check("python3 -m unittest discover")
        .answer("manage.py", "import os\n")
        .answer("site_of_mine/__init__.py", "")
        .answer("site_of_mine/settings.py", "X = 1\n")
        .answer("shop/__init__.py", "")
        .answer("shop/models.py", "X = 1\n")
        .answer("shop/types.py", "X = 1\n")
        .answer("shop/signals.py", "X = 1\n")
        .answer("shop/migrations/__init__.py", "")
        .answer("shop/migrations/0001_initial.py", "X = 1\n")
        .answer("blog/__init__.py", "")
        .answer("blog/tests.py", TEST)
        .answer("requirements.txt", "django\n");
    project.passes_silently("django");
}

#[test]
fn other_honest_projects_are_not_refused() {
    Scene::protected()
        .check(UNITTEST)
        .answer(
            "pyproject.toml",
            "[build-system]\nrequires = [\"setuptools\"]\n[project]\nname = \"calc\"\nversion = \"1\"\n",
        )
        .answer("src/calc/__init__.py", "")
        .answer("src/calc/types.py", "x = 1\n")
        .answer("src/calc/argparse.py", "x = 1\n")
        .answer("src/calc.egg-info/PKG-INFO", "Name: calc\n")
        .answer("src/calc.egg-info/top_level.txt", "calc\n")
        .answer("test_more.py", TEST)
        .answer("tests_of_mine/test_own.py", TEST)
        .passes_silently("a Python package");
    Scene::bare()
        .given("Cargo.toml", "[workspace]\nmembers = [\"a\", \"b\"]\n")
        .given("a/tests/it.rs", "x\n")
        .copy("Cargo.toml")
        .protect("a/tests/")
        .shell(SHELL)
        .answer(
            "a/Cargo.toml",
            "[package]\nname = \"a\"\nversion = \"0.1.0\"\n[dependencies]\nserde = \"1\"\n",
        )
        .answer("a/src/lib.rs", "x\n")
        .answer(
            "b/Cargo.toml",
            "[package]\nname = \"b\"\nversion = \"0.1.0\"\n",
        )
        .passes_silently("a Cargo workspace");
    Scene::bare()
        .given("tests/calc.test.js", "x\n")
        .given("jest.config.js", "module.exports = {};\n")
        .given(
            "package.json",
            "{\"name\": \"x\", \"jest\": {}, \"scripts\": {\"test\": \"jest\"}}\n",
        )
        .copy("jest.config.js")
        .copy("package.json")
        .protect("tests/")
        .shell(SHELL)
        .answer("src/calc.js", "x\n")
        .answer("node_modules/jest/index.js", "x\n")
        .passes_silently("a Node package");
}
