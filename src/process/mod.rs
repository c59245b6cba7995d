//! The only room that starts children.
//!
//! A child never starts alone: a keeper, this binary under a hidden command, starts it, adopts everything it leaves
//! behind, and ends the whole tree when the child is done, its time is over, or the orchestrator is gone.

pub mod capture;
pub mod environment;
pub mod keeper;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::process::capture::Captured;

/// A program to run to its end.
#[derive(Debug, Clone)]
pub struct Job {
    pub command: Vec<OsString>,
    pub cwd: PathBuf,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub timeout: Duration,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    /// It could not be started, and why.
    CannotStart(String),
}

/// What is left of a job.
#[derive(Debug)]
pub struct Finished {
    pub ended: Ended,
    pub stdout: Captured,
    pub stderr: Captured,
    pub took: Duration,
}
