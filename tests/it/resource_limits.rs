//! Resource limits of checks and environments: an exceeded limit ends the command and is reported with its value.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use orchestrator::internals::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};
use orchestrator::internals::process::{ChildProcess, Job, JobEnd, Launcher, StopMode};

use crate::support::project::{BINARY, Project, RUN_JSON, checked_by};
use crate::support::reply;
use crate::support::server::Server;

/// Runs a check that does something only in its first round; returns the report to the model.
fn report_of(limits: &str, script: &str) -> String {
    let script = format!("grep -qx 42 answer.txt && exit 0; {script}; sleep 60");
    let spec = format!("{}sandbox: {{limits: {{{limits}}}}}\n", checked_by(&script));
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(spec, &server);
    let ran = project.run(RUN_JSON).exits(0);
    assert_eq!(ran.result()["retry_count"], 1, "{}", ran.transcript());
    project.nothing_left();
    server.requests()[1].text()
}

#[test]
fn growth_of_the_workspace_is_limited() {
    let told = report_of("disk: 20 MiB", "head -c 40000000 /dev/zero > large");
    assert!(
        told.contains("the workspace grew by 3")
            && told.contains("the limit is 20 MiB (sandbox.limits.disk)"),
        "{told}"
    );
}

#[test]
fn fast_growth_is_detected() {
    let told = report_of("disk: 20 MiB", "fallocate -l 40000000 large");
    assert!(
        told.contains("the limit is 20 MiB (sandbox.limits.disk)"),
        "{told}"
    );
    for (limits, script) in [
        // Within one tick of the file clock it could count for the next round as well.
        (
            "disk: 1 MiB",
            "head -c 4000000 /dev/zero > large; sleep 0.05; exit 0",
        ),
        (
            "files: 100",
            "mkdir many; cd many && seq 200 | xargs touch; sleep 0.05; exit 0",
        ),
    ] {
        let told = report_of(limits, script);
        let (field, number) = limits.split_once(": ").unwrap();
        assert!(
            told.contains(&format!("the limit is {number} (sandbox.limits.{field})")),
            "{told}"
        );
    }
}

#[test]
fn a_file_size_limit_is_reported_to_the_model() {
    let told = report_of("files: 1000", "exec truncate -s 5G large");
    assert!(told.contains("one file holds 4 GiB"), "{told}");
}

#[test]
fn the_number_of_files_is_limited() {
    let told = report_of("files: 200", "for i in $(seq 400); do : > file$i; done");
    assert!(
        told.contains("the limit is 200 (sandbox.limits.files)"),
        "{told}"
    );
}

#[test]
fn memory_of_the_process_tree_is_limited() {
    // Each is below the limit, and both together are above it.
    let one = "python3 -c 'import time; x = bytearray(120 << 20); time.sleep(60)' &";
    let told = report_of("memory: 200 MiB", &format!("{one} {one} :"));
    assert!(
        told.contains("the limit is 200 MiB (sandbox.limits.memory)"),
        "{told}"
    );
}

#[test]
fn shared_memory_is_counted_once() {
    // Five forks of a large process; the last one passes.
    let script = "import os, time\\nx = bytearray(100 << 20)\\nfor i in range(5):\\n  if os.fork() == 0: time.sleep(1.2); os._exit(0)\\ntime.sleep(1.2)";
    let spec = format!(
        "{}sandbox: {{limits: {{memory: 200 MiB}}}}\n",
        checked_by(&format!("printf '{script}' | python3 -"))
    );
    let server = Server::start([reply::answer("42")]);
    Project::with(spec, &server).run(RUN_JSON).exits(0);
}

#[test]
fn processes_and_threads_are_limited() {
    let told = report_of("processes: 20", "for i in $(seq 30); do sleep 60 & done");
    assert!(told.contains("20") && told.contains("process"), "{told}");
}

#[test]
fn a_check_below_its_limits_is_left_alone() {
    let script =
        "head -c 4000000 /dev/zero > small; for i in $(seq 20); do : > file$i; done; sleep 1.5";
    let limits = "sandbox: {limits: {disk: 20 MiB, files: 200, memory: 200 MiB, processes: 100}}\n";
    let server = Server::start([reply::answer("42")]);
    Project::with(checked_by(script) + limits, &server)
        .run(RUN_JSON)
        .exits(0);
}

#[test]
fn invalid_limits_are_refused() {
    for limits in [
        "processes: 0",
        "processes: many",
        "sockets: 5",
        "disk: 5 parsecs",
        "memory: -1",
        "files: 1.5",
    ] {
        let project = Project::new().spec(format!(
            "{}sandbox: {{limits: {{{limits}}}}}\n",
            checked_by("true")
        ));
        project.run(RUN_JSON).exits(65);
    }
}

fn policy(workspace: &Path, limits: ResourceLimits) -> SandboxPolicy {
    SandboxPolicy {
        mode: SandboxMode::Reduced,
        write: vec![workspace.to_owned()],
        freeze: Vec::new(),
        reopen: Vec::new(),
        read: ["/usr", "/bin", "/lib", "/lib64", "/etc"]
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.is_dir())
            .collect(),
        links: Vec::new(),
        hide: Vec::new(),
        home: workspace.to_owned(),
        tmp: workspace.to_owned(),
        private: None,
        devices: Vec::new(),
        network: false,
        limits,
    }
}

fn child(script: &str, policy: &SandboxPolicy) -> (ChildProcess, UnixStream) {
    let job = Job {
        command: ["sh", "-c", script].map(Into::into).to_vec(),
        cwd: policy.write[0].clone(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        timeout: Duration::MAX,
    };
    ChildProcess::start(
        &Launcher::open(Path::new(BINARY)).with_policy(policy.clone()),
        &job,
    )
    .unwrap()
}

#[test]
fn an_environment_that_exceeds_a_limit_is_ended_alone() {
    let folder = tempfile::tempdir().unwrap();
    let policy = policy(
        folder.path(),
        ResourceLimits {
            disk: 5 << 20,
            ..ResourceLimits::default()
        },
    );
    let (mut quiet, quiet_channel) = child("read line", &policy);
    let (mut loud, mut loud_channel) = child(
        "head -c 9000000 /dev/zero > large; while :; do :; done",
        &policy,
    );
    // The other end of the channel is the stdin of the child.
    let _ = loud_channel.read(&mut [0]);
    let ended = loud.end(StopMode::Now);
    assert!(
        matches!(&ended, JobEnd::Limit(words) if words.contains("the limit is 5 MiB")),
        "{ended:?}"
    );
    assert_eq!(quiet.ended(), None);
    drop(quiet_channel);
    // A later test may remove them.
    let (mut next, mut next_channel) = child("rm large; sleep 1", &policy);
    let _ = next_channel.read(&mut [0]);
    poll(
        &mut [PollFd::from_borrowed_fd(next.over(), PollFlags::IN)],
        None,
    )
    .unwrap();
    assert_eq!(next.ended(), Some(&JobEnd::Exited(0)));
}
