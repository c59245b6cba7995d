//! Programs that report tests from inside a runner, and the variables by which the runner loads them.
//!
//! They are part of the binary and are written to a private folder, which is read-only in the sandbox. Without a sandbox
//! the code under test could change them, so they are compared and restored before each check.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::runner::Runner;
use crate::error::{Error, Result};
use crate::process::scratch::ScratchDir;

/// Python imports a module of this name before anything else.
const PYTHON: (&str, &str) = (
    "python/sitecustomize.py",
    include_str!("reporters/sitecustomize.py"),
);
const NODE: (&str, &str) = ("node/report.cjs", include_str!("reporters/report.cjs"));

/// The programs of one root; removed on drop.
#[derive(Debug)]
pub(crate) struct Reporters {
    _folder: ScratchDir,
    path: PathBuf,
}

impl Reporters {
    /// Writes the programs to a folder of `root` below `temporary`.
    pub(crate) fn create(temporary: &Path, root: &Path) -> Result<Reporters> {
        let folder = ScratchDir::create(temporary, root, "report")?;
        let path = folder
            .path()
            .canonicalize()
            .map_err(|error| Error::io("use", folder.path(), error))?;
        let reporters = Reporters {
            _folder: folder,
            path,
        };
        reporters.renew()?;
        Ok(reporters)
    }

    /// The folder, which a sandbox has to make readable.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Restores programs that are missing or changed.
    pub(crate) fn renew(&self) -> Result<()> {
        [PYTHON, NODE].into_iter().try_for_each(|(name, text)| {
            let path = self.path.join(name);
            put(&path, text).map_err(|error| Error::io("write", &path, error))
        })
    }

    /// Adds the variables by which the runner of a check loads its program.
    pub(crate) fn add_variables(&self, known: Option<Runner>, env: &mut Vec<(OsString, OsString)>) {
        let is_python = matches!(known, None | Some(Runner::Pytest | Runner::Unittest));
        let is_node = matches!(
            known,
            None | Some(Runner::Node | Runner::Jest | Runner::Vitest | Runner::Mocha)
        );
        let python = self.path.join("python");
        // A path that contains the separator cannot be an entry.
        if is_python && !python.as_os_str().as_bytes().contains(&b':') {
            put_first(env, "PYTHONPATH", python.as_os_str(), ":");
        }
        if let Some(path) = self.path.join(NODE.0).to_str().filter(|_| is_node) {
            let quoted = path.replace('\\', "\\\\").replace('"', "\\\"");
            put_first(
                env,
                "NODE_OPTIONS",
                OsStr::new(&format!("--require=\"{quoted}\"")),
                " ",
            );
        }
    }
}

/// Prepends to the value of a variable.
fn put_first(env: &mut Vec<(OsString, OsString)>, name: &str, first: &OsStr, separator: &str) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, value)) if !value.is_empty() => {
            let mut whole = first.to_owned();
            whole.push(separator);
            whole.push(&*value);
            *value = whole;
        }
        Some((_, value)) => *value = first.to_owned(),
        None => env.push((name.into(), first.to_owned())),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file in a private directory of ours"
)]
fn put(path: &Path, text: &str) -> io::Result<()> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if is_file && fs::read(path).is_ok_and(|content| content == text.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    if !fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir()) {
        let _ = fs::remove_file(folder);
        fs::create_dir(folder)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => fs::remove_dir_all(path)?,
        _ => {}
    }
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o444))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_programs_are_restored_and_variables_lead_to_them() {
        let temporary = tempfile::tempdir().unwrap();
        let reporters = Reporters::create(temporary.path(), Path::new("/a")).unwrap();
        let program = reporters.path().join(PYTHON.0);
        fs::remove_file(&program).unwrap();
        fs::create_dir(&program).unwrap();
        reporters.renew().unwrap();
        assert_eq!(fs::read_to_string(&program).unwrap(), PYTHON.1);
        let mut env = vec![("PYTHONPATH".into(), "/w".into())];
        reporters.add_variables(None, &mut env);
        let folder = reporters.path().join("python");
        assert_eq!(env[0].1, OsString::from(format!("{}:/w", folder.display())));
        assert_eq!(env[1].0, "NODE_OPTIONS");
        let mut env = Vec::new();
        reporters.add_variables(Some(Runner::Cargo), &mut env);
        assert!(env.is_empty());
    }
}
