//! The trial.

use std::ffi::OsString;

use crate::process::Ended;

/// Tries to escape.
pub(in crate::process) fn try_to_escape(_arguments: &[OsString]) -> Ended {
    Ended::Exited(0)
}
