//! The walls around a child: what it may reach, and how they are raised.
//!
//! `policy` decides what the walls of a run hold, `trial` finds out what this system gives. Raising them is done below
//! the keeper, in the process that becomes the command, or in the one that is its init: new namespaces (`namespaces`)
//! with a tree that holds nothing but what is listed (`tree`), then limits and privileges (`restrict`), Landlock and
//! seccomp. Each step works or the command does not start. `watch` looks after the limits that no kernel keeps for a
//! whole tree.

mod init;
mod landlock;
pub mod limits;
mod messages;
mod mounts;
mod namespaces;
pub mod policy;
pub mod probe;
mod restrict;
mod seccomp;
pub mod shared_namespaces;
mod syscalls;

pub(super) use self::init::{AfterCommand, make_namespaces, start};

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How much of the wall this system gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxMode {
    /// Namespaces, a read-only tree, seccomp and Landlock.
    Full,
    /// The same on a kernel without Landlock.
    FullWithoutLandlock,
    /// No namespaces: Landlock (version 3 or newer) and seccomp.
    Reduced,
}

impl SandboxMode {
    /// Returns the mode as it is said.
    pub fn name(self) -> &'static str {
        match self {
            SandboxMode::Full => "full",
            SandboxMode::FullWithoutLandlock => "full (without Landlock)",
            SandboxMode::Reduced => "reduced",
        }
    }
}

/// What a child may reach.
///
/// Of `write`, `read` and `hide` the deepest entry that holds a path decides: a workspace can lie in something hidden,
/// and that in something readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    pub mode: SandboxMode,
    /// Absolute and canonical; the first one is the workspace.
    pub write: Vec<PathBuf>,
    /// Below `write`: read-only for children.
    pub freeze: Vec<PathBuf>,
    /// Below `freeze`: writable all the same.
    pub reopen: Vec<PathBuf>,
    /// Absolute, canonical and there: what may be read and executed.
    pub read: Vec<PathBuf>,
    /// Links that lead there, by place and target as it is written; they lie in nothing of the above.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// What is never there, though it lies below `read` or `write`.
    pub hide: Vec<PathBuf>,
    /// The private places as the child sees them.
    pub home: PathBuf,
    pub tmp: PathBuf,
    /// In reduced mode: the real directory that they lie in.
    pub private: Option<PathBuf>,
    /// Devices beyond the usual few.
    pub devices: Vec<PathBuf>,
    pub network: bool,
    pub limits: ResourceLimits,
}

impl SandboxPolicy {
    /// Returns where TMPDIR leads: to a folder that is empty at first, also where the way to the workspace leads through
    /// the private `/tmp`.
    pub fn tmpdir(&self) -> PathBuf {
        match self.mode {
            SandboxMode::Reduced => self.tmp.clone(),
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => self.tmp.join("private"),
        }
    }
}

/// What a check, phase or agent may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processes and threads.
    pub processes: u64,
    /// Resident bytes of the whole tree.
    pub memory: u64,
    /// Bytes by which the workspace may grow.
    pub disk: u64,
    /// Files in the workspace.
    pub files: u64,
    /// Bytes of one file.
    pub file_size: u64,
    /// Bytes of free space that stay.
    pub reserve: u64,
    /// Bytes of the private places together.
    pub private: u64,
}

/// What the walls are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxLayer {
    /// Namespaces, and the tree inside them.
    Namespaces,
    Landlock,
    Seccomp,
    /// Limits and privileges.
    Rights,
}

impl SandboxLayer {
    /// All of them; their places in it are their numbers on the wire.
    pub(super) const ALL: [SandboxLayer; 4] = [
        SandboxLayer::Namespaces,
        SandboxLayer::Landlock,
        SandboxLayer::Seccomp,
        SandboxLayer::Rights,
    ];
}

/// A part of the walls that could not be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxFailure {
    pub layer: SandboxLayer,
    /// The step, and what the system said.
    pub what: String,
}

impl SandboxFailure {
    fn new(layer: SandboxLayer, step: impl Display, error: impl Into<io::Error>) -> SandboxFailure {
        SandboxFailure {
            layer,
            what: format!("{step}: {}", error.into()),
        }
    }
}

impl Display for SandboxFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl From<SandboxFailure> for Error {
    /// What could be raised at the start of a run, and now cannot.
    fn from(failure: SandboxFailure) -> Error {
        Error::NoSandbox(format!("the sandbox cannot be raised any more: {failure}"))
    }
}
