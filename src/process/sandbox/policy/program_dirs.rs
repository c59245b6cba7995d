//! Where programs live: the system, the toolchains of the home, and what PATH leads to.

use std::env::split_paths;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// What every system keeps its programs and settings in; what begins with `/lib` joins them.
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

/// Folders of a home that hold a bit of everything: one on PATH inside them opens itself alone.
const SHARED: [&str; 14] = [
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

/// How many links a path may take, as in the kernel.
const MAX_LINKS: usize = 40;
/// How many names of a folder on PATH are looked at for links.
const MAX_NAMES: usize = 4096;

/// A place that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundDir {
    pub(super) real: PathBuf,
    /// The links on the way to it, by their real place.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Whether it is the user's, so that there may be credentials in it.
    pub(super) is_toolchain: bool,
}

/// Follows a path to where it leads, if that is anywhere.
pub(super) fn trace(path: &Path) -> Option<FoundDir> {
    let mut ahead: Vec<OsString> = Vec::new();
    push(&mut ahead, path);
    let mut found = FoundDir {
        real: PathBuf::from("/"),
        links: Vec::new(),
        is_toolchain: false,
    };
    while let Some(name) = ahead.pop() {
        match name.as_encoded_bytes() {
            b"/" => found.real = PathBuf::from("/"),
            b".." => drop(found.real.pop()),
            _ => step(&mut found, &mut ahead, &name)?,
        }
    }
    Some(found)
}

fn step(found: &mut FoundDir, ahead: &mut Vec<OsString>, name: &OsStr) -> Option<()> {
    let next = found.real.join(name);
    if !fs::symlink_metadata(&next).ok()?.is_symlink() {
        found.real = next;
        return Some(());
    }
    let target = fs::read_link(&next).ok()?;
    push(ahead, &target);
    found.links.push((next, target));
    (found.links.len() <= MAX_LINKS).then_some(())
}

/// Puts the parts of a path before what is ahead already; the next one is the last.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let parts = path
        .components()
        .rev()
        .filter(|part| !matches!(part, Component::CurDir));
    ahead.extend(parts.map(|part| part.as_os_str().to_owned()));
}

/// Returns the places of the system.
pub(super) fn system() -> Vec<FoundDir> {
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

/// Whether nothing would run any more if a place were hidden.
pub(super) fn is_vital(place: &Path) -> bool {
    system().iter().any(|found| found.real.starts_with(place))
}

/// Returns the toolchains below a home, and those below it that the caller's variables name.
pub(super) fn toolchains(home: &Path, named: Vec<PathBuf>) -> Vec<FoundDir> {
    let named = named.into_iter().filter(|place| is_below(place, home));
    let usual = TOOLCHAINS.iter().map(|below| home.join(below));
    usual
        .chain(named)
        .filter_map(|place| opened(&place, home, None))
        .collect()
}

/// Returns what the entries of PATH below a home lead to: the folder above each, and the targets of the links in it.
pub(super) fn programs(home: &Path, root: Option<&Path>, path: &OsStr) -> Vec<FoundDir> {
    let mut all = Vec::new();
    for entry in split_paths(path).filter(|entry| entry.is_absolute() && is_below(entry, home)) {
        all.extend(entry.parent().and_then(|above| opened(above, home, root)));
        all.extend(opened(&entry, home, root));
        all.extend(
            linked(&entry)
                .iter()
                .filter_map(|link| target_place(link, home, root)),
        );
    }
    all
}

/// Returns the links on the way to entries of PATH; what they lead to is not opened by that.
pub(super) fn links_on_the_way(path: &OsStr) -> Vec<(PathBuf, PathBuf)> {
    let entries = split_paths(path)
        .filter(|entry| entry.is_absolute())
        .filter_map(|entry| trace(&entry));
    entries.flat_map(|found| found.links).collect()
}

/// Returns the links in a folder.
fn linked(folder: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .take(MAX_NAMES);
    let links = names.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path()).collect()
}

/// Returns what a link on PATH needs: its target, with the folder above where that lies in a `bin`. What is no program
/// is not needed, and may be a key.
fn target_place(link: &Path, home: &Path, root: Option<&Path>) -> Option<FoundDir> {
    let is_program = |file: &Path| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    let target = opened(link, home, root).filter(|target| is_program(&target.real))?;
    let folder = target.real.parent()?;
    let is_kit = ["bin", "sbin", "libexec"]
        .iter()
        .any(|name| folder.file_name() == Some(OsStr::new(name)));
    let kit = folder
        .parent()
        .filter(|_| is_kit)
        .and_then(|above| opened(above, home, root));
    Some(FoundDir {
        real: kit.map_or(target.real, |kit| kit.real),
        ..target
    })
}

/// Returns a place of the home that may be opened: never the home, a shared folder of it, the root, or what is above.
fn opened(place: &Path, home: &Path, root: Option<&Path>) -> Option<FoundDir> {
    let found = trace(place)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = real(home);
    let is_shared = SHARED.iter().any(|shared| found.real == home.join(shared));
    let is_too_much = is_shared
        || home.starts_with(&found.real)
        || root.is_some_and(|root| real(root) == found.real);
    (!is_too_much).then_some(FoundDir {
        is_toolchain: true,
        ..found
    })
}

/// Whether a path lies below a folder, as it is written or where its links lead.
fn is_below(path: &Path, folder: &Path) -> bool {
    let is_inside = |path: &Path, folder: &Path| path != folder && path.starts_with(folder);
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    is_inside(path, folder) || is_inside(&real(path), &real(folder))
}
