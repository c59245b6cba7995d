//! The sandbox of a child: what it may reach, and how that is enforced.
//!
//! `plan` builds the policy of a run, `probe` finds the mode that this system supports. The supervisor applies the
//! layers in the process that becomes the command, or in its init: namespaces (`namespaces`) with mounts of exactly what
//! the policy lists (`mounts`), then limits and privileges (`restrict`), Landlock and seccomp. Fail closed: if a layer
//! cannot be applied, the command is not started. `limits` watches what the kernel does not limit for a whole tree.

pub(super) mod escape;
pub(super) mod failure;
pub(crate) mod hints;
pub(super) mod init;
mod landlock;
pub(crate) mod limits;
mod messages;
mod mounts;
mod namespaces;
pub(crate) mod plan;
pub(crate) mod policy;
pub mod probe;
mod restrict;
mod seccomp;
mod syscalls;
pub(super) mod trace;

pub use self::policy::{ResourceLimits, SandboxMode, SandboxPolicy};
