//! The messages to bash over the channel: the loop, and commands for it.
//!
//! A command is sent as its length and its text. If it can be parsed as a whole it is wrapped in `{ … }`, so that an
//! error ends all of it; else it is evaluated line by line. A prologue restores what the loop changed to stay invisible
//! (the status, traps, options).

use crate::environments::bash::record::ShellReport;

const START: &str = include_str!("start.sh");
const LOOP: &str = include_str!("loop.sh");
const REPORT: &str = include_str!("report.sh");

/// A longer command is not wrapped, because that parses it twice.
const MAX_WRAPPED: usize = 1 << 20;
/// The stack of bash grows with the number of lines in `{ … }`.
const MAX_WRAPPED_LINES: usize = 1000;
/// Unsets the variables of the loop.
const BEGIN: &str = r"\builtin unset __n __p __c __s __t";

const RESERVED: [&str; 19] = [
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
    "select", "function", "time", "coproc", "in", "alias", "unalias",
];

/// The first message to a fresh shell.
pub(super) fn start() -> String {
    code(START) + "\n" + &enter()
}

/// The line that makes the shell enter the loop from its prompt.
pub(super) fn enter() -> String {
    let report = code(REPORT);
    let body = code(LOOP).replace("REPORT", &report.replace("KIND", "D"));
    let body = body.replace('\'', r"'\''");
    format!(
        "{{ __s=$?; {}; PROMPT_COMMAND='{body}'; }} >&80 2>&80\n",
        report.replace("KIND", "R")
    )
}

/// The same for a shell that may be in the loop, which skips it: a header, and the line.
///
/// The header is a line of its own, because after an interrupt the prompt may read it. Sent before SIGINT, it announces
/// it; the line follows the signal, which must not hit a shell that is entering the loop.
pub(super) fn enter_or_skip() -> (String, String) {
    let line = enter();
    (format!("#{:018}\n", line.len()), line)
}

/// A command for the loop; `before` is the state of the shell.
pub(super) fn command(text: &str, before: &ShellReport) -> Vec<u8> {
    let prologue = prologue(text, before);
    let is_wrapped = is_worth_wrapping(text, before);
    let text = if is_wrapped {
        text.to_owned()
    } else {
        format!("{prologue}\n{text}")
    };
    let mode = if is_wrapped { 'W' } else { 'L' };
    // `read -N` counts characters, which are bytes only in the C locale.
    let counted = if text.is_ascii() && prologue.is_ascii() {
        'A'
    } else {
        'B'
    };
    let mut message =
        format!("{mode}{counted}{:07}{:010}\n", prologue.len(), text.len()).into_bytes();
    if is_wrapped {
        message.extend(prologue.as_bytes());
    }
    message.extend(text.as_bytes());
    message
}

/// Whether a command is wrapped in `{ … }`.
///
/// For a single simple command it makes no difference, unless a failing `eval` of the loop would be noticed. A command
/// in which one line may change how the next one is parsed must not be wrapped.
fn is_worth_wrapping(text: &str, before: &ShellReport) -> bool {
    let is_watched = before.has_error_trap || before.options.contains('e');
    let changes_reading = text.contains("alias") || before.options.contains('v');
    let is_short = text.len() <= MAX_WRAPPED && text.lines().nth(MAX_WRAPPED_LINES).is_none();
    is_short && !changes_reading && !is_blank(text) && (is_watched || !is_simple(text))
}

fn is_simple(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-./=,:@%+~*$".contains(&byte);
    let first = text.split_ascii_whitespace().next().unwrap_or_default();
    text.bytes().all(is_plain) && !RESERVED.contains(&first)
}

fn is_blank(text: &str) -> bool {
    text.lines()
        .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn prologue(text: &str, before: &ShellReport) -> String {
    let status = if is_blank(text) { 0 } else { before.status };
    let begin = match &before.interrupt_trap {
        Some(trap) => format!(r"\builtin {trap}; {BEGIN}"),
        None => BEGIN.to_owned(),
    };
    let mut steps = String::new();
    if before.options.contains('v') {
        steps += r"\builtin set -v; ";
    }
    if let Some(trap) = &before.debug_trap {
        steps += &format!(r"\builtin {trap}; ");
    }
    if before.options.contains('x') {
        steps += r"\builtin set -x; ";
    }
    if status == 0 && steps.is_empty() {
        return begin;
    }
    // A function sets the status without a new process; in front of `&&` a failure has no effect.
    let rest = if status == 0 { "" } else { " && :" };
    format!(
        r"{begin}; __r() {{ \builtin unset -f __r; {steps}\builtin return {status}; }} >/dev/null 2>&1; __r{rest}"
    )
}

/// A file without its comment lines.
fn code(file: &str) -> String {
    let lines: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{command, enter, enter_or_skip, is_blank, is_simple};
    use crate::environments::bash::record::ShellReport;

    fn header(text: &str, before: &ShellReport) -> String {
        String::from_utf8_lossy(&command(text, before)[..20]).into_owned()
    }

    #[test]
    fn simple_commands_are_recognized() {
        for text in [
            "true",
            "ls -la /tmp",
            "cd ..",
            "X=1 make -j2 all",
            "echo $HOME",
            "git status",
        ] {
            assert!(is_simple(text), "{text}");
        }
        for text in [
            "fi",
            "if true",
            "a\nb",
            "a; b",
            "echo 'x'",
            "echo é",
            "f() {",
            "a | b",
            "alias x=y",
            "time a",
        ] {
            assert!(!is_simple(text), "{text}");
        }
    }

    #[test]
    fn comments_and_blanks_are_blank() {
        for text in ["", "  ", "\n\n", "# only a comment", "\t", "\n # a\n"] {
            assert!(is_blank(text), "{text:?}");
        }
        assert!(!is_blank(": # a"));
    }

    #[test]
    fn a_header_has_twenty_bytes() {
        let quiet = ShellReport::default();
        assert!(header("true", &quiet).starts_with("LA"));
        assert!(header("echo 'é'", &quiet).starts_with("WB"));
        assert!(
            header(
                "a; b",
                &ShellReport {
                    options: "ev".to_owned(),
                    ..quiet.clone()
                }
            )
            .starts_with('L')
        );
        assert!(
            header(
                "true",
                &ShellReport {
                    has_error_trap: true,
                    ..quiet
                }
            )
            .starts_with('W')
        );
        let (announcement, line) = enter_or_skip();
        assert_eq!((announcement.len(), line), (20, enter()));
        assert!(announcement.ends_with('\n'));
    }
}
