//! The tree that a child sees: an empty one, into which the listed places are bound.
//!
//! What is not listed is not forbidden but absent. Everything is read-only as soon as it is there, so that making the
//! next place can never change something of the host's; what may be written is opened again at its top alone, so that
//! mounts inside the workspace stay closed. One file system in memory holds the root and all private places, and is as
//! large as those may be together.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::mount::{mount, mount_bind_recursive, mount_change, unmount};
use rustix::process::{chdir, pivot_root};
use rustix::system::uname;

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::sandbox::syscalls::{MountAttributeFlags, MountReach, set_attributes};
use crate::process::scratch::GITCONFIG;

/// Where the new root is put together: a place that every system has.
const WORKBENCH: &str = "/proc";
/// Where the host's tree is until all is bound.
const HOST: &str = "/.host";
/// Where what hides others comes from; it is gone before the command starts.
const VOID: &str = "/.void";
/// Devices of the host that everybody has.
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
/// As many files as the private places may hold.
const MOST_PRIVATE_FILES: u32 = 1_000_000;
/// The kernel gives no number below this one a second time.
const RESERVED_PIDS: u64 = 300;

/// What becomes of a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountKind<'a> {
    Read,
    Write,
    Hidden,
    Device,
    /// An empty folder of one's own, with these rights.
    Private(u32),
    Link(&'a Path),
}

/// Makes the tree the root of this mount namespace.
pub(super) fn build(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    enter_an_empty_root(policy)
        .map_err(|error| failure("make a new root", Path::new(""), error))?;
    let places = places(policy);
    for (index, (path, place)) in places.iter().enumerate() {
        // What follows in the order of paths is below this one, or is not.
        let holds_more = places
            .get(index + 1)
            .is_some_and(|(next, _)| next.starts_with(path));
        settle(path, *place, holds_more).map_err(|error| failure("open", path, error))?;
    }
    devices().map_err(|error| failure("make", Path::new("/dev"), error))?;
    own_proc(policy)?;
    leave_the_host().map_err(|error| failure("leave the old root", Path::new(""), error))?;
    for path in folders_above(policy) {
        mount_bind_recursive(&path, &path).map_err(|errno| failure("hold", &path, errno))?;
    }
    for path in &policy.freeze {
        freeze(path).map_err(|error| failure("freeze", path, error))?;
    }
    for path in &policy.reopen {
        reopen(path).map_err(|error| failure("reopen", path, error))?;
    }
    finish(policy, &places).map_err(|error| failure("close the new root", Path::new(""), error))
}

/// Gives this process namespace its `/proc`, and a bound to its number of processes and threads.
///
/// It is read-only: in it a root without any capability is still the owner of the host's settings.
pub(super) fn own_proc(policy: &SandboxPolicy) -> Result<(), SandboxFailure> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let place = Path::new("/proc");
    let _ = fs::create_dir(place);
    mount("proc", place, "proc", flags, None).map_err(|errno| failure("mount", place, errno))?;
    if has_own_pid_max() {
        bound_pids(policy.limits.processes)
            .map_err(|error| failure("bound the processes in", place, error))?;
    }
    set_attributes(
        place,
        MountAttributeFlags::READ_ONLY,
        MountAttributeFlags::NONE,
        MountReach::ThisMount,
    )
    .map_err(|error| failure("close", place, error))
}

/// Whether `pid_max` is a matter of the namespace; before Linux 6.14 it is the whole system's.
pub(super) fn has_own_pid_max() -> bool {
    let release = uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (6, 14) <= version
}

/// Lets exactly that many numbers be given: those below the reserved ones are skipped at the start, for they are not
/// given again.
fn bound_pids(processes: u64) -> io::Result<()> {
    let set = |name: &str, value: u64| {
        File::options()
            .write(true)
            .open(name)
            .and_then(|mut file| file.write_all(value.to_string().as_bytes()))
    };
    // A kernel that cannot skip them allows a few more.
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

fn enter_an_empty_root(policy: &SandboxPolicy) -> io::Result<()> {
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
    )?;
    let options = format!(
        "mode=0755,size={},nr_inodes={MOST_PRIVATE_FILES}",
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

/// All places, parents before what lies in them.
fn places(policy: &SandboxPolicy) -> Vec<(PathBuf, MountKind<'_>)> {
    let mut all: Vec<(PathBuf, MountKind<'_>)> = Vec::new();
    let mut add =
        |paths: &[PathBuf], place| all.extend(paths.iter().map(|path| (path.clone(), place)));
    add(&policy.read, MountKind::Read);
    add(&policy.write, MountKind::Write);
    add(&policy.hide, MountKind::Hidden);
    let devices: Vec<PathBuf> = policy
        .devices
        .iter()
        .filter(|path| !is_ones_own(path))
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

/// Whether something in `/dev` is there anyway, and not the host's.
fn is_ones_own(path: &Path) -> bool {
    [SHARED_MEMORY, TERMINALS]
        .iter()
        .chain(DEVICE_LINKS.iter().map(|(link, _)| link))
        .any(|own| path == Path::new(own))
}

fn settle(path: &Path, place: MountKind<'_>, holds_more: bool) -> io::Result<()> {
    let closed = MountAttributeFlags::READ_ONLY.and(MountAttributeFlags::NO_SUID);
    match place {
        MountKind::Read => {
            bind_from_host(path)?;
            set_attributes(
                path,
                closed,
                MountAttributeFlags::NONE,
                MountReach::AllBelow,
            )
        }
        MountKind::Write => {
            bind_from_host(path)?;
            set_attributes(
                path,
                closed.and(MountAttributeFlags::NO_DEVICES),
                MountAttributeFlags::NONE,
                MountReach::AllBelow,
            )?;
            set_attributes(
                path,
                MountAttributeFlags::NONE,
                MountAttributeFlags::READ_ONLY,
                MountReach::ThisMount,
            )
        }
        MountKind::Device => bind_device(path),
        MountKind::Hidden => hide(path, holds_more),
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

/// Binds a place of the host's to the same path, with everything that is mounted in it.
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

/// Binds a device that can be used and not changed: root without any capability is still its owner.
fn bind_device(path: &Path) -> io::Result<()> {
    bind_from_host(path)?;
    set_attributes(
        path,
        MountAttributeFlags::READ_ONLY.and(MountAttributeFlags::NO_SUID),
        MountAttributeFlags::NONE,
        MountReach::AllBelow,
    )
}

/// Covers what a place above has brought; what it has not is hidden already.
fn hide(path: &Path, holds_more: bool) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.is_dir() {
        mount_bind_recursive(format!("{VOID}/file"), path)?;
        return set_attributes(
            path,
            MountAttributeFlags::READ_ONLY,
            MountAttributeFlags::NONE,
            MountReach::ThisMount,
        );
    }
    if holds_more {
        return Ok(mount(
            "tmpfs",
            path,
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=0755,size=64k",
        )?);
    }
    mount_bind_recursive(format!("{VOID}/folder"), path)?;
    set_attributes(
        path,
        MountAttributeFlags::READ_ONLY,
        MountAttributeFlags::NONE,
        MountReach::ThisMount,
    )
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn devices() -> io::Result<()> {
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

fn leave_the_host() -> io::Result<()> {
    unmount(HOST, UnmountFlags::DETACH)?;
    fs::remove_dir(HOST)
}

/// Returns the folders on the way to what is closed, from the top down. What is mounted cannot be renamed: without that
/// another folder could take the place of one that holds something closed.
fn folders_above(policy: &SandboxPolicy) -> BTreeSet<PathBuf> {
    let is_inside = |folder: &&Path| {
        policy
            .write
            .iter()
            .any(|top| folder.starts_with(top) && folder != top)
    };
    let above = policy
        .freeze
        .iter()
        .filter(|path| path.exists())
        .flat_map(|path| path.ancestors().skip(1));
    above.filter(is_inside).map(Path::to_owned).collect()
}

/// Closes a place inside the workspace. Links in its path lead nowhere but into this tree.
fn freeze(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    mount_bind_recursive(path, path)?;
    set_attributes(
        path,
        MountAttributeFlags::READ_ONLY,
        MountAttributeFlags::NONE,
        MountReach::AllBelow,
    )
}

/// Opens a folder in something closed.
fn reopen(path: &Path) -> io::Result<()> {
    mount_bind_recursive(path, path)?;
    set_attributes(
        path,
        MountAttributeFlags::NONE,
        MountAttributeFlags::READ_ONLY,
        MountReach::ThisMount,
    )
}

/// Furnishes the home, and closes the root and what was hidden with something in it.
fn finish(policy: &SandboxPolicy, places: &[(PathBuf, MountKind<'_>)]) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(policy.tmpdir())?;
    File::create_new(policy.home.join(".gitconfig"))?.write_all(GITCONFIG.as_bytes())?;
    fs::remove_dir_all(VOID)?;
    for pair in places.windows(2) {
        if pair[0].1 == MountKind::Hidden && pair[1].0.starts_with(&pair[0].0) && pair[0].0.is_dir()
        {
            set_attributes(
                &pair[0].0,
                MountAttributeFlags::READ_ONLY,
                MountAttributeFlags::NONE,
                MountReach::ThisMount,
            )?;
        }
    }
    set_attributes(
        Path::new("/"),
        MountAttributeFlags::READ_ONLY,
        MountAttributeFlags::NONE,
        MountReach::ThisMount,
    )
}
