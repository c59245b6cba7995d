//! The real git, without the user's configuration.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{Tree, write_tree};

/// Whether git is installed. With `CI` set it has to be.
pub(super) fn is_installed() -> bool {
    let version = Command::new("git").arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    assert!(
        is_there || std::env::var_os("CI").is_none_or(|value| value.is_empty()),
        "this test needs git"
    );
    if !is_there {
        println!("skipped: this test needs git");
    }
    is_there
}

/// A temporary folder in which git runs.
pub(super) struct GitFolder {
    temporary: tempfile::TempDir,
    /// Options of git itself, before those of a command.
    options: Vec<String>,
}

impl GitFolder {
    pub(super) fn new() -> GitFolder {
        let temporary = tempfile::tempdir().unwrap();
        fs::create_dir(temporary.path().join("tree")).unwrap();
        GitFolder {
            temporary,
            options: Vec::new(),
        }
    }

    pub(super) fn with_options(mut self, options: &[&str]) -> GitFolder {
        self.options = options.iter().map(|option| (*option).to_owned()).collect();
        self
    }

    /// The folder for the files.
    pub(super) fn tree(&self) -> PathBuf {
        self.temporary.path().canonicalize().unwrap().join("tree")
    }

    /// Replaces the files; what git keeps of a repository stays.
    pub(super) fn write(&self, tree: &Tree) {
        for entry in fs::read_dir(self.tree()).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with(".git") {
                continue;
            }
            match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => fs::remove_dir_all(path).unwrap(),
                false => fs::remove_file(path).unwrap(),
            }
        }
        write_tree(&self.tree(), tree);
    }

    /// Applies a patch to the files and returns what git says if it does not.
    pub(super) fn apply(&self, patch: &[u8], options: &[&str]) -> Result<(), String> {
        let file = self.temporary.path().join("patch");
        fs::write(&file, patch).unwrap();
        let arguments = ["apply", "--whitespace=nowarn"];
        let output = self.run(&[&arguments, options, &["-"]].concat(), Some(&file));
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// What `git diff` prints about two trees.
    pub(super) fn diff(&self, old: &Tree, new: &Tree, options: &[&str]) -> Vec<u8> {
        self.stdout(&["init", "--quiet"]);
        let [old, new] = [old, new].map(|tree| {
            self.write(tree);
            self.stdout(&["add", "--all", "--force"]);
            let name = String::from_utf8(self.stdout(&["write-tree"])).unwrap();
            name.trim().to_owned()
        });
        let trees = [old.as_str(), new.as_str()];
        self.stdout(&[&["diff", "--no-renames"], options, &trees].concat())
    }

    fn stdout(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.run(arguments, None);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        output.stdout
    }

    fn run(&self, arguments: &[&str], stdin: Option<&Path>) -> Output {
        let stdin = stdin.map_or_else(Stdio::null, |file| File::open(file).unwrap().into());
        let tree = self.tree();
        Command::new("git")
            .args(&self.options)
            .args(arguments)
            .current_dir(&tree)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.temporary.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap())
            .env("LC_ALL", "C")
            .stdin(stdin)
            .output()
            .unwrap()
    }
}
