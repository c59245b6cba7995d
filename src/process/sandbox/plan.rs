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

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::process::check_env::CallerEnv;
use crate::process::sandbox::plan::program_dirs::ProgramSite;
use crate::process::sandbox::policy::{ResourceLimits, SandboxMode, SandboxPolicy};
use crate::process::sandbox::trace::{PathResolver, TracedPath};

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
    let resolver = &PathResolver::default();
    let write: Vec<PathBuf> = vec![resolver.real(plan.workspace)];
    let opened = OpenedPaths::find(plan, resolver);
    let hide = hidden(plan, &opened, &write, resolver);
    let mut links = program_dirs::links_on_the_way(resolver, plan.base.path());
    links.extend(opened.all().flat_map(|found| found.links.clone()));
    let read = opened.all().map(|found| found.real.clone()).collect();
    let (read, hide) = rules::settle(resolver, &write, read, hide);
    let (tmp, home) = private_dirs(plan, resolver);
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
        private: plan.private.map(|path| resolver.real(path)),
        devices: plan.devices.to_vec(),
        network: plan.network,
        limits: plan.limits,
    };
    policy.links = rules::needed_links(resolver, &policy, links);
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
    /// Files of the resolver and of TLS.
    network: Vec<TracedPath>,
    /// The user's toolchains and programs; they may contain credentials.
    toolchains: Vec<TracedPath>,
    /// What the user opens by name.
    named: Vec<TracedPath>,
}

impl OpenedPaths {
    fn find(plan: &PolicyPlan<'_>, resolver: &PathResolver) -> OpenedPaths {
        let system = program_dirs::system(resolver);
        let mut toolchains = Vec::new();
        if let Some(home) = plan.base.home() {
            let site = ProgramSite {
                resolver,
                home,
                real_home: resolver.real(home),
                real_root: plan.root.map(|root| resolver.real(root)),
            };
            resolver.list(&site.real_home);
            toolchains.extend(site.toolchains(plan.base.named_toolchains()));
            toolchains.extend(site.programs(plan.base.path()));
        }
        let mut network = Vec::new();
        if plan.network {
            network.extend(resolver.trace(Path::new("/etc/resolv.conf")));
            let certificates = plan.base.certificates();
            let certificates = certificates.and_then(|file| resolver.trace(file));
            network.extend(certificates.filter(|found| found.real.is_file()));
        }
        let named = plan.read.iter().filter_map(|path| resolver.trace(path));
        OpenedPaths {
            system,
            network,
            toolchains,
            named: named.collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &TracedPath> {
        self.system
            .iter()
            .chain(&self.network)
            .chain(&self.toolchains)
            .chain(&self.named)
    }
}

/// What must stay hidden in all that may be read.
fn hidden(
    plan: &PolicyPlan<'_>,
    opened: &OpenedPaths,
    write: &[PathBuf],
    resolver: &PathResolver,
) -> Vec<PathBuf> {
    let is_vital = |path: &Path| program_dirs::is_vital(path, &opened.system);
    let mut hide = hidden_credentials(plan, opened, resolver);
    hide.retain(|path| !write.iter().any(|open| path.starts_with(open)));
    let is_named = |home: &Path| opened.named.iter().any(|found| found.real == home);
    let home = plan.base.home().map(|home| resolver.real(home));
    hide.extend(home.filter(|home| !is_named(home) && !is_vital(home)));
    let originals = plan.originals.iter().map(|path| resolver.real(path));
    hide.extend(originals.filter(|path| !is_vital(path)));
    if let Some(root) = plan.root.map(|root| resolver.real(root)) {
        hide.extend(hidden_of_root(&root, is_vital(&root)));
    }
    hide
}

/// The credentials in all that may be read, apart from those that the user opens by name.
fn hidden_credentials(
    plan: &PolicyPlan<'_>,
    opened: &OpenedPaths,
    resolver: &PathResolver,
) -> Vec<PathBuf> {
    let of_home = plan
        .base
        .home()
        .map(|home| credentials::of_the_home(resolver, &resolver.real(home)))
        .unwrap_or_default();
    let is_credential = |found: &&TracedPath| {
        credentials::is_credential(&found.real)
            || of_home.iter().any(|path| resolver.real(path) == found.real)
    };
    let (named_credentials, others): (Vec<_>, Vec<_>) =
        opened.named.iter().partition(is_credential);
    let mut hide = credentials::of_the_system(resolver);
    hide.extend(of_home.iter().cloned());
    let toolchains: BTreeSet<&Path> = opened
        .toolchains
        .iter()
        .map(|found| found.real.as_path())
        .collect();
    let in_toolchains = toolchains
        .into_iter()
        .flat_map(|toolchain| credentials::at_the_top(resolver, toolchain));
    hide.extend(in_toolchains);
    hide.extend(
        others
            .iter()
            .flat_map(|found| credentials::below(resolver, &found.real)),
    );
    // The target of a symlink with such a name is hidden, not the link.
    let mut hide: Vec<PathBuf> = hide.iter().map(|path| resolver.real(path)).collect();
    hide.retain(|path| {
        !named_credentials
            .iter()
            .any(|found| path.starts_with(&found.real))
    });
    hide
}

/// What is hidden of a root: all of it; only our own files if it contains the system.
fn hidden_of_root(root: &Path, is_vital: bool) -> Vec<PathBuf> {
    match is_vital {
        false => vec![root.to_owned()],
        true => ["state.json", "logs", "specs"]
            .map(|name| root.join(name))
            .to_vec(),
    }
}

fn private_dirs(plan: &PolicyPlan<'_>, resolver: &PathResolver) -> (PathBuf, PathBuf) {
    if let Some(private) = plan.private {
        return (private.join("tmp"), private.join("home"));
    }
    let home = resolver.real(Path::new(PRIVATE_HOME.0));
    (
        resolver.real(Path::new(PRIVATE_TMP)),
        home.join(PRIVATE_HOME.1),
    )
}
