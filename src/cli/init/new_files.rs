//! Writes the files of `init`: all of them or none, and never over a file of the user's.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// A file to be written.
#[derive(Debug)]
pub(super) struct PlannedFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Replaces a file that is there; the others must not exist.
    pub(super) replaces: bool,
}

/// Writes the files in this order; after an error those that did not exist are removed again.
pub(super) fn write_all(folder: &Path, files: Vec<PlannedFile>) -> Result<()> {
    let is_new_folder = make_folder(folder)?;
    let undo_folder = || {
        if is_new_folder {
            let _ = fs::remove_dir(folder);
        }
    };
    let staged: Result<Vec<_>> = files.into_iter().map(stage).collect();
    let written = staged.and_then(put_in_place);
    if written.is_err() {
        undo_folder();
    }
    written
}

fn make_folder(folder: &Path) -> Result<bool> {
    match fs::create_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(false),
        Err(error) => Err(Error::io("make the folder", folder, error)),
    }
}

fn stage(file: PlannedFile) -> Result<(NamedTempFile, PlannedFile)> {
    let failed = |error| Error::io("write", &file.path, error);
    let folder = file.path.parent().unwrap_or(Path::new("/"));
    let mode = match file.replaces {
        true => fs::metadata(&file.path)
            .map_err(failed)?
            .permissions()
            .mode(),
        false => 0o666,
    };
    let mut staged = tempfile::Builder::new()
        .prefix(".orchestrator-init-")
        .permissions(Permissions::from_mode(mode & 0o777))
        .tempfile_in(folder)
        .map_err(failed)?;
    staged.write_all(file.text.as_bytes()).map_err(failed)?;
    staged.as_file().sync_all().map_err(failed)?;
    Ok((staged, file))
}

fn put_in_place(staged: Vec<(NamedTempFile, PlannedFile)>) -> Result<()> {
    let mut made: Vec<PathBuf> = Vec::new();
    for (temporary, file) in staged {
        let put = match file.replaces {
            true => temporary.persist(&file.path),
            false => temporary.persist_noclobber(&file.path),
        };
        match put {
            Ok(_) if file.replaces => {}
            Ok(_) => made.push(file.path),
            Err(error) => {
                made.iter().for_each(|path| drop(fs::remove_file(path)));
                return Err(Error::io("write", &file.path, error.error));
            }
        }
    }
    Ok(())
}
