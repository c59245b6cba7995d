//! `init`: looks at a project and writes a spec for it: `specs/NAME.yaml`, its schema, and lines of `.gitignore`.
//!
//! `detection` finds out what the project is, by one file per family of toolchains; `spec_text` writes that down;
//! `new_files` writes all files or none. Nothing of the project is run, and nothing of the user's is overwritten.

mod compiled;
mod detection;
mod host;
mod ignore_lines;
mod java;
mod messages;
mod new_files;
mod node;
mod project;
mod project_files;
mod python;
mod schema_file;
mod spec_text;

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::cli::env::{CliEnv, adopt_orphans, cancel_on_signals};
use crate::cli::init::detection::{DetectedProjects, detect};
use crate::cli::init::host::Host;
use crate::cli::init::ignore_lines::ignore_change;
use crate::cli::init::new_files::{PlannedFile, write_all};
use crate::cli::init::project::{DetectedProject, ReadablePath};
use crate::cli::init::project_files::{LeftOutEntry, ProjectFiles};
use crate::cli::init::schema_file::{SCHEMA_FILE, schema_change};
use crate::cli::init::spec_text::{SpecFrame, spec_text};
use crate::cli::run_config::refuse_colon;
use crate::error::{Error, Result};
use crate::text::invisible::printable;
use crate::text::quote::shell_word;

const SPECS: &str = "specs";

/// Writes the spec, and returns the messages about it.
pub(super) fn main(env: &CliEnv, directory: Option<&Path>, name: Option<&str>) -> Result<String> {
    let cancel = cancel_on_signals()?;
    adopt_orphans()?;
    let given = directory.map_or_else(|| env.root.clone(), |directory| env.absolute(directory));
    let top = project_directory(&given, env)?;
    let name = match name {
        Some(name) => spec_name(name)?,
        None => default_name(&top),
    };
    refuse_existing(&top, &name)?;
    let files = ProjectFiles::find(&top);
    let host = Host { env, cancel };
    let mut projects = detect(&top, &files, &host);
    show_program(&mut projects.chosen, &top, &host);
    let mut lines = messages::found(&projects, &files);
    lines.extend(write(&top, &name, &projects, &files)?);
    lines.extend(messages::notes(&projects.chosen, &host));
    lines.extend(messages::next_steps(&given, &name, &projects.chosen, &host));
    Ok(messages::shown(&lines))
}

/// Opens what the program of the check needs and the sandbox would not show.
fn show_program(project: &mut DetectedProject, top: &Path, host: &Host<'_>) {
    let parts = host.unseen_parts(project.needed_program(), top);
    project.read.extend(parts.iter().map(|path| ReadablePath {
        path: path.display().to_string(),
        why: "the program of the check",
        exists: true,
    }));
}

/// Writes all files, and returns the lines about them.
fn write(
    top: &Path,
    name: &str,
    projects: &DetectedProjects,
    files: &ProjectFiles,
) -> Result<Vec<String>> {
    let specs = top.join(SPECS);
    let frame = SpecFrame {
        name,
        schema: SCHEMA_FILE,
        exclude: excluded(&specs, files),
    };
    let spec = PlannedFile {
        path: specs.join(format!("{name}.yaml")),
        text: spec_text(&frame, projects),
        replaces: false,
    };
    let (schema, ignored) = (schema_change(&specs), ignore_change(top));
    let planned = [schema.file, ignored.file, Some(spec)];
    write_all(&specs, planned.into_iter().flatten().collect())?;
    let mut lines = vec![format!("wrote {SPECS}/{name}.yaml"), schema.line];
    lines.extend(ignored.lines);
    Ok(lines)
}

/// The directory of the project, links resolved.
fn project_directory(given: &Path, env: &CliEnv) -> Result<PathBuf> {
    let refuse = |problem: &str, help: &str| {
        let given = printable(&given.to_string_lossy());
        Error::Usage(format!("cannot use {given}: {problem}\nhelp: {help}"))
    };
    let top = match given.canonicalize() {
        Ok(top) if top.is_dir() => top,
        Ok(_) => {
            return Err(refuse(
                "it is not a directory",
                "name the directory of the project",
            ));
        }
        Err(error) => {
            let word = shell_word(&given.to_string_lossy());
            let help = format!("make it first: mkdir -p {word}");
            return Err(refuse(&error.to_string(), &help));
        }
    };
    let home = env.home().and_then(|home| home.canonicalize().ok());
    if top == Path::new("/") || home.is_some_and(|home| home.starts_with(&top)) {
        return Err(refuse(
            "it is your home or above it, all of which would be copied",
            "name the directory of one project",
        ));
    }
    refuse_colon(&top)?;
    match access(&top, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(top),
        Err(error) => Err(Error::io("write in", &top, error)),
    }
}

/// The name that `--spec` gives; its folder and ending may be given, too.
fn spec_name(given: &str) -> Result<String> {
    let name = given.strip_prefix("specs/").unwrap_or(given);
    let name = [".yaml", ".yml"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    let is_fine = |c: char| c.is_alphanumeric() || "-_.+ ".contains(c);
    match !name.is_empty()
        && name.len() <= 200
        && name.chars().all(is_fine)
        && !name.starts_with(['.', '-', ' '])
    {
        true => Ok(name.to_owned()),
        false => Err(Error::Usage(format!(
            "invalid --spec: expected a name for specs/NAME.yaml, found {:?}\nhelp: orchestrator init --spec fix-login",
            given.chars().take(100).collect::<String>()
        ))),
    }
}

/// The name of the directory, as far as it can be that of a file.
fn default_name(top: &Path) -> String {
    let name = top.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| match c.is_alphanumeric() || "-_.".contains(c) {
        true => c,
        false => '-',
    };
    let name: String = name.chars().take(60).map(plain).collect();
    match name.trim_matches(['.', '-']) {
        "" => "project".to_owned(),
        name => name.to_owned(),
    }
}

/// Refuses a spec that exists, and a `specs` that leads elsewhere: the paths in a spec are relative to it.
fn refuse_existing(top: &Path, name: &str) -> Result<()> {
    let specs = top.join(SPECS);
    if specs.is_symlink() {
        return Err(Error::Usage(format!(
            "cannot write in {}: it is a link\nhelp: make it a folder of the project",
            printable(&specs.to_string_lossy())
        )));
    }
    if specs
        .join(format!("{name}.yaml"))
        .symlink_metadata()
        .is_err()
    {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "cannot write specs/{name}.yaml: it exists\n\
         help: orchestrator init --spec OTHER writes another one; orchestrator run --spec specs/{name}.yaml uses this one"
    )))
}

/// What is left out of the copy: specs, unless that folder is the project's own, and what a copy would refuse.
fn excluded(specs: &Path, files: &ProjectFiles) -> Vec<String> {
    let entries = std::fs::read_dir(specs).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.path()).peekable();
    let is_ours = names.peek().is_none()
        || names.any(|path| {
            path.extension()
                .is_some_and(|end| end == "yaml" || end == "yml")
        });
    let specs = match is_ours {
        true => format!("/{SPECS}/"),
        false => format!("/{SPECS}/{SCHEMA_FILE}"),
    };
    let refused = files.left_out.iter().map(LeftOutEntry::pattern);
    std::iter::once(specs).chain(refused).collect()
}
