//! Why a path cannot be resolved, read or replaced.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a file cannot be used. The texts are the editor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathError {
    Missing,
    /// The path itself does not name anything below the directory.
    Outside,
    LeadsOut,
    /// A file or link where a folder has to be, by its path without links.
    NotAFolder(PathBuf),
    Folder,
    Special,
    Mounted,
    TooManyLinks,
    TooDeep,
    /// The size in bytes.
    TooLarge(u64),
    Changed,
    Frozen,
    /// A hidden name: nothing can be created there.
    Reserved,
    System(Errno),
}

impl PathError {
    /// Whether nothing can be at the path: a folder on the way does not exist, or is not one.
    pub(super) fn is_absent(&self) -> bool {
        matches!(
            self,
            PathError::Missing
                | PathError::NotAFolder(_)
                | PathError::System(Errno::LOOP | Errno::NOTDIR)
        )
    }
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> PathError {
        match errno {
            Errno::NOENT => PathError::Missing,
            Errno::XDEV => PathError::Mounted,
            other => PathError::System(other),
        }
    }
}

impl From<io::Error> for PathError {
    fn from(error: io::Error) -> PathError {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}

impl std::error::Error for PathError {}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let system = |errno: Errno, f| io::Error::from(errno).fmt(f);
        match self {
            PathError::Missing => f.write_str("file not found"),
            PathError::Outside => f.write_str("it is outside the project directory"),
            PathError::LeadsOut => f.write_str("a link leads out of the project directory"),
            PathError::NotAFolder(_) => system(Errno::NOTDIR, f),
            PathError::Folder => f.write_str("it is a folder"),
            PathError::Special => f.write_str("it is a pipe, socket or device"),
            PathError::Mounted => {
                f.write_str("another file system is mounted there, to be read and never changed")
            }
            PathError::TooManyLinks => system(Errno::LOOP, f),
            PathError::TooDeep => system(Errno::NAMETOOLONG, f),
            PathError::TooLarge(_) => f.write_str("it is larger than 32 MB"),
            PathError::Changed => f.write_str("it was changed at the same time"),
            PathError::Frozen => {
                f.write_str("it is protected: given by the user, to be read and never changed")
            }
            PathError::Reserved => f.write_str("the name is reserved: it belongs to this run"),
            PathError::System(errno) => system(*errno, f),
        }
    }
}
