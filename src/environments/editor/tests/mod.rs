//! The editor as an agent meets it: commands in, answers and screens out, files on the disk.

mod containment;
mod edits;
mod searches;
mod tracking;
mod views;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::EditorEnvironment;
use crate::environments::Environment;

pub(super) const FUNCTIONS: &str = "import os\n\ndef alpha(x):\n    return x\n\ndef beta(y):\n    z = y\n\n    return z\n\ndef gamma():\n    return 0\n";

/// An editor in a project of its own.
struct Scene {
    folder: TempDir,
    editor: EditorEnvironment,
}

impl Scene {
    fn new<const N: usize>(files: [(&str, &str); N]) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let editor = EditorEnvironment::new(folder.path()).unwrap();
        let scene = Scene { folder, editor };
        for (name, content) in files {
            scene.write(name, content);
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned()
    }

    /// Runs a command that is carried out, and the screen after it.
    fn ok(&mut self, command: &str) -> String {
        let response = self.editor.begin(command).unwrap();
        assert!(response.success, "{command}: {}", response.output);
        assert!(!response.running);
        self.editor.screen();
        response.output
    }

    /// Runs a command that is refused, and the screen after it.
    fn refused(&mut self, command: &str) -> String {
        let response = self.editor.begin(command).unwrap();
        assert!(!response.success, "{command}: {}", response.output);
        self.editor.screen();
        response.output
    }

    fn screen(&mut self) -> String {
        self.editor.screen().content
    }

    /// The numbers and texts that a view shows.
    fn shown(&mut self, id: u64) -> Vec<(usize, String)> {
        let screen = self.screen();
        let blocks = screen
            .split("\n\n")
            .flat_map(|block| block.strip_prefix("Views:\n").or(Some(block)));
        // A line of a view is never empty, so an empty one ends it.
        let block = blocks
            .into_iter()
            .find(|block| block.starts_with(&format!("  [{id}] ")));
        let numbered = |line: &str| {
            let (number, text) = line.trim_start().split_once("  ")?;
            Some((number.parse().ok()?, text.to_owned()))
        };
        block
            .unwrap_or_else(|| panic!("no view [{id}]: {screen}"))
            .lines()
            .skip(1)
            .filter_map(numbered)
            .collect()
    }

    fn texts(&mut self, id: u64) -> Vec<String> {
        self.shown(id).into_iter().map(|(_, text)| text).collect()
    }

    /// The first and the last number that a view shows.
    fn span(&mut self, id: u64) -> (usize, usize) {
        let shown = self.shown(id);
        (shown[0].0, shown[shown.len() - 1].0)
    }

    fn header(&mut self, id: u64) -> String {
        let screen = self.screen();
        let header = screen
            .lines()
            .find(|line| line.starts_with(&format!("  [{id}] ")));
        header
            .unwrap_or_else(|| panic!("no view [{id}]: {screen}"))
            .to_owned()
    }
}
