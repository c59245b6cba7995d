//! Power cuts in a workflow: nothing that an agent relied on is lost, and no answer that is left is paid for again.
//!
//! `power_cut.rs` has the disk: what was not synced is lost with it.

use std::fs;

use crate::power_cut::{disk_for, on_disk};
use crate::support::fault_tracer::{Disturbance, tracer};
use crate::support::full_workflow::{
    LeftRun, ONE_JOB, WorkflowResult, check_result, model, project, request_count,
};
use crate::workflow_crash::{ALL, check_saved_state, step, undisturbed};

/// The outcome of a power cut.
#[derive(PartialEq)]
enum Cut {
    Recovered,
    /// The run has fewer calls.
    NotHit,
    /// The test cannot make a disk.
    Impossible,
}

/// Cuts the power at a call and resumes.
fn cut_at(tracer: &str, number: u32, goal: &WorkflowResult) -> Cut {
    let server = model();
    let project = project(&server);
    let report = project.outside("disturbed");
    let disturbance = Disturbance::kill(ALL, number);
    let words = disturbance.words(tracer, &report.display().to_string());
    let Some(project) = disk_for(project.env("TRACER", &words.join(" "))) else {
        return Cut::Impossible;
    };
    on_disk(&project, "cut.sh", ONE_JOB).exits(0);
    let report = fs::read_to_string(report).unwrap();
    let Some((_, hit)) = report.trim().split_once(' ') else {
        return Cut::NotHit;
    };
    eprintln!("power cut before call {number} ({hit})");
    let asked = request_count(&server);
    let ran = on_disk(&project, "go_on.sh", ONE_JOB).exits(0);
    let seen = LeftRun::read_folder(&project.outside("seen"), asked);
    let left = LeftRun::read_folder(&project.outside("left"), asked);
    check_saved_state(&left);
    assert!(
        seen.record.lines_relied_on() <= left.record.lines(),
        "an agent relied on lines that are lost"
    );
    fs::remove_dir(project.root()).unwrap();
    fs::rename(project.outside("resumed"), project.root()).unwrap();
    check_result(&project, &server, &left, (&ran, goal));
    Cut::Recovered
}

#[test]
fn a_workflow_continues_after_a_power_cut() {
    let Some(tracer) = tracer() else {
        return;
    };
    let goal = undisturbed(ONE_JOB);
    let mut cuts = 0;
    for number in (1..).step_by(step(37) as usize) {
        match cut_at(tracer, number, &goal) {
            Cut::Recovered => cuts += 1,
            Cut::NotHit => break,
            Cut::Impossible => return,
        }
    }
    assert!(4 < cuts, "only {cuts} cuts");
}
