//! Where programs live: the system, the toolchains of the home, and what PATH leads to.

use std::env::split_paths;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::sandbox::trace::{PathResolver, TracedPath};

/// Directories of programs and settings; those that begin with `/lib` are added.
const SYSTEM: [&str; 8] = [
    "/usr", "/bin", "/sbin", "/etc", "/opt", "/nix", "/snap", "/sys",
];
const PACKAGES: &str = "/var/lib/dpkg";

/// Toolchains, below the home; like below, words with white space between them.
const TOOLCHAINS: &str = "
    .cargo .rustup .pyenv .nvm go .local/bin .local/lib .local/share/uv .local/share/pipx .local/share/mise
    .asdf .sdkman .volta .bun .deno .rbenv .ghcup .opam .m2/repository .gradle/caches .gradle/wrapper
    miniconda3 anaconda3 miniforge3";

/// Directories of a home with mixed content: they are not opened as the parent of an entry of PATH.
const MIXED: &str = "
    .config .cache .local .local/share .local/state .m2 .gradle .var .ssh .gnupg snap Desktop Documents Downloads";

/// How many names in a directory on PATH are checked for symlinks.
const MAX_NAMES: usize = 4096;

/// The directories of the system that exist.
pub(super) fn system(resolver: &PathResolver) -> Vec<TracedPath> {
    let top = Path::new("/");
    let names = resolver.list(top);
    let mut libraries: Vec<PathBuf> = names
        .keys()
        .filter(|name| name.as_encoded_bytes().starts_with(b"lib"))
        .map(|name| top.join(name))
        .collect();
    libraries.sort();
    let named = SYSTEM.iter().chain([&PACKAGES]).map(PathBuf::from);
    named
        .chain(libraries)
        .filter_map(|path| resolver.trace(&path))
        .filter(|found| found.is_folder)
        .collect()
}

/// Whether a path contains a directory of the system: no program would run if it were hidden.
pub(super) fn is_vital(path: &Path, system: &[TracedPath]) -> bool {
    system.iter().any(|found| found.real.starts_with(path))
}

/// Where the user's programs are looked for.
pub(super) struct ProgramSite<'a> {
    pub(super) resolver: &'a PathResolver,
    pub(super) home: &'a Path,
    /// The canonical paths of the home and of the root.
    pub(super) real_home: PathBuf,
    pub(super) real_root: Option<PathBuf>,
}

impl ProgramSite<'_> {
    /// The toolchains below the home: the usual ones, and those that the caller's variables name.
    pub(super) fn toolchains(&self, named: Vec<PathBuf>) -> Vec<TracedPath> {
        let named = named.into_iter().filter(|path| self.is_in_home(path));
        let usual = TOOLCHAINS
            .split_whitespace()
            .map(|below| self.home.join(below));
        usual
            .chain(named)
            .filter_map(|path| self.below_home(&path))
            .collect()
    }

    /// What the entries of PATH below the home lead to: their parent directories, and the targets of the links in them.
    pub(super) fn programs(&self, path: &OsStr) -> Vec<TracedPath> {
        let mut all = Vec::new();
        let mut entries: Vec<PathBuf> = split_paths(path)
            .filter(|entry| entry.is_absolute() && self.is_in_home(entry))
            .collect();
        entries.sort();
        entries.dedup();
        for entry in entries {
            all.extend(entry.parent().and_then(|above| self.opened(above)));
            all.extend(self.opened(&entry));
            let links = self.links_in(&entry);
            all.extend(links.iter().filter_map(|link| self.link_target(link)));
        }
        all
    }

    fn links_in(&self, folder: &Path) -> Vec<PathBuf> {
        let Some(found) = self.resolver.trace(folder) else {
            return Vec::new();
        };
        let names = self.resolver.list(&found.real);
        let links = names.iter().filter(|(_, kind)| kind.is_symlink());
        let mut links: Vec<PathBuf> = links.map(|(name, _)| folder.join(name)).collect();
        links.sort();
        links.truncate(MAX_NAMES);
        links
    }

    /// What a link on PATH needs: its target, or the installation that contains it if the target lies in a `bin`. Targets
    /// that are not programs are left out: they may be keys.
    fn link_target(&self, link: &Path) -> Option<TracedPath> {
        let is_program = |file: &Path| {
            fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
        };
        let target = self
            .opened(link)
            .filter(|target| is_program(&target.real))?;
        let folder = target.real.parent()?;
        let is_installation = ["bin", "sbin", "libexec"]
            .iter()
            .any(|name| folder.file_name() == Some(OsStr::new(name)));
        let installation = folder
            .parent()
            .filter(|_| is_installation)
            .and_then(|above| self.opened(above));
        Some(TracedPath {
            real: installation.map_or(target.real, |found| found.real),
            ..target
        })
    }

    /// Resolves a path of the home if it may be opened: not the root, nor what `below_home` refuses.
    fn opened(&self, path: &Path) -> Option<TracedPath> {
        self.below_home(path)
            .filter(|found| Some(&found.real) != self.real_root.as_ref())
    }

    /// Resolves a path if it is not the home, a mixed directory of it, or a parent of them.
    fn below_home(&self, path: &Path) -> Option<TracedPath> {
        let found = self.resolver.trace(path)?;
        let home = &self.real_home;
        let is_mixed = MIXED
            .split_whitespace()
            .any(|mixed| found.real == home.join(mixed));
        (!is_mixed && !home.starts_with(&found.real)).then_some(found)
    }

    /// Whether a path lies below the home, literally or after resolving links.
    fn is_in_home(&self, path: &Path) -> bool {
        let is_inside = |path: &Path, folder: &Path| path != folder && path.starts_with(folder);
        is_inside(path, self.home) || is_inside(&self.resolver.real(path), &self.real_home)
    }
}

/// The symlinks on the way to entries of PATH; this does not open their targets.
pub(super) fn links_on_the_way(resolver: &PathResolver, path: &OsStr) -> Vec<(PathBuf, PathBuf)> {
    let entries = split_paths(path)
        .filter(|entry| entry.is_absolute())
        .filter_map(|entry| resolver.trace(&entry));
    entries.flat_map(|found| found.links).collect()
}
