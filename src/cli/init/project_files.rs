//! The files of a project that `init` knows: those that a copy of it would contain, as far as it looks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use rustix::fs::{Access, access};

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
    /// What a copy would refuse.
    pub(super) left_out: Vec<LeftOutEntry>,
    /// Whether there was more than is looked at.
    pub(super) is_cut: bool,
}

/// Something that a spec has to exclude, since a copy would refuse it.
#[derive(Debug)]
pub(super) struct LeftOutEntry {
    /// From the top.
    pub(super) path: PathBuf,
    pub(super) why: &'static str,
}

impl LeftOutEntry {
    /// The pattern of `exclude`. Each byte with a meaning in patterns, or that text should not contain, is any byte.
    pub(super) fn pattern(&self) -> String {
        let plain = |byte: &u8| match byte.is_ascii_alphanumeric() || b"/._-+".contains(byte) {
            true => char::from(*byte),
            false => '?',
        };
        let path = self.path.as_os_str().as_bytes();
        format!("/{}", path.iter().map(plain).collect::<String>())
    }
}

impl ProjectFiles {
    pub(super) fn find(top: &Path) -> ProjectFiles {
        let mut found = ProjectFiles::default();
        for (seen, entry) in walk(top).flatten().enumerate() {
            if MAX_ENTRIES < seen {
                found.is_cut = true;
                break;
            }
            if 0 < entry.depth() {
                found.add(top, &entry);
            }
        }
        found.files.sort();
        found
            .left_out
            .sort_by(|one, other| one.path.cmp(&other.path));
        found
    }

    fn add(&mut self, top: &Path, entry: &DirEntry) {
        let below = entry.path().strip_prefix(top).unwrap_or(entry.path());
        if self
            .left_out
            .iter()
            .any(|outer| below.starts_with(&outer.path))
        {
            return;
        }
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        match (refusal(entry, below, top), below.to_str()) {
            (Some(why), _) => self.left_out.push(LeftOutEntry {
                path: below.to_owned(),
                why,
            }),
            (None, Some(name)) if is_file => self.files.push(name.to_owned()),
            (None, _) => {}
        }
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

/// Why a copy would refuse an entry, if it would.
fn refusal(entry: &DirEntry, below: &Path, top: &Path) -> Option<&'static str> {
    let path = entry.path();
    let kind = entry.file_type()?;
    let is_named = below
        .to_str()
        .is_some_and(|name| SafePath::parse(name).is_ok());
    let needed = match kind.is_dir() {
        true => Access::READ_OK | Access::EXEC_OK,
        false => Access::READ_OK,
    };
    if !is_named {
        Some("a name that cannot be copied")
    } else if kind.is_symlink() {
        leads_out(path, top).then_some("a link that leads out of the project")
    } else if !kind.is_file() && !kind.is_dir() {
        Some("neither a file nor a folder")
    } else {
        access(path, needed).is_err().then_some("not readable")
    }
}

/// Whether a link leads out of the project, as written or resolved.
fn leads_out(link: &Path, top: &Path) -> bool {
    let is_absolute = std::fs::read_link(link).is_ok_and(|target| target.is_absolute());
    let end = link.canonicalize();
    is_absolute || end.is_ok_and(|end| !end.starts_with(top))
}
