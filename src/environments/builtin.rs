//! Creates the environments of a project: the built-in ones and the user's own.
//!
//! `serve` creates all of them at its start, agent mode each at its first use. Both use this file, so that an
//! environment is the same in either.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::adhoc::host::{HostEnvironment, HostStart};
use super::adhoc::mcp::environment::McpEnvironment;
use super::adhoc::own::{LOADING_PATIENCE, OwnEnvironment};
use super::adhoc::{self, AdhocKind, FoundEnvironment};
use super::bash::BashEnvironment;
use super::editor::{EditorEnvironment, FrozenPaths};
use super::python::PythonEnvironment;
use super::registry::Registry;
use super::{CreateError, Environment};
use crate::error::Error;

/// The names of the built-in environments, in the order of their screens.
pub(crate) const BUILT_IN: [&str; 3] = ["bash", "python", "editor"];

/// Where the environments of a project run, and which of the user's own there are.
pub(crate) struct EnvironmentFactory {
    start: HostStart,
    /// What the editor must not change or show: it runs inside this process, where no sandbox applies.
    frozen: FrozenPaths,
    own: Vec<FoundEnvironment>,
    /// The folder whose `env/` holds the user's own ones.
    folder: Option<PathBuf>,
    /// Writes a line to the user.
    print: fn(&str),
}

impl EnvironmentFactory {
    /// Looks for the user's own environments in `env/` of `folder`. Also returns warnings about files there that
    /// cannot be used.
    pub(crate) fn new(
        start: HostStart,
        frozen: FrozenPaths,
        folder: Option<&Path>,
        print: fn(&str),
    ) -> (EnvironmentFactory, Vec<String>) {
        let (own, warnings) = folder
            .map(|folder| adhoc::find(folder, &BUILT_IN))
            .unwrap_or_default();
        let factory = EnvironmentFactory {
            start,
            frozen,
            own,
            folder: folder.map(Path::to_owned),
            print,
        };
        (factory, warnings)
    }

    /// The user's own environments, by name.
    pub(crate) fn own(&self) -> &[FoundEnvironment] {
        &self.own
    }

    /// Creates the environment of that name, or `None` if there is none. One of the user's own is loaded until
    /// `deadline` or until `wake` is readable; one that is still loading then is returned as it is.
    pub(crate) fn create(
        &self,
        name: &str,
        deadline: Instant,
        wake: Option<BorrowedFd<'_>>,
    ) -> Option<Result<Box<dyn Environment>, CreateError>> {
        if BUILT_IN.contains(&name) {
            let created = self.built_in(name);
            return Some(created.map_err(|error| CreateError(error.to_string())));
        }
        let found = self.own.iter().find(|found| found.name == name)?;
        Some(self.load(found.clone(), deadline, wake))
    }

    /// Creates all of them; the user's own load side by side, and those that fail are left out. A restart looks into
    /// `env/` again.
    pub(crate) fn create_all(self, wake: Option<BorrowedFd<'_>>) -> Result<Registry, Error> {
        let mut hosts: Vec<(String, Box<dyn OwnEnvironment>)> = self
            .own
            .iter()
            .map(|found| (found.name.clone(), self.host(found.clone())))
            .collect();
        let mut registry = Registry::default();
        for name in BUILT_IN {
            registry.add(name, self.built_in(name)?);
        }
        let deadline = Instant::now() + LOADING_PATIENCE;
        hosts.retain_mut(|(_, host)| host.is_offered(deadline, wake));
        for (name, host) in hosts {
            registry.add(&name, host);
        }
        registry.set_finder(Box::new(move |name| self.find_again(name)));
        Ok(registry)
    }

    fn built_in(&self, name: &str) -> Result<Box<dyn Environment>, Error> {
        let HostStart {
            launcher,
            project,
            env,
            ..
        } = self.start.clone();
        Ok(match name {
            "bash" => Box::new(BashEnvironment::new(launcher, project, env)),
            "python" => Box::new(PythonEnvironment::new(launcher, project, env)),
            _ => Box::new(EditorEnvironment::new(&project)?.freezing(self.frozen.clone())),
        })
    }

    fn host(&self, found: FoundEnvironment) -> Box<dyn OwnEnvironment> {
        let (start, print) = (self.start.clone(), self.print);
        match found.kind {
            AdhocKind::Mcp => Box::new(McpEnvironment::new(found, start, print)),
            _ => Box::new(HostEnvironment::new(found, start, print)),
        }
    }

    fn load(
        &self,
        found: FoundEnvironment,
        deadline: Instant,
        wake: Option<BorrowedFd<'_>>,
    ) -> Result<Box<dyn Environment>, CreateError> {
        let mut host = self.host(found);
        host.is_offered(deadline.min(Instant::now() + LOADING_PATIENCE), wake);
        match host.problem() {
            Some(problem) => Err(CreateError(problem)),
            None => Ok(host),
        }
    }

    /// Loads an environment whose file is new, or could not be loaded before.
    fn find_again(&self, name: &str) -> Option<Result<Box<dyn Environment>, CreateError>> {
        let found = adhoc::find_one(self.folder.as_deref()?, name)?;
        let deadline = Instant::now() + LOADING_PATIENCE;
        Some(self.load(found, deadline, None))
    }
}
