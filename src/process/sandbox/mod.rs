//! The walls around a child: what it may reach, as plain data.
//!
//! `policy` decides what the walls of a run hold, `watch` looks after the limits that no kernel keeps for a whole tree;
//! raising the walls is done in the child, before its program starts.

mod count;
pub mod group;
pub mod policy;
mod usage;
pub mod watch;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How much of the wall this system gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Namespaces, a read-only tree, seccomp and Landlock.
    Full,
    /// The same on a kernel without Landlock.
    FullWithoutLandlock,
    /// No namespaces: Landlock (version 3 or newer) and seccomp.
    Reduced,
}

/// What a child may reach.
///
/// Of `write`, `read` and `hide` the deepest entry that holds a path decides: a workspace can lie in something hidden,
/// and that in something readable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walls {
    pub mode: Mode,
    /// Absolute and canonical; the first one is the workspace.
    pub write: Vec<PathBuf>,
    /// Below `write`: read-only for children.
    pub freeze: Vec<PathBuf>,
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
    pub limits: Limits,
}

/// What a check, phase or agent may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
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
