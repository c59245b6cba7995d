//! Collects the inputs of a spec: walks what it names, refuses what cannot be taken, computes the hash.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::exclusions::ReservedPaths;
use super::identity;
use super::input_error::InputError;
use super::inputs::{
    InputContent, InputKind, Inputs, PlacedInputs, TemplateRound, UserPrompts, WorkspaceInput,
};
use super::links::exclusion_help;
use super::model::{GeneratorMode, InputSource, Spec, WritableDir};
use super::prompts::read_prompts;
use super::walk::{Contents, InputWalk};
use crate::cancel::CancelToken;
use crate::environments::adhoc::FOLDER as ENVIRONMENTS;
use crate::error::Error;
use crate::source::code;
use crate::source::diagnostic::shown_path;
use crate::workspace::safe_path::SafePath;

/// Collects what `spec` brings along for a run in `root`.
///
/// The root's own `workspace/`, `logs/` and state are never taken, and neither is anything named `.git`: a
/// repository's history is not part of the files that the user gives.
pub(crate) fn collect_inputs(
    spec: &Spec,
    root: &Path,
    cancel: &CancelToken,
) -> Result<Inputs, Error> {
    let inputs = collect(spec, &mut InputWalk::new(root, cancel));
    // The result of a cancelled walk means nothing.
    cancel
        .requested()
        .map_or(inputs, |signal| Err(Error::Stopped(signal)))
}

fn collect(spec: &Spec, walk: &mut InputWalk<'_>) -> Result<Inputs, Error> {
    let reserved = ReservedPaths::of(spec);
    let mut copy = place(walk, &spec.copy, Contents::Streamed, Some(&reserved))?;
    let protect = place(walk, &spec.protect, Contents::InMemory, Some(&reserved))?;
    let left_out = walk.excluded.summary([&copy, &protect]);
    refuse_collisions(spec, [&copy, &protect])?;
    copy.retain(|to, _| !protect.contains_key(to));
    let writable = spec.checks.iter().flat_map(|check| &check.writable);
    writable
        .into_iter()
        .try_for_each(|folder| require_protection_around(folder, &protect))?;
    let mut hidden = Vec::new();
    for check in &spec.checks {
        let files = place(walk, &check.files, Contents::InMemory, None)?;
        refuse_collisions(spec, [&copy, &protect, &files])?;
        hidden.push(list(files));
    }
    let (template, prompts) = (&spec.generator.template, &spec.generator.prompts);
    let mut inputs = Inputs {
        copy: list(copy),
        protect: list(protect),
        hidden,
        template: template
            .as_deref()
            .map(|folder| read_template(walk, folder))
            .transpose()?,
        prompts: prompts
            .as_deref()
            .map_or(Ok(UserPrompts::default()), read_prompts)?,
        environments: read_environments(walk, spec)?,
        left_out,
        warnings: std::mem::take(&mut walk.warnings),
        hash: String::new(),
    };
    inputs.hash = identity::hash(spec, &inputs);
    Ok(inputs)
}

/// What a list of sources brings; later entries replace earlier ones at the same path.
fn place(
    walk: &mut InputWalk<'_>,
    sources: &[InputSource],
    contents: Contents,
    reserved: Option<&ReservedPaths>,
) -> Result<PlacedInputs, Error> {
    let mut all = PlacedInputs::new();
    for source in sources {
        let mut placed = PlacedInputs::new();
        walk.add_source(source, contents, reserved, &mut placed)
            .map_err(|error| refusal(source, &error))?;
        for (to, kind) in placed {
            let is_folder = kind == InputKind::Dir;
            let before = all.insert(to.clone(), kind);
            if before.is_some_and(|before| (before == InputKind::Dir) != is_folder) {
                return Err(source.location.error(code::INPUT, collision(&to)));
            }
        }
    }
    Ok(all)
}

fn refusal(source: &InputSource, error: &InputError) -> Error {
    let help = match error {
        InputError::LeavingLink { link, .. } => exclusion_help(link, source),
        _ => None,
    };
    match help {
        Some(help) => {
            let mistake = source
                .location
                .mistake(code::INPUT, error.to_string(), help);
            Error::Findings(vec![mistake])
        }
        None => source.location.error(code::INPUT, error.to_string()),
    }
}

fn list(placed: PlacedInputs) -> Vec<WorkspaceInput> {
    placed
        .into_iter()
        .map(|(to, kind)| WorkspaceInput { to, kind })
        .collect()
}

/// Refuses a file or a link at a path where another input is a folder or lies below it.
fn refuse_collisions<const N: usize>(spec: &Spec, lists: [&PlacedInputs; N]) -> Result<(), Error> {
    let mut folders = BTreeSet::new();
    for (to, kind) in lists.into_iter().flatten() {
        let path = to.as_str();
        folders.extend(path.match_indices('/').map(|(end, _)| &path[..end]));
        folders.extend((*kind == InputKind::Dir).then_some(path));
    }
    let mut files = lists
        .into_iter()
        .flatten()
        .filter(|(_, kind)| **kind != InputKind::Dir);
    match files.find(|(to, _)| folders.contains(to.as_str())) {
        Some((to, _)) => Err(Error::Spec(format!(
            "{}: {}",
            shown_path(&spec.file),
            collision(to)
        ))),
        None => Ok(()),
    }
}

fn collision(to: &SafePath) -> String {
    format!(
        "\"{}\" would arrive both as a file and as a folder",
        shown_path(Path::new(to.as_str()))
    )
}

/// Refuses a writable folder that is not below a protected one, or is not a folder.
fn require_protection_around(folder: &WritableDir, protect: &PlacedInputs) -> Result<(), Error> {
    let around = std::iter::successors(folder.path.parent(), SafePath::parent)
        .find_map(|path| protect.get(&path));
    let itself = protect.get(&folder.path);
    let problem = match around {
        Some(InputKind::Dir) if itself.is_none_or(|kind| *kind == InputKind::Dir) => return Ok(()),
        Some(_) => "is not a folder, or lies in something that is not one",
        None if itself.is_some() => "is protected itself; name a folder below it",
        None => {
            "does not lie below a protected folder; what is not protected can be written anyway"
        }
    };
    let shown = shown_path(Path::new(folder.path.as_str()));
    let message = format!("\"{shown}\" {problem}");
    Err(folder.location.error(code::FIELD, message))
}

fn read_environments(walk: &mut InputWalk<'_>, spec: &Spec) -> Result<Vec<WorkspaceInput>, Error> {
    let folder = walk.root().map(|root| root.join(ENVIRONMENTS));
    let is_agent = spec.generator.mode == GeneratorMode::Agent;
    let mut placed = PlacedInputs::new();
    if let Some(folder) = folder.filter(|folder| is_agent && folder.is_dir()) {
        walk.add_folder(&folder, Contents::InMemory, &mut placed)?;
    }
    Ok(list(placed))
}

fn read_template(
    walk: &mut InputWalk<'_>,
    folder: &Path,
) -> Result<Vec<TemplateRound>, InputError> {
    let mut rounds = Vec::new();
    while folder.join(rounds.len().to_string()).is_dir() {
        let round = folder.join(rounds.len().to_string());
        rounds.push(read_round(walk, &round)?);
    }
    match round_after_gap(folder, rounds.len()) {
        Some(stray) => Err(InputError::TemplateGap(stray)),
        None => Ok(rounds),
    }
}

fn read_round(walk: &mut InputWalk<'_>, folder: &Path) -> Result<TemplateRound, InputError> {
    let mut placed = PlacedInputs::new();
    walk.add_folder(folder, Contents::InMemory, &mut placed)?;
    let mut files = Vec::new();
    for (to, kind) in placed {
        match kind {
            InputKind::File {
                content: InputContent::Held(content),
                ..
            } => files.push((to, content.to_vec())),
            InputKind::Link { .. } => {
                return Err(InputError::LinkInTemplate(folder.join(to.as_str())));
            }
            InputKind::File { .. } | InputKind::Dir => {}
        }
    }
    Ok(TemplateRound { files })
}

/// A folder with a number as name that is not among the first `count` ones.
fn round_after_gap(folder: &Path, count: usize) -> Option<PathBuf> {
    let is_number = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let is_known = |name: &OsStr| {
        let number = name.to_str().and_then(|name| name.parse::<usize>().ok());
        number.is_some_and(|number| number < count && name == OsStr::new(&number.to_string()))
    };
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut strays = entries
        .filter(|entry| is_number(&entry.file_name()) && !is_known(&entry.file_name()))
        .filter(|entry| entry.path().is_dir());
    strays.next().map(|entry| entry.path())
}
