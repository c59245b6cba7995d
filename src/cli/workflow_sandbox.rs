//! What the programs and the editor of a workflow may access.
//!
//! Their folder is writable: `workspace/` of the root, or any other. It may contain the root and the workflow itself, so
//! what belongs to the run and the state files are taken out of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::sandbox::git_settings;
use crate::environments::editor::FrozenPaths;
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::plan::{PolicyPlan, sandbox_policy};
use crate::process::sandbox::policy::PathAccess;
use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};
use crate::state::store::{is_own_entry, real_path};
use crate::workspace::hidden::HiddenPaths;

/// The root's folder of ad-hoc environments.
const ENVIRONMENTS: &str = "env";

/// What the programs and the editor of a workflow may access. All paths are absolute.
pub struct WorkflowAccess {
    pub root: PathBuf,
    /// `workspace/`, or the directory that the user names.
    pub folder: PathBuf,
    /// The state files.
    pub states: Vec<PathBuf>,
    /// What `--read` names.
    pub read: Vec<PathBuf>,
    pub network: bool,
    pub base: CallerEnv,
    /// All compiler caches.
    pub caches: Option<PathBuf>,
    /// Writable directories beside the folder, such as the compiler cache of the programs.
    pub extra_write: Vec<PathBuf>,
}

impl WorkflowAccess {
    /// The policy of a workflow's scripts and environments.
    ///
    /// The state, the logs and the lock of the root are never visible. State files are not visible unless `--read`
    /// names their directory, and cannot be changed in any case. Of a root that is not in the folder only `env/` is
    /// visible. Hooks and configuration of git are read-only.
    ///
    /// The files to be hidden have to exist when a program starts, and must not be replaced by other files while it
    /// runs; see `Root::keep_spare`.
    pub fn policy(&self, mode: SandboxMode) -> SandboxPolicy {
        let (root, folder) = (real_path(&self.root), real_path(&self.folder));
        let is_root_inside = root.starts_with(&folder);
        let (opened, hidden) = StateEntry::split(&self.states, &self.read);
        let mut policy = sandbox_policy(&PolicyPlan {
            mode,
            workspace: &folder,
            root: (!is_root_inside).then_some(&root),
            base: &self.base,
            read: &readable(&self.read, &root),
            originals: &self.originals(&root, &hidden),
            freeze: &git_settings(&folder),
            private: None,
            devices: &[],
            network: self.network,
            limits: ResourceLimits::default(),
        });
        let extra_write = self.extra_write.iter();
        policy.write.extend(extra_write.map(|path| real_path(path)));
        guard(&mut policy, &opened, &hidden);
        policy
    }

    /// What the editor must not show or change. It runs in this process, where no sandbox holds. `dir` is the directory
    /// that it works in: the folder, or one in it.
    pub(super) fn editor_paths(&self, dir: &Path) -> FrozenPaths {
        let dir = real_path(dir);
        let inside = |path: &Path| path.strip_prefix(&dir).ok().map(Path::to_owned);
        let (opened, hidden) = StateEntry::split(&self.states, &self.read);
        let git = git_settings(&real_path(&self.folder));
        let frozen = opened.iter().flat_map(StateEntry::paths).chain(git);
        let hidden = hidden.iter().flat_map(StateEntry::paths);
        FrozenPaths {
            paths: frozen.filter_map(|path| inside(&path)).collect(),
            hidden: HiddenPaths {
                paths: hidden.filter_map(|path| inside(&path)).collect(),
                root: inside(&real_path(&self.root)),
            },
            ..FrozenPaths::default()
        }
    }

    /// What stays hidden wherever it is.
    fn originals(&self, root: &Path, hidden: &[StateEntry]) -> Vec<PathBuf> {
        let names = fs::read_dir(root).into_iter().flatten().flatten();
        let own = names
            .map(|entry| entry.file_name())
            .filter(|name| is_own_entry(name));
        own.map(|name| root.join(name))
            .chain(hidden.iter().map(|entry| entry.real.clone()))
            .chain(self.caches.clone())
            .collect()
    }
}

/// A state file.
struct StateEntry {
    /// Its path; only its last name may be a link.
    path: PathBuf,
    /// Where that leads.
    real: PathBuf,
}

impl StateEntry {
    /// Those that `--read` opens, by their own path or that of their directory, and the others.
    fn split(files: &[PathBuf], read: &[PathBuf]) -> (Vec<StateEntry>, Vec<StateEntry>) {
        let read: Vec<PathBuf> = read.iter().map(|path| real_path(path)).collect();
        let is_opened = |entry: &StateEntry| {
            let is_named =
                |path: &PathBuf| *path == entry.real || Some(path.as_path()) == entry.path.parent();
            read.iter().any(is_named)
        };
        files
            .iter()
            .filter_map(|path| StateEntry::find(path))
            .partition(is_opened)
    }

    fn find(path: &Path) -> Option<StateEntry> {
        let folder = real_path(path.parent()?);
        Some(StateEntry {
            path: folder.join(path.file_name()?),
            real: real_path(path),
        })
    }

    fn is_link(&self) -> bool {
        self.path != self.real
    }

    fn paths(&self) -> [PathBuf; 2] {
        [self.path.clone(), self.real.clone()]
    }
}

/// What `--read` opens, without what belongs to the run alone, and the ad-hoc environments.
fn readable(read: &[PathBuf], root: &Path) -> Vec<PathBuf> {
    let is_own = |path: &PathBuf| {
        let real = real_path(path);
        let first = real
            .strip_prefix(root)
            .ok()
            .and_then(|below| below.iter().next());
        first.is_some_and(is_own_entry)
    };
    let environments = root.join(ENVIRONMENTS);
    let named = read.iter().filter(|path| !is_own(path)).cloned();
    named
        .chain(environments.is_dir().then_some(environments))
        .collect()
}

/// Makes opened state files read-only in the folder, and keeps state files that are links from being replaced.
fn guard(policy: &mut SandboxPolicy, opened: &[StateEntry], hidden: &[StateEntry]) {
    let is_writable = |policy: &SandboxPolicy, path: &Path| policy.reach(path) == PathAccess::Write;
    for entry in hidden.iter().filter(|entry| entry.is_link()) {
        if is_writable(policy, &entry.path) {
            policy.hide.push(entry.path.clone());
        }
    }
    for entry in opened {
        if is_writable(policy, &entry.real) {
            policy.read.push(entry.real.clone());
        }
        if entry.is_link() && is_writable(policy, &entry.path) {
            policy.freeze.push(entry.path.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use super::WorkflowAccess;
    use crate::process::check_env::CallerEnv;

    /// A root with a workflow in it; returns what is frozen and hidden in `dir`, and the root as seen from there.
    fn paths_of_editor(dir: &str, read: &[&str]) -> (Vec<String>, Vec<String>, Option<PathBuf>) {
        let top = TempDir::new().unwrap();
        let at = |name: &str| top.path().join(name);
        for name in [
            "root/flow/START.md",
            "root/.git/config",
            "root/flow/sub/x",
            "root/workspace/x",
        ] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        symlink("START.md", at("root/flow/LINK.md")).unwrap();
        // The same directory by another path.
        symlink("root", at("link")).unwrap();
        let access = WorkflowAccess {
            root: at("link"),
            folder: at("root"),
            states: ["link/flow/START.md", "link/flow/LINK.md"].map(at).into(),
            read: read.iter().map(|name| at(name)).collect(),
            network: false,
            base: CallerEnv::new(std::iter::empty()),
            caches: None,
            extra_write: Vec::new(),
        };
        let found = access.editor_paths(&at(dir));
        let texts = |paths: &mut dyn Iterator<Item = &PathBuf>| {
            paths.map(|path| path.display().to_string()).collect()
        };
        let frozen = texts(&mut found.paths.iter());
        (
            frozen,
            texts(&mut found.hidden.paths.iter()),
            found.hidden.root,
        )
    }

    fn check(dir: &str, read: &[&str], frozen: &[&str], hidden: &[&str], root: Option<&str>) {
        let found = paths_of_editor(dir, read);
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let expected = (
            owned(frozen),
            owned(hidden),
            root.map(|root| Path::new(root).to_owned()),
        );
        assert_eq!(found, expected, "{dir} {read:?}");
    }

    #[test]
    fn the_editor_gets_paths_relative_to_its_directory() {
        let states = ["flow/LINK.md", "flow/START.md"];
        check("root", &[], &[".git/config"], &states, Some(""));
        check("link", &[], &[".git/config"], &states, Some(""));
        check("root/flow", &[], &[], &["LINK.md", "START.md"], None);
        check("root/flow/sub", &[], &[], &[], None);
        check("root/workspace", &[], &[], &[], None);
    }

    #[test]
    fn opened_state_files_are_shown_and_not_changed() {
        let frozen = [".git/config", "flow/LINK.md", "flow/START.md"];
        check("root", &["root/flow"], &frozen, &[], Some(""));
        check(
            "root/flow",
            &["link/flow"],
            &["LINK.md", "START.md"],
            &[],
            None,
        );
        let states = ["flow/LINK.md", "flow/START.md"];
        check("root", &["root"], &[".git/config"], &states, Some(""));
        check(
            "root",
            &["root/flow/sub"],
            &[".git/config"],
            &states,
            Some(""),
        );
    }
}
