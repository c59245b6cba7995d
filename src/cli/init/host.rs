//! What `init` asks of this machine: which programs there are, and what a Python can import.

use std::path::{Path, PathBuf};

use crate::build::spec::parse_spec;
use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::programs::missing_reads;
use crate::cli::quick_program::{find_on_path, run_quickly};
use crate::process::JobEnd;
use crate::process::check_env::CallerEnv;
use crate::text::quote::yaml_scalar;

pub(super) struct Host<'a> {
    pub(super) env: &'a CliEnv,
    pub(super) cancel: CancelToken,
}

impl Host<'_> {
    pub(super) fn has(&self, program: &str) -> bool {
        find_on_path(self.env, program).is_some()
    }

    /// What of a program on PATH is not visible in the sandbox unless the spec opens it.
    pub(super) fn unseen_parts(&self, program: &str, top: &Path) -> Vec<PathBuf> {
        let check = format!("checks: [{{command: [{}]}}]", yaml_scalar(program));
        let text = format!("name: program\ndescription: program\n{check}\n");
        let file = top.join("specs/program.yaml");
        let caller = CallerEnv::new(self.env.variables());
        match parse_spec(&file, file.clone(), text.as_bytes(), None) {
            Ok(spec) => missing_reads(&spec, top, &caller),
            Err(_) => Vec::new(),
        }
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.env.home()
    }

    /// The virtual environment that is active.
    pub(super) fn virtual_environment(&self) -> Option<PathBuf> {
        let folder = self.env.text("VIRTUAL_ENV").map(PathBuf::from)?;
        (folder.is_absolute() && folder.join("bin/python").is_file()).then_some(folder)
    }

    /// Whether a program named `python3` can import a module.
    pub(super) fn python_imports(&self, module: &str) -> bool {
        let Some(python) = find_on_path(self.env, "python3") else {
            return false;
        };
        let code = format!("import {module}");
        let ended = run_quickly(self.env, &python, &["-c", &code], &self.cancel);
        ended.is_ok_and(|finished| finished.ended == JobEnd::Exited(0))
    }
}

/// Whether a virtual environment has a package.
pub(super) fn venv_has(folder: &Path, package: &str) -> bool {
    let versions = std::fs::read_dir(folder.join("lib")).into_iter().flatten();
    let mut versions = versions.flatten().map(|entry| entry.path());
    versions.any(|version| version.join("site-packages").join(package).exists())
}
