//! Finds changes to protected files while a check ran; the files of a hidden check are guarded, too.
//!
//! Inode, size and times are compared first, and contents only if these differ, so that thousands of files cost
//! milliseconds.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::build::checks::ToolResult;
use crate::build::checks::problem::CheckProblem;
use crate::build::context::Context;
use crate::build::protection::verified::{ProtectedTree, input_at, is_below, path_of, visit_pairs};
use crate::build::protection::{whole_walk, writable_folders};
use crate::build::spec::inputs::{InputContent, InputKind, WorkspaceInput};
use crate::error::Result;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{EntryKind, Workspace, WorkspaceEntry};

/// Protected files as they were when a check began.
#[derive(Debug)]
pub(crate) struct ProtectedGuard {
    before: Option<ProtectedTree>,
    /// Whether `before` is exactly what no check may change.
    is_common: bool,
    index: usize,
}

/// How a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProtectedChange {
    Rewritten,
    Removed,
    Replaced,
    Touched,
}

impl ProtectedChange {
    fn name(self) -> &'static str {
        match self {
            ProtectedChange::Rewritten => "rewritten",
            ProtectedChange::Removed => "removed",
            ProtectedChange::Replaced => "replaced",
            ProtectedChange::Touched => "touched, or changed and put back",
        }
    }
}

impl ProtectedGuard {
    /// Reads everything that must not change while this check runs.
    pub(crate) fn begin(context: &mut Context, index: usize) -> Result<ProtectedGuard> {
        let is_current = std::mem::take(&mut context.verified.is_current);
        context.verified.whole = None;
        let is_common = !context.spec.checks[index].hidden && writable_folders(context).is_empty();
        if is_current && is_common {
            return Ok(ProtectedGuard {
                before: context.verified.tree.take(),
                is_common: true,
                index,
            });
        }
        let inputs = guarded(context, index);
        let before = (!inputs.is_empty())
            .then(|| ProtectedTree::read(&context.workspace, &inputs))
            .transpose()?;
        Ok(ProtectedGuard {
            before,
            is_common: false,
            index,
        })
    }

    /// Compares: a check during which something changed has failed, whatever its result.
    pub(crate) fn end(mut self, context: &mut Context, result: &mut ToolResult) -> Result<()> {
        let Some(before) = self.before.take() else {
            return Ok(());
        };
        let after = self.read_after(context)?;
        let changed = match before.is_same(&after) {
            true => BTreeMap::new(),
            false => changes(context, self.index, &before, &after)?,
        };
        if self.is_common {
            // Contents were compared where times are not reliable.
            let is_current = changed.is_empty() && before.has_same_entries(&after);
            context.verified.is_current = is_current;
            context.verified.tree = Some(if is_current { after } else { before });
        }
        match changed.is_empty() {
            true => Ok(()),
            false => fail(context, self.index, &changed, result),
        }
    }
}

impl ProtectedGuard {
    /// Walks the workspace as it is now: all of it if this is the last check of the round.
    fn read_after(&self, context: &mut Context) -> Result<ProtectedTree> {
        let checks = &context.spec.checks;
        if checks.iter().any(|check| check.hidden) || self.index + 1 < checks.len() {
            return ProtectedTree::read(&context.workspace, &guarded(context, self.index));
        }
        let walk = whole_walk(context)?;
        Ok(ProtectedTree::in_walk(walk, &guarded(context, self.index)))
    }
}

/// Fails the check, and notes why.
fn fail(
    context: &mut Context,
    index: usize,
    changed: &BTreeMap<PathBuf, ProtectedChange>,
    result: &mut ToolResult,
) -> Result<()> {
    let check = &context.spec.checks[index];
    let files: Vec<String> = changed
        .iter()
        .filter(|(path, _)| !check.hidden || is_shown(context, path))
        .map(|(path, change)| format!("{} ({})", path.display(), change.name()))
        .collect();
    let problem = |also| CheckProblem::ProtectedChanged {
        files: files.clone(),
        also,
    };
    let note = format!(
        "check {}: {}; what the user gave is put back",
        check.name,
        problem(None)
    );
    let own = result.problem.take().filter(|_| !check.hidden);
    result.problem = Some(problem(own.map(Box::new)));
    context.log.note(note)
}

/// Everything that must not change while a check runs; a hidden file takes precedence over a protected one of the same
/// path.
fn guarded(context: &Context, index: usize) -> Vec<&WorkspaceInput> {
    let writable: Vec<SafePath> = context.spec.checks[index]
        .writable
        .iter()
        .map(|folder| folder.path.clone())
        .collect();
    let hidden = &context.inputs.hidden[index];
    let covered: HashSet<&SafePath> = hidden.iter().map(|input| &input.to).collect();
    let protected = context
        .inputs
        .protect
        .iter()
        .filter(|input| covered.is_empty() || !covered.contains(&input.to));
    let mut all: Vec<&WorkspaceInput> = protected
        .chain(hidden)
        .filter(|input| !is_below(&input.to, &writable))
        .collect();
    if !hidden.is_empty() {
        all.sort_by(|one, other| one.to.cmp(&other.to));
    }
    all
}

/// Whether the model may see a path: the names of hidden files are secret.
fn is_shown(context: &Context, path: &Path) -> bool {
    context
        .inputs
        .protect
        .iter()
        .any(|input| path_of(input).starts_with(path))
}

fn changes(
    context: &Context,
    index: usize,
    before: &ProtectedTree,
    after: &ProtectedTree,
) -> Result<BTreeMap<PathBuf, ProtectedChange>> {
    let inputs = guarded(context, index);
    let mut changed = BTreeMap::new();
    visit_pairs(Some(before), after, &mut |was, now| {
        let Some(was) = was else {
            return Ok(());
        };
        if now.is_some_and(|now| is_moved(was, now)) {
            changed.insert(was.path.clone(), ProtectedChange::Touched);
        }
        if let Some(index) = input_at(&inputs, &was.path)
            && let Some(change) = compare(&context.workspace, inputs[index], before, was, now)?
        {
            changed.insert(was.path.clone(), change);
        }
        Ok(())
    })?;
    let lost: HashSet<PathBuf> = changed
        .iter()
        .filter(|(_, change)| {
            matches!(change, ProtectedChange::Removed | ProtectedChange::Replaced)
        })
        .map(|(path, _)| path.clone())
        .collect();
    changed.retain(|path, _| !path.ancestors().skip(1).any(|folder| lost.contains(folder)));
    Ok(changed)
}

/// A folder of which only the ctime changed was moved and moved back: adding or removing entries changes mtime, too.
fn is_moved(was: &WorkspaceEntry, now: &WorkspaceEntry) -> bool {
    let is_same = was.ino == now.ino && was.kind == now.kind && was.mtime == now.mtime;
    is_same && matches!(was.kind, EntryKind::Dir { .. }) && was.ctime != now.ctime
}

fn compare(
    workspace: &Workspace,
    input: &WorkspaceInput,
    before: &ProtectedTree,
    was: &WorkspaceEntry,
    now: Option<&WorkspaceEntry>,
) -> Result<Option<ProtectedChange>> {
    let Some(now) = now else {
        return Ok(Some(ProtectedChange::Removed));
    };
    Ok(match (&input.kind, &was.kind, &now.kind) {
        (InputKind::Dir, EntryKind::Dir { .. }, EntryKind::Dir { .. }) if was.ino == now.ino => {
            (was.kind != now.kind).then_some(ProtectedChange::Touched)
        }
        (_, EntryKind::Link { target }, EntryKind::Link { target: other })
            if target == other && was.ino == now.ino =>
        {
            None
        }
        (_, EntryKind::File { .. }, EntryKind::File { .. }) if was.ino == now.ino => {
            match &input.kind {
                _ if was == now && before.is_settled(was) => None,
                InputKind::File {
                    content: InputContent::Held(content),
                    ..
                } if !workspace.has_content(&now.path, content)? => {
                    Some(ProtectedChange::Rewritten)
                }
                _ => (was != now).then_some(ProtectedChange::Touched),
            }
        }
        _ => Some(ProtectedChange::Replaced),
    })
}
