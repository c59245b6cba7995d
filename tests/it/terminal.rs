//! The program at a real terminal: live line, resize, Ctrl+C, Ctrl+Z, colours, hostile output.

use std::fs;

use expectrl::ControlCode;

use crate::support::project::{BINARY, Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::until;
use crate::support::server::Server;
use crate::support::terminal::{Terminal, last_line, without_own_sequences};

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

/// The rows that begin with a word.
fn rows_with(terminal: &Terminal, begin: &str) -> Vec<String> {
    let mut rows = terminal.rows();
    rows.retain(|row| row.starts_with(begin));
    rows
}

#[test]
fn the_live_line_is_redrawn_while_a_check_runs() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    for _ in 0..2 {
        terminal.until(r"\r\x1b\[Ktesting 1/6, \d+ s[^\r\n]*, check a-check[^\r]*");
    }
    // The phase has its line of history and the live line.
    let [phase, live] = &rows_with(&terminal, "testing")[..] else {
        panic!("{:?}", terminal.rows());
    };
    assert_eq!(phase, "testing (attempt 1 of 6)");
    assert!(live.starts_with("testing 1/6, "), "{live}");
    open_gate(&project);
    let (code, seen) = terminal.wait();
    assert_eq!((code, last_line(&seen)), (0, ""), "{seen:?}");
    project.nothing_left();
}

#[test]
fn the_live_line_of_a_check_has_its_limit_and_what_it_printed() {
    let script = "echo 'compiling 3 of 9'; printf '\\033[2J\\033[5;5H\\033]0;t\\007linking'; mkfifo gate; read line < gate; \
                  rm gate; grep -qx 42 answer.txt";
    let spec =
        checked_by(script).replace("answer\n    command", "unit\n    timeout: 600\n    command");
    assert!(spec.contains("timeout: 600"), "{spec}");
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(spec, &server).env("TERM", "xterm-256color");
    let mut terminal = run(&project);
    terminal.until(
        r"\r\x1b\[Ktesting \(attempt 1 of 6\), \d+ s of 10 min, (\$[\d.]+, )?check unit: linking",
    );
    open_gate(&project);
    let (code, seen) = terminal.wait();
    assert_eq!(code, 0, "{seen:?}");
    assert!(!without_own_sequences(&seen).contains('\u{1b}'), "{seen:?}");
}

#[test]
fn the_width_of_the_live_line_follows_the_terminal() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    // Three columns stay free: the terminal itself writes `^C` there.
    let fills = |columns: usize| {
        let rest = columns - "testing ".len() - "...".len() - 3;
        format!(r"\r\x1b\[Ktesting [^\r\n\x1b]{{{rest}}}\.\.\.\r")
    };
    terminal.until(&fills(80));
    terminal.resize(40);
    terminal.until(&fills(40));
    terminal.resize(200);
    terminal.until(&format!(
        r"\r\x1b\[Ktesting \(attempt 1 of 6\), [^\r\n\x1b]*{NAME}\r"
    ));
    terminal.resize(80);
    terminal.until(&fills(80));
    open_gate(&project);
    assert_eq!(terminal.wait().0, 0);
}

#[test]
fn wide_characters_do_not_wrap_the_live_line() {
    let script = "echo '編譯模塊編號第三個共十五個模塊 🎉 grüße עולם 編譯模塊編號'; mkfifo gate; read line < gate; rm gate";
    for columns in [40, 80, 200] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(checked_by(script), &server).env("TERM", "xterm-256color");
        let mut terminal = Terminal::with_columns(project.command(BINARY, RUN), columns);
        for _ in 0..2 {
            terminal.until(r"\r\x1b\[Ktesting [^\r\n]*answer: 編[^\r\n]*\r");
        }
        let live = rows_with(&terminal, "testing");
        assert_eq!(live.len(), 2, "{:?}", terminal.rows());
        assert!(!terminal.is_wrapped(), "{:?}", terminal.rows());
        open_gate(&project);
        assert_eq!(terminal.wait().0, 0);
    }
}

#[test]
fn ctrl_c_ends_with_130_a_clean_line_and_no_process() {
    let server = Server::start([reply::answer("42")]);
    let project = waiting_project(&server);
    let mut terminal = run(&project);
    terminal.echo();
    terminal.until("check a-check");
    terminal.send(ControlCode::EndOfText);
    // What the terminal writes for the key is erased with the live line.
    terminal.until(r"\^C[^\n]*\r\n");
    let left = rows_with(&terminal, "testing");
    assert_eq!(left, ["testing (attempt 1 of 6)"], "{:?}", terminal.rows());
    let (code, seen) = terminal.wait();
    assert_eq!((code, last_line(&seen)), (130, ""), "{seen:?}");
    assert!(seen.ends_with("\r\n"), "{seen:?}");
    let said = seen.to_lowercase().matches("interrupted").count();
    assert_eq!(said, 1, "{seen:?}");
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
    terminal.until(r", [1-9]\d* s[^\r\n]*check a-check");
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
fn the_option_and_the_variables_decide_about_colours() {
    let check = |variables: &[(&str, &str)], option: Option<&str>, expected: bool| {
        let server = Server::start([reply::answer("42")]);
        let mut project = Project::with(answer_spec(), &server).env("TERM", "xterm-256color");
        for (name, value) in variables {
            project = project.env(name, value);
        }
        let when = option.map(|when| ["--color", when]);
        let arguments = [RUN, when.as_ref().map_or(&[][..], |when| when)].concat();
        let ran = project.run(&arguments).exits(0);
        let is_coloured = ran.stderr.contains("\u{1b}[");
        assert_eq!(is_coloured, expected, "{variables:?} {option:?}");
    };
    // Standard error is not a terminal here.
    check(&[], None, false);
    check(&[("FORCE_COLOR", "1")], None, true);
    check(&[("CLICOLOR_FORCE", "1")], None, true);
    check(
        &[("FORCE_COLOR", "0"), ("CLICOLOR_FORCE", "1")],
        None,
        false,
    );
    check(&[("FORCE_COLOR", "1"), ("NO_COLOR", "1")], None, false);
    check(&[("NO_COLOR", "1")], Some("always"), true);
    check(&[("FORCE_COLOR", "1")], Some("never"), false);
    check(&[("FORCE_COLOR", "1")], Some("auto"), true);
    check(&[("CLICOLOR", "1")], None, false);
}

#[test]
fn a_streamed_answer_is_counted_and_a_silent_model_is_waited_for() {
    let text = reply::block("answer.txt", &"a line of the file\n".repeat(60));
    let held = reply::answer("41").held();
    let server = Server::start([
        held,
        reply::text(&text).stall_after(30),
        reply::answer("42"),
    ]);
    let project = Project::with(answer_spec(), &server).env("TERM", "xterm-256color");
    let mut terminal = run(&project);
    terminal.until(r"\r\x1b\[Kgenerating \(attempt 1 of 6\), waiting for the first token, \d+ s");
    // The line may be there before the request is.
    server.wait_for(1);
    server.release();
    terminal.until(r"patching \(attempt 2 of 6\), [^\r\n]*writing answer.txt, \d+ tokens, \d+/s");
    server.release();
    assert_eq!(terminal.wait().0, 0);
}

#[test]
fn in_agent_mode_the_live_line_has_the_turn_and_the_command() {
    let spec = checked_by("grep -qx 42 answer.txt") + "generator: {mode: agent}\n";
    let command = "mkfifo gate; read line < gate; rm gate; echo 42 > answer.txt";
    let server = Server::start([
        reply::bash(command).with_text("I write the answer."),
        reply::text("Done."),
    ]);
    let project = Project::with(spec, &server).env("TERM", "xterm-256color");
    let mut terminal = run(&project);
    terminal.until("I write the answer");
    terminal.until(r"\r\x1b\[Kgenerating [^\r\n]*turn 1[^\r\n]*bash: mkfifo gate");
    open_gate(&project);
    let (code, seen) = terminal.wait();
    assert_eq!((code, last_line(&seen)), (0, ""), "{seen:?}");
    project.nothing_left();
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
