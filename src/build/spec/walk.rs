//! Walks what the user gives: folders and files, links that stay inside, nothing else.
//!
//! What of a folder stays behind is decided in `left_out.rs`.
//! Every name becomes a `SafePath` here. Files are opened without waiting, so that a FIFO with a file's name cannot
//! hold a run; contents are hashed in pieces and held in memory only where the caller asks.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::diagnostic::{quote_yaml, shown_path};
use super::exclusions::{ExcludedFiles, InputFilter, ReservedPaths};
use super::inputs::{InputKind, PlacedInputs};
use super::model::InputSource;
use crate::cancel::CancelToken;
use crate::regular_file::open_regular_file;
use crate::workspace::generated::is_generated;
use crate::workspace::safe_path::SafePath;

/// How much is held in memory of all protected, hidden and template files together.
pub const MAX_HELD_BYTES: u64 = 256 << 20;
/// How many files, folders and links a spec may bring.
const MAX_ENTRIES: usize = 1_000_000;

/// Whether a file's content is kept with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptContents {
    Held,
    Streamed,
}

/// Something that cannot be taken, and where there is one, the line that would help.
#[derive(Debug)]
pub struct RejectedInput {
    pub what: String,
    pub help: Option<String>,
}

impl From<String> for RejectedInput {
    fn from(what: String) -> RejectedInput {
        RejectedInput { what, help: None }
    }
}

/// A walk that leaves out what is the root's own, and counts what it takes.
pub struct InputWalk<'a> {
    cancel: &'a CancelToken,
    root: Option<PathBuf>,
    held: u64,
    entries: usize,
    pub left_out: ExcludedFiles,
    /// What the user may not have meant.
    pub warnings: Vec<String>,
}

impl InputWalk<'_> {
    /// Returns a walk for a run in `root` that ends early with any error when a signal asks for it.
    pub fn new<'a>(root: &Path, cancel: &'a CancelToken) -> InputWalk<'a> {
        let root = fs::canonicalize(root).ok();
        InputWalk {
            cancel,
            root,
            held: 0,
            entries: 0,
            left_out: ExcludedFiles::default(),
            warnings: Vec::new(),
        }
    }

    /// Returns the run's root, where it is there.
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Adds what one source brings; `apart` is what stays behind though a folder of `copy` or `protect` holds it.
    pub fn source(
        &mut self,
        source: &InputSource,
        contents: KeptContents,
        apart: Option<&ReservedPaths>,
        placed: &mut PlacedInputs,
    ) -> Result<(), RejectedInput> {
        let from = self.resolved(&source.from)?;
        if apart.is_some_and(|apart| apart.is_hidden(&from)) {
            let (head, name) = (
                source.location.head(),
                shown_path(Path::new(&source.written)),
            );
            self.warnings.push(format!(
                "{head}: {name} is named by a hidden check too; the model sees it"
            ));
        }
        match &source.to {
            Some(to) if !from.is_dir() => {
                placed.insert(to.clone(), self.file(&from, contents)?);
                Ok(())
            }
            to => {
                let filter = InputFilter::new(apart, &source.exclude, &from)?;
                self.below(&from, to.as_ref(), contents, &filter, placed)
                    .map_err(|problem| problem.explained(source, &from))
            }
        }
    }

    /// Adds a folder and everything below it.
    pub fn folder(
        &mut self,
        folder: &Path,
        contents: KeptContents,
        placed: &mut PlacedInputs,
    ) -> Result<(), String> {
        let top = self.resolved(folder)?;
        let filter = InputFilter::new(None, &[], &top)?;
        self.below(&top, None, contents, &filter, placed)
            .map_err(|problem| problem.what())
    }

    fn below(
        &mut self,
        top: &Path,
        to: Option<&SafePath>,
        contents: KeptContents,
        filter: &InputFilter<'_>,
        placed: &mut PlacedInputs,
    ) -> Result<(), WalkProblem> {
        let mut thinned = BTreeSet::new();
        let mut waiting = vec![(top.to_owned(), to.cloned(), filter.enter(top, None)?)];
        while let Some((folder, to, rules)) = waiting.pop() {
            for (name, is_folder) in self.names(&folder)? {
                let path = folder.join(&name);
                if let Some(why) = filter.leaves_out(rules.as_deref(), &path, is_folder) {
                    self.left_out.add(to.as_ref(), &name.to_string_lossy(), why);
                    thinned.extend(to.clone());
                    continue;
                }
                let to = below(to.as_ref(), &name, &folder)?;
                match self.entry(&path, top, contents)? {
                    InputKind::Dir => {
                        let rules = filter.enter(&path, rules.clone())?;
                        waiting.push((path, Some(to), rules));
                    }
                    kind => drop(placed.insert(to, kind)),
                }
            }
            placed.extend(to.map(|to| (to, InputKind::Dir)));
        }
        drop_thinned(placed, thinned, to);
        Ok(())
    }

    /// Returns where a path of the user's leads; not into what the run keeps.
    fn resolved(&self, path: &Path) -> Result<PathBuf, String> {
        let resolved = fs::canonicalize(path).map_err(|error| cannot_read(path, &error))?;
        match self.is_own(&resolved) {
            true => Err(format!(
                "{} belongs to the run itself and is never copied",
                shown_path(path)
            )),
            false => Ok(resolved),
        }
    }

    /// Returns the names in a folder that may be taken, and whether each is a folder itself.
    fn names(&self, folder: &Path) -> Result<Vec<(OsString, bool)>, String> {
        let entries = fs::read_dir(folder).map_err(|error| cannot_read(folder, &error))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| cannot_read(folder, &error))?;
            let name = entry.file_name();
            if name != ".git" && !is_generated(&name) && !self.is_own(&folder.join(&name)) {
                names.push((name, entry.file_type().is_ok_and(|kind| kind.is_dir())));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns whether a path is, or lies in, what the run itself keeps in its root; links are resolved before.
    fn is_own(&self, path: &Path) -> bool {
        let Some(below) = self
            .root
            .as_ref()
            .and_then(|root| path.strip_prefix(root).ok())
        else {
            return false;
        };
        let first = below
            .components()
            .next()
            .map(|component| component.as_os_str())
            .and_then(OsStr::to_str);
        first.is_some_and(|name| {
            matches!(name, "workspace" | "logs" | "state.json")
                || [".orchestrator", "state.json."]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        })
    }

    fn entry(
        &mut self,
        path: &Path,
        top: &Path,
        contents: KeptContents,
    ) -> Result<InputKind, WalkProblem> {
        if self.cancel.requested().is_some() {
            return Err("stopped".to_owned().into());
        }
        self.entries += 1;
        if MAX_ENTRIES < self.entries {
            return Err(format!("there are more than {MAX_ENTRIES} files to take").into());
        }
        let metadata = fs::symlink_metadata(path).map_err(|error| cannot_read(path, &error))?;
        if metadata.is_dir() {
            Ok(InputKind::Dir)
        } else if metadata.is_symlink() {
            link(path, top)
        } else {
            Ok(self.file(path, contents)?)
        }
    }

    fn file(&mut self, path: &Path, contents: KeptContents) -> Result<InputKind, String> {
        let fail = |error: io::Error| cannot_read(path, &error);
        let mut file = open_regular_file(path, OFlags::NOFOLLOW).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        let (sha256, content) = match contents {
            KeptContents::Streamed => (digest(&mut file).map_err(fail)?, None),
            KeptContents::Held => {
                let content = self.hold(&mut file, &metadata).map_err(fail)?;
                (Sha256::digest(&content).into(), Some(content))
            }
        };
        let mode = metadata.permissions().mode() & 0o777;
        Ok(InputKind::File {
            source: path.to_owned(),
            mode,
            sha256,
            content,
        })
    }

    fn hold(&mut self, file: &mut File, metadata: &Metadata) -> io::Result<Arc<[u8]>> {
        let left = MAX_HELD_BYTES - self.held;
        let mut content =
            Vec::with_capacity(usize::try_from(metadata.size().min(left)).unwrap_or(0));
        file.take(left + 1).read_to_end(&mut content)?;
        if left < content.len() as u64 {
            let most = MAX_HELD_BYTES >> 20;
            return Err(io::Error::other(format!(
                "protected, hidden and template files are more than {most} MiB"
            )));
        }
        self.held += content.len() as u64;
        Ok(content.into())
    }
}

fn digest(file: &mut File) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(length) => hasher.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn below(folder: Option<&SafePath>, name: &OsStr, within: &Path) -> Result<SafePath, String> {
    let shown = || shown_path(&within.join(name));
    let name = name
        .to_str()
        .ok_or_else(|| format!("{}: its name is not UTF-8", shown()))?;
    let text = folder.map_or(name.to_owned(), |folder| format!("{folder}/{name}"));
    SafePath::parse(&text).map_err(|violation| format!("{}: {}", shown(), violation.rule))
}

/// Removes folders of which nothing came because everything in them was left out; `top` itself stays.
fn drop_thinned(
    placed: &mut PlacedInputs,
    mut thinned: BTreeSet<SafePath>,
    top: Option<&SafePath>,
) {
    let mut children: BTreeMap<SafePath, usize> = BTreeMap::new();
    for parent in placed.keys().filter_map(SafePath::parent) {
        *children.entry(parent).or_default() += 1;
    }
    // From the inside out: what a folder holds comes after it.
    while let Some(folder) = thinned.pop_last() {
        if Some(&folder) == top || children.get(&folder).is_some_and(|count| 0 < *count) {
            continue;
        }
        placed.remove(&folder);
        if let Some(parent) = folder.parent() {
            children
                .entry(parent.clone())
                .and_modify(|count| *count -= 1);
            thinned.insert(parent);
        }
    }
}

/// Why a walk ended.
enum WalkProblem {
    Other(String),
    /// A link that leads out of what is copied, and where to.
    LeavingLink(PathBuf, PathBuf),
}

impl From<String> for WalkProblem {
    fn from(what: String) -> WalkProblem {
        WalkProblem::Other(what)
    }
}

impl WalkProblem {
    fn what(&self) -> String {
        match self {
            WalkProblem::Other(what) => what.clone(),
            WalkProblem::LeavingLink(link, target) => {
                format!(
                    "{}: this link leads out of what is copied, to {}",
                    shown_path(link),
                    shown_path(target)
                )
            }
        }
    }

    /// Returns the problem with the line that the user can write in the place of `source`, which is really at `top`.
    fn explained(&self, source: &InputSource, top: &Path) -> RejectedInput {
        let help = match self {
            WalkProblem::Other(_) => None,
            WalkProblem::LeavingLink(link, _) => match virtual_environment(link, top) {
                None => Some(format!(
                    "`{}` leaves it out",
                    source.without(&inside(top, link))
                )),
                Some(folder) => Some(format!(
                    "`{}` leaves the virtual environment out, and `sandbox: {{read: [{}]}}` shows it to checks",
                    source.without(&format!("{}/", inside(top, folder))),
                    quote_yaml(&folder.to_string_lossy())
                )),
            },
        };
        RejectedInput {
            what: self.what(),
            help,
        }
    }
}

/// Returns the virtual environment below `top` that a link belongs to.
fn virtual_environment<'a>(link: &'a Path, top: &Path) -> Option<&'a Path> {
    let folders = link
        .ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(top) && *folder != top);
    folders
        .into_iter()
        .find(|folder| folder.join("pyvenv.cfg").is_file())
}

/// Returns the pattern of `exclude` for exactly this path.
fn inside(top: &Path, path: &Path) -> String {
    let mut pattern = String::from("/");
    for character in path
        .strip_prefix(top)
        .unwrap_or(path)
        .to_string_lossy()
        .chars()
    {
        pattern.extend("*?[]{}\\".contains(character).then_some('\\'));
        pattern.push(character);
    }
    pattern
}

/// Returns the link if it stays below `top` by its own words and, where it leads somewhere, in fact.
fn link(path: &Path, top: &Path) -> Result<InputKind, WalkProblem> {
    let target = fs::read_link(path).map_err(|error| cannot_read(path, &error))?;
    let begin = path
        .strip_prefix(top)
        .map_or(0, |inside| inside.components().count() - 1);
    let resolved = fs::canonicalize(path).ok();
    match stays_inside(begin, &target) && resolved.is_none_or(|end| end.starts_with(top)) {
        true => Ok(InputKind::Link { target }),
        false => Err(WalkProblem::LeavingLink(path.to_owned(), target)),
    }
}

fn stays_inside(begin: usize, target: &Path) -> bool {
    let depth = target
        .components()
        .try_fold(begin, |depth, component| match component {
            Component::Normal(_) => Some(depth + 1),
            Component::CurDir => Some(depth),
            Component::ParentDir => depth.checked_sub(1),
            Component::RootDir | Component::Prefix(_) => None,
        });
    depth.is_some()
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", shown_path(path))
}
