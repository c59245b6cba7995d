//! A supervisor that is started ahead of its check: when it is used, when it is not, and that none is left.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, sandbox_policy,
};
use orchestrator::internals::process::{self, CallerEnv, Job, JobChannels, JobEnd, Launcher};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal};
use rustix::process::{kill_process, pidfd_getfd, pidfd_open};
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

    /// The supervisor of the prepared sandbox: the parent of its init.
    fn supervisor(&self) -> Pid {
        let init = *inside(&self.workspace).first().unwrap();
        let status = fs::read_to_string(format!("/proc/{init}/status")).unwrap();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        Pid::from_raw(parent.unwrap().trim().parse().unwrap()).unwrap()
    }

    /// Sends a signal to the processes in the prepared sandbox.
    fn signal(&self, signal: Signal) {
        for pid in inside(&self.workspace) {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
        }
    }

    /// Runs a check, and `act`s once it was sent to a supervisor that does not read it.
    fn run_and_act_when_sent(&self, supervisor: Pid, act: impl FnOnce() + Send) -> PathBuf {
        let pidfd = pidfd_open(supervisor, PidfdFlags::empty()).unwrap();
        let stdin = pidfd_getfd(&pidfd, 0, PidfdGetfdFlags::empty()).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                until("the command was sent", || {
                    0 < ioctl_fionread(&stdin).unwrap()
                });
                drop(stdin);
                act();
            });
            self.run()
        })
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
    let finished = process::run(
        launcher,
        &shell_job(script, workspace),
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

fn shell_job(script: &str, workspace: &Path) -> Job {
    Job {
        command: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        cwd: workspace.to_owned(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        timeout: Duration::from_secs(100),
    }
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
        place.signal(Signal::KILL);
        until("it is gone", || inside(&place.workspace).is_empty());
    });
}

#[test]
fn a_prepared_sandbox_that_turns_out_to_be_dead_is_replaced() {
    let place = Place::new();
    let (prepared, _open) = place.prepare();
    let supervisor = place.supervisor();
    // It cannot report the death of its sandbox before the command is sent.
    kill_process(supervisor, Signal::STOP).unwrap();
    place.signal(Signal::KILL);
    until("it is gone", || inside(&place.workspace).is_empty());
    let used = place.run_and_act_when_sent(supervisor, || {
        kill_process(supervisor, Signal::CONT).unwrap();
    });
    assert_ne!(used, prepared);
}

#[test]
fn a_prepared_supervisor_that_is_killed_before_the_command_begins_is_replaced() {
    let place = Place::new();
    let (prepared, _open) = place.prepare();
    let supervisor = place.supervisor();
    place.signal(Signal::STOP);
    let used = place.run_and_act_when_sent(supervisor, || {
        kill_process(supervisor, Signal::KILL).unwrap();
    });
    assert_ne!(used, prepared);
}

#[test]
fn a_command_that_has_begun_in_a_prepared_sandbox_is_not_repeated() {
    let place = Place::new();
    place.prepare();
    let begun = place.workspace.join("begun");
    let job = shell_job("echo begun >> begun; exec sleep 1000", &place.workspace);
    let finished = thread::scope(|scope| {
        scope.spawn(|| {
            until("it has begun", || begun.exists());
            place.signal(Signal::KILL);
        });
        let never = CancelToken::never().unwrap();
        process::run(&place.launcher, &job, JobChannels::NONE, &never).unwrap()
    });
    assert_eq!(finished.ended, JobEnd::Signalled(Signal::KILL.as_raw()));
    assert_eq!(fs::read_to_string(begun).unwrap(), "begun\n");
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
