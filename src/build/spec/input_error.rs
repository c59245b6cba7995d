//! Why something that a spec names cannot be taken into the workspace.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::diagnostic::shown_path;
use crate::error::Error;

#[derive(Debug)]
pub enum InputError {
    /// A file or folder, or a file of ignore rules.
    Unreadable {
        path: PathBuf,
        source: io::Error,
    },
    /// State, logs or workspace of the run.
    OwnedByRun(PathBuf),
    /// A name that is not a safe path.
    UnsafeName {
        path: PathBuf,
        rule: String,
    },
    TooManyFiles {
        most: usize,
    },
    /// A link to something outside of what is copied.
    LeavingLink {
        link: PathBuf,
        target: PathBuf,
    },
    LinkInTemplate(PathBuf),
    /// A numbered folder of a template, without one of the numbers before it.
    TemplateGap(PathBuf),
    /// A signal asked the walk to end.
    Cancelled,
}

impl InputError {
    pub fn unreadable(path: &Path, source: impl Into<io::Error>) -> InputError {
        InputError::Unreadable {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::Unreadable { path, source } => {
                write!(f, "cannot read {}: {source}", shown_path(path))
            }
            InputError::OwnedByRun(path) => {
                let path = shown_path(path);
                write!(f, "{path} belongs to the run itself and is never copied")
            }
            InputError::UnsafeName { path, rule } => write!(f, "{}: {rule}", shown_path(path)),
            InputError::TooManyFiles { most } => {
                write!(f, "there are more than {most} files to take")
            }
            InputError::LeavingLink { link, target } => {
                let (link, target) = (shown_path(link), shown_path(target));
                write!(
                    f,
                    "{link}: this link leads out of what is copied, to {target}"
                )
            }
            InputError::LinkInTemplate(path) => {
                write!(f, "{}: a template cannot hold links", shown_path(path))
            }
            InputError::TemplateGap(path) => write!(
                f,
                "{}: the folders of a template are 0, 1, 2 and so on, without gaps",
                shown_path(path)
            ),
            InputError::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl StdError for InputError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            InputError::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<InputError> for Error {
    fn from(error: InputError) -> Error {
        Error::Spec(error.to_string())
    }
}
