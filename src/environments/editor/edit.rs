//! Changes files: lines that a view has shown, and new files.
//!
//! A refused edit shows the lines as they are now, so that the next one can be right.

use std::path::Path;

use super::environment::{EditorEnvironment, view_budget};
use super::error::{EditorError, FileError};
use super::file::{TextFile, display_name};
use super::text::{TextLine, lines_of};
use super::view::{LineChange, push_line};
use crate::workspace::PathError;

/// How many lines a refusal shows.
const QUOTED_LINES: usize = 40;
const REPLACEMENT: char = '\u{fffd}';

impl EditorEnvironment {
    /// Replaces the lines from `first` to `last` by those of the content.
    pub(super) fn edit(
        &mut self,
        path: &str,
        first: usize,
        last: usize,
        content: &str,
    ) -> Result<String, EditorError> {
        let file = TextFile::read(&self.project, path).map_err(|e| cannot_edit(path, &e))?;
        self.project
            .require_changeable(&file.path)
            .map_err(|error| FileError::from(error).cannot("edit", path))?;
        let old = self.verified(&file, first, last)?;
        let new = lines_of(content);
        refuse_replacement(&file, &new)?;
        let after = file.text.replaced(&old, &new);
        self.project
            .write(&file.path, after.bytes(), Some(&file.meta))
            .map_err(|error| {
                let why = FileError::from(error).cannot("edit", &file.name);
                EditorError(format!("{why}{}", current_lines(&file, first, last)))
            })?;
        let change = LineChange {
            first,
            last,
            added: new.len(),
        };
        self.views.retain_mut(|view| {
            view.real != file.path.real || view.follow(change, &after, &mut view_budget())
        });
        Ok(format!("Edited {} lines {first}-{last}", file.name))
    }

    /// Makes a new file, and the folders on its way.
    pub(super) fn create(&self, path: &str, content: &str) -> Result<String, EditorError> {
        let failed = |error: PathError| FileError::from(error).cannot("create", path);
        if path.ends_with('/') {
            return Err(failed(PathError::Folder));
        }
        let path = Path::new(path);
        let found = self.project.find_new(path).map_err(failed)?;
        self.project.require_changeable(&found).map_err(failed)?;
        let old = found.existing().map_err(failed)?;
        let name = display_name(&self.project, path, &found);
        if old.is_some_and(|old| old.size != 0) {
            return Err(EditorError(format!(
                "Cannot create {name}: it exists and is not empty; view it and edit its lines"
            )));
        }
        self.project
            .write(&found, finished(content).as_bytes(), old.as_ref())
            .map_err(failed)?;
        Ok(format!("Created {name}"))
    }

    /// Returns these lines, if a view has shown them as they are.
    fn verified(
        &self,
        file: &TextFile<'_>,
        first: usize,
        last: usize,
    ) -> Result<Vec<TextLine>, EditorError> {
        let shown: Vec<_> = self
            .views
            .iter()
            .filter(|view| view.real == file.path.real && view.has_shown(first, last))
            .collect();
        let Some(view) = shown.first() else {
            return Err(EditorError(format!(
                "Can only edit lines visible in a view{}",
                current_lines(file, first, last)
            )));
        };
        let lines = file.text.numbered(first, last);
        if lines.len() == last - first + 1
            && shown
                .iter()
                .any(|view| view.agrees(&file.text, first, &lines))
        {
            return Ok(lines);
        }
        Err(EditorError(format!(
            "File changed: {} is not what its view showed; nothing was edited\nExpected:{}{}",
            file.name,
            view.quote(first, last),
            current_lines(file, first, last)
        )))
    }
}

/// A file that does not exist has no visible lines; everything else is refused as what it is.
fn cannot_edit(path: &str, error: &FileError) -> EditorError {
    match error {
        FileError::Path(PathError::Missing) => EditorError(format!(
            "Can only edit lines visible in a view\n{path}: {error}"
        )),
        other => other.cannot("edit", path),
    }
}

/// Refuses content that was copied from a view of bytes that are not UTF-8.
fn refuse_replacement(file: &TextFile<'_>, new: &[&str]) -> Result<(), EditorError> {
    if new.iter().any(|line| line.contains(REPLACEMENT))
        && std::str::from_utf8(file.text.bytes()).is_err()
    {
        return Err(EditorError(format!(
            "Cannot edit {}: the content has {REPLACEMENT}, which stands for bytes of the file that are not UTF-8 and \
             would be lost",
            file.name
        )));
    }
    Ok(())
}

/// The lines as they are now, for a refusal.
fn current_lines(file: &TextFile<'_>, first: usize, last: usize) -> String {
    let count = file.text.count();
    let lines = file
        .text
        .numbered(first, last.min(first.saturating_add(QUOTED_LINES - 1)));
    let mut quoted = match lines.len() {
        0 => format!("\n{} has {count} lines now", file.name),
        _ => format!("\n{} has {count} lines now, among them:", file.name),
    };
    for (line, number) in lines.iter().zip(first..) {
        push_line(&mut quoted, number, file.text.content(*line));
    }
    if first + lines.len() <= last.min(count) {
        quoted.push_str("\n         …");
    }
    quoted
}

/// Ends the last line, too.
fn finished(content: &str) -> String {
    let ending = match content.find('\n') {
        Some(first) if content[..first].ends_with('\r') => "\r\n",
        _ => "\n",
    };
    if content.is_empty() || content.ends_with('\n') {
        content.to_owned()
    } else {
        format!("{content}{ending}")
    }
}
