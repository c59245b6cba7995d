//! SIGKILL and disk errors at every call of `apply` that changes the disk: the next one completes it, or it is undone.
//!
//! By default some calls are left out: `CRASH_STEP=1` tries each.

use std::fs;

use rustix::io::Errno;

use crate::apply::{changed, expected, user_files};
use crate::support::fault_tracer::{CallFault, Disturbance, disturbed, tracer};
use crate::support::project::{Project, RUN};
use crate::workflow_crash::{ALL, step};

const CHANGES: &str = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,\
                       ftruncate,linkat";

/// A project in which a lot changes: also a file that becomes a folder, and a folder that becomes a file.
fn prepared() -> Project {
    let project = changed();
    for path in ["workspace/keep.py", "workspace/folder/only.py"] {
        fs::remove_file(project.path(path)).unwrap();
    }
    fs::remove_dir(project.path("workspace/folder")).unwrap();
    project.write("workspace/keep.py/inner.py", "inner\n");
    project.write("workspace/folder", "a file\n");
    std::os::unix::fs::symlink("change.py", project.path("workspace/link")).unwrap();
    project
}

fn goal() -> std::collections::BTreeMap<String, String> {
    let mut files = expected();
    files.remove("keep.py");
    files.remove("folder/only.py");
    files.insert("keep.py/inner.py".into(), "inner\n".into());
    files.insert("folder".into(), "a file\n".into());
    files.insert("link".into(), "change.py".into());
    files
}

/// A copy of a project; a run costs more.
fn copy_of(project: &Project) -> Project {
    let copy = Project::new();
    let from = format!("{}/.", project.root().display());
    let ran = copy.run_in_shell(&format!("cp -a {from} ."), &[]);
    ran.exits(0);
    copy
}

/// Asserts that nothing temporary is left.
fn is_clean(project: &Project) {
    for path in project.files().into_keys() {
        let is_temporary = [".orchestrator-", ".new", "apply.json"]
            .iter()
            .any(|part| path.contains(part));
        assert!(!is_temporary, "{path} is left");
    }
    project.nothing_left();
}

#[test]
fn an_apply_killed_at_any_call_is_completed_by_the_next() {
    let Some(tracer) = tracer() else { return };
    let origin = prepared();
    let mut hits = 0;
    for number in (1..).step_by(step(7) as usize) {
        let project = copy_of(&origin);
        let traced = disturbed(
            &project,
            tracer,
            &Disturbance::kill(ALL, number),
            &["apply"],
        );
        let Some(hit) = traced.hit else { break };
        hits += 1;
        let is_unfinished = project.exists("logs/apply.json");
        assert!(
            is_unfinished
                || user_files(&project) == goal()
                || user_files(&project) == user_files(&origin),
            "{hit} {number}"
        );
        let again = project.run(&["apply"]);
        assert_eq!(
            again.code,
            Some(0),
            "{hit} {number}\n{}",
            again.transcript()
        );
        assert_eq!(user_files(&project), goal(), "{hit} {number}");
        is_clean(&project);
        let nothing = project.run(&["apply"]).exits(0).stdout;
        assert!(
            nothing.starts_with("nothing to apply"),
            "{hit} {number}: {nothing}"
        );
    }
    assert!(10 < hits, "only {hits} calls");
}

#[test]
fn an_apply_killed_again_while_it_is_completed_is_completed() {
    let Some(tracer) = tracer() else { return };
    let origin = prepared();
    let first = unfinished(&origin, tracer);
    for number in (1..).step_by(step(9) as usize) {
        let project = copy_of(&first);
        let traced = disturbed(
            &project,
            tracer,
            &Disturbance::kill(ALL, number),
            &["apply"],
        );
        let Some(hit) = traced.hit else { break };
        project.run(&["apply"]).exits(0);
        assert_eq!(user_files(&project), goal(), "{hit} {number}");
        is_clean(&project);
    }
}

#[test]
fn many_files_are_applied_as_a_whole_across_kills() {
    let Some(tracer) = tracer() else { return };
    let origin = prepared();
    for number in 0..20 {
        origin.write(
            &format!("workspace/many/{number}.py"),
            format!("{number}\n"),
        );
    }
    let whole = copy_of(&origin);
    whole.run(&["apply"]).exits(0);
    let goal = user_files(&whole);
    assert_eq!(goal["many/19.py"], "19\n");
    for number in (1..).step_by(step(31) as usize) {
        let project = copy_of(&origin);
        let kill = Disturbance::kill(ALL, number);
        let traced = disturbed(&project, tracer, &kill, &["apply"]);
        let Some(hit) = traced.hit else { break };
        project.run(&["apply"]).exits(0);
        assert_eq!(user_files(&project), goal, "{hit} {number}");
        is_clean(&project);
    }
}

#[test]
fn on_a_file_system_that_cannot_exchange_files_they_are_replaced() {
    let Some(tracer) = tracer() else { return };
    let without_exchange = Disturbance {
        calls: "renameat2",
        fault: CallFault::Error(Errno::INVAL.raw_os_error()),
        first: 1,
        last: u32::MAX,
    };
    let project = prepared();
    disturbed(&project, tracer, &without_exchange, &["apply"])
        .ran
        .exits(0);
    assert_eq!(user_files(&project), goal());
    is_clean(&project);
}

/// A project in which an apply was killed in the middle of its changes.
fn unfinished(origin: &Project, tracer: &str) -> Project {
    let mut number = 0;
    loop {
        number += 1;
        let project = copy_of(origin);
        let kill = Disturbance::kill("renameat2", number);
        let traced = disturbed(&project, tracer, &kill, &["apply"]);
        assert!(traced.hit.is_some(), "never in between");
        let files = user_files(&project);
        if files != user_files(origin) && !files.contains_key("link") {
            assert!(project.exists("logs/apply.json"));
            return project;
        }
    }
}

#[test]
fn after_a_disk_error_at_any_call_all_or_nothing_is_done() {
    let Some(tracer) = tracer() else { return };
    let origin = prepared();
    let before = user_files(&origin);
    let mut undone = 0;
    for (errno, is_lasting) in [(Errno::IO, false), (Errno::NOSPC, true)] {
        for number in (1..).step_by(step(5) as usize) {
            let project = copy_of(&origin);
            let disturbance = Disturbance {
                // A full disk refuses what needs space.
                calls: if is_lasting {
                    "write,pwrite64,mkdirat,fsync"
                } else {
                    CHANGES
                },
                fault: CallFault::Error(errno.raw_os_error()),
                first: number,
                last: if is_lasting { u32::MAX } else { number },
            };
            let traced = disturbed(&project, tracer, &disturbance, &["apply"]);
            let Some(hit) = traced.hit else { break };
            let files = user_files(&project);
            let is_unfinished = project.exists("logs/apply.json");
            let place = format!("{hit} {number} {errno}\n{}", traced.ran.transcript());
            match traced.ran.code {
                Some(0) => assert_eq!(files, goal(), "{place}"),
                Some(74) if !is_unfinished => {
                    assert_eq!(files, before, "{place}");
                    undone += 1;
                }
                Some(74) => {}
                _ => panic!("{place}"),
            }
            project.run(&["apply"]).exits(0);
            assert_eq!(user_files(&project), goal(), "{place}");
            is_clean(&project);
        }
    }
    assert!(5 < undone, "only {undone} were undone");
}

#[test]
fn an_interrupted_apply_refuses_runs_and_reset_and_is_told_by_check() {
    let Some(tracer) = tracer() else { return };
    let project = unfinished(&prepared(), tracer);
    let before = project.files();
    let message = "an apply was interrupted: `orchestrator apply` completes it";
    let new_run: Vec<&str> = RUN.iter().copied().chain(["--no-resume"]).collect();
    project.run(&new_run).exits(64).says(message);
    project.run(&["reset"]).exits(64).says(message);
    project.run(&["apply", "--check"]).exits(0).says(message);
    assert_eq!(project.files(), before);
    // Also if the run is gone.
    fs::remove_file(project.path("state.json")).unwrap();
    let ran = project.run(&["apply"]).exits(0);
    assert!(ran.stdout.contains("applied: "), "{}", ran.stdout);
    assert_eq!(user_files(&project), goal());
    is_clean(&project);
}

#[test]
fn a_target_changed_after_an_interrupted_apply_is_a_conflict() {
    let Some(tracer) = tracer() else { return };
    let project = unfinished(&prepared(), tracer);
    project.write("project/change.py", "mine\n");
    let before = user_files(&project);
    for arguments in [&["apply", "--check"][..], &["apply"]] {
        project
            .run(arguments)
            .exits(1)
            .says("conflict: project/change.py: it was changed after the interrupted apply")
            .says("help: ");
        assert_eq!(user_files(&project), before);
    }
    project.write("project/change.py", "old\n");
    project.run(&["apply"]).exits(0);
    assert_eq!(user_files(&project), goal());
    is_clean(&project);
}
