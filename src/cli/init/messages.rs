//! What `init` prints: what it found and wrote, and the next commands to type.

use std::path::Path;

use crate::cli::init::detection::DetectedProjects;
use crate::cli::init::host::Host;
use crate::cli::init::project::DetectedProject;
use crate::cli::init::project_files::ProjectFiles;
use crate::llm::provider::Provider;
use crate::text::invisible::printable;
use crate::text::quote::shell_word;

/// How many files that are left out are listed.
const MAX_LISTED: usize = 10;
/// Remarks behind longer commands are not aligned.
const MAX_WIDTH: usize = 60;

/// Lines about what was found.
pub(super) fn found(projects: &DetectedProjects, files: &ProjectFiles) -> Vec<String> {
    let mut lines = vec![format!("found: {}", projects.chosen.title())];
    let others = projects.others.iter().map(DetectedProject::title);
    lines.extend(
        others.map(|title| format!("also found: {title}: its check is a comment in the spec")),
    );
    let left_out = files.left_out.iter().take(MAX_LISTED);
    lines
        .extend(left_out.map(|entry| format!("left out: {}, {}", entry.path.display(), entry.why)));
    let more = files.left_out.len().saturating_sub(MAX_LISTED);
    if 0 < more {
        lines.push(format!("left out: {more} more, see `exclude` in the spec"));
    }
    if files.is_cut {
        lines.push(
            "note: the project has many files, of which only the first were looked at".into(),
        );
    }
    lines
}

/// Lines about what is missing.
pub(super) fn notes(project: &DetectedProject, host: &Host<'_>) -> Vec<String> {
    let program = project.needed_program();
    let missing = (!program.contains('/') && !host.has(program))
        .then(|| format!("{program} is not on PATH: install it, or the check cannot start"));
    let notes = project.warnings.iter().cloned().chain(missing);
    notes.map(|note| format!("note: {note}")).collect()
}

/// Lines with the commands to type next in the directory `given`, for the spec of this name.
pub(super) fn next_steps(
    given: &Path,
    name: &str,
    project: &DetectedProject,
    host: &Host<'_>,
) -> Vec<String> {
    let mut steps: Vec<(String, &str)> = Vec::new();
    if !host.env.is_current_dir(given) {
        steps.push((format!("cd {}", shell_word(&given.to_string_lossy())), ""));
    }
    let setup = project.setup.iter();
    steps.extend(setup.map(|line| (line.clone(), "once, with a network")));
    let spec = shell_word(&format!("specs/{name}.yaml"));
    if project.is_provisional {
        let again = format!("rm {spec} && orchestrator init --spec {}", shell_word(name));
        steps.push((again, "with what was installed"));
    }
    steps.push((
        format!("${{EDITOR:-vi}} {spec}"),
        "what is to be done: description",
    ));
    steps.push((
        format!("orchestrator lint {spec}"),
        "finds mistakes; costs nothing",
    ));
    steps.extend(missing_key(host));
    steps.push((
        format!("orchestrator run --spec {spec}"),
        "in workspace/; nothing of yours changes",
    ));
    steps.push(("orchestrator diff".into(), "what the model changed"));
    steps.push(("orchestrator apply".into(), "carries it back to your files"));
    let lines = aligned(&steps);
    ["".to_owned(), "next:".to_owned()]
        .into_iter()
        .chain(lines)
        .collect()
}

fn missing_key(host: &Host<'_>) -> Option<(String, &'static str)> {
    let variable = Provider::default().facts().key_variable?;
    let is_missing = host.env.text(variable).is_none();
    is_missing.then(|| {
        (
            format!("export {variable}=<your key>"),
            "or a local model, see the spec",
        )
    })
}

/// Commands with their remarks in a column.
fn aligned(steps: &[(String, &str)]) -> Vec<String> {
    let width = steps
        .iter()
        .map(|(command, _)| command.chars().count())
        .max();
    let width = width.unwrap_or(0).min(MAX_WIDTH);
    let line = |(command, why): &(String, &str)| match *why {
        "" => format!("  {command}"),
        why => format!("  {command:<width$}  # {why}"),
    };
    steps.iter().map(line).collect()
}

/// Lines as text for a terminal.
pub(super) fn shown(lines: &[String]) -> String {
    lines.iter().map(|line| printable(line) + "\n").collect()
}
