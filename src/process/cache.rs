//! Compiler caches, kept between the rounds of a run.
//!
//! They lie in the user's cache directory, since they can outgrow a private temporary directory. Their path is the same
//! in every run of one root, so that output which names it is reproducible. They are empty at the start of a run and
//! removed at its end. Checks, environments and hidden checks have separate ones: a process that can write a compiler's
//! cache decides what the next build runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::process::scratch::{claim, empty, name_of};

/// Marks a user's cache directory that we have created.
const MADE: &str = ".made";
/// Contains the path of the root, and is locked during a run.
const RECORD: &str = "root";

/// The user of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheOwner {
    Checks,
    HiddenChecks,
    Environments,
}

/// The compiler caches of a run in progress.
#[derive(Debug)]
pub(crate) struct Caches {
    base: PathBuf,
    /// Keeps other runs from removing them.
    _lock: File,
}

impl Caches {
    /// The directory that contains all of them.
    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    pub(crate) fn folder(&self, of: CacheOwner) -> PathBuf {
        self.base.join(of.name())
    }
}

impl CacheOwner {
    const ALL: [CacheOwner; 3] = [
        CacheOwner::Checks,
        CacheOwner::HiddenChecks,
        CacheOwner::Environments,
    ];

    fn name(self) -> &'static str {
        match self {
            CacheOwner::Checks => "checks",
            CacheOwner::HiddenChecks => "hidden",
            CacheOwner::Environments => "agent",
        }
    }
}

/// The compiler caches of a root's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheDir {
    /// The user's cache directory.
    folder: PathBuf,
    root: PathBuf,
}

impl CacheDir {
    /// The caches of a root in the user's cache directory; creates nothing.
    pub(crate) fn of(folder: &Path, root: &Path) -> CacheDir {
        CacheDir {
            folder: folder.to_owned(),
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
        }
    }

    fn ours(&self) -> PathBuf {
        self.folder.join("orchestrator")
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.ours().join(name_of(&self.root))
    }

    /// Creates the directories if needed, and removes those of roots that no longer exist.
    pub(crate) fn create(&self) -> io::Result<Caches> {
        let is_new = !self.folder.exists();
        if is_new {
            fs::create_dir(&self.folder)?;
        }
        claim(&self.ours())?;
        if is_new {
            File::create(self.ours().join(MADE))?;
        }
        claim(&self.path())?;
        let lock = record(&self.path(), &self.root)?;
        for of in CacheOwner::ALL {
            claim(&self.path().join(of.name()))?;
        }
        self.sweep();
        Ok(Caches {
            base: self.path().canonicalize()?,
            _lock: lock,
        })
    }

    /// Removes the caches of roots that no longer exist, unless a run holds the lock: it may see a root that we do not, in
    /// a container or on a disk that was unmounted. Failures are harmless.
    fn sweep(&self) {
        for dir in fs::read_dir(self.ours())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            if dir == self.path() || !is_left_behind(&dir) {
                continue;
            }
            let _ = claim(&dir)
                .and_then(|()| empty(&dir))
                .and_then(|()| fs::remove_dir(&dir));
        }
    }

    /// Removes the directory, and after the last one the parents that were created for it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        if fs::symlink_metadata(self.path()).is_err() {
            return Ok(());
        }
        claim(&self.path())?;
        empty(&self.path())?;
        fs::remove_dir(self.path())?;
        self.tidy();
        Ok(())
    }

    /// Removes the parents, unless they contain something else.
    fn tidy(&self) {
        let names = fs::read_dir(self.ours())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let is_last = names.into_iter().all(|name| name == MADE);
        let is_made = is_last && fs::remove_file(self.ours().join(MADE)).is_ok();
        let _ = fs::remove_dir(self.ours());
        if is_made {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Records the root of a cache; returns the locked file.
fn record(dir: &Path, root: &Path) -> io::Result<File> {
    let path = dir.join(RECORD);
    let known = fs::read(&path).is_ok_and(|known| known == root.as_os_str().as_bytes());
    if !known {
        let mut staged = tempfile::NamedTempFile::new_in(dir)?;
        io::Write::write_all(&mut staged, root.as_os_str().as_bytes())?;
        staged.persist(&path).map_err(|error| error.error)?;
    }
    let file = File::open(&path)?;
    // Only a run of the same root can hold it, and there is one at a time.
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    Ok(file)
}

/// Whether a cache is unused and its root no longer exists.
fn is_left_behind(dir: &Path) -> bool {
    let Ok(root) = fs::read(dir.join(RECORD)) else {
        return false;
    };
    let root = PathBuf::from(OsString::from_vec(root));
    let is_gone = fs::metadata(&root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let is_free = || {
        File::open(dir.join(RECORD))
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    root.is_absolute() && is_gone && is_free()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::{CacheDir, CacheOwner};

    #[test]
    fn the_last_cache_takes_its_parents_with_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".cache");
        let (one, other) = (
            CacheDir::of(&folder, Path::new("/a")),
            CacheDir::of(&folder, Path::new("/b")),
        );
        drop(one.create().unwrap());
        // The cache of a root that does not exist stays while a run holds it.
        let in_use = one.create().unwrap();
        drop(other.create().unwrap());
        assert!(one.path().is_dir());
        drop(in_use);
        assert_ne!(one.path(), other.path());
        fs::create_dir_all(one.path().join("go-build/00")).unwrap();
        fs::write(one.path().join("go-build/00/x"), "").unwrap();
        fs::set_permissions(one.path().join("go-build"), Permissions::from_mode(0o500)).unwrap();
        one.remove().unwrap();
        assert!(!one.path().exists() && other.path().is_dir());
        one.remove().unwrap();
        other.remove().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn caches_of_missing_roots_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".cache");
        let (here, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of_here = CacheDir::of(&folder, here.path());
        let of_gone = CacheDir::of(&folder, gone.path());
        for cache in [&of_here, &of_gone] {
            let caches = cache.create().unwrap();
            fs::write(caches.folder(CacheOwner::Checks).join("x"), "").unwrap();
        }
        // One without a record may belong to an older version.
        fs::create_dir(folder.join("orchestrator/0123")).unwrap();
        fs::remove_dir_all(gone.path()).unwrap();
        drop(CacheDir::of(&folder, home.path()).create().unwrap());
        assert!(of_here.path().join("checks/x").exists() && !of_gone.path().exists());
        assert!(folder.join("orchestrator/0123").exists());
    }

    #[test]
    fn an_existing_cache_directory_stays() {
        let home = tempfile::tempdir().unwrap();
        let cache = CacheDir::of(home.path(), Path::new("/a"));
        drop(cache.create().unwrap());
        cache.remove().unwrap();
        assert!(home.path().is_dir() && fs::read_dir(home.path()).unwrap().count() == 0);
    }

    #[test]
    fn a_symlink_in_its_place_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let cache = CacheDir::of(home.path(), Path::new("/a"));
        let precious = home.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        fs::create_dir(home.path().join("orchestrator")).unwrap();
        std::os::unix::fs::symlink(&precious, cache.path()).unwrap();
        assert!(cache.create().is_err() && cache.remove().is_err());
        assert!(precious.join("file").exists());
    }
}
