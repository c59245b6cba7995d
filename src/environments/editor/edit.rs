//! Changes files: lines that a view has shown, and new files.
//!
//! An edit that is refused tells how the lines are now, so that the next one can be right.

use std::path::Path;

use rustix::fs::Stat;

use super::resolve::{MissingFolders, PathError, ResolvedPath};
use super::text::{FileText, TextLine, lines_of};
use super::view::{LineChange, push_line};
use super::write::{existing, put};
use super::{EditorEnvironment, cannot, effort};

/// How many lines a refusal tells.
const TOLD_LINES: usize = 40;
const REPLACEMENT: char = '\u{fffd}';

/// A file that is about to be edited.
struct EditTarget {
    place: ResolvedPath,
    text: FileText,
    stat: Stat,
    /// How it is called.
    path: String,
}

impl EditorEnvironment {
    /// Replaces the lines from `first` to `last` by those of the content.
    pub(super) fn edit(
        &mut self,
        path: &str,
        first: usize,
        last: usize,
        content: &str,
    ) -> Result<String, String> {
        let (place, text, stat) = self
            .project
            .read(Path::new(path))
            .map_err(|problem| self.cannot_edit(path, problem))?;
        self.project
            .refuse_frozen(&place.real, &place.folder)
            .map_err(|problem| cannot("edit", path, problem))?;
        let path = self.called(path, &place);
        let target = EditTarget {
            place,
            text,
            stat,
            path,
        };
        let old = self.verified(&target, first, last)?;
        let new = lines_of(content);
        if new.iter().any(|line| line.contains(REPLACEMENT))
            && std::str::from_utf8(target.text.bytes()).is_err()
        {
            return Err(format!(
                "Cannot edit {}: the content has {REPLACEMENT}, which stands for bytes of the file that are not UTF-8 and \
                 would be lost",
                target.path
            ));
        }
        let after = target.text.replaced(&old, &new);
        put(&target.place, after.bytes(), Some(&target.stat)).map_err(|problem| {
            format!(
                "{}{}",
                cannot("edit", &target.path, problem),
                now(&target, first, last)
            )
        })?;
        let change = LineChange {
            first,
            last,
            added: new.len(),
        };
        self.views.retain_mut(|view| {
            view.real != target.place.real || view.follow(change, &after, &mut effort())
        });
        Ok(format!("Edited {} lines {first}-{last}", target.path))
    }

    /// Makes a new file, and the folders on its way.
    pub(super) fn create(&self, path: &str, content: &str) -> Result<String, String> {
        let failed = |problem| cannot("create", path, problem);
        if path.ends_with('/') {
            return Err(failed(PathError::Folder));
        }
        let place = self
            .project
            .resolve(Path::new(path), MissingFolders::Made)
            .map_err(failed)?;
        self.project
            .refuse_frozen(&place.real, &place.folder)
            .map_err(failed)?;
        let old = existing(&place).map_err(failed)?;
        let called = self.called(path, &place);
        if old.is_some_and(|old| old.st_size != 0) {
            return Err(format!(
                "Cannot create {called}: it exists and is not empty; view it and edit its lines"
            ));
        }
        put(&place, finished(content).as_bytes(), old.as_ref()).map_err(failed)?;
        Ok(format!("Created {called}"))
    }

    /// Returns the lines in question, if a view has shown them as they are.
    fn verified(
        &self,
        target: &EditTarget,
        first: usize,
        last: usize,
    ) -> Result<Vec<TextLine>, String> {
        let shown: Vec<_> = self
            .views
            .iter()
            .filter(|view| view.real == target.place.real && view.has_shown(first, last))
            .collect();
        let Some(view) = shown.first() else {
            return Err(format!(
                "Can only edit lines visible in a view{}",
                now(target, first, last)
            ));
        };
        let lines = target.text.numbered(first, last);
        let is_whole = lines.len() == last - first + 1;
        if is_whole
            && shown
                .iter()
                .any(|view| view.agrees(&target.text, first, &lines))
        {
            return Ok(lines);
        }
        Err(format!(
            "File changed: {} is not what its view showed; nothing was edited\nExpected:{}{}",
            target.path,
            view.quote(first, last),
            now(target, first, last)
        ))
    }

    /// What is outside is refused as that; a file that is not there has no lines that could be visible.
    fn cannot_edit(&self, path: &str, problem: PathError) -> String {
        match problem {
            PathError::Missing => {
                format!("Can only edit lines visible in a view\n{path}: {problem}")
            }
            other => cannot("edit", path, other),
        }
    }
}

/// Tells how lines are now.
fn now(target: &EditTarget, first: usize, last: usize) -> String {
    let count = target.text.count();
    let lines = target
        .text
        .numbered(first, last.min(first.saturating_add(TOLD_LINES - 1)));
    let mut told = match lines.len() {
        0 => format!("\n{} has {count} lines now", target.path),
        _ => format!("\n{} has {count} lines now, among them:", target.path),
    };
    for (line, number) in lines.iter().zip(first..) {
        push_line(&mut told, number, target.text.content(*line));
    }
    if first + lines.len() <= last.min(count) {
        told.push_str("\n         …");
    }
    told
}

/// A file consists of lines: the last one gets its ending too.
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
