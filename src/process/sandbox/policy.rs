//! What a sandboxed child may reach and use.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::os_text;
use crate::process::sandbox::trace::trace;

const GIB: u64 = 1 << 30;

/// Which sandbox layers this system supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SandboxMode {
    /// Namespaces, read-only mounts, seccomp and Landlock.
    Full,
    /// The same on a kernel without Landlock.
    FullWithoutLandlock,
    /// No namespaces: Landlock (ABI 3 or newer) and seccomp.
    Reduced,
}

impl SandboxMode {
    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            SandboxMode::Full => "full",
            SandboxMode::FullWithoutLandlock => "full (without Landlock)",
            SandboxMode::Reduced => "reduced",
        }
    }
}

/// What a child may reach.
///
/// Of `write`, `read` and `hide` the deepest entry that contains a path decides: a workspace can lie in a hidden
/// directory, and that one in a readable directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    pub mode: SandboxMode,
    /// Absolute and canonical; the first one is the workspace.
    #[serde(with = "os_text")]
    pub write: Vec<PathBuf>,
    /// Below `write`: read-only for children.
    #[serde(with = "os_text")]
    pub freeze: Vec<PathBuf>,
    /// Below `freeze`: writable all the same.
    #[serde(with = "os_text")]
    pub reopen: Vec<PathBuf>,
    /// Absolute, canonical and existing: what may be read and executed.
    #[serde(with = "os_text")]
    pub read: Vec<PathBuf>,
    /// Symlinks to create, as path and literal target; they lie in none of the above.
    #[serde(with = "os_text")]
    pub links: Vec<(PathBuf, PathBuf)>,
    /// What is never visible, although it lies below `read` or `write`.
    #[serde(with = "os_text")]
    pub hide: Vec<PathBuf>,
    /// The private directories as the child sees them.
    #[serde(with = "os_text")]
    pub home: PathBuf,
    #[serde(with = "os_text")]
    pub tmp: PathBuf,
    /// In reduced mode: the real directory that contains them.
    #[serde(with = "os_text")]
    pub private: Option<PathBuf>,
    /// Devices beyond the usual few.
    #[serde(with = "os_text")]
    pub devices: Vec<PathBuf>,
    pub network: bool,
    pub limits: ResourceLimits,
}

/// Limits of a check, phase or agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Processes and threads.
    pub processes: u64,
    /// Resident bytes of the whole process tree.
    pub memory: u64,
    /// Bytes by which the workspace may grow.
    pub disk: u64,
    /// Files by which the workspace may grow.
    pub files: u64,
    /// Bytes of one file.
    pub file_size: u64,
    /// Bytes that must stay free on the file system.
    pub reserve: u64,
    /// Bytes of the private directories together.
    pub private: u64,
}

/// What may be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAccess {
    Write,
    Read,
    Nothing,
}

impl SandboxPolicy {
    /// The value of TMPDIR: a directory that is empty at first, even if the path of the workspace leads through the
    /// private `/tmp`.
    pub fn tmpdir(&self) -> PathBuf {
        match self.mode {
            SandboxMode::Reduced => self.tmp.clone(),
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => self.tmp.join("private"),
        }
    }

    /// What may be done with a canonical path: the deepest entry that contains it decides.
    pub fn reach(&self, path: &Path) -> PathAccess {
        reach(path, &self.write, &self.read, &self.hide)
    }

    /// Whether a canonical path exists inside: it may be read, or is a parent of something that may.
    pub fn shows(&self, path: &Path) -> bool {
        let is_parent = self
            .read
            .iter()
            .chain(&self.write)
            .any(|open| open.starts_with(path));
        is_parent || self.reach(path) != PathAccess::Nothing
    }

    /// The folders in `write`, from the top down, that contain one of `paths`.
    fn folders_with<'a>(&self, paths: impl IntoIterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
        let is_inside = |folder: &&Path| self.write.iter().any(|top| folder.starts_with(top));
        paths
            .into_iter()
            .filter(|path| fs::symlink_metadata(path).is_ok())
            .flat_map(|path| path.ancestors().skip(1))
            .filter(is_inside)
            .map(Path::to_owned)
            .collect()
    }

    /// The folders in the workspace that contain something that cannot be changed, from the top down. They become mount
    /// points, which cannot be renamed: otherwise another folder could replace one that contains such a path.
    pub(crate) fn guarded_folders(&self) -> BTreeSet<PathBuf> {
        let guarded = self.freeze.iter().chain(&self.hide).chain(&self.read);
        let mut folders = self.folders_with(guarded);
        folders.retain(|folder| !self.write.contains(folder));
        folders
    }

    /// The folders in which nothing can be created, removed or renamed in reduced mode, although they are in `write`:
    /// something in them is hidden or read-only, and Landlock can only grant rights on whole folders.
    pub fn closed_folders(&self) -> BTreeSet<PathBuf> {
        match self.mode {
            SandboxMode::Reduced => self.folders_with(self.hide.iter().chain(&self.read)),
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => BTreeSet::new(),
        }
    }

    /// Follows an existing path and returns the links and the target that do not exist inside; empty if the path
    /// resolves there.
    pub fn unseen(&self, path: &Path) -> Vec<PathBuf> {
        let Some(found) = trace(path) else {
            return vec![path.to_owned()];
        };
        let is_created = |path: &Path| self.links.iter().any(|(link, _)| link == path);
        let links = found
            .links
            .into_iter()
            .map(|(link, _)| link)
            .filter(|link| !is_created(link));
        links
            .chain([found.real])
            .filter(|path| self.reach(path) == PathAccess::Nothing)
            .collect()
    }
}

/// What may be done with a path under these rules.
pub(super) fn reach(
    path: &Path,
    write: &[PathBuf],
    read: &[PathBuf],
    hide: &[PathBuf],
) -> PathAccess {
    let depth = |entries: &[PathBuf]| {
        let containing = entries.iter().filter(|entry| path.starts_with(entry));
        containing
            .map(|entry| entry.components().count())
            .max()
            .unwrap_or(0)
    };
    let (written, read, hidden) = (depth(write), depth(read), depth(hide));
    match written.max(read) {
        0 => PathAccess::Nothing,
        open if open < hidden => PathAccess::Nothing,
        _ if read <= written => PathAccess::Write,
        _ => PathAccess::Read,
    }
}

impl Default for ResourceLimits {
    /// The limits of a run that configures none; memory is three quarters of the machine's.
    fn default() -> ResourceLimits {
        ResourceLimits {
            processes: 2048,
            memory: machine_memory() / 4 * 3,
            disk: 10 * GIB,
            files: 1_000_000,
            file_size: 4 * GIB,
            reserve: GIB,
            private: 2 * GIB,
        }
    }
}

/// Bytes of memory of this machine; practically unlimited if `/proc/meminfo` does not state it.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    total
        .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX >> 10)
        << 10
}
