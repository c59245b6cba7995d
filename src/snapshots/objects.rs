//! Contents by their SHA-256, each stored once: `logs/objects/<hex>`.
//!
//! New objects are written to a folder of their own, made durable, and only then renamed to their place; so whatever has
//! its final name is whole. The folder is removed once the names are durable, too: one that is found later is left from
//! a crash, and the names beside it are made durable before anything relies on them.

#![expect(clippy::disallowed_methods, reason = "objects are not generated files")]

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, accessat, fsync, mkdirat, openat, renameat, syncfs, unlinkat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::state::store::{LOGS, Root};
use crate::state::writeback::start_writing;
use crate::text::hex;

const FOLDER: &str = "objects";
/// Prefix of the folders in which new objects are written.
const STAGE: &str = ".new-";
/// Up to this many objects are made durable one by one; more are cheaper with one sync of the file system.
const SYNC_EACH: usize = 16;

/// The SHA-256 of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct ObjectId([u8; 32]);

/// A text that is not the id of an object.
#[derive(Debug, thiserror::Error)]
#[error("expected 64 hexadecimal digits")]
pub(crate) struct InvalidObjectId;

impl ObjectId {
    pub(crate) fn of(content: &[u8]) -> ObjectId {
        ObjectId(Sha256::digest(content).into())
    }

    /// Reads a content to its end and returns its id and size.
    pub(crate) fn of_file(mut file: impl Read) -> std::io::Result<(ObjectId, u64)> {
        let (mut hasher, mut buffer, mut size) = (Sha256::new(), vec![0; 1 << 16], 0);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok((ObjectId(hasher.finalize().into()), size)),
                length => {
                    hasher.update(&buffer[..length]);
                    size += length as u64;
                }
            }
        }
    }

    pub(crate) fn parse(text: &str) -> Option<ObjectId> {
        let digits = text.as_bytes();
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(digit(2 * at)? * 16 + digit(2 * at + 1)?).ok()?;
        }
        Some(ObjectId(bytes))
    }

    /// Writes the 64 digits of its name.
    pub(super) fn write_hex(&self, digits: &mut [u8; 64]) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl From<ObjectId> for String {
    fn from(id: ObjectId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for ObjectId {
    type Error = InvalidObjectId;

    fn try_from(text: String) -> std::result::Result<ObjectId, InvalidObjectId> {
        ObjectId::parse(&text).ok_or(InvalidObjectId)
    }
}

/// The objects of a root.
#[derive(Debug)]
pub(crate) struct ObjectStore {
    folder: Arc<OwnedFd>,
    path: PathBuf,
    /// The folder above, if this one was made now: its name is durable with the first objects.
    new_in: Option<OwnedFd>,
}

impl ObjectStore {
    /// Opens the objects of a root for writing, and completes what a crash interrupted. The lock must be held.
    pub(crate) fn open(root: &Root) -> Result<ObjectStore> {
        let logs = root.directory(LOGS)?;
        let path = root.join(LOGS).join(FOLDER);
        let new_in = match mkdirat(&logs, FOLDER, Mode::from_raw_mode(0o755)) {
            Ok(()) => Some(
                logs.try_clone()
                    .map_err(|error| Error::io("open", &path, error))?,
            ),
            Err(Errno::EXIST) => None,
            Err(errno) => return Err(Error::io("create", &path, errno)),
        };
        let store = ObjectStore {
            folder: open_folder(&logs, FOLDER)
                .map_err(|errno| Error::io("open", &path, errno))?
                .into(),
            path,
            new_in,
        };
        store.complete()?;
        Ok(store)
    }

    /// Opens the objects of a root for reading; `None` if it has none.
    pub(crate) fn open_existing(root: &Root) -> Result<Option<ObjectStore>> {
        let path = root.join(LOGS).join(FOLDER);
        let logs = match open_folder(root.handle(), LOGS) {
            Ok(logs) => logs,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Error::io("open", &root.join(LOGS), errno)),
        };
        match open_folder(&logs, FOLDER) {
            Ok(folder) => Ok(Some(ObjectStore {
                folder: folder.into(),
                path,
                new_in: None,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io("open", &path, errno)),
        }
    }

    /// Makes names durable that a crash may have left without a sync, and removes the folder that shows it.
    fn complete(&self) -> Result<()> {
        let names = self.names()?;
        let stages: Vec<&String> = names
            .iter()
            .filter(|name| name.starts_with(STAGE))
            .collect();
        if stages.is_empty() {
            return Ok(());
        }
        syncfs(&self.folder).map_err(|errno| Error::io("sync", &self.path, errno))?;
        for stage in stages {
            let path = self.path.join(stage);
            // A record that was not complete is a file.
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.map_err(|error| Error::io("remove", &path, error))?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::io("read", &self.path, errno);
        let entries = Dir::read_from(&self.folder).map_err(failed)?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    pub(crate) fn contains(&self, id: ObjectId) -> bool {
        use rustix::fs::Access;
        let name = id.to_string();
        accessat(&self.folder, name, Access::EXISTS, AtFlags::empty()).is_ok()
    }

    /// Reads an object; its content is checked against its name.
    pub(crate) fn read(&self, id: ObjectId) -> Result<Vec<u8>> {
        let path = self.path.join(id.to_string());
        let failed = |error| Error::io("read", &path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, id.to_string(), flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let mut content = Vec::new();
        File::from(file).read_to_end(&mut content).map_err(failed)?;
        if ObjectId::of(&content) == id {
            Ok(content)
        } else {
            Err(failed(std::io::Error::other(
                "its content does not belong to its name: it is damaged",
            )))
        }
    }

    /// Begins to add objects.
    pub(crate) fn stage(&mut self) -> StagedObjects<'_> {
        StagedObjects {
            store: self,
            stage: None,
            staged: HashSet::new(),
        }
    }

    /// Removes all objects but these. The lock must be held.
    pub(crate) fn keep_only(&mut self, live: &HashSet<ObjectId>) -> Result<()> {
        for name in self.names()? {
            if ObjectId::parse(&name).is_none_or(|id| live.contains(&id)) {
                continue;
            }
            match unlinkat(&self.folder, name.as_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(Error::io("remove", &self.path.join(name), errno)),
            }
        }
        Ok(())
    }
}

/// Where contents go: a store, or nowhere if only ids are wanted.
pub(crate) trait ContentSink {
    fn add(&mut self, content: &[u8]) -> Result<ObjectId>;
}

impl ContentSink for StagedObjects<'_> {
    fn add(&mut self, content: &[u8]) -> Result<ObjectId> {
        StagedObjects::add(self, content)
    }
}

/// Computes ids and stores nothing.
pub(crate) struct IdsOnly;

impl ContentSink for IdsOnly {
    fn add(&mut self, content: &[u8]) -> Result<ObjectId> {
        Ok(ObjectId::of(content))
    }
}

/// Objects that are being added: none of them has its name until `finish`.
#[derive(Debug)]
pub(crate) struct StagedObjects<'a> {
    store: &'a mut ObjectStore,
    stage: Option<(String, OwnedFd)>,
    staged: HashSet<ObjectId>,
}

impl StagedObjects<'_> {
    /// Adds a content, unless it is stored.
    pub(crate) fn add(&mut self, content: &[u8]) -> Result<ObjectId> {
        let id = ObjectId::of(content);
        if self.staged.contains(&id) || self.store.contains(id) {
            return Ok(id);
        }
        let name = id.to_string();
        let path = self.store.path.join(&name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(self.stage()?, name, flags, Mode::from_raw_mode(0o444))
            .map_err(|errno| Error::io("create", &path, errno))?;
        let mut file = File::from(file);
        file.write_all(content)
            .map_err(|error| Error::io("write", &path, error))?;
        self.staged.insert(id);
        if self.staged.len() <= SYNC_EACH {
            start_writing(&file);
        }
        Ok(id)
    }

    fn stage(&mut self) -> Result<&OwnedFd> {
        if self.stage.is_none() {
            let name = format!("{STAGE}{}", uuid::Uuid::new_v4().simple());
            let failed = |errno| Error::io("create", &self.store.path.join(&name), errno);
            mkdirat(&self.store.folder, &name, Mode::from_raw_mode(0o755)).map_err(failed)?;
            let folder = open_folder(&self.store.folder, &name).map_err(failed)?;
            self.stage = Some((name, folder));
        }
        match &self.stage {
            Some((_, folder)) => Ok(folder),
            None => Err(Error::Bug("no folder for new objects".into())),
        }
    }

    /// Makes all added objects durable and gives them their names, durably.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.detach().map_or(Ok(()), UnplacedObjects::place)
    }

    /// The added objects, to be placed by another thread; until then the store does not have them.
    pub(crate) fn detach(&mut self) -> Option<UnplacedObjects> {
        let stage = self.stage.take()?;
        Some(UnplacedObjects {
            folder: Arc::clone(&self.store.folder),
            path: self.store.path.clone(),
            new_in: self.store.new_in.take(),
            stage,
            ids: std::mem::take(&mut self.staged),
        })
    }
}

/// Objects that are written and do not have their names.
#[derive(Debug)]
pub(crate) struct UnplacedObjects {
    folder: Arc<OwnedFd>,
    path: PathBuf,
    new_in: Option<OwnedFd>,
    stage: (String, OwnedFd),
    ids: HashSet<ObjectId>,
}

impl UnplacedObjects {
    /// Makes the objects durable and gives them their names, durably.
    pub(crate) fn place(self) -> Result<()> {
        let (name, stage) = &self.stage;
        self.sync_contents(stage)?;
        for id in &self.ids {
            let name = id.to_string();
            renameat(stage, name.as_str(), &self.folder, name.as_str())
                .map_err(|errno| self.failed(id, errno))?;
        }
        let sync =
            |folder: &OwnedFd| fsync(folder).map_err(|errno| Error::io("sync", &self.path, errno));
        sync(&self.folder)?;
        self.new_in.as_ref().map_or(Ok(()), sync)?;
        match unlinkat(&self.folder, name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(()),
            Err(errno) => Err(Error::io("remove", &self.path.join(name), errno)),
        }
    }

    fn sync_contents(&self, stage: &OwnedFd) -> Result<()> {
        if SYNC_EACH < self.ids.len() {
            return syncfs(stage).map_err(|errno| Error::io("sync", &self.path, errno));
        }
        let mut ids = self.ids.iter();
        ids.try_for_each(|id| {
            sync_file(stage, &id.to_string()).map_err(|errno| self.failed(id, errno))
        })
    }

    fn failed(&self, id: &ObjectId, errno: Errno) -> Error {
        Error::io("write", &self.path.join(id.to_string()), errno)
    }
}

impl Drop for StagedObjects<'_> {
    /// Removes what was written and never placed.
    fn drop(&mut self) {
        if let Some((name, _)) = self.stage.take() {
            let _ = std::fs::remove_dir_all(self.store.path.join(name));
        }
    }
}

fn open_folder(directory: impl AsFd, name: &str) -> std::result::Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

fn sync_file(directory: &OwnedFd, name: &str) -> std::result::Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fsync(openat(directory, name, flags, Mode::empty())?)
}

/// Replaces a file durably; its folder must exist, and the lock must be held.
pub(crate) fn replace_file(logs: &Path, path: &Path, content: &[u8]) -> Result<()> {
    Replacement::write(logs, path, content)?.place()
}

/// The new content of a file, not in its place yet and not durable. Until then it lies among the objects of `logs`, where
/// the next start removes what a crash left.
#[derive(Debug)]
pub(crate) struct Replacement {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Replacement {
    pub(crate) fn write(logs: &Path, path: &Path, content: &[u8]) -> Result<Replacement> {
        let stage = logs.join(FOLDER);
        let temporary = stage.join(format!("{STAGE}{}", uuid::Uuid::new_v4().simple()));
        let failed = |error| Error::io("write", path, error);
        std::fs::create_dir_all(&stage).map_err(failed)?;
        let mut new = Replacement {
            file: File::create_new(&temporary).map_err(failed)?,
            temporary,
            path: path.to_owned(),
        };
        new.file.write_all(content).map_err(failed)?;
        start_writing(&new.file);
        Ok(new)
    }

    /// Puts it in its place, durably.
    pub(crate) fn place(self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(&self.path);
        self.file
            .sync_all()
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .and_then(|()| sync_folder(folder))
            .map_err(|error| Error::io("write", &self.path, error))
    }
}

impl Drop for Replacement {
    /// Removes what was not put in its place.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.temporary);
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}
