//! The environment of the command: read once, here, and plain data from then on.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::cli::arguments::ColorWhen;
use crate::error::{Error, Result};
use crate::process::cache::CacheDir;
use crate::process::pager::Pager;
use crate::process::{self, Launcher};

/// This program, even after it was replaced or deleted on disk.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Launches children without a sandbox, supervised by this program.
pub(super) fn own_launcher() -> Launcher {
    Launcher::open(Path::new(OWN_PROGRAM))
}

/// A token that is cancelled by SIGINT, SIGTERM and SIGHUP from now on.
pub(super) fn cancel_on_signals() -> Result<CancelToken> {
    CancelToken::on_signals()
        .map_err(|error| Error::Bug(format!("cannot install signal handlers: {error}")))
}

/// Makes this process the parent of orphaned descendants, so that none outlives it.
pub(super) fn adopt_orphans() -> Result<()> {
    process::adopt_orphans().map_err(|error| Error::Bug(format!("cannot adopt orphans: {error}")))
}

pub(super) struct CliEnv {
    variables: BTreeMap<OsString, OsString>,
    /// The root as the user gave it, for the command that resumes the run.
    pub named_root: Option<PathBuf>,
    pub root: PathBuf,
    current_dir: PathBuf,
    color: ColorWhen,
}

impl CliEnv {
    /// Reads the environment of this process; `root` and `color` are those of the command line.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub(super) fn from_process(root: Option<PathBuf>, color: ColorWhen) -> CliEnv {
        let variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        // If the current directory was deleted, relative paths do not resolve.
        let current_dir = std::env::current_dir().unwrap_or_default();
        let in_variable = variables
            .get(&OsString::from("ORCHESTRATOR_ROOT"))
            .filter(|value| !value.is_empty());
        let named_root = root.or_else(|| in_variable.map(PathBuf::from));
        CliEnv {
            root: current_dir.join(named_root.clone().unwrap_or_default()),
            named_root,
            current_dir,
            variables,
            color,
        }
    }

    /// The same environment for a command in another root.
    pub(super) fn in_root(&self, root: &Path) -> CliEnv {
        CliEnv {
            variables: self.variables.clone(),
            named_root: Some(root.to_owned()),
            root: self.current_dir.join(root),
            current_dir: self.current_dir.clone(),
            color: self.color,
        }
    }

    /// The value of a variable that is set and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self
            .variables
            .get(&OsString::from(name))?
            .to_string_lossy()
            .into_owned();
        (!value.is_empty()).then_some(value)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
    }

    /// The user's pager; `None` if none is wanted.
    pub(super) fn pager(&self) -> Option<Pager> {
        let variable = |name: &str| {
            self.variables
                .get(OsStr::new(name))
                .map(OsString::as_os_str)
        };
        Pager::from_variables(variable("PAGER"), variable("LESS"))
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.text("HOME").map(PathBuf::from)
    }

    /// Where temporary directories are made: `TMPDIR` unless it is in the workspace, which is emptied; else `/tmp`.
    pub(super) fn temporary(&self) -> PathBuf {
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

    /// The compiler caches of the run in this root, in the user's cache directory. `None` if that does not exist or is
    /// in the workspace.
    pub(super) fn compiler_caches(&self) -> Option<CacheDir> {
        let is_outside =
            |path: &PathBuf| path.is_absolute() && !path.starts_with(self.root.join("workspace"));
        let named = self
            .text("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|path| is_outside(path) && path.is_dir());
        let in_home = || {
            self.home()
                .filter(|home| home.is_dir())
                .map(|home| home.join(".cache"))
                .filter(is_outside)
        };
        named
            .or_else(in_home)
            .map(|folder| CacheDir::of(&folder, &self.root))
    }

    /// The factor for every delay before a retry.
    pub(super) fn retry_scale(&self) -> f64 {
        let scale = self
            .text("ORCHESTRATOR_RETRY_SCALE")
            .and_then(|text| text.trim().parse::<f64>().ok());
        scale
            .filter(|scale| scale.is_finite() && *scale >= 0.0)
            .unwrap_or(1.0)
    }

    /// The idle timeout of model requests, if the environment has one.
    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.idle_seconds().filter(|timeout| !timeout.is_zero())
    }

    /// The idle timeout in the environment; zero is none.
    pub(super) fn idle_seconds(&self) -> Option<Duration> {
        let text = self.text("ORCHESTRATOR_IDLE_TIMEOUT")?;
        Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()
    }

    /// Whether output to a stream has colours. `--color` wins over the variables, and NO_COLOR over those that ask for
    /// colours.
    pub(super) fn has_color(&self, is_terminal: bool) -> bool {
        let is_on = |name: &str| self.text(name).map(|value| value != "0");
        match self.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto if self.text("NO_COLOR").is_some() => false,
            ColorWhen::Auto => match is_on("FORCE_COLOR").or(is_on("CLICOLOR_FORCE")) {
                Some(forced) => forced,
                None => {
                    is_terminal && is_on("CLICOLOR") != Some(false) && !self.has_dumb_terminal()
                }
            },
        }
    }

    /// Whether this is a step of GitHub Actions.
    pub(super) fn is_github_step(&self) -> bool {
        self.text("GITHUB_ACTIONS")
            .is_some_and(|value| value == "true")
    }

    /// Whether the terminal cannot move the cursor.
    pub(super) fn has_dumb_terminal(&self) -> bool {
        self.text("TERM").is_none_or(|term| term == "dumb")
    }

    pub(super) fn current_dir(&self) -> &Path {
        &self.current_dir
    }

    /// Whether a path leads to the current directory.
    pub(super) fn is_current_dir(&self, path: &Path) -> bool {
        let real = path.canonicalize();
        real.is_ok_and(|real| self.current_dir.canonicalize().is_ok_and(|own| own == real))
    }

    /// A path of the command line, made absolute.
    pub(super) fn absolute(&self, path: &Path) -> PathBuf {
        self.current_dir.join(path)
    }
}
