//! The watch over children that stay: those that share a workspace share the limits, and one thread looks after them.

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

/// Children that share a workspace. It is there as long as it has members.
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

/// A child that is watched, for as long as this is there.
#[derive(Debug)]
pub struct WatchGuard {
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

    /// Returns the limit that the child was ended for, in words.
    pub fn broken(&self) -> Option<String> {
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

/// Looks at a group from time to time, until it is gone.
fn watch_group(number: u64) {
    loop {
        thread::park_timeout(INTERVAL);
        match groups().iter_mut().find(|group| group.number == number) {
            Some(group) => group.look(),
            None => return,
        }
    }
}

impl WatchedGroup {
    fn look(&mut self) {
        let supervisors: Vec<Pid> = self
            .members
            .iter()
            .map(|member| member.supervisor.pid)
            .collect();
        let Some(broken) = self.watch.look(&supervisors) else {
            return;
        };
        if broken.culprit < self.members.len() {
            self.members.remove(broken.culprit).end(broken.words);
        }
        // What it left counts no more: the others, and whoever tidies up, begin anew.
        self.watch = LimitWatch::begin(&self.policy);
    }
}

impl GroupMember {
    fn end(self, words: String) {
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
        self.supervisor.end_now();
    }
}
