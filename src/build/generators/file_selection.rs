//! Selects the files of the workspace that the model is shown in files mode: the most important first, as many as fit.
//!
//! Protected files that the report names come first (without a report: all protected ones), then files of the last
//! attempt, files that the report names, and the rest, smallest first. Files that do not fit are named.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::build::generators::prompt::{ShownContent, ShownFile};
use crate::build::kept_files::is_kept;
use crate::build::spec::inputs::WorkspaceInput;
use crate::error::Result;
use crate::workspace::generated::{is_generated, is_tool_folder};
use crate::workspace::{EntryKind, ReadOutcome, WalkStep, Workspace, WorkspaceEntry};

/// A larger file is named and not shown.
const SHOWN_FILE_LIMIT: u64 = 128 << 10;
/// Of all files together, whatever the context window.
const SHOWN_LIMIT: usize = 640 << 10;
/// How many files are named without content; the others are only counted.
const NAMED_LIMIT: usize = 1000;
/// What a file takes in addition to its name and content.
const SHOWN_OVERHEAD: usize = 32;
/// What a listed name takes in addition.
const NAME_OVERHEAD: usize = 2;

/// What decides which files are shown.
pub(crate) struct FileSelection<'a> {
    workspace: &'a Workspace,
    protected: HashSet<&'a str>,
    /// The files of the last attempt.
    attempt: HashSet<&'a str>,
    report: &'a str,
}

struct FoundFile {
    path: PathBuf,
    /// The path as it is shown.
    name: String,
    size: u64,
    /// Why its content cannot be shown, whatever the space.
    why: Option<String>,
}

impl<'a> FileSelection<'a> {
    pub(crate) fn new(
        workspace: &'a Workspace,
        protect: &'a [WorkspaceInput],
        attempt_files: &'a [String],
        report: &'a str,
    ) -> FileSelection<'a> {
        FileSelection {
            workspace,
            protected: protect.iter().map(|input| input.to.as_str()).collect(),
            attempt: attempt_files.iter().map(String::as_str).collect(),
            report,
        }
    }

    /// The files as the model is shown them, in the order of their names, in at most `space` bytes.
    pub(crate) fn shown_files(&self, space: usize) -> Result<Vec<ShownFile>> {
        let found = find(self.workspace)?;
        let names = ReportNames::of(self.report);
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_cached_key(|index| {
            let file = &found[*index];
            (self.rank(&file.name, &names), file.size, *index)
        });
        let mut budget = ByteBudget::new(space.min(SHOWN_LIMIT), &found);
        let mut files: Vec<(usize, ShownFile)> = Vec::new();
        for index in order {
            let file = &found[index];
            let shown = ShownFile {
                protected: self.protected.contains(file.name.as_str()),
                path: file.name.clone(),
                content: budget.show(self.workspace, file)?,
            };
            files.push((index, shown));
        }
        files.sort_by_key(|(index, _)| *index);
        Ok(budget.with_few_names(files.into_iter().map(|(_, file)| file).collect()))
    }

    /// The smaller the rank, the more a file matters.
    fn rank(&self, name: &str, names: &ReportNames<'_>) -> u8 {
        let is_named = names.contains(name);
        if self.protected.contains(name) && (is_named || self.report.is_empty()) {
            0
        } else if self.attempt.contains(name) {
            1
        } else if is_named {
            2
        } else {
            3
        }
    }
}

fn find(workspace: &Workspace) -> Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    workspace.walk(&mut |entry| {
        let name = entry.path.file_name().unwrap_or_default();
        let is_dir = matches!(entry.kind, EntryKind::Dir { .. });
        let is_tools = is_dir && is_tool_folder(name);
        if is_generated(name) {
            return WalkStep::Skip;
        }
        if (!is_dir || is_tools) && !is_kept(&entry.path) {
            found.push(FoundFile::of(entry));
        }
        if is_tools {
            WalkStep::Skip
        } else {
            WalkStep::On
        }
    })?;
    Ok(found)
}

impl FoundFile {
    fn of(entry: &WorkspaceEntry) -> FoundFile {
        let (size, why) = match &entry.kind {
            EntryKind::Dir { .. } => (0, Some("a folder of generated files".to_owned())),
            EntryKind::File { size, .. } if *size > SHOWN_FILE_LIMIT => {
                (*size, Some(format!("{size} bytes")))
            }
            // Its other name may be outside of the workspace.
            EntryKind::File { size, .. } if entry.links > 1 => {
                (*size, Some("a hard link".to_owned()))
            }
            EntryKind::File { size, .. } => (*size, None),
            EntryKind::Link { target } => {
                (0, Some(format!("a link to {:?}", target.to_string_lossy())))
            }
            EntryKind::Special => (0, Some("not a regular file".to_owned())),
        };
        FoundFile {
            path: entry.path.clone(),
            name: entry.path.to_string_lossy().into_owned(),
            size,
            why,
        }
    }
}

/// The bytes left for contents, and for names of files without content.
struct ByteBudget {
    contents: usize,
    names: usize,
}

impl ByteBudget {
    /// Names get what all files need, at most a third of the space.
    fn new(space: usize, found: &[FoundFile]) -> ByteBudget {
        let named = found.iter().take(NAMED_LIMIT);
        let all: usize = named.map(|file| file.name.len() + NAME_OVERHEAD).sum();
        let names = all.min(space / 3);
        ByteBudget {
            contents: space - names,
            names,
        }
    }

    fn show(&mut self, workspace: &Workspace, file: &FoundFile) -> Result<ShownContent> {
        if let Some(why) = &file.why {
            return Ok(ShownContent::Name(why.clone()));
        }
        let overhead = file.name.len() + SHOWN_OVERHEAD;
        let size = usize::try_from(file.size).unwrap_or(usize::MAX);
        if self.contents < size.saturating_add(overhead) {
            return Ok(ShownContent::LeftOut);
        }
        Ok(match workspace.read_file(&file.path, SHOWN_FILE_LIMIT)? {
            ReadOutcome::File(bytes) => self.take(bytes, overhead),
            ReadOutcome::TooLarge(size) => ShownContent::Name(format!("{size} bytes")),
            ReadOutcome::Other | ReadOutcome::Missing => ShownContent::Name("not readable".into()),
        })
    }

    fn take(&mut self, bytes: Vec<u8>, overhead: usize) -> ShownContent {
        let size = bytes.len();
        match String::from_utf8(bytes)
            .ok()
            .filter(|text| !text.contains('\0'))
        {
            None => ShownContent::Name(format!("binary, {size} bytes")),
            Some(text) if size + overhead <= self.contents => {
                self.contents -= size + overhead;
                ShownContent::Text(text)
            }
            Some(_) => ShownContent::LeftOut,
        }
    }

    /// Drops names that do not fit, and adds how many there were.
    fn with_few_names(mut self, mut files: Vec<ShownFile>) -> Vec<ShownFile> {
        let (mut named, mut more) = (0, 0);
        files.retain(|file| {
            let needed = file.path.len() + NAME_OVERHEAD;
            let is_kept = match file.content {
                ShownContent::Text(_) => return true,
                _ => named < NAMED_LIMIT && needed <= self.names,
            };
            match is_kept {
                true => (named, self.names) = (named + 1, self.names - needed),
                false => more += 1,
            }
            is_kept
        });
        if more > 0 {
            let content = ShownContent::Name("too many to name".into());
            files.push(ShownFile {
                path: format!("{more} more files"),
                protected: false,
                content,
            });
        }
        files
    }
}

/// The file names in a report.
struct ReportNames<'a> {
    /// The words, and what follows each slash in them.
    ends: HashSet<&'a str>,
}

impl<'a> ReportNames<'a> {
    fn of(report: &'a str) -> ReportNames<'a> {
        let is_edge =
            |character: char| !(character.is_alphanumeric() || "_-./+@".contains(character));
        let mut ends = HashSet::new();
        for word in report
            .split(is_edge)
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.contains('.'))
        {
            ends.insert(word);
            ends.extend(word.match_indices('/').map(|(at, _)| &word[at + 1..]));
        }
        ReportNames { ends }
    }

    /// Whether a file is named: by its path, by a longer path that ends with it, or by its bare name.
    fn contains(&self, path: &str) -> bool {
        self.ends.contains(path)
            || path
                .rsplit_once('/')
                .is_some_and(|(_, name)| self.ends.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_in_a_report_are_found() {
        let report = "  File \"/home/me/workspace/tests/test_a.py\", line 3\nproj/f0123.py:7: error: wrong, see notes.md.\n";
        let names = ReportNames::of(report);
        for path in [
            "tests/test_a.py",
            "test_a.py",
            "proj/f0123.py",
            "notes.md",
            "docs/notes.md",
        ] {
            assert!(names.contains(path), "{path}");
        }
        for path in [
            "proj/f0124.py",
            "est_a.py",
            "a.py",
            "tests/test_a.pyc",
            "error",
        ] {
            assert!(!names.contains(path), "{path}");
        }
    }
}
