//! A pass needs evidence, tested with the real runners: code under test that ends its runner or prints a summary does
//! not pass, and honest projects do.

use serde_json::{Value, json};

use crate::support::needs;
use crate::support::project::Project;
use crate::support::restrictions::Restrictions;

const CALC: &str = "def add(a, b):\n    return a + b\n";
const PY_TESTS: &str = "import unittest\nfrom calc import add\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        \
    self.assertEqual(add(2, 3), 5)\n    def test_negative(self):\n        self.assertEqual(add(-2, 3), 1)\n";
const PYTEST_TESTS: &str = "from calc import add\n\ndef test_add():\n    assert add(2, 3) == 5\n\ndef test_negative():\n    assert add(-2, 3) == 1\n";
/// Writes to every open descriptor, including those that a runner has duplicated.
const WRITE_EVERYWHERE: &str = "import os\nfor fd in range(1, 1024):\n    try:\n        os.write(fd, TEXT)\n    except OSError:\n        pass\n";
const RUST_TESTS: &str = "#[test]\nfn adds() { assert_eq!(calc::add(2, 3), 5); }\n#[test]\nfn negative() { assert_eq!(calc::add(-2, 3), 1); }\n";
const CARGO_TOML: &str = "[package]\nname = \"calc\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const GO_TESTS: &str = "package calc\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(2, 3) != 5 {\n\t\tt.Fatal(\"sum\")\n\t}\n}\n\n\
    func TestZero(t *testing.T) {\n\tt.Run(\"inner\", func(t *testing.T) {})\n\tif Add(0, 0) != 0 {\n\t\tt.Fatal(\"zero\")\n\t}\n}\n";
const NODE_TESTS: &str = "const {add} = require('../calc.js');\nconst test = require('node:test');\nconst assert = require('node:assert');\n\
    test('adds', () => assert.strictEqual(add(2, 3), 5));\ntest('negative', () => assert.strictEqual(add(-2, 3), 1));\n";
const JEST_TESTS: &str = "const {add} = require('../calc.js');\ntest('adds', () => expect(add(2, 3)).toBe(5));\n\
    test('negative', () => expect(add(-2, 3)).toBe(1));\n";
const JS_CALC: &str = "exports.add = (a, b) => a + b;\n";

/// A check of protected tests.
struct Bench {
    check: Value,
    /// Protected files of the user.
    given: Vec<(&'static str, &'static str)>,
    read: Vec<String>,
    restrictions: Restrictions,
    arguments: Vec<&'static str>,
    needs_home: bool,
}

impl Bench {
    fn new(command: &[&str], given: &[(&'static str, &'static str)]) -> Bench {
        let check = json!({"name": "unit", "command": command});
        let (read, restrictions, arguments) = (Vec::new(), Restrictions::default(), Vec::new());
        Bench {
            check,
            given: given.to_vec(),
            read,
            restrictions,
            arguments,
            needs_home: false,
        }
    }

    fn unittest() -> Bench {
        Bench::new(
            &["python3", "-m", "unittest", "discover", "-s", "tests"],
            &[("tests/test_calc.py", PY_TESTS)],
        )
    }

    fn pytest(options: &[&str]) -> Option<Bench> {
        let python = needs::pytest()?.join("bin/python").display().to_string();
        let command: Vec<&str> = [python.as_str(), "-m", "pytest"]
            .into_iter()
            .chain(options.iter().copied())
            .collect();
        let mut bench = Bench::new(&command, &[("tests/test_calc.py", PYTEST_TESTS)]);
        bench.read.push(needs::pytest()?.display().to_string());
        Some(bench)
    }

    fn jest() -> Option<Bench> {
        let folder = needs::jest()?.display().to_string();
        let jest = format!("{folder}/node_modules/.bin/jest");
        let mut bench = Bench::new(
            &[&jest],
            &[
                ("tests/calc.test.js", JEST_TESTS),
                ("package.json", "{\"name\": \"x\"}\n"),
            ],
        );
        bench.read.push(folder);
        Some(bench)
    }

    fn node() -> Option<Bench> {
        needs::program("node")
            .then(|| Bench::new(&["node", "--test"], &[("tests/calc.test.js", NODE_TESTS)]))
    }

    fn go(options: &[&str]) -> Option<Bench> {
        let command: Vec<&str> = ["go", "test"]
            .into_iter()
            .chain(options.iter().copied())
            .collect();
        needs::program("go").then(|| {
            Bench::new(
                &command,
                &[
                    ("calc_test.go", GO_TESTS),
                    ("go.mod", "module calc\n\ngo 1.18\n"),
                ],
            )
        })
    }

    fn cargo() -> Bench {
        let given = [("tests/it.rs", RUST_TESTS), ("Cargo.toml", CARGO_TOML)];
        Bench {
            needs_home: true,
            ..Bench::new(&["cargo", "test", "--offline"], &given)
        }
    }

    fn with(mut self, field: &str, value: impl Into<Value>) -> Bench {
        self.check[field] = value.into();
        self
    }

    fn given(mut self, path: &'static str, text: &'static str) -> Bench {
        self.given.retain(|(known, _)| *known != path);
        self.given.push((path, text));
        self
    }

    /// Runs with a model that answers with these files, at most twice; returns the check in the result.
    fn check(&self, code: &[(&str, &str)]) -> (Project, Value) {
        let tops: std::collections::BTreeSet<&str> = self
            .given
            .iter()
            .filter_map(|(path, _)| path.split('/').next())
            .collect();
        let spec = json!({
            "name": "calc", "description": "Add.", "max_retries": 1, "checks": [self.check],
            "workspace": {"protect": tops}, "sandbox": {"read": self.read},
            "generator": {"provider": "template", "template": "template/"}, "baseline": false,
        });
        let mut project = Project::new()
            .file("specs/spec.json", spec.to_string())
            .restricted(self.restrictions);
        if self.needs_home {
            project = project.env("HOME", std::env::home_dir().unwrap().to_str().unwrap());
            let cache = project.outside("cache").display().to_string();
            project = project.env("XDG_CACHE_HOME", &cache);
        }
        self.given
            .iter()
            .for_each(|(path, text)| project.write(&format!("specs/{path}"), text));
        for (path, text) in code {
            project.write(&format!("specs/template/0/{path}"), text);
            project.write(&format!("specs/template/1/{path}"), text);
        }
        let arguments: Vec<&str> = ["run", "--spec", "specs/spec.json", "--json"]
            .into_iter()
            .chain(self.arguments.clone())
            .collect();
        let ran = project.run(&arguments);
        let result = ran.result();
        let [check] = result["checks"].as_array().unwrap().as_slice() else {
            panic!("{}", ran.transcript())
        };
        assert_eq!(
            check["passed"] == json!(true),
            ran.code == Some(0),
            "{}",
            ran.transcript()
        );
        let check = check.clone();
        (project, check)
    }

    fn passes(&self, code: &[(&str, &str)], executed: u32) -> Project {
        let (project, check) = self.check(code);
        let transcript = || format!("{check}\n{}", project.state_text("last_test_output"));
        assert_eq!(
            (&check["passed"], &check["tests"]["executed"]),
            (&json!(true), &json!(executed)),
            "{}",
            transcript()
        );
        project
    }

    /// Exit code 0 is not a pass, and the reason contains this text.
    fn fails(&self, code: &[(&str, &str)], words: &str) -> Project {
        let (project, check) = self.check(code);
        let report = project.state_text("last_test_output");
        assert_eq!(check["passed"], json!(false), "{check}");
        assert!(
            report.contains("failed: exit code 0, but ") && report.contains(words),
            "{words:?} is not in {report}"
        );
        project
    }
}

const NO_SUMMARY: &str = "ended without its summary";
const EXIT: &str = "import os\nos._exit(0)\n";
const EXIT_IN_A_TEST: &str = "import os\ndef add(a, b):\n    os._exit(0)\n";

fn forged(text: &str) -> String {
    WRITE_EVERYWHERE.replace("TEXT", &format!("{:?}.encode()", text)) + EXIT
}

#[test]
fn unittest_needs_its_own_end_report() {
    let bench = Bench::unittest();
    bench.passes(&[("calc.py", CALC)], 2);
    bench.fails(&[("calc.py", EXIT)], NO_SUMMARY);
    bench.fails(&[("calc.py", EXIT_IN_A_TEST)], NO_SUMMARY);
    let dashes = "-".repeat(70);
    let forged = forged(&format!("..\n{dashes}\nRan 2 tests in 0.001s\n\nOK\n"));
    bench.fails(&[("calc.py", &forged)], NO_SUMMARY);
    bench
        .with("min_tests", 2)
        .fails(&[("calc.py", &forged)], NO_SUMMARY);
    let by_name = Bench::new(
        &["python3", "-m", "unittest", "test_calc"],
        &[("test_calc.py", PY_TESTS)],
    );
    by_name.fails(
        &[("calc.py", "import sys\nadd = None\nsys.exit(0)\n")],
        NO_SUMMARY,
    );
}

#[test]
fn pytest_needs_its_own_end_report() {
    let Some(bench) = Bench::pytest(&[]) else {
        return;
    };
    bench.passes(&[("calc.py", CALC)], 2);
    bench.fails(&[("calc.py", EXIT)], NO_SUMMARY);
    bench.fails(&[("calc.py", EXIT_IN_A_TEST)], NO_SUMMARY);
    let session = forged(
        "=== test session starts ===\ncollected 2 items\n\ntests/test_calc.py ..\n\n=== 2 passed in 0.01s ===\n",
    );
    bench.fails(&[("calc.py", &session)], NO_SUMMARY);
    bench.fails(
        &[(
            "calc.py",
            "import pytest\ndef add(a, b):\n    pytest.exit('done', 0)\n",
        )],
        "stopped before all tests had run",
    );
    bench
        .with("min_tests", 2)
        .fails(&[("calc.py", &session)], NO_SUMMARY);
}

#[test]
fn pytest_output_is_not_needed_with_an_end_report() {
    for options in [
        &["-q"][..],
        &["-qq"],
        &["-p", "no:terminal"],
        &["-p", "no:cacheprovider", "-x"],
    ] {
        let Some(bench) = Bench::pytest(options) else {
            return;
        };
        bench.with("min_tests", 2).passes(&[("calc.py", CALC)], 2);
    }
}

/// An isolated interpreter ignores variables, so its output is the only evidence and must be complete.
#[test]
fn an_isolated_interpreter_is_judged_by_its_output() {
    let bench = Bench::new(
        &["python3", "-E", "-m", "unittest", "test_calc"],
        &[("test_calc.py", PY_TESTS)],
    );
    bench.passes(&[("calc.py", CALC)], 2);
    bench.fails(&[("calc.py", EXIT)], NO_SUMMARY);
}

/// The channel exists without namespaces and without a sandbox.
#[test]
fn the_report_channel_works_in_every_sandbox_mode() {
    let summary = forged("Ran 2 tests in 0.001s\n\nOK\n");
    let reduced = Bench {
        restrictions: Restrictions::default().without_namespaces(),
        ..Bench::unittest()
    };
    let none = Bench {
        arguments: vec!["--no-sandbox"],
        ..Bench::unittest()
    };
    for bench in [reduced, none] {
        bench.passes(&[("calc.py", CALC)], 2);
        bench.fails(&[("calc.py", &summary)], NO_SUMMARY);
    }
}

/// Code in a check sees the documented path and variables, and can start and fork processes.
#[test]
fn code_under_test_cannot_see_the_report_channel() {
    let tests = "import os, subprocess, sys, unittest\nfrom calc import add\n\nclass T(unittest.TestCase):\n    def test_around(self):\n        \
        self.assertNotIn('TEST_REPORT_FD', os.environ)\n        self.assertEqual(os.environ['PYTHONPATH'], os.getcwd())\n        \
        self.assertFalse([entry for entry in sys.path if 'report' in entry])\n    def test_children(self):\n        \
        code = 'import unittest; unittest.main(module=None, argv=[\"x\", \"inner\"])'\n        \
        subprocess.check_call([sys.executable, '-c', code])\n        child = os.fork()\n        if child == 0:\n            \
        try:\n                unittest.main(module='inner', argv=['x'])\n            finally:\n                os._exit(0)\n        \
        os.waitpid(child, 0)\n";
    let inner =
        "import unittest\nclass I(unittest.TestCase):\n    def test_inner(self):\n        pass\n";
    let bench = Bench::unittest().given("tests/test_calc.py", tests);
    let project = bench.passes(&[("calc.py", CALC), ("inner.py", inner)], 2);
    project.nothing_left();
}

/// A `sitecustomize` of the user is still loaded.
#[test]
fn the_users_own_sitecustomize_is_loaded() {
    let tests = "import sys, unittest\nfrom calc import add\nclass T(unittest.TestCase):\n    def test_own(self):\n        \
        self.assertEqual(sys.own, 42)\n        self.assertEqual(sys.modules['sitecustomize'].mark, 1)\n";
    let bench = Bench::unittest()
        .given("tests/test_calc.py", tests)
        .given("sitecustomize.py", "import sys\nsys.own = 42\nmark = 1\n");
    bench.passes(&[("calc.py", CALC)], 1);
}

#[test]
fn garbage_in_the_channel_or_a_closed_channel_fails_the_check() {
    let bench = Bench::unittest();
    let writes = CALC.to_owned() + &WRITE_EVERYWHERE.replace("TEXT", "b'2 passed'");
    bench.fails(&[("calc.py", &writes)], "wrote to the channel");
    bench.fails(
        &[(
            "calc.py",
            &format!("import os\nos.closerange(3, 1024)\n{CALC}"),
        )],
        NO_SUMMARY,
    );
}

/// The report of the runner and its text must agree.
#[test]
fn a_summary_that_contradicts_the_report_fails_the_check() {
    let prints = "import atexit, sys\natexit.register(lambda: sys.stderr.write('Ran 9 tests in 0.001s\\n\\nOK\\n'))\n";
    Bench::unittest().fails(
        &[("calc.py", &format!("{prints}{CALC}"))],
        "is not what it reported itself",
    );
}

#[test]
fn exit_code_0_after_failed_tests_is_not_a_pass() {
    let wrong =
        "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b):\n    return a - b\n";
    Bench::unittest().fails(&[("calc.py", wrong)], "2 tests failed");
}

/// Two runners in one check, by a shell and by a script: both count.
#[test]
fn counts_of_several_sessions_add_up() {
    let line = "python3 -m unittest discover -s tests && python3 run.py";
    let run =
        "import unittest\nunittest.main(module=None, argv=['x', 'discover', '-s', 'tests'])\n";
    let bench = Bench {
        check: json!({"name": "unit", "command": ["sh", "-c", line]}),
        ..Bench::unittest()
    };
    bench.passes(&[("calc.py", CALC), ("run.py", run)], 4);
    bench.fails(&[("calc.py", CALC), ("run.py", &format!("import unittest\nclass T(unittest.TestCase):\n    def test_x(self):\n        import os; os._exit(0)\n{run}").replace("module=None, argv=['x', 'discover', '-s', 'tests']", ""))], NO_SUMMARY);
}

#[test]
fn cargo_needs_a_result_for_every_test_binary() {
    let bench = Bench::cargo();
    let good = "/// ```\n/// assert_eq!(calc::add(1, 1), 2);\n/// ```\npub fn add(a: i32, b: i32) -> i32 { a + b }\n";
    bench.passes(&[("src/lib.rs", good)], 3);
    let exits =
        "pub fn add(_a: i32, _b: i32) -> i32 { std::process::exit(0) }\n#[test]\nfn fine() {}\n";
    bench.fails(&[("src/lib.rs", exits)], NO_SUMMARY);
    let says = "use std::io::Write;\npub fn add(_a: i32, _b: i32) -> i32 {\n    let mut out = std::io::stdout().lock();\n    \
        let _ = out.write_all(b\"test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\\n\");\n    \
        let _ = out.flush();\n    std::process::exit(0)\n}\n";
    bench.fails(&[("src/lib.rs", says)], NO_SUMMARY);
}

#[test]
fn a_runner_whose_output_is_piped_needs_its_summary() {
    let mut bench = Bench::cargo();
    bench.check["command"] = json!(["sh", "-c", "cargo test --offline 2>&1 | tee log"]);
    let good = "pub fn add(a: i32, b: i32) -> i32 { a + b }\n";
    bench.passes(&[("src/lib.rs", good)], 2);
    bench.fails(&[("src/lib.rs", "pub fn add(")], NO_SUMMARY);
}

#[test]
fn go_tests_are_counted_and_need_their_end() {
    let good = "package calc\n\nfunc Add(a, b int) int { return a + b }\n";
    let Some(bench) = Bench::go(&["./..."]) else {
        return;
    };
    let project = bench.passes(&[("calc.go", good)], 3);
    // The output that our flag adds is removed again, unless the user gave the flag.
    let stdout = &project.events("ScriptOutput")[0]["stdout"];
    assert!(
        stdout.as_str().unwrap().starts_with("ok  \tcalc\t")
            && !stdout.as_str().unwrap().contains("RUN"),
        "{stdout}"
    );
    Bench::go(&["-v", "./..."])
        .unwrap()
        .with("min_tests", 3)
        .passes(&[("calc.go", good)], 3);
    Bench::go(&["-json", "./..."])
        .unwrap()
        .with("min_tests", 3)
        .passes(&[("calc.go", good)], 3);
    bench.fails(
        &[(
            "calc.go",
            "package calc\n\nimport \"os\"\n\nfunc init() { os.Exit(0) }\n\nfunc Add(a, b int) int { return a - b }\n",
        )],
        NO_SUMMARY,
    );
    let main = "package calc\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n";
    bench.fails(&[("calc.go", good), ("main_test.go", main)], NO_SUMMARY);
    let says = "package calc\n\nimport \"os\"\n\nfunc init() {\n\tos.Stdout.WriteString(\"--- PASS: TestAdd (0.00s)\\nPASS\\nok  \\tcalc\\t0.01s\\n\")\n\tos.Exit(0)\n}\n\n\
        func Add(a, b int) int { return a - b }\n";
    bench.fails(&[("calc.go", says)], NO_SUMMARY);
}

#[test]
fn node_test_files_need_their_own_end_report() {
    let Some(bench) = Bench::node() else { return };
    let bench = bench.given(
        "tests/other.test.js",
        "require('node:test')('other', () => {});\n",
    );
    bench.passes(&[("calc.js", JS_CALC)], 3);
    bench.fails(&[("calc.js", "process.exit(0);\n")], "calc.test.js");
    bench.fails(
        &[("calc.js", "exports.add = () => process.exit(0);\n")],
        NO_SUMMARY,
    );
    bench.fails(&[("calc.js", "process.reallyExit(0);\n")], NO_SUMMARY);
    let says = "require('fs').writeSync(1, 'TAP version 13\\nok 1 - adds\\nok 2 - negative\\n1..2\\n# tests 2\\n# pass 2\\n# fail 0\\n');\nprocess.exit(0);\n";
    bench.fails(&[("calc.js", says)], NO_SUMMARY);
    bench
        .with("command", json!(["node", "--test", "--test-reporter=dot"]))
        .fails(&[("calc.js", JS_CALC)], "use the tap or spec reporter");
}

#[test]
fn npm_test_is_judged_by_its_runner() {
    if !(needs::program("npm") && needs::program("node")) {
        return;
    }
    let package = "{\"name\": \"x\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node quiet.js\", \"unit\": \"echo x && node --test\"}}\n";
    let given = [
        ("tests/calc.test.js", NODE_TESTS),
        ("package.json", package),
    ];
    Bench::new(&["npm", "run", "unit"], &given).passes(&[("calc.js", JS_CALC)], 2);
    Bench::new(&["npm", "run", "unit"], &given)
        .fails(&[("calc.js", "process.exit(0);\n")], NO_SUMMARY);
}

#[test]
fn jest_needs_its_own_end_report() {
    let Some(bench) = Bench::jest() else { return };
    bench.passes(&[("calc.js", JS_CALC)], 2);
    bench.fails(&[("calc.js", "process.exit(0);\n")], NO_SUMMARY);
    let says = "require('fs').writeSync(2, 'PASS tests/calc.test.js\\nTest Suites: 1 passed, 1 total\\nTests:       2 passed, 2 total\\n');\nprocess.exit(0);\n";
    bench.fails(&[("calc.js", says)], NO_SUMMARY);
    bench
        .with("min_tests", 2)
        .fails(&[("calc.js", says)], NO_SUMMARY);
}
