//! The files of a project that `init` knows: those that a copy of it would contain, as far as it looks.

use std::ffi::OsStr;
use std::path::Path;

use ignore::WalkBuilder;

use crate::workspace::safe_path::SafePath;

/// How many entries are looked at, and how deep.
const MAX_ENTRIES: usize = 50_000;
const MAX_DEPTH: usize = 12;

/// Folders without files of the project, wherever they are.
const SKIPPED: [&str; 14] = [
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    ".venv",
    "venv",
    "env",
    ".tox",
    ".nox",
    "__pycache__",
    "target",
    "build",
    "dist",
    "vendor",
];
/// Folders of a root, at the top.
const OF_THE_ROOT: [&str; 3] = ["workspace", "logs", "specs"];

/// The files of a project, from its top and sorted.
#[derive(Debug, Default)]
pub(super) struct ProjectFiles {
    pub(super) files: Vec<String>,
    /// Links that lead out of the project: a copy refuses them.
    pub(super) leaving_links: Vec<String>,
    /// Whether there was more than is looked at.
    pub(super) is_cut: bool,
}

impl ProjectFiles {
    pub(super) fn find(top: &Path) -> ProjectFiles {
        let mut found = ProjectFiles::default();
        let mut seen = 0;
        for entry in walk(top).flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                found.is_cut = true;
                break;
            }
            let path = entry.path();
            let below = path.strip_prefix(top).ok().and_then(Path::to_str);
            let Some(below) = below.filter(|below| SafePath::parse(below).is_ok()) else {
                continue;
            };
            let kind = entry.file_type();
            if kind.is_some_and(|kind| kind.is_file()) {
                found.files.push(below.to_owned());
            } else if kind.is_some_and(|kind| kind.is_symlink()) && leads_out(path, top) {
                found.leaving_links.push(below.to_owned());
            }
        }
        found.files.sort();
        found.leaving_links.sort();
        found
    }

    /// The files below a folder, relative to it.
    pub(super) fn below<'a>(&'a self, folder: &str) -> Vec<&'a str> {
        let prefix = match folder {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let names = self
            .files
            .iter()
            .filter_map(|name| name.strip_prefix(&prefix));
        names.collect()
    }
}

fn walk(top: &Path) -> ignore::Walk {
    let at_top = top.to_owned();
    let is_skipped = move |path: &Path, name: &OsStr| {
        let is_at_top = path.parent() == Some(&at_top);
        SKIPPED.iter().any(|skipped| name == *skipped)
            || (is_at_top && OF_THE_ROOT.iter().any(|skipped| name == *skipped))
    };
    WalkBuilder::new(top)
        .hidden(false)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .follow_links(false)
        .max_depth(Some(MAX_DEPTH))
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.depth() == 0 || !is_folder || !is_skipped(entry.path(), entry.file_name())
        })
        .build()
}

/// Whether a link leads out of the project, as written or resolved.
fn leads_out(link: &Path, top: &Path) -> bool {
    let is_absolute = std::fs::read_link(link).is_ok_and(|target| target.is_absolute());
    let end = link.canonicalize();
    is_absolute || end.is_ok_and(|end| !end.starts_with(top))
}
