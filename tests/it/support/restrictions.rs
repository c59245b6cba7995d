//! Restrictions under which the binary is started: another user, no namespaces, no Landlock.
//!
//! Missing kernel features are simulated by a seccomp filter that the binary inherits; it returns the error
//! that such a system returns, and nothing else differs.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The first user id that is unused on this system.
const FIRST_UNUSED_USER: u32 = 61_000;

/// The restrictions of a start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Restrictions {
    /// A user id other than that of the tests.
    pub user: Option<u32>,
    pub refuses_namespaces: bool,
    pub has_no_landlock: bool,
}

impl Restrictions {
    /// An unprivileged user: the user of the tests, unless that is root.
    pub(crate) fn unprivileged() -> Restrictions {
        if !geteuid().is_root() {
            return Restrictions::default();
        }
        // The kernel counts processes per user, so each test has its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() % 400 * 10 + NEXT.fetch_add(1, Ordering::Relaxed) % 10;
        Restrictions {
            user: Some(FIRST_UNUSED_USER + number),
            ..Restrictions::default()
        }
    }

    /// The same on a system without namespaces.
    pub(crate) fn without_namespaces(self) -> Restrictions {
        Restrictions {
            refuses_namespaces: true,
            ..self
        }
    }

    /// The same on a system without Landlock.
    pub(crate) fn without_landlock(self) -> Restrictions {
        Restrictions {
            has_no_landlock: true,
            ..self
        }
    }

    pub(crate) fn uid(&self) -> u32 {
        self.user.unwrap_or_else(|| geteuid().as_raw())
    }

    /// Applies the restrictions to a command.
    #[expect(
        unsafe_code,
        reason = "the filter is applied in the child between fork and exec"
    )]
    pub(crate) fn apply(&self, command: &mut Command) {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let filters = [
            (self.refuses_namespaces, refusal as fn() -> BpfProgram),
            (self.has_no_landlock, absence),
        ];
        for filter in filters
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, filter)| filter())
        {
            // SAFETY: the filter is made before the fork; applying it is two system calls.
            unsafe {
                command.pre_exec(move || {
                    apply_filter(&filter).map_err(|_| std::io::ErrorKind::Other.into())
                })
            };
        }
    }
}

/// A filter that returns EPERM for every call that makes or enters namespaces, or mounts.
fn refusal() -> BpfProgram {
    let calls = [
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_pivot_root,
        libc::SYS_umount2,
    ];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        calls.into_iter().map(|call| (call, Vec::new())).collect();
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let has = |flag: i32| {
        let flag = flag as u64;
        let condition = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )
        .unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    rules.insert(libc::SYS_clone, flags.map(has).into());
    filter(rules, libc::EPERM)
}

/// A filter that answers like a kernel without Landlock.
fn absence() -> BpfProgram {
    filter(
        BTreeMap::from([(libc::SYS_landlock_create_ruleset, Vec::new())]),
        libc::ENOSYS,
    )
}

fn filter(rules: BTreeMap<i64, Vec<SeccompRule>>, error: i32) -> BpfProgram {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let refuse = SeccompAction::Errno(error as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)
        .unwrap()
        .try_into()
        .unwrap()
}
