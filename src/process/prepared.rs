//! A supervisor that was started ahead of its command, with its sandbox set up.
//!
//! It is used only if that sandbox is what would be set up now: the policy is the same, and every path of it leads to the
//! same file or directory. A mount belongs to a file, not to its name, and the kernel drops a mount whose place was
//! replaced from outside. Its death may not be visible yet: `run` starts another one if no command has begun in it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, StatxTimestamp, statx};

use crate::process::launch::{Launcher, Supervisor};
use crate::process::sandbox::policy::SandboxPolicy;

/// At most one prepared supervisor, shared by the clones of a launcher.
#[derive(Debug, Clone, Default)]
pub(super) struct PreparedSlot(Arc<Mutex<Option<PreparedSupervisor>>>);

impl PreparedSlot {
    /// Puts a supervisor into the slot; one that is in it is ended.
    pub(super) fn put(&self, prepared: PreparedSupervisor) {
        let previous = self.lock().replace(prepared);
        drop(previous);
    }

    /// Takes the supervisor if it fits; otherwise it is ended.
    pub(super) fn take(&self, launcher: &Launcher) -> Option<Supervisor> {
        let mut prepared = self.lock().take()?;
        prepared
            .fits(launcher)
            .then(|| prepared.supervisor.take())
            .flatten()
    }

    /// Whether it holds a supervisor that fits.
    pub(super) fn fits(&self, launcher: &Launcher) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|prepared| prepared.fits(launcher))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<PreparedSupervisor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A supervisor that waits for its command. Dropping it ends it.
#[derive(Debug)]
pub(super) struct PreparedSupervisor {
    supervisor: Option<Supervisor>,
    policy: Option<SandboxPolicy>,
    files: Vec<Option<FileIdentity>>,
}

impl PreparedSupervisor {
    /// `files` were identified before the supervisor started.
    pub(super) fn new(
        supervisor: Supervisor,
        launcher: &Launcher,
        files: Vec<Option<FileIdentity>>,
    ) -> PreparedSupervisor {
        PreparedSupervisor {
            supervisor: Some(supervisor),
            policy: launcher.policy.clone(),
            files,
        }
    }

    fn fits(&self, launcher: &Launcher) -> bool {
        let is_waiting = |supervisor: &Supervisor| !supervisor.has_reported();
        launcher.namespaces.is_none()
            && self.policy == launcher.policy
            && self.supervisor.as_ref().is_some_and(is_waiting)
            && self.files == identify(launcher.policy.as_ref())
    }
}

impl Drop for PreparedSupervisor {
    fn drop(&mut self) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.end_now();
            let reported = supervisor.receive_end();
            supervisor.reap(reported.is_some());
        }
    }
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    device: (u32, u32),
    inode: u64,
    /// An inode number can be used again.
    born: (i64, u32),
    /// The last change; `None` for a directory, where each new entry is one.
    changed: Option<(i64, u32)>,
}

/// Identifies every path that the sandbox of a policy mounts, covers or opens, and the folders above them in the workspace.
pub(super) fn identify(policy: Option<&SandboxPolicy>) -> Vec<Option<FileIdentity>> {
    let Some(policy) = policy else {
        return Vec::new();
    };
    let listed = [
        &policy.write,
        &policy.freeze,
        &policy.reopen,
        &policy.read,
        &policy.hide,
        &policy.devices,
    ];
    let folders = policy.guarded_folders();
    let paths = listed.into_iter().flatten().chain(&folders);
    paths.map(|path| identity(path)).collect()
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found: Statx = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, fields).ok()?;
    let time = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    let is_folder = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
    Some(FileIdentity {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        born: time(found.stx_btime),
        changed: (!is_folder).then(|| time(found.stx_ctime)),
    })
}
