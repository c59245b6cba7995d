//! SIGKILL and disk errors at calls of a workflow that write, sync, rename, create or remove.
//!
//! The binary is ended, or its call fails, at the first, second, … such call of all its threads; after each the same
//! command must reach the end of an undisturbed run. By default some calls are left out: `CRASH_STEP=1` tries each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use orchestrator::internals::conversation::{LogState, Projection};
use orchestrator::internals::events::Event;
use orchestrator::internals::state::WorkflowState;
use orchestrator::internals::workflow::WorkflowLog;
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::Value;

use crate::disk_faults::preload;
use crate::support::fault_tracer::{CallFault, Disturbance, Traced, disturbed, tracer};
use crate::support::full_workflow::{
    FOUR_JOBS, LeftRun, ONE_JOB, WorkflowResult, check_end, model, private_directories, project,
};
use crate::support::project::Project;

const WRITES: &str = "write,pwrite64";
const SYNCS_AND_RENAMES: &str = "fsync,fdatasync,rename,renameat,renameat2";
/// Calls that create, empty or remove files and folders.
const ENTRIES: &str = "openat,openat2,open,mkdir,mkdirat,unlink,unlinkat,rmdir,ftruncate,linkat";
pub(crate) const ALL: &str = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,openat,openat2,open,mkdir,mkdirat,unlink,\
                   unlinkat,rmdir,ftruncate,linkat";

/// Every so many calls, unless the environment says another number.
pub(crate) fn step(usual: u32) -> u32 {
    let given = std::env::var("CRASH_STEP").ok();
    given.and_then(|step| step.parse().ok()).unwrap_or(usual)
}

/// The end of an undisturbed run.
pub(crate) fn undisturbed(arguments: &[&str]) -> WorkflowResult {
    let server = model();
    let project = project(&server);
    let ran = project.run(arguments).exits(0);
    WorkflowResult::read(&project, &server, &ran)
}

/// Disturbs runs, each at another number, until one is not hit any more; returns how many were hit. All numbers after
/// which a run did not go on as it should are named.
fn disturb_everywhere(
    arguments: &[&str],
    step: u32,
    disturbance: impl Fn(u32) -> Disturbance<'static>,
    is_expected: impl Fn(&Project, &Traced) -> bool,
) -> u32 {
    let Some(tracer) = tracer() else {
        return u32::MAX;
    };
    let goal = undisturbed(arguments);
    let (mut hits, mut failed) = (0, Vec::new());
    for number in (1..).step_by(step as usize) {
        let server = model();
        let project = project(&server);
        let disturbance = disturbance(number);
        let traced = disturbed(&project, tracer, &disturbance, arguments);
        let Some(hit) = traced.hit.clone() else {
            traced.ran.exits(0);
            break;
        };
        let checked = catch_unwind(AssertUnwindSafe(|| {
            assert!(
                is_expected(&project, &traced),
                "{}",
                traced.ran.transcript()
            );
            let left = LeftRun::read(&project, &server);
            check_saved_state(&left);
            let ran = project.run(arguments);
            check_end(&project, &server, &left, (&ran, &goal));
        }));
        if checked.is_err() {
            eprintln!("the disturbed run was\n{}", traced.ran.transcript());
            failed.push(format!("{hit}, call {number}"));
        }
        hits += 1;
    }
    let calls = disturbance(1).calls;
    assert!(failed.is_empty(), "of {hits} of {calls}: {failed:#?}");
    eprintln!("{hits} of {calls} were disturbed");
    hits
}

/// The saved state is what the log says up to its line.
pub(crate) fn check_saved_state(left: &LeftRun) {
    let Some(saved) = &left.state else {
        return;
    };
    let (mut log, mut usage) = (WorkflowLog::default(), LogState::default());
    let seq = saved["seq"].as_u64().unwrap();
    for (line, text) in (1..=seq).zip(left.record.text.lines()) {
        let event = Event::deserialize(serde_json::from_str::<Value>(text).unwrap()).unwrap();
        log.apply(line, &event);
        usage.apply(line, &event);
    }
    let mut state = WorkflowState::parse(saved.to_string().as_bytes()).unwrap();
    log.copy_to(&mut state);
    let mut folded = serde_json::to_value(&state).unwrap();
    folded["usage"] = serde_json::to_value(usage.usage().totals(true)).unwrap();
    // Read back like the saved one: reading a number may change its last digit.
    let folded: Value = serde_json::from_str(&folded.to_string()).unwrap();
    assert_eq!(&folded, saved);
}

fn is_killed(_: &Project, traced: &Traced) -> bool {
    traced.ran.signal == Some(9)
}

#[test]
fn a_workflow_killed_at_any_sync_or_rename_continues() {
    let points = disturb_everywhere(
        ONE_JOB,
        step(1),
        |number| Disturbance::kill(SYNCS_AND_RENAMES, number),
        is_killed,
    );
    assert!(50 < points, "only {points} syncs and renames");
}

#[test]
fn a_workflow_killed_at_any_write_continues() {
    let points = disturb_everywhere(
        ONE_JOB,
        step(5),
        |number| Disturbance::kill(WRITES, number),
        is_killed,
    );
    assert!(10 < points, "only {points} writes");
}

#[test]
fn a_workflow_killed_before_it_creates_or_removes_anything_continues() {
    let points = disturb_everywhere(
        ONE_JOB,
        step(5),
        |number| Disturbance::kill(ENTRIES, number),
        is_killed,
    );
    assert!(8 < points, "only {points} calls");
}

#[test]
fn a_workflow_with_concurrent_agents_is_killed_and_continues() {
    let points = disturb_everywhere(
        FOUR_JOBS,
        step(17),
        |number| Disturbance::kill(ALL, number),
        is_killed,
    );
    assert!(8 < points, "only {points} calls");
}

#[test]
fn a_workflow_that_is_killed_again_after_each_kill_continues() {
    let Some(tracer) = tracer() else {
        return;
    };
    let goal = undisturbed(FOUR_JOBS);
    let mut repeatedly = 0;
    for number in (1..).step_by(step(37) as usize) {
        let server = model();
        let project = project(&server);
        let kill = |number| {
            let kill = Disturbance::kill(ALL, number);
            disturbed(&project, tracer, &kill, FOUR_JOBS).hit
        };
        if kill(number).is_none() {
            break;
        }
        // Soon after the start of each: the next command has something left to do.
        let kills = (1..4).take_while(|round| kill(30 + 7 * round).is_some());
        repeatedly += u32::from(1 < kills.count());
        let left = LeftRun::read(&project, &server);
        check_saved_state(&left);
        let ran = project.run(FOUR_JOBS);
        check_end(&project, &server, &left, (&ran, &goal));
    }
    assert!(3 < repeatedly, "only {repeatedly} runs");
}

#[test]
fn a_torn_write_of_a_workflow_is_repaired() {
    let Some(library) = preload() else {
        return;
    };
    let goal = undisturbed(ONE_JOB);
    let mut torn = 0;
    for number in (1..).step_by(step(13) as usize) {
        let server = model();
        let project = project(&server)
            .env("LD_PRELOAD", library)
            .env("FAULT_WRITE", &format!("torn {number}"));
        let ran = project.run(ONE_JOB);
        if ran.code == Some(0) {
            break;
        }
        assert_eq!(ran.signal, Some(9), "write {number}: {}", ran.transcript());
        let left = LeftRun::read(&project, &server);
        check_saved_state(&left);
        let ran = project.run_in_shell("unset FAULT_WRITE; exec \"$@\"", ONE_JOB);
        check_end(&project, &server, &left, (&ran, &goal));
        torn += 1;
    }
    assert!(4 < torn, "only {torn} writes");
}

/// It stopped with a message that names the error, or succeeded anyway; a private directory may be left.
fn stopped_or_succeeded(traced: &Traced, words: &str) -> bool {
    let ran = &traced.ran;
    ran.code == Some(0) || ran.code == Some(74) && ran.stderr.contains(words)
}

/// The same, and nothing is left.
fn ended_cleanly(project: &Project, traced: &Traced, words: &str) -> bool {
    stopped_or_succeeded(traced, words) && private_directories(project).is_empty()
}

fn one_error(calls: &'static str, errno: Errno) -> impl Fn(u32) -> Disturbance<'static> {
    move |number| Disturbance {
        calls,
        fault: CallFault::Error(errno.raw_os_error()),
        first: number,
        last: number,
    }
}

#[test]
fn a_workflow_continues_after_one_failed_write() {
    let fault = one_error(WRITES, Errno::NOSPC);
    let points = disturb_everywhere(ONE_JOB, step(11), fault, |project, traced| {
        ended_cleanly(project, traced, "No space left")
    });
    assert!(4 < points, "only {points} writes");
}

#[test]
fn a_workflow_continues_after_a_full_disk() {
    let full = |number| Disturbance {
        last: u32::MAX,
        ..one_error(WRITES, Errno::NOSPC)(number)
    };
    let points = disturb_everywhere(ONE_JOB, step(17), full, |project, traced| {
        ended_cleanly(project, traced, "No space left")
    });
    assert!(3 < points, "only {points} writes");
}

#[test]
fn a_workflow_continues_after_one_failed_sync_or_rename() {
    let fault = one_error(SYNCS_AND_RENAMES, Errno::IO);
    let points = disturb_everywhere(ONE_JOB, step(5), fault, |project, traced| {
        ended_cleanly(project, traced, "Input/output error")
    });
    assert!(8 < points, "only {points} syncs and renames");
}

#[test]
fn a_workflow_with_concurrent_agents_continues_after_one_failed_sync_or_rename() {
    let fault = one_error(SYNCS_AND_RENAMES, Errno::IO);
    let points = disturb_everywhere(FOUR_JOBS, step(11), fault, |project, traced| {
        ended_cleanly(project, traced, "Input/output error")
    });
    assert!(4 < points, "only {points} syncs and renames");
}

#[test]
fn a_workflow_continues_after_one_failed_creation_or_removal() {
    let fault = one_error(ENTRIES, Errno::ACCESS);
    let points = disturb_everywhere(ONE_JOB, step(11), fault, |_, traced| {
        stopped_or_succeeded(traced, "Permission denied")
    });
    assert!(3 < points, "only {points} calls");
}
