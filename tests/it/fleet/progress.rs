//! What a fleet shows at a terminal.

use expectrl::ControlCode;

use super::{always_right, project, right};
use crate::support::reply;
use crate::support::server::Server;
use crate::support::terminal::{Terminal, last_line};

#[test]
fn one_line_shows_the_counts_and_is_gone_at_the_end() {
    let server = Server::answering(|request| match request.text().contains("wrong") {
        true => reply::answer("41").usage(100, 10),
        false => right().held(),
    });
    let project = project(&["a", "b"], &server).env("TERM", "xterm");
    let text = project.read("specs/a.yaml");
    let text = text.replace("Write the answer", "Write the wrong answer");
    project.write("specs/a.yaml", text + "max_retries: 1\n");
    let command = ["fleet", "run", "specs", "--jobs", "1", "--budget", "5"];
    let mut terminal = Terminal::start(project.command(&project.binary(), &command));
    terminal.until(r"fleet 0/2  1 running  \$0\.00 of \$5\.00");
    // A failed entry leaves a line.
    terminal.until(r"a-[0-9a-f]{8}  FAILED \(retries_exhausted\): [^\n]*\n");
    terminal.until(
        r"fleet 1/2  1 failed  1 running  \$0\.0[0-9] of \$5\.00  about [0-9.]+ (s|min) left",
    );
    server.wait_for(3);
    server.release();
    let (code, seen) = terminal.wait();
    assert_eq!(code, 1, "{seen:?}");
    let shown: String = seen
        .replace("\r\n", "\n")
        .lines()
        .map(|line| last_line_of(line) + "\n")
        .collect();
    assert!(
        shown.contains("\nFAILED: 1 succeeded, 1 failed, $0.0014 of $5.00 spent"),
        "{shown}"
    );
    assert!(!shown.contains("fleet 1/2"), "{shown}");
}

/// A line of the terminal, as it is at the end.
fn last_line_of(line: &str) -> String {
    last_line(line).to_owned()
}

#[test]
fn ctrl_c_ends_the_line_and_says_how_to_go_on() {
    let server = Server::answering(|_| right().held());
    let project = project(&["a"], &server).env("TERM", "xterm");
    let command = ["fleet", "run", "specs"];
    let mut terminal = Terminal::start(project.command(&project.binary(), &command));
    terminal.until("fleet 0/1  1 running");
    server.wait_for(1);
    terminal.send(ControlCode::EndOfText);
    let (code, seen) = terminal.wait();
    assert_eq!(code, 130, "{seen:?}");
    assert!(
        seen.contains("next: orchestrator fleet resume "),
        "{seen:?}"
    );
    assert!(seen.contains("INTERRUPTED: 1 interrupted"), "{seen:?}");
    project
        .run_with(&always_right(), &["fleet", "resume", "fleet"])
        .exits(0);
}

#[test]
fn quiet_shows_failures_and_the_result() {
    let server = Server::answering(|request| match request.text().contains("wrong") {
        true => reply::answer("41").usage(100, 10),
        false => right(),
    });
    let project = project(&["a", "b"], &server).env("TERM", "xterm");
    let text = project.read("specs/a.yaml");
    let text = text.replace("Write the answer", "Write the wrong answer");
    project.write("specs/a.yaml", text + "max_retries: 1\n");
    let ran = project.run(&["fleet", "run", "specs", "--quiet"]).exits(1);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].contains("FAILED (retries_exhausted)"), "{lines:?}");
    assert!(!ran.stderr.contains("SUCCESS"), "{lines:?}");
    assert_eq!(ran.stdout.lines().count(), 1);
}
