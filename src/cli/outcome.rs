//! How a run's end is said: one line for people, or one JSON object.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use crate::build::rounds::CheckResult;
use crate::cli::arguments::RunArguments;
use crate::cli::env::CliEnv;
use crate::cli::output::{print_stderr, write_stdout};
use crate::error::Error;
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::{RunState, UsageTotals};
use crate::text::invisible::{escaped, printable};
use crate::text::quote::shell_word;

/// How many files a message names.
const SHOWN_CHANGES: usize = 20;

/// The end of a `run`, in the fields of its result.
#[derive(Debug, Serialize)]
pub struct RunOutcome {
    outcome: &'static str,
    exit_code: u8,
    reason: Reason,
    run_id: Option<String>,
    retry_count: u32,
    usage: UsageTotals,
    message: String,
    notes: Vec<String>,
    checks: Vec<CheckResult>,
    next: Option<String>,
    /// Whether the console has told of it already.
    #[serde(skip)]
    is_told: bool,
}

impl RunOutcome {
    /// Returns the end of a command that ran nothing.
    pub fn refused(error: &Error, next: Option<String>) -> RunOutcome {
        let outcome = match error {
            Error::Stopped(_) => "INTERRUPTED",
            Error::StateCorrupt(_) => "FAILED",
            _ => "REFUSED",
        };
        RunOutcome {
            outcome,
            exit_code: error.exit_code(),
            reason: error.reason(),
            run_id: None,
            retry_count: 0,
            usage: UsageTotals::none(true),
            message: error.to_string(),
            notes: Vec::new(),
            checks: Vec::new(),
            next: next.filter(|_| goes_on(error)),
            is_told: false,
        }
    }

    /// Returns the end of a run that is over.
    pub fn of_state(state: &RunState, notes: Vec<String>) -> RunOutcome {
        let reason = state.reason.unwrap_or(Reason::InternalError);
        let succeeded = state.phase == Phase::Success;
        RunOutcome {
            outcome: if succeeded { "SUCCESS" } else { "FAILED" },
            exit_code: reason.exit_code(),
            reason,
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            message: message_of(state),
            notes,
            checks: Vec::new(),
            next: None,
            is_told: false,
        }
    }

    /// Returns the end of a SUCCESS that is asked for again: where the workspace is not the one that was tested, what was
    /// true of it is not told again.
    pub fn unless_changed(self, changes: &[String]) -> RunOutcome {
        if changes.is_empty() {
            return self;
        }
        let mut files = changes
            .iter()
            .take(SHOWN_CHANGES)
            .map(|name| escaped(name))
            .collect::<Vec<_>>()
            .join(", ");
        if let Some(more) = changes
            .len()
            .checked_sub(SHOWN_CHANGES)
            .filter(|more| *more > 0)
        {
            files += &format!(" and {more} more");
        }
        let reason = Reason::WorkspaceChanged;
        let message = format!("workspace changed since: {files}; --no-resume starts afresh");
        RunOutcome {
            outcome: "FAILED",
            exit_code: reason.exit_code(),
            reason,
            message,
            ..self
        }
    }

    /// Returns the end of a command whose run can go on.
    pub fn unfinished(
        error: &Error,
        state: &RunState,
        notes: Vec<String>,
        next: String,
    ) -> RunOutcome {
        let refused = RunOutcome::refused(error, Some(next));
        RunOutcome {
            outcome: if matches!(error, Error::Paused(..)) {
                "PAUSED"
            } else {
                "INTERRUPTED"
            },
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            notes,
            ..refused
        }
    }

    /// Returns the same with what the checks of the last round came to.
    pub fn with_checks(mut self, checks: &[CheckResult]) -> RunOutcome {
        self.checks = checks.to_vec();
        self
    }

    /// Says that the console has told the end.
    pub fn with_notes(mut self) -> RunOutcome {
        self.is_told = true;
        self
    }

    /// Returns why it ended.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints the end, once, and returns the exit code.
    pub fn print(self, json: bool) -> u8 {
        if !self.is_told && self.exit_code != 0 {
            print_stderr(&format!("error: {}", self.message));
        }
        if let Some(next) = &self.next {
            print_stderr(&format!("next: {next}"));
        }
        if json {
            return self.print_json();
        }
        if self.outcome != "REFUSED" {
            let run = self.run_id.as_deref().unwrap_or("-");
            let line = format!(
                "{} ({}): {} [run {run}]\n",
                self.outcome,
                self.reason,
                one_line(&self.message)
            );
            let _ = write_stdout(&line);
        }
        self.exit_code
    }

    /// Prints the one JSON object and returns the exit code.
    pub fn print_json(self) -> u8 {
        let text = serde_json::to_string(&self).unwrap_or_else(|_| "{}".into());
        let _ = write_stdout(&(text + "\n"));
        self.exit_code
    }
}

/// Says in words how a run that is over ended.
fn message_of(state: &RunState) -> String {
    match (&state.last_error, state.retry_count) {
        (Some(error), _) => error.clone(),
        (None, 0) => "all checks passed at the first attempt".into(),
        (None, 1) => "all checks passed after 1 patch".into(),
        (None, patches) => format!("all checks passed after {patches} patches"),
    }
}

fn one_line(text: &str) -> String {
    let plain = printable(text);
    let first = plain.lines().next().unwrap_or_default();
    first.chars().take(300).collect()
}

/// Whether the same command can go on after this end.
fn goes_on(error: &Error) -> bool {
    matches!(
        error,
        Error::Stopped(_) | Error::Paused(..) | Error::Io { .. } | Error::Locked(_)
    )
}

/// Returns the command that goes on, ready to be pasted into a shell.
pub fn next_command(arguments: &RunArguments, spec: &Path, env: &CliEnv) -> String {
    let mut words = vec!["orchestrator".to_owned(), "run".to_owned()];
    let mut option = |name: &str, value: Option<&OsStr>| match value {
        // What begins like an option is a value only after `=`.
        Some(value) if value.as_bytes().starts_with(b"-") => {
            words.push(format!("{name}={}", quoted(value)))
        }
        Some(value) => words.extend([name.to_owned(), quoted(value)]),
        None => {}
    };
    option("--spec", Some(spec.as_os_str()));
    option("--root", env.named_root.as_deref().map(Path::as_os_str));
    option(
        "--max-retries",
        arguments
            .max_retries
            .map(|number| number.to_string())
            .as_deref()
            .map(OsStr::new),
    );
    option(
        "--budget",
        arguments
            .budget
            .map(|usd| usd.to_string())
            .as_deref()
            .map(OsStr::new),
    );
    option("--provider", arguments.provider.as_deref().map(OsStr::new));
    option("--model", arguments.model.as_deref().map(OsStr::new));
    option("--replay", arguments.replay.as_deref().map(Path::as_os_str));
    let flags = [
        ("--debug", arguments.debug),
        ("--quiet", arguments.quiet),
        ("--json", arguments.json),
        ("--no-sandbox", arguments.no_sandbox),
    ];
    words.extend(
        flags
            .iter()
            .filter(|(_, given)| *given)
            .map(|(name, _)| (*name).to_owned()),
    );
    words.join(" ")
}

/// Quotes a word for a POSIX shell where it needs it.
fn quoted(word: &OsStr) -> String {
    match word.to_str() {
        Some(word) if printable(word) == word && !word.contains('\n') => shell_word(word),
        _ => printed(word.as_bytes()),
    }
}

/// Spells a word that cannot be shown as what `printf` makes of it.
fn printed(word: &[u8]) -> String {
    let spelled = word.iter().map(|byte| match byte {
        b'%' => "%%".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b" _@+=:,./-".contains(byte) => {
            char::from(*byte).to_string()
        }
        byte => format!("\\{byte:03o}"),
    });
    format!("\"$(printf '{}')\"", spelled.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, shown) in [
            (&b"specs/a.yaml"[..], "specs/a.yaml"),
            (b"", "''"),
            (b"it's $HOME", "'it'\\''s $HOME'"),
            (b"a\xff\n%'b", "\"$(printf 'a\\377\\012%%\\047b')\""),
        ] {
            assert_eq!(quoted(OsStr::from_bytes(word)), shown);
        }
    }
}
