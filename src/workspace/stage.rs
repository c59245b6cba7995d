//! Files are written under a temporary name and renamed into their place, so none is ever half there, a link is replaced
//! and not written through, and other hard links keep their content.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;

use rustix::fs::{Mode, fchmod, fchown, fsync};
use rustix::process::{Gid, Uid};

use crate::workspace::entry::{
    EntryMeta, create_file, open_listable, remove_file, rename, rename_new, require_writable,
    stat_entry, temporary_name,
};
use crate::workspace::path_error::PathError;
use crate::workspace::rules::{Access, CallerRules};

/// Prefix of temporary files beside the file that they replace.
const EDIT_PREFIX: &str = ".orchestrator-edit-";

/// What a staged file gets beside its content.
#[derive(Debug, Clone, Copy)]
pub(super) struct StagedFile {
    pub mode: StagedMode,
    /// Owner and group, if the system allows them.
    pub owner: Option<(u32, u32)>,
    /// Whether the content is made durable.
    pub sync: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum StagedMode {
    /// Permission bits; others are dropped.
    Given(u32),
    /// What the umask leaves; a script is executable.
    New { is_script: bool },
    /// 0644 or 0755, less the umask.
    Plain { is_executable: bool },
}

impl StagedFile {
    /// A file that replaces `old`, or is new.
    pub(super) fn replacing(
        old: Option<&EntryMeta>,
        content: &[u8],
        rules: CallerRules<'_>,
    ) -> StagedFile {
        let is_script = content.starts_with(b"#!");
        let forced = match rules.access {
            Access::Force => 0o600,
            Access::AsIs | Access::HiddenIsAbsent => 0,
        };
        StagedFile {
            mode: old.map_or(StagedMode::New { is_script }, |old| {
                StagedMode::Given(old.mode | forced)
            }),
            owner: old
                .filter(|_| rules.keeps_owner)
                .map(|old| (old.uid, old.gid)),
            sync: true,
        }
    }

    /// Writes the file under a temporary name.
    pub(super) fn write<R: Read + ?Sized>(
        self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        content: &mut R,
    ) -> io::Result<File> {
        let mut file = create_file(dir, name)?;
        io::copy(content, &mut file)?;
        if let Some((uid, gid)) = self.owner {
            // Only root may give files away; others keep what is theirs.
            let _ = fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        }
        match self.mode {
            StagedMode::Given(mode) => fchmod(&file, Mode::from_raw_mode(mode & 0o777))?,
            StagedMode::New { is_script: true } => make_executable(&file)?,
            StagedMode::New { is_script: false } => {}
            StagedMode::Plain { is_executable } => {
                let mode = file.metadata()?.permissions().mode() & 0o644;
                let executable = if is_executable {
                    (mode & 0o444) >> 2
                } else {
                    0
                };
                fchmod(&file, Mode::from_raw_mode(mode | executable))?;
            }
        }
        if self.sync {
            file.sync_all()?;
        }
        Ok(file)
    }
}

/// Replaces the file `name`, which is still as `old` describes it, or makes a new one; the rename and the content are
/// durable.
pub(super) fn replace_beside(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    content: &[u8],
    old: Option<&EntryMeta>,
    rules: CallerRules<'_>,
) -> Result<(), PathError> {
    if old.is_some() && rules.access != Access::Force {
        // A rename needs no permission on the file itself.
        require_writable(dir, name)?;
    }
    let temporary = temporary_name(EDIT_PREFIX);
    let placed = StagedFile::replacing(old, content, rules)
        .write(dir, &temporary, &mut &content[..])
        .map_err(PathError::from)
        .and_then(|_| match old {
            None => Ok(rename_new((dir, &temporary), (dir, name))?),
            Some(old) if stat_entry(dir, name)? != Some(*old) => Err(PathError::Changed),
            Some(_) => Ok(rename((dir, &temporary), (dir, name))?),
        });
    if placed.is_err() {
        let _ = remove_file(dir, &temporary);
        return placed;
    }
    // The file is in its place; a folder that cannot be read cannot be synced.
    if let Ok(listable) = open_listable(dir) {
        fsync(listable)?;
    }
    Ok(())
}

/// Gives execute permission to everyone with read permission.
fn make_executable(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    Ok(fchmod(
        file,
        Mode::from_raw_mode(mode | (mode & 0o444) >> 2),
    )?)
}
