//! The Python modules among the user's tests, by folder and import name.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use crate::build::spec::inputs::{InputKind, Inputs};
use crate::build::tampering::python::{self, ModuleForm, PythonModule};

/// The modules of protected and hidden tests.
#[derive(Default)]
pub(super) struct TestModules {
    /// The folders that contain a Python module.
    folders: HashSet<PathBuf>,
    files: HashSet<(PathBuf, String)>,
    packages: HashSet<(PathBuf, String)>,
    /// The folders around these that are not protected as a whole, so that files added there are not removed.
    pub(super) open_folders: BTreeSet<PathBuf>,
}

impl TestModules {
    pub(super) fn of(inputs: &Inputs) -> TestModules {
        let mut all = TestModules::default();
        let tests = inputs.protect.iter().chain(inputs.hidden.iter().flatten());
        for input in tests.filter(|input| input.kind != InputKind::Dir) {
            all.add(Path::new(input.to.as_str()), input.to.file_name());
        }
        for input in &inputs.protect {
            if input.kind == InputKind::Dir {
                all.open_folders.remove(Path::new(input.to.as_str()));
            }
        }
        all
    }

    fn add(&mut self, path: &Path, file_name: &str) {
        let (Some(folder), Some(name)) = (path.parent(), python::module_name(file_name)) else {
            return;
        };
        self.folders.insert(folder.to_owned());
        if name != "__init__" {
            self.files.insert((folder.to_owned(), name.to_owned()));
            self.open_folders.insert(folder.to_owned());
        }
        for package in folder.ancestors() {
            if let Some(key) = key_of(package) {
                self.open_folders.insert(key.0.clone());
                self.packages.insert(key);
            }
        }
    }

    /// Whether a module has the import name of a test in the same folder.
    pub(super) fn has_namesake(&self, module: &PythonModule) -> bool {
        let key = (module.folder.clone(), module.name.clone());
        match module.form {
            ModuleForm::File => self.files.contains(&key) || self.packages.contains(&key),
            ModuleForm::Package => self.files.contains(&key),
            ModuleForm::Portion => false,
        }
    }

    /// Whether a folder would, with an `__init__.py` in it, be imported instead of a test.
    pub(super) fn may_be_namesake(&self, folder: &Path) -> bool {
        key_of(folder).is_some_and(|key| self.files.contains(&key))
    }

    /// Whether a test is directly in a folder.
    pub(super) fn are_in(&self, folder: &Path) -> bool {
        self.folders.contains(folder)
    }

    /// Whether a test is in a folder or anywhere below it.
    pub(super) fn are_below(&self, folder: &Path) -> bool {
        key_of(folder).is_some_and(|key| self.packages.contains(&key))
    }
}

/// The folder around a folder, and its name.
fn key_of(folder: &Path) -> Option<(PathBuf, String)> {
    let name = folder.file_name()?.to_string_lossy().into_owned();
    Some((folder.parent()?.to_owned(), name))
}
