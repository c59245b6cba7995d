//! Power cuts: unsynced data is lost, and nothing that was acknowledged may be.
//!
//! The root is on an ext4 image behind a loop device. The binary is killed at a call, and the image is
//! copied at once: it has what reached the device; dirty pages are lost, as in a power cut.
//! The copy is mounted, which replays its journal, and the run is resumed in it. Skipped where mounting
//! or tracing is not allowed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::agent_mode::{agent_spec, done, solve};
use crate::crash::{end, numbers};
use crate::support::needs;
use crate::support::needs::may_trace;
use crate::support::project::{BINARY, Project, RUN, answer_spec, checked_by};
use crate::support::reply::{self, bash};
use crate::support::running::{Ran, Running};
use crate::support::server::Server;

/// Cuts for each kind of call; with more calls some are left out.
const MOST_CUTS: usize = 12;

/// Makes the disk, runs on it until the fault, and keeps the content of the device (`cut`) and of the mount (`seen`).
const CUT: &str = r#"
mount -o loop,commit=9999 ../disk "$PWD"
cd "$PWD"
cp -r ../specs .
sync -f .
$TRACER "$@" || true
cp ../disk ../cut
cp -r . ../seen
"#;

/// Resumes the run on the disk after the cut.
const GO_ON: &str = r#"
mount -o loop ../cut "$PWD"
cd "$PWD"
cp -r . ../left
"$@"
cp -r . ../resumed
"#;

fn model() -> Server {
    Server::answering(
        |request| match request.text().contains("answer.txt says 41") {
            true => reply::answer("42"),
            false => reply::answer("41"),
        },
    )
}

/// A project whose root will be a separate disk; `None` where that is not possible.
fn on_a_disk(server: &Server, fault: &str) -> Option<Project> {
    let tracer = format!("strace -f --detach-on=execve -qq -o /dev/null {fault}");
    disk_for(Project::with(answer_spec(), server).env("TRACER", &tracer))
}

/// Makes a disk for the root of a project, and moves its specs beside it.
pub(crate) fn disk_for(project: Project) -> Option<Project> {
    fs::rename(project.path("specs"), project.outside("specs")).unwrap();
    fs::write(project.outside("cut.sh"), CUT).unwrap();
    fs::write(project.outside("go_on.sh"), GO_ON).unwrap();
    let path = "PATH=\"$PATH:/usr/sbin:/sbin\"";
    let line = format!(
        "{path}; truncate -s 16M ../disk && mkfs.ext4 -q -F ../disk && unshare -m mount -o loop ../disk \"$PWD\""
    );
    let ran = project.run_in_shell(&line, &[]);
    if ran.code != Some(0) {
        needs::skip(format!(
            "a loop device cannot be mounted here: {}",
            ran.stderr.trim()
        ));
        return None;
    }
    Some(project)
}

/// Runs `cut.sh` or `go_on.sh` with the disk of a project as its root.
pub(crate) fn on_disk(project: &Project, script: &str, arguments: &[&str]) -> Ran {
    let line = format!("exec unshare -m sh -e ../{script} \"$@\"");
    project.run_in_shell(&line, arguments)
}

fn in_private_mount_namespace(project: &Project, script: &str) -> Ran {
    on_disk(project, script, RUN)
}

/// The state in a folder, if there is one; it is always complete.
fn state(folder: &Path) -> Option<Value> {
    let text = fs::read(folder.join("state.json")).ok()?;
    Some(
        serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text))),
    )
}

/// The complete lines of all logs in a folder.
fn log(folder: &Path) -> Vec<Value> {
    let logs = fs::read_dir(folder.join("logs"))
        .into_iter()
        .flatten()
        .flatten();
    let files = logs.filter(|entry| entry.path().is_file());
    let texts =
        files.map(|entry| String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned());
    texts
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

fn count(log: &[Value], event: &str) -> usize {
    log.iter().filter(|line| line["event"] == event).count()
}

/// The progress of a run.
fn progress(phase: &Value, retry_count: &Value) -> u64 {
    let retries = retry_count.as_u64().unwrap_or(0);
    match phase.as_str().unwrap_or_default() {
        "INIT" => 0,
        "GENERATING" => 1,
        "TESTING" => 2 + 2 * retries,
        _ => 3 + 2 * retries,
    }
}

/// The progress of a run according to its log. The state that says TESTING is durable when the run moves on from it; until
/// then the state before it may be what is left.
fn acknowledged(log: &[Value]) -> u64 {
    let transitions = log
        .iter()
        .filter(|line| line["event"] == "TransitionOccurred");
    transitions
        .map(|line| {
            let begins_checks = u64::from(line["to_state"] == "TESTING");
            progress(&line["to_state"], &line["metadata"]["retry_count"]) - begins_checks
        })
        .max()
        .unwrap_or(0)
}

/// Cuts the power at a call and resumes; false where that is not possible.
fn check_cut(call: &str, number: u32) -> bool {
    let server = model();
    let Some(project) = on_a_disk(
        &server,
        &format!("-e trace={call} -e inject={call}:signal=KILL:when={number}"),
    ) else {
        return false;
    };
    in_private_mount_namespace(&project, "cut.sh").exits(0);
    let asked = server.count();
    let ran = in_private_mount_namespace(&project, "go_on.sh");
    assert_eq!(ran.code, Some(0), "{call} {number}: {}", ran.transcript());
    let (seen, left) = (log(&project.outside("seen")), log(&project.outside("left")));
    let kept = state(&project.outside("left"))
        .map_or(0, |state| progress(&state["state"], &state["retry_count"]));
    assert!(
        acknowledged(&seen) <= kept,
        "{call} {number}: acknowledged progress is lost"
    );
    let recorded = count(&left, "ModelAnswered");
    assert!(
        count(&seen, "FilesApplied") <= recorded,
        "{call} {number}: an answer that was used is lost"
    );
    assert_eq!(
        server.count() - asked,
        2 - recorded,
        "{call} {number}: paid twice"
    );
    fs::remove_dir(project.root()).unwrap();
    fs::rename(project.outside("resumed"), project.root()).unwrap();
    let (state, files) = end(&project);
    assert_eq!(
        (state["state"].as_str(), state["retry_count"].as_u64()),
        (Some("SUCCESS"), Some(1)),
        "{call} {number}"
    );
    assert_eq!(
        files.into_keys().collect::<Vec<_>>(),
        ["answer.txt"],
        "{call} {number}"
    );
    true
}

fn cut_everywhere(call: &str) {
    if !may_trace() {
        return;
    }
    let server = model();
    let numbers: Vec<u32> = numbers(&Project::with(answer_spec(), &server), call)
        .into_iter()
        .collect();
    let step = numbers.len().div_ceil(MOST_CUTS).max(1);
    for number in numbers.into_iter().step_by(step) {
        if !check_cut(call, number) {
            return;
        }
    }
}

#[test]
fn a_run_continues_after_a_power_cut_before_any_sync() {
    cut_everywhere("fsync");
}

#[test]
fn a_run_continues_after_a_power_cut_before_any_rename() {
    cut_everywhere("renameat");
}

#[test]
fn a_run_continues_after_a_power_cut_between_writes() {
    cut_everywhere("write");
}

/// Runs on the disk until the power is cut.
const CUT_NOW: &str = r#"
mount -o loop,commit=9999 ../disk "$PWD"
cd "$PWD"
cp -r ../specs .
sync -f .
"$@" &
read _ < ../now
cp ../disk ../cut
kill -9 $!
"#;

/// Cuts the power after this many requests and resumes on the disk; `None` where that is not possible.
/// The disk after the cut is in `left`, after the resumed run in `resumed`.
fn cut_at_request(project: Project, server: &Server, request: usize) -> Option<Project> {
    let project = disk_for(project)?;
    fs::write(project.outside("cut_now.sh"), CUT_NOW).unwrap();
    project.run_in_shell("mkfifo ../now", &[]).exits(0);
    let line = "exec unshare -m sh -e ../cut_now.sh \"$@\"";
    let arguments = [&["-c", line, "sh", BINARY], RUN].concat();
    let running = Running::start(project.command("sh", &arguments), project.root());
    server.wait_for(request);
    fs::write(project.outside("now"), "\n").unwrap();
    running.wait();
    server.release();
    in_private_mount_namespace(&project, "go_on.sh").exits(0);
    Some(project)
}

/// The content of a workspace file after the cut.
fn left(project: &Project, path: &str) -> String {
    let bytes = fs::read(project.outside("left/workspace").join(path)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn copied_files_survive_a_power_cut() {
    for count in [2, 40] {
        let server = Server::start([reply::answer("42").held(), reply::answer("42")]);
        let project = Project::with(
            answer_spec() + "workspace: {copy: [starter/], protect: [tests/]}\n",
            &server,
        );
        let mut expected = Vec::new();
        for number in 0..count {
            let (folder, text) = (
                ["starter", "tests"][number % 2],
                format!("{number}\n").repeat(900),
            );
            let path = format!("{folder}/deep/{number}.txt");
            project.write(&format!("specs/{path}"), &text);
            expected.push((path, text));
        }
        let Some(project) = cut_at_request(project, &server, 1) else {
            return;
        };
        assert_eq!(
            state(&project.outside("left")).unwrap()["state"],
            "GENERATING"
        );
        for (path, text) in expected {
            assert_eq!(left(&project, &path), text, "{path} of {count}");
        }
        assert_eq!(
            state(&project.outside("resumed")).unwrap()["state"],
            "SUCCESS"
        );
    }
}

#[test]
fn the_clean_up_of_a_hidden_check_survives_a_power_cut() {
    let files =
        |answer: &str| reply::files(&[("answer.txt", answer), ("lib.txt", &"keep\n".repeat(900))]);
    let server = Server::start([files("41\n"), files("42\n").held(), files("42\n")]);
    let hidden = "  - name: hidden\n    hidden: true\n    command: [sh, -c, \"echo broken > lib.txt; rm -f gone; \
                  mkdir -p left; touch left/x; grep -qx 42 answer.txt\"]\n";
    let project = Project::with(checked_by("true") + hidden, &server);
    let Some(project) = cut_at_request(project, &server, 2) else {
        return;
    };
    assert_eq!(
        state(&project.outside("left")).unwrap()["state"],
        "PATCHING"
    );
    assert_eq!(left(&project, "lib.txt"), "keep\n".repeat(900));
    assert!(!project.outside("left/workspace/left").exists());
    assert_eq!(
        state(&project.outside("resumed")).unwrap()["state"],
        "SUCCESS"
    );
}

#[test]
fn files_written_by_tools_survive_a_power_cut_after_the_phase() {
    let first = bash("echo 41 > answer.txt; yes keep | head -900 > lib.txt");
    let server = Server::start([first, done(), solve().held(), solve(), done()]);
    let project = Project::with(agent_spec(""), &server);
    let Some(project) = cut_at_request(project, &server, 3) else {
        return;
    };
    assert_eq!(left(&project, "lib.txt"), "keep\n".repeat(900));
    assert_eq!(left(&project, "answer.txt"), "41\n");
    assert_eq!(
        state(&project.outside("resumed")).unwrap()["state"],
        "SUCCESS"
    );
}

#[test]
fn after_a_power_cut_the_model_gets_the_list_of_lost_changes() {
    let server = Server::start([
        bash("yes keep | head -900 > lib.txt"),
        done().held(),
        solve(),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    let Some(project) = cut_at_request(project, &server, 2) else {
        return;
    };
    assert_ne!(
        left(&project, "lib.txt"),
        "keep\n".repeat(900),
        "were it there, nothing would be shown here"
    );
    let returned = log(&project.outside("left"))
        .into_iter()
        .find(|line| line["event"] == "ToolReturned")
        .unwrap();
    let changed = &returned["changed"][0];
    assert_eq!(
        (&changed["path"], &changed["size"]),
        (&"lib.txt".into(), &4500.into()),
        "{returned}"
    );
    let said = server.requests()[2].text();
    assert!(
        said.contains("not as they were") && said.contains("lib.txt ("),
        "{said}"
    );
    assert!(!said.contains("the files are as they were"), "{said}");
    assert_eq!(
        state(&project.outside("resumed")).unwrap()["state"],
        "SUCCESS"
    );
}

#[test]
fn unsynced_data_is_lost_in_a_power_cut() {
    // Otherwise the tests above could not detect a loss.
    let server = model();
    let fault = "-e trace=fsync,fdatasync -e inject=fsync:retval=0 -e inject=fdatasync:retval=0";
    let Some(project) = on_a_disk(&server, fault).filter(|_| may_trace()) else {
        return;
    };
    in_private_mount_namespace(&project, "cut.sh").exits(0);
    assert_eq!(state(&project.outside("seen")).unwrap()["state"], "SUCCESS");
    in_private_mount_namespace(&project, "go_on.sh").exits(0);
    assert!(state(&project.outside("left")).is_none_or(|state| state["state"] != "SUCCESS"));
}
