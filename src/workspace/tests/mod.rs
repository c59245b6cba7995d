//! The workspace on real trees: each test has a root of its own with `workspace/` and a precious `outside/` beside it.

mod callers;
mod changes;
mod forced;
mod races;
mod reading;
mod removal;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::Error;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{ChangeRefusal, FileChange, Workspace};

pub(in crate::workspace) struct TestDir {
    root: TempDir,
    pub workspace: Workspace,
}

impl TestDir {
    pub(super) fn new() -> TestDir {
        TestDir::at(tempfile::tempdir().expect("tempdir"))
    }

    /// A dir in memory, if there is one: for tests that would mostly wait for the disk.
    pub(super) fn in_memory() -> TestDir {
        TestDir::at(
            tempfile::tempdir_in("/dev/shm")
                .unwrap_or_else(|_| tempfile::tempdir().expect("tempdir")),
        )
    }

    fn at(root: TempDir) -> TestDir {
        fs::create_dir(root.path().join("outside")).expect("mkdir");
        fs::write(root.path().join("outside/precious"), "precious").expect("write");
        let workspace = open(&root.path().join("workspace")).expect("workspace");
        TestDir { root, workspace }
    }

    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join("workspace").join(path)
    }

    pub(super) fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    pub(super) fn file(&self, path: &str, content: &str) {
        fs::create_dir_all(self.path(path).parent().expect("parent")).expect("mkdir");
        fs::write(self.path(path), content).expect("write");
    }

    pub(super) fn link(&self, path: &str, target: impl AsRef<Path>) {
        symlink(target, self.path(path)).expect("symlink");
    }

    pub(super) fn chmod(&self, path: &str, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).expect("chmod");
    }

    pub(super) fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.path(path))
            .expect("stat")
            .permissions()
            .mode()
            & 0o7777
    }

    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect(path)
    }

    /// The names at the top, so that what was left behind shows.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(""))
            .expect("readdir")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .collect();
        names.sort();
        names
    }

    pub(super) fn assert_outside_is_whole(&self) {
        let names: Vec<_> = fs::read_dir(self.outside())
            .expect("readdir")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(names, ["precious"]);
        assert_eq!(
            fs::read_to_string(self.outside().join("precious")).expect("read"),
            "precious"
        );
    }

    /// Judges, and applies what was judged well.
    pub(super) fn change(&self, changes: &[FileChange]) -> Result<(), ChangeRefusal> {
        self.workspace.check(changes)?;
        self.workspace.apply(changes).map_err(ChangeRefusal::from)
    }

    pub(super) fn assert_conflict(&self, changes: &[FileChange]) {
        let before = self.names();
        assert!(
            matches!(
                self.workspace.check(changes),
                Err(ChangeRefusal::Conflict(_))
            ),
            "{:?}",
            self.workspace.check(changes)
        );
        assert_eq!(self.names(), before);
    }

    /// Neither judging nor applying gets past it.
    pub(super) fn assert_violation(&self, changes: &[FileChange]) {
        assert!(
            matches!(
                self.workspace.check(changes),
                Err(ChangeRefusal::Violation(_))
            ),
            "{:?}",
            self.workspace.check(changes)
        );
        assert!(matches!(
            self.workspace.apply(changes),
            Err(Error::Safety(_))
        ));
        assert!(
            !self
                .names()
                .iter()
                .any(|name| name.starts_with(".orchestrator-stage-"))
        );
        self.assert_outside_is_whole();
    }
}

pub(in crate::workspace) fn open(workspace: &Path) -> Result<Workspace, Error> {
    let root = fs::File::open(workspace.parent().expect("parent")).expect("open");
    Workspace::open(
        root.as_fd(),
        workspace
            .file_name()
            .and_then(|name| name.to_str())
            .expect("name"),
        workspace,
    )
}

fn write(path: &str, content: &str) -> FileChange {
    FileChange::Write {
        path: SafePath::parse(path).expect(path),
        content: content.into(),
    }
}

fn delete(path: &str) -> FileChange {
    FileChange::Delete {
        path: SafePath::parse(path).expect(path),
    }
}

/// Mounts `what` over `dir`, where that is allowed.
fn mount(what: &Path, dir: &Path) -> bool {
    let output = std::process::Command::new("mount")
        .arg("--bind")
        .args([what, dir])
        .output();
    can_run(
        output.is_ok_and(|output| output.status.success()),
        "a bind mount",
    )
}

/// Whether a test can run that needs something; with `CI` set it has to.
fn can_run(is_there: bool, what: &str) -> bool {
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "this test needs {what}"
    );
    if !is_there {
        println!("skipped: this test needs {what}");
    }
    is_there
}

/// Runs a test as a user that permissions bind, also where the tests run as root.
fn as_ordinary_user(test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let nobody = rustix::process::Uid::from_raw(65534);
                // The user of this thread alone.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("setresuid");
            }
            test();
        });
        thread.join().expect("the test as an ordinary user");
    });
}

fn unmount(dir: &Path) {
    assert!(
        std::process::Command::new("umount")
            .arg(dir)
            .status()
            .expect("umount")
            .success()
    );
}

#[test]
fn the_workspace_is_made() {
    let dir = TestDir::new();
    assert!(dir.path("").is_dir());
    assert!(dir.names().is_empty());
    assert!(open(&dir.path("")).is_ok());
}

#[test]
fn a_workspace_that_is_a_link_or_a_file_is_refused() {
    let dir = TestDir::new();
    let elsewhere = dir.outside().parent().expect("root").join("elsewhere");
    symlink(dir.outside(), &elsewhere).expect("symlink");
    match open(&elsewhere) {
        Err(Error::Safety(violation)) => {
            assert!(violation.what.ends_with("elsewhere"), "{violation}")
        }
        other => panic!("{other:?}"),
    }
    fs::remove_file(&elsewhere).expect("rm");
    symlink("missing", &elsewhere).expect("symlink");
    assert!(matches!(open(&elsewhere), Err(Error::Safety(_))));
    fs::remove_file(&elsewhere).expect("rm");
    fs::write(&elsewhere, "").expect("write");
    assert!(matches!(open(&elsewhere), Err(Error::Safety(_))));
    dir.assert_outside_is_whole();
}

#[test]
fn a_locked_workspace_is_opened_up() {
    let dir = TestDir::new();
    dir.chmod("", 0o000);
    let workspace = open(&dir.path("")).expect("workspace");
    dir.chmod("", 0o000);
    workspace.apply(&[write("a", "1")]).expect("apply");
    assert_eq!(dir.read("a"), "1");
}
