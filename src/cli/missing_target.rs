//! `run` without a spec or a workflow: what to type instead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::env::CliEnv;
use crate::cli::resume_command::resume_saved_build;
use crate::error::Error;

/// How many specs are listed.
const MAX_LISTED: usize = 10;
/// How many entries of `specs/` are looked at.
const MAX_ENTRIES: usize = 10_000;

/// The refusal of `run` without arguments, with the commands that this root has specs for.
pub(super) fn missing_target(env: &CliEnv) -> Error {
    let specs = specs_of(&env.root);
    let command = |name: &String| resume_saved_build(&format!("specs/{name}"), &[], false, env);
    let help = match specs.as_slice() {
        [] => "orchestrator init writes a spec for the project in this folder; \
               else: orchestrator run PATH, run --spec FILE, or run --workflow PATH"
            .to_owned(),
        [only] => command(only),
        several => {
            let shown: Vec<String> = several.iter().take(MAX_LISTED).map(command).collect();
            let more = several.len().saturating_sub(MAX_LISTED);
            let more = match more {
                0 => String::new(),
                count => format!("\n  … and {count} more in specs/"),
            };
            format!("one of\n  {}{more}", shown.join("\n  "))
        }
    };
    Error::Usage(format!("no spec and no workflow is given\nhelp: {help}"))
}

/// The names of the specs in `specs/` of a root, sorted.
fn specs_of(root: &Path) -> Vec<String> {
    let is_spec = |path: &PathBuf| {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        ["yaml", "yml", "json"].iter().any(|end| extension == *end) && path.is_file()
    };
    let entries = fs::read_dir(root.join("specs")).into_iter().flatten();
    let paths = entries
        .take(MAX_ENTRIES)
        .flatten()
        .map(|entry| entry.path());
    let mut names: Vec<String> = paths
        .filter(is_spec)
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}
