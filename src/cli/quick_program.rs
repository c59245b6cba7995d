//! Starts a short program of the user's, such as `python3 --version`, with a time limit and without keys.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::cli::env::{CliEnv, own_launcher};
use crate::error::Result;
use crate::llm::provider::KEY_VARIABLES;
use crate::process::check_env::find_program;
use crate::process::{self, Finished, Job, JobChannels};

/// How long such a program may take.
pub(super) const QUICK_LIMIT: Duration = Duration::from_secs(5);

/// Finds a program on the caller's PATH, as a check does.
pub(super) fn find_on_path(env: &CliEnv, name: &str) -> Option<PathBuf> {
    let path = env.text("PATH").unwrap_or_default();
    find_program(
        OsStr::new(&path),
        OsStr::new(name),
        &env.root.join("workspace"),
    )
}

/// Runs a program to its end or to the limit. It works in `/`, where no file of a project can change what it does.
pub(super) fn run_quickly(
    env: &CliEnv,
    program: &Path,
    arguments: &[&str],
    cancel: &CancelToken,
) -> Result<Finished> {
    let is_key = |name: &OsString| KEY_VARIABLES.iter().any(|(key, _)| name == key);
    let arguments = arguments.iter().map(OsString::from);
    let job = Job {
        command: std::iter::once(program.into()).chain(arguments).collect(),
        cwd: PathBuf::from("/"),
        env: env.variables().filter(|(name, _)| !is_key(name)).collect(),
        timeout: QUICK_LIMIT,
    };
    process::run(&own_launcher(), &job, JobChannels::NONE, cancel)
}
