//! `lint --spec`: whether a spec validates. Nothing is run, no key is needed, nothing is changed.

use std::path::Path;

use serde_json::json;

use crate::cli::programs;
use crate::cli::surroundings::Surroundings;
use crate::cli::{complain, signals, write_stdout};
use crate::engine::spec::{inputs, read};
use crate::error::Result;
use crate::observers::plain::plain_text;
use crate::process::sandbox::Mode;

/// Checks the spec and returns the exit code.
pub fn main(surroundings: &Surroundings, spec: &Path, as_json: bool) -> u8 {
    let (code, warnings, error) = match check(surroundings, spec) {
        Ok(warnings) => (0, warnings, None),
        Err(error) => (error.exit_code(), Vec::new(), Some(error.to_string())),
    };
    for warning in &warnings {
        complain(&format!("warning: {warning}"));
    }
    if let Some(error) = &error {
        complain(&format!("error: {error}"));
    }
    if as_json {
        let object = json!({"valid": code == 0, "exit_code": code, "warnings": warnings, "error": error});
        write_stdout(&format!("{object}\n"));
    } else if code == 0 {
        write_stdout(&format!("{} is fine\n", plain_text(&spec.to_string_lossy())));
    }
    code
}

fn check(surroundings: &Surroundings, file: &Path) -> Result<Vec<String>> {
    let spec = read::read(file, surroundings.home().as_deref())?;
    inputs::collect(&spec, &surroundings.root, &signals()?)?;
    crate::cli::order::known_price(&spec)?;
    // Without trying what this system gives: the full sandbox shows what the others show.
    programs::look_up(&spec, surroundings, Some(Mode::Full))?;
    Ok(spec.warnings)
}
