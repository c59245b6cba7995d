//! Every way a command can end other than well, and the exit code of each.
//!
//! What the outside did (a red test, a child that died) is data, not an error; these are the ends of a command.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::cancel::Signal;
use crate::state::reason::Reason;

/// How much of an offending name is shown.
const SHOWN_CHARACTERS: usize = 200;

pub type Result<T> = std::result::Result<T, Error>;

/// The end of a command that did not come to its natural one.
#[derive(Debug)]
pub enum Error {
    /// A bad command line, a missing key, a root that is not ours to use.
    Usage(String),
    /// A spec or template that cannot be read or does not validate; the text has file, line and column.
    Spec(String),
    /// Something tried to leave `workspace/`, or to steer the checks.
    Safety(Violation),
    /// The kernel does not give the walls that programs would have to run behind.
    NoSandbox(String),
    /// `state.json` cannot be understood.
    StateCorrupt(String),
    /// Another orchestrator works in this root.
    Locked(String),
    /// The root cannot be read or written.
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The run is over and has failed.
    Failed(Reason, String),
    /// The run waits for something outside; the same command goes on.
    Paused(Reason, String),
    /// A signal ended the command.
    Stopped(Signal),
    /// A bug of ours.
    Bug(String),
}

impl Error {
    /// Returns an I/O error that says what was done to which path.
    pub fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// Returns the fixed word for this end.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Usage(_) => Reason::Usage,
            Error::Spec(_) => Reason::SpecInvalid,
            Error::Safety(_) | Error::NoSandbox(_) => Reason::SafetyViolation,
            Error::StateCorrupt(_) => Reason::StateCorrupt,
            Error::Locked(_) => Reason::RootLocked,
            Error::Io { .. } => Reason::IoError,
            Error::Failed(reason, _) | Error::Paused(reason, _) => *reason,
            Error::Stopped(_) => Reason::Interrupted,
            Error::Bug(_) => Reason::InternalError,
        }
    }

    /// Returns the exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Stopped(signal) => signal.exit_code(),
            other => other.reason().exit_code(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text)
            | Error::Spec(text)
            | Error::NoSandbox(text)
            | Error::StateCorrupt(text)
            | Error::Locked(text)
            | Error::Failed(_, text)
            | Error::Paused(_, text) => f.write_str(text),
            Error::Safety(violation) => violation.fmt(f),
            Error::Io {
                action,
                path,
                source,
            } => write!(f, "cannot {action} {}: {source}", path.display()),
            Error::Stopped(signal) => write!(f, "interrupted by {}", signal.name()),
            Error::Bug(text) => write!(f, "a bug in orchestrator: {text}"),
        }
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Error {
        Error::Safety(violation)
    }
}

/// An attempt to leave the workspace or to steer the checks: what was tried, and which rule refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The offending thing, escaped for display and cut when it is very long.
    pub what: String,
    /// The rule that refuses it.
    pub rule: String,
}

impl Violation {
    /// Returns a violation; `what` is escaped here.
    pub fn new(what: &str, rule: impl Into<String>) -> Violation {
        let mut shown: String = what
            .chars()
            .take(SHOWN_CHARACTERS)
            .flat_map(char::escape_debug)
            .collect();
        if what.chars().nth(SHOWN_CHARACTERS).is_some() {
            shown.push('…');
        }
        Violation {
            what: shown,
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "safety violation: \"{}\": {}", self.what, self.rule)
    }
}
