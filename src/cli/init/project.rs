//! A folder that `init` looks at, and what it finds out about the project in it.

use std::path::PathBuf;

use rustix::fs::{Access, OFlags, access};

use crate::cli::init::host::Host;
use crate::regular_file::open_regular_file;
use crate::text::quote::shell_word;

/// How much of a file is read.
const MAX_READ: u64 = 1 << 20;

/// A project that was found, and how it is tested.
#[derive(Debug, Default)]
pub(super) struct DetectedProject {
    /// For people: `Python with pytest`.
    pub(super) toolchain: &'static str,
    /// The language and its tool: folders with the same one are listed once.
    pub(super) family: &'static str,
    /// The file that it was recognised by, from the top.
    pub(super) marker: String,
    /// The folder, from the top; empty: the top itself.
    pub(super) folder: String,
    pub(super) has_tests: bool,
    /// The program that the check needs.
    pub(super) program: String,
    /// As it is run in its folder.
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(&'static str, String)>,
    pub(super) timeout: u32,
    /// Files and folders of the tests, from the top.
    pub(super) protect: Vec<String>,
    /// Patterns of what its tools write, from the top.
    pub(super) exclude: Vec<String>,
    pub(super) read: Vec<ReadablePath>,
    /// Comments about the check.
    pub(super) remarks: Vec<String>,
    /// What has to be done once before the first run, as shell lines.
    pub(super) setup: Vec<String>,
    /// After the setup `init` would find more: it has to be repeated.
    pub(super) is_provisional: bool,
    /// What the user should know now.
    pub(super) warnings: Vec<String>,
}

/// An entry of `sandbox.read`.
#[derive(Debug)]
pub(super) struct ReadablePath {
    /// As the spec has it: relative to `specs/`, or absolute.
    pub(super) path: String,
    pub(super) why: &'static str,
    /// Without it the entry is a comment: the spec would be refused.
    pub(super) exists: bool,
}

impl DetectedProject {
    /// The command as the check has it: a check starts at the top of the workspace.
    pub(super) fn check_command(&self) -> Vec<String> {
        if self.folder.is_empty() {
            return self.command.clone();
        }
        let enter = format!("cd {} &&", shell_word(&self.folder));
        let line = match self.command.as_slice() {
            [shell, flag, line] if shell == "sh" && flag == "-c" => format!("{enter} {line}"),
            words => {
                let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
                format!("{enter} exec {}", words.join(" "))
            }
        };
        shell_command(&line)
    }

    /// The program that has to be there for the check to start.
    pub(super) fn needed_program(&self) -> &str {
        match self.program.as_str() {
            "" => self.command.first().map_or("", String::as_str),
            program => program,
        }
    }

    /// `Python with pytest (pyproject.toml)`.
    pub(super) fn title(&self) -> String {
        match self.marker.as_str() {
            "" => self.toolchain.to_owned(),
            marker => format!("{} ({marker})", self.toolchain),
        }
    }
}

/// The command that runs a shell line.
pub(super) fn shell_command(line: &str) -> Vec<String> {
    ["sh", "-c", line].map(str::to_owned).into()
}

/// Words of a command.
pub(super) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A folder with the files that a copy of it would contain.
pub(super) struct InspectedFolder<'a> {
    /// Absolute.
    pub(super) path: PathBuf,
    /// From the top; empty: the top itself.
    pub(super) below: String,
    /// Relative to the folder, sorted.
    pub(super) files: Vec<&'a str>,
    pub(super) host: &'a Host<'a>,
}

impl InspectedFolder<'_> {
    /// Whether there is such a file, ignored or not.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.path.join(name).is_file()
    }

    pub(super) fn has_program(&self, name: &str) -> bool {
        let path = self.path.join(name);
        path.is_file() && access(&path, Access::EXEC_OK).is_ok()
    }

    /// The text of a file, as far as it is read; `None` if it cannot be read.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        use std::io::Read;
        let file = open_regular_file(&self.path.join(name), OFlags::empty()).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first of the files that exists.
    pub(super) fn first_of(&self, names: &[&str]) -> Option<String> {
        let found = names.iter().find(|name| self.has_file(name));
        found.map(|name| (*name).to_owned())
    }

    /// Whether a file of the folder has a text that the test accepts; of many files the first 500 are read.
    pub(super) fn any_text(
        &self,
        is_candidate: impl Fn(&str) -> bool,
        accepts: impl Fn(&str) -> bool,
    ) -> bool {
        let mut candidates = self
            .files
            .iter()
            .filter(|name| is_candidate(name))
            .take(500);
        candidates.any(|name| self.text(name).is_some_and(|text| accepts(&text)))
    }

    /// Whether a folder in it contains files of the project.
    pub(super) fn has_files_in(&self, folder: &str) -> bool {
        let prefix = format!("{folder}/");
        self.files.iter().any(|name| name.starts_with(&prefix))
    }

    /// A path in the folder, from the top.
    pub(super) fn top_path(&self, path: &str) -> String {
        match self.below.as_str() {
            "" => path.to_owned(),
            below => format!("{below}/{path}"),
        }
    }

    /// The original of a path in the folder, as a command sees it that runs in the copy of the folder.
    pub(super) fn original(&self, path: &str) -> String {
        let depth = match self.below.as_str() {
            "" => 0,
            below => below.split('/').count(),
        };
        format!("../{}{}", "../".repeat(depth), self.top_path(path))
    }

    /// The pattern of a folder that tools write.
    pub(super) fn pattern(&self, folder: &str) -> String {
        format!("/{}/", self.top_path(folder))
    }

    /// The tests to protect: these folders, and test files elsewhere.
    pub(super) fn tests(&self, folders: &[&str], is_test: impl Fn(&str) -> bool) -> Vec<String> {
        let folders = folders.iter().filter(|folder| self.has_files_in(folder));
        let folders: Vec<String> = folders.map(|folder| format!("{folder}/")).collect();
        let is_inside = |name: &str| folders.iter().any(|folder| name.starts_with(folder));
        let files = self
            .files
            .iter()
            .filter(|name| !is_inside(name) && is_test(name));
        let folders = folders.iter().map(|folder| folder.trim_end_matches('/'));
        folders
            .chain(files.copied())
            .map(|path| self.top_path(path))
            .collect()
    }
}

/// The last component of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
