//! Specs as files in a folder, read and collected.

mod identity;
mod inputs;
mod read;
mod refused;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::Spec;
use crate::error::Error;

/// A folder for specs, with files that they may name.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(TempDir::new().unwrap());
        let folder = folder
            .write("tests/t.py", "assert True\n")
            .write("tests/deep/u.py", "")
            .write("one.txt", "1");
        folder
            .write("template/0/calc.py", "{{ name }}")
            .write("empty/file", "")
            .write("prompts/system.md", "{{spec}}")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(self, name: &str, content: impl AsRef<[u8]>) -> Folder {
        self.put(name, content);
        self
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> Result<Spec, Error> {
        super::read_spec(&self.path().join(name), Some(self.path()), &[])
    }

    /// The error of a spec that is refused, without the folder's own path.
    fn message(&self, name: &str) -> String {
        let error = self.read(name).expect_err("the spec was accepted");
        assert_eq!(error.exit_code(), 65);
        error
            .to_string()
            .replace(&format!("{}/", self.path().display()), "")
    }
}
