//! Every way a command can fail or stop early, with the exit code of each.
//!
//! What the outside did (a failed test, a child that died) is data, not an error.

use std::io;
use std::path::{Path, PathBuf};

use crate::cancel::Signal;
use crate::source::finding::{Finding, listed};
use crate::state::reason::Reason;

/// How much of an offending name is shown.
const SHOWN_CHARACTERS: usize = 200;

/// The exit code of a pause, whatever its reason.
pub(crate) const PAUSED_EXIT_CODE: u8 = 4;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command failed or stopped early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A bad command line, a missing key, a root that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A spec, template or log that cannot be read or is invalid.
    #[error("{0}")]
    Spec(String),
    /// Mistakes in a spec or workflow, with their places.
    #[error("{}", listed(.0))]
    Findings(Vec<Finding>),
    /// An attempt to leave `workspace/` or to tamper with the checks.
    #[error(transparent)]
    Safety(#[from] Violation),
    /// The kernel cannot provide the sandbox that programs have to run in.
    #[error("{0}")]
    NoSandbox(String),
    /// `state.json` cannot be parsed.
    #[error("{0}")]
    StateCorrupt(String),
    /// Another orchestrator works in this root.
    #[error("{0}")]
    Locked(String),
    /// The root cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The run is over and has failed.
    #[error("{1}")]
    Failed(Reason, String),
    /// The run waits for something outside; the same command continues it.
    #[error("{1}")]
    Paused(Reason, String),
    /// A signal stopped the command.
    #[error("interrupted by {}", .0.name())]
    Stopped(Signal),
    /// A bug of ours.
    #[error("a bug in orchestrator: {0}")]
    Bug(String),
}

impl Error {
    /// An I/O error with the action (a verb) and the path.
    pub fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// The fixed word that names this error in `state.json` and in the result.
    pub fn reason(&self) -> Reason {
        match self {
            Error::Usage(_) => Reason::Usage,
            Error::Spec(_) | Error::Findings(_) => Reason::SpecInvalid,
            Error::Safety(_) | Error::NoSandbox(_) => Reason::SafetyViolation,
            Error::StateCorrupt(_) => Reason::StateCorrupt,
            Error::Locked(_) => Reason::RootLocked,
            Error::Io { .. } => Reason::IoError,
            Error::Failed(reason, _) | Error::Paused(reason, _) => *reason,
            Error::Stopped(_) => Reason::Interrupted,
            Error::Bug(_) => Reason::InternalError,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Stopped(signal) => signal.exit_code(),
            Error::Paused(..) => PAUSED_EXIT_CODE,
            Error::Usage(_)
            | Error::Spec(_)
            | Error::Findings(_)
            | Error::Safety(_)
            | Error::NoSandbox(_)
            | Error::StateCorrupt(_)
            | Error::Locked(_)
            | Error::Io { .. }
            | Error::Failed(..)
            | Error::Bug(_) => self.reason().exit_code(),
        }
    }
}

/// An attempt to leave the workspace or to tamper with the checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("safety violation: \"{what}\": {rule}")]
pub struct Violation {
    /// The offending path or text, escaped for display and shortened.
    pub what: String,
    /// The rule that forbids it.
    pub rule: String,
}

impl Violation {
    /// `what` is escaped and shortened here.
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
