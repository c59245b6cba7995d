//! SIGKILL and disk errors at every call that writes, syncs, renames or removes.
//!
//! `strace` kills the binary, or fails its call, at the first, second, … such call; after each the same
//! command must reach the end of an undisturbed run. Skipped where tracing is not allowed.
//! Children are detached when they call `execve`, so that only the orchestrator is hit.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::needs::may_trace;
use crate::support::project::{BINARY, Project, RUN, answer_spec};
use crate::support::reply;
use crate::support::running::{Ran, Running};
use crate::support::server::Server;

/// The calls that change the disk, besides `write`. `?` makes `strace` ignore a call that this system lacks.
const CHANGES: &str =
    "fsync fdatasync ftruncate ?rename renameat ?renameat2 ?unlink unlinkat ?mkdir mkdirat ?rmdir";
/// The calls that create files or lock the root.
const OPENINGS: &str = "openat openat2 flock";
/// Errors of an open or a rename, used in turn.
const REFUSALS: [(&str, &str); 5] = [
    ("EMFILE", "Too many open files"),
    ("EACCES", "Permission denied"),
    ("EROFS", "Read-only file system"),
    ("EINTR", "Interrupted system call"),
    ("EDQUOT", "quota"),
];

/// A run of a template that needs one patch.
pub(crate) fn from_a_template() -> Project {
    Project::new()
        .spec(answer_spec() + "generator: {provider: template, template: template/}\n")
        .file("specs/template/0/answer.txt", "41\n")
        .file("specs/template/0/folder/extra.txt", "x\n")
        .file("specs/template/1/answer.txt", "42\n")
}

/// Runs the binary with these options of `strace`.
pub(crate) fn traced(project: &Project, options: &[&str]) -> Ran {
    let always = ["-f", "--detach-on=execve", "-qq", "-e", "signal=none"];
    let arguments = [&always[..], options, &[BINARY], RUN].concat();
    let ran = Running::start(project.command("strace", &arguments), project.root()).wait();
    assert!(!ran.stderr.contains("strace: "), "{}", ran.transcript());
    ran
}

/// Runs the binary with a fault at one call.
pub(crate) fn disturbed(project: &Project, call: &str, fault: &str) -> Ran {
    traced(
        project,
        &[
            "-o",
            "/dev/null",
            "-e",
            &format!("trace={call}"),
            "-e",
            &format!("inject={call}:{fault}"),
        ],
    )
}

/// The numbers of these calls in an undisturbed run; of those that open files, only of those that make one.
///
/// `strace` counts per thread, so a number means that call in any of them.
pub(crate) fn numbers(project: &Project, call: &str) -> BTreeSet<u32> {
    let file = project.outside("calls");
    traced(
        project,
        &[
            "-o",
            &file.display().to_string(),
            "-e",
            &format!("trace={call}"),
        ],
    )
    .exits(0);
    let (mut of_threads, mut numbers) = (BTreeMap::<String, u32>::new(), BTreeSet::new());
    for line in std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .filter(|line| line.contains('('))
    {
        let number = of_threads
            .entry(line.split(' ').next().unwrap_or_default().to_owned())
            .or_default();
        *number += 1;
        if !call.contains("open") || line.contains("O_CREAT") {
            numbers.insert(*number);
        }
    }
    numbers
}

/// The result of a run without ids and times.
pub(crate) fn end(project: &Project) -> (Value, BTreeMap<String, Vec<u8>>) {
    let mut state = project.state();
    for field in ["run_id", "created_at", "updated_at"] {
        state[field] = Value::Null;
    }
    // Reading the phases checks the log and that no transition is missing.
    project.phases();
    (state, project.workspace_files())
}

/// Disturbs a run at each of the calls in turn; returns how often that ended it.
fn disturb_everywhere(
    calls: &str,
    fault: impl Fn(u32) -> String,
    expected: impl Fn(&Ran) -> bool,
) -> u32 {
    let undisturbed = from_a_template();
    undisturbed.run(RUN).exits(0);
    let goal = end(&undisturbed);
    let mut ended = 0;
    for call in calls.split(' ') {
        for number in numbers(&from_a_template(), call) {
            let (project, fault) = (from_a_template(), fault(number));
            let ran = disturbed(&project, call, &fault);
            assert!(expected(&ran), "{call} {fault}\n{}", ran.transcript());
            let again = project.run(RUN);
            assert_eq!(
                again.code,
                Some(0),
                "{call} {fault}\n{}\nthen\n{}",
                ran.transcript(),
                again.transcript()
            );
            assert_eq!(end(&project), goal, "{call} {fault}");
            project.nothing_left();
            ended += u32::from(ran.code != Some(0));
        }
    }
    ended
}

fn killed(ran: &Ran) -> bool {
    // The last calls of a run may come after its result; with one thread less there is one call less.
    ran.signal == Some(9) || ran.code == Some(0)
}

/// It stopped with a message, or succeeded anyway.
fn stopped_or_succeeded(ran: &Ran) -> bool {
    matches!(ran.code, Some(0 | 74))
}

#[test]
fn a_run_killed_at_any_write_continues() {
    if may_trace() {
        let points = disturb_everywhere(
            "write",
            |number| format!("signal=KILL:when={number}"),
            killed,
        );
        assert!(10 < points, "only {points} writes");
    }
}

#[test]
fn a_run_killed_at_any_change_of_the_disk_continues() {
    if may_trace() {
        let points = disturb_everywhere(
            CHANGES,
            |number| format!("signal=KILL:when={number}"),
            killed,
        );
        assert!(20 < points, "only {points} changes");
    }
}

#[test]
fn a_run_killed_before_any_open_mkdir_or_lock_continues() {
    if may_trace() {
        let points = disturb_everywhere(
            OPENINGS,
            |number| format!("signal=KILL:when={number}"),
            killed,
        );
        assert!(10 < points, "only {points} openings");
    }
}

#[test]
fn a_run_continues_after_one_failed_open_or_rename() {
    if may_trace() {
        let refusal = |number: u32| REFUSALS[number as usize % REFUSALS.len()];
        let fault = |number| format!("error={}:when={number}", refusal(number).0);
        let points = disturb_everywhere("openat openat2 renameat mkdirat", fault, |ran| {
            let names_it = REFUSALS.iter().any(|(_, words)| ran.stderr.contains(words));
            ran.code == Some(0) || (ran.code == Some(74) && names_it)
        });
        assert!(10 < points, "only {points} refusals");
    }
}

#[test]
fn a_run_continues_after_one_disk_error_at_any_point() {
    if may_trace() {
        disturb_everywhere(
            "write",
            |number| format!("error=ENOSPC:when={number}"),
            stopped_or_succeeded,
        );
        disturb_everywhere(
            "fsync renameat",
            |number| format!("error=EIO:when={number}"),
            stopped_or_succeeded,
        );
    }
}

#[test]
fn a_run_continues_after_a_full_disk_at_any_point() {
    if may_trace() {
        disturb_everywhere(
            "write",
            |number| format!("error=ENOSPC:when={number}+"),
            stopped_or_succeeded,
        );
    }
}

/// The answers in all logs of the project.
pub(crate) fn recorded(project: &Project) -> usize {
    let logs = project
        .files()
        .into_iter()
        .filter(|(path, _)| path.starts_with("logs/"));
    logs.map(|(_, content)| {
        String::from_utf8_lossy(&content)
            .matches("\"event\":\"ModelAnswered\"")
            .count()
    })
    .sum()
}

#[test]
fn a_run_killed_at_any_sync_requests_no_recorded_answer_again() {
    if !may_trace() {
        return;
    }
    let model = || {
        Server::answering(
            |request| match request.text().contains("answer.txt says 41") {
                true => reply::answer("42"),
                false => reply::answer("41"),
            },
        )
    };
    let server = model();
    for number in numbers(&Project::with(answer_spec(), &server), "fsync") {
        let server = model();
        let project = Project::with(answer_spec(), &server);
        disturbed(&project, "fsync", &format!("signal=KILL:when={number}"));
        let (asked, kept) = (server.count(), recorded(&project));
        project.run(RUN).exits(0);
        assert_eq!(server.count() - asked, 2 - kept, "fsync {number}");
        assert_eq!(project.events("ModelAnswered").len(), 2, "fsync {number}");
        assert_eq!(project.state()["retry_count"], 1, "fsync {number}");
    }
}
