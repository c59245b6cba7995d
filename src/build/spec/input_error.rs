//! Why something that a spec names cannot be taken into the workspace.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::source::diagnostic::shown_path;

#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file or folder, or a file of ignore rules.
    #[error("cannot read {}: {source}", shown_path(.path))]
    Unreadable { path: PathBuf, source: io::Error },
    /// State, logs or workspace of the run.
    #[error("{} belongs to the run itself and is never copied", shown_path(.0))]
    OwnedByRun(PathBuf),
    /// A name that is not a safe path.
    #[error("{}: {rule}", shown_path(.path))]
    UnsafeName { path: PathBuf, rule: String },
    #[error("there are more than {most} files to take")]
    TooManyFiles { most: usize },
    #[error("{}: this link leads out of what is copied, to {}", shown_path(.link), shown_path(.target))]
    LeavingLink { link: PathBuf, target: PathBuf },
    #[error("{}: a template cannot hold links", shown_path(.0))]
    LinkInTemplate(PathBuf),
    /// A numbered folder of a template, without one of the numbers before it.
    #[error("{}: the folders of a template are 0, 1, 2 and so on, without gaps", shown_path(.0))]
    TemplateGap(PathBuf),
    #[error("cancelled")]
    Cancelled,
}

impl InputError {
    pub fn unreadable(path: &Path, source: io::Error) -> InputError {
        let path = path.to_owned();
        InputError::Unreadable { path, source }
    }
}

impl From<InputError> for Error {
    fn from(error: InputError) -> Error {
        Error::Spec(error.to_string())
    }
}
