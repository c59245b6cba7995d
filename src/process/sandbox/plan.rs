//! Builds the `SandboxPolicy` of a run from plain data and the file system.
//!
//! `program_dirs` finds the system, the toolchains of the home and what PATH leads to; `credentials` finds what must
//! stay hidden in them. Here both are combined so that one rule is enough to enforce them: the deepest entry that
//! contains a path decides. Nothing is read from the environment, and nothing is changed.

mod credentials;
mod program_dirs;
mod rules;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::process::check_env::CallerEnv;
use crate::process::sandbox::policy::{ResourceLimits, SandboxMode, SandboxPolicy};
use crate::process::sandbox::trace::{TracedPath, trace};

/// Where the private directories are in a mount namespace: the same in every run.
const PRIVATE_TMP: &str = "/tmp";
const PRIVATE_HOME: (&str, &str) = ("/home", "orchestrator");

/// Exist inside as private instances, so they cannot be opened from outside.
const PRIVATE_DIRS: [&str; 3] = ["/proc", "/dev", "/tmp"];

/// What a run needs of its sandbox.
#[derive(Debug, Clone, Copy)]
pub struct PolicyPlan<'a> {
    pub mode: SandboxMode,
    /// What may be written: `workspace/`, or a project directory.
    pub workspace: &'a Path,
    /// The root of the run. Only the workspace and what `read` names are visible of it.
    pub root: Option<&'a Path>,
    /// Locates the user's home and programs.
    pub base: &'a CallerEnv,
    /// What the user opens by name, absolute.
    pub read: &'a [PathBuf],
    /// What stays hidden in all that is opened: originals of hidden, protected and template files, caches.
    pub originals: &'a [PathBuf],
    /// What stays read-only in the workspace.
    pub freeze: &'a [PathBuf],
    /// In reduced mode: the directory that contains `home` and `tmp`.
    pub private: Option<&'a Path>,
    pub devices: &'a [PathBuf],
    pub network: bool,
    pub limits: ResourceLimits,
}

/// Builds the policy of a plan. Paths that do not exist are left out.
pub fn sandbox_policy(plan: &PolicyPlan<'_>) -> SandboxPolicy {
    let write: Vec<PathBuf> = vec![real(plan.workspace)];
    let opened = OpenedPaths::find(plan);
    let hide = hidden(plan, &opened, &write);
    let mut links = program_dirs::links_on_the_way(plan.base.path());
    links.extend(opened.all().flat_map(|found| found.links.clone()));
    let read = opened.all().map(|found| found.real.clone()).collect();
    let (read, hide) = rules::settle(&write, read, hide);
    let (tmp, home) = private_dirs(plan);
    let mut policy = SandboxPolicy {
        mode: plan.mode,
        freeze: plan
            .freeze
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect(),
        reopen: Vec::new(),
        write,
        read,
        links: Vec::new(),
        hide,
        home,
        tmp,
        private: plan.private.map(real),
        devices: plan.devices.to_vec(),
        network: plan.network,
        limits: plan.limits,
    };
    policy.links = rules::needed_links(&policy, links);
    policy
}

/// Why `sandbox.read` or `--read` cannot open a path; `None` if it can.
pub(crate) fn refusal(path: &Path) -> Option<&'static str> {
    let real = path.canonicalize().ok()?;
    if real == Path::new("/") {
        return Some("is everything; name the folders that are needed");
    }
    let is_private = PRIVATE_DIRS.iter().any(|own| real == Path::new(own))
        || ["/proc", "/dev"].iter().any(|own| real.starts_with(own));
    is_private.then_some("is private inside the sandbox; name a folder elsewhere")
}

/// What may be read.
struct OpenedPaths {
    system: Vec<TracedPath>,
    /// The user's toolchains and programs; they may contain credentials.
    toolchains: Vec<TracedPath>,
    /// What the user opens by name.
    named: Vec<TracedPath>,
}

impl OpenedPaths {
    fn find(plan: &PolicyPlan<'_>) -> OpenedPaths {
        let mut system = program_dirs::system();
        let mut toolchains = Vec::new();
        if let Some(home) = plan.base.home() {
            toolchains.extend(program_dirs::toolchains(home, plan.base.named_toolchains()));
            toolchains.extend(program_dirs::programs(home, plan.root, plan.base.path()));
        }
        if plan.network {
            system.extend(trace(Path::new("/etc/resolv.conf")));
            let certificates = plan.base.certificates().and_then(trace);
            system.extend(certificates.filter(|found| found.real.is_file()));
        }
        OpenedPaths {
            system,
            toolchains,
            named: plan.read.iter().filter_map(|path| trace(path)).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &TracedPath> {
        self.system
            .iter()
            .chain(&self.toolchains)
            .chain(&self.named)
    }
}

/// What must stay hidden in all that may be read.
fn hidden(plan: &PolicyPlan<'_>, opened: &OpenedPaths, write: &[PathBuf]) -> Vec<PathBuf> {
    let mut hide = hidden_credentials(plan, opened);
    hide.retain(|path| !write.iter().any(|open| path.starts_with(open)));
    let is_named = |home: &Path| opened.named.iter().any(|found| found.real == home);
    let home = plan.base.home().map(real);
    hide.extend(home.filter(|home| !is_named(home) && !program_dirs::is_vital(home)));
    let originals = plan.originals.iter().map(real);
    hide.extend(originals.filter(|path| !program_dirs::is_vital(path)));
    hide.extend(
        plan.root
            .map(|root| hidden_of_root(&real(root)))
            .unwrap_or_default(),
    );
    hide
}

/// The credentials in all that may be read, apart from those that the user opens by name.
fn hidden_credentials(plan: &PolicyPlan<'_>, opened: &OpenedPaths) -> Vec<PathBuf> {
    let of_home = plan
        .base
        .home()
        .map(credentials::of_the_home)
        .unwrap_or_default();
    let is_credential = |found: &&TracedPath| {
        credentials::is_credential(&found.real)
            || of_home.iter().any(|path| real(path) == found.real)
    };
    let (named_credentials, others): (Vec<_>, Vec<_>) =
        opened.named.iter().partition(is_credential);
    let mut hide = credentials::of_the_system();
    hide.extend(of_home.iter().cloned());
    let in_toolchains = opened
        .toolchains
        .iter()
        .flat_map(|found| credentials::at_the_top(&found.real));
    hide.extend(in_toolchains);
    hide.extend(
        others
            .iter()
            .flat_map(|found| credentials::below(&found.real)),
    );
    // The target of a symlink with such a name is hidden, not the link.
    let mut hide: Vec<PathBuf> = hide.iter().map(real).collect();
    hide.retain(|path| {
        !named_credentials
            .iter()
            .any(|found| path.starts_with(&found.real))
    });
    hide
}

fn real(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref()
        .canonicalize()
        .unwrap_or_else(|_| path.as_ref().to_owned())
}

/// What is hidden of a root: all of it; only our own files if it contains the system.
fn hidden_of_root(root: &Path) -> Vec<PathBuf> {
    match program_dirs::is_vital(root) {
        false => vec![root.to_owned()],
        true => ["state.json", "logs", "specs"]
            .map(|name| root.join(name))
            .to_vec(),
    }
}

fn private_dirs(plan: &PolicyPlan<'_>) -> (PathBuf, PathBuf) {
    if let Some(private) = plan.private {
        return (private.join("tmp"), private.join("home"));
    }
    (real(PRIVATE_TMP), real(PRIVATE_HOME.0).join(PRIVATE_HOME.1))
}
