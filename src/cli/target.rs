//! What a command line names: a spec or a workflow, with a flag or as a bare path, and the flags that go with each.

use std::path::{Path, PathBuf};

use crate::cli::arguments::RunArguments;
use crate::error::{Error, Result};
use crate::observers::printable::plain_text;

/// What is to be run or checked.
#[derive(Debug, PartialEq, Eq)]
pub enum RunTarget {
    Spec(PathBuf),
    Workflow(PathBuf),
}

impl RunTarget {
    /// Returns what a path without a flag names: a folder is a workflow, a YAML or JSON file a spec.
    ///
    /// `flags` are those of the command that say it where the path does not.
    pub fn of_path(path: &Path, flags: &[&str]) -> Result<RunTarget> {
        let outcome = path.extension().unwrap_or_default().to_ascii_lowercase();
        match outcome.to_str() {
            _ if path.is_dir() => Ok(RunTarget::Workflow(path.to_owned())),
            Some("yaml" | "yml" | "json") => Ok(RunTarget::Spec(path.to_owned())),
            _ => Err(ambiguous(path, flags)),
        }
    }
}

impl RunArguments {
    /// Puts a bare path where its flag would have put it.
    pub fn resolve_path(&mut self) -> Result<()> {
        match self
            .path
            .take()
            .map(|path| RunTarget::of_path(&path, &["--spec", "--workflow"]))
            .transpose()?
        {
            Some(RunTarget::Spec(path)) => self.spec = Some(path),
            Some(RunTarget::Workflow(path)) => self.workflow = Some(path),
            None => {}
        }
        Ok(())
    }
}

/// Returns the refusal of something that a later version will have.
pub fn not_there_yet(what: &str) -> Error {
    Error::Usage(format!(
        "{what} is not there yet in version {}",
        env!("CARGO_PKG_VERSION")
    ))
}

fn ambiguous(path: &Path, flags: &[&str]) -> Error {
    let shown = plain_text(&path.to_string_lossy());
    let is_there = if path.exists() {
        ""
    } else {
        " (and there is nothing of this name)"
    };
    let flags: Vec<String> = flags.iter().map(|flag| format!("{flag} {shown}")).collect();
    let flags = flags.join(" or ");
    Error::Usage(format!(
        "cannot tell whether {shown} is a spec or a workflow{is_there}; say {flags} \
         (without a flag a folder is a workflow, and a .yaml, .yml or .json file a spec)"
    ))
}

/// Refuses a flag of workflows in the run of a spec; nothing is passed over in silence.
pub fn refuse_flags_of_workflows(arguments: &RunArguments) -> Result<()> {
    let given = [
        (
            "--input",
            arguments.input.is_some(),
            "the spec's `description` says what to build",
        ),
        (
            "--project-dir",
            arguments.project_dir.is_some(),
            "a spec is built in the root's workspace/; see --root",
        ),
        (
            "--price",
            !arguments.price.is_empty(),
            "say `generator: {price: {input: IN, output: OUT}}` in the spec",
        ),
        (
            "--jobs",
            arguments.jobs.is_some(),
            "the checks of a spec run one after the other",
        ),
        (
            "--timeout",
            arguments.timeout.is_some(),
            "say `timeout` of a check or `generator.phase_timeout` in the spec",
        ),
        (
            "--network",
            arguments.network,
            "say `sandbox: {network: true}` in the spec",
        ),
        (
            "--read",
            !arguments.read.is_empty(),
            "say `sandbox: {read: [PATH]}` in the spec",
        ),
        (
            "--keep-env",
            !arguments.keep_env.is_empty(),
            "say `env` of a check in the spec",
        ),
        (
            "--answer",
            !arguments.answer.is_empty(),
            "a spec asks no questions",
        ),
    ];
    match given.iter().find(|(_, is_given, _)| *is_given) {
        Some((flag, _, instead)) => Err(Error::Usage(format!(
            "{flag} belongs to workflows and does not work with a spec; {instead}"
        ))),
        None => Ok(()),
    }
}
