//! Where programs live: the system, the toolchains of the home, and what PATH leads to.

use std::env::split_paths;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::sandbox::trace::{TracedPath, trace};

/// Directories of programs and settings; those that begin with `/lib` are added.
const SYSTEM: [&str; 8] = [
    "/usr", "/bin", "/sbin", "/etc", "/opt", "/nix", "/snap", "/sys",
];
const PACKAGES: &str = "/var/lib/dpkg";

/// Toolchains, below the home.
const TOOLCHAINS: [&str; 24] = [
    ".cargo",
    ".rustup",
    ".pyenv",
    ".nvm",
    "go",
    ".local/bin",
    ".local/lib",
    ".local/share/uv",
    ".local/share/pipx",
    ".local/share/mise",
    ".asdf",
    ".sdkman",
    ".volta",
    ".bun",
    ".deno",
    ".rbenv",
    ".ghcup",
    ".opam",
    ".m2/repository",
    ".gradle/caches",
    ".gradle/wrapper",
    "miniconda3",
    "anaconda3",
    "miniforge3",
];

/// Directories of a home with mixed content: they are not opened as the parent of an entry of PATH.
const MIXED: [&str; 14] = [
    ".config",
    ".cache",
    ".local",
    ".local/share",
    ".local/state",
    ".m2",
    ".gradle",
    ".var",
    ".ssh",
    ".gnupg",
    "snap",
    "Desktop",
    "Documents",
    "Downloads",
];

/// How many names in a directory on PATH are checked for symlinks.
const MAX_NAMES: usize = 4096;

/// The directories of the system that exist.
pub(super) fn system() -> Vec<TracedPath> {
    let libraries = fs::read_dir("/")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let libraries =
        libraries.filter(|path| path.as_os_str().as_encoded_bytes().starts_with(b"/lib"));
    let named = SYSTEM.iter().chain([&PACKAGES]).map(PathBuf::from);
    named
        .chain(libraries)
        .filter_map(|path| trace(&path))
        .filter(|found| found.real.is_dir())
        .collect()
}

/// Whether a path contains a directory of the system: no program would run if it were hidden.
pub(super) fn is_vital(path: &Path) -> bool {
    system().iter().any(|found| found.real.starts_with(path))
}

/// The toolchains below a home: the usual ones, and those that the caller's variables name.
pub(super) fn toolchains(home: &Path, named: Vec<PathBuf>) -> Vec<TracedPath> {
    let named = named.into_iter().filter(|path| is_below(path, home));
    let usual = TOOLCHAINS.iter().map(|below| home.join(below));
    usual
        .chain(named)
        .filter_map(|path| opened(&path, home, None))
        .collect()
}

/// What the entries of PATH below a home lead to: their parent directories, and the targets of the links in them.
pub(super) fn programs(home: &Path, root: Option<&Path>, path: &OsStr) -> Vec<TracedPath> {
    let mut all = Vec::new();
    for entry in split_paths(path).filter(|entry| entry.is_absolute() && is_below(entry, home)) {
        all.extend(entry.parent().and_then(|above| opened(above, home, root)));
        all.extend(opened(&entry, home, root));
        all.extend(
            links_in(&entry)
                .iter()
                .filter_map(|link| link_target(link, home, root)),
        );
    }
    all
}

/// The symlinks on the way to entries of PATH; this does not open their targets.
pub(super) fn links_on_the_way(path: &OsStr) -> Vec<(PathBuf, PathBuf)> {
    let entries = split_paths(path)
        .filter(|entry| entry.is_absolute())
        .filter_map(|entry| trace(&entry));
    entries.flat_map(|found| found.links).collect()
}

fn links_in(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_NAMES);
    let links = names.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path()).collect()
}

/// What a link on PATH needs: its target, or the installation that contains it if the target lies in a `bin`. Targets
/// that are not programs are left out: they may be keys.
fn link_target(link: &Path, home: &Path, root: Option<&Path>) -> Option<TracedPath> {
    let is_program = |file: &Path| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    let target = opened(link, home, root).filter(|target| is_program(&target.real))?;
    let folder = target.real.parent()?;
    let is_installation = ["bin", "sbin", "libexec"]
        .iter()
        .any(|name| folder.file_name() == Some(OsStr::new(name)));
    let installation = folder
        .parent()
        .filter(|_| is_installation)
        .and_then(|above| opened(above, home, root));
    Some(TracedPath {
        real: installation.map_or(target.real, |found| found.real),
        ..target
    })
}

/// Resolves a path of the home if it may be opened: not the home, a mixed directory of it, the root, or a parent of them.
fn opened(path: &Path, home: &Path, root: Option<&Path>) -> Option<TracedPath> {
    let found = trace(path)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = real(home);
    let is_mixed = MIXED.iter().any(|mixed| found.real == home.join(mixed));
    let is_too_much = is_mixed
        || home.starts_with(&found.real)
        || root.is_some_and(|root| real(root) == found.real);
    (!is_too_much).then_some(found)
}

/// Whether a path lies below a directory, literally or after resolving links.
fn is_below(path: &Path, folder: &Path) -> bool {
    let is_inside = |path: &Path, folder: &Path| path != folder && path.starts_with(folder);
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    is_inside(path, folder) || is_inside(&real(path), &real(folder))
}
