//! A sandbox layer that could not be applied.

use std::fmt::{self, Display};
use std::io;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The layers of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxLayer {
    /// Namespaces, and the mounts in them.
    Namespaces,
    Landlock,
    Seccomp,
    /// Resource limits and privileges.
    Rights,
}

/// A layer that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxFailure {
    pub layer: SandboxLayer,
    /// The step that failed, and the error of the system.
    pub what: String,
}

impl SandboxFailure {
    pub(super) fn new(
        layer: SandboxLayer,
        step: impl Display,
        error: impl Into<io::Error>,
    ) -> SandboxFailure {
        SandboxFailure {
            layer,
            what: format!("cannot {step}: {}", error.into()),
        }
    }
}

impl Display for SandboxFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for SandboxFailure {}

impl From<SandboxFailure> for Error {
    /// For a layer that the probe at the start of the run could apply.
    fn from(failure: SandboxFailure) -> Error {
        Error::NoSandbox(format!("the sandbox cannot be applied any more: {failure}"))
    }
}
