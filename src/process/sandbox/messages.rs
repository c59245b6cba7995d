//! The messages about the sandbox mode: what is enforced, what is not, and how to fix it on this system.

use std::fs;
use std::path::Path;

use landlock::ABI;
use rustix::process::geteuid;

use crate::process::sandbox::failure::SandboxFailure;
use crate::process::sandbox::{landlock as rights, mounts};

/// The message for full mode.
pub(super) fn full() -> String {
    unbounded().to_owned()
}

/// The message for full mode on a kernel without Landlock.
pub(super) fn without_landlock(why: &SandboxFailure) -> String {
    format!(
        " — {why}; namespaces, a read-only tree and seccomp hold{}",
        unbounded()
    )
}

/// What even full mode does not enforce: before Linux 6.14 nothing limits the number of root's processes.
fn unbounded() -> &'static str {
    match geteuid().is_root() && !mounts::has_own_pid_max() {
        true => "; as root on this kernel the number of processes has no limit",
        false => "",
    }
}

/// How to get Landlock.
pub(super) fn landlock_fix() -> &'static str {
    "boot Linux 6.2 or newer with `landlock` in the kernel parameter lsm= (cat /sys/kernel/security/lsm shows what is active)"
}

/// The message for reduced mode, without its fix.
pub(super) fn reduced(why: &SandboxFailure, network: bool) -> String {
    let (has_network, no_sockets) = match network {
        true => (
            "and have the network, the host's loopback too",
            "there are no unix sockets and no shared memory",
        ),
        false => (
            "and have no network",
            "there are no unix sockets, no loopback and no shared memory",
        ),
    };
    let lost = [
        "modes and times of your own files outside can be changed",
        "other processes can be seen",
        no_sockets,
        "there are no terminals but for environments of env/, which can open yours",
        "files of the workspace that should be read-only are not",
    ];
    let lost: Vec<&str> = lost.into_iter().chain(missing_rights()).collect();
    format!(
        " — this system refuses namespaces ({why}). Programs cannot write outside the workspace {has_network}, \
         but: {}",
        lost.join("; ")
    )
}

/// What newer kernels can refuse and this one cannot.
fn missing_rights() -> impl Iterator<Item = &'static str> {
    let version = rights::version();
    let missing = [
        (ABI::V5, "this kernel cannot refuse requests to devices"),
        (
            ABI::V6,
            "this kernel cannot refuse signals to your own processes",
        ),
    ];
    missing
        .into_iter()
        .filter(move |(needed, _)| version < *needed)
        .map(|(_, message)| message)
}

/// The error if no mode works.
pub(super) fn none(full: &SandboxFailure, other: &SandboxFailure) -> String {
    let tried = if full == other {
        full.to_string()
    } else {
        format!("{full}; without that: {other}")
    };
    format!(
        "no sandbox available: {tried}. Nothing was run. Fix: {}",
        fix()
    )
}

/// The fix for this system, ready to paste.
pub(super) fn fix() -> String {
    let setting = |name: &str| {
        fs::read_to_string(format!("/proc/sys/{name}"))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1" {
        return apparmor();
    }
    if setting("kernel/unprivileged_userns_clone") == "0" {
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned();
    }
    if setting("user/max_user_namespaces") == "0" {
        return "sudo sysctl -w user.max_user_namespaces=15000".to_owned();
    }
    "in a container start it with --security-opt seccomp=unconfined, or where the container itself is the sandbox use --no-sandbox"
        .to_owned()
}

/// An AppArmor profile that allows this program to create user namespaces where Ubuntu restricts them.
fn apparmor() -> String {
    let program =
        fs::read_link("/proc/self/exe").unwrap_or_else(|_| Path::new("orchestrator").to_owned());
    format!(
        "printf 'abi <abi/4.0>,\\nprofile orchestrator \"{}\" flags=(unconfined) {{\\n  userns,\\n}}\\n' \
         | sudo tee /etc/apparmor.d/orchestrator && sudo apparmor_parser -r /etc/apparmor.d/orchestrator",
        program.display()
    )
}
