//! System calls without a safe wrapper: a fork into new namespaces, closing every descriptor, mount attributes.
//!
//! The supervisor has one thread, so a fork is harmless: no other thread can hold a lock that the child needs.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Pid;

/// The two processes after a fork.
pub(super) enum ForkSide {
    Parent(Pid),
    Child,
}

/// The namespaces that are created for a forked child.
#[derive(Clone, Copy)]
pub(super) struct NamespaceFlags(libc::c_int);

impl NamespaceFlags {
    pub(super) const NONE: NamespaceFlags = NamespaceFlags(0);
    /// All except the network.
    pub(super) const ALL: NamespaceFlags = NamespaceFlags(
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC,
    );
    pub(super) const NETWORK: NamespaceFlags = NamespaceFlags(libc::CLONE_NEWNET);
    /// Only PID and mount; the child's parent is that of the forking process.
    pub(super) const MEMBER: NamespaceFlags =
        NamespaceFlags(libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_PARENT);

    pub(super) fn and(self, other: NamespaceFlags) -> NamespaceFlags {
        NamespaceFlags(self.0 | other.0)
    }
}

#[expect(unsafe_code, reason = "there is no safe fork")]
pub(super) fn fork(flags: NamespaceFlags) -> io::Result<ForkSide> {
    debug_assert!(fs::read_dir("/proc/self/task").map_or(1, Iterator::count) == 1);
    // SAFETY: this process has one thread, so the child finds every lock free and every structure consistent. Without a
    // stack argument and without CLONE_VM this is an ordinary fork; the unused arguments are zero in any order.
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

/// Closes every descriptor above stderr except one.
#[expect(
    unsafe_code,
    reason = "closes descriptors that other values own in this copy of the process"
)]
pub(super) fn close_all_but(kept: u32) {
    let close = |first: u32, last: u32| {
        // SAFETY: the caller only reaps and exits; no owner of a closed descriptor is used again in this process.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    };
    if 3 < kept {
        close(3, kept - 1);
    }
    close(kept + 1, u32::MAX);
}

/// Mount attributes of `mount_setattr`.
#[derive(Clone, Copy)]
pub(super) struct MountAttributes(u64);

impl MountAttributes {
    const NONE: MountAttributes = MountAttributes(0);
    pub(super) const READ_ONLY: MountAttributes = MountAttributes(1);
    pub(super) const NO_SUID: MountAttributes = MountAttributes(2);
    pub(super) const NO_DEVICES: MountAttributes = MountAttributes(4);

    pub(super) const fn and(self, other: MountAttributes) -> MountAttributes {
        MountAttributes(self.0 | other.0)
    }
}

/// Which mounts a change applies to.
#[derive(Clone, Copy)]
pub(super) enum MountReach {
    ThisMount,
    AllBelow,
}

/// Adds attributes to a mount.
pub(super) fn restrict_mount(
    path: &Path,
    attributes: MountAttributes,
    reach: MountReach,
) -> io::Result<()> {
    change_mount(path, attributes, MountAttributes::NONE, reach)
}

/// Makes a mount writable, but not those below it.
pub(super) fn make_writable(path: &Path) -> io::Result<()> {
    change_mount(
        path,
        MountAttributes::NONE,
        MountAttributes::READ_ONLY,
        MountReach::ThisMount,
    )
}

/// `struct mount_attr` of the kernel.
#[repr(C)]
struct MountChange {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

#[expect(unsafe_code, reason = "no library wraps mount_setattr")]
fn change_mount(
    path: &Path,
    set: MountAttributes,
    clear: MountAttributes,
    reach: MountReach,
) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let change = MountChange {
        set: set.0,
        clear: clear.0,
        propagation: 0,
        user_namespace: 0,
    };
    let flags = match reach {
        MountReach::AllBelow => libc::AT_RECURSIVE,
        MountReach::ThisMount => 0,
    };
    // SAFETY: path and change live during the call, and the size is that of the structure.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<MountChange>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
