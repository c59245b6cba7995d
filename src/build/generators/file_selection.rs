//! Which files of the workspace the model is shown in files mode: what matters first, as much as there is room for.
//!
//! First come protected files that the report names (before a report: all protected ones), files of the last attempt and
//! files that the report names, then the rest, smallest first. What is left out is named.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::build::context::Context;
use crate::build::generators::prompt::{ShownContent, ShownFile};
use crate::build::steps::is_kept;
use crate::error::Result;
use crate::workspace::generated::{TOOL_FOLDERS, is_generated};
use crate::workspace::{EntryKind, ReadOutcome, WalkStep};

/// A file longer than this is named and not shown.
const SHOWN_FILE_LIMIT: u64 = 128 << 10;
/// All files together, however large the model is.
const SHOWN_LIMIT: usize = 640 << 10;
/// Files that are named and not shown; those behind them are counted.
const NAMED_LIMIT: usize = 1000;
/// What a file takes beside its name and its content.
const SHOWN_OVERHEAD: usize = 32;
/// What a name that is only listed takes beside itself.
const NAME_OVERHEAD: usize = 2;

/// Something in the workspace.
struct FoundFile {
    path: PathBuf,
    size: u64,
    /// Why it cannot be shown, whatever room there is.
    why: Option<String>,
}

/// Returns the files as the model is shown them, in the order of their names, in at most `room` bytes.
pub fn shown_files(context: &Context, report: &str, room: usize) -> Result<Vec<ShownFile>> {
    let found = find(context)?;
    let named = ReportNames::of(report);
    let protected: HashSet<&str> = context
        .inputs
        .protect
        .iter()
        .map(|input| input.to.as_str())
        .collect();
    let attempt: HashSet<&str> = context
        .state
        .attempt_files
        .iter()
        .map(String::as_str)
        .collect();
    let rank = |path: &str| {
        let is_named = named.contains(path);
        match protected.contains(path) {
            true if is_named || report.is_empty() => 0,
            _ if attempt.contains(path) => 1,
            _ if is_named => 2,
            _ => 3,
        }
    };
    let mut order: Vec<(usize, u64, usize)> = Vec::new();
    let paths: Vec<String> = found
        .iter()
        .map(|file| file.path.to_string_lossy().into_owned())
        .collect();
    for (index, file) in found.iter().enumerate() {
        order.push((rank(&paths[index]), file.size, index));
    }
    order.sort_unstable();
    let mut room = ByteRoom::new(room.min(SHOWN_LIMIT), &paths);
    let mut files: Vec<(usize, ShownFile)> = Vec::new();
    for (_, _, index) in order {
        let content = room.show(context, &found[index], &paths[index])?;
        let path = paths[index].clone();
        files.push((
            index,
            ShownFile {
                protected: protected.contains(path.as_str()),
                path,
                content,
            },
        ));
    }
    files.sort_by_key(|(index, _)| *index);
    Ok(room.with_few_names(files.into_iter().map(|(_, file)| file).collect()))
}

fn find(context: &Context) -> Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    context.workspace.walk(&mut |entry| {
        if entry.path.file_name().is_some_and(is_generated) {
            return WalkStep::Skip;
        }
        let name = entry
            .path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let (size, why, next) = match &entry.kind {
            EntryKind::Dir { .. } if TOOL_FOLDERS.contains(&name.as_str()) => (
                0,
                Some("a folder of generated files".to_owned()),
                WalkStep::Skip,
            ),
            EntryKind::Dir { .. } => return WalkStep::On,
            EntryKind::File { size, .. } if *size > SHOWN_FILE_LIMIT => {
                (*size, Some(format!("{size} bytes")), WalkStep::On)
            }
            // Its other name may be that of a file outside.
            EntryKind::File { size, .. } if entry.links > 1 => {
                (*size, Some("a hard link".to_owned()), WalkStep::On)
            }
            EntryKind::File { size, .. } => (*size, None, WalkStep::On),
            EntryKind::Link { target } => (
                0,
                Some(format!("a link to {:?}", target.to_string_lossy())),
                WalkStep::On,
            ),
            EntryKind::Special => (0, Some("not a regular file".to_owned()), WalkStep::On),
        };
        if !is_kept(&entry.path) {
            found.push(FoundFile {
                path: entry.path.clone(),
                size,
                why,
            });
        }
        next
    })?;
    Ok(found)
}

/// How many bytes are left for contents, and how many for the names of what is left out.
struct ByteRoom {
    contents: usize,
    names: usize,
}

impl ByteRoom {
    /// Returns the room; names get what they need for all files, at most a third of it.
    fn new(room: usize, paths: &[String]) -> ByteRoom {
        let all: usize = paths
            .iter()
            .take(NAMED_LIMIT)
            .map(|path| path.len() + NAME_OVERHEAD)
            .sum();
        let names = all.min(room / 3);
        ByteRoom {
            contents: room - names,
            names,
        }
    }

    fn show(&mut self, context: &Context, file: &FoundFile, path: &str) -> Result<ShownContent> {
        if let Some(why) = &file.why {
            return Ok(ShownContent::Name(why.clone()));
        }
        let needed = usize::try_from(file.size)
            .unwrap_or(usize::MAX)
            .saturating_add(path.len() + SHOWN_OVERHEAD);
        if self.contents < needed {
            return Ok(ShownContent::LeftOut);
        }
        Ok(
            match context.workspace.read_file(&file.path, SHOWN_FILE_LIMIT)? {
                ReadOutcome::File(bytes) => self.take(bytes, path.len() + SHOWN_OVERHEAD),
                ReadOutcome::TooLarge(size) => ShownContent::Name(format!("{size} bytes")),
                ReadOutcome::Other | ReadOutcome::Missing => {
                    ShownContent::Name("not readable".into())
                }
            },
        )
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

    /// Leaves out names that have no room, and says how many there were.
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

/// The names of files in a report.
struct ReportNames<'a> {
    /// Words as they stand, and what follows each of their slashes.
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

    /// Whether a file is named: by its path, by a longer one that ends in it, or by its bare name.
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
    fn a_report_names_files() {
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
