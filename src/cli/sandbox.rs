//! The walls of a command: from what the user asks for to what a child may reach.

use std::path::{Path, PathBuf};

use crate::build::spec::{self, InputSource, Spec};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::plan::{PolicyPlan, sandbox_policy};
use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};

/// Where walls stand.
pub struct SandboxSite<'a> {
    pub mode: SandboxMode,
    /// The root of a build, or the project directory of a server.
    pub root: &'a Path,
    pub base: &'a CallerEnv,
    /// In reduced mode: where the private directories are.
    pub private: Option<&'a Path>,
    /// What compilers made in earlier rounds, of all who do not share it: each gets its own.
    pub caches: Option<&'a Path>,
}

/// Returns the walls of a build's checks.
pub fn of_checks(spec: &Spec, site: &SandboxSite<'_>) -> SandboxPolicy {
    let originals: Vec<PathBuf> = originals(spec)
        .into_iter()
        .chain(site.caches.map(Path::to_owned))
        .collect();
    sandbox_policy(&PolicyPlan {
        mode: site.mode,
        workspace: &site.root.join("workspace"),
        root: Some(site.root),
        base: site.base,
        read: &spec.sandbox.read,
        originals: &originals,
        freeze: &[],
        private: site.private,
        devices: &spec.sandbox.devices,
        network: spec.sandbox.network,
        limits: limits(&spec.sandbox.limits),
    })
}

/// Returns what checks never see where it comes from: hidden, protected and template files, and the spec itself.
pub fn originals(spec: &Spec) -> Vec<PathBuf> {
    let path = |source: &InputSource| source.from.clone();
    let hidden = spec
        .checks
        .iter()
        .filter(|check| check.hidden)
        .flat_map(|check| check.files.iter().map(path));
    let protected = spec.protect.iter().map(path);
    hidden
        .chain(protected)
        .chain(spec.generator.template.clone())
        .chain([spec.file.clone()])
        .collect()
}

/// What an environment of a project may do beyond the usual.
pub struct ExtraAccess<'a> {
    pub read: &'a [PathBuf],
    pub network: bool,
}

/// Returns the walls of a project's environments: what steers git was there before and stays as it is.
pub fn of_project(access: &ExtraAccess<'_>, site: &SandboxSite<'_>) -> SandboxPolicy {
    let freeze: Vec<PathBuf> = [".git/hooks", ".git/config"]
        .map(|name| site.root.join(name))
        .into_iter()
        .filter(|path| path.exists())
        .collect();
    sandbox_policy(&PolicyPlan {
        mode: site.mode,
        workspace: site.root,
        root: None,
        base: site.base,
        read: access.read,
        originals: &[],
        freeze: &freeze,
        private: site.private,
        devices: &[],
        network: access.network,
        limits: ResourceLimits::default(),
    })
}

fn limits(asked: &spec::LimitsSpec) -> ResourceLimits {
    let usual = ResourceLimits::default();
    ResourceLimits {
        processes: asked.processes.unwrap_or(usual.processes),
        memory: asked.memory.unwrap_or(usual.memory),
        disk: asked.disk.unwrap_or(usual.disk),
        files: asked.files.unwrap_or(usual.files),
        ..usual
    }
}
