//! Why a command failed, as the text of its response.

use std::fmt;

use crate::workspace::PathError;

/// The text of a failed response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EditorError(pub String);

/// Why a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileError {
    Path(PathError),
    Binary,
}

impl FileError {
    /// The failure of the command `verb` on the file or glob `path`.
    pub(super) fn cannot(&self, verb: &str, path: &str) -> EditorError {
        EditorError(format!("Cannot {verb} {path}: {self}"))
    }
}

impl From<PathError> for FileError {
    fn from(error: PathError) -> FileError {
        FileError::Path(error)
    }
}

impl std::error::Error for EditorError {}

impl fmt::Display for EditorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileError {}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Path(error) => error.fmt(f),
            FileError::Binary => f.write_str("it is a binary file"),
        }
    }
}
