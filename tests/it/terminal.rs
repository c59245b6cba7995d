//! The program at a real terminal: live line, resize, Ctrl+C, Ctrl+Z, colours, hostile output.

use std::fs;

use expectrl::ControlCode;

use crate::support::project::{BINARY, Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::until;
use crate::support::server::Server;
use crate::support::terminal::{Terminal, last_line};

/// Terminal escape sequences and other characters that must not reach a terminal.
const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{9b}31m\u{202e}evil";
const NAME: &str =
    "a-check-whose-name-makes-the-live-line-longer-than-eighty-columns-and-much-longer-than-forty";

/// A project whose check waits for `open_gate`.
fn waiting_project(server: &Server) -> Project {
    let script = "mkfifo gate; read line < gate; rm gate; grep -qx 42 answer.txt";
    let spec = checked_by(script).replace("- name: answer", &format!("- name: {NAME}"));
    assert!(spec.contains(NAME));
    Project::with(spec, server).env("TERM", "xterm-256color")
}

/// Lets the check of a `waiting_project` go on.
fn open_gate(project: &Project) {
    let gate = project.path("workspace/gate");
    until("the check waits", || gate.exists());
    fs::write(gate, "\n").unwrap();
}

fn run(project: &Project) -> Terminal {
    Terminal::start(project.command(BINARY, RUN))
}

#[test]
fn the_live_line_is_redrawn_while_a_check_runs() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    for _ in 0..2 {
        terminal.until(r"\r\x1b\[Ktesting \(attempt 1 of 6\), \d+ s[^\r\n]*, check a-check");
    }
    open_gate(&project);
    let (code, seen) = terminal.wait();
    assert_eq!((code, last_line(&seen)), (0, ""), "{seen:?}");
    project.nothing_left();
}

#[test]
fn the_width_of_the_live_line_follows_the_terminal() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    // The last column stays free, since some terminals wrap when it is used.
    terminal.until(r"\r\x1b\[Ktesting [^\r\n\x1b]{71}\r");
    terminal.resize(40);
    terminal.until(r"\r\x1b\[Ktesting [^\r\n\x1b]{31}\r");
    terminal.resize(200);
    terminal.until(&format!(r"\r\x1b\[Ktesting [^\r\n\x1b]*{NAME}\r"));
    terminal.resize(80);
    terminal.until(r"\r\x1b\[Ktesting [^\r\n\x1b]{71}\r");
    open_gate(&project);
    assert_eq!(terminal.wait().0, 0);
}

#[test]
fn ctrl_c_ends_with_130_a_clean_line_and_no_process() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    terminal.until("check a-check");
    terminal.send(ControlCode::EndOfText);
    let (code, seen) = terminal.wait();
    assert_eq!((code, last_line(&seen)), (130, ""), "{seen:?}");
    assert!(seen.ends_with("\r\n"), "{seen:?}");
    project.nothing_left();
    assert_eq!(project.state()["state"], "TESTING");
}

#[test]
fn ctrl_z_stops_and_fg_continues() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let shell = ["--norc", "--noprofile", "--noediting", "-i"];
    let mut terminal = Terminal::start(project.command("bash", &shell));
    terminal.send_line(&format!("{BINARY} {}", RUN.join(" ")));
    // The line is drawn before the check is started, and again after a second: it runs by then.
    terminal.until(r", [1-9]\d* s, [^\r\n]*check a-check");
    terminal.send(ControlCode::Substitute);
    terminal.until("Stopped");
    terminal.send_line("fg");
    terminal.until(r"\r\x1b\[Ktesting [^\r\n]*check a-check");
    open_gate(&project);
    terminal.until("SUCCESS");
    terminal.send_line("echo code=$?");
    terminal.until("code=0");
    terminal.send_line("exit");
    assert_eq!(terminal.wait().0, 0);
    project.nothing_left();
}

#[test]
fn colours_are_used_unless_no_color_or_a_dumb_terminal_forbids_them() {
    let check = |name: &str, value: &str, expected: bool| {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec(), &server)
            .env("TERM", "xterm-256color")
            .env(name, value);
        let (code, seen) = run(&project).wait();
        let is_coloured = seen.split("\u{1b}[").skip(1).any(|rest| {
            let end = rest
                .find(|c: char| !c.is_ascii_digit() && c != ';')
                .unwrap_or(rest.len());
            // A reset sequence alone is not a colour.
            rest[end..].starts_with('m') && !matches!(&rest[..end], "" | "0")
        });
        assert_eq!(
            (code, is_coloured),
            (0, expected),
            "{name}={value}: {seen:?}"
        );
    };
    check("LANG", "C.UTF-8", true);
    check("NO_COLOR", "1", false);
    check("TERM", "dumb", false);
}

#[test]
fn a_dumb_terminal_gets_no_escape_sequences() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server).env("TERM", "dumb");
    let (code, seen) = run(&project).wait();
    assert_eq!(code, 0);
    assert!(!seen.is_empty() && !seen.contains('\u{1b}'), "{seen:?}");
}

#[test]
fn hostile_output_never_reaches_the_terminal() {
    let answer = || {
        let block = reply::block("answer.txt", "41\n");
        reply::text(&format!("{HOSTILE}\n{block}"))
    };
    let server = Server::start([answer(), answer(), reply::error(400, "odd", HOSTILE)]);
    // A spec may not contain such characters itself.
    let octal: String = HOSTILE
        .bytes()
        .map(|byte| format!("\\{byte:03o}"))
        .collect();
    let script = format!("printf '{octal}\\n'; printf '{octal}\\n' >&2; exit 1");
    let project = Project::with(checked_by(&script), &server).env("TERM", "xterm-256color");
    let (code, seen) = run(&project).wait();
    assert_eq!(code, 1, "{seen:?}");
    assert!(seen.contains("evil"), "{seen:?}");
    for raw in ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{9b}", "\u{202e}"] {
        assert!(
            !seen.contains(raw),
            "{raw:?} reached the terminal: {seen:?}"
        );
    }
}
