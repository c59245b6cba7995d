//! `lint`: finds mistakes in a spec or a workflow. Runs nothing, needs no key, changes nothing.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::build::spec::{collect_inputs, read_spec};
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::output::{print_error, print_stderr, write_stdout};
use crate::cli::programs::refuse_missing;
use crate::cli::run_config::known_price;
use crate::cli::target::RunTarget;
use crate::error::{Error, Result};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::SandboxMode;
use crate::source::code;
use crate::source::finding::{Finding, FindingLevel};
use crate::state::reason::Reason;
use crate::text::invisible::printable;
use crate::workflow::lint::lint_path;

/// Lints what the path or `--spec` names, and returns the exit code.
pub(super) fn main(
    env: &CliEnv,
    path: Option<PathBuf>,
    spec: Option<PathBuf>,
    as_json: bool,
) -> u8 {
    let found = target(path, spec).and_then(|target| match target {
        RunTarget::Spec(file) => Ok((lint_spec(env, &file)?, file)),
        RunTarget::Workflow(path) => Ok((lint_path(&path), path)),
    });
    let printed = found.and_then(|(findings, path)| {
        match as_json {
            true => print_json(&findings)?,
            false => print_findings(&findings, &path)?,
        }
        Ok(exit_code(&findings))
    });
    printed.unwrap_or_else(|error| print_error(&error))
}

fn target(path: Option<PathBuf>, spec: Option<PathBuf>) -> Result<RunTarget> {
    match (path, spec) {
        (Some(path), _) if is_state(&path) => Ok(RunTarget::Workflow(path)),
        (Some(path), _) => RunTarget::of_path(&path, &["--spec"]),
        (None, spec) => Ok(RunTarget::Spec(spec.unwrap_or_default())),
    }
}

fn is_state(path: &Path) -> bool {
    let extension = path.extension();
    extension.is_some_and(|extension| extension == "md" || extension == "sh")
}

fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().any(Finding::is_error) {
        true => Reason::SpecInvalid.exit_code(),
        false => 0,
    }
}

fn print_json(findings: &[Finding]) -> Result<()> {
    let list: Vec<Value> = findings.iter().map(Finding::to_json).collect();
    write_stdout(&format!("{}\n", json!({ "findings": list })))
}

fn print_findings(findings: &[Finding], path: &Path) -> Result<()> {
    print_to_stderr(findings);
    let path = printable(&path.to_string_lossy());
    match findings.len() {
        _ if exit_code(findings) != 0 => Ok(()),
        0 => write_stdout(&format!("{path} is fine\n")),
        1 => write_stdout(&format!("{path} has no errors and 1 warning\n")),
        count => write_stdout(&format!("{path} has no errors and {count} warnings\n")),
    }
}

/// Prints findings for people.
pub(super) fn print_to_stderr(findings: &[Finding]) {
    for finding in findings {
        print_stderr(&format!("{}: {finding}", finding.level.word()));
    }
}

/// The findings about a spec, the files that it names and the programs of its checks.
fn lint_spec(env: &CliEnv, file: &Path) -> Result<Vec<Finding>> {
    check_spec(env, file).or_else(|error| mistakes(error, file))
}

fn check_spec(env: &CliEnv, file: &Path) -> Result<Vec<Finding>> {
    let spec = read_spec(file, env.home().as_deref(), &[])?;
    let inputs = collect_inputs(&spec, &env.root, &cancel_on_signals()?)?;
    inputs.left_out.iter().for_each(|line| print_stderr(line));
    let price = known_price(&spec).err();
    let caller = CallerEnv::new(env.variables());
    // The sandbox is not probed: the full one shows no less than the others.
    let programs = refuse_missing(&spec, &env.root, &caller, Some(SandboxMode::Full)).err();
    let mut findings: Vec<Finding> = spec.warnings.into_iter().chain(inputs.warnings).collect();
    for error in [price, programs].into_iter().flatten() {
        findings.extend(mistakes(error, file)?);
    }
    findings.sort_by_key(|finding| (finding.line, finding.column));
    Ok(findings)
}

/// The findings of an error about a spec; any other error stays one.
fn mistakes(error: Error, file: &Path) -> Result<Vec<Finding>> {
    match error {
        Error::Findings(findings) => Ok(findings),
        Error::Spec(text) => {
            let file = file.to_string_lossy();
            let text = text.trim_start_matches(&format!("{file}: "));
            Ok(vec![Finding::of_file(
                &file,
                FindingLevel::Error,
                code::INPUT,
                text,
            )])
        }
        other => Err(other),
    }
}
