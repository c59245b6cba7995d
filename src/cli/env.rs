//! What is taken from the environment: once, here, and as plain data from then on.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};

/// Returns the handle that signals reach from now on.
pub fn signals() -> Result<CancelToken> {
    CancelToken::on_signals().map_err(|error| Error::Bug(format!("no signals: {error}")))
}

/// The environment of a command.
pub struct CliEnv {
    variables: BTreeMap<OsString, OsString>,
    /// The root as the user named it, for the command that goes on.
    pub named_root: Option<PathBuf>,
    pub root: PathBuf,
    pub current: PathBuf,
}

impl CliEnv {
    /// Takes everything that a command may need.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn from_process(named_root: Option<PathBuf>) -> CliEnv {
        let variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        // Where the current directory is gone, what is relative leads nowhere.
        let current = std::env::current_dir().unwrap_or_default();
        let from_environment = variables
            .get(&OsString::from("ORCHESTRATOR_ROOT"))
            .filter(|value| !value.is_empty());
        let named_root = named_root.or_else(|| from_environment.map(PathBuf::from));
        CliEnv {
            root: current.join(named_root.clone().unwrap_or_default()),
            named_root,
            current,
            variables,
        }
    }

    /// Returns a variable that is set to something.
    pub fn text(&self, name: &str) -> Option<String> {
        let value = self
            .variables
            .get(&OsString::from(name))?
            .to_string_lossy()
            .into_owned();
        (!value.is_empty()).then_some(value)
    }

    /// Returns the whole environment.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns the user's home.
    pub fn home(&self) -> Option<PathBuf> {
        self.text("HOME").map(PathBuf::from)
    }

    /// Returns where private directories may be made; not in the workspace, which is emptied.
    pub fn temporary(&self) -> PathBuf {
        let workspace = self.root.join("workspace").canonicalize();
        let is_inside = |path: &PathBuf| {
            workspace
                .as_ref()
                .is_ok_and(|top| path.canonicalize().is_ok_and(|p| p.starts_with(top)))
        };
        let named = self
            .text("TMPDIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute() && path.is_dir());
        named
            .filter(|path| !is_inside(path))
            .unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Returns the user's folder for caches, if there is one or a place for it; not in the workspace, which is emptied.
    pub fn cache_folder(&self) -> Option<PathBuf> {
        let is_outside =
            |path: &PathBuf| path.is_absolute() && !path.starts_with(self.root.join("workspace"));
        let named = self
            .text("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| is_outside(path) && path.is_dir());
        named.or_else(|| {
            self.home()
                .filter(|home| home.is_dir())
                .map(|home| home.join(".cache"))
                .filter(is_outside)
        })
    }

    /// Returns what multiplies every delay before a retry.
    pub fn retry_scale(&self) -> f64 {
        let scale = self
            .text("ORCHESTRATOR_RETRY_SCALE")
            .and_then(|text| text.trim().parse::<f64>().ok());
        scale
            .filter(|scale| scale.is_finite() && *scale >= 0.0)
            .unwrap_or(1.0)
    }

    /// Returns the idle timeout of model requests, where the environment has one.
    pub fn idle_timeout(&self) -> Option<Duration> {
        let seconds = self
            .text("ORCHESTRATOR_IDLE_TIMEOUT")
            .and_then(|text| text.trim().parse::<f64>().ok());
        seconds
            .filter(|seconds| *seconds > 0.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Whether colours are unwanted.
    pub fn is_colourless(&self) -> bool {
        self.text("NO_COLOR").is_some()
    }

    /// Whether a terminal understands no more than lines.
    pub fn has_dumb_terminal(&self) -> bool {
        self.text("TERM").is_none_or(|term| term == "dumb")
    }

    /// Returns a path of the command line as an absolute one.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.current.join(path)
    }
}
