//! As whom the binary is started, and on what kind of system.
//!
//! A system that refuses namespaces is made with a filter of system calls that the binary starts under: it answers as
//! such a system does, and nothing else is different.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The first of the users that nobody on this system is.
const NOBODY: u32 = 61_000;

/// How the binary is started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Guise {
    /// Another user than the one who runs the tests.
    pub user: Option<u32>,
    pub refuses_namespaces: bool,
    pub has_no_landlock: bool,
}

impl Guise {
    /// Returns the guise of a user without rights; nothing, and says so, where only root could become that user.
    pub fn nobody() -> Option<Guise> {
        if !geteuid().is_root() {
            eprintln!("skipped as another user: only root can become one");
            return None;
        }
        // The kernel counts the processes of a user: each test has one of its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let user =
            NOBODY + std::process::id() % 400 * 10 + NEXT.fetch_add(1, Ordering::Relaxed) % 10;
        Some(Guise {
            user: Some(user),
            ..Guise::default()
        })
    }

    /// Returns the same on a system without namespaces.
    pub fn without_namespaces(self) -> Guise {
        Guise {
            refuses_namespaces: true,
            ..self
        }
    }

    /// Returns the same on a system without Landlock.
    pub fn without_landlock(self) -> Guise {
        Guise {
            has_no_landlock: true,
            ..self
        }
    }

    pub fn uid(&self) -> u32 {
        self.user.unwrap_or_else(|| geteuid().as_raw())
    }

    /// Makes a command start like that.
    #[expect(
        unsafe_code,
        reason = "a filter is laid on the child between its fork and its program"
    )]
    pub fn dress(&self, command: &mut Command) {
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
            // SAFETY: the filter is made before the fork; laying it on is two system calls.
            unsafe {
                command.pre_exec(move || {
                    apply_filter(&filter).map_err(|_| std::io::ErrorKind::Other.into())
                })
            };
        }
    }
}

/// A filter that answers EPERM to whatever makes or enters namespaces, or mounts.
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
