//! Walks the files and folders that a spec names; takes folders, regular files, and links that stay inside.
//!
//! `exclusions.rs` decides what of a folder is left out. Every name becomes a `SafePath` here. Files are opened without
//! blocking, so that a FIFO cannot hang a run; contents are hashed in pieces and kept in memory only on request.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::exclusions::{ExcludedFiles, InputFilter, ReservedPaths};
use super::input_error::InputError;
use super::inputs::{InputContent, InputKind, PlacedInputs};
use super::links::read_link;
use super::model::InputSource;
use crate::cancel::CancelToken;
use crate::regular_file::open_regular_file;
use crate::source::code;
use crate::source::diagnostic::shown_path;
use crate::source::finding::Finding;
use crate::workspace::generated::is_generated;
use crate::workspace::safe_path::SafePath;

/// A folder with this file is the directory of a fleet, whose roots and results change all the time.
const FLEET_LOCK: &str = ".fleet.lock";
/// The most that is kept in memory of all protected, hidden and template files together.
const MAX_KEPT_BYTES: u64 = 256 << 20;
/// The most files, folders and links that a spec may bring.
const MAX_ENTRIES: usize = 1_000_000;

/// Whether a file's content is kept with its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    InMemory,
    Streamed,
}

/// A walk over everything that one spec names; skips what belongs to the run, and enforces the bounds.
pub(super) struct InputWalk<'a> {
    cancel: &'a CancelToken,
    root: Option<PathBuf>,
    kept_bytes: u64,
    entries: usize,
    pub excluded: ExcludedFiles,
    pub warnings: Vec<Finding>,
}

impl InputWalk<'_> {
    /// A walk for a run in `root`; when `cancel` is set, it ends with an error.
    pub(super) fn new<'a>(root: &Path, cancel: &'a CancelToken) -> InputWalk<'a> {
        InputWalk {
            cancel,
            root: fs::canonicalize(root).ok(),
            kept_bytes: 0,
            entries: 0,
            excluded: ExcludedFiles::default(),
            warnings: Vec::new(),
        }
    }

    /// The root of the run, links resolved, if it exists.
    pub(super) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Adds what one source brings. `reserved` is left out of folders; `None` turns ignore files off, too.
    pub(super) fn add_source(
        &mut self,
        source: &InputSource,
        contents: Contents,
        reserved: Option<&ReservedPaths>,
        placed: &mut PlacedInputs,
    ) -> Result<(), InputError> {
        let from = self.resolve(&source.from)?;
        if reserved.is_some_and(|reserved| reserved.is_hidden(&from)) {
            let message = format!(
                "{} is named by a hidden check too; the model sees it",
                shown_path(Path::new(&source.written))
            );
            self.warnings
                .push(source.location.warning(code::INPUT, message));
        }
        match &source.to {
            Some(to) if !from.is_dir() => {
                placed.insert(to.clone(), self.read_file(&from, contents)?);
                Ok(())
            }
            to => {
                let filter = InputFilter::new(reserved, &source.exclude, &from)?;
                self.add_tree(&from, to.as_ref(), contents, &filter, placed)
            }
        }
    }

    /// Adds everything below a folder, unfiltered.
    pub(super) fn add_folder(
        &mut self,
        folder: &Path,
        contents: Contents,
        placed: &mut PlacedInputs,
    ) -> Result<(), InputError> {
        let top = self.resolve(folder)?;
        let filter = InputFilter::new(None, &[], &top)?;
        self.add_tree(&top, None, contents, &filter, placed)
    }

    fn add_tree(
        &mut self,
        top: &Path,
        to: Option<&SafePath>,
        contents: Contents,
        filter: &InputFilter<'_>,
        placed: &mut PlacedInputs,
    ) -> Result<(), InputError> {
        let mut thinned = BTreeSet::new();
        let mut pending = vec![(top.to_owned(), to.cloned(), filter.enter(top, None)?)];
        while let Some((folder, to, rules)) = pending.pop() {
            for (name, is_folder) in self.list(&folder)? {
                let path = folder.join(&name);
                if let Some(reason) = filter.exclusion(rules.as_deref(), &path, is_folder) {
                    let name = name.to_string_lossy();
                    self.excluded.add(to.as_ref(), &name, reason);
                    thinned.extend(to.clone());
                    continue;
                }
                let to = joined(to.as_ref(), &name, &path)?;
                match self.read_entry(&path, top, contents)? {
                    InputKind::Dir => {
                        let rules = filter.enter(&path, rules.clone())?;
                        pending.push((path, Some(to), rules));
                    }
                    kind => drop(placed.insert(to, kind)),
                }
            }
            placed.extend(to.map(|to| (to, InputKind::Dir)));
        }
        drop_emptied(placed, thinned, to);
        Ok(())
    }

    /// Resolves the links of a path that the spec names; what belongs to the run is refused.
    fn resolve(&self, path: &Path) -> Result<PathBuf, InputError> {
        let resolved =
            fs::canonicalize(path).map_err(|error| InputError::unreadable(path, error))?;
        match self.is_owned_by_run(&resolved) {
            true => Err(InputError::OwnedByRun(path.to_owned())),
            false => Ok(resolved),
        }
    }

    /// The sorted names in a folder that may be taken, and whether each is a folder itself.
    fn list(&self, folder: &Path) -> Result<Vec<(OsString, bool)>, InputError> {
        let unreadable = |error| InputError::unreadable(folder, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let is_owned = || {
                let path = folder.join(&name);
                self.is_owned_by_run(&path) || path.join(FLEET_LOCK).exists()
            };
            if name != ".git" && !is_generated(&name) && !is_owned() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                names.push((name, is_folder));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether a resolved path is, or lies in, what the run keeps in its root.
    fn is_owned_by_run(&self, path: &Path) -> bool {
        let below = self
            .root
            .as_ref()
            .and_then(|root| path.strip_prefix(root).ok());
        let first = below.and_then(|below| below.iter().next()?.to_str());
        first.is_some_and(|name| {
            matches!(name, "workspace" | "logs" | "state.json")
                || name.starts_with(".orchestrator")
                || name.starts_with("state.json.")
        })
    }

    fn read_entry(
        &mut self,
        path: &Path,
        top: &Path,
        contents: Contents,
    ) -> Result<InputKind, InputError> {
        if self.cancel.requested().is_some() {
            return Err(InputError::Cancelled);
        }
        self.entries += 1;
        if MAX_ENTRIES < self.entries {
            return Err(InputError::TooManyFiles { most: MAX_ENTRIES });
        }
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(InputKind::Dir),
            Ok(metadata) if metadata.is_symlink() => read_link(path, top),
            Ok(_) => self.read_file(path, contents),
            Err(error) => Err(InputError::unreadable(path, error)),
        }
    }

    fn read_file(&mut self, path: &Path, contents: Contents) -> Result<InputKind, InputError> {
        self.hash_file(path, contents)
            .map_err(|error| InputError::unreadable(path, error))
    }

    fn hash_file(&mut self, path: &Path, contents: Contents) -> io::Result<InputKind> {
        let mut file = open_regular_file(path, OFlags::NOFOLLOW)?;
        let metadata = file.metadata()?;
        let (sha256, content) = match contents {
            Contents::Streamed => {
                let source = InputContent::Source(path.to_owned());
                (hash_stream(&mut file)?, source)
            }
            Contents::InMemory => {
                let content = self.read_into_memory(&mut file, metadata.size())?;
                (Sha256::digest(&content).into(), InputContent::Held(content))
            }
        };
        Ok(InputKind::File {
            mode: metadata.permissions().mode() & 0o777,
            sha256,
            content,
        })
    }

    fn read_into_memory(&mut self, file: &mut File, size: u64) -> io::Result<Arc<[u8]>> {
        let left = MAX_KEPT_BYTES - self.kept_bytes;
        let mut content = Vec::with_capacity(usize::try_from(size.min(left)).unwrap_or(0));
        file.take(left + 1).read_to_end(&mut content)?;
        if left < content.len() as u64 {
            let most = MAX_KEPT_BYTES >> 20;
            return Err(io::Error::other(format!(
                "protected, hidden and template files are more than {most} MiB"
            )));
        }
        self.kept_bytes += content.len() as u64;
        Ok(content.into())
    }
}

fn hash_stream(file: &mut File) -> io::Result<[u8; 32]> {
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

/// The path in the workspace of `name`, which is at `path`.
fn joined(folder: Option<&SafePath>, name: &OsStr, path: &Path) -> Result<SafePath, InputError> {
    let unsafe_name = |rule: String| InputError::UnsafeName {
        path: path.to_owned(),
        rule,
    };
    let name = name
        .to_str()
        .ok_or_else(|| unsafe_name("its name is not UTF-8".to_owned()))?;
    let text = folder.map_or(name.to_owned(), |folder| format!("{folder}/{name}"));
    SafePath::parse(&text).map_err(|violation| unsafe_name(violation.rule))
}

/// Removes folders that are empty because everything in them was left out; `top` itself stays.
fn drop_emptied(
    placed: &mut PlacedInputs,
    mut thinned: BTreeSet<SafePath>,
    top: Option<&SafePath>,
) {
    let mut children: BTreeMap<SafePath, usize> = BTreeMap::new();
    for parent in placed.keys().filter_map(SafePath::parent) {
        *children.entry(parent).or_default() += 1;
    }
    // From the inside out: what a folder holds sorts after it.
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
