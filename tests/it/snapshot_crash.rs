//! SIGKILL and disk errors at calls that write, sync, rename, create or remove, of every command that keeps a workspace.
//!
//! After each of them every snapshot that a log or a record names is whole. The command is then repeated, or the run is
//! resumed, and must reach what an undisturbed one reaches. By default some calls are left out: `CRASH_STEP=1` tries
//! each.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;

use crate::crash::{end, recorded};
use crate::support::fault_tracer::{CallFault, Disturbance, Traced, disturbed, tracer};
use crate::support::kept_run::{
    FileContents, KeptRuns, failing_model, fill, model, no_leftovers, project, request_count, spec,
};
use crate::support::project::{Project, RUN, processes};
use crate::support::running::Ran;
use crate::workflow_crash::step;

/// Calls that write files, or that make them or their names durable.
const WRITES: &str = "write,pwrite64,copy_file_range";
const SYNCS: &str = "fsync,fdatasync,syncfs,rename,renameat,renameat2";
/// All calls that change the disk.
pub(crate) const CHANGES: &str = "write,pwrite64,copy_file_range,fsync,fdatasync,syncfs,rename,renameat,renameat2,\
    openat,openat2,open,mkdir,mkdirat,unlink,unlinkat,rmdir,ftruncate,linkat,symlinkat";

/// What happens to a command, at one call after the other.
#[derive(Debug, Clone, Copy)]
struct FaultPlan {
    calls: &'static str,
    fault: CallFault,
    /// Every so many calls.
    step: u32,
}

impl FaultPlan {
    fn kills(usual_step: u32) -> FaultPlan {
        FaultPlan {
            calls: CHANGES,
            fault: CallFault::Kill,
            step: step(usual_step),
        }
    }

    fn errors(calls: &'static str, errno: Errno, usual_step: u32) -> FaultPlan {
        FaultPlan {
            calls,
            fault: CallFault::Error(errno.raw_os_error()),
            step: step(usual_step),
        }
    }

    /// It was killed; or it stopped with a message, or succeeded anyway.
    fn is_expected(&self, ran: &Ran, usual_code: i32) -> bool {
        match self.fault {
            CallFault::Kill => ran.signal == Some(9),
            CallFault::Error(_) => {
                let names_it = ["No space left", "Input/output error"];
                let is_named = names_it.iter().any(|words| ran.stderr.contains(words));
                ran.code == Some(usual_code) || ran.code == Some(74) && is_named
            }
        }
    }

    /// Disturbs a command at one call after the other, each time in the same root, until it is not hit any more. Returns
    /// how often it was hit. All calls after which something was not as it should be are named.
    fn disturb(
        &self,
        project: &Project,
        (arguments, usual_code): (&[&str], i32),
        check: impl Fn(&Traced),
    ) -> u32 {
        let Some(tracer) = tracer() else {
            return u32::MAX;
        };
        let before = project.files();
        let (mut hits, mut failed) = (0, Vec::new());
        for number in (1..).step_by(self.step as usize) {
            project.restore(&before);
            let disturbance = Disturbance {
                calls: self.calls,
                fault: self.fault,
                first: number,
                last: number,
            };
            let traced = disturbed(project, tracer, &disturbance, arguments);
            let Some(hit) = traced.hit.clone() else {
                break;
            };
            hits += 1;
            let checked = catch_unwind(AssertUnwindSafe(|| {
                assert!(self.is_expected(&traced.ran, usual_code));
                check(&traced);
            }));
            if checked.is_err() {
                eprintln!("the disturbed command was\n{}", traced.ran.transcript());
                failed.push(format!("{hit}, call {number}"));
            }
        }
        assert!(failed.is_empty(), "of {hits}: {failed:#?}");
        eprintln!("{arguments:?}, {:?}: {hits} points", self.fault);
        hits
    }
}

fn changed_by_hand(project: &Project) -> FileContents {
    project.write("workspace/lib/code.txt", "changed by hand\n");
    project.write("workspace/by/hand.txt", "new\n");
    std::fs::remove_file(project.path("workspace/lib/only-40.txt")).unwrap();
    project.workspace_files()
}

fn run_id(project: &Project) -> String {
    project.state_text("run_id")
}

/// The result of a run without ids, times and usage: a request that is killed may be charged.
fn result(project: &Project) -> (Value, FileContents) {
    let (mut state, files) = end(project);
    for field in ["usage", "continues"] {
        state[field] = Value::Null;
    }
    (state, files)
}

/// Every snapshot of a run can be restored.
fn check_restores(project: &Project, run_id: &str) {
    let kept = KeptRuns::read(&project.root()).of(run_id);
    for (number, files) in kept {
        let ran = project.run(&["restore", &number.to_string(), "--run", run_id]);
        ran.exits(0);
        assert_eq!(project.workspace_files(), files, "attempt {number}");
    }
}

/// The number in `restore N` of a message.
fn restored_number(ran: &Ran) -> Option<u64> {
    let text = format!("{}{}", ran.stdout, ran.stderr);
    let (_, rest) = text.split_once("orchestrator restore ")?;
    rest.split(' ').next()?.parse().ok()
}

fn disturb_run(plan: FaultPlan) -> u32 {
    let server = model();
    let project = project(&spec(3), &server);
    let before = project.files();
    project.run(RUN).exits(0);
    let (goal, kept) = (result(&project), KeptRuns::read(&project.root()));
    let (attempts, marks) = (kept.of(&run_id(&project)), &kept.marks[&run_id(&project)]);
    assert_eq!(attempts.len(), 3);
    no_leftovers(&project);
    project.restore(&before);
    plan.disturb(&project, (RUN, 0), |_| {
        KeptRuns::read(&project.root());
        let (asked, answers) = (request_count(&server), recorded(&project));
        project.run(RUN).exits(0);
        assert_eq!(request_count(&server) - asked, 3 - answers, "paid twice");
        assert_eq!(result(&project), goal);
        let (kept, run_id) = (KeptRuns::read(&project.root()), run_id(&project));
        assert_eq!(kept.of(&run_id), attempts);
        assert_eq!(kept.marks[&run_id], *marks);
        check_restores(&project, &run_id);
        no_leftovers(&project);
    })
}

fn disturb_reset(plan: FaultPlan) -> u32 {
    let server = model();
    let project = project(&spec(3), &server);
    project.run(RUN).exits(0);
    let (run_id, before) = (run_id(&project), changed_by_hand(&project));
    plan.disturb(&project, (&["reset"], 0), |traced| {
        let kept = KeptRuns::read(&project.root());
        let is_there = project.workspace_files() == before;
        assert!(is_there || kept.find(&run_id, &before).is_some(), "lost");
        let ran = project.run(&["reset"]).exits(0);
        assert!(!project.exists("state.json") && project.workspace_files().is_empty());
        let kept = KeptRuns::read(&project.root());
        let number = kept.find(&run_id, &before).unwrap();
        let told = restored_number(&ran);
        assert!(
            told.is_none_or(|told| told == number),
            "{}",
            ran.transcript()
        );
        no_leftovers(&project);
        if traced.ran.stderr.contains("the state is not kept") {
            // Then the run cannot come back; its attempts are still compared by `diff`.
            return;
        }
        let restore = ["restore", &number.to_string(), "--run", &run_id];
        project.run(&restore).exits(0);
        assert_eq!(project.workspace_files(), before);
        check_restores(&project, &run_id);
        no_leftovers(&project);
    })
}

fn disturb_new_run(plan: FaultPlan) -> u32 {
    let server = model();
    let project = project(&spec(3), &server);
    project.run(RUN).exits(0);
    let goal = result(&project);
    let (old, before) = (run_id(&project), changed_by_hand(&project));
    let anew = [RUN, &["--no-resume"]].concat();
    plan.disturb(&project, (&anew, 0), |_| {
        let kept = KeptRuns::read(&project.root());
        let is_there = project.workspace_files() == before;
        assert!(is_there || kept.find(&old, &before).is_some(), "lost");
        let is_new = run_id(&project) != old;
        project.run(if is_new { RUN } else { &anew }).exits(0);
        assert_ne!(run_id(&project), old);
        assert_eq!(result(&project), goal);
        let new = run_id(&project);
        let kept = KeptRuns::read(&project.root());
        assert_eq!((kept.of(&old).len(), kept.of(&new).len()), (4, 3));
        no_leftovers(&project);
        let number = kept.find(&old, &before).unwrap();
        let restore = ["restore", &number.to_string(), "--run", &old];
        project.run(&restore).exits(0);
        assert_eq!(project.workspace_files(), before);
        check_restores(&project, &new);
    })
}

fn disturb_restore(plan: FaultPlan) -> u32 {
    let server = model();
    let project = project(&spec(3), &server);
    project.run(RUN).exits(0);
    let (run_id, before) = (run_id(&project), changed_by_hand(&project));
    let goal = KeptRuns::read(&project.root()).of(&run_id)[&1].clone();
    plan.disturb(&project, (&["restore", "1"], 0), |_| {
        let kept = KeptRuns::read(&project.root());
        let is_there = project.workspace_files() == before;
        assert!(is_there || kept.find(&run_id, &before).is_some(), "lost");
        project.run(&["restore", "1"]).exits(0);
        assert_eq!(project.workspace_files(), goal);
        let kept = KeptRuns::read(&project.root());
        assert!(kept.find(&run_id, &before).is_some(), "lost");
        no_leftovers(&project);
        check_restores(&project, &run_id);
    })
}

fn disturb_restore_after_reset(plan: FaultPlan) -> u32 {
    let server = model();
    let project = project(&spec(3), &server);
    project.run(RUN).exits(0);
    let (run_id, goal) = (run_id(&project), project.workspace_files());
    project.run(&["reset"]).exits(0);
    let restore = ["restore", "3", "--run", &run_id];
    plan.disturb(&project, (&restore, 0), |_| {
        KeptRuns::read(&project.root());
        project.run(&restore).exits(0);
        assert_eq!(project.workspace_files(), goal);
        no_leftovers(&project);
        project.run(RUN).exits(0).says("this run is over");
        check_restores(&project, &run_id);
    })
}

fn disturb_continuation(plan: FaultPlan) -> u32 {
    let failing = failing_model();
    let project = project(&spec(1), &failing);
    project.run(RUN).exits(1);
    project.write("workspace/more.txt", "brought back by hand\n");
    let (old, before) = (run_id(&project), changed_by_hand(&project));
    let server = model();
    let project = project.spec(spec(3)).model(&server);
    let go_on = [RUN, &["--continue"]].concat();
    let start = project.files();
    project.run(&go_on).exits(0);
    let goal = result(&project);
    let attempts = KeptRuns::read(&project.root()).of(&run_id(&project));
    let asked = request_count(&server);
    project.restore(&start);
    plan.disturb(&project, (&go_on, 0), |_| {
        KeptRuns::read(&project.root());
        let is_new = run_id(&project) != old;
        project.run(if is_new { RUN } else { &go_on }).exits(0);
        assert_eq!(result(&project), goal);
        let (kept, new) = (KeptRuns::read(&project.root()), run_id(&project));
        assert_eq!(kept.marks[&new]["start"], before);
        assert_eq!(kept.of(&new), attempts);
        assert_eq!(project.events("ModelAnswered").len(), asked);
        no_leftovers(&project);
    })
}

fn disturb_keep_best(plan: FaultPlan) -> u32 {
    let server = failing_model();
    let project = project(&spec(1), &server);
    let before = project.files();
    let keep_best = [RUN, &["--keep-best"]].concat();
    project.run(&keep_best).exits(1);
    let goal = result(&project);
    let attempts = KeptRuns::read(&project.root()).of(&run_id(&project));
    assert_eq!(attempts.len(), 2);
    assert_eq!(project.workspace_files(), attempts[&1]);
    project.restore(&before);
    plan.disturb(&project, (&keep_best, 1), |_| {
        KeptRuns::read(&project.root());
        project.run(&keep_best).exits(1);
        assert_eq!(result(&project), goal);
        let kept = KeptRuns::read(&project.root()).of(&run_id(&project));
        assert!(
            attempts
                .values()
                .all(|files| kept.values().any(|kept| kept == files))
        );
        no_leftovers(&project);
    })
}

/// A test that needs so many points says so.
fn check_points(points: u32, least: u32) {
    assert!(least <= points, "only {points} points");
}

#[test]
fn a_killed_run_loses_no_snapshot() {
    check_points(disturb_run(FaultPlan::kills(17)), 20);
}

#[test]
fn a_killed_reset_loses_nothing() {
    check_points(disturb_reset(FaultPlan::kills(5)), 10);
}

#[test]
fn a_killed_start_of_a_new_run_loses_nothing_of_the_old_one() {
    check_points(disturb_new_run(FaultPlan::kills(23)), 10);
}

#[test]
fn a_killed_restore_loses_nothing_and_can_be_repeated() {
    check_points(disturb_restore(FaultPlan::kills(5)), 10);
}

#[test]
fn a_killed_restore_after_a_reset_can_be_repeated() {
    check_points(disturb_restore_after_reset(FaultPlan::kills(5)), 10);
}

#[test]
fn a_killed_continuation_begins_with_the_workspace_that_was_there() {
    check_points(disturb_continuation(FaultPlan::kills(23)), 10);
}

#[test]
fn a_killed_run_that_keeps_the_best_attempt_leaves_it_in_the_workspace() {
    check_points(disturb_keep_best(FaultPlan::kills(17)), 10);
}

/// One failed call, then the same command again.
fn fail_everywhere(disturb: fn(FaultPlan) -> u32, write_step: u32, sync_step: u32) {
    let full = FaultPlan::errors(WRITES, Errno::NOSPC, write_step);
    check_points(disturb(full), 3);
    let broken = FaultPlan::errors(SYNCS, Errno::IO, sync_step);
    check_points(disturb(broken), 3);
}

#[test]
fn a_run_goes_on_after_one_disk_error() {
    fail_everywhere(disturb_run, 13, 11);
}

#[test]
fn a_reset_can_be_repeated_after_a_disk_error() {
    fail_everywhere(disturb_reset, 2, 3);
}

#[test]
fn a_restore_can_be_repeated_after_a_disk_error() {
    fail_everywhere(disturb_restore, 3, 5);
}

#[test]
fn a_new_run_can_be_started_again_after_a_disk_error() {
    fail_everywhere(disturb_new_run, 17, 17);
}

#[test]
fn a_continuation_goes_on_after_a_disk_error() {
    // The 31st is the sync after the first state of the new run.
    fail_everywhere(disturb_continuation, 17, 15);
}

#[test]
fn what_a_killed_hidden_check_wrote_is_undone() {
    for command in [RUN, &["reset"]] {
        let server = model();
        let project = Project::new();
        let gate = project.outside("gate");
        std::fs::create_dir(&gate).unwrap();
        let (marker, folder) = (project.marker().to_owned(), gate.display().to_string());
        let waits = format!(
            "grep -qx 42 answer.txt && {{ rm more.txt; test -e {folder}/open || sleep {marker}; }}"
        );
        let text = spec(3).replace("grep -qx 42 answer.txt", &waits);
        let text = text + &format!("sandbox: {{read: [{folder}]}}\n");
        let project = fill(project, &text, &server);
        let mut running = project.start(RUN);
        running.until("the hidden check sleeps", || {
            !processes(&[&format!("sleep\0{marker}")]).is_empty()
        });
        running.signal(Signal::KILL);
        running.wait();
        let run_id = run_id(&project);
        assert!(project.exists("workspace/out/hidden") && !project.exists("workspace/more.txt"));
        std::fs::write(gate.join("open"), "").unwrap();
        project.run(command).exits(0);
        let kept = KeptRuns::read(&project.root()).of(&run_id);
        assert_eq!(kept.len(), 3, "{command:?}");
        assert!(kept[&3].contains_key("more.txt") && !kept[&3].contains_key("out/hidden"));
        if command == RUN {
            let said = project.read(&project.log_path());
            assert!(said.contains("a hidden check was interrupted: more.txt, out/hidden"));
        }
        no_leftovers(&project);
    }
}
