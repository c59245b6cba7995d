//! Collects the inputs of a spec: walks what it names, refuses what cannot be taken, computes the hash.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::diagnostic::shown_path;
use super::exclusions::ReservedPaths;
use super::identity;
use super::inputs::{InputKind, Inputs, PlacedInputs, TemplateRound, UserPrompts, WorkspaceInput};
use super::model::{GeneratorMode, InputSource, Spec, WritableDir};
use super::prompts;
use super::walk::{InputWalk, KeptContents, RejectedInput};
use crate::cancel::CancelToken;
use crate::environments::adhoc::FOLDER as ENVIRONMENTS;
use crate::error::Error;
use crate::workspace::safe_path::SafePath;

/// Collects what `spec` brings along for a run in `root`, or says what cannot be taken.
///
/// The root's own `workspace/`, `logs/` and state are never taken, and neither is anything named `.git`: a
/// repository's history is not part of the files that the user gives. `left_out.rs` says what else stays behind.
pub fn collect_inputs(spec: &Spec, root: &Path, cancel: &CancelToken) -> Result<Inputs, Error> {
    let all = gather_all(spec, &mut InputWalk::new(root, cancel));
    // A walk that was stopped has nothing to say of the spec.
    cancel
        .requested()
        .map_or(all, |signal| Err(Error::Stopped(signal)))
}

fn gather_all(spec: &Spec, walk: &mut InputWalk<'_>) -> Result<Inputs, Error> {
    let apart = ReservedPaths::of(spec);
    let mut copy = gather(walk, &spec.copy, KeptContents::Streamed, Some(&apart))?;
    let protect = gather(walk, &spec.protect, KeptContents::Held, Some(&apart))?;
    let left_out = walk.left_out.line([&copy, &protect]);
    let warnings = std::mem::take(&mut walk.warnings);
    no_collision(spec, [&copy, &protect])?;
    copy.retain(|to, _| !protect.contains_key(to));
    spec.checks
        .iter()
        .flat_map(|check| &check.writable)
        .try_for_each(|folder| is_below_protected(folder, &protect))?;
    let mut hidden = Vec::new();
    for check in &spec.checks {
        let files = gather(walk, &check.files, KeptContents::Held, None)?;
        no_collision(spec, [&copy, &protect, &files])?;
        hidden.push(list(files));
    }
    let template = spec
        .generator
        .template
        .as_deref()
        .map(|path| template(walk, path))
        .transpose()?;
    let prompts = spec
        .generator
        .prompts
        .as_deref()
        .map_or(Ok(UserPrompts::default()), prompts::read)?;
    let environments = own_environments(walk, spec)?;
    let (copy, protect) = (list(copy), list(protect));
    let hash = String::new();
    let mut inputs = Inputs {
        copy,
        protect,
        hidden,
        template,
        prompts,
        environments,
        left_out,
        warnings,
        hash,
    };
    inputs.hash = identity::hash(spec, &inputs);
    Ok(inputs)
}

fn own_environments(walk: &mut InputWalk<'_>, spec: &Spec) -> Result<Vec<WorkspaceInput>, Error> {
    let folder = walk
        .root()
        .map(|root| root.join(ENVIRONMENTS))
        .filter(|folder| folder.is_dir());
    let mut placed = PlacedInputs::new();
    if let Some(folder) = folder.filter(|_| spec.generator.mode == GeneratorMode::Agent) {
        walk.folder(&folder, KeptContents::Held, &mut placed)
            .map_err(Error::Spec)?;
    }
    Ok(list(placed))
}

fn gather(
    walk: &mut InputWalk<'_>,
    sources: &[InputSource],
    contents: KeptContents,
    apart: Option<&ReservedPaths>,
) -> Result<PlacedInputs, Error> {
    let mut all = PlacedInputs::new();
    for source in sources {
        let mut placed = PlacedInputs::new();
        walk.source(source, contents, apart, &mut placed).map_err(
            |RejectedInput { what, help }| match help {
                Some(help) => source.location.error_with_help(what, help),
                None => source.location.error(what),
            },
        )?;
        for (to, kind) in placed {
            let is_folder = kind == InputKind::Dir;
            let before = all.insert(to.clone(), kind);
            if before.is_some_and(|before| (before == InputKind::Dir) != is_folder) {
                return Err(source.location.error(both(&to)));
            }
        }
    }
    Ok(all)
}

fn list(placed: PlacedInputs) -> Vec<WorkspaceInput> {
    placed
        .into_iter()
        .map(|(to, kind)| WorkspaceInput { to, kind })
        .collect()
}

/// Refuses a file or a link where something of any list is a folder or lies below it.
fn no_collision<const N: usize>(spec: &Spec, lists: [&PlacedInputs; N]) -> Result<(), Error> {
    let mut folders = BTreeSet::new();
    for (to, kind) in lists.into_iter().flatten() {
        folders.extend(
            to.as_str()
                .match_indices('/')
                .map(|(end, _)| &to.as_str()[..end]),
        );
        folders.extend((*kind == InputKind::Dir).then_some(to.as_str()));
    }
    let mut leaves = lists
        .into_iter()
        .flatten()
        .filter(|(_, kind)| **kind != InputKind::Dir);
    match leaves.find(|(to, _)| folders.contains(to.as_str())) {
        Some((to, _)) => Err(Error::Spec(format!(
            "{}: {}",
            shown_path(&spec.file),
            both(to)
        ))),
        None => Ok(()),
    }
}

/// Refuses a writable folder that does not lie below a protected one, or is no folder.
fn is_below_protected(folder: &WritableDir, protect: &PlacedInputs) -> Result<(), Error> {
    let shown = shown_path(Path::new(folder.path.as_str()));
    let around: Vec<&InputKind> = std::iter::successors(folder.path.parent(), SafePath::parent)
        .filter_map(|path| protect.get(&path))
        .collect();
    let itself = protect.get(&folder.path);
    match around.first() {
        Some(InputKind::Dir) if itself.is_none_or(|kind| *kind == InputKind::Dir) => Ok(()),
        Some(_) => Err(folder.location.error(format!("\"{shown}\" is not a folder, or lies in something that is none"))),
        None if itself.is_some() => {
            Err(folder.location.error(format!("\"{shown}\" is protected itself; name a folder below it")))
        }
        None => Err(folder.location.error(format!(
            "\"{shown}\" does not lie below a protected folder; what is not protected can be written anyway"
        ))),
    }
}

fn both(to: &SafePath) -> String {
    format!(
        "\"{}\" would arrive both as a file and as a folder",
        shown_path(Path::new(to.as_str()))
    )
}

fn template(walk: &mut InputWalk<'_>, path: &Path) -> Result<Vec<TemplateRound>, Error> {
    let mut rounds = Vec::new();
    while path.join(rounds.len().to_string()).is_dir() {
        let folder = path.join(rounds.len().to_string());
        rounds.push(round(walk, &folder).map_err(Error::Spec)?);
    }
    match stray_round(path, rounds.len()) {
        Some(name) => Err(Error::Spec(format!(
            "{name}: the folders of a template are 0, 1, 2 and so on, without gaps"
        ))),
        None => Ok(rounds),
    }
}

fn round(walk: &mut InputWalk<'_>, folder: &Path) -> Result<TemplateRound, String> {
    let mut placed = PlacedInputs::new();
    walk.folder(folder, KeptContents::Held, &mut placed)?;
    let mut files = Vec::new();
    for (to, kind) in placed {
        match kind {
            InputKind::File {
                content: Some(content),
                ..
            } => files.push((to, content.to_vec())),
            InputKind::Link { .. } => {
                return Err(format!(
                    "{}: a template holds no links",
                    shown_path(&folder.join(to.as_str()))
                ));
            }
            InputKind::File { .. } | InputKind::Dir => {}
        }
    }
    Ok(TemplateRound { files })
}

/// Returns a folder with a number as name that is not among the first `count` ones.
fn stray_round(path: &Path, count: usize) -> Option<String> {
    let is_number = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let is_known =
        |name: &OsStr| (0..count).any(|number| name.as_bytes() == number.to_string().as_bytes());
    let folders = fs::read_dir(path)
        .ok()?
        .flatten()
        .filter(|entry| entry.path().is_dir());
    let mut strays =
        folders.filter(|entry| is_number(&entry.file_name()) && !is_known(&entry.file_name()));
    strays.next().map(|entry| shown_path(&entry.path()))
}
