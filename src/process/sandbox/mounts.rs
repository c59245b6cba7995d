//! The mounts of a child: an empty tree, into which the paths of the policy are bound.
//!
//! What is not listed does not exist inside. Every bind is made read-only at once, so that creating the next mount point
//! cannot change the host. Writable paths are then reopened at their top mount only, so that mounts inside the workspace
//! stay read-only. One tmpfs contains the root and all private directories, and limits their size together.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::mount::{mount, mount_bind_recursive, mount_change, unmount};
use rustix::process::{chdir, pivot_root};
use rustix::system::uname;

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::sandbox::syscalls::{
    MountAttributes, MountReach, make_writable, restrict_mount,
};
use crate::process::scratch::GITCONFIG;

const READ_ONLY: MountAttributes = MountAttributes::READ_ONLY;
const CLOSED: MountAttributes = READ_ONLY.and(MountAttributes::NO_SUID);

/// Where the new root is built: a directory that every system has.
const WORKBENCH: &str = "/proc";
/// Where the host's tree is until everything is bound.
const HOST: &str = "/.host";
/// The empty file and directory that are mounted over hidden paths; removed before the command starts.
const VOID: &str = "/.void";
/// Devices of the host that every child has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/ptmx", "pts/ptmx"),
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];
const SHARED_MEMORY: &str = "/dev/shm";
const TERMINALS: &str = "/dev/pts";
/// How many files the private directories may contain.
const MAX_PRIVATE_FILES: u32 = 1_000_000;
/// The kernel does not reuse pids below this one.
const RESERVED_PIDS: u64 = 300;

/// What is mounted at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountKind<'a> {
    Read,
    Write,
    Hidden,
    Device,
    /// An empty private directory with this mode.
    Private(u32),
    Link(&'a Path),
}

/// Builds the tree and makes it the root of this mount namespace.
pub(super) fn build(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    enter_empty_root(policy).map_err(|error| failure("mount a new root", Path::new(""), error))?;
    let entries = entries(policy);
    for (index, (path, kind)) in entries.iter().enumerate() {
        // The entries are sorted: if any is below this one, the next is.
        let has_inner = entries
            .get(index + 1)
            .is_some_and(|(next, _)| next.starts_with(path));
        mount_entry(path, *kind, has_inner).map_err(|error| failure("mount", path, error))?;
    }
    mount_devices().map_err(|error| failure("mount", Path::new("/dev"), error))?;
    own_proc(policy)?;
    detach_host().map_err(|error| failure("detach the root of the host", Path::new(""), error))?;
    for path in policy.guarded_folders() {
        mount_bind_recursive(&path, &path).map_err(|errno| failure("bind", &path, errno))?;
    }
    for path in &policy.freeze {
        freeze(path).map_err(|error| failure("freeze", path, error))?;
    }
    for path in &policy.reopen {
        reopen(path).map_err(|error| failure("reopen", path, error))?;
    }
    finish(policy, &entries).map_err(|error| failure("finish the new root", Path::new(""), error))
}

/// Mounts the `/proc` of this PID namespace, and limits its number of processes and threads.
///
/// It is read-only: root without capabilities still owns the host's settings in it.
pub(super) fn own_proc(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let path = Path::new("/proc");
    let _ = fs::create_dir(path);
    mount("proc", path, "proc", flags, None).map_err(|errno| failure("mount", path, errno))?;
    if has_own_pid_max() {
        limit_pids(policy.limits.processes)
            .map_err(|error| failure("limit the processes in", path, error))?;
    }
    restrict_mount(path, READ_ONLY, MountReach::ThisMount)
        .map_err(|error| failure("make read-only", path, error))
}

/// Whether `pid_max` belongs to the PID namespace; before Linux 6.14 it is system-wide.
pub(super) fn has_own_pid_max() -> bool {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (6, 14) <= version
}

/// Limits the number of pids. The reserved ones are skipped at the start, since they are used only once.
fn limit_pids(processes: u64) -> io::Result<()> {
    let set = |name: &str, value: u64| {
        File::options()
            .write(true)
            .open(name)
            .and_then(|mut file| file.write_all(value.to_string().as_bytes()))
    };
    // If the kernel cannot skip them, a few more processes are allowed.
    let _ = set("/proc/sys/kernel/ns_last_pid", RESERVED_PIDS - 1);
    set(
        "/proc/sys/kernel/pid_max",
        (RESERVED_PIDS + processes).clamp(RESERVED_PIDS + 1, 4_000_000),
    )
}

fn failure(step: &str, path: &Path, error: impl Into<io::Error>) -> SandboxFailure {
    SandboxFailure::new(
        SandboxLayer::Namespaces,
        format!("{step} {}", path.display()).trim_end(),
        error,
    )
}

fn enter_empty_root(policy: &SandboxPolicy) -> io::Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )?;
    let options = format!(
        "mode=0755,size={},nr_inodes={MAX_PRIVATE_FILES}",
        policy.limits.private
    );
    let options = CString::new(options)?;
    mount(
        "tmpfs",
        WORKBENCH,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )?;
    let host = format!("{WORKBENCH}{HOST}");
    fs::create_dir(&host)?;
    pivot_root(WORKBENCH, &host)?;
    chdir("/")?;
    fs::create_dir(VOID)?;
    File::create_new(format!("{VOID}/file"))?.set_permissions(Permissions::from_mode(0o000))?;
    fs::create_dir(format!("{VOID}/folder"))
}

/// What to mount, parents before their children.
fn entries(policy: &SandboxPolicy) -> Vec<(PathBuf, MountKind<'_>)> {
    let mut all: Vec<(PathBuf, MountKind<'_>)> = Vec::new();
    let mut add =
        |paths: &[PathBuf], kind| all.extend(paths.iter().map(|path| (path.clone(), kind)));
    add(&policy.read, MountKind::Read);
    add(&policy.write, MountKind::Write);
    add(&policy.hide, MountKind::Hidden);
    let devices: Vec<PathBuf> = policy
        .devices
        .iter()
        .filter(|path| !is_private_device(path))
        .cloned()
        .collect();
    add(&devices, MountKind::Device);
    add(
        &[policy.tmp.clone(), SHARED_MEMORY.into()],
        MountKind::Private(0o1777),
    );
    add(
        std::slice::from_ref(&policy.home),
        MountKind::Private(0o700),
    );
    add(&["/run".into()], MountKind::Private(0o755));
    all.extend(
        policy
            .links
            .iter()
            .map(|(path, target)| (path.clone(), MountKind::Link(target))),
    );
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

/// Whether a path in `/dev` is a private instance that exists anyway.
fn is_private_device(path: &Path) -> bool {
    [SHARED_MEMORY, TERMINALS]
        .iter()
        .chain(DEVICE_LINKS.iter().map(|(link, _)| link))
        .any(|own| path == Path::new(own))
}

fn mount_entry(path: &Path, kind: MountKind<'_>, has_inner: bool) -> io::Result<()> {
    match kind {
        MountKind::Read => {
            bind_from_host(path)?;
            restrict_mount(path, CLOSED, MountReach::AllBelow)
        }
        MountKind::Write => {
            bind_from_host(path)?;
            restrict_mount(
                path,
                CLOSED.and(MountAttributes::NO_DEVICES),
                MountReach::AllBelow,
            )?;
            make_writable(path)
        }
        MountKind::Device => bind_device(path),
        MountKind::Hidden => hide(path, has_inner),
        MountKind::Private(rights) => {
            make_folder(path)?;
            fs::set_permissions(path, Permissions::from_mode(rights))?;
            Ok(mount_bind_recursive(path, path)?)
        }
        MountKind::Link(target) => {
            make_folder(path.parent().unwrap_or(Path::new("/")))?;
            symlink(target, path)
        }
    }
}

/// Binds a path of the host to the same path, with everything that is mounted below it.
fn bind_from_host(path: &Path) -> io::Result<()> {
    let source = Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path));
    if fs::symlink_metadata(&source)?.is_dir() {
        make_folder(path)?;
    } else if fs::symlink_metadata(path).is_err() {
        make_folder(path.parent().unwrap_or(Path::new("/")))?;
        File::create_new(path)?;
    }
    Ok(mount_bind_recursive(&source, path)?)
}

/// Binds a device read-only: it can be used, but root without capabilities, its owner, cannot change it.
fn bind_device(path: &Path) -> io::Result<()> {
    bind_from_host(path)?;
    restrict_mount(path, CLOSED, MountReach::AllBelow)
}

/// Covers a path that exists because a parent was bound.
fn hide(path: &Path, has_inner: bool) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.is_dir() {
        let void = PathBuf::from(format!("{VOID}/file"));
        match found.is_symlink() {
            true => mount_over_link(&void, path)?,
            false => mount_bind_recursive(&void, path)?,
        }
        return restrict_mount(path, READ_ONLY, MountReach::ThisMount);
    }
    if has_inner {
        return Ok(mount(
            "tmpfs",
            path,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=0755,size=64k",
        )?);
    }
    mount_bind_recursive(format!("{VOID}/folder"), path)?;
    restrict_mount(path, READ_ONLY, MountReach::ThisMount)
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn mount_devices() -> io::Result<()> {
    for name in DEVICES {
        match bind_device(&Path::new("/dev").join(name)) {
            // A container may have fewer.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    fs::create_dir(TERMINALS)?;
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount(
        "devpts",
        TERMINALS,
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        options,
    )?;
    DEVICE_LINKS
        .iter()
        .try_for_each(|(link, target)| symlink(target, link))
}

fn detach_host() -> io::Result<()> {
    unmount(HOST, UnmountFlags::DETACH)?;
    fs::remove_dir(HOST)
}

/// Makes a path in the workspace read-only. Links in it cannot lead out of this tree. A link itself gets its target
/// mounted over it, so that it cannot be replaced.
fn freeze(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_symlink() && path.exists() => mount_over_link(path, path)?,
        Ok(found) if found.is_symlink() => return Ok(()),
        Ok(_) => mount_bind_recursive(path, path)?,
    }
    restrict_mount(path, READ_ONLY, MountReach::AllBelow)
}

/// Binds a file or directory over a link, which is not followed.
fn mount_over_link(source: &Path, link: &Path) -> io::Result<()> {
    let source = open_tree(
        CWD,
        source,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = rustix::fs::open(link, flags, Mode::empty())?;
    let by_descriptor =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(source, c"", link, c"", by_descriptor)?)
}

/// Makes a directory below a frozen path writable.
fn reopen(path: &Path) -> io::Result<()> {
    mount_bind_recursive(path, path)?;
    make_writable(path)
}

/// Creates the files of the home, and makes the root and hidden directories with visible content read-only.
fn finish(policy: &SandboxPolicy, entries: &[(PathBuf, MountKind<'_>)]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(policy.tmpdir())?;
    File::create_new(policy.home.join(".gitconfig"))?.write_all(GITCONFIG.as_bytes())?;
    fs::remove_dir_all(VOID)?;
    for pair in entries.windows(2) {
        if pair[0].1 == MountKind::Hidden && pair[1].0.starts_with(&pair[0].0) && pair[0].0.is_dir()
        {
            restrict_mount(&pair[0].0, READ_ONLY, MountReach::ThisMount)?;
        }
    }
    restrict_mount(Path::new("/"), READ_ONLY, MountReach::ThisMount)
}
