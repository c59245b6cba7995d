//! What is said to bash over the channel: the loop, and commands for it.
//!
//! A command goes as its length and its text; it stands in a `{ … }`, so that an error in it ends it all, wherever it can
//! be parsed as a whole, and is taken line by line where not. What the driver had to put aside to stay unseen (the
//! status, traps, options) is put back by a prologue.

use crate::environments::bash::record::ShellReport;

const START: &str = include_str!("start.sh");
const LOOP: &str = include_str!("loop.sh");
const REPORT: &str = include_str!("report.sh");

/// What is longer than this is hardly a program, and not parsed twice.
const MAX_WRAPPED: usize = 1 << 20;
/// The stack of bash grows with the lines of a `{ … }`.
const MAX_WRAPPED_LINES: usize = 1000;
/// Tells that the command is there and can be interrupted, and hides the names of the driver.
const BEGIN: &str = r#"\builtin printf "\0\1B\0\2" >&80; \builtin unset __n __p __c __s __t"#;

const RESERVED: [&str; 19] = [
    "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
    "select", "function", "time", "coproc", "in", "alias", "unalias",
];

/// Returns what a fresh shell is told.
pub(super) fn start() -> String {
    code(START) + "\n" + &enter()
}

/// Returns what makes the shell enter the loop from its prompt.
pub(super) fn enter() -> String {
    let report = code(REPORT);
    let body = code(LOOP).replace("REPORT", &report.replace("KIND", "D"));
    let body = body.replace('\'', r"'\''");
    format!(
        "{{ __s=$?; {}; PROMPT_COMMAND='{body}'; }} >&80 2>&80\n",
        report.replace("KIND", "R")
    )
}

/// Returns the same for a shell that may be in the loop, where it is skipped.
pub(super) fn enter_or_skip() -> String {
    let line = enter();
    // A whole line, for an interrupt may take it from the loop and leave the rest for the prompt.
    format!("#{:018}\n{line}", line.len())
}

/// Returns a command for the loop, which finds the shell as `before` has it.
pub(super) fn command(text: &str, before: &ShellReport) -> Vec<u8> {
    let prologue = prologue(text, before);
    let is_wrapped = is_worth_wrapping(text, before);
    let text = if is_wrapped {
        text.to_owned()
    } else {
        format!("{prologue}\n{text}")
    };
    let mode = if is_wrapped { 'W' } else { 'L' };
    // A count is of characters, which are bytes for sure in one locale alone.
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

/// Whether a command is better read as a whole.
///
/// Reading it line by line shows in nothing where it is a single simple command, unless a failure of the driver's own
/// `eval` would matter; it is the only way where a line may change how the next one is read.
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
    let interrupt_trap = before.interrupt_trap.as_deref().unwrap_or("trap - INT");
    let begin = format!(r"\builtin {interrupt_trap}; {BEGIN}");
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
    // Nothing else gives a status without a new process; in front of `&&` a failure is none.
    let rest = if status == 0 { "" } else { " && :" };
    format!(
        r"{begin}; __r() {{ \builtin unset -f __r; {steps}\builtin return {status}; }} >/dev/null 2>&1; __r{rest}"
    )
}

/// Returns a file without its comments.
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
    fn simple_commands_are_known() {
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
    fn blank_is_what_does_nothing() {
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
        assert!(enter_or_skip()[..20].ends_with('\n') && enter_or_skip()[20..] == enter());
    }
}
