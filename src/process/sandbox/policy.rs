//! What the walls of a run hold: from plain data and a look at the file system to `SandboxPolicy`.
//!
//! `places` finds the system, the toolchains of the home and what PATH leads to; `credentials` finds what must not be
//! seen in them. Here the parts are put together, so that one rule is enough for whoever raises the walls: the deepest
//! entry that holds a path decides. Nothing is read from the environment, and nothing is changed.

mod credentials;
mod program_dirs;
mod rules;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use self::program_dirs::{FoundDir, trace};
pub use self::rules::PathAccess;
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};

const GIB: u64 = 1 << 30;

/// Where the private places are in a tree of our own making: the same in every run.
const PRIVATE_TMP: &str = "/tmp";
const PRIVATE_HOME: (&str, &str) = ("/home", "orchestrator");

/// What is there inside anyway, as one's own: it cannot be opened from outside.
const OWN_PLACES: [&str; 3] = ["/proc", "/dev", "/tmp"];

/// What a run wants of its walls.
#[derive(Debug, Clone, Copy)]
pub struct PolicyPlan<'a> {
    pub mode: SandboxMode,
    /// What may be written: `workspace/`, or a project directory.
    pub workspace: &'a Path,
    /// The root of the run; nothing of it is there but the workspace and what is opened by name.
    pub root: Option<&'a Path>,
    /// Where the user's home and programs are.
    pub base: &'a CallerEnv,
    /// What the user opens by name, absolute.
    pub read: &'a [PathBuf],
    /// What stays out of sight in all that is opened: originals of hidden, protected and template files, caches.
    pub originals: &'a [PathBuf],
    /// What is in the workspace to stay as it is.
    pub freeze: &'a [PathBuf],
    /// In reduced mode: the directory with `home` and `tmp` in it.
    pub private: Option<&'a Path>,
    pub devices: &'a [PathBuf],
    pub network: bool,
    pub limits: ResourceLimits,
}

/// Returns the walls of a plan. What it names and is not there is left out.
pub fn sandbox_policy(plan: &PolicyPlan<'_>) -> SandboxPolicy {
    let write: Vec<PathBuf> = vec![real(plan.workspace)];
    let home = plan.base.home();
    let implied = implied(plan, home);
    let named: Vec<FoundDir> = plan.read.iter().filter_map(|path| trace(path)).collect();
    let hide = hidden(plan, &implied, &named, &write);
    let mut links = program_dirs::links_on_the_way(plan.base.path());
    links.extend(
        implied
            .iter()
            .chain(&named)
            .flat_map(|found| found.links.clone()),
    );
    let read = implied
        .into_iter()
        .chain(named)
        .map(|found| found.real)
        .collect();
    let (read, hide) = rules::settle(&write, read, hide);
    let (tmp, private_home) = private_places(plan);
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
        home: private_home,
        tmp,
        private: plan.private.map(real),
        devices: plan.devices.to_vec(),
        network: plan.network,
        limits: plan.limits,
    };
    policy.links = rules::needed_links(&policy, links);
    policy
}

/// What must not be seen in all that is open.
fn hidden(
    plan: &PolicyPlan<'_>,
    implied: &[FoundDir],
    named: &[FoundDir],
    write: &[PathBuf],
) -> Vec<PathBuf> {
    let home = plan.base.home();
    let of_home = home.map(credentials::of_the_home).unwrap_or_default();
    let is_itself_one = |found: &&FoundDir| {
        credentials::is_credential(&found.real)
            || of_home.iter().any(|path| real(path) == found.real)
    };
    let (open_secrets, others): (Vec<&FoundDir>, Vec<&FoundDir>) =
        named.iter().partition(is_itself_one);
    let mut hide = credentials::of_the_system();
    hide.extend(of_home.iter().map(real));
    let toolchains = implied.iter().filter(|found| found.is_toolchain);
    hide.extend(toolchains.flat_map(|found| credentials::at_the_top(&found.real)));
    hide.extend(
        others
            .iter()
            .flat_map(|found| credentials::below(&found.real)),
    );
    // A link that is hidden by its name leads to what has to be.
    let mut hide: Vec<PathBuf> = hide.iter().map(real).collect();
    hide.retain(|path| {
        !open_secrets
            .iter()
            .any(|found| path.starts_with(&found.real))
    });
    hide.retain(|path| !write.iter().any(|place| path.starts_with(place)));
    let is_named = |home: &Path| named.iter().any(|found| found.real == home);
    hide.extend(
        home.map(real)
            .filter(|home| !is_named(home) && !program_dirs::is_vital(home)),
    );
    hide.extend(
        plan.originals
            .iter()
            .map(real)
            .filter(|path| !program_dirs::is_vital(path)),
    );
    hide.extend(
        plan.root
            .map(|root| of_the_root(&real(root)))
            .unwrap_or_default(),
    );
    hide
}

fn real(path: impl AsRef<Path>) -> PathBuf {
    path.as_ref()
        .canonicalize()
        .unwrap_or_else(|_| path.as_ref().to_owned())
}

/// Returns why something cannot be opened by `sandbox.read` or `--read`, if it cannot.
pub fn refusal(path: &Path) -> Option<&'static str> {
    let real = path.canonicalize().ok()?;
    if real == Path::new("/") {
        return Some("is everything; name the folders that are needed");
    }
    let is_own = OWN_PLACES.iter().any(|own| real == Path::new(own))
        || ["/proc", "/dev"].iter().any(|own| real.starts_with(own));
    is_own.then_some("is private inside the sandbox; name a folder elsewhere")
}

/// What may be read without being named.
fn implied(plan: &PolicyPlan<'_>, home: Option<&Path>) -> Vec<FoundDir> {
    let mut all = program_dirs::system();
    if let Some(home) = home {
        all.extend(program_dirs::toolchains(home, plan.base.named_toolchains()));
        all.extend(program_dirs::programs(home, plan.root, plan.base.path()));
    }
    if plan.network {
        all.extend(trace(Path::new("/etc/resolv.conf")));
        all.extend(
            plan.base
                .certificates()
                .and_then(trace)
                .filter(|found| found.real.is_file()),
        );
    }
    all
}

/// What is hidden of a root: all of it, or where it is so high up that everything would be gone, what is ours in it.
fn of_the_root(root: &Path) -> Vec<PathBuf> {
    match program_dirs::is_vital(root) {
        false => vec![root.to_owned()],
        true => ["state.json", "logs", "specs"]
            .map(|name| root.join(name))
            .to_vec(),
    }
}

fn private_places(plan: &PolicyPlan<'_>) -> (PathBuf, PathBuf) {
    if let Some(private) = plan.private {
        return (private.join("tmp"), private.join("home"));
    }
    (real(PRIVATE_TMP), real(PRIVATE_HOME.0).join(PRIVATE_HOME.1))
}

impl Default for ResourceLimits {
    /// Returns the limits of a run that names none; the memory is three quarters of this machine's.
    fn default() -> ResourceLimits {
        ResourceLimits {
            processes: 2048,
            memory: machine_memory() / 4 * 3,
            disk: 10 * GIB,
            files: 1_000_000,
            file_size: 4 * GIB,
            reserve: GIB,
            private: 2 * GIB,
        }
    }
}

/// Returns the bytes of memory of this machine, or no bound where nobody says.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    total
        .and_then(|kilobytes| kilobytes.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX >> 10)
        << 10
}
