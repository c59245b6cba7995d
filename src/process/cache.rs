//! Where compilers keep what they made, from one round of a run to the next.
//!
//! It lies in the user's cache folder, for it can grow beyond what a private temporary directory may hold. Its path is
//! the same in every run of one root, so that output which names it is too; a run finds it empty at its beginning, and
//! leaves none of it when it is over. What checks, environments and hidden checks keep lies apart: whoever can write a
//! compiler's cache decides what the next build runs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::process::scratch::{claim, empty, name_of};

/// Says that the cache folder itself is of our making.
const MADE: &str = ".made";
/// Holds the path of the root, and is locked while a run works there.
const RECORD: &str = "root";

/// Whose cache it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheOwner {
    Checks,
    HiddenChecks,
    Environments,
}

/// The compiler caches of a run that is under way.
#[derive(Debug)]
pub struct Caches {
    base: PathBuf,
    /// Tells other runs that these are in use.
    _lock: File,
}

impl Caches {
    /// Returns the folder that all of them lie in.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns one of them.
    pub fn folder(&self, of: CacheOwner) -> PathBuf {
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
pub struct CacheDir {
    /// The user's cache folder.
    folder: PathBuf,
    root: PathBuf,
}

impl CacheDir {
    /// Returns the place for a root in the user's cache folder; nothing is made.
    pub fn of(folder: &Path, root: &Path) -> CacheDir {
        CacheDir {
            folder: folder.to_owned(),
            root: root.canonicalize().unwrap_or_else(|_| root.to_owned()),
        }
    }

    fn ours(&self) -> PathBuf {
        self.folder.join("orchestrator")
    }

    /// Returns the directory.
    pub fn path(&self) -> PathBuf {
        self.ours().join(name_of(&self.root))
    }

    /// Makes the directories, where they are not there, and removes those of roots that are gone.
    pub fn create(&self) -> io::Result<Caches> {
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

    /// Removes what belongs to roots that are not there any more, unless a run is under way that sees more than we do:
    /// one in a container, or before its disk was unmounted. What cannot be removed is in nobody's way.
    fn sweep(&self) {
        for place in fs::read_dir(self.ours())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
        {
            if place == self.path() || !is_left_behind(&place) {
                continue;
            }
            let _ = claim(&place)
                .and_then(|()| empty(&place))
                .and_then(|()| fs::remove_dir(&place));
        }
    }

    /// Removes the directory, and with the last one what was made for it.
    pub fn remove(&self) -> io::Result<()> {
        if fs::symlink_metadata(self.path()).is_err() {
            return Ok(());
        }
        claim(&self.path())?;
        empty(&self.path())?;
        fs::remove_dir(self.path())?;
        self.tidy();
        Ok(())
    }

    /// Where another root's caches are there, or something else, what is around them stays.
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

/// Writes down which root a cache belongs to; returns what holds the lock.
fn record(place: &Path, root: &Path) -> io::Result<File> {
    let path = place.join(RECORD);
    let known = fs::read(&path).is_ok_and(|known| known == root.as_os_str().as_bytes());
    if !known {
        let mut passing = tempfile::NamedTempFile::new_in(place)?;
        io::Write::write_all(&mut passing, root.as_os_str().as_bytes())?;
        passing.persist(&path).map_err(|error| error.error)?;
    }
    let file = File::open(&path)?;
    // Whoever holds it already is a run of the same root, and there is one at a time.
    let _ = flock(&file, FlockOperation::NonBlockingLockShared);
    Ok(file)
}

/// Whether a cache belongs to a root that is gone, and nobody uses it.
fn is_left_behind(place: &Path) -> bool {
    let Ok(root) = fs::read(place.join(RECORD)) else {
        return false;
    };
    let root = PathBuf::from(OsString::from_vec(root));
    let is_gone = fs::metadata(&root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let is_free = || {
        File::open(place.join(RECORD))
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
    fn nothing_is_left_of_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".cache");
        let (one, other) = (
            CacheDir::of(&folder, Path::new("/a")),
            CacheDir::of(&folder, Path::new("/b")),
        );
        drop(one.create().unwrap());
        // What belongs to a root that is gone stays while a run is under way there.
        let under_way = one.create().unwrap();
        drop(other.create().unwrap());
        assert!(one.path().is_dir());
        drop(under_way);
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
    fn what_belongs_to_a_root_that_is_gone_goes() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".cache");
        let (here, gone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of_here = CacheDir::of(&folder, here.path());
        let of_gone = CacheDir::of(&folder, gone.path());
        for cache in [&of_here, &of_gone] {
            let caches = cache.create().unwrap();
            fs::write(caches.folder(CacheOwner::Checks).join("x"), "").unwrap();
        }
        // One that says nothing of its root may belong to an older version of us.
        fs::create_dir(folder.join("orchestrator/0123")).unwrap();
        fs::remove_dir_all(gone.path()).unwrap();
        drop(CacheDir::of(&folder, home.path()).create().unwrap());
        assert!(of_here.path().join("checks/x").exists() && !of_gone.path().exists());
        assert!(folder.join("orchestrator/0123").exists());
    }

    #[test]
    fn what_was_there_before_stays() {
        let home = tempfile::tempdir().unwrap();
        let cache = CacheDir::of(home.path(), Path::new("/a"));
        drop(cache.create().unwrap());
        cache.remove().unwrap();
        assert!(home.path().is_dir() && fs::read_dir(home.path()).unwrap().count() == 0);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
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
