//! Summaries of real runners, and prose that is not a summary.

use super::super::{summary, without_passed_tests};
use crate::build::checks::summary::TestCounts;
use proptest::prelude::{prop_assert_eq, proptest};

/// Expects runner, executed and failed, and a complete summary.
fn check(output: &str, expected: impl Into<Option<(&'static str, u32, u32)>>) {
    check_as(output, true, expected);
}

/// Expects a runner that did not finish.
fn check_broken(output: &str, runner: &'static str) {
    for (stdout, stderr) in [(output, ""), ("some\nother output\n", output)] {
        let found =
            summary(None, stdout, stderr).unwrap_or_else(|| panic!("nothing in {output:?}"));
        assert_eq!(
            (found.runner.to_string().as_str(), found.is_complete),
            (runner, false),
            "{output:?}"
        );
    }
}

fn check_as(
    output: &str,
    is_complete: bool,
    expected: impl Into<Option<(&'static str, u32, u32)>>,
) {
    let expected = expected
        .into()
        .map(|(runner, executed, failed)| (runner.to_owned(), executed, failed, is_complete));
    for (stdout, stderr) in [(output, ""), ("some\nother output\n", output)] {
        let found = summary(None, stdout, stderr).map(|found| {
            let TestCounts { executed, .. } = found.counts.unwrap_or_default();
            (
                found.runner.to_string(),
                executed,
                found.failed,
                found.is_complete,
            )
        });
        assert_eq!(found, expected, "{output:?}");
    }
}

/// Expects the names of executed, failed and skipped tests.
fn check_names(output: &str, executed: &str, failed: &str, skipped: &str) {
    let names = summary(None, output, "")
        .unwrap_or_else(|| panic!("nothing in {output:?}"))
        .names;
    let joined = |names: std::collections::BTreeSet<String>| {
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let found = (
        joined(names.executed),
        joined(names.failed),
        joined(names.skipped),
    );
    assert_eq!(
        found,
        (executed.to_owned(), failed.to_owned(), skipped.to_owned()),
        "{output:?}"
    );
}

#[test]
fn pytest() {
    check("==== 3 passed, 1 skipped in 0.01s ====", ("pytest", 3, 0));
    check("......\n3 passed in 0.01s\n", ("pytest", 3, 0));
    check(
        "=============== 4 failed, 1 passed, 1 skipped, 1 error in 0.03s ================",
        ("pytest", 5, 5),
    );
    check(
        "= 1 passed, 2 xfailed, 1 xpassed, 2 warnings in 61.02s (0:01:01) =",
        ("pytest", 4, 0),
    );
    check("1 error in 0.10s", ("pytest", 0, 1));
    check("=== no tests ran in 0.00s ===", ("pytest", 0, 0));
    check("2 skipped in 0.02s", ("pytest", 0, 0));
    check("7 deselected in 0.01s", ("pytest", 0, 0));
    check(
        "========================== 7 tests collected in 0.01s ==========================",
        ("pytest", 0, 0),
    );
    check(
        "1/7 tests collected (6 deselected) in 0.00s",
        ("pytest", 0, 0),
    );
    check(
        "no tests collected (7 deselected) in 0.00s",
        ("pytest", 0, 0),
    );
    check("1 passed, 3 subtests passed in 0.01s", ("pytest", 1, 0));
    check(
        "1 passed in 0.01s\n\nlater\n2 failed in 0.02s\n",
        ("pytest", 2, 2),
    );
    check_broken(
        "================ test session starts ================\ncollected 1 item\n",
        "pytest",
    );
    check_broken(
        "!!!!!!! _pytest.outcomes.Exit: done !!!!!!!\n======= 1 passed in 0.01s =======\n",
        "pytest",
    );
    check(
        "4294967295 errors, 4294967295 errors in 0.01s",
        ("pytest", 0, u32::MAX),
    );
    check("3 passed in the end", None);
    check("3 passed in 0.01s of 5s", None);
    check("3 passed, 2 admired in 0.01s", None);
    check("all 3 passed in 0.01s", None);
}

#[test]
fn unittest() {
    check(
        "..\n-----\nRan 3 tests in 0.100s\n\nOK\n",
        ("unittest", 3, 0),
    );
    check(
        "Ran 1 test in 0.000s\n\nOK (skipped=1)\n",
        ("unittest", 0, 0),
    );
    check(
        "Ran 5 tests in 0.001s\n\nFAILED (failures=3, errors=1, skipped=1)\n",
        ("unittest", 4, 4),
    );
    check(
        "Ran 2 tests in 0.001s\n\nOK (skipped=1, expected failures=1)\n",
        ("unittest", 1, 0),
    );
    check(
        "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n",
        ("unittest", 0, 0),
    );
    check("Ran 0 tests in 0.000s\n\nOK\n", ("unittest", 0, 0));
    check(
        "Ran 4 tests in 0.1s\n\nOK\nRan 2 tests in 0.1s\n\nOK\n",
        ("unittest", 2, 0),
    );
    check_broken("----------\nRan 3 tests in 0.1s\n", "unittest");
    check("Ran 3 tests in 0.1s\n", None);
    check_names(
        "test_a (t.T.test_a) ... ok\ntest_b (t.T.test_b) ... skipped 'no'\nFAIL: test_c (t.T.test_c)\nRan 3 tests in 0.1s\n\nOK\n",
        "test_a (t.T.test_a), test_c (t.T.test_c)",
        "test_c (t.T.test_c)",
        "test_b (t.T.test_b)",
    );
    check("Ran 3 tests in a row", None);
    check("I Ran 3 tests in 0.1s", None);
}

#[test]
fn cargo() {
    let result = |passed: u32, failed: u32, ignored: u32| {
        let word = if failed == 0 { "ok" } else { "FAILED" };
        format!(
            "test result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 4 filtered out; finished in 0.08s\n\n"
        )
    };
    let tests = "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored, later\n";
    check(
        &format!("{tests}{}{}", result(1, 1, 1), result(2, 0, 0)),
        ("cargo test", 4, 1),
    );
    check(
        &format!("running 2 tests\n..\n{}", result(2, 0, 0)),
        ("cargo test", 2, 0),
    );
    check_names(&format!("{tests}{}", result(1, 1, 1)), "a, b", "b", "c");
    // A binary that broke off; a forged result; an announced binary without a result.
    check_broken("running 2 tests\n", "cargo test");
    check_broken(
        &format!(
            "running 2 tests\ntest a ... ok\ntest b ... ok\n{}",
            result(3, 0, 0)
        ),
        "cargo test",
    );
    check_broken(
        &format!("running 2 tests\n{}", result(2, 0, 0)),
        "cargo test",
    );
    check_broken(
        &format!(
            "   Doc-tests calc\n     Running tests/it.rs (target/debug/deps/it-0a)\n{}",
            result(2, 0, 0)
        ),
        "cargo test",
    );
    check(
        &format!("   Doc-tests calc\n{}", result(2, 0, 0)),
        ("cargo test", 2, 0),
    );
    check(
        "test result: ok. 0 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out",
        ("cargo test", 0, 0),
    );
    check("test result: ok. all is fine", None);
    check(
        "     Summary [   0.084s] 4 tests run: 1 passed, 3 failed, 1 skipped",
        ("nextest", 4, 3),
    );
    check(
        "     Summary [   0.010s] 0 tests run: 0 passed, 3 skipped",
        ("nextest", 0, 0),
    );
    check(
        "     Summary [  61.200s] 2/9 tests run: 1 passed (1 slow), 1 timed out, 0 skipped",
        ("nextest", 2, 1),
    );
    check("Summary [of the matter] 4 tests run: yes", None);
}

#[test]
fn go() {
    // A package that names no test is not counted.
    let silent = summary(
        None,
        "ok  \tdemo\t0.002s\nok  \tdemo/sub\t(cached)\tcoverage: 1.0% of statements\n",
        "",
    )
    .unwrap();
    assert_eq!((silent.counts, silent.is_complete), (None, true));
    check(
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\nok  \tdemo\t(cached)\n",
        ("go test", 1, 0),
    );
    check_broken(
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\nok  \tdemo\t0.1s\n",
        "go test",
    );
    check_broken("=== RUN   TestA\nPASS\nok  \tdemo\t0.1s\n", "go test");
    check_broken(
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n",
        "go test",
    );
    check(
        "ok  \tdemo\t0.002s [no tests to run]\n?   \tdemo/none\t[no test files]\n",
        ("go test", 0, 0),
    );
    check(
        "ok  \tdemo\t0.002s\tcoverage: 0.0% of statements [no tests to run]\n",
        ("go test", 0, 0),
    );
    check(
        "--- FAIL: TestAdd (0.00s)\n    a_test.go:3: no\nFAIL\nFAIL\tdemo\t0.002s\nok  \tb\t0.1s\n",
        ("go test", 0, 1),
    );
    check("FAIL\tdemo [build failed]\n", ("go test", 0, 1));
    let verbose = "=== RUN   TestSub\n=== RUN   TestSub/a\n--- FAIL: TestSub (0.00s)\n    --- FAIL: TestSub/a (0.00s)\n    \
        --- PASS: TestSub/b (0.00s)\n=== RUN   TestSkip\n--- SKIP: TestSkip (0.00s)\nFAIL\nFAIL\tdemo\t0.002s\n";
    check(verbose, ("go test", 3, 2));
    check_names(
        verbose,
        "TestSub, TestSub/a, TestSub/b",
        "TestSub, TestSub/a",
        "TestSkip",
    );
    check(
        "=== RUN   TestSkip\n--- SKIP: TestSkip (0.00s)\nPASS\nok  \tdemo\t0.002s\n",
        ("go test", 0, 0),
    );
    check("ok then, 5s\nok wait 5s", None);
    let json = "{\"Action\":\"run\",\"Package\":\"demo\",\"Test\":\"TestA\"}\n\
        {\"Action\":\"output\",\"Package\":\"demo\",\"Test\":\"TestA\",\"Output\":\"--- PASS: TestA (0.00s)\\n\"}\n\
        {\"Action\":\"pass\",\"Package\":\"demo\",\"Test\":\"TestA\",\"Elapsed\":0}\n\
        {\"Action\":\"skip\",\"Package\":\"demo\",\"Test\":\"TestB\",\"Elapsed\":0}\n\
        {\"Action\":\"output\",\"Package\":\"demo\",\"Output\":\"PASS\\n\"}\n\
        {\"Action\":\"pass\",\"Package\":\"demo\",\"Elapsed\":0.002}\n";
    check(json, ("go test", 1, 0));
    check_names(json, "TestA", "", "TestB");
    check_broken(
        "{\"Action\":\"pass\",\"Package\":\"demo\",\"Elapsed\":0.002}\n",
        "go test",
    );
    check(
        "{\"Action\":\"skip\",\"Package\":\"demo/none\"}\n",
        ("go test", 0, 0),
    );
    check("{\"Action\":\"jump\"}\n", None);
}

#[test]
fn javascript() {
    check(
        "1..3\n# tests 5\n# suites 1\n# pass 1\n# fail 3\n# cancelled 0\n# skipped 1\n# todo 0\n",
        ("node --test", 4, 3),
    );
    check(
        "ℹ tests 3\nℹ suites 0\nℹ pass 3\nℹ fail 0\nℹ cancelled 0\nℹ skipped 0\nℹ todo 0\n",
        ("node --test", 3, 0),
    );
    check(
        "# tests 0\n# suites 0\n# pass 0\n# fail 0\n",
        ("node --test", 0, 0),
    );
    check(
        "1..2\n# tests 2\n# pass  2\n\n# ok\n",
        ("node --test", 2, 0),
    );
    // Node counts a file without a test as a test that passed.
    check(
        "ok 1 - /w/a.test.js\n  ---\n  ...\n1..1\n# tests 1\n# pass 1\n# fail 0\n",
        ("node --test", 0, 0),
    );
    check(
        "✔ a.test.mjs (30.1ms)\n✔ adds (0.2ms)\nℹ tests 2\nℹ pass 2\nℹ fail 0\n",
        ("node --test", 1, 0),
    );
    check(
        "    ok 1 - adds\n    1..1\nok 1 - /w/a.test.js\n1..1\n# tests 1\n# pass 1\n# fail 0\n",
        ("node --test", 1, 0),
    );
    check("# tests 3 and more", None);
    check(
        "Test Suites: 1 failed, 1 total\nTests:       2 failed, 1 skipped, 1 passed, 4 total\n",
        ("jest", 3, 2),
    );
    check("Tests:       0 total\n", ("jest", 0, 0));
    check("No tests found, exiting with code 0\n", ("jest", 0, 0));
    check("Tests: we have 3 of them", None);
    check("No tests found by the archaeologists", None);
    check(
        " Test Files  1 failed (1)\n      Tests  2 failed | 1 passed | 1 skipped (4)\n",
        ("vitest", 3, 2),
    );
    check(" Tests  2 passed (2)\n", ("vitest", 2, 0));
    check(" Tests  1 skipped (1)\n", ("vitest", 0, 0));
    check(
        "No test files found, exiting with code 1\n",
        ("vitest", 0, 0),
    );
    check(
        "\n  1 passing (4ms)\n  1 pending\n  2 failing\n\n  1) suite\n",
        ("mocha", 3, 2),
    );
    check("  0 passing (1ms)\n", ("mocha", 0, 0));
    check("3 passing clouds", None);
    check_broken(" RUN  v3.2.4 /work\n", "vitest");
    check_names(
        " ❯ test/sum.test.js (3 tests | 1 failed | 1 skipped) 7ms\n   ✓ adds 1ms\n   × suite > fails 4ms\n   ↓ later\n\
         \x20✓ a.test.js (1 test) 1.2s\n\n Tests  1 failed | 2 passed | 1 skipped (4)\n",
        "adds, suite > fails",
        "suite > fails",
        "later",
    );
    check_names(
        "ok 1 - adds\nnot ok 2 - fails\nok 3 - later # SKIP\n# tests 3\n# pass 1\n# fail 1\n# skipped 1\n",
        "adds, fails",
        "fails",
        "later",
    );
    check_names(
        "✔ adds (0.2ms)\n✖ fails (1ms)\n﹣ later (0.1ms) # SKIP\nℹ tests 3\nℹ pass 1\n",
        "adds, fails",
        "fails",
        "later",
    );
    let jest = r#"{"numFailedTests":1,"numPassedTests":1,"numPendingTests":1,"numTotalTests":3,"testResults":[{"assertionResults":[
        {"fullName":"a b","status":"passed"},{"fullName":"c","status":"failed"},{"fullName":"d","status":"pending"}]}]}"#;
    check(jest, ("jest", 2, 1));
    check_names(jest, "a b, c", "c", "d");
    let mocha = r#"{"stats":{"suites":1,"tests":3,"passes":1,"pending":1,"failures":1},"pending":[{"fullTitle":"d"}],
        "failures":[{"fullTitle":"c"}],"passes":[{"fullTitle":"a b"}]}"#;
    check(mocha, ("mocha", 2, 1));
    check_names(mocha, "a b, c", "c", "d");
}

#[test]
fn ctest() {
    let tests = "Test project /w/build\n    Start 1: a\n1/3 Test #1: a ......   Passed    0.00 sec\n2/3 Test #2: b ......***Failed    0.00 sec\n\
        3/3 Test #3: c ......***Skipped   0.00 sec\n";
    let all = format!(
        "{tests}\n67% tests passed, 1 tests failed out of 3\n\nTotal Test time (real) =   0.01 sec\n"
    );
    check(&all, ("ctest", 2, 1));
    check_names(&all, "a, b", "b", "c");
    check_broken(tests, "ctest");
    check("Test project /w\nNo tests were found!!!\n", ("ctest", 0, 0));
}

#[test]
fn output_caused_by_the_added_flag_is_removed() {
    let verbose = "=== RUN   TestA\n    a_test.go:3: sum\n--- FAIL: TestA (0.00s)\n=== RUN   TestS\n=== RUN   TestS/x\n    a_test.go:4: no\n\
        --- FAIL: TestS (0.00s)\n    --- FAIL: TestS/x (0.00s)\n=== RUN   TestB\n    a_test.go:9: log\n--- PASS: TestB (0.00s)\nFAIL\nFAIL\tdemo\t0.01s\n\
        === RUN   TestC\nprinted\n--- PASS: TestC (0.00s)\nPASS\nok  \tdemo/c\t0.1s\nFAIL\n";
    let plain = "--- FAIL: TestA (0.00s)\n    a_test.go:3: sum\n--- FAIL: TestS (0.00s)\n    --- FAIL: TestS/x (0.00s)\n        a_test.go:4: no\n\
        FAIL\nFAIL\tdemo\t0.01s\nok  \tdemo/c\t0.1s\nFAIL\n";
    assert_eq!(without_passed_tests(verbose), plain);
}

#[test]
fn protocols() {
    check(
        "<testsuite tests=\"3\" skipped=\"1\" failures=\"1\" errors=\"0\"></testsuite>",
        ("junit", 2, 1),
    );
    let junit = "<?xml version=\"1.0\" encoding=\"utf-8\"?><testsuites name=\"pytest tests\"><testsuite name=\"pytest\" \
        errors=\"0\" failures=\"1\" skipped=\"1\" tests=\"3\"><testcase name=\"a\"/><testcase name=\"b\"><failure \
        message=\"assert -1 == 3\">def b()</failure></testcase><testcase name=\"c\"><skipped/></testcase></testsuite>";
    check(junit, ("junit", 2, 1));
    check("<testsuites></testsuites>", ("junit", 0, 0));
    check(
        "TAP version 14\n1..3\nok 1 - a\nnot ok 2 - b\nok 3 - c # SKIP no time\n",
        ("tap", 2, 1),
    );
    check("ok 1\nnot ok 2 # TODO later\n1..2\n", ("tap", 2, 0));
    check("1..0 # SKIP nothing to do\n", ("tap", 0, 0));
    check_broken("TAP version 13\nok 1 - a\n", "tap");
    check("1..3", None);
    check("1..2..3 testing", None);
}

#[test]
fn prose_is_not_a_summary() {
    check("", None);
    check("0 problems, 0 tests of the emergency broadcast", None);
    check("everything passed, no tests ran away", None);
    check(
        "tests 3\npass 3\nok, 3 tests\n12 tests run\nResults: 0 failed",
        None,
    );
    check("{\"event\":\"success\",\"tests\":3}", None);
}

#[test]
fn a_summary_after_much_output_is_found() {
    let noise = "x\n".repeat(50_000);
    check(
        &format!("{noise}3 passed in 0.01s\n{noise}"),
        ("pytest", 3, 0),
    );
}

proptest! {
    #[test]
    fn any_output_is_read(text in "([ -~]|é|\n|passed|failed| in |Ran |tests|--- FAIL: |1\\.\\.|<testcase|99999999999|# tests ){0,60}") {
        prop_assert_eq!(summary(None, &text, "").is_some(), summary(None, &text, &text).is_some());
        let _ = without_passed_tests(&text);
    }
}
