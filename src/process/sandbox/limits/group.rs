//! Watches long-lived children: those that share a workspace share the limits, and one thread that checks them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::Pid;

use crate::process::launch::SupervisorHandle;
use crate::process::sandbox::limits::{INTERVAL, LimitWatch};
use crate::process::sandbox::policy::SandboxPolicy;

static GROUPS: Mutex<Vec<WatchedGroup>> = Mutex::new(Vec::new());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Children that share a workspace. Removed with its last member.
struct WatchedGroup {
    number: u64,
    workspace: PathBuf,
    policy: SandboxPolicy,
    watch: LimitWatch,
    members: Vec<GroupMember>,
    watcher: JoinHandle<()>,
}

struct GroupMember {
    supervisor: SupervisorHandle,
    broken: Arc<Mutex<Option<String>>>,
}

/// A child is watched until this is dropped.
#[derive(Debug)]
pub(crate) struct WatchGuard {
    workspace: PathBuf,
    supervisor: Pid,
    broken: Arc<Mutex<Option<String>>>,
}

impl WatchGuard {
    /// Watches a child. If it exceeds a limit, its supervisor is asked to kill it at once.
    pub(crate) fn begin(
        policy: &SandboxPolicy,
        supervisor: SupervisorHandle,
    ) -> std::io::Result<WatchGuard> {
        let workspace = policy.write.first().cloned().unwrap_or_default();
        let (pid, broken) = (supervisor.pid, Arc::default());
        let member = GroupMember {
            supervisor,
            broken: Arc::clone(&broken),
        };
        let mut groups = groups();
        match groups.iter_mut().find(|group| group.workspace == workspace) {
            Some(group) => group.members.push(member),
            None => {
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                let watcher = thread::Builder::new()
                    .name("watch".to_owned())
                    .spawn(move || watch_group(number))?;
                let (watch, policy, members) =
                    (LimitWatch::begin(policy), policy.clone(), vec![member]);
                groups.push(WatchedGroup {
                    number,
                    workspace: workspace.clone(),
                    policy,
                    watch,
                    members,
                    watcher,
                });
            }
        }
        Ok(WatchGuard {
            workspace,
            supervisor: pid,
            broken,
        })
    }

    /// The limit that the child was killed for.
    pub(crate) fn broken(&self) -> Option<String> {
        self.broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let mut groups = groups();
        for group in groups
            .iter_mut()
            .filter(|group| group.workspace == self.workspace)
        {
            group
                .members
                .retain(|member| member.supervisor.pid != self.supervisor);
        }
        let over: Vec<WatchedGroup> = groups
            .extract_if(.., |group| group.members.is_empty())
            .collect();
        drop(groups);
        for group in over {
            group.watcher.thread().unpark();
            let _ = group.watcher.join();
        }
    }
}

fn groups() -> MutexGuard<'static, Vec<WatchedGroup>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks a group periodically, until it is removed.
fn watch_group(number: u64) {
    loop {
        thread::park_timeout(INTERVAL);
        match groups().iter_mut().find(|group| group.number == number) {
            Some(group) => group.check(),
            None => return,
        }
    }
}

impl WatchedGroup {
    fn check(&mut self) {
        let supervisors: Vec<Pid> = self
            .members
            .iter()
            .map(|member| member.supervisor.pid)
            .collect();
        let Some(broken) = self.watch.check(&supervisors) else {
            return;
        };
        if broken.tree < self.members.len() {
            self.members.remove(broken.tree).end(broken.message);
        }
        // The others are not charged for what it left: the watch begins again.
        self.watch = LimitWatch::begin(&self.policy);
    }
}

impl GroupMember {
    fn end(self, broken: String) {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(broken);
        self.supervisor.end_now();
    }
}
