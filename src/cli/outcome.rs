//! The result of `run`: one line for people, or one JSON object.

use std::fmt;
use std::io::IsTerminal;

use serde::Serialize;

use crate::build::rounds::CheckResult;
use crate::cli::output::{print_error, print_stderr, write_stdout};
use crate::error::{Error, PAUSED_EXIT_CODE};
use crate::events::MAIN_AGENT;
use crate::observers::workflow_text::run_lines;
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::{RunState, UsageTotals};
use crate::state::workflow::{WorkflowPhase, WorkflowState};
use crate::text::invisible::{escaped, printable};
use crate::text::shorten::first_names;
use crate::text::terminal::rendered;

/// How many changed files a message names.
const SHOWN_CHANGES: usize = 20;
/// How much of a message the line on stdout has.
const SHOWN_CHARACTERS: usize = 300;

/// The result of a `run`, in the fields of its JSON object.
#[derive(Debug, Serialize)]
pub(super) struct RunOutcome {
    outcome: OutcomeWord,
    exit_code: u8,
    reason: Reason,
    pub(super) run_id: Option<String>,
    pub(super) retry_count: u32,
    pub(super) usage: UsageTotals,
    message: String,
    notes: Vec<String>,
    pub(super) checks: Vec<CheckResult>,
    next: Option<String>,
    /// Of a workflow: the payload of `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Option<String>>,
    /// What goes on.
    #[serde(skip)]
    next_step: ResumeWay,
    /// Whether the console has shown the message.
    #[serde(skip)]
    is_shown: bool,
}

/// What goes on after a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResumeWay {
    Nothing,
    /// The same command.
    Same,
    /// The command with `--continue`.
    Continue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
enum OutcomeWord {
    Success,
    Failed,
    Paused,
    Interrupted,
    Refused,
}

impl fmt::Display for OutcomeWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutcomeWord::Success => "SUCCESS",
            OutcomeWord::Failed => "FAILED",
            OutcomeWord::Paused => "PAUSED",
            OutcomeWord::Interrupted => "INTERRUPTED",
            OutcomeWord::Refused => "REFUSED",
        })
    }
}

impl RunOutcome {
    /// A result with this end, of which nothing else is known.
    fn new(outcome: OutcomeWord, reason: Reason, message: String) -> RunOutcome {
        RunOutcome {
            outcome,
            exit_code: reason.exit_code(),
            reason,
            run_id: None,
            retry_count: 0,
            usage: UsageTotals::none(true),
            message,
            notes: Vec::new(),
            checks: Vec::new(),
            next: None,
            result: None,
            next_step: ResumeWay::Nothing,
            is_shown: false,
        }
    }

    /// The result of a command that ran nothing.
    pub(super) fn refused(error: &Error) -> RunOutcome {
        let outcome = match error {
            Error::Stopped(_) => OutcomeWord::Interrupted,
            Error::Paused(..) => OutcomeWord::Paused,
            Error::StateCorrupt(_) => OutcomeWord::Failed,
            _ => OutcomeWord::Refused,
        };
        RunOutcome {
            exit_code: error.exit_code(),
            next_step: next_after(error),
            ..RunOutcome::new(outcome, error.reason(), error.to_string())
        }
    }

    /// The result of a run that is over.
    pub(super) fn of_state(state: &RunState, notes: Vec<String>) -> RunOutcome {
        let reason = state.reason.unwrap_or(Reason::InternalError);
        let outcome = match state.phase {
            Phase::Success => OutcomeWord::Success,
            _ => OutcomeWord::Failed,
        };
        RunOutcome {
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            notes,
            next_step: match (state.phase, reason.is_continuable()) {
                (Phase::Failed, true) => ResumeWay::Continue,
                _ => ResumeWay::Nothing,
            },
            ..RunOutcome::new(outcome, reason, end_message(state))
        }
    }

    /// The result of a run that was stopped.
    pub(super) fn unfinished(error: &Error, state: &RunState, notes: Vec<String>) -> RunOutcome {
        RunOutcome {
            outcome: if matches!(error, Error::Paused(..)) {
                OutcomeWord::Paused
            } else {
                OutcomeWord::Interrupted
            },
            run_id: Some(state.run_id.clone()),
            retry_count: state.retry_count,
            usage: state.usage,
            notes,
            ..RunOutcome::refused(error)
        }
    }

    /// The result of a command about a workflow, whether or not it ran.
    pub(super) fn of_workflow(mut self) -> RunOutcome {
        self.result.get_or_insert(None);
        self
    }

    /// The result of a workflow whose agents cannot go on, or have all ended.
    pub(super) fn of_workflow_state(
        state: &WorkflowState,
        notes: Vec<String>,
        message: String,
    ) -> RunOutcome {
        let outcome = match state.state {
            WorkflowPhase::Success => OutcomeWord::Success,
            WorkflowPhase::Paused => OutcomeWord::Paused,
            WorkflowPhase::Failed | WorkflowPhase::Running => OutcomeWord::Failed,
        };
        let reason = state.reason.unwrap_or(Reason::InternalError);
        let of_reason = RunOutcome::new(outcome, reason, message);
        RunOutcome {
            // A budget that is used up ends a build and pauses a workflow.
            exit_code: match outcome {
                OutcomeWord::Paused => PAUSED_EXIT_CODE,
                _ => of_reason.exit_code,
            },
            run_id: Some(state.run_id.clone()),
            usage: state.usage,
            notes,
            result: Some(state.results.get(MAIN_AGENT).cloned()),
            next_step: match outcome != OutcomeWord::Success && !state.is_corrupt() {
                true => ResumeWay::Same,
                false => ResumeWay::Nothing,
            },
            ..of_reason
        }
    }

    /// The result of a workflow that ended with an error of its run, not of an agent.
    pub(super) fn failed_workflow(
        state: &WorkflowState,
        notes: Vec<String>,
        reason: Reason,
        message: String,
    ) -> RunOutcome {
        RunOutcome {
            outcome: OutcomeWord::Failed,
            exit_code: reason.exit_code(),
            reason,
            next_step: ResumeWay::Nothing,
            ..RunOutcome::of_workflow_state(state, notes, message)
        }
    }

    /// The result of a workflow that was stopped.
    pub(super) fn unfinished_workflow(
        error: &Error,
        state: &WorkflowState,
        notes: Vec<String>,
    ) -> RunOutcome {
        RunOutcome {
            outcome: match error {
                Error::StateCorrupt(_) => OutcomeWord::Failed,
                _ => OutcomeWord::Interrupted,
            },
            run_id: Some(state.run_id.clone()),
            usage: state.usage,
            notes,
            result: Some(state.results.get(MAIN_AGENT).cloned()),
            ..RunOutcome::refused(error)
        }
    }

    /// A SUCCESS whose workspace has changed since it was tested is a failure.
    pub(super) fn with_changes(self, changes: &[String]) -> RunOutcome {
        if changes.is_empty() {
            return self;
        }
        let files: Vec<String> = changes.iter().map(|name| escaped(name)).collect();
        let files = first_names(&files, SHOWN_CHANGES);
        let reason = Reason::WorkspaceChanged;
        RunOutcome {
            outcome: OutcomeWord::Failed,
            exit_code: reason.exit_code(),
            reason,
            message: format!(
                "workspace changed since: {files}; --continue goes on with it, --no-resume starts a new run"
            ),
            next_step: ResumeWay::Continue,
            ..self
        }
    }

    /// Adds the results of the last round of checks.
    pub(super) fn with_checks(mut self, checks: &[CheckResult]) -> RunOutcome {
        self.checks = checks.to_vec();
        self
    }

    /// Adds the command that goes on, if one can; `command` is asked for it with or without `--continue`.
    pub(super) fn with_next(mut self, command: impl FnOnce(bool) -> String) -> RunOutcome {
        self.next = match self.next_step {
            ResumeWay::Nothing => None,
            ResumeWay::Same => Some(command(false)),
            ResumeWay::Continue => Some(command(true)),
        };
        self
    }

    /// Marks that the console has shown the message.
    pub(super) fn already_shown(mut self) -> RunOutcome {
        self.is_shown = true;
        self
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// Whether the console has shown the message.
    pub(super) fn is_shown(&self) -> bool {
        self.is_shown
    }

    pub(super) fn is_paused_by(&self, reason: Reason) -> bool {
        self.outcome == OutcomeWord::Paused && self.reason == reason
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The outcome with its fixed word, such as `FAILED (stuck)`, unless both say the same.
    pub(super) fn title(&self) -> String {
        match self.reason {
            Reason::Interrupted => self.outcome.to_string(),
            reason => format!("{} ({reason})", self.outcome),
        }
    }

    /// Prints the result and returns the exit code.
    pub(super) fn print(self, json: bool) -> u8 {
        if !self.is_shown && self.exit_code != 0 {
            self.print_line(&format!("error: {}", self.message));
        }
        if let Some(next) = &self.next {
            self.print_line(&format!("next: {next}"));
        }
        if json {
            return self.print_json();
        }
        if let Some(payload) = &self.result {
            return self.print_payload(payload.as_deref());
        }
        if self.outcome != OutcomeWord::Refused {
            let run_id = self.run_id.as_deref().unwrap_or("-");
            let message = first_line(&self.message);
            let message = message.strip_prefix("interrupted ").unwrap_or(&message);
            let line = format!("{}: {message} [run {run_id}]\n", self.title());
            let _ = write_stdout(&line);
        }
        self.exit_code
    }

    /// Prints the payload of a workflow that succeeded. A terminal gets no control characters.
    fn print_payload(&self, payload: Option<&str>) -> u8 {
        let Some(payload) = payload.filter(|_| self.outcome == OutcomeWord::Success) else {
            return self.exit_code;
        };
        let payload = match std::io::stdout().is_terminal() {
            true => without_controls(payload),
            false => payload.to_owned(),
        };
        match write_stdout(&(payload + "\n")) {
            Ok(()) => self.exit_code,
            Err(error) => print_error(&error),
        }
    }

    /// Prints for people; in a workflow every line says whose it is.
    fn print_line(&self, text: &str) {
        match self.result {
            None => print_stderr(text),
            Some(_) => print_stderr(&run_lines(text)),
        }
    }

    /// Prints the JSON object and returns the exit code.
    pub(super) fn print_json(self) -> u8 {
        let text = serde_json::to_string(&self).unwrap_or_else(|_| "{}".into());
        let _ = write_stdout(&(text + "\n"));
        self.exit_code
    }
}

/// A text without control characters, except for the ends of its lines and tabs.
fn without_controls(text: &str) -> String {
    let is_kept = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let plain = String::from_utf8_lossy(text.as_bytes()).into_owned();
    let rendered = rendered(plain.as_bytes());
    rendered.chars().filter(is_kept).collect()
}

fn end_message(state: &RunState) -> String {
    if state.reason == Some(Reason::AlreadyGreen) {
        return "all checks pass without any work: no model was asked, nothing was written".into();
    }
    match (&state.last_error, state.retry_count) {
        (Some(error), _) => error.clone(),
        (None, 0) => "all checks passed at the first attempt".into(),
        (None, 1) => "all checks passed after 1 patch".into(),
        (None, patches) => format!("all checks passed after {patches} patches"),
    }
}

fn first_line(text: &str) -> String {
    let plain = printable(text);
    let first = plain.lines().next().unwrap_or_default();
    first.chars().take(SHOWN_CHARACTERS).collect()
}

fn next_after(error: &Error) -> ResumeWay {
    match error {
        Error::Stopped(_) | Error::Paused(..) | Error::Io { .. } | Error::Locked(_) => {
            ResumeWay::Same
        }
        Error::Usage(_)
        | Error::Spec(_)
        | Error::Findings(_)
        | Error::Safety(_)
        | Error::NoSandbox(_)
        | Error::StateCorrupt(_)
        | Error::Failed(..)
        | Error::Bug(_) => ResumeWay::Nothing,
    }
}
