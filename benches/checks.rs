//! What a check costs inside the sandbox, against the same command outside. Run it with `cargo bench --bench checks`; it
//! takes about two minutes.
//!
//! Nothing is asserted. Each test runner has a small project, whose caches are warm on both sides; inside and outside are
//! measured in alternation. A row shows both medians in ms, the median of the ratios, the median and the 10th percentile
//! of the differences, and the aim. The row *true* is a program that does nothing: its difference is the start of the
//! sandbox, which the other rows contain. A runner that is not installed has no row; pytest is the one that the tests
//! install below `target/tmp`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

mod support;

use support::{Pairs, cost};

const NAME_WIDTH: usize = 14;
const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
/// Runs of the orchestrator, and checks that are measured in each. The first one fills the caches.
const RUNS: usize = 4;
const CHECKS: usize = 5;

const PYTHON_TEST: &str = "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(2 + 2, 4)\n";
const PYTEST_TEST: &str = "def test():\n    assert 2 + 2 == 4\n";
const NODE_TEST: &str = "const test = require('node:test');\ntest('sum', () => require('node:assert').equal(2 + 2, 4));\n";
const GO_TEST: &str = "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif 2+2 != 4 {\n\t\tt.Fatal()\n\t}\n}\n";
const RUST_TEST: &str = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn sum() {\n        assert_eq!(2 + 2, 4);\n    }\n}\n";
const CARGO: &str = "[package]\nname = \"sum\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";

/// A project with tests, and the command that runs them.
struct TestProject {
    name: &'static str,
    command: Vec<String>,
    files: &'static [(&'static str, &'static str)],
}

fn main() {
    println!(
        "{:<NAME_WIDTH$}{:>9}{:>9}{:>8}{:>8}{:>8}  aim",
        "ms", "outside", "inside", "ratio", "more", "p10"
    );
    for project in projects() {
        if !is_there(&project.command[0]) {
            println!("{:<NAME_WIDTH$}not installed", project.name);
            continue;
        }
        measure(&project);
    }
}

fn projects() -> Vec<TestProject> {
    let project = |name, command: &[&str], files| TestProject {
        name,
        command: command.iter().map(|&word| word.into()).collect(),
        files,
    };
    let pytest = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pytest/bin/python");
    let pytest = pytest.display().to_string();
    vec![
        project("true", &["/bin/true"], &[]),
        project(
            "unittest",
            &["python3", "-m", "unittest", "test_sum"],
            &[("test_sum.py", PYTHON_TEST)],
        ),
        project(
            "pytest",
            &[&pytest, "-m", "pytest", "-q"],
            &[("test_sum.py", PYTEST_TEST)],
        ),
        project(
            "cargo test",
            &["cargo", "test", "--offline", "-q"],
            &[("Cargo.toml", CARGO), ("src/lib.rs", RUST_TEST)],
        ),
        // Without -count=1 the second run of the same test is answered from the cache.
        project(
            "go test",
            &["go", "test", "-count=1", "./..."],
            &[
                ("go.mod", "module sum\n\ngo 1.19\n"),
                ("sum_test.go", GO_TEST),
            ],
        ),
        project(
            "node --test",
            &["node", "--test", "sum.test.js"],
            &[("sum.test.js", NODE_TEST)],
        ),
    ]
}

fn is_there(program: &str) -> bool {
    let mut paths = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .collect::<Vec<PathBuf>>()
        .into_iter();
    Path::new(program).is_file() || paths.any(|folder| folder.join(program).is_file())
}

fn measure(project: &TestProject) {
    let mut pairs = Pairs::default();
    let outside = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).unwrap();
    write(outside.path(), project.files);
    let inside = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).unwrap();
    prepare(inside.path(), project);
    run_outside(outside.path(), &project.command);
    for _ in 0..RUNS {
        let before: Vec<f64> = (0..CHECKS)
            .map(|_| run_outside(outside.path(), &project.command))
            .collect();
        let times = run_inside(inside.path());
        for (outside, inside) in before.into_iter().zip(times.into_iter().skip(1)) {
            pairs.add(outside, inside);
        }
    }
    let aim = match project.name {
        "true" => "the start",
        _ => "1.1 and the start",
    };
    pairs.print(NAME_WIDTH, project.name, aim);
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Writes a spec whose answers come from a folder, and whose checks are the same command several times.
fn prepare(root: &Path, project: &TestProject) {
    write(&root.join("specs/template/0"), project.files);
    write(&root.join("specs/template/0"), &[("README", "sum\n")]);
    let check = |number| json!({"name": format!("check-{number}"), "command": project.command});
    let read: Vec<&str> = project.command[0]
        .split_once("/bin/python")
        .map(|(folder, _)| folder)
        .into_iter()
        .filter(|folder| folder.ends_with("pytest"))
        .collect();
    let spec = json!({
        "name": "sum",
        "description": "A sum.",
        "checks": (0..=CHECKS).map(check).collect::<Vec<Value>>(),
        "generator": {"provider": "template", "template": "template/"},
        "sandbox": {"read": read},
    });
    fs::write(root.join("specs/spec.json"), spec.to_string()).unwrap();
}

fn run_outside(folder: &Path, command: &[String]) -> f64 {
    let [elapsed, _] = cost(|| {
        let output = Command::new(&command[0])
            .args(&command[1..])
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    });
    elapsed
}

/// Runs the checks once and returns the time of each.
fn run_inside(root: &Path) -> Vec<f64> {
    let output = Command::new(BINARY)
        .args(["run", "--spec", "specs/spec.json", "--no-resume", "--root"])
        .arg(root)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let state: Value = serde_json::from_slice(&fs::read(root.join("state.json")).unwrap()).unwrap();
    let log = root.join(format!("logs/{}.log", state["run_id"].as_str().unwrap()));
    let lines = fs::read_to_string(log).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["event"] == "ScriptOutput")
        .map(|line| line["execution_time_ms"].as_f64().unwrap())
        .collect()
}
