//! The sandbox policy of checks and environments, from what the user asks for.

use std::path::{Path, PathBuf};

use crate::build::spec::{InputSource, LimitsSpec, SandboxSpec, Spec};
use crate::events::{Event, MAIN_AGENT};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::plan::{PolicyPlan, sandbox_policy};
use crate::process::sandbox::probe::ProbeResult;
use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};

/// Where the sandboxed programs work.
pub(super) struct SandboxSite<'a> {
    pub mode: SandboxMode,
    /// The root of a run, or the project directory of a server.
    pub root: &'a Path,
    pub base: &'a CallerEnv,
    /// In reduced mode: the scratch directories.
    pub private: Option<&'a Path>,
    /// The compiler caches of all children; each child gets access to its own one only.
    pub caches: Option<&'a Path>,
}

/// The policy of a build's checks.
pub(super) fn of_checks(spec: &Spec, site: &SandboxSite<'_>) -> SandboxPolicy {
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

/// What checks cannot see in its original place: hidden, protected and template files, and the spec itself.
pub(super) fn originals(spec: &Spec) -> Vec<PathBuf> {
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

/// What the environments of a project may access beyond the default.
pub(super) struct ExtraAccess<'a> {
    pub read: &'a [PathBuf],
    pub network: bool,
}

/// The policy of a project's environments. Hooks and configuration of git are read-only.
pub(super) fn of_project(access: &ExtraAccess<'_>, site: &SandboxSite<'_>) -> SandboxPolicy {
    let freeze = git_settings(site.root);
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

/// What git executes, and which programs it executes.
pub(super) fn git_settings(project: &Path) -> Vec<PathBuf> {
    let paths = [".git/hooks", ".git/config"].map(|name| project.join(name));
    paths.into_iter().filter(|path| path.exists()).collect()
}

/// What the spec opens beyond the default, as the end of a sentence about the sandbox.
pub(super) fn extra_access(sandbox: &SandboxSpec) -> String {
    let paths: Vec<PathBuf> = sandbox
        .read
        .iter()
        .chain(&sandbox.devices)
        .cloned()
        .collect();
    opened(&paths, sandbox.network)
}

/// What is opened beyond the default, as the end of a sentence about the sandbox.
pub(super) fn opened(paths: &[PathBuf], network: bool) -> String {
    let paths: Vec<String> = paths.iter().map(|path| with_target(path)).collect();
    let mut text = String::new();
    if !paths.is_empty() {
        text += &format!("; opened: {}", paths.join(", "));
    }
    if network {
        text += "; the network is open, the host's loopback too";
    }
    text
}

/// The event of the mode that a run has: the one that was found, or none for `programs` with `--no-sandbox`. It names the
/// mode that the run had before if that was another.
pub(super) fn found_event(
    found: Option<&ProbeResult>,
    opened: &str,
    programs: &str,
    before: Option<&str>,
) -> Event {
    let (mode, mut message) = match found {
        Some(found) => (found.mode.name(), found.line(opened)),
        None => (
            "off",
            format!("--no-sandbox: {programs} run without kernel containment"),
        ),
    };
    if let Some(before) = before.filter(|before| *before != mode) {
        message += &format!(" (before it was resumed this run had: {before})");
    }
    Event::SandboxFound {
        agent_id: MAIN_AGENT.into(),
        mode: mode.into(),
        message,
        is_note: found.is_none_or(ProbeResult::is_noteworthy),
    }
}

/// A path, and after an arrow what it resolves to if that is another one.
fn with_target(path: &Path) -> String {
    match path.canonicalize().ok().filter(|real| real != path) {
        Some(real) => format!("{} -> {}", path.display(), real.display()),
        None => path.display().to_string(),
    }
}

fn limits(asked: &LimitsSpec) -> ResourceLimits {
    let usual = ResourceLimits::default();
    ResourceLimits {
        processes: asked.processes.unwrap_or(usual.processes),
        memory: asked.memory.unwrap_or(usual.memory),
        disk: asked.disk.unwrap_or(usual.disk),
        files: asked.files.unwrap_or(usual.files),
        ..usual
    }
}
