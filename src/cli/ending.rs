//! How a run's end is said: one line for people, or one JSON object.

use std::path::Path;

use serde::Serialize;

use crate::cli::surroundings::Surroundings;
use crate::cli::{RunArguments, complain, write_stdout};
use crate::error::Error;
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::{RunState, Totals};

/// The end of a `run`, in the fields of its result.
#[derive(Debug, Serialize)]
pub struct Ending {
    outcome: &'static str,
    exit_code: u8,
    reason: Reason,
    run_id: Option<String>,
    retry_count: u32,
    usage: Totals,
    message: String,
    notes: Vec<String>,
    next: Option<String>,
    /// Whether the console has told of it already.
    #[serde(skip)]
    is_told: bool,
}

impl Ending {
    /// Returns the end of a command that ran nothing.
    pub fn refused(error: &Error, next: Option<String>) -> Ending {
        let outcome = match error {
            Error::Stopped(_) => "INTERRUPTED",
            Error::StateCorrupt(_) => "FAILED",
            _ => "REFUSED",
        };
        Ending {
            outcome,
            exit_code: error.exit_code(),
            reason: error.reason(),
            run_id: None,
            retry_count: 0,
            usage: Totals::none(true),
            message: error.to_string(),
            notes: Vec::new(),
            next: next.filter(|_| goes_on(error)),
            is_told: false,
        }
    }

    /// Returns the end of a run that is over.
    pub fn of_state(state: &RunState, notes: Vec<String>) -> Ending {
        let reason = state.reason.unwrap_or(Reason::InternalError);
        let succeeded = state.phase == Phase::Success;
        Ending {
            outcome: if succeeded { "SUCCESS" } else { "FAILED" },
            exit_code: reason.exit_code(),
            reason,
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            message: message_of(state),
            notes,
            next: None,
            is_told: false,
        }
    }

    /// Returns the end of a command whose run can go on.
    pub fn unfinished(error: &Error, state: &RunState, notes: Vec<String>, next: String) -> Ending {
        let refused = Ending::refused(error, Some(next));
        Ending {
            outcome: if matches!(error, Error::Paused(..)) { "PAUSED" } else { "INTERRUPTED" },
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            notes,
            ..refused
        }
    }

    /// Says that the console has told the end.
    pub fn told(mut self) -> Ending {
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
            complain(&format!("error: {}", self.message));
        }
        if let Some(next) = &self.next {
            complain(&format!("next: {next}"));
        }
        if json {
            return self.print_json();
        }
        if self.outcome != "REFUSED" {
            let run = self.run_id.as_deref().unwrap_or("-");
            let line = format!("{} ({}): {} [run {run}]\n", self.outcome, self.reason, one_line(&self.message));
            write_stdout(&line);
        }
        self.exit_code
    }

    /// Prints the one JSON object and returns the exit code.
    pub fn print_json(self) -> u8 {
        let text = serde_json::to_string(&self).unwrap_or_else(|_| "{}".into());
        write_stdout(&(text + "\n"));
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
    let plain = crate::observers::plain::plain_text(text);
    let first = plain.lines().next().unwrap_or_default();
    first.chars().take(300).collect()
}

/// Whether the same command can go on after this end.
fn goes_on(error: &Error) -> bool {
    matches!(error, Error::Stopped(_) | Error::Paused(..) | Error::Io { .. } | Error::Locked(_))
}

/// Returns the command that goes on, ready to be pasted into a shell.
pub fn next_command(arguments: &RunArguments, surroundings: &Surroundings) -> String {
    let mut words = vec!["orchestrator".to_owned(), "run".to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| [name.to_owned(), quoted(&value)]).into_iter().flatten());
    };
    let shown = |path: &Path| path.display().to_string();
    option("--spec", arguments.spec.as_deref().map(shown));
    option("--root", surroundings.named_root.as_deref().map(shown));
    option("--max-retries", arguments.max_retries.map(|number| number.to_string()));
    option("--provider", arguments.provider.clone());
    option("--model", arguments.model.clone());
    option("--replay", arguments.replay.as_deref().map(shown));
    let flags = [
        ("--debug", arguments.debug),
        ("--quiet", arguments.quiet),
        ("--json", arguments.json),
        ("--no-sandbox", arguments.no_sandbox),
    ];
    words.extend(flags.iter().filter(|(_, given)| *given).map(|(name, _)| (*name).to_owned()));
    words.join(" ")
}

/// Quotes a word for a POSIX shell where it needs it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("specs/a.yaml"), "specs/a.yaml");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
    }
}
