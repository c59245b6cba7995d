//! Restricts the process that becomes the command: limits, privileges, Landlock, seccomp.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set};
use rustix::thread::{remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};
use crate::process::sandbox::{landlock, seccomp};

/// Restricts this process and everything that it starts.
pub(super) fn restrict(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    limit(policy)?;
    drop_privileges()?;
    let scopes = match policy.mode {
        SandboxMode::FullWithoutLandlock => false,
        SandboxMode::Full | SandboxMode::Reduced => landlock::restrict(policy)?,
    };
    seccomp::restrict(policy, scopes)
}

fn failure(step: &str, errno: Errno) -> SandboxFailure {
    SandboxFailure::new(SandboxLayer::Rights, step, errno)
}

fn limit(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    // The init counts, too; without a user namespace so do all processes of the user.
    let others = if policy.mode == SandboxMode::Reduced {
        processes_of_the_user()
    } else {
        1
    };
    let limits = [
        // Smaller than any dump. The kernel does not pipe a dump to the host's core handler if the limit is exactly 1.
        (Resource::Core, 1),
        (Resource::Fsize, policy.limits.file_size),
        (
            Resource::Nproc,
            policy.limits.processes.saturating_add(others),
        ),
    ];
    for (resource, most) in limits {
        let most = rustix::process::getrlimit(resource)
            .maximum
            .map_or(most, |allowed| allowed.min(most));
        setrlimit(
            resource,
            Rlimit {
                current: Some(most),
                maximum: Some(most),
            },
        )
        .map_err(|errno| failure("set a limit", errno))?;
    }
    Ok(())
}

/// How many processes and threads the user has now; 0 for root, which the kernel does not limit.
fn processes_of_the_user() -> u64 {
    let user = geteuid();
    if user.is_root() {
        return 0;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = processes.filter(|entry| {
        entry
            .file_name()
            .as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit)
    });
    let own = own.filter(|entry| {
        entry
            .metadata()
            .is_ok_and(|found| found.uid() == user.as_raw())
    });
    own.map(|entry| fs::read_dir(entry.path().join("task")).map_or(1, |tasks| tasks.count() as u64))
        .sum()
}

/// Drops every capability irrevocably.
fn drop_privileges() -> Result<(), SandboxFailure> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // INVAL: the kernel has no further capabilities. PERM: this process has none to drop, and the next steps
            // ensure that it cannot gain any.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(failure("drop a capability", errno)),
        }
    }
    set_no_new_privs(true).map_err(|errno| failure("set no_new_privs", errno))?;
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
    .map_err(|errno| failure("drop all capabilities", errno))
}
