//! The files of the project that a search goes through.
//!
//! Folders are entered by handles, never through a link. `.gitignore` and `.ignore` hold for what is around them and
//! below, the nearest first and `.ignore` before `.gitignore`; they are read like any file here, so that one which is a
//! pipe or endless stops nothing. `.git` is never entered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::FileType;

use super::glob::{GlobFilter, is_hidden};
use super::text::FileText;
use crate::workspace::{FolderEntry, ProjectDir, ProjectFolder};

/// Entries deeper than this many folders are not searched.
const MAX_DEPTH: usize = 256;
/// Rules beyond this many lines of one file do not hold.
const MAX_RULES: usize = 5_000;
/// Weightier first.
const RULE_FILES: [&str; 2] = [".ignore", ".gitignore"];

/// The files that were found, and whether there was time for all.
#[derive(Debug)]
pub(super) struct SearchFiles {
    pub paths: Vec<PathBuf>,
    pub is_whole: bool,
}

/// Returns the files that the filter names, in the order of the bytes of their paths.
pub(super) fn files(project: &ProjectDir, filter: &GlobFilter, until: Instant) -> SearchFiles {
    let mut walk = SearchWalk {
        project,
        filter,
        until,
        files: SearchFiles {
            paths: Vec::new(),
            is_whole: true,
        },
    };
    if let Ok(top) = project.open_folder() {
        walk.folder(&top, Path::new(""), None, 0);
    }
    walk.files.paths.sort_unstable_by(|one, other| {
        one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes())
    });
    walk.files
}

struct SearchWalk<'a> {
    project: &'a ProjectDir,
    filter: &'a GlobFilter,
    until: Instant,
    files: SearchFiles,
}

/// The rules of a folder, and of those around it.
struct FolderRules<'a> {
    own: [Gitignore; 2],
    /// How long the path of the folder is, its slash included.
    prefix: usize,
    around: Option<&'a FolderRules<'a>>,
}

impl SearchWalk<'_> {
    /// Goes through a folder. What cannot be read, or is gone, is passed over.
    fn folder(
        &mut self,
        folder: &ProjectFolder,
        path: &Path,
        around: Option<&FolderRules<'_>>,
        depth: usize,
    ) {
        if self.until < Instant::now() {
            self.files.is_whole = false;
            return;
        }
        let Ok(entries) = folder.entries() else {
            return;
        };
        let own = FolderRules::of(folder, path, &entries, around);
        let rules = own.as_ref().or(around);
        for entry in &entries {
            let name = entry.name.as_os_str();
            let inner = path.join(name);
            match entry.kind {
                _ if self.project.hides(&inner) => {}
                FileType::RegularFile => self.file(name, inner, rules),
                FileType::Directory if name != ".git" => {
                    if depth < MAX_DEPTH
                        && self.enters(name, &inner, rules)
                        && let Ok(opened) = folder.enter(name)
                    {
                        self.folder(&opened, &inner, rules, depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    fn file(&mut self, name: &OsStr, path: PathBuf, rules: Option<&FolderRules<'_>>) {
        if self.filter.names(&path)
            && self.filter.named.as_ref() != Some(&path)
            && (!is_hidden(name) || self.filter.names_hidden(name))
            && !rules.is_some_and(|rules| rules.exclude(&path, false))
        {
            self.files.paths.push(path);
        }
    }

    fn enters(&self, name: &OsStr, path: &Path, rules: Option<&FolderRules<'_>>) -> bool {
        self.filter.enters(path)
            && (self.filter.names_folder(path)
                || (!is_hidden(name) || self.filter.names_hidden(name))
                    && !rules.is_some_and(|rules| rules.exclude(path, true)))
    }
}

impl<'a> FolderRules<'a> {
    /// Reads the rules that a folder has, if it has any.
    fn of(
        folder: &ProjectFolder,
        path: &Path,
        entries: &[FolderEntry],
        around: Option<&'a FolderRules<'a>>,
    ) -> Option<FolderRules<'a>> {
        let is_rule_file = |entry: &FolderEntry| RULE_FILES.iter().any(|name| entry.name == *name);
        if !entries.iter().any(is_rule_file) {
            return None;
        }
        let length = path.as_os_str().len();
        let prefix = if length == 0 { 0 } else { length + 1 };
        Some(FolderRules {
            own: RULE_FILES.map(|name| rules_in(folder, name)),
            prefix,
            around,
        })
    }

    /// Returns whether the rules exclude a path: the nearest that says anything decides.
    fn exclude(&self, path: &Path, is_folder: bool) -> bool {
        let bytes = path.as_os_str().as_bytes();
        for weight in 0..RULE_FILES.len() {
            let mut level = Some(self);
            while let Some(rules) = level {
                let inner = Path::new(OsStr::from_bytes(&bytes[rules.prefix..]));
                let said = rules.own[weight].matched(inner, is_folder);
                if !said.is_none() {
                    return said.is_ignore();
                }
                level = rules.around;
            }
        }
        false
    }
}

fn rules_in(folder: &ProjectFolder, name: &str) -> Gitignore {
    let content = folder.read(OsStr::new(name)).ok();
    let Some(text) = content.and_then(FileText::new) else {
        return Gitignore::empty();
    };
    let mut builder = GitignoreBuilder::new(".");
    for line in text.lines_from(text.top()).take(MAX_RULES) {
        // An invalid line excludes nothing, as in git.
        let _ = builder.add_line(None, &String::from_utf8_lossy(text.content(line)));
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
