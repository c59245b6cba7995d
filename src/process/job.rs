//! What is run, and how it ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

use crate::process::capture::Captured;
use crate::process::os_text;
use crate::process::sandbox::failure::SandboxFailure;

/// A program to run until it exits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    #[serde(with = "os_text")]
    pub command: Vec<OsString>,
    #[serde(with = "os_text")]
    pub cwd: PathBuf,
    /// The whole environment: nothing is inherited.
    #[serde(with = "os_text")]
    pub env: Vec<(OsString, OsString)>,
    /// Enforced by the orchestrator; a supervisor does not get it.
    #[serde(skip)]
    pub timeout: Duration,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    /// It was killed because it printed nothing for too long.
    Idle,
    /// It was killed because it printed too much on stdout.
    OutputLimit,
    /// It could not be started, and why.
    CannotStart(String),
    /// A layer of its sandbox could not be applied: it has not run.
    SandboxFailed(SandboxFailure),
    /// It was killed because it exceeded a limit: which, and by how much.
    Limit(String),
}

impl From<WaitStatus> for JobEnd {
    fn from(status: WaitStatus) -> JobEnd {
        match status.terminating_signal() {
            Some(number) => JobEnd::Signalled(number),
            None => JobEnd::Exited(status.exit_status().unwrap_or_default()),
        }
    }
}

/// The result of a job.
#[derive(Debug)]
pub struct Finished {
    pub ended: JobEnd,
    pub stdout: Captured,
    pub stderr: Captured,
    pub took: Duration,
}
