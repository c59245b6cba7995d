//! What a copy of a folder would leave out, asked for single paths.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::exclusions::{ExclusionReason, InputFilter, ReservedPaths};
use super::ignore_rules::IgnoreRules;
use crate::error::{Error, Result};

/// The ignore rules, `exclude` and names of secrets of one folder. Rules are read once for each folder in it.
pub(crate) struct CopyFilter {
    top: PathBuf,
    exclude: Vec<String>,
    folders: HashMap<PathBuf, FolderDecision>,
}

#[derive(Clone)]
enum FolderDecision {
    Taken(Option<Rc<IgnoreRules>>),
    /// It is left out, or lies in this folder, which is.
    LeftOut(PathBuf, &'static str),
}

impl CopyFilter {
    pub(crate) fn new(top: &Path, exclude: &[String]) -> CopyFilter {
        CopyFilter {
            top: top.to_owned(),
            exclude: exclude.to_vec(),
            folders: HashMap::new(),
        }
    }

    /// The outermost part of a path in the folder that a copy would leave out, and why.
    pub(crate) fn left_out(&mut self, path: &Path) -> Result<Option<(PathBuf, &'static str)>> {
        let around = path.parent().unwrap_or(Path::new(""));
        match self.rules(around)? {
            FolderDecision::LeftOut(part, why) => Ok(Some((part, why))),
            FolderDecision::Taken(rules) => {
                let found = self.exclusion(rules.as_deref(), path, false)?;
                Ok(found.map(|why| (path.to_owned(), why)))
            }
        }
    }

    fn rules(&mut self, folder: &Path) -> Result<FolderDecision> {
        if let Some(known) = self.folders.get(folder) {
            return Ok(known.clone());
        }
        let rules = match folder.parent() {
            None => self.enter(folder, None)?,
            Some(parent) => match self.rules(parent)? {
                FolderDecision::Taken(above) => {
                    match self.exclusion(above.as_deref(), folder, true)? {
                        Some(why) => FolderDecision::LeftOut(folder.to_owned(), why),
                        None => self.enter(folder, above)?,
                    }
                }
                left_out => left_out,
            },
        };
        self.folders.insert(folder.to_owned(), rules.clone());
        Ok(rules)
    }

    fn enter(&self, folder: &Path, above: Option<Rc<IgnoreRules>>) -> Result<FolderDecision> {
        IgnoreRules::enter(&self.top.join(folder), above)
            .map(|rules| FolderDecision::Taken(Some(rules)))
            .map_err(Error::from)
    }

    fn exclusion(
        &self,
        rules: Option<&IgnoreRules>,
        path: &Path,
        is_folder: bool,
    ) -> Result<Option<&'static str>> {
        let reserved = ReservedPaths::default();
        let filter = InputFilter::new(Some(&reserved), &self.exclude, &self.top)?;
        let found = filter.exclusion(rules, &self.top.join(path), is_folder);
        Ok(found.map(|reason| match reason {
            ExclusionReason::Secret => "its name is that of a file with secrets",
            ExclusionReason::Excluded => "`exclude` of the spec leaves it out",
            ExclusionReason::Ignored | ExclusionReason::Spec | ExclusionReason::Hidden => {
                "an ignore file of the project excludes it"
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn paths_are_left_out_as_a_copy_would() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(
            folder.path().join(".gitignore"),
            "*.log\n/build/\n!keep.log\n",
        )
        .unwrap();
        fs::write(folder.path().join("sub/.ignore"), "local\n").unwrap();
        let mut filter = CopyFilter::new(folder.path(), &["*.csv".into()]);
        let mut part = |path: &str| {
            let found = filter.left_out(Path::new(path)).unwrap();
            found.map(|(part, _)| part.display().to_string())
        };
        for (path, expected) in [
            ("a.py", None),
            ("x.log", Some("x.log")),
            ("new/er/x.log", Some("new/er/x.log")),
            ("keep.log", None),
            ("build/a/b.o", Some("build")),
            ("sub/build/b.o", None),
            ("sub/local", Some("sub/local")),
            ("local", None),
            ("sub/.env", Some("sub/.env")),
            (".env/lib/x.py", Some(".env")),
            (".env.example", None),
            ("sub/data.csv", Some("sub/data.csv")),
        ] {
            assert_eq!(part(path).as_deref(), expected, "{path}");
        }
    }
}
