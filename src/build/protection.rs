//! The user's files in the workspace: copied in before generation; protected ones restored before and after checks.
//!
//! A protected file is exactly what the user gave: content and mode are compared with copies in memory, and entries
//! that were added inside a protected folder are removed. `verified.rs` avoids reading unchanged files again;
//! `guard.rs` finds changes during a check.

pub(crate) mod guard;
pub(crate) mod verified;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::OFlags;

use crate::build::context::Context;
use crate::build::protection::verified::{
    PlaceRelation, ProtectedPlaces, ProtectedTree, RestoredFiles, input_at, is_below, path_of,
    visit_pairs,
};
use crate::build::spec::inputs::{InputContent, InputKind, WorkspaceInput, outermost};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::regular_file::open_regular_file;
use crate::workspace::generated::is_in_generated;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{
    EntryKind, InputPlacement, RecordStep, RecordedWalk, Workspace, WorkspaceEntry,
};

/// The mode of a folder that is copied in.
const FOLDER_MODE: u32 = 0o755;
/// Bytecode, which Python uses without checking that it belongs to its source.
const BYTECODE: &str = "__pycache__";

/// Copies the user's files into the workspace.
pub(crate) fn copy_in(context: &Context, inputs: &[WorkspaceInput]) -> Result<()> {
    place_all(&context.workspace, inputs, &context.cancel)
}

/// Puts inputs in their places. They are not durable yet.
pub(crate) fn place_all(
    workspace: &Workspace,
    inputs: &[WorkspaceInput],
    cancel: &CancelToken,
) -> Result<()> {
    let mut placement = workspace.place_inputs();
    inputs.iter().try_for_each(|input| {
        let stopped = cancel.requested().map(Error::Stopped);
        stopped.map_or_else(|| place(&mut placement, input), Err)
    })
}

fn place(placement: &mut InputPlacement<'_>, input: &WorkspaceInput) -> Result<()> {
    let to = path_of(input);
    match &input.kind {
        InputKind::Dir => placement.make_dir(to, FOLDER_MODE),
        InputKind::Link { target } => placement.put_link(to, target.as_os_str()),
        InputKind::File {
            mode,
            content: InputContent::Held(content),
            ..
        } => placement.put_file(to, &mut &content[..], *mode),
        InputKind::File {
            mode,
            content: InputContent::Source(source),
            ..
        } => {
            let mut file = open_regular_file(source, OFlags::NOFOLLOW)
                .map_err(|error| Error::io("open", source, error))?;
            placement.put_file(to, &mut file, *mode)
        }
    }
}

/// Restores protected files, removes foreign ones from protected folders, and records both. Folders that a check may
/// write are left alone.
pub(crate) fn restore(context: &mut Context) -> Result<()> {
    if context.inputs.protect.is_empty() || context.verified.is_current {
        return Ok(());
    }
    let writable = writable_folders(context);
    let protect = context.inputs.protect.iter();
    let inputs: Vec<&WorkspaceInput> = protect
        .filter(|input| !is_below(&input.to, &writable))
        .collect();
    let mut tree = ProtectedTree::read(&context.workspace, &inputs)?;
    let known = context.verified.tree.take();
    let mut done = RestoredFiles::default();
    let mut is_right = known.as_ref().is_some_and(|known| known.is_same(&tree));
    if !is_right {
        let wrong = wrong_inputs(&context.workspace, &inputs, known.as_ref(), &tree)?;
        let foreign = foreign_entries(context, &tree, &writable);
        done = repair(&context.workspace, &wrong, &foreign)?;
        is_right = wrong.is_empty() && foreign.is_empty();
        let replaced = wrong.iter().map(|input| path_of(input).to_owned());
        tree.replaced = replaced.collect();
    }
    if !is_right {
        context.verified.whole = None;
    }
    context.verified.is_current = is_right;
    context.verified.tree = Some(tree);
    record(context, done)
}

/// Places what is wrong and removes what is foreign.
fn repair(
    workspace: &Workspace,
    wrong: &[&WorkspaceInput],
    foreign: &[PathBuf],
) -> Result<RestoredFiles> {
    let mut placement = workspace.place_inputs();
    wrong
        .iter()
        .try_for_each(|input| place(&mut placement, input))?;
    for path in foreign {
        workspace.remove(path)?;
    }
    let reported = foreign.iter().filter(|path| !is_in_generated(path));
    Ok(RestoredFiles {
        restored: wrong.iter().map(|input| input.to.to_string()).collect(),
        removed: reported
            .map(|path| path.to_string_lossy().into_owned())
            .collect(),
    })
}

fn record(context: &mut Context, done: RestoredFiles) -> Result<()> {
    if done == RestoredFiles::default() {
        return Ok(());
    }
    context
        .workspace
        .settle(done.restored.iter().chain(&done.removed).map(Path::new))?;
    context.log.record(Event::ProtectedRestored {
        agent_id: MAIN_AGENT.into(),
        restored: done.restored,
        removed: done.removed,
    })
}

/// The inputs that are not as the user gave them.
fn wrong_inputs<'a>(
    workspace: &Workspace,
    inputs: &[&'a WorkspaceInput],
    known: Option<&ProtectedTree>,
    tree: &ProtectedTree,
) -> Result<Vec<&'a WorkspaceInput>> {
    let is_known = |was: &WorkspaceEntry, now: &WorkspaceEntry| {
        was == now
            && known
                .is_some_and(|known| known.is_settled(was) && !known.replaced.contains(&was.path))
    };
    let mut is_right = vec![false; inputs.len()];
    visit_pairs(known, tree, &mut |was, now| {
        if let Some(now) = now
            && let Some(index) = input_at(inputs, &now.path)
        {
            is_right[index] = was.is_some_and(|was| is_known(was, now))
                || is_as_given(workspace, inputs[index], now)?;
        }
        Ok(())
    })?;
    let all = inputs.iter().zip(is_right);
    Ok(all
        .filter(|(_, is_right)| !is_right)
        .map(|(input, _)| *input)
        .collect())
}

/// The folders that checks may write, of all checks.
fn writable_folders(context: &Context) -> Vec<SafePath> {
    let checks = context.spec.checks.iter();
    let folders = checks.flat_map(|check| &check.writable);
    folders.map(|folder| folder.path.clone()).collect()
}

/// A file with a second hard link counts as wrong: it could be changed under the other name.
fn is_as_given(
    workspace: &Workspace,
    input: &WorkspaceInput,
    found: &WorkspaceEntry,
) -> Result<bool> {
    Ok(match (&input.kind, &found.kind) {
        (InputKind::Dir, EntryKind::Dir { mode }) => mode & 0o700 == 0o700,
        (InputKind::Link { target }, EntryKind::Link { target: now }) => {
            now.as_os_str() == target.as_os_str()
        }
        (
            InputKind::File {
                mode,
                content: InputContent::Held(content),
                ..
            },
            EntryKind::File { size, mode: now },
        ) => {
            mode & 0o777 == now & 0o777
                && found.links == 1
                && *size == content.len() as u64
                && workspace.has_content(&found.path, content)?
        }
        _ => false,
    })
}

/// Entries inside protected folders that the user did not give; of a foreign folder only the folder itself.
fn foreign_entries(context: &Context, tree: &ProtectedTree, writable: &[SafePath]) -> Vec<PathBuf> {
    let inputs = &context.inputs;
    let all = inputs.protect.iter().chain(&inputs.copy);
    let given: HashSet<&Path> = all
        .map(|input| &input.to)
        .chain(writable)
        .flat_map(|to| Path::new(to.as_str()).ancestors())
        .collect();
    let protect = inputs.protect.iter();
    let folders: HashSet<&Path> = protect
        .filter(|input| input.kind == InputKind::Dir)
        .map(path_of)
        .collect();
    let is_foreign = |path: &Path| {
        !given.contains(path)
            && !writable
                .iter()
                .any(|folder| path.starts_with(folder.as_str()))
            && path
                .ancestors()
                .skip(1)
                .any(|folder| folders.contains(folder))
    };
    let mut foreign: Vec<PathBuf> = Vec::new();
    let mut cursor = tree.cursor();
    while let Some(entry) = cursor.advance() {
        let path = entry.path.as_path();
        let is_in_last = foreign.last().is_some_and(|last| path.starts_with(last));
        if !is_in_last && is_foreign(path) {
            foreign.push(path.to_owned());
        }
    }
    foreign
}

/// Prepares the workspace for a check: folders that checks may write contain only what the user gave, this check's
/// exist, and bytecode that an earlier program may have forged is removed.
pub(crate) fn make_ready(context: &Context, index: usize) -> Result<()> {
    let workspace = &context.workspace;
    for folder in writable_folders(context) {
        workspace.remove(Path::new(folder.as_str()))?;
        let mut placement = workspace.place_inputs();
        let protect = context.inputs.protect.iter();
        protect
            .filter(|input| input.to.starts_with(&folder))
            .try_for_each(|input| place(&mut placement, input))?;
    }
    for folder in &context.spec.checks[index].writable {
        workspace.make_dir(Path::new(folder.path.as_str()), FOLDER_MODE)?;
    }
    let inputs = context.inputs.copy.iter().chain(&context.inputs.protect);
    let given: HashSet<&Path> = inputs
        .filter(|input| input.to.as_str().contains(BYTECODE))
        .flat_map(|input| path_of(input).ancestors())
        .collect();
    workspace.remove_everywhere(BYTECODE, &|path| given.contains(path))
}

/// To be called when programs may have changed protected files since they were verified.
pub(crate) fn may_have_changed(context: &mut Context) {
    context.verified.is_current = false;
    context.verified.whole = None;
}

/// What is in the workspace, by a walk after which nothing changed. Of folders that tools fill it has only what is directly
/// in them and in the folder of their programs.
pub(crate) fn whole_walk(context: &mut Context) -> Result<Rc<RecordedWalk>> {
    if let Some(walk) = &context.verified.whole {
        return Ok(Rc::clone(walk));
    }
    let walk = Rc::new(walk_all(context)?);
    context.verified.whole = Some(Rc::clone(&walk));
    Ok(walk)
}

fn walk_all(context: &Context) -> Result<RecordedWalk> {
    let inputs: Vec<&WorkspaceInput> = context.inputs.protect.iter().collect();
    let mut places = ProtectedPlaces::of(&inputs);
    context.workspace.record_walk(&mut |entry| {
        let is_protected = places.locate(&entry.path) != PlaceRelation::Outside;
        match is_protected || is_recorded(&entry.path) {
            true => RecordStep::Enter,
            false => RecordStep::Record,
        }
    })
}

/// Whether snapshots and rules need what is in a folder.
fn is_recorded(folder: &Path) -> bool {
    let mut names = folder.iter().rev();
    match (names.next(), names.next()) {
        (Some(name), Some(around)) if around == "node_modules" => name == ".bin",
        (_, Some(around)) => around != "target" && around != ".venv",
        _ => true,
    }
}

/// The protected places that the sandbox makes read-only. The contents of a protected folder are covered by it, so that
/// a thousand files need one mount.
pub(crate) fn frozen_places(inputs: &[WorkspaceInput]) -> Vec<PathBuf> {
    outermost(inputs.iter())
        .filter(|input| !matches!(input.kind, InputKind::Link { .. }))
        .map(|input| path_of(input).to_owned())
        .collect()
}
