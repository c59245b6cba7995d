//! Refuses system calls that reach outside the sandbox, or that have a history of kernel bugs.
//!
//! Most fail with EPERM. `clone3` and `openat2` fail with ENOSYS: a filter cannot see their flags, and programs fall back
//! to `clone` and `openat`. So do the x32 system calls, which the rules do not cover. A process of a foreign architecture
//! is killed.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BackendError, SeccompRule, TargetArch, apply_filter, sock_filter};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
};

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};

/// Refused whatever their arguments are.
const REFUSED: [c_long; 45] = [
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    // open_tree_attr, which libc does not define yet
    467,
];
/// Refused without an IPC namespace: these objects are shared with the whole system.
const SYSTEM_WIDE: [c_long; 20] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
];
/// Calls whose first argument is a pid; only the caller itself is allowed without a PID namespace.
const ON_PROCESSES: [c_long; 6] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];
const NAMESPACES: [c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// TIOCSTI puts characters into a terminal's input, TIOCLINUX does so on a console.
const TERMINAL_REQUESTS: [u64; 2] = [0x5412, 0x541C];
/// The set-user-ID bit: such a file would work outside.
const SET_USER_ID: u64 = 0o4000;
/// Calls that set a mode, and the index of that argument.
const MODE_CALLS: [(c_long, u8); 4] = [
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_mknodat, 2),
    // fchmodat2, which libc does not define yet
    (452, 2),
];
#[cfg(target_arch = "x86_64")]
const MODE_CALLS_X86: [(c_long, u8); 3] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_creat, 1),
];
#[cfg(not(target_arch = "x86_64"))]
const MODE_CALLS_X86: [(c_long, u8); 0] = [];
/// The first x32 system call; other architectures have no number as large.
const X32_FIRST: u32 = 0x4000_0000;

/// Restricts this process. `scopes`: Landlock already keeps abstract sockets of others out of reach.
pub(super) fn restrict(policy: &SandboxPolicy, scopes: bool) -> Result<(), SandboxFailure> {
    let failure = |what: String| SandboxFailure {
        layer: SandboxLayer::Seccomp,
        what: format!("seccomp: {what}"),
    };
    let program = program(policy, scopes).map_err(|error| failure(error.to_string()))?;
    apply_filter(&program).map_err(|error| match error {
        seccompiler::Error::Seccomp(source) | seccompiler::Error::Prctl(source) => {
            failure(source.to_string())
        }
        other => failure(other.to_string()),
    })
}

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

fn program(policy: &SandboxPolicy, scopes: bool) -> Result<BpfProgram, BackendError> {
    let mut rules: SeccompRules = REFUSED.into_iter().map(|call| (call, Vec::new())).collect();
    let clone_rules =
        NAMESPACES.map(|flag| rule(&[(0, Dword, MaskedEq(flag as u64), flag as u64)]));
    rules.insert(
        libc::SYS_clone,
        clone_rules.into_iter().collect::<Result<_, _>>()?,
    );
    let ioctl_rules = TERMINAL_REQUESTS.map(|request| rule(&[(1, Dword, Eq, request)]));
    rules.insert(
        libc::SYS_ioctl,
        ioctl_rules.into_iter().collect::<Result<_, _>>()?,
    );
    for (call, argument) in MODE_CALLS.into_iter().chain(MODE_CALLS_X86) {
        rules.insert(
            call,
            vec![rule(&[(
                argument,
                Dword,
                MaskedEq(SET_USER_ID),
                SET_USER_ID,
            )])?],
        );
    }
    rules.insert(libc::SYS_openat, open_rules(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, open_rules(1)?);
    rules.insert(libc::SYS_socket, socket_rules(policy, scopes)?);
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_iopl, libc::SYS_ioperm].map(|call| (call, Vec::new())));
    if policy.mode == SandboxMode::Reduced {
        add_reduced_rules(&mut rules)?;
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?;
    Ok([enosys_rules(), BpfProgram::try_from(filter)?].concat())
}

/// Opens that create a set-user-ID file. `flags` is the index of the flags; the mode follows, and counts only if the
/// flags create a file.
fn open_rules(flags: u8) -> Result<Vec<SeccompRule>, BackendError> {
    const TEMPORARY: u64 = 0o20_000_000;
    let mode = (flags + 1, Dword, MaskedEq(SET_USER_ID), SET_USER_ID);
    let making = [libc::O_CREAT as u64, TEMPORARY];
    making
        .into_iter()
        .map(|flag| rule(&[(flags, Dword, MaskedEq(flag), flag), mode.clone()]))
        .collect()
}

/// The allowed socket families: unix and inet in namespaces; in reduced mode none, or inet if the network is open.
fn socket_rules(policy: &SandboxPolicy, scopes: bool) -> Result<Vec<SeccompRule>, BackendError> {
    let is_reduced = policy.mode == SandboxMode::Reduced;
    if is_reduced && !policy.network {
        return Ok(Vec::new());
    }
    // The host's network namespace contains abstract sockets of the session, which no mount hides.
    let has_unix = !is_reduced && (!policy.network || scopes);
    let mut allowed = vec![libc::AF_INET, libc::AF_INET6];
    allowed.extend(has_unix.then_some(libc::AF_UNIX));
    let others: Vec<_> = allowed
        .into_iter()
        .map(|family| (0, Dword, Ne, family as u64))
        .collect();
    Ok(vec![rule(&others)?])
}

/// Rules for reduced mode, where the processes of others are visible.
fn add_reduced_rules(rules: &mut SeccompRules) -> Result<(), BackendError> {
    const IOPRIO_WHO_PROCESS: u64 = 1;
    rules.extend(SYSTEM_WIDE.map(|call| (call, Vec::new())));
    for call in ON_PROCESSES {
        rules.insert(call, vec![rule(&[(0, Dword, Ne, 0)])?]);
    }
    rules.insert(
        libc::SYS_prlimit64,
        vec![rule(&[(0, Dword, Ne, 0), (2, Qword, Ne, 0)])?],
    );
    rules.insert(
        libc::SYS_setpriority,
        vec![rule(&[(0, Dword, Ne, 0)])?, rule(&[(1, Dword, Ne, 0)])?],
    );
    rules.insert(
        libc::SYS_ioprio_set,
        vec![
            rule(&[(0, Dword, Ne, IOPRIO_WHO_PROCESS)])?,
            rule(&[(1, Dword, Ne, 0)])?,
        ],
    );
    Ok(())
}

/// A rule that matches if all of its conditions do: argument, its size, comparison, value.
fn rule(
    conditions: &[(u8, SeccompCmpArgLen, SeccompCmpOp, u64)],
) -> Result<SeccompRule, BackendError> {
    let condition =
        |(argument, length, operator, value): &(u8, SeccompCmpArgLen, SeccompCmpOp, u64)| {
            SeccompCondition::new(*argument, length.clone(), operator.clone(), *value)
        };
    SeccompRule::new(conditions.iter().map(condition).collect::<Result<_, _>>()?)
}

/// The beginning of the program: the calls that fail with ENOSYS. Jumps are relative, so the rest follows unchanged.
fn enosys_rules() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const AT_LEAST: u16 = 0x35;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ERROR: u32 = 0x0005_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        instruction(LOAD, 0, 0, 0),
        instruction(AT_LEAST, 2, 0, X32_FIRST),
        instruction(EQUAL, 1, 0, libc::SYS_clone3 as u32),
        instruction(EQUAL, 0, 1, libc::SYS_openat2 as u32),
        instruction(RETURN, 0, 0, ERROR | libc::ENOSYS as u32),
    ]
}
