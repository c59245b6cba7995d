//! Output of programs: cleaned, counted, searched for causes, put into a report.

use std::slice::from_ref;

use orchestrator::internals::build::{
    CheckProblem, FailedCheck, MAX_REPORT, causes, report, summary,
};
use orchestrator::internals::environments::ChildOutput;
use orchestrator::internals::text::{cut_middle, escaped, printable, rendered};

use crate::harness::fuzz;

const WORDS: [&str; 40] = [
    "\x1b[",
    "\x1b]0;",
    "\x07",
    "\x1b\\",
    "\x1b[2K",
    "\x1b[0K",
    "\r",
    "\n",
    "\x08",
    "\u{9b}",
    "\u{90}",
    "[31m",
    "FAILED ",
    "=== ",
    " passed",
    " failed in 0.01s ===",
    "Ran 3 tests in 0.1s\n\n",
    "OK\n",
    "FAILED (failures=1)\n",
    "test result: ",
    "--- FAIL: ",
    "ok\t",
    "not ok 1 - ",
    "1..3\n",
    "  ---\n",
    "  ...\n",
    "Tests: ",
    "<testsuite tests=\"",
    "\" failures=\"",
    "<testcase name=\"",
    "<failure message=\"",
    "]]>",
    "<![CDATA[",
    "&#x",
    "&lt;",
    "<!--",
    "\x1e",
    "Traceback (most recent call last):\n",
    "error[E0308]: ",
    "panicked at ",
];

fn is_plain(text: &str) -> bool {
    !text
        .chars()
        .any(|character| character.is_control() && !matches!(character, '\n' | '\t'))
}

#[test]
fn text() {
    fuzz("text", &WORDS, |bytes| {
        let shown = rendered(bytes);
        assert!(is_plain(&shown) && is_plain(&printable(&shown)));
        assert!(!escaped(&shown).contains(char::is_control));
        for limit in [
            0,
            1,
            40,
            63,
            64,
            1000,
            shown.len() / 2,
            shown.len().saturating_sub(1),
        ] {
            assert!(cut_middle(&shown, limit).len() <= limit);
        }
    });
}

#[test]
fn checks() {
    fuzz("checks", &WORDS, |bytes| {
        let shown = rendered(bytes.split(|byte| *byte == 0x1e).next().unwrap_or_default());
        let rest = rendered(
            bytes
                .splitn(2, |byte| *byte == 0x1e)
                .nth(1)
                .unwrap_or_default(),
        );
        summary(None, &shown, &rest);
        assert!(causes(&shown, &rest).len() < 100);
        let check = FailedCheck {
            refused: &[],
            tests: None,
            name: "unit",
            command: &["sh".to_owned()],
            hidden: false,
            problem: &CheckProblem::ExitCode(1),
            stdout: &shown,
            stderr: &rest,
            stdout_dropped: 0,
            stderr_dropped: 7,
        };
        let told = report(&[check], &["lint"], from_ref(&shown), from_ref(&rest));
        assert!(told.len() <= MAX_REPORT && is_plain(&told));
    });
}

fn cleaned(bytes: &[u8], piece: usize) -> String {
    let mut output = ChildOutput::default();
    output.begin("");
    bytes.chunks(piece).for_each(|chunk| output.push(chunk));
    output.finish()
}

#[test]
fn output() {
    fuzz("output", &WORDS, |bytes| {
        let whole = cleaned(bytes, bytes.len().max(1));
        assert!(is_plain(&whole));
        assert_eq!(cleaned(bytes, 1 + bytes.len() / 3000), whole);
    });
}
