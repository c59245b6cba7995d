//! What a command line names: a spec or a workflow, by a flag or by a bare path.

use std::path::{Path, PathBuf};

use crate::cli::arguments::RunArguments;
use crate::cli::env::CliEnv;
use crate::cli::missing_target::missing_target;
use crate::error::{Error, Result};
use crate::text::invisible::printable;

/// What is to be run or checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunTarget {
    Spec(PathBuf),
    Workflow(PathBuf),
}

impl RunTarget {
    /// What `run` is asked to run.
    pub(super) fn of_run(arguments: &RunArguments, env: &CliEnv) -> Result<RunTarget> {
        match (&arguments.spec, &arguments.workflow, &arguments.path) {
            (Some(file), ..) => Ok(RunTarget::Spec(file.clone())),
            (None, Some(folder), _) => Ok(RunTarget::Workflow(folder.clone())),
            (None, None, Some(path)) => RunTarget::of_path(path, &["--spec", "--workflow"]),
            (None, None, None) => Err(missing_target(env)),
        }
    }

    /// What a path without a flag names: a folder is a workflow, a YAML or JSON file a spec. `flags` are those of the
    /// command that decide it for any other path.
    pub(super) fn of_path(path: &Path, flags: &[&str]) -> Result<RunTarget> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        match extension.to_str() {
            _ if path.is_dir() => Ok(RunTarget::Workflow(path.to_owned())),
            Some("yaml" | "yml" | "json") => Ok(RunTarget::Spec(path.to_owned())),
            _ => Err(ambiguous(path, flags)),
        }
    }
}

fn ambiguous(path: &Path, flags: &[&str]) -> Error {
    let shown = printable(&path.to_string_lossy());
    let missing = if path.exists() {
        ""
    } else {
        " (it does not exist)"
    };
    let flags: Vec<String> = flags.iter().map(|flag| format!("{flag} {shown}")).collect();
    Error::Usage(format!(
        "cannot tell whether {shown} is a spec or a workflow{missing}\n\
         help: use {}; without a flag a folder is a workflow, and a .yaml, .yml or .json file a spec",
        flags.join(" or ")
    ))
}

/// Refuses flags that do not work with a spec.
pub(super) fn refuse_flags(arguments: &RunArguments) -> Result<()> {
    match arguments.workflow_flags.first_given() {
        Some((flag, instead)) => Err(Error::Usage(format!(
            "{flag} does not work with a spec, only with a workflow\nhelp: {instead}"
        ))),
        None => Ok(()),
    }
}
