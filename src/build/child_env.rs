//! What the children of a run find around them: the walls, private places, caches, and what environments start with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::build::checks::evidence::reporters::Reporters;
use crate::build::spec::inputs::{Input, InputKind};
use crate::cancel::Stop;
use crate::environments::adhoc::FOLDER;
use crate::environments::adhoc::host::Start;
use crate::error::{Error, Result};
use crate::process::Launcher;
use crate::process::cache::{Caches, Keeping};
use crate::process::check_env::{Base, Places, find_program, for_check};
use crate::process::sandbox::Mode;
use crate::process::sandbox::shared_namespaces::Pocket;
use crate::process::scratch::PrivateDirs;
use crate::secrets::Secrets;

/// Where the private directories of a child are.
pub enum Dwelling {
    /// In a tree of its own, new for each check.
    Inside { tmp: PathBuf, home: PathBuf },
    /// In the host's, made anew for each check; the home is the user's where none is private.
    Outside {
        private: PrivateDirs,
        home: Option<PathBuf>,
    },
}

impl Dwelling {
    /// Returns the temporary directory and the home, both as new as they can be.
    pub fn renew(&self) -> Result<(PathBuf, PathBuf)> {
        match self {
            Dwelling::Inside { tmp, home } => Ok((tmp.clone(), home.clone())),
            Dwelling::Outside { private, home } => {
                private.renew()?;
                Ok((
                    private.tmp(),
                    home.clone().unwrap_or_else(|| private.home()),
                ))
            }
        }
    }
}

/// What the checks and the environments of a run share.
pub struct Surroundings {
    /// With the walls, where there are some.
    pub launcher: Launcher,
    pub base: Base,
    pub dwelling: Dwelling,
    pub workspace: PathBuf,
    /// Where the system keeps what is temporary.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// What compilers made in earlier rounds.
    pub caches: Option<Caches>,
    /// What reports tests from inside a runner.
    pub reporters: Reporters,
    pub network: bool,
    pub secrets: Secrets,
    pub stop: Stop,
}

/// What the environments of a phase are started with.
pub struct Workshop {
    pub start: Start,
    /// The folder that holds the user's own ones, in `env/`; nothing where there are none.
    pub folder: Option<PathBuf>,
    /// It lives as long as this.
    _kept: Option<PrivateDirs>,
}

impl Surroundings {
    /// Returns what environments are started with, in fresh private places that they share; `frozen`, in the workspace,
    /// cannot be changed by them where the walls can hold that. They get what checks get, without anything of the spec's.
    pub fn workshop(&self, own: &[Input], frozen: &[PathBuf]) -> Result<Workshop> {
        let (tmp, home) = self.dwelling.renew()?;
        let kept = match &self.dwelling {
            Dwelling::Inside { .. } if !own.is_empty() => {
                Some(PrivateDirs::create(&self.temporary, &self.root)?)
            }
            _ => None,
        };
        let folder = match (&kept, &self.dwelling) {
            _ if own.is_empty() => None,
            (Some(private), _) | (None, Dwelling::Outside { private, .. }) => Some(private.kept()),
            (None, Dwelling::Inside { .. }) => None,
        };
        folder
            .iter()
            .try_for_each(|folder| bring(own, &folder.join(FOLDER)))?;
        let cache = self.cache(Keeping::Environments);
        let launcher = self.launcher_of_workshop(folder.as_deref(), frozen)?;
        let places = Places {
            workspace: &self.workspace,
            tmp: &tmp,
            home: &home,
            cache: cache.as_deref(),
            network: self.network,
            walls: launcher.walls.as_ref(),
        };
        let start = Start {
            project: self.workspace.clone(),
            env: for_check(&self.base, &places, &BTreeMap::new()),
            launcher: launcher.clone(),
            python: find_program(self.base.path(), OsStr::new("python3"), &self.workspace),
        };
        Ok(Workshop {
            start,
            folder,
            _kept: kept,
        })
    }

    /// Returns where these children keep what compilers made; the others' is not in their reach.
    pub fn cache(&self, of: Keeping) -> Option<PathBuf> {
        self.caches.as_ref().map(|caches| caches.folder(of))
    }

    fn launcher_of_workshop(&self, folder: Option<&Path>, frozen: &[PathBuf]) -> Result<Launcher> {
        let Some(mut walls) = self.launcher.walls.clone() else {
            return Ok(self.launcher.clone());
        };
        walls
            .freeze
            .extend(frozen.iter().map(|place| self.workspace.join(place)));
        walls.write.extend(self.cache(Keeping::Environments));
        walls
            .read
            .extend(folder.and_then(|folder| folder.canonicalize().ok()));
        let launcher = self.launcher.behind(walls.clone());
        let pocket = match walls.mode {
            Mode::Reduced => None,
            Mode::Full | Mode::FullWithoutLandlock => {
                Some(Arc::new(Pocket::make(&launcher, &walls)?))
            }
        };
        Ok(Launcher { pocket, ..launcher })
    }
}

/// Writes files of the user's into a private folder.
#[expect(
    clippy::disallowed_methods,
    reason = "a new file in a new directory of ours"
)]
fn bring(inputs: &[Input], folder: &Path) -> Result<()> {
    for input in inputs {
        let path = folder.join(input.to.as_str());
        let made =
            |path: &Path| fs::create_dir_all(path).map_err(|error| Error::io("make", path, error));
        let failed = |error| Error::io("write", &path, error);
        match &input.kind {
            InputKind::Dir => made(&path)?,
            InputKind::Link { target } => symlink(target, &path).map_err(failed)?,
            InputKind::File { mode, content, .. } => {
                made(path.parent().unwrap_or(folder))?;
                fs::write(&path, content.as_deref().unwrap_or_default()).map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777))
                    .map_err(failed)?;
            }
        }
    }
    Ok(())
}
