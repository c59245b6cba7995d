//! `lint`: checks whether a spec is valid. Runs nothing, needs no key, changes nothing.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::build::spec::{collect_inputs, read_spec};
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::output::{print_stderr, write_stdout};
use crate::cli::programs::refuse_missing;
use crate::cli::run_config::known_price;
use crate::cli::target::{RunTarget, not_supported_yet};
use crate::error::{Error, Result};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::SandboxMode;
use crate::text::invisible::printable;

/// Lints the spec that the path or `--spec` names, and returns the exit code.
pub(super) fn main(
    env: &CliEnv,
    path: Option<PathBuf>,
    spec: Option<PathBuf>,
    as_json: bool,
) -> u8 {
    let named = path.clone().or(spec.clone()).unwrap_or_default();
    let result = spec_file(path, spec).and_then(|file| lint(env, &file));
    let (code, warnings, error) = match result {
        Ok(warnings) => (0, warnings, None),
        Err(error) => (error.exit_code(), Vec::new(), Some(error.to_string())),
    };
    for warning in &warnings {
        print_stderr(&format!("warning: {warning}"));
    }
    if let Some(error) = &error {
        print_stderr(&format!("error: {error}"));
    }
    if as_json {
        let object =
            json!({"valid": code == 0, "exit_code": code, "warnings": warnings, "error": error});
        let _ = write_stdout(&format!("{object}\n"));
    } else if code == 0 {
        let _ = write_stdout(&format!(
            "{} is fine\n",
            printable(&named.to_string_lossy())
        ));
    }
    code
}

fn spec_file(path: Option<PathBuf>, spec: Option<PathBuf>) -> Result<PathBuf> {
    match path
        .map(|path| RunTarget::of_path(&path, &["--spec"]))
        .transpose()?
    {
        Some(RunTarget::Spec(file)) => Ok(file),
        Some(RunTarget::Workflow(_)) => Err(not_supported_yet("lint of a workflow")),
        None => Ok(spec.unwrap_or_default()),
    }
}

/// The warnings of a valid spec.
fn lint(env: &CliEnv, file: &Path) -> Result<Vec<String>> {
    let spec = read_spec(file, env.home().as_deref())?;
    let inputs = collect_inputs(&spec, &env.root, &cancel_on_signals()?)?;
    inputs.left_out.iter().for_each(|line| print_stderr(line));
    let price = known_price(&spec).err();
    let caller = CallerEnv::new(env.variables());
    // The sandbox is not probed: the full one shows no less than the others.
    let programs = refuse_missing(&spec, &env.root, &caller, Some(SandboxMode::Full)).err();
    match (price, programs) {
        (None, None) => Ok(spec.warnings.into_iter().chain(inputs.warnings).collect()),
        (Some(price), Some(programs)) => Err(Error::Spec(format!("{price}\n{programs}"))),
        (Some(error), None) | (None, Some(error)) => Err(error),
    }
}
