//! Paths that command lines name: the folder that programs work in, and what they may read.

use std::path::{Path, PathBuf};

use crate::cli::env::CliEnv;
use crate::error::{Error, Result};
use crate::process::sandbox::plan;

/// The folder at a path, links resolved; `what` names it in messages. Inside a sandbox it is not the home or above it.
pub(super) fn working_folder(
    path: &Path,
    what: &str,
    has_sandbox: bool,
    env: &CliEnv,
) -> Result<PathBuf> {
    let refuse =
        |problem: &str| Error::Usage(format!("invalid {what} {}: {problem}", path.display()));
    let real = path
        .canonicalize()
        .map_err(|error| refuse(&error.to_string()))?;
    if !real.is_dir() {
        return Err(refuse("it is not a directory"));
    }
    let home = env.home().and_then(|home| home.canonicalize().ok());
    let is_too_much = real == Path::new("/") || home.is_some_and(|home| home.starts_with(&real));
    match is_too_much && has_sandbox {
        true => Err(refuse(
            "it is your home or above it; name a folder below your home, or use --no-sandbox",
        )),
        false => Ok(real),
    }
}

/// The paths of `--read`, absolute.
pub(super) fn readable_paths(given: &[PathBuf], env: &CliEnv) -> Result<Vec<PathBuf>> {
    let check = |path: &PathBuf| {
        let path = env.absolute(path);
        let refuse =
            |problem: String| Error::Usage(format!("invalid --read {}: {problem}", path.display()));
        path.metadata().map_err(|error| refuse(error.to_string()))?;
        match plan::refusal(&path) {
            Some(problem) => Err(refuse(format!("it {problem}"))),
            None => Ok(path),
        }
    };
    given.iter().map(check).collect()
}
