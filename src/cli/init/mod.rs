//! `init`: looks at a project and writes a spec for it: `specs/NAME.yaml`, its schema, and lines of `.gitignore`.
//!
//! `detection` finds out what the project is, by one file per family of toolchains; `spec_text` writes that down;
//! `new_files` writes all files or none. Nothing of the project is run, and nothing of the user's is overwritten.

mod compiled;
mod detection;
mod host;
mod ignore_lines;
mod java;
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
use crate::cli::init::ignore_lines::{IgnoreChange, ignore_change};
use crate::cli::init::new_files::{PlannedFile, write_all};
use crate::cli::init::project_files::{LeftOutEntry, ProjectFiles};
use crate::cli::init::schema_file::{SCHEMA_FILE, SchemaChange, schema_change};
use crate::cli::init::spec_text::{SpecFrame, spec_text};
use crate::cli::run_config::refuse_colon;
use crate::error::{Error, Result};
use crate::llm::provider::Provider;
use crate::text::invisible::printable;
use crate::text::quote::shell_word;

const SPECS: &str = "specs";
/// How many files that are left out are listed.
const MAX_LISTED: usize = 10;

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
    let specs = top.join(SPECS);
    let spec = specs.join(format!("{name}.yaml"));
    refuse_existing(&spec, &name)?;
    let files = ProjectFiles::find(&top);
    let host = Host { env, cancel };
    let projects = detect(&top, &files, &host);
    let frame = SpecFrame {
        name: &name,
        schema: SCHEMA_FILE,
        exclude: excluded(&specs, &files),
    };
    let spec = PlannedFile {
        path: spec,
        text: spec_text(&frame, &projects),
        replaces: false,
    };
    let (schema, ignored) = (schema_change(&specs), ignore_change(&top));
    let mut messages = InitMessages::new(&name, &projects, &files);
    messages.files(&schema, &ignored);
    let planned = [schema.file, ignored.file, Some(spec)];
    write_all(&specs, planned.into_iter().flatten().collect())?;
    messages.next_steps(env, &host, &given, &name, &projects);
    Ok(messages.text)
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

fn refuse_existing(spec: &Path, name: &str) -> Result<()> {
    if spec.symlink_metadata().is_err() {
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

/// What `init` prints.
struct InitMessages {
    text: String,
    name: String,
}

impl InitMessages {
    fn new(name: &str, projects: &DetectedProjects, files: &ProjectFiles) -> InitMessages {
        let mut messages = InitMessages {
            text: String::new(),
            name: name.to_owned(),
        };
        messages.line(&format!("found: {}", projects.chosen.title()));
        for other in &projects.others {
            messages.line(&format!(
                "also found: {}: its check is a comment in the spec",
                other.title()
            ));
        }
        for entry in files.left_out.iter().take(MAX_LISTED) {
            messages.line(&format!(
                "left out: {}, {}",
                entry.path.display(),
                entry.why
            ));
        }
        if let Some(more) = files.left_out.len().checked_sub(MAX_LISTED + 1) {
            messages.line(&format!(
                "left out: {} more, see `exclude` in the spec",
                more + 1
            ));
        }
        if files.is_cut {
            messages
                .line("note: the project has many files, of which only the first were looked at");
        }
        messages
    }

    fn line(&mut self, line: &str) {
        self.text += &printable(line);
        self.text.push('\n');
    }

    fn files(&mut self, schema: &SchemaChange, ignored: &IgnoreChange) {
        self.line(&format!("wrote specs/{}.yaml", self.name));
        self.line(&schema.line);
        for line in ignored.line.iter().flat_map(|text| text.lines()) {
            self.line(line);
        }
    }

    /// What to type next.
    fn next_steps(
        &mut self,
        env: &CliEnv,
        host: &Host<'_>,
        given: &Path,
        name: &str,
        projects: &DetectedProjects,
    ) {
        let chosen = &projects.chosen;
        for warning in &chosen.warnings {
            self.line(&format!("note: {warning}"));
        }
        let program = match chosen.program.as_str() {
            "" => chosen.command.first().map_or("", String::as_str),
            program => program,
        };
        if !program.contains('/') && !host.has(program) {
            self.line(&format!(
                "note: {program} is not on PATH: install it, or the check cannot start"
            ));
        }
        self.line("\nnext:");
        let mut commands = Vec::new();
        if !env.is_current_dir(given) {
            commands.push((format!("cd {}", shell_word(&given.to_string_lossy())), ""));
        }
        commands.extend(
            chosen
                .setup
                .iter()
                .map(|line| (line.clone(), "once, with a network")),
        );
        let spec = shell_word(&format!("specs/{name}.yaml"));
        if chosen.is_provisional {
            let again = format!("rm {spec} && orchestrator init --spec {}", shell_word(name));
            commands.push((again, "with what was installed"));
        }
        commands.push((
            format!("${{EDITOR:-vi}} {spec}"),
            "what is to be done: description",
        ));
        commands.push((
            format!("orchestrator lint {spec}"),
            "finds mistakes; costs nothing",
        ));
        let variable = Provider::default().facts().key_variable.unwrap_or_default();
        if env.text(variable).is_none() {
            commands.push((
                format!("export {variable}=<your key>"),
                "or a local model, see the spec",
            ));
        }
        commands.push((
            format!("orchestrator run --spec {spec}"),
            "in workspace/; nothing of yours changes",
        ));
        commands.push(("orchestrator diff".to_owned(), "what the model changed"));
        commands.push((
            "orchestrator apply".to_owned(),
            "carries it back to your files",
        ));
        let width = commands
            .iter()
            .map(|(command, _)| command.chars().count())
            .max();
        let width = width.unwrap_or(0).min(60);
        for (command, why) in &commands {
            let why = if why.is_empty() {
                String::new()
            } else {
                format!("  # {why}")
            };
            self.line(&format!("  {command:<width$}{why}"));
        }
    }
}
