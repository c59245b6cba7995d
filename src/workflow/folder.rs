//! The folder that a workflow works in, and the directories of agents in it.

use std::path::{Component, Path, PathBuf};

use crate::workflow::agent_record::FOLDER;
use crate::workflow::transition::Mistake;

/// The folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// Absolute, links resolved.
    pub(crate) path: PathBuf,
}

impl Folder {
    /// The directory of an agent.
    pub(crate) fn join(&self, cwd: &str) -> PathBuf {
        match cwd {
            FOLDER => self.path.clone(),
            below => self.path.join(below),
        }
    }

    /// The directory of an agent if it exists, inside the folder.
    pub(crate) fn existing(&self, cwd: &str) -> Option<PathBuf> {
        let path = self.join(cwd);
        let real = path.canonicalize().ok()?;
        (real.is_dir() && real.starts_with(&self.path)).then_some(path)
    }

    /// Where `cd` leads from a directory, relative to the folder.
    pub(crate) fn enter(&self, cwd: &str, cd: &str) -> Result<String, Mistake> {
        let mistake = |problem| Mistake::Directory {
            directory: cd.to_owned(),
            problem,
        };
        let asked = Path::new(cd);
        if asked.is_absolute() {
            return Err(mistake("expected a path relative to your directory"));
        }
        if cd.trim().is_empty() || cd.contains('\0') {
            return Err(mistake("expected the name of a directory"));
        }
        let real = self.join(cwd).join(asked).canonicalize();
        let real = real.map_err(|_| mistake("there is no such directory"))?;
        let inside = real.strip_prefix(&self.path);
        let inside = inside.map_err(|_| mistake("it is outside the folder of the workflow"))?;
        if !real.is_dir() {
            return Err(mistake("it is not a directory"));
        }
        match inside.to_str() {
            Some("") => Ok(FOLDER.to_owned()),
            Some(path) if inside.components().all(is_plain) => Ok(path.to_owned()),
            _ => Err(mistake("its name is not UTF-8")),
        }
    }
}

fn is_plain(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(_))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_is_entered_inside_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("file"), "").unwrap();
        symlink(outside.path(), path.join("out")).unwrap();
        symlink("a/b", path.join("in")).unwrap();
        let folder = Folder { path };
        let check = |cwd: &str, cd: &str, expected: Option<&str>| {
            assert_eq!(
                folder.enter(cwd, cd).ok().as_deref(),
                expected,
                "{cwd} {cd}"
            );
        };
        check(".", "a", Some("a"));
        check("a", "b", Some("a/b"));
        check("a/b", "..", Some("a"));
        check("a", "..", Some("."));
        check(".", "in", Some("a/b"));
        for cd in [
            "..", "out", "nowhere", "file", "", " ", "/", "/tmp", "a/../..",
        ] {
            check(".", cd, None);
        }
        assert!(folder.existing("a").is_some() && folder.existing("gone").is_none());
    }
}
