//! The user's files in the workspace: brought in before generation, and what is protected put back.
//!
//! What is protected is exactly what the user gave: contents and modes are compared with trusted copies in memory,
//! and what somebody added inside a protected folder goes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::engine::context::Context;
use crate::engine::spec::inputs::{Input, InputKind};
use crate::engine::spec::read::open_file;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::safety::door::{Door, Kind, Read, Walk};

/// The mode of a folder that is brought in.
const FOLDER_MODE: u32 = 0o755;

/// What had to be mended, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutBack {
    pub restored: Vec<String>,
    pub removed: Vec<String>,
}

impl PutBack {
    /// Adds more, each name once.
    pub fn add(&mut self, more: PutBack) {
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
pub fn bring_in(context: &Context, inputs: &[Input]) -> Result<()> {
    inputs.iter().try_for_each(|input| context.heed_stop().and_then(|()| place(&context.door, input)))
}

fn place(door: &Door, input: &Input) -> Result<()> {
    let to = Path::new(input.to.as_str());
    match &input.kind {
        InputKind::Dir => door.make_dir(to, FOLDER_MODE),
        InputKind::Link { target } => door.put_link(to, target.as_os_str()),
        InputKind::File { mode, content: Some(content), .. } => door.put_file(to, &mut &content[..], *mode, false),
        InputKind::File { source, mode, content: None, .. } => {
            let mut file = open_file(source, OFlags::NOFOLLOW).map_err(|error| Error::io("open", source, error))?;
            door.put_file(to, &mut file, *mode, false)
        }
    }
}

/// Puts protected files back, removes foreign ones from protected folders, and writes both down.
pub fn put_back(context: &mut Context) -> Result<PutBack> {
    if context.inputs.protect.is_empty() {
        return Ok(PutBack::default());
    }
    let found = found(context)?;
    let mut done = PutBack::default();
    for input in &context.inputs.protect {
        if !is_as_given(&context.door, input, found.get(Path::new(input.to.as_str())))? {
            place(&context.door, input)?;
            done.restored.push(input.to.as_str().to_owned());
        }
    }
    for path in foreign(context, &found) {
        context.door.remove(&path)?;
        done.removed.push(path.to_string_lossy().into_owned());
    }
    if done != PutBack::default() {
        context.door.settle(done.restored.iter().chain(&done.removed).map(Path::new))?;
        context.scribe.tell(Event::ProtectedRestored {
            agent_id: MAIN_AGENT.into(),
            restored: done.restored.clone(),
            removed: done.removed.clone(),
        })?;
    }
    Ok(done)
}

/// Everything in protected places as it stands, links not followed.
fn found(context: &Context) -> Result<BTreeMap<PathBuf, Kind>> {
    let places: HashSet<&Path> = context.inputs.protect.iter().map(|input| Path::new(input.to.as_str())).collect();
    let ways: HashSet<&Path> = places.iter().flat_map(|place| place.ancestors()).collect();
    let mut found = BTreeMap::new();
    context.door.walk_whole(&mut |entry| {
        let is_inside = || entry.path.ancestors().any(|folder| places.contains(folder));
        let concerns = ways.contains(entry.path.as_path()) || is_inside();
        if concerns {
            found.insert(entry.path.clone(), entry.kind.clone());
        }
        if concerns { Walk::On } else { Walk::Skip }
    })?;
    Ok(found)
}

fn is_as_given(door: &Door, input: &Input, found: Option<&Kind>) -> Result<bool> {
    let path = Path::new(input.to.as_str());
    Ok(match (&input.kind, found) {
        (InputKind::Dir, Some(Kind::Dir { mode })) => mode & 0o700 == 0o700,
        (InputKind::Link { target }, Some(Kind::Link { target: now })) => now.as_os_str() == target.as_os_str(),
        (InputKind::File { mode, content: Some(content), .. }, Some(Kind::File { size, mode: now })) => {
            mode & 0o777 == now & 0o777
                && *size == content.len() as u64
                && matches!(door.read_file(path, *size)?, Read::File(bytes) if bytes[..] == content[..])
        }
        _ => false,
    })
}

/// What lies inside a protected folder and was given by nobody; of a foreign folder only the folder itself.
fn foreign(context: &Context, found: &BTreeMap<PathBuf, Kind>) -> Vec<PathBuf> {
    let inputs = &context.inputs;
    let mut given: BTreeSet<&Path> = BTreeSet::new();
    for input in inputs.protect.iter().chain(&inputs.copy) {
        given.extend(Path::new(input.to.as_str()).ancestors());
    }
    let folders: BTreeSet<&Path> = inputs
        .protect
        .iter()
        .filter(|input| matches!(input.kind, InputKind::Dir))
        .map(|input| Path::new(input.to.as_str()))
        .collect();
    let mut foreign: Vec<PathBuf> = Vec::new();
    for path in found.keys() {
        let inside = path.ancestors().skip(1).any(|folder| folders.contains(folder));
        let below_another = foreign.last().is_some_and(|last| path.starts_with(last));
        if inside && !below_another && !given.contains(path.as_path()) {
            foreign.push(path.clone());
        }
    }
    foreign
}
