//! Stateful environments: a shell, an interpreter, an editor, and the user's own programs.
//!
//! `registry.rs` routes commands to them by name and collects their screens; `builtin.rs` creates them. A command is
//! begun and then waited for, so that the wait can be interrupted for something more urgent. `session.rs` is the child
//! behind most of them, `channel.rs` the socket to it, `output/` its output, cleaned and bounded.

pub(crate) mod adhoc;
pub(crate) mod bash;
pub(crate) mod builtin;
mod channel;
pub(crate) mod editor;
pub(crate) mod output;
pub(crate) mod python;
pub(crate) mod registry;
mod repeat_timer;
pub(crate) mod session;

use std::os::fd::BorrowedFd;
use std::time::Instant;

/// The result of a command, or of its part so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub output: String,
    pub success: bool,
    /// Whether the command still runs.
    pub running: bool,
}

impl Response {
    pub fn done(output: impl Into<String>) -> Response {
        Response {
            output: output.into(),
            success: true,
            running: false,
        }
    }

    pub fn failed(output: impl Into<String>) -> Response {
        Response {
            output: output.into(),
            success: false,
            running: false,
        }
    }
}

/// An environment's part of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScreenSection {
    pub content: String,
    pub max_lines: usize,
}

impl ScreenSection {
    /// The default of `max_lines`.
    pub const MAX_LINES: usize = 50;

    pub fn new(content: impl Into<String>) -> ScreenSection {
        ScreenSection {
            content: content.into(),
            max_lines: Self::MAX_LINES,
        }
    }
}

/// How long to wait for a command: until `deadline`, or until `wake` is readable.
#[derive(Debug, Clone, Copy)]
pub struct WaitLimit<'a> {
    pub deadline: Option<Instant>,
    pub wake: BorrowedFd<'a>,
}

impl WaitLimit<'_> {
    /// Whether the deadline has passed.
    pub fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// Why a wait returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitResult {
    /// The command has ended; the response has all output since the last one.
    Ended(Response),
    /// The deadline has passed; the command still runs.
    Late,
    /// `wake` is readable.
    Woken,
}

/// Why an environment could not be created; the text is shown to the agent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CreateError(pub String);

/// Executes commands one at a time and keeps state between them.
pub trait Environment: Send {
    /// Starts one command. Returns a response if it has ended already: it was executed at once, or could not be begun.
    /// A command that fails is a response, not an error. Not called while `is_running`.
    fn begin(&mut self, command: &str) -> Option<Response>;

    /// Waits for the running command. Called only while `is_running`.
    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult;

    /// Takes the output since the last answer while the command runs.
    fn take_output(&mut self) -> String;

    /// Whether a command was begun and `wait` has not returned its end.
    fn is_running(&self) -> bool;

    /// Sends SIGINT to the foreground command, if there is one.
    fn interrupt(&mut self);

    /// Ends every process of the environment; the next command starts a fresh one.
    fn restart(&mut self);

    /// Why a restart failed.
    fn problem(&self) -> Option<String> {
        None
    }

    /// How the last command ended, such as `exit status 7`.
    fn last_end(&self) -> String {
        "its result was given".into()
    }

    /// Requests the screen if that takes time. Called for all environments before `screen` is called for the first.
    fn prepare_screen(&mut self) {}

    /// What the agent sees now. Called after every command of every environment, so it must be cheap.
    fn screen(&mut self) -> ScreenSection;

    /// Requests a shutdown if that takes time. Called for all environments before `shutdown` is called for the first.
    fn prepare_shutdown(&mut self) {}

    /// Ends children and closes files. Called once.
    fn shutdown(&mut self) {}
}
