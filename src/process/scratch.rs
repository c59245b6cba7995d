//! The private home and temporary directory of a check, and private directories for other purposes.
//!
//! Their paths are the same in every run of one root, so that output which names them is reproducible. Their content is
//! not kept: a check cannot leave anything behind for the next. Their owner is checked before they are used, since every
//! user can write to the system's temporary directory.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::process::geteuid;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::text::hex;

/// Git refuses to commit without an identity, and the user's own stays private.
pub(super) const GITCONFIG: &str = "[user]\n\tname = orchestrator\n\temail = orchestrator@localhost\n[init]\n\tdefaultBranch = main\n";

/// How often a directory is emptied while another process keeps filling it.
const EMPTY_ATTEMPTS: usize = 8;

/// The private home and temporary directory of one root. Removed on drop.
#[derive(Debug)]
pub(crate) struct ScratchDirs {
    base: PathBuf,
}

/// A directory of one root for a program outside the sandbox; checks cannot reach it. Removed on drop.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// Creates the directory of `root` for a purpose below `temporary`, empty.
    pub(crate) fn create(temporary: &Path, root: &Path, purpose: &str) -> Result<ScratchDir> {
        let path = path_for(temporary, root, purpose)?;
        claim(&path)
            .and_then(|()| empty(&path))
            .map_err(|source| Error::io("use", &path, source))?;
        Ok(ScratchDir { path })
    }

    /// The directory of `root` for a purpose that several users in this process share; it is removed with the last one.
    pub(crate) fn create_shared(temporary: &Path, root: &Path, purpose: &str) -> Result<UsedDir> {
        let mut used = used_dirs();
        let path = path_for(temporary, root, purpose)?;
        let known = used.iter().filter_map(Weak::upgrade);
        let known = known.into_iter().find(|known| known.path == path);
        let directory = known.map_or_else(
            || ScratchDir::create(temporary, root, purpose).map(Arc::new),
            Ok,
        )?;
        Ok(UsedDir::register(directory, &mut used))
    }

    /// The first directory of `root` for a purpose that nothing in this process uses.
    pub(crate) fn create_free(temporary: &Path, root: &Path, purpose: &str) -> Result<UsedDir> {
        let mut used = used_dirs();
        let names = (1..).map(|number| format!("{purpose}-{number}"));
        for name in std::iter::once(purpose.to_owned()).chain(names) {
            let path = path_for(temporary, root, &name)?;
            let mut known = used.iter().filter_map(Weak::upgrade);
            if !known.any(|known| known.path == path) {
                let directory = Arc::new(ScratchDir::create(temporary, root, &name)?);
                return Ok(UsedDir::register(directory, &mut used));
            }
        }
        Err(Error::Bug("no free name for a directory".into()))
    }

    /// The same for one agent of a run, for input and output of its scripts.
    pub(crate) fn create_exchange(
        temporary: &Path,
        root: &Path,
        agent: &str,
    ) -> Result<ScratchDir> {
        ScratchDir::create(
            temporary,
            root,
            &format!("{}-exchange", name_of_agent(agent)),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes everything in it, and restores the directory itself if a program that ran without a sandbox removed or
    /// replaced it. Programs may be writing there meanwhile.
    pub(crate) fn empty(&self) -> Result<()> {
        let mut emptied = self.restore();
        for _ in 1..EMPTY_ATTEMPTS {
            emptied = emptied.or_else(|_| self.restore());
        }
        emptied.map_err(|source| Error::io("empty", &self.path, source))
    }

    fn restore(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), claim)?;
        if fs::symlink_metadata(&self.path).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(&self.path)?;
        }
        claim(&self.path)?;
        empty(&self.path)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = empty(&self.path).and_then(|()| fs::remove_dir(&self.path));
    }
}

/// The directories that are in use in this process and may be wanted by several users.
static USED_DIRS: Mutex<Vec<Weak<ScratchDir>>> = Mutex::new(Vec::new());

fn used_dirs() -> MutexGuard<'static, Vec<Weak<ScratchDir>>> {
    let mut used = USED_DIRS.lock().unwrap_or_else(PoisonError::into_inner);
    used.retain(|known| known.strong_count() > 0);
    used
}

/// A directory that other users in this process know of. Removed with the last user.
#[derive(Debug)]
pub(crate) struct UsedDir {
    directory: Option<Arc<ScratchDir>>,
    path: PathBuf,
}

impl UsedDir {
    fn register(directory: Arc<ScratchDir>, used: &mut Vec<Weak<ScratchDir>>) -> UsedDir {
        used.push(Arc::downgrade(&directory));
        UsedDir {
            path: directory.path.clone(),
            directory: Some(directory),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UsedDir {
    fn drop(&mut self) {
        // The lock keeps another user from finding a directory that is being removed.
        let _used = used_dirs();
        drop(self.directory.take());
    }
}

/// The path of `root` for a purpose.
fn path_for(temporary: &Path, root: &Path, purpose: &str) -> Result<PathBuf> {
    let mut path = path_of(temporary, root)?.into_os_string();
    path.push(format!("-{purpose}"));
    Ok(path.into())
}

/// Removes every private directory of `root` that a killed run left. The root must be locked. Failures are harmless.
pub(crate) fn sweep(temporary: &Path, root: &Path) {
    let (ours, name) = (directory_of_user(temporary), name_of(root));
    // Other users can create it in our place.
    let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
    if !fs::symlink_metadata(&ours).is_ok_and(is_ours) {
        return;
    }
    let entries = fs::read_dir(&ours).into_iter().flatten().flatten();
    for path in entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(name.as_bytes()))
        .map(|entry| entry.path())
    {
        let _ = claim(&path)
            .and_then(|()| empty(&path))
            .and_then(|()| fs::remove_dir(&path));
    }
}

/// The directory below `temporary` that has the private directories of this user.
fn directory_of_user(temporary: &Path) -> PathBuf {
    temporary.join(format!("orchestrator-{}", geteuid().as_raw()))
}

/// The path of `root` below `temporary`, in a directory of this user.
fn path_of(temporary: &Path, root: &Path) -> Result<PathBuf> {
    let ours = directory_of_user(temporary);
    claim(&ours).map_err(|source| Error::io("use", &ours, source))?;
    Ok(ours.join(name_of(root)))
}

impl ScratchDirs {
    /// Creates the directories of `root` below `temporary`, empty except for a `.gitconfig`.
    pub(crate) fn create(temporary: &Path, root: &Path) -> Result<ScratchDirs> {
        let dirs = ScratchDirs {
            base: path_of(temporary, root)?,
        };
        dirs.renew()?;
        Ok(dirs)
    }

    /// Creates the directories of one agent of a run: its scripts and environments share them until it ends.
    pub(crate) fn create_for_agent(
        temporary: &Path,
        root: &Path,
        agent: &str,
    ) -> Result<ScratchDirs> {
        let mut base = path_of(temporary, root)?.into_os_string();
        base.push(format!("-{}", name_of_agent(agent)));
        let dirs = ScratchDirs { base: base.into() };
        dirs.renew()?;
        Ok(dirs)
    }

    /// Creates directories that no other process uses, for `serve`: several servers may run in one project.
    pub(crate) fn create_unique(temporary: &Path) -> Result<ScratchDirs> {
        let made = tempfile::Builder::new()
            .prefix("orchestrator-serve-")
            .tempdir_in(temporary);
        let made = made.map_err(|error| Error::io("make a directory in", temporary, error))?;
        let dirs = ScratchDirs { base: made.keep() };
        dirs.renew()?;
        Ok(dirs)
    }

    /// The directory that contains both.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.base.join("tmp")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.base.join("home")
    }

    /// A directory for what children only read; not created here.
    pub(crate) fn kept(&self) -> PathBuf {
        self.base.join("kept")
    }

    /// Replaces both directories by empty ones.
    #[expect(
        clippy::disallowed_methods,
        reason = "a new file in a new directory of ours"
    )]
    pub(crate) fn renew(&self) -> Result<()> {
        // A check may have removed the parent or changed its mode.
        claim(&self.base).map_err(|source| Error::io("use", &self.base, source))?;
        empty(&self.base).map_err(|source| Error::io("empty", &self.base, source))?;
        for path in [self.tmp(), self.home()] {
            claim(&path).map_err(|source| Error::io("create", &path, source))?;
        }
        let gitconfig = self.home().join(".gitconfig");
        fs::write(&gitconfig, GITCONFIG).map_err(|source| Error::io("write", &gitconfig, source))
    }

    fn clear(&self) -> io::Result<()> {
        match empty(&self.base).and_then(|()| fs::remove_dir(&self.base)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

impl Drop for ScratchDirs {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// The directory name of a root: a hash of its path.
pub(super) fn name_of(root: &Path) -> String {
    short_hash(root.as_os_str().as_bytes())
}

/// The part of a directory name that identifies an agent: a hash, since an id may be long and contain anything.
fn name_of_agent(agent: &str) -> String {
    short_hash(agent.as_bytes())
}

fn short_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

/// Creates a directory if needed, and checks that it belongs to this user; no other user can enter it then.
pub(super) fn claim(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            "it exists and is not a directory",
        ));
    }
    if found.uid() != geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        ));
    }
    // A umask may have removed our own rights.
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Removes everything in a directory of ours, whatever its depth and modes.
///
/// Nested directories are moved to the top first, so that no path becomes too long and no descriptor stays open.
pub(super) fn empty(base: &Path) -> io::Result<()> {
    let mut folders = remove_files(base)?;
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for inner in remove_files(&folder)? {
            folders.push(move_to(base, &inner, &mut count)?);
        }
        fs::remove_dir(&folder)?;
    }
    Ok(())
}

/// Removes the files of a directory and returns its subdirectories, with our rights restored.
fn remove_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()? {
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        fs::set_permissions(entry.path(), Permissions::from_mode(0o700))?;
        folders.push(entry.path());
    }
    Ok(folders)
}

/// Moves a directory to `base`, named by the first free number.
fn move_to(base: &Path, folder: &Path, count: &mut u64) -> io::Result<PathBuf> {
    loop {
        *count += 1;
        let target = base.join(count.to_string());
        if fs::symlink_metadata(&target).is_err() {
            return fs::rename(folder, &target).map(|()| target);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};

    use super::{ScratchDir, ScratchDirs, sweep};

    #[test]
    fn the_path_depends_on_the_root_and_the_content_is_new() {
        let temporary = tempfile::tempdir().unwrap();
        let create = |root: &str| ScratchDirs::create(temporary.path(), Path::new(root)).unwrap();
        let first = create("/a");
        let (tmp, home) = (first.tmp(), first.home());
        fs::write(tmp.join("left"), "").unwrap();
        first.renew().unwrap();
        assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
        assert!(
            fs::read_to_string(home.join(".gitconfig"))
                .unwrap()
                .contains("[user]")
        );
        assert_eq!(
            fs::metadata(&tmp).unwrap().permissions().mode() & 0o777,
            0o700
        );
        drop(first);
        assert!(!tmp.exists() && !home.exists());
        assert_eq!(create("/a").tmp(), tmp);
        assert!(!tmp.exists());
        assert_ne!(create("/b").tmp(), tmp);
    }

    #[test]
    fn another_purpose_has_a_directory_of_its_own() {
        let temporary = tempfile::tempdir().unwrap();
        let create =
            |root: &str| ScratchDir::create(temporary.path(), Path::new(root), "x").unwrap();
        let (first, other) = (create("/a"), create("/b"));
        fs::write(first.path().join("left"), "").unwrap();
        let private = ScratchDirs::create(temporary.path(), Path::new("/a")).unwrap();
        assert!(!private.tmp().starts_with(first.path()) && first.path().join("left").exists());
        assert_eq!(
            fs::metadata(first.path()).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let again = create("/a");
        assert_eq!(
            (again.path(), fs::read_dir(again.path()).unwrap().count()),
            (first.path(), 0)
        );
        assert_ne!(other.path(), first.path());
        let path = other.path().to_owned();
        drop(other);
        assert!(!path.exists());
    }

    #[test]
    fn an_agent_has_directories_of_its_own() {
        let temporary = tempfile::tempdir().unwrap();
        let create = |agent: &str| {
            let (temporary, root) = (temporary.path(), Path::new("/a"));
            let dirs = ScratchDirs::create_for_agent(temporary, root, agent).unwrap();
            (
                dirs,
                ScratchDir::create_exchange(temporary, root, agent).unwrap(),
            )
        };
        let (main, exchange) = create("main");
        let (tmp, path) = (main.tmp(), exchange.path().to_owned());
        fs::write(tmp.join("kept"), "").unwrap();
        fs::write(path.join("kept"), "").unwrap();
        let long = "main_../\u{0}".to_owned() + &"_worker1".repeat(100);
        let (other, other_exchange) = create(&long);
        let of_root = ScratchDirs::create(temporary.path(), Path::new("/a")).unwrap();
        assert!(other.tmp().is_dir() && other.home().join(".gitconfig").is_file());
        let all = [
            main.base(),
            &path,
            other.base(),
            other_exchange.path(),
            of_root.base(),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(
                all.iter()
                    .skip(index + 1)
                    .all(|two| !one.starts_with(two) && !two.starts_with(one))
            );
        }
        drop((other, other_exchange, of_root));
        assert!(tmp.join("kept").exists() && path.join("kept").exists());
        drop((main, exchange));
        assert!(!tmp.exists() && !path.exists());
        let (again, exchange) = create("main");
        assert_eq!((again.tmp(), exchange.path()), (tmp, path.as_path()));
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let keep = |root: &str| {
            let (temporary, root) = (temporary.path(), Path::new(root));
            let exchange = ScratchDir::create_exchange(temporary, root, "main").unwrap();
            let dirs = ScratchDirs::create_for_agent(temporary, root, "main").unwrap();
            fs::write(exchange.path().join("input"), "").unwrap();
            let paths = [exchange.path().to_owned(), dirs.base().to_owned()];
            // A run that is killed removes nothing.
            std::mem::forget((exchange, dirs));
            paths
        };
        let (left, others) = (keep("/a"), keep("/b"));
        sweep(temporary.path(), Path::new("/a"));
        assert!(left.iter().all(|path| !path.exists()));
        assert!(others.iter().all(|path| path.exists()));
        sweep(&temporary.path().join("missing"), Path::new("/a"));
    }

    #[test]
    fn an_exchange_directory_is_emptied_whatever_was_left_there() {
        let temporary = tempfile::tempdir().unwrap();
        let outside = temporary.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        let dir = ScratchDir::create_exchange(temporary.path(), Path::new("/a"), "main").unwrap();
        let path = dir.path().to_owned();
        let parent = path.parent().unwrap().to_owned();
        let locked =
            |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
        let leave: [&dyn Fn(); 7] = [
            &|| fs::write(path.join("output"), "x").unwrap(),
            &|| dig(&path, 1000),
            &|| {
                fs::create_dir_all(path.join("a/b")).unwrap();
                symlink(&outside, path.join("a/b/link")).unwrap();
                locked(&path.join("a/b"));
                locked(&path.join("a"));
                locked(&path);
            },
            &|| fs::remove_dir(&path).unwrap(),
            &|| {
                fs::remove_dir(&path).unwrap();
                symlink(&outside, &path).unwrap();
            },
            &|| {
                fs::remove_dir(&path).unwrap();
                fs::write(&path, "a file").unwrap();
            },
            &|| fs::remove_dir_all(&parent).unwrap(),
        ];
        for (index, leave) in leave.iter().enumerate() {
            leave();
            dir.empty().unwrap();
            let found = fs::symlink_metadata(&path).unwrap();
            assert_eq!(
                (found.is_dir(), found.permissions().mode() & 0o777),
                (true, 0o700),
                "{index}"
            );
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "{index}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn users_in_one_process_share_a_directory_or_have_their_own() {
        let temporary = tempfile::tempdir().unwrap();
        let root = Path::new("/shared");
        let shared = || ScratchDir::create_shared(temporary.path(), root, "s").unwrap();
        let (first, second) = (shared(), shared());
        let path = first.path().to_owned();
        assert_eq!(path, second.path());
        drop(first);
        assert!(path.is_dir());
        drop(second);
        assert!(!path.exists());
        let free = || ScratchDir::create_free(temporary.path(), root, "f").unwrap();
        let (first, second) = (free(), free());
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
        assert_eq!(free().path(), path);
    }

    #[test]
    fn a_symlink_in_its_place_is_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let ours = temporary.path().join(format!(
            "orchestrator-{}",
            rustix::process::geteuid().as_raw()
        ));
        let elsewhere = temporary.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, &ours).unwrap();
        let error = ScratchDirs::create(temporary.path(), Path::new("/a")).unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn locked_linked_and_deep_content_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let private = ScratchDirs::create(temporary.path(), Path::new("/a")).unwrap();
        let outside = temporary.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "").unwrap();
        fs::create_dir_all(private.tmp().join("locked/1/tmp")).unwrap();
        fs::write(private.tmp().join("locked/1/file"), "").unwrap();
        symlink(&outside, private.tmp().join("link")).unwrap();
        for folder in ["locked/1/tmp", "locked/1", "locked", ""] {
            fs::set_permissions(private.tmp().join(folder), Permissions::from_mode(0o000)).unwrap();
        }
        dig(&private.home(), 1000);
        private.renew().unwrap();
        assert_eq!(fs::read_dir(private.tmp()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn the_parent_is_restored_too() {
        let temporary = tempfile::tempdir().unwrap();
        let private = ScratchDirs::create(temporary.path(), Path::new("/a")).unwrap();
        fs::set_permissions(&private.base, Permissions::from_mode(0o000)).unwrap();
        private.renew().unwrap();
        assert_eq!(
            fs::metadata(&private.base).unwrap().permissions().mode() & 0o777,
            0o700
        );
        fs::remove_dir_all(&private.base).unwrap();
        private.renew().unwrap();
        assert!(private.tmp().is_dir() && private.home().is_dir());
    }

    /// Creates a tree that is deeper than a path may be long.
    fn dig(top: &Path, depth: usize) {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut folder = open(top, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&folder, "deep", Mode::RWXU).unwrap();
            folder = openat(&folder, "deep", flags, Mode::empty()).unwrap();
        }
    }
}
