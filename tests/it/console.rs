//! Console output: escaped text, `--quiet`, standard output for results only, closed and full streams.

use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

/// A check and an answer that contain terminal escape sequences.
const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}31m\u{202e}evil";

fn hostile_project() -> (Project, Server) {
    let answer = || {
        reply::text(&format!(
            "{HOSTILE}\n{}",
            reply::block("answer.txt", "41\n")
        ))
    };
    let server = Server::start([answer(), answer(), reply::error(400, "odd", HOSTILE)]);
    // A spec may not contain such characters itself.
    let octal: String = HOSTILE
        .bytes()
        .map(|byte| format!("\\{byte:03o}"))
        .collect();
    let script = format!("printf '{octal}\\n'; printf '{octal}\\n' >&2; exit 1");
    (Project::with(checked_by(&script), &server), server)
}

fn has_control(text: &str) -> bool {
    text.chars()
        .any(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}')
}

#[test]
fn output_without_a_terminal_is_plain_text() {
    let (project, _server) = hostile_project();
    for arguments in [RUN, &["status"], RUN] {
        let ran = project.run(arguments);
        assert!(!ran.stdout.is_empty(), "{}", ran.transcript());
        assert!(
            !has_control(&ran.stdout) && !has_control(&ran.stderr),
            "{:?}",
            ran.transcript()
        );
    }
}

#[test]
fn quiet_prints_only_the_result() {
    let run = |more: &[&str], line: &str| {
        let server = Server::start([reply::answer("41"), reply::answer(line)]);
        let project = Project::with(answer_spec() + "max_retries: 1\n", &server);
        project.run(&[RUN, more].concat())
    };
    let (loud, quiet) = (run(&[], "42").exits(0), run(&["--quiet"], "42").exits(0));
    assert!(
        quiet.stderr.len() < loud.stderr.len(),
        "{}\n{}",
        quiet.transcript(),
        loud.transcript()
    );
    assert!(
        !quiet.stderr.contains("TESTING") && !quiet.stderr.contains("PATCHING"),
        "{}",
        quiet.transcript()
    );
    assert_eq!(quiet.stdout.lines().count(), 1);
    let failed = run(&["--quiet"], "40").exits(1);
    assert!(
        !failed.stderr.trim().is_empty(),
        "a failure is told\n{}",
        failed.transcript()
    );
}

#[test]
fn only_results_are_on_standard_output() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let ran = project
        .run(&[RUN, &["--json", "--debug"]].concat())
        .exits(0);
    ran.result();
    assert!(!ran.stderr.is_empty());
}

#[test]
fn closed_or_unread_streams_do_not_stop_a_run() {
    for line in [
        "exec \"$@\" >&-",
        "exec \"$@\" 2>&-",
        "exec \"$@\" >&- 2>&- <&-",
        "exec \"$@\" >/dev/full",
        "exec \"$@\" 2>/dev/full",
        "{ \"$@\"; echo $? > code; } | :; exit $(cat code)",
        "{ { \"$@\" 2>&1 >/dev/null; echo $? > code; } | :; } 2>&1; exit $(cat code)",
    ] {
        for flag in [&[][..], &["--json"]] {
            let server = Server::start([reply::answer("41"), reply::answer("42")]);
            let project = Project::with(answer_spec(), &server);
            let ran = project.run_in_shell(line, &[RUN, flag].concat());
            // A failure to print the result may be reported, but it is not an internal error and the run is complete.
            assert!(
                matches!(ran.code, Some(0 | 74)),
                "{line}\n{}",
                ran.transcript()
            );
            assert_eq!(project.state()["state"], "SUCCESS", "{line}");
            assert_eq!(project.workspace_names(), ["answer.txt"], "{line}");
        }
    }
}

#[test]
fn status_with_a_closed_or_full_stdout_exits_cleanly() {
    let project = Project::new();
    for (line, code) in [("exec \"$@\" >&-", 0), ("exec \"$@\" >/dev/full", 74)] {
        project.run_in_shell(line, &["status"]).exits(code);
    }
}

#[test]
fn the_result_names_the_outcome_and_the_next_command() {
    let server = Server::start([reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    let ran = project.run(RUN).exits(4);
    assert!(
        ran.stderr.contains("run --spec specs/spec.yaml"),
        "{}",
        ran.transcript()
    );
    assert!(
        ran.stderr.contains(&project.state_text("run_id")),
        "{}",
        ran.transcript()
    );
}

const CALC_SPEC: &str = "name: calc\ndescription: A module calc.py with add and neg.\nworkspace: {protect: [../tests/]}\n\
                         baseline: false\nmax_retries: 1\nchecks:\n  - name: unit\n    command: [python3, -m, unittest, \
                         discover, -s, tests, -t, .]\n";
const CALC_TEST: &str = "import unittest\nfrom calc import add, neg\n\n\nclass Calc(unittest.TestCase):\n    def \
                         test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n    def test_neg(self):\n        \
                         self.assertEqual(neg(1), -1)\n\n    def test_other(self):\n        pass\n";

fn calc_project(server: &Server) -> Project {
    Project::with(CALC_SPEC, server)
        .file("tests/test_calc.py", CALC_TEST)
        .file("tests/__init__.py", "")
}

fn calc(operator: &str) -> reply::Reply {
    let code = format!(
        "def add(a, b):\n    return a {operator} b\n\n\ndef neg(a):\n    return 0 {operator} a\n"
    );
    reply::files(&[("calc.py", &code)])
}

/// The lines without the times in them, which differ.
fn without_times(text: &str) -> Vec<String> {
    let time = regex::Regex::new(r"\d+\.\d s").unwrap();
    let lines = text
        .lines()
        .map(|line| time.replace_all(line, "T s").into_owned());
    lines.collect()
}

#[test]
fn a_failed_check_names_its_tests_and_the_first_cause_with_its_place() {
    let server = Server::start([calc("*"), calc("-")]);
    let ran = calc_project(&server).run(RUN).exits(1);
    let lines = without_times(&ran.stderr);
    let at = lines.iter().position(|line| line.starts_with("check unit"));
    let at = at.unwrap_or_else(|| panic!("{}", ran.transcript()));
    assert_eq!(
        lines[at..at + 2],
        [
            "check unit: failed, 2 of 3 tests (test_add, test_neg), T s",
            "  AssertionError: 2 != 3 at tests/test_calc.py:7"
        ]
    );
    // With `--quiet` the result is the only line: it has the count.
    assert!(
        ran.stdout
            .contains("Check unit failed: exit code 1 (1 of 3 tests failed)"),
        "{}",
        ran.transcript()
    );
}

#[test]
fn a_failed_check_without_tests_shows_the_last_line_that_it_printed() {
    for (script, expected) in [
        (
            "echo building; echo 'cannot find x' >&2; exit 3",
            "cannot find x",
        ),
        ("echo 'no network'; exit 3", "no network"),
        (
            "printf '10%%\\r20%%\\nred \\033[31malarm\\033[0m\\n'; exit 3",
            "red alarm",
        ),
    ] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(checked_by(script) + "max_retries: 0\n", &server);
        let ran = project.run(RUN);
        let lines = without_times(&ran.stderr);
        let expected = [
            "check answer: failed, exit code 3, T s",
            &format!("  {expected}"),
        ];
        assert!(
            lines.windows(2).any(|two| two == expected),
            "{}",
            ran.transcript()
        );
    }
}

#[test]
fn with_both_streams_in_one_the_result_is_said_once() {
    for (answer, code, result) in [
        ("42", 0, "all checks passed"),
        ("41", 1, "the checks still fail"),
    ] {
        let server = Server::start([reply::answer("41"), reply::answer(answer)]);
        let project = Project::with(answer_spec() + "max_retries: 1\n", &server);
        let ran = project.run_in_shell("exec \"$@\" 2>&1", RUN).exits(code);
        assert_eq!(
            ran.stdout.matches(result).count(),
            1,
            "{}",
            ran.transcript()
        );
        let last = ran.stdout.lines().last().unwrap();
        assert!(last.contains(result), "{}", ran.transcript());
    }
    let server = Server::start([reply::error(400, "odd", "no such thing")]);
    let project = Project::with(answer_spec(), &server);
    let ran = project.run_in_shell("exec \"$@\" 2>&1", RUN).exits(1);
    assert_eq!(
        ran.stdout.matches("no such thing").count(),
        1,
        "{}",
        ran.transcript()
    );
}

#[test]
fn an_answer_that_is_not_used_is_said_with_the_reason() {
    let server = Server::start([reply::text("I would rather talk."), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project
        .run(RUN)
        .exits(0)
        .says(": I would rather talk.\nthe answer was not used: the answer has no <file> or <delete> block\n");
}

#[test]
fn agent_mode_shows_the_words_of_the_model_and_what_its_tools_did() {
    let spec = checked_by("grep -qx 42 answer.txt") + "generator: {mode: agent}\n";
    let server = Server::start([
        reply::bash("ls\ncat nothing-there").with_text("I look first.\nThen I write."),
        reply::bash("echo 42 > answer.txt"),
        reply::text("Done."),
    ]);
    let ran = Project::with(spec, &server).run(RUN).exits(0);
    let lines = without_times(&ran.stderr);
    let at = lines.iter().position(|line| line.contains("I look first."));
    let at = at.unwrap_or_else(|| panic!("{}", ran.transcript()));
    assert!(
        lines[at].starts_with("the model answered (T s, $")
            && lines[at].ends_with("): I look first."),
        "{}",
        ran.transcript()
    );
    assert_eq!(lines[at + 1], "bash: ls ...");
    assert!(
        lines[at + 2].starts_with("  failed, T s: ") && lines[at + 2].contains("nothing-there"),
        "{}",
        ran.transcript()
    );
    let written = ["bash: echo 42 > answer.txt", "  ok, T s"];
    assert!(
        lines.windows(2).any(|two| two == written),
        "{}",
        ran.transcript()
    );
}

#[test]
fn the_first_line_of_a_replay_says_that_nothing_is_paid() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(0);
    let log = format!("logs/{}.log", project.state_text("run_id"));
    let ran = project.run(&[RUN, &["--replay", &log]].concat()).exits(0);
    let first = ran.stderr.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("replay: ") && first.contains("nothing is paid"),
        "{first}"
    );
}
