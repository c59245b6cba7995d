//! The directory of a workflow: which files are states, which one begins, which file a name means.
//!
//! The names are those that were there when it was opened; contents are read when they are needed. Nothing outside the
//! directory is ever read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::source::text_file;
use crate::text::hex;

/// The names of a start, in the order in which they are looked for.
const STARTS: [&str; 2] = ["1_START", "START"];
const README: &str = "README.md";
const MARKDOWN: &str = ".md";
const SCRIPT: &str = ".sh";

/// How a state is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateKind {
    Markdown,
    Script,
}

impl StateKind {
    /// The kind by the name of the file; `None` where no state has such a name.
    pub(crate) fn of_file(name: &str) -> Option<StateKind> {
        match () {
            () if name == README || name.starts_with('.') => None,
            () if name.ends_with(MARKDOWN) => Some(StateKind::Markdown),
            () if name.ends_with(SCRIPT) => Some(StateKind::Script),
            () => None,
        }
    }

    /// The word in the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            StateKind::Markdown => "markdown",
            StateKind::Script => "script",
        }
    }
}

/// The file of a state without its ending.
pub(crate) fn stem(file: &str) -> &str {
    file.strip_suffix(MARKDOWN)
        .or_else(|| file.strip_suffix(SCRIPT))
        .unwrap_or(file)
}

/// The states of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkflowScope {
    /// Absolute, links resolved.
    pub(crate) directory: PathBuf,
    states: BTreeSet<String>,
    /// Files with the name of a state that are links out of the directory.
    pub(crate) outside: Vec<String>,
}

/// Why a scope cannot be opened, or has not one start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScopeError {
    #[error("cannot read the workflow: {0}")]
    Unreadable(#[from] io::Error),
    #[error(
        "this is not a state: states are regular files that end in .md or .sh, except README.md and dotfiles"
    )]
    NotAState,
    #[error("there is no start: expected START.md, START.sh, 1_START.md or 1_START.sh")]
    NoStart,
    #[error("there are several starts: {}", .0.join(", "))]
    SeveralStarts(Vec<String>),
}

/// Why a name is not that of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameProblem {
    Empty,
    Separator,
    Missing,
    Ambiguous,
}

impl NameProblem {
    /// The problem with the name in a sentence.
    pub(crate) fn with_name(&self, name: &str) -> String {
        let shown = name.escape_debug();
        match self {
            NameProblem::Empty => "the name of a state is missing".into(),
            NameProblem::Separator => {
                format!("invalid state name \"{shown}\": it must not contain / or \\")
            }
            NameProblem::Missing => format!("there is no state \"{shown}\""),
            NameProblem::Ambiguous => format!(
                "the state \"{shown}\" is ambiguous: there are {shown}{MARKDOWN} and {shown}{SCRIPT}"
            ),
        }
    }
}

impl WorkflowScope {
    /// Opens the directory that a path names, or the directory of the state that it names; returns the start, too.
    pub(crate) fn open(path: &Path) -> Result<(WorkflowScope, String), ScopeError> {
        if path.metadata()?.is_dir() {
            let scope = WorkflowScope::list(path)?;
            let start = scope.default_start()?;
            return Ok((scope, start));
        }
        let name = path.file_name().and_then(OsStr::to_str);
        let name = name.ok_or(ScopeError::NotAState)?;
        let parent = path.parent().filter(|parent| *parent != Path::new(""));
        let scope = WorkflowScope::list(parent.unwrap_or(Path::new(".")))?;
        match scope.states.contains(name) || scope.outside.iter().any(|file| file == name) {
            true => Ok((scope, name.to_owned())),
            false => Err(ScopeError::NotAState),
        }
    }

    /// Lists the states of a directory.
    pub(crate) fn list(directory: &Path) -> Result<WorkflowScope, ScopeError> {
        let directory = directory.canonicalize()?;
        let mut scope = WorkflowScope {
            states: BTreeSet::new(),
            outside: Vec::new(),
            directory,
        };
        for entry in fs::read_dir(&scope.directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if StateKind::of_file(&name).is_none() {
                continue;
            }
            let Ok(real) = entry.path().canonicalize() else {
                continue;
            };
            if !real.starts_with(&scope.directory) {
                scope.outside.push(name);
            } else if real.is_file() {
                scope.states.insert(name);
            }
        }
        scope.outside.sort();
        Ok(scope)
    }

    fn default_start(&self) -> Result<String, ScopeError> {
        let endings = [MARKDOWN, SCRIPT];
        let names = STARTS
            .iter()
            .flat_map(|stem| endings.map(|ending| format!("{stem}{ending}")));
        let is_there = |name: &String| self.states.contains(name) || self.outside.contains(name);
        let mut found: Vec<String> = names.filter(is_there).collect();
        match found.len() {
            0 => Err(ScopeError::NoStart),
            1 => Ok(found.remove(0)),
            _ => Err(ScopeError::SeveralStarts(found)),
        }
    }

    /// Only these names count as states: those of a run whose folder contains the directory, where programs of the run
    /// can add files.
    pub(crate) fn restricted_to(mut self, known: &BTreeMap<String, String>) -> WorkflowScope {
        self.states.retain(|name| known.contains_key(name));
        self
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = &str> {
        self.states.iter().map(String::as_str)
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.states.contains(file)
    }

    pub(crate) fn has_markdown(&self) -> bool {
        self.states()
            .any(|file| StateKind::of_file(file) == Some(StateKind::Markdown))
    }

    /// The file that a name means.
    pub(crate) fn resolve(&self, name: &str) -> Result<String, NameProblem> {
        let name = name.trim();
        if name.is_empty() {
            return Err(NameProblem::Empty);
        }
        if name.contains(['/', '\\']) {
            return Err(NameProblem::Separator);
        }
        if name.ends_with(MARKDOWN) || name.ends_with(SCRIPT) {
            let known = self.states.get(name).cloned();
            return known.ok_or(NameProblem::Missing);
        }
        let candidates = [MARKDOWN, SCRIPT].map(|ending| format!("{name}{ending}"));
        match candidates.each_ref().map(|file| self.has(file)) {
            [true, true] => Err(NameProblem::Ambiguous),
            [true, false] => Ok(candidates[0].clone()),
            [false, true] => Ok(candidates[1].clone()),
            [false, false] => Err(NameProblem::Missing),
        }
    }

    /// The path of a state's file, for messages and scripts.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }

    /// Reads a state's file as it is now.
    pub(crate) fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        let real = self.path(file).canonicalize()?;
        if !real.starts_with(&self.directory) {
            return Err(io::Error::other(
                "it is a link that leads out of the workflow",
            ));
        }
        text_file::load(&real)
    }

    /// A hash of each state; one that cannot be read has none.
    pub(crate) fn hashes(&self) -> BTreeMap<String, String> {
        let hash = |file: &&str| -> Option<String> {
            let bytes = self.read(file).ok()?;
            Some(format!("sha256:{}", hex(&Sha256::digest(bytes))))
        };
        let states = self.states();
        states
            .map(|file| (file.to_owned(), hash(&file).unwrap_or_default()))
            .collect()
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scope(files: &[&str]) -> (tempfile::TempDir, WorkflowScope) {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(directory.path().join(file), "x").unwrap();
        }
        let scope = WorkflowScope::list(directory.path()).unwrap();
        (directory, scope)
    }

    #[test]
    fn names_are_resolved() {
        let (_directory, scope) = scope(&[
            "A.md",
            "B.sh",
            "C.md",
            "C.sh",
            "v1.2.md",
            "v1.2",
            "README.md",
            ".D.md",
            "E.txt",
            "F.MD",
        ]);
        let cases = [
            ("A", Ok("A.md")),
            (" A.md\n", Ok("A.md")),
            ("B", Ok("B.sh")),
            ("C", Err(NameProblem::Ambiguous)),
            ("C.sh", Ok("C.sh")),
            ("v1.2", Ok("v1.2.md")),
            ("README", Err(NameProblem::Missing)),
            ("README.md", Err(NameProblem::Missing)),
            (".D", Err(NameProblem::Missing)),
            ("E.txt", Err(NameProblem::Missing)),
            ("F.MD", Err(NameProblem::Missing)),
            ("..", Err(NameProblem::Missing)),
            ("", Err(NameProblem::Empty)),
            (" \n", Err(NameProblem::Empty)),
            ("x/A", Err(NameProblem::Separator)),
            ("x\\A", Err(NameProblem::Separator)),
        ];
        for (name, expected) in cases {
            assert_eq!(scope.resolve(name), expected.map(str::to_owned), "{name:?}");
        }
    }

    #[test]
    fn a_directory_has_one_start() {
        let start = |files: &[&str]| {
            let (directory, _) = scope(files);
            let opened = WorkflowScope::open(directory.path());
            opened
                .map(|(_, start)| start)
                .map_err(|error| error.to_string())
        };
        assert_eq!(start(&["START.md", "B.md"]), Ok("START.md".into()));
        assert_eq!(start(&["1_START.sh"]), Ok("1_START.sh".into()));
        assert!(
            start(&["START.md", "1_START.md"])
                .unwrap_err()
                .contains("several")
        );
        assert!(start(&["B.md"]).unwrap_err().contains("no start"));
        let (directory, _) = scope(&["B.md", "README.md"]);
        let open = |name: &str| WorkflowScope::open(&directory.path().join(name));
        assert_eq!(open("B.md").unwrap().1, "B.md");
        assert!(open("README.md").is_err() && open("NOPE.md").is_err());
    }

    #[test]
    fn links_stay_inside() {
        let (directory, _) = scope(&["A.md"]);
        symlink("A.md", directory.path().join("L.md")).unwrap();
        symlink("/etc/hostname", directory.path().join("OUT.md")).unwrap();
        symlink("nowhere", directory.path().join("GONE.md")).unwrap();
        let scope = WorkflowScope::list(directory.path()).unwrap();
        assert_eq!(scope.states().collect::<Vec<_>>(), ["A.md", "L.md"]);
        assert_eq!(scope.outside, ["OUT.md"]);
        assert!(scope.read("OUT.md").is_err());
        assert_eq!(scope.read("L.md").unwrap(), b"x");
    }
}
