//! What a command line names: a spec or a workflow, with a flag or as a bare path, and the flags that go with each.

use std::path::{Path, PathBuf};

use crate::cli::RunArguments;
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

/// Reads a sum of money of the command line.
pub fn usd(text: &str) -> std::result::Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(usd),
        _ => Err("expected an amount in USD that is not negative, such as 2.50".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_a_finite_number_that_is_not_negative() {
        for (text, expected) in [("0", 0.0), ("2.5", 2.5), ("1e-3", 0.001), (" 7 ", 7.0)] {
            assert_eq!(usd(text), Ok(expected), "{text}");
        }
        for text in [
            "nan", "inf", "-1", "-0.01", "", "five", "1,5", "$1", "1e400",
        ] {
            assert!(usd(text).is_err(), "{text}");
        }
    }
}
