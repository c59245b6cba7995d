//! A supervisor that is started ahead of its check: when it is used, when it is not, and that none is left.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, sandbox_policy,
};
use orchestrator::internals::process::{self, CallerEnv, Job, JobChannels, JobEnd, Launcher};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::launcher;
use crate::support::running::until;

/// Set in a process that prepares a sandbox for this workspace and waits.
const WORKSPACE: &str = "ORCHESTRATOR_TEST_WORKSPACE";

struct Place {
    _top: TempDir,
    workspace: PathBuf,
    launcher: Launcher,
}

impl Place {
    /// A workspace with a frozen file in a folder.
    fn new() -> Place {
        let top = tempfile::tempdir().unwrap();
        let workspace = top.path().canonicalize().unwrap().join("workspace");
        fs::create_dir_all(workspace.join("tests")).unwrap();
        fs::write(workspace.join("tests/frozen"), "kept\n").unwrap();
        Place {
            launcher: sandboxed(&workspace, &[workspace.join("tests/frozen")]),
            workspace,
            _top: top,
        }
    }

    /// Prepares a sandbox, and returns its mount namespace once it waits for its command. While that is open, its number is
    /// not used again.
    fn prepare(&self) -> (PathBuf, File) {
        self.launcher.prepare();
        until("a sandbox waits for its command", || {
            inside(&self.workspace).len() == 2
        });
        let waiting = inside(&self.workspace);
        let namespace = format!("/proc/{}/ns/mnt", waiting.first().unwrap());
        (
            fs::read_link(&namespace).unwrap(),
            File::open(namespace).unwrap(),
        )
    }

    /// Runs a script that changes the frozen file if it can, and returns its mount namespace.
    fn run(&self) -> PathBuf {
        run(&self.launcher, &self.workspace)
    }

    /// Runs a check after a change, which must not use the prepared sandbox.
    fn is_not_used_after(change: impl FnOnce(&mut Place)) {
        let mut place = Place::new();
        let (prepared, _open) = place.prepare();
        change(&mut place);
        assert_ne!(place.run(), prepared);
        assert!(inside(&place.workspace).is_empty());
    }
}

fn sandboxed(workspace: &Path, freeze: &[PathBuf]) -> Launcher {
    launcher().with_policy(sandbox_policy(&PolicyPlan {
        mode: SandboxMode::Full,
        workspace,
        root: None,
        base: &CallerEnv::new(std::env::vars_os()),
        read: &[],
        originals: &[],
        freeze,
        private: None,
        devices: &[],
        network: false,
        limits: ResourceLimits::default(),
    }))
}

fn run(launcher: &Launcher, workspace: &Path) -> PathBuf {
    let script = "readlink /proc/self/ns/mnt; echo changed > tests/frozen; \
        mv tests moved; rm -f tests/frozen; cat tests/frozen >&2";
    let job = Job {
        command: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        cwd: workspace.to_owned(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        timeout: Duration::from_secs(100),
    };
    let finished = process::run(
        launcher,
        &job,
        JobChannels::NONE,
        &CancelToken::never().unwrap(),
    )
    .unwrap();
    let stderr = String::from_utf8(finished.stderr.joined()).unwrap();
    assert_eq!(finished.ended, JobEnd::Exited(0), "{stderr}");
    assert!(stderr.ends_with("kept\n"), "{stderr}");
    let stdout = String::from_utf8(finished.stdout.joined()).unwrap();
    stdout.trim().into()
}

/// The processes in sandboxes of this workspace: it is a mount point only there.
fn inside(workspace: &Path) -> BTreeSet<i32> {
    let mount = format!(" {} ", workspace.display());
    let names = fs::read_dir("/proc").unwrap().flatten();
    names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/mountinfo"))
                .is_ok_and(|mounts| mounts.contains(&mount))
        })
        .collect()
}

#[test]
fn a_prepared_sandbox_is_used_once() {
    let place = Place::new();
    let (first, _open) = place.prepare();
    // Another one is not started while it waits.
    assert_eq!(place.prepare().0, first);
    assert_eq!(place.run(), first);
    assert!(inside(&place.workspace).is_empty());
    assert_ne!(place.run(), first);
    let (second, _open) = place.prepare();
    fs::write(place.workspace.join("answer"), "a change of the workspace").unwrap();
    assert_eq!(place.run(), second);
}

#[test]
fn a_prepared_supervisor_without_a_sandbox_is_used() {
    let place = Place::new();
    let open = launcher();
    open.prepare();
    let job = Job {
        command: ["/bin/echo", "done"].map(Into::into).to_vec(),
        cwd: place.workspace.clone(),
        env: Vec::new(),
        timeout: Duration::from_secs(100),
    };
    let finished = process::run(
        &open,
        &job,
        JobChannels::NONE,
        &CancelToken::never().unwrap(),
    )
    .unwrap();
    assert_eq!(finished.stdout.joined(), b"done\n");
}

#[test]
fn a_prepared_sandbox_is_not_used_with_another_policy() {
    Place::is_not_used_after(|place| {
        let mut policy = place.launcher.policy.clone().unwrap();
        policy.limits.processes -= 1;
        place.launcher = place.launcher.with_policy(policy);
    });
}

#[test]
fn a_prepared_sandbox_is_not_used_after_a_path_of_it_was_replaced() {
    Place::is_not_used_after(|place| {
        let frozen = place.workspace.join("tests/frozen");
        fs::write(place.workspace.join("new"), "kept\n").unwrap();
        fs::rename(place.workspace.join("new"), frozen).unwrap();
    });
    Place::is_not_used_after(|place| {
        let frozen = place.workspace.join("tests/frozen");
        fs::remove_file(&frozen).unwrap();
        fs::write(frozen, "kept\n").unwrap();
    });
    Place::is_not_used_after(|place| {
        let [tests, old] = ["tests", "old"].map(|name| place.workspace.join(name));
        fs::rename(&tests, &old).unwrap();
        fs::create_dir(&tests).unwrap();
        fs::rename(old.join("frozen"), tests.join("frozen")).unwrap();
    });
    Place::is_not_used_after(|place| {
        let old = place.workspace.with_extension("old");
        fs::rename(&place.workspace, &old).unwrap();
        fs::create_dir(&place.workspace).unwrap();
        fs::rename(old.join("tests"), place.workspace.join("tests")).unwrap();
    });
}

#[test]
fn a_prepared_sandbox_that_was_killed_is_not_used() {
    Place::is_not_used_after(|place| {
        for pid in inside(&place.workspace) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        until("it is gone", || inside(&place.workspace).is_empty());
    });
}

#[test]
fn a_prepared_sandbox_ends_with_its_launcher() {
    let place = Place::new();
    place.prepare();
    let workspace = place.workspace.clone();
    drop(place.launcher);
    assert!(inside(&workspace).is_empty());
}

/// Does nothing as a test: with the variable set, this process prepares a sandbox and waits.
#[test]
fn preparing_process() {
    let Some(workspace) = std::env::var_os(WORKSPACE) else {
        return;
    };
    let launcher = sandboxed(Path::new(&workspace), &[]);
    launcher.prepare();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_prepared_sandbox_ends_with_a_killed_orchestrator() {
    let place = Place::new();
    let mut orchestrator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "prepared::preparing_process"])
        .env(WORKSPACE, &place.workspace)
        .spawn()
        .unwrap();
    until("a sandbox waits for its command", || {
        inside(&place.workspace).len() == 2
    });
    orchestrator.kill().unwrap();
    orchestrator.wait().unwrap();
    until("it is gone", || inside(&place.workspace).is_empty());
}
