//! The user's pager, which shows long text at a terminal.
//!
//! It is a program of the user and not of a run: it has the user's environment and no supervisor.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;

const DEFAULT_PAGER: &str = "less";

/// Options of `less` unless the user has set others: quit if the text fits the screen, show colours, do not clear.
const LESS_OPTIONS: &str = "FRX";

/// Exit codes with which a shell reports that it cannot execute a command, or does not find it.
const SHELL_FAILURES: [i32; 2] = [126, 127];

/// A pager and how it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pager {
    /// A command line of the shell.
    command: OsString,
    /// `LESS`, if the user's environment does not have it.
    less_options: Option<&'static str>,
}

impl Pager {
    /// The pager by the variables `PAGER` and `LESS`; `less` by default. `None` if the user wants none: `PAGER` is empty
    /// or `cat`.
    pub(crate) fn from_variables(pager: Option<&OsStr>, less: Option<&OsStr>) -> Option<Pager> {
        let command = pager.unwrap_or(OsStr::new(DEFAULT_PAGER));
        let is_wanted = !command.is_empty() && command != "cat";
        is_wanted.then(|| Pager {
            command: command.to_owned(),
            less_options: less.is_none().then_some(LESS_OPTIONS),
        })
    }

    /// Shows the text and waits until the user has left the pager, also before its end. An error means that the pager
    /// could not be started and the text was not shown.
    ///
    /// SIGINT is for the pager: it does not end this process from now on. What else handles the signal still gets it.
    pub(crate) fn show(&self, text: &[u8]) -> io::Result<()> {
        // A handler, unlike an ignored signal, is not inherited by the pager.
        let handler = signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
        let shown = self.start().and_then(|pager| feed(pager, text));
        signal_hook::low_level::unregister(handler);
        match shown?.code() {
            Some(code) if SHELL_FAILURES.contains(&code) => {
                let command = self.command.display();
                Err(io::Error::other(format!("{command}: exit code {code}")))
            }
            _ => Ok(()),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a program that the user works with, not one of a run"
    )]
    fn start(&self) -> io::Result<Child> {
        // Without a shell, which would print a message if the program is missing.
        let mut command = match is_word(&self.command) {
            true => Command::new(&self.command),
            false => {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(&self.command);
                shell
            }
        };
        if let Some(options) = self.less_options {
            command.env("LESS", options);
        }
        command.stdin(Stdio::piped()).spawn()
    }
}

/// Whether a command line is the name of a program alone.
fn is_word(command: &OsStr) -> bool {
    command
        .as_encoded_bytes()
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte))
}

/// Writes the text, as much of it as the pager reads, and waits for its end.
fn feed(mut pager: Child, text: &[u8]) -> io::Result<ExitStatus> {
    if let Some(mut stdin) = pager.stdin.take() {
        // It fails when the user leaves the pager early; other failures are the pager's to report.
        let _ = stdin.write_all(text);
    }
    pager.wait()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn pager(command: impl AsRef<OsStr>) -> Pager {
        Pager::from_variables(Some(command.as_ref()), None).unwrap()
    }

    /// Runs a command line, with `$1` as a new file, as the pager of a text; returns the content of the file.
    fn shown(command: &str, text: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shown");
        let command = format!("set -- '{}'; {command}", file.display());
        pager(command).show(text).unwrap();
        fs::read(file).unwrap_or_default()
    }

    #[test]
    fn the_pager_is_chosen_by_variables() {
        let chosen = |pager: Option<&str>, less: Option<&str>| {
            Pager::from_variables(pager.map(OsStr::new), less.map(OsStr::new))
        };
        let pager = |command: &str, less_options| Pager {
            command: command.into(),
            less_options,
        };
        assert_eq!(chosen(None, None), Some(pager("less", Some("FRX"))));
        assert_eq!(chosen(None, Some("")), Some(pager("less", None)));
        assert_eq!(
            chosen(Some("more -d"), Some("R")),
            Some(pager("more -d", None))
        );
        assert_eq!(chosen(Some(""), None), None);
        assert_eq!(chosen(Some("cat"), None), None);
    }

    #[test]
    fn the_pager_gets_the_text_and_is_waited_for() {
        assert_eq!(shown("cat > \"$1\"", b"text\n\xff\0"), b"text\n\xff\0");
        assert_eq!(shown("printf %s \"$LESS\" > \"$1\"", b"text"), b"FRX");
    }

    #[test]
    fn the_user_may_leave_the_pager_early() {
        let text = vec![b'x'; 10_000_000];
        assert_eq!(shown("head -c 3 > \"$1\"", &text), b"xxx");
        assert_eq!(shown("true", &text), b"");
        assert_eq!(shown("exit 1", &text), b"");
    }

    #[test]
    fn a_pager_that_cannot_be_started_is_an_error() {
        let missing = Path::new("/no/such/folder/pager");
        let error = pager(missing).show(b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // The same through a shell.
        assert!(
            pager("/no/such/folder/pager -x 2> /dev/null")
                .show(b"text")
                .is_err()
        );
        assert!(pager("/ 2> /dev/null").show(b"text").is_err());
    }

    /// Without the handler the signal would end this test.
    #[test]
    fn an_interrupt_is_left_to_the_pager() {
        let command = "kill -INT $PPID; cat > \"$1\"; printf ' and after' >> \"$1\"";
        assert_eq!(shown(command, b"before"), b"before and after");
        // The pager itself does not ignore it.
        assert_eq!(shown("kill -INT $$; echo alive > \"$1\"", b"text"), b"");
    }
}
