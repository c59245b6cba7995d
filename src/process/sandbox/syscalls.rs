//! The few calls that have no safe form: a fork into new namespaces, and letting go of every descriptor.
//!
//! The keeper has one thread, and that is what makes a fork harmless: no lock is held by somebody who is not there in
//! the child.

use std::fs;
use std::io;

use rustix::process::Pid;

/// Which of the two one is after a fork.
pub(super) enum ForkSide {
    Parent(Pid),
    Child,
}

/// Namespaces that a forked child gets as its own.
#[derive(Clone, Copy)]
pub(super) struct NamespaceFlags(libc::c_int);

impl NamespaceFlags {
    pub(super) const NONE: NamespaceFlags = NamespaceFlags(0);
    /// All but the network.
    pub(super) const ALL: NamespaceFlags = NamespaceFlags(
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC,
    );
    pub(super) const NETWORK: NamespaceFlags = NamespaceFlags(libc::CLONE_NEWNET);
    /// Processes and mounts alone; the child's parent is the parent of whoever forks.
    pub(super) const MEMBER: NamespaceFlags =
        NamespaceFlags(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_PARENT);

    pub(super) fn and(self, other: NamespaceFlags) -> NamespaceFlags {
        NamespaceFlags(self.0 | other.0)
    }
}

/// Forks.
#[expect(unsafe_code, reason = "there is no safe fork")]
pub(super) fn fork(flags: NamespaceFlags) -> io::Result<ForkSide> {
    debug_assert!(fs::read_dir("/proc/self/task").map_or(1, Iterator::count) == 1);
    // SAFETY: this process has one thread, so the child finds every lock free and every structure whole. Without a
    // stack of its own and without CLONE_VM it is an ordinary fork; the unused arguments are zero in any order.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags.0 | libc::SIGCHLD),
            0,
            0,
            0,
            0,
        )
    };
    match i32::try_from(pid) {
        Ok(0) => Ok(ForkSide::Child),
        Ok(pid @ 1..) => Pid::from_raw(pid)
            .map(ForkSide::Parent)
            .ok_or_else(io::Error::last_os_error),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Closes every descriptor above the three but one.
#[expect(
    unsafe_code,
    reason = "what others own in this copy of the process is closed behind their backs"
)]
pub(super) fn close_all_but(kept: u32) {
    let close = |first: u32, last: u32| {
        // SAFETY: the caller goes on to reap and to exit; nobody who owned one of them runs in this process again.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    };
    if 3 < kept {
        close(3, kept - 1);
    }
    close(kept + 1, u32::MAX);
}

/// Attributes of mounts, as `mount_setattr` has them.
#[derive(Clone, Copy)]
pub(super) struct MountAttributeFlags(u64);

impl MountAttributeFlags {
    pub(super) const NONE: MountAttributeFlags = MountAttributeFlags(0);
    pub(super) const READ_ONLY: MountAttributeFlags = MountAttributeFlags(1);
    pub(super) const NO_SUID: MountAttributeFlags = MountAttributeFlags(2);
    pub(super) const NO_DEVICES: MountAttributeFlags = MountAttributeFlags(4);

    pub(super) fn and(self, other: MountAttributeFlags) -> MountAttributeFlags {
        MountAttributeFlags(self.0 | other.0)
    }
}

/// How far a change of attributes reaches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MountReach {
    ThisMount,
    AllBelow,
}

/// Sets and clears attributes of a mount.
#[expect(
    unsafe_code,
    reason = "the call is younger than the libraries that wrap it"
)]
pub(super) fn set_attributes(
    place: &std::path::Path,
    set: MountAttributeFlags,
    clear: MountAttributeFlags,
    reach: MountReach,
) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    #[repr(C)]
    struct MountAttributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    let path = std::ffi::CString::new(place.as_os_str().as_bytes())?;
    let attributes = MountAttributes {
        set: set.0,
        clear: clear.0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = if reach == MountReach::AllBelow {
        libc::AT_RECURSIVE
    } else {
        0
    };
    // SAFETY: path and attributes live as long as the call, and the size is the structure's own.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
