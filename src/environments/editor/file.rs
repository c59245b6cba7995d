//! Text files of the project.

use std::path::{Component, Path, PathBuf};

use super::error::FileError;
use super::text::FileText;
use crate::workspace::{EntryMeta, ProjectDir, ProjectPath};

/// A text file that was read.
#[derive(Debug)]
pub(super) struct TextFile<'a> {
    pub path: ProjectPath<'a>,
    /// Relative to the project, without `.` and `..`.
    pub name: String,
    pub text: FileText,
    pub meta: EntryMeta,
}

impl<'a> TextFile<'a> {
    /// Reads a text file, through links that stay inside.
    pub(super) fn read(
        project: &'a ProjectDir,
        path: impl AsRef<Path>,
    ) -> Result<TextFile<'a>, FileError> {
        let path = path.as_ref();
        let file = project.read(path)?;
        Ok(TextFile {
            name: display_name(project, path, &file.path),
            path: file.path,
            text: FileText::new(file.content).ok_or(FileError::Binary)?,
            meta: file.meta,
        })
    }

    /// The file behind all links, by its path in the project.
    pub(super) fn real(&self) -> PathBuf {
        self.path.real.clone()
    }
}

/// Returns a file's path relative to the project, without `.` and `..`.
pub(super) fn display_name(project: &ProjectDir, path: &Path, found: &ProjectPath<'_>) -> String {
    let relative = project.relative(path).unwrap_or_default();
    let is_plain = relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let shown = if is_plain { &relative } else { &found.real };
    shown.to_string_lossy().into_owned()
}
