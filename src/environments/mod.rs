//! Places that remember: a shell, an interpreter, an editor, and the user's own programs.
//!
//! Each is an `Environment`; `registry.rs` routes commands to them by name and collects their screens. A command is
//! begun and then waited for, so that whoever waits can be woken for something more urgent. `session.rs` is the
//! child behind most of them, `output.rs` what it printed: cleaned, bounded, in order.

pub mod adhoc;
pub mod bash;
pub mod builtin;
pub mod editor;
pub mod output;
pub mod python;
pub mod registry;
pub mod session;

use std::os::fd::BorrowedFd;
use std::time::Instant;

/// What a command came to, or has come to so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub output: String,
    pub success: bool,
    /// Whether the command has not ended.
    pub running: bool,
}

impl Response {
    /// Returns the response of a command that was carried out.
    pub fn done(output: impl Into<String>) -> Response {
        Response {
            output: output.into(),
            success: true,
            running: false,
        }
    }

    /// Returns the response of a command that was not.
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
    /// How many lines a section has room for where nothing else is said.
    pub const MAX_LINES: usize = 50;

    /// Returns a section with room for the usual number of lines.
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

/// What a wait ended with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitResult {
    /// The command has ended; all it printed since the last answer is in the response.
    Ended(Response),
    /// The deadline has passed and the command goes on.
    Late,
    /// Something more urgent came up.
    Woken,
}

/// A place that remembers.
pub trait Environment {
    /// Starts one command. `Some` is its end already: it was carried out at once, or could not be begun; a command
    /// that fails is a response, not an error. Never called while `is_running`.
    fn begin(&mut self, command: &str) -> Option<Response>;

    /// Waits for the command that is under way. Called only while `is_running`.
    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult;

    /// Takes what was printed since the last answer, while the command goes on.
    fn take_output(&mut self) -> String;

    /// Whether a command is under way: begun, and its end not yet given out by `wait`.
    fn is_running(&self) -> bool;

    /// Sends Ctrl+C to what runs in the foreground. Nothing running is fine.
    fn interrupt(&mut self);

    /// Ends every process of the environment; the next command finds a fresh one.
    fn restart(&mut self);

    /// Returns why there is no fresh one after a restart, where that is so.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Returns how the last command ended, in words such as `exit status 7`.
    fn last_end(&self) -> String {
        "its result was given".into()
    }

    /// Asks for what `screen` will return, where that takes a while; all environments are asked before the first
    /// one has to answer.
    fn prepare_screen(&mut self) {}

    /// Returns what an agent sees now. Asked after every command of every environment, so it is cheap.
    fn screen(&mut self) -> ScreenSection;

    /// Asks for the end, where it is given time; all environments are asked before the first one is ended.
    fn prepare_shutdown(&mut self) {}

    /// Ends children and closes files. Called once.
    fn shutdown(&mut self) {}
}
