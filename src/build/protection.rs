//! The user's files in the workspace: brought in before generation, and what is protected put back.
//!
//! What is protected is exactly what the user gave: contents and modes are compared with trusted copies in memory,
//! and what somebody added inside a protected folder goes. A file whose content was compared once is known by its inode,
//! size and times from then on. `guard.rs` tells what changed while a check ran.

pub mod guard;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::build::context::Context;
use crate::build::spec::inputs::{InputKind, WorkspaceInput};
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::regular_file::open_regular_file;
use crate::workspace::generated::is_in_generated;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{
    EntryKind, FileTime, ReadOutcome, WalkStep, Workspace, WorkspaceEntry, now_of_files,
};

/// The mode of a folder that is brought in.
const FOLDER_MODE: u32 = 0o755;
/// Where Python keeps bytecode, and believes what it finds.
const BYTECODE: &str = "__pycache__";

/// What had to be mended, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoredFiles {
    pub restored: Vec<String>,
    pub removed: Vec<String>,
}

impl RestoredFiles {
    /// Adds more, each name once.
    pub fn add(&mut self, more: RestoredFiles) {
        let add = |all: &mut Vec<String>, more: Vec<String>| {
            for name in more {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
        };
        add(&mut self.restored, more.restored);
        add(&mut self.removed, more.removed);
    }
}

/// Brings the user's files into the workspace.
pub fn copy_in(context: &Context, inputs: &[WorkspaceInput]) -> Result<()> {
    inputs.iter().try_for_each(|input| {
        context
            .check_cancelled()
            .and_then(|()| place(&context.workspace, input))
    })
}

fn place(workspace: &Workspace, input: &WorkspaceInput) -> Result<()> {
    let to = Path::new(input.to.as_str());
    match &input.kind {
        InputKind::Dir => workspace.make_dir(to, FOLDER_MODE),
        InputKind::Link { target } => workspace.put_link(to, target.as_os_str()),
        InputKind::File {
            mode,
            content: Some(content),
            ..
        } => workspace.put_file(to, &mut &content[..], *mode, false),
        InputKind::File {
            source,
            mode,
            content: None,
            ..
        } => {
            let mut file = open_regular_file(source, OFlags::NOFOLLOW)
                .map_err(|error| Error::io("open", source, error))?;
            workspace.put_file(to, &mut file, *mode, false)
        }
    }
}

/// What is known of protected files since their contents were last compared with what the user gave.
#[derive(Debug, Default)]
pub struct VerifiedFiles {
    /// Entries that were as given when it was taken.
    look: Option<ProtectedTree>,
    /// Whether it holds everything, and nothing ran since.
    is_current: bool,
}

/// Everything in protected places as it stands, links not followed; the folders on the way to them included.
#[derive(Debug)]
struct ProtectedTree {
    /// In the order of a walk, so that two looks at equal trees are equal.
    entries: Vec<WorkspaceEntry>,
    /// The time of files when it began: what is changed later has this time or a later one.
    begun: FileTime,
    times_tell: bool,
}

type ByPath<'a> = HashMap<&'a Path, &'a WorkspaceEntry>;

impl ProtectedTree {
    fn at(workspace: &Workspace, inputs: &[&WorkspaceInput]) -> Result<ProtectedTree> {
        let (begun, times_tell) = (now_of_files(), workspace.has_reliable_times());
        let places: HashSet<&Path> = outermost(inputs.iter().copied()).map(path_of).collect();
        let ways: HashSet<&Path> = places.iter().flat_map(|place| place.ancestors()).collect();
        let mut entries = Vec::new();
        // The last place that was met: a walk leaves it when it has seen all of it.
        let mut around: Option<PathBuf> = None;
        workspace.walk_whole(&mut |entry| {
            let is_inside = around
                .as_ref()
                .is_some_and(|place| entry.path.starts_with(place));
            if !is_inside {
                around = places
                    .contains(entry.path.as_path())
                    .then(|| entry.path.clone());
            }
            if !is_inside && around.is_none() && !ways.contains(entry.path.as_path()) {
                return WalkStep::Skip;
            }
            entries.push(entry.clone());
            WalkStep::On
        })?;
        Ok(ProtectedTree {
            entries,
            begun,
            times_tell,
        })
    }

    fn by_path(&self) -> ByPath<'_> {
        self.entries
            .iter()
            .map(|entry| (entry.path.as_path(), entry))
            .collect()
    }

    /// Whether a later look that finds the same entry finds the same content: a change within the step of the clock in
    /// which the look began would leave no trace in the times.
    fn is_settled(&self, entry: &WorkspaceEntry) -> bool {
        self.times_tell && entry.ctime < self.begun
    }

    /// Whether nothing has changed from this look to a later one, as far as times tell.
    fn is_same(&self, later: &ProtectedTree) -> bool {
        self.entries == later.entries && self.entries.iter().all(|entry| self.is_settled(entry))
    }
}

fn get<'a>(entries: &ByPath<'a>, input: &WorkspaceInput) -> Option<&'a WorkspaceEntry> {
    entries.get(Path::new(input.to.as_str())).copied()
}

/// Puts protected files back, removes foreign ones from protected folders, and writes both down. What lies in a folder
/// that a check may write is left alone.
pub fn restore(context: &mut Context) -> Result<RestoredFiles> {
    if context.inputs.protect.is_empty() || context.verified.is_current {
        return Ok(RestoredFiles::default());
    }
    let writable = writable(context);
    let inputs: Vec<&WorkspaceInput> = context
        .inputs
        .protect
        .iter()
        .filter(|input| !is_below(&input.to, &writable))
        .collect();
    let mut look = ProtectedTree::at(&context.workspace, &inputs)?;
    let known = context.verified.look.take();
    let mut done = RestoredFiles::default();
    if !known.as_ref().is_some_and(|known| known.is_same(&look)) {
        let wrong = compare(context, &inputs, known.as_ref(), &look)?;
        let foreign = foreign(context, &look, &writable);
        for input in &wrong {
            place(&context.workspace, input)?;
            done.restored.push(input.to.as_str().to_owned());
        }
        for path in &foreign {
            context.workspace.remove(path)?;
        }
        let told = foreign.iter().filter(|path| !is_in_generated(path));
        done.removed
            .extend(told.map(|path| path.to_string_lossy().into_owned()));
        let wrong: HashSet<PathBuf> = wrong
            .iter()
            .map(|input| PathBuf::from(input.to.as_str()))
            .collect();
        context.verified.is_current = wrong.is_empty() && foreign.is_empty();
        look.entries.retain(|entry| !wrong.contains(&entry.path));
    } else {
        context.verified.is_current = true;
    }
    context.verified.look = Some(look);
    if done != RestoredFiles::default() {
        context
            .workspace
            .settle(done.restored.iter().chain(&done.removed).map(Path::new))?;
        context.log.record(Event::ProtectedRestored {
            agent_id: MAIN_AGENT.into(),
            restored: done.restored.clone(),
            removed: done.removed.clone(),
        })?;
    }
    Ok(done)
}

/// Returns what is not as the user gave it.
fn compare<'a>(
    context: &Context,
    inputs: &[&'a WorkspaceInput],
    known: Option<&ProtectedTree>,
    look: &ProtectedTree,
) -> Result<Vec<&'a WorkspaceInput>> {
    let (before, now) = (
        known.map(ProtectedTree::by_path).unwrap_or_default(),
        look.by_path(),
    );
    let mut wrong = Vec::new();
    for input in inputs {
        let is_known = |found: &WorkspaceEntry| {
            let known = known.filter(|known| known.is_settled(found));
            known.is_some() && before.get(found.path.as_path()) == Some(&found)
        };
        let is_right = match get(&now, input) {
            None => false,
            Some(found) => is_known(found) || is_as_given(&context.workspace, input, found)?,
        };
        if !is_right {
            wrong.push(*input);
        }
    }
    Ok(wrong)
}

/// The folders below protected ones that a check may write, of all checks.
fn writable(context: &Context) -> Vec<SafePath> {
    context
        .spec
        .checks
        .iter()
        .flat_map(|check| check.writable.iter().map(|folder| folder.path.clone()))
        .collect()
}

fn is_below(path: &SafePath, folders: &[SafePath]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// A file with a second name could be changed by that, so it is made anew.
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
                content: Some(content),
                ..
            },
            EntryKind::File { size, mode: now },
        ) => {
            mode & 0o777 == now & 0o777
                && found.links == 1
                && *size == content.len() as u64
                && has_content(workspace, &found.path, content)?
        }
        _ => false,
    })
}

fn has_content(workspace: &Workspace, path: &Path, content: &[u8]) -> Result<bool> {
    Ok(
        matches!(workspace.read_file(path, content.len() as u64)?, ReadOutcome::File(bytes) if bytes[..] == content[..]),
    )
}

/// What lies inside a protected folder and was given by nobody; of a foreign folder only the folder itself.
fn foreign(context: &Context, look: &ProtectedTree, writable: &[SafePath]) -> Vec<PathBuf> {
    let inputs = &context.inputs;
    let mut given: HashSet<&Path> = HashSet::new();
    for to in inputs
        .protect
        .iter()
        .chain(&inputs.copy)
        .map(|input| &input.to)
        .chain(writable)
    {
        given.extend(Path::new(to.as_str()).ancestors());
    }
    let folders: BTreeSet<&Path> = inputs
        .protect
        .iter()
        .filter(|input| matches!(input.kind, InputKind::Dir))
        .map(|input| Path::new(input.to.as_str()))
        .collect();
    let is_writable = |path: &Path| {
        writable
            .iter()
            .any(|folder| path.starts_with(folder.as_str()))
    };
    let mut foreign: Vec<PathBuf> = Vec::new();
    let paths: BTreeSet<&Path> = look
        .entries
        .iter()
        .map(|entry| entry.path.as_path())
        .collect();
    for path in paths
        .into_iter()
        .filter(|path| !given.contains(path) && !is_writable(path))
    {
        let inside = path
            .ancestors()
            .skip(1)
            .any(|folder| folders.contains(folder));
        let below_another = foreign.last().is_some_and(|last| path.starts_with(last));
        if inside && !below_another {
            foreign.push(path.to_owned());
        }
    }
    foreign
}

/// Makes the workspace ready for a check: folders that checks may write hold no more than the user gave, this check's
/// are there, and no bytecode is left that an earlier program may have forged.
pub fn make_ready(context: &Context, index: usize) -> Result<()> {
    for folder in writable(context) {
        context.workspace.remove(Path::new(folder.as_str()))?;
        let mut given = context
            .inputs
            .protect
            .iter()
            .filter(|input| input.to.starts_with(&folder));
        given.try_for_each(|input| place(&context.workspace, input))?;
    }
    for folder in &context.spec.checks[index].writable {
        context
            .workspace
            .make_dir(Path::new(folder.path.as_str()), FOLDER_MODE)?;
    }
    let inputs = &context.inputs;
    let named = inputs
        .copy
        .iter()
        .chain(&inputs.protect)
        .filter(|input| input.to.as_str().contains(BYTECODE));
    let given: HashSet<&Path> = named.flat_map(|input| path_of(input).ancestors()).collect();
    context
        .workspace
        .remove_everywhere(BYTECODE, &|path| given.contains(path))
}

/// Says that programs may have changed protected files since they were last looked at.
pub fn may_have_changed(context: &mut Context) {
    context.verified.is_current = false;
}

/// Returns the places that cannot be written where the walls can hold that: protected files and folders. What lies in a
/// protected folder is one with it, so that a thousand files make one mount.
pub fn frozen_places(inputs: &[WorkspaceInput]) -> Vec<PathBuf> {
    let places =
        outermost(inputs.iter()).filter(|input| !matches!(input.kind, InputKind::Link { .. }));
    places.map(|input| path_of(input).to_owned()).collect()
}

/// Returns what lies in no folder of the same list.
fn outermost<'a>(
    inputs: impl Iterator<Item = &'a WorkspaceInput>,
) -> impl Iterator<Item = &'a WorkspaceInput> {
    let mut folders: HashSet<&Path> = HashSet::new();
    let mut last: Option<&Path> = None;
    // A folder stands before what is in it, and most often right before it.
    inputs.filter(move |input| {
        let path = path_of(input);
        if last.is_some_and(|last| path.starts_with(last))
            || path.ancestors().any(|folder| folders.contains(folder))
        {
            return false;
        }
        if input.kind == InputKind::Dir {
            folders.insert(path);
            last = Some(path);
        }
        true
    })
}

fn path_of(input: &WorkspaceInput) -> &Path {
    Path::new(input.to.as_str())
}
