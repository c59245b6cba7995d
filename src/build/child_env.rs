//! The environment of a run's children: sandbox policy, private directories, caches, and what environments start with.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::build::checks::reporters::Reporters;
use crate::build::spec::inputs::{InputContent, InputKind, Inputs, WorkspaceInput};
use crate::cancel::CancelToken;
use crate::conversation::toolset::ToolEnv;
use crate::environments::adhoc::FOLDER;
use crate::environments::adhoc::host::HostStart;
use crate::environments::editor::FrozenPaths;
use crate::error::{Error, Result};
use crate::process::Launcher;
use crate::process::cache::{CacheOwner, Caches};
use crate::process::check_env::{CallerEnv, ChildDirs, find_program, for_check};
use crate::process::scratch::ScratchDirs;
use crate::secrets::Secrets;

/// Where the private directories of a child are.
pub(crate) enum HomeDirs {
    /// In the private mount tree, new for each check.
    Inside { tmp: PathBuf, home: PathBuf },
    /// On the host, emptied for each check; `home` is the user's where none is private.
    Outside {
        private: ScratchDirs,
        home: Option<PathBuf>,
    },
}

impl HomeDirs {
    /// The temporary directory and the home, both emptied.
    pub(crate) fn renew(&self) -> Result<(PathBuf, PathBuf)> {
        match self {
            HomeDirs::Inside { tmp, home } => Ok((tmp.clone(), home.clone())),
            HomeDirs::Outside { private, home } => {
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
pub(crate) struct ChildEnv {
    /// With the sandbox policy, unless there is none.
    pub launcher: Launcher,
    pub base: CallerEnv,
    pub home_dirs: HomeDirs,
    pub workspace: PathBuf,
    /// The system's temporary directory.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// Compiler caches of earlier rounds.
    pub caches: Option<Caches>,
    /// Programs that report tests from inside a runner.
    pub reporters: Reporters,
    pub network: bool,
    pub secrets: Secrets,
    pub cancel: CancelToken,
}

impl ChildEnv {
    /// What environments are started with, in fresh private directories that they share; the folders `frozen` of the
    /// workspace cannot be changed by them where the sandbox can enforce it. They get what checks get, without anything of
    /// the spec.
    pub(crate) fn tool_env(&self, inputs: &Inputs, frozen: &[PathBuf]) -> Result<ToolEnv> {
        let own = inputs.environments.as_slice();
        let (tmp, home) = self.home_dirs.renew()?;
        let kept = match &self.home_dirs {
            HomeDirs::Inside { .. } if !own.is_empty() => {
                Some(ScratchDirs::create(&self.temporary, &self.root)?)
            }
            _ => None,
        };
        let folder = match (&kept, &self.home_dirs) {
            _ if own.is_empty() => None,
            (Some(private), _) | (None, HomeDirs::Outside { private, .. }) => Some(private.kept()),
            (None, HomeDirs::Inside { .. }) => None,
        };
        folder
            .iter()
            .try_for_each(|folder| bring(own, &folder.join(FOLDER)))?;
        let cache = self.cache(CacheOwner::Environments);
        let launcher = self.tool_launcher(folder.as_deref(), frozen)?;
        let places = ChildDirs {
            workspace: &self.workspace,
            tmp: &tmp,
            home: &home,
            cache: cache.as_deref(),
            network: self.network,
            policy: launcher.policy.as_ref(),
        };
        let start = HostStart {
            project: self.workspace.clone(),
            env: for_check(&self.base, &places, &BTreeMap::new()),
            launcher: launcher.clone(),
            python: find_program(self.base.path(), OsStr::new("python3"), &self.workspace),
        };
        let paths = |inputs: &[WorkspaceInput]| {
            let to = inputs.iter().map(|input| input.to.as_str());
            to.map(PathBuf::from).collect()
        };
        Ok(ToolEnv {
            start,
            folder,
            frozen: FrozenPaths {
                paths: paths(&inputs.protect),
                except: paths(&inputs.copy),
                ..FrozenPaths::default()
            },
            secrets: self.secrets.clone(),
            _scratch: kept,
        })
    }

    /// The compiler cache of these children; they cannot reach that of others.
    pub(crate) fn cache(&self, of: CacheOwner) -> Option<PathBuf> {
        self.caches.as_ref().map(|caches| caches.folder(of))
    }

    fn tool_launcher(&self, folder: Option<&Path>, frozen: &[PathBuf]) -> Result<Launcher> {
        let Some(mut policy) = self.launcher.policy.clone() else {
            return Ok(self.launcher.clone());
        };
        policy
            .freeze
            .extend(frozen.iter().map(|place| self.workspace.join(place)));
        policy.write.extend(self.cache(CacheOwner::Environments));
        policy
            .read
            .extend(folder.and_then(|folder| folder.canonicalize().ok()));
        self.launcher.with_shared_namespaces(policy)
    }
}

/// Copies files of the user into a private folder.
#[expect(
    clippy::disallowed_methods,
    reason = "a new file in a new directory of ours"
)]
fn bring(inputs: &[WorkspaceInput], folder: &Path) -> Result<()> {
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
                match content {
                    InputContent::Held(content) => fs::write(&path, content),
                    InputContent::Source(source) => fs::copy(source, &path).map(drop),
                }
                .map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o777))
                    .map_err(failed)?;
            }
        }
    }
    Ok(())
}
