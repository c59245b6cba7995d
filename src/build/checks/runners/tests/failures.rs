//! Failures in the output of real runners, shortened.

use super::super::causes;
use crate::build::checks::failures::{MAX_GROUPS, MAX_TESTS, MAX_TEXT};
use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use std::fmt::Write;

/// Expects, for each cause, its tests joined with commas and its text.
fn check(output: &str, expected: &[(&str, &str)]) {
    for (stdout, stderr) in [(output, ""), ("", output)] {
        let found: Vec<(String, String)> = causes(stdout, stderr)
            .into_iter()
            .map(|cause| (cause.tests.join(", "), cause.text))
            .collect();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(tests, text)| (tests.as_str(), text.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn pytest() {
    let output = r#"==================================== ERRORS ====================================
__________________________ ERROR at setup of test_fix __________________________

    @pytest.fixture
>   def broken(): raise RuntimeError("fix")
E   RuntimeError: fix

test_calc.py:16: RuntimeError
=================================== FAILURES ===================================
___________________________________ test_add ___________________________________

    def test_add():
>       assert add(1,2) == 3
E       assert -1 == 3
E        +  where -1 = add(1, 2)

test_calc.py:5: AssertionError
----------------------------- Captured stdout call -----------------------------
E   forged
_________________________________ TestX.test_m _________________________________

    def test_m(self):
>       helper()

test_calc.py:12: 
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

>       raise ValueError("bad\nsecond")
E       ValueError: bad
E       
E       second

calc.py:2: ValueError
=========================== short test summary info ============================
FAILED test_calc.py::test_add - assert -1 == 3
FAILED test_calc.py::TestX::test_m - ValueError: bad
FAILED test_calc.py::test_unseen - assert 0
ERROR test_calc.py::test_fix - RuntimeError: fix
=============== 3 failed, 1 passed, 1 skipped, 1 error in 0.03s ================
"#;
    check(
        output,
        &[
            (
                "test_calc.py::test_fix",
                "RuntimeError: fix\n  at test_calc.py:16: def broken(): raise RuntimeError(\"fix\")",
            ),
            (
                "test_calc.py::test_add",
                "assert -1 == 3\n +  where -1 = add(1, 2)\n  at test_calc.py:5: assert add(1,2) == 3",
            ),
            (
                "test_calc.py::TestX::test_m",
                "ValueError: bad\n\nsecond\n  at calc.py:2: raise ValueError(\"bad\\nsecond\")",
            ),
            ("test_calc.py::test_unseen", "assert 0"),
        ],
    );
}

#[test]
fn pytest_that_cannot_collect() {
    let output = "==================================== ERRORS ====================================\n\
        _________________________ ERROR collecting test_imp.py _________________________\n\
        ImportError while importing test module 'test_imp.py'.\nTraceback:\n\
        importlib/__init__.py:126: in import_module\n    return _bootstrap._gcd_import(name[level:])\n\
        test_imp.py:1: in <module>\n    import nothere\nE   ModuleNotFoundError: No module named 'nothere'\n\
        =========================== short test summary info ============================\nERROR test_imp.py\n\
        !!!!!!!!!!!!!!!!!!!! Interrupted: 1 error during collection !!!!!!!!!!!!!!!!!!!!\n1 error in 0.10s\n";
    check(
        output,
        &[(
            "test_imp.py",
            "ModuleNotFoundError: No module named 'nothere'\n  at test_imp.py:1",
        )],
    );
    let conftest = "ImportError while loading conftest 'conftest.py'.\nconftest.py:1: in <module>\n    import zzz\n\
        E   ModuleNotFoundError: No module named 'zzz'\n";
    check(
        conftest,
        &[(
            "conftest 'conftest.py'",
            "ModuleNotFoundError: No module named 'zzz'\n  at conftest.py:1",
        )],
    );
}

#[test]
fn pytest_with_tracebacks_of_python() {
    let output = "=== FAILURES ===\n____ test_add ____\nTraceback (most recent call last):\n  \
        File \"runner.py\", line 361, in from_call\n    result = func()\n             ^^^^^^\n  \
        File \"test_calc.py\", line 5, in test_add\n    assert add(1,2) == 3\nAssertionError: assert -1 == 3\n \
        +  where -1 = add(1, 2)\n=== 1 failed in 0.02s ===\n";
    check(
        output,
        &[(
            "test_add",
            "AssertionError: assert -1 == 3\n +  where -1 = add(1, 2)\n  at test_calc.py:5: assert add(1,2) == 3",
        )],
    );
}

#[test]
fn unittest() {
    let output = "FE\n======================================================================\n\
        ERROR: test_b (u.T.test_b)\nWhat it is about\n\
        ----------------------------------------------------------------------\n\
        Traceback (most recent call last):\n  File \"u.py\", line 3, in f\nKeyError: 'first'\n\n\
        During handling of the above exception, another exception occurred:\n\n\
        Traceback (most recent call last):\n  File \"u.py\", line 4, in test_b\n    f()\n    ^^^\nKeyError: 'x'\n\n\
        ======================================================================\nFAIL: test_a (u.T.test_a) (i=1)\n\
        ----------------------------------------------------------------------\n\
        Traceback (most recent call last):\n  File \"u.py\", line 3, in test_a\n    self.assertEqual(a, b)\n\
        AssertionError: 'a\\n' != 'b\\n'\n- a\n+ b\n\n\n\
        ----------------------------------------------------------------------\nRan 2 tests in 0.001s\n\n\
        FAILED (failures=1, errors=1)\n";
    check(
        output,
        &[
            ("test_b (u.T.test_b)", "KeyError: 'x'\n  at u.py:4: f()"),
            (
                "test_a (u.T.test_a) (i=1)",
                "AssertionError: 'a\\n' != 'b\\n'\n- a\n+ b\n  at u.py:3: self.assertEqual(a, b)",
            ),
        ],
    );
}

#[test]
fn cargo() {
    let output = "running 5 tests\ntest tests::also ... FAILED\n\nfailures:\n\n---- tests::also stdout ----\nout\n\n\
        thread 'tests::also' (11146) panicked at src/lib.rs:9:39:\nassertion `left == right` failed: sum\n  left: -1\n \
        right: 3\nstack backtrace:\n   0: __rustc::rust_begin_unwind\n\n---- tests::adds stdout ----\n\n\
        thread 'tests::adds' (11145) panicked at src/lib.rs:7:22:\nassertion `left == right` failed: sum\n  left: -1\n \
        right: 3\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\n\
        ---- tests::res stdout ----\nError: \"no\"\n\n---- src/lib.rs - add (line 1) stdout ----\nstderr:\n\n\
        thread 'main' panicked at 'old words', doc.rs:6:1\n\n\nfailures:\n    tests::adds\n    tests::also\n\n\
        test result: FAILED. 1 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.08s\n\n\
        error: test failed, to rerun pass `--lib`\n";
    check(
        output,
        &[
            (
                "tests::also, tests::adds",
                "assertion `left == right` failed: sum\n  left: -1\n right: 3\n  at src/lib.rs:9:39\n  at src/lib.rs:7:22",
            ),
            ("tests::res", "Error: \"no\""),
            ("src/lib.rs - add (line 1)", "old words\n  at doc.rs:6:1"),
        ],
    );
}

#[test]
fn rust_that_does_not_compile() {
    let output = "   Compiling demo v0.1.0\nerror[E0425]: cannot find value `c` in this scope\n --> src/lib.rs:4:32\n  |\n\
        4 | pub fn add(a:i32,b:i32)->i32{a-c}\n  |                                ^\n\n\
        For more information about this error, try `rustc --explain E0425`.\n\
        error: could not compile `demo` (lib) due to 1 previous error\n";
    check(
        output,
        &[(
            "",
            "error[E0425]: cannot find value `c` in this scope\n  |\n4 | pub fn add(a:i32,b:i32)->i32{a-c}\n  |                                ^\n  at src/lib.rs:4:32",
        )],
    );
}

#[test]
fn nextest() {
    let output = "        FAIL [   0.077s] (1/4) demo tests::adds\n  stdout ───\n\n    running 1 test\n\n    failures:\n\n  \
        stderr ───\n\n    thread 'tests::adds' (11207) panicked at src/lib.rs:7:22:\n    \
        assertion `left == right` failed: sum\n      left: -1\n     right: 3\n    stack backtrace:\n";
    check(
        output,
        &[(
            "tests::adds",
            "assertion `left == right` failed: sum\n  left: -1\n right: 3\n  at src/lib.rs:7:22",
        )],
    );
}

const GO: [(&str, &str); 3] = [
    ("TestAdd", "Add(1,2) = -1\nwant 3\n  at a_test.go:3"),
    ("TestSub/a", "log\na_test.go:4: no\n  at a_test.go:4"),
    (
        "TestP",
        "panic: assignment to entry in nil map [recovered]\n  at sub/a_test.go:3",
    ),
];

#[test]
fn go() {
    let output = "--- FAIL: TestAdd (0.00s)\n    a_test.go:3: Add(1,2) = -1\n        want 3\n--- FAIL: TestSub (0.00s)\n    \
        --- FAIL: TestSub/a (0.00s)\n        a_test.go:4: log\n        a_test.go:4: no\nFAIL\nFAIL\tdemo\t0.002s\n\
        ?   \tdemo/none\t[no test files]\n--- FAIL: TestP (0.00s)\npanic: assignment to entry in nil map [recovered]\n\t\
        panic: assignment to entry in nil map\n\ngoroutine 18 [running]:\ntesting.tRunner.func1.2({0x508ec0, 0x551c80})\n\t\
        /usr/lib/go-1.19/src/testing/testing.go:1396 +0x24e\ndemo/sub.TestP(0x0?)\n\tsub/a_test.go:3 +0x2e\n\
        FAIL\tdemo/sub\t0.004s\nFAIL\n";
    check(output, &GO);
    let verbose = "=== RUN   TestAdd\n    a_test.go:3: Add(1,2) = -1\n        want 3\n--- FAIL: TestAdd (0.00s)\n\
        === RUN   TestSub\n=== RUN   TestSub/a\n    a_test.go:4: log\n    a_test.go:4: no\n=== RUN   TestSub/b\n    \
        a_test.go:4: fine\n--- FAIL: TestSub (0.00s)\n    --- FAIL: TestSub/a (0.00s)\n    --- PASS: TestSub/b (0.00s)\n\
        FAIL\n=== RUN   TestP\npanic: assignment to entry in nil map [recovered]\n\n\tsub/a_test.go:3 +0x2e\n";
    check(verbose, &GO);
    let mut json = String::new();
    for line in verbose.split_inclusive('\n') {
        let event = serde_json::json!({"Action": "output", "Package": "demo", "Output": line});
        writeln!(json, "{event}").unwrap();
    }
    check(&json.replace("{\"", "{\"Time\":\"2026\",\""), &GO);
    check(
        "# demo [demo.test]\n./a.go:2:34: undefined: c\nFAIL\tdemo [build failed]\n",
        &[("", "undefined: c\n  at ./a.go:2:34")],
    );
}

#[test]
fn node() {
    let output = "TAP version 13\n# Subtest: suite\n    # Subtest: adds\n    not ok 1 - adds\n      ---\n      \
        duration_ms: 1.846845\n      location: 'a.test.js:3:2'\n      failureType: 'testCodeFailure'\n      error: |-\n        \
        Expected values to be strictly equal:\n        \n        -1 !== 3\n        \n      code: 'ERR_ASSERTION'\n      \
        expected: 3\n      actual: -1\n      stack: |-\n        TestContext.<anonymous> (a.test.js:3:25)\n      ...\n    \
        # Subtest: ok\n    ok 2 - ok\n      ---\n      duration_ms: 0.179206\n      ...\n    1..2\nnot ok 1 - suite\n  ---\n  \
        failureType: 'subtestsFailed'\n  error: '1 subtest failed'\n  ...\n# Subtest: throws\nnot ok 2 - throws\n  ---\n  \
        location: 'a.test.js:7:1'\n  error: 'boom'\n  ...\nnot ok 3 - later # TODO\nnot ok 4 - plain\n# at line 3\n1..4\n\
        # tests 5\n# fail 3\n";
    check(
        output,
        &[
            (
                "suite > adds",
                "Expected values to be strictly equal:\n\n-1 !== 3\n\nexpected: 3\nactual: -1\n  at a.test.js:3:2",
            ),
            ("throws", "boom\n  at a.test.js:7:1"),
            ("plain", "at line 3"),
        ],
    );
    let spec = "✖ adds (1.60881ms)\n  Error: early\nℹ tests 5\n\n✖ failing tests:\n\ntest at a.test.js:3:2\n\
        ✖ adds (1.60881ms)\n  AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n  \n  -1 !== 3\n  \n      \
        at TestContext.<anonymous> (a.test.js:3:25)\n      at Array.map (<anonymous>) {\n    actual: -1\n  }\n\n\
        test at a.test.js:7:1\n✖ throws (0.095592ms)\n  Error: boom\n      at x (a.test.js:7:27)\n";
    check(
        spec,
        &[
            (
                "adds",
                "AssertionError [ERR_ASSERTION]: Expected values to be strictly equal:\n\n-1 !== 3\n  at a.test.js:3:2",
            ),
            ("throws", "Error: boom\n  at a.test.js:7:1"),
        ],
    );
}

#[test]
fn a_file_that_node_could_not_run() {
    let printed = "/w/calc.js:1\nexports.add = (;\n\nSyntaxError: Unexpected token ';'\n    at wrapSafe (node:internal/modules/cjs/loader:1464:18)\n    \
        at Object.<anonymous> (/w/a.test.js:1:81)\n\nNode.js v20.20.2\n";
    let why = (
        "",
        "SyntaxError: Unexpected token ';'\n  at Object.<anonymous> (/w/a.test.js:1:81)",
    );
    let comments: String = printed.lines().map(|line| format!("# {line}\n")).collect();
    let tap = "# Subtest: /w/a.test.js\nnot ok 1 - /w/a.test.js\n  ---\n  location: '/w/a.test.js:1:1'\n  error: 'test failed'\n  ...\n1..1\n";
    check(
        &format!("TAP version 13\n{comments}{tap}"),
        &[("/w/a.test.js", "test failed\n  at /w/a.test.js:1:1"), why],
    );
    let spec = "✖ a.test.js (40ms)\n\n✖ failing tests:\n\ntest at a.test.js:1:1\n✖ a.test.js (40ms)\n  'test failed'\n";
    check(
        &format!("{printed}{spec}"),
        &[("a.test.js", "'test failed'\n  at a.test.js:1:1"), why],
    );
}

#[test]
fn a_file_that_jest_could_not_run() {
    let output = "FAIL ./a.test.js\n  ● Test suite failed to run\n\n    Cannot find module './nope' from 'a.test.js'\n\n    \
        > 1 | require('./nope')\n        | ^\n\n      at Resolver.x (node_modules/jest-resolve/build/index.js:1031:11)\n      \
        at Object.require (a.test.js:1:1)\n\nTest Suites: 1 failed, 1 total\n";
    check(
        output,
        &[(
            "./a.test.js",
            "Cannot find module './nope' from 'a.test.js'\n  at a.test.js:1:1",
        )],
    );
}

#[test]
fn jest_and_vitest() {
    let jest = "FAIL t/a.test.js\n  ● suite › adds\n\n    expect(received).toBe(expected) // Object.is equality\n\n    \
        Expected: 3\n    Received: -1\n\n      1 | describe('suite',()=>{\n    > 2 |  test('adds')\n        |      ^\n      \
        3 |  test('ok',()=>{});\n\n      at Object.toBe (t/a.test.js:2:32)\n\n  ● suite › throws\n\n    boom\n\n    \
        > 5 |  throw\n\n      at Object.<anonymous> (t/a.test.js:5:28)\n\nTest Suites: 1 failed, 1 total\n";
    check(
        jest,
        &[
            (
                "suite › adds",
                "expect(received).toBe(expected) // Object.is equality\n\nExpected: 3\nReceived: -1\n  at t/a.test.js:2:32",
            ),
            ("suite › throws", "boom\n  at t/a.test.js:5:28"),
        ],
    );
    let vitest = " FAIL  v/a.test.js > suite > adds\nAssertionError: expected -1 to be 3 // Object.is equality\n\n\
        - Expected\n+ Received\n\n- 3\n+ -1\n\n ❯ v/a.test.js:3:32\n      1| import\n⎯⎯⎯⎯⎯⎯[1/1]⎯\n";
    check(
        vitest,
        &[(
            "v/a.test.js > suite > adds",
            "AssertionError: expected -1 to be 3 // Object.is equality\n\n- Expected\n+ Received\n\n- 3\n+ -1\n  \
                at v/a.test.js:3:32",
        )],
    );
}

#[test]
fn junit() {
    let output = "<testsuite tests=\"3\"><testcase classname=\"test_calc\" name=\"test_add\" file=\"a.py\" line=\"4\">\
        <failure message=\"assert &quot;a&quot; &lt; 3&#10; +  where\">def test_add():</failure></testcase>\
        <testcase name=\"bare\"><error><![CDATA[java.lang.Error: <no>\n\tat A.b(A.java:3)]]></error></testcase>\
        <testcase name=\"ok\"/><testcase name=\"x\"><failure message=\"gone\"/></testcase></testsuite>";
    check(
        output,
        &[
            (
                "test_calc.test_add",
                "assert \"a\" < 3\n +  where\n  at a.py:4",
            ),
            ("bare", "java.lang.Error: <no>\n\tat A.b(A.java:3)"),
            ("x", "gone"),
        ],
    );
}

#[test]
fn anything_else() {
    let gcc = "x.c: In function 'main':\nx.c:1:20: error: 'y' undeclared\n    1 | int main(){ return y; }\n\
        x.c:1:20: note: each undeclared identifier\na.ts(3,5): error TS2304: Cannot find name 'y'.\n";
    check(
        gcc,
        &[
            ("", "error: 'y' undeclared\n  at x.c:1:20"),
            ("", "error TS2304: Cannot find name 'y'.\n  at a.ts(3,5)"),
        ],
    );
    let python = "Traceback (most recent call last):\n  File \"t.py\", line 2, in f\n    f()\n  \
        [Previous line repeated 995 more times]\nRecursionError: too deep\nbye\n  File \"t2.py\", line 1\n    def f(:\n\
        SyntaxError: invalid syntax\n";
    check(
        python,
        &[
            ("", "RecursionError: too deep\n  at t.py:2: f()"),
            ("", "SyntaxError: invalid syntax\n  at t2.py:1: def f(:"),
        ],
    );
    check(
        "throw new Error(\"zz\")\n^\n\nError: zz\n    at [eval]:1:7\n    at run\n",
        &[("", "Error: zz\n  at [eval]:1:7")],
    );
    check("all is well\nat noon\nError handling: none\n", &[]);
}

#[test]
fn equal_causes_are_listed_once() {
    let mut output = "=== short test summary info ===\n".to_owned();
    for number in 1..=30 {
        writeln!(
            output,
            "FAILED a.py::t{number} - <C at 0x7ff3{number}> took 0.{number}s"
        )
        .unwrap();
    }
    let found = causes(&output, "");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].text, "<C at 0x7ff31> took 0.1s");
    assert_eq!(found[0].tests.len(), MAX_TESTS + 1);
    assert_eq!(
        (
            found[0].tests[0].as_str(),
            found[0].tests[MAX_TESTS].as_str()
        ),
        ("a.py::t1", "and 10 more")
    );
}

#[test]
fn numbers_that_matter_keep_causes_apart() {
    check(
        "=== short test summary info ===\nFAILED a.py::t - assert 1 == 2\nFAILED a.py::u - assert 1 == 3\n",
        &[("a.py::t", "assert 1 == 2"), ("a.py::u", "assert 1 == 3")],
    );
}

#[test]
fn many_and_long_causes_are_bounded() {
    let mut output = "=== short test summary info ===\n".to_owned();
    for number in 1..=300 {
        writeln!(
            output,
            "FAILED a.py::t{number} - {} {number}",
            "long ".repeat(2000)
        )
        .unwrap();
    }
    let found = causes(&output, &output);
    assert_eq!(found.len(), MAX_GROUPS + 1);
    assert_eq!(found[MAX_GROUPS].text, "500 more failures are not listed");
    assert!(found.iter().all(|cause| cause.text.len() <= MAX_TEXT));
}

#[test]
fn hostile_output_takes_one_pass() {
    let name = "n".repeat(200_000);
    for hostile in [
        format!("# Subtest: {name}\n{}", "    not ok 1 - x\n".repeat(30_000)),
        format!("=== RUN   {name}\n{}", "    log\n".repeat(30_000)),
        format!(
            "✖ failing tests:\ntest at {name}\n{}",
            "✖ x\n".repeat(30_000)
        ),
        format!(
            "---- {name} stdout ----\n{}",
            "thread 'main' panicked at a.rs:1:1:\n".repeat(30_000)
        ),
        format!(
            "<testsuite><testcase name=\"{name}\">{}",
            "<failure/>".repeat(30_000)
        ),
        format!("=== FAILURES ===\n{}", "_ x _\nE a\n".repeat(30_000)),
        "  File \"a\", line 1\n".repeat(50_000),
        "<testsuite ".to_owned() + &"<a \"".repeat(50_000),
    ] {
        let started = std::time::Instant::now();
        causes(&hostile, "");
        assert!(started.elapsed().as_secs() < 20, "{}", &hostile[..20]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_output_gives_bounded_causes(text in "(\\PC|\n|=== FAILURES ===\n|___ t ___\n|E |  File \"|    |--- FAIL: T \\(0s\\)\n|\
        ---- t stdout ----\n|thread 'a' panicked at |error: |not ok 1 - x\n|---\n|error: \\|-\n|  ● a\n|<testsuite>|<failure>|: |:3: |\
        ====================\n|FAIL: a\n|0x|1s){0,60}") {
        let found = causes(&text, &text);
        prop_assert!(found.len() <= MAX_GROUPS + 1);
        prop_assert!(found.iter().all(|cause| cause.text.len() <= MAX_TEXT && cause.tests.len() <= MAX_TESTS + 1));
    }
}
