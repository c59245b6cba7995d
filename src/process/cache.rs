//! Where compilers keep what they made, from one round of a run to the next.
//!
//! It lies in the user's cache folder, for it can grow beyond what a private temporary directory may hold. Its path is
//! the same in every run of one root, so that output which names it is too; a run finds it empty at its beginning, and
//! leaves none of it when it is over.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::process::private::{claim, empty, name_of};

/// Says that the cache folder itself is of our making.
const MADE: &str = ".made";

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
        CacheDir { folder: folder.to_owned(), root: root.canonicalize().unwrap_or_else(|_| root.to_owned()) }
    }

    fn ours(&self) -> PathBuf {
        self.folder.join("orchestrator")
    }

    /// Returns the directory.
    pub fn path(&self) -> PathBuf {
        self.ours().join(name_of(&self.root))
    }

    /// Makes the directory, where it is not there.
    pub fn create(&self) -> io::Result<()> {
        let is_new = !self.folder.exists();
        if is_new {
            fs::create_dir(&self.folder)?;
        }
        claim(&self.ours())?;
        if is_new {
            File::create(self.ours().join(MADE))?;
        }
        claim(&self.path())
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
        let names = fs::read_dir(self.ours()).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let is_last = names.into_iter().all(|name| name == MADE);
        let is_made = is_last && fs::remove_file(self.ours().join(MADE)).is_ok();
        let _ = fs::remove_dir(self.ours());
        if is_made {
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::CacheDir;

    #[test]
    fn nothing_is_left_of_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join(".cache");
        let (one, other) = (CacheDir::of(&folder, Path::new("/a")), CacheDir::of(&folder, Path::new("/b")));
        one.create().unwrap();
        other.create().unwrap();
        one.create().unwrap();
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
    fn what_was_there_before_stays() {
        let home = tempfile::tempdir().unwrap();
        let cache = CacheDir::of(home.path(), Path::new("/a"));
        cache.create().unwrap();
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
