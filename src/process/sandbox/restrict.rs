//! The last steps before a command starts, in the process that becomes it: limits, privileges, Landlock, seccomp.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, clear_ambient_capability_set};
use rustix::thread::{remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};

use crate::process::sandbox::{Failure, Layer, Mode, Walls, landlock, seccomp};

/// Restricts this process and all that it will start.
pub(super) fn restrict(walls: &Walls) -> Result<(), Failure> {
    limit(walls)?;
    drop_privileges()?;
    let scopes = match walls.mode {
        Mode::FullWithoutLandlock => false,
        Mode::Full | Mode::Reduced => landlock::restrict(walls)?,
    };
    seccomp::restrict(walls, scopes)
}

fn failure(step: &str, errno: Errno) -> Failure {
    Failure::new(Layer::Rights, step, errno)
}

fn limit(walls: &Walls) -> Result<(), Failure> {
    // Its init counts as well; without a user namespace everything that the user runs does.
    let others = if walls.mode == Mode::Reduced { processes_now() } else { 1 };
    let limits = [
        // Less than the smallest dump; and 1 is the one number that also keeps the kernel from handing a dump to the
        // program that collects them on the host.
        (Resource::Core, 1),
        (Resource::Fsize, walls.limits.file_size),
        (Resource::Nproc, walls.limits.processes.saturating_add(others)),
    ];
    for (resource, most) in limits {
        let most = rustix::process::getrlimit(resource).maximum.map_or(most, |allowed| allowed.min(most));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .map_err(|errno| failure("set a limit", errno))?;
    }
    Ok(())
}

/// How many processes and threads there are now: at least as many as the user has, for whom the kernel counts them.
fn processes_now() -> u64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let count = load.split(' ').nth(3).and_then(|counts| counts.split('/').nth(1)?.parse().ok());
    count.unwrap_or(u64::from(u32::MAX))
}

/// Gives up every capability, for good.
fn drop_privileges() -> Result<(), Failure> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no more of them; or who may not drop one has none, and the next steps see to it that
            // none can be won.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(errno) => return Err(failure("drop a capability", errno)),
        }
    }
    set_no_new_privs(true).map_err(|errno| failure("refuse new privileges", errno))?;
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|errno| failure("drop all capabilities", errno))
}
