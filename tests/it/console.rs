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
