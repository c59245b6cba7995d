//! SIGKILL at calls of `fleet task` and `fleet run` that change the disk. Whatever is killed, the next command reaches what
//! an undisturbed one does, and the ledger covers what the model's server has billed. `CRASH_STEP=1` tries every call.

use rustix::process::Signal;

use super::{always_right, json, project, result};
use crate::snapshot_crash::CHANGES;
use crate::support::fault_tracer::{CallFault, Disturbance, disturbed, tracer};
use crate::support::project::Project;
use crate::support::server::Server;
use crate::workflow_crash::step;

/// What an answer of the scripted model costs, in micro-dollars.
const ANSWER: u64 = 450;

fn reserved(project: &Project) -> u64 {
    let ledger = json(project, "ledger.json");
    let reserved = ledger["reserved"].as_object().unwrap().values();
    reserved.map(|amount| amount.as_u64().unwrap()).sum()
}

/// Kills a command at one call after the other, and completes it each time.
fn killed_at_every_call(arguments: &[&str], usual_step: u32, prepare: impl Fn(&Project)) {
    let Some(tracer) = tracer() else {
        return;
    };
    let server: Server = always_right();
    let project = project(&["a"], &server);
    prepare(&project);
    let before = project.files();
    let mut hits = 0;
    for number in (1..).step_by(step(usual_step) as usize) {
        project.restore(&before);
        let requests = server.count();
        let disturbance = Disturbance {
            calls: CHANGES,
            fault: CallFault::Kill,
            first: number,
            last: number,
        };
        let traced = disturbed(&project, tracer, &disturbance, arguments);
        if traced.hit.is_none() {
            break;
        }
        hits += 1;
        let place = format!("{:?}, call {number}", traced.hit);
        assert_eq!(traced.ran.signal, Some(Signal::KILL.as_raw()), "{place}");
        if project.exists("fleet/ledger.json") {
            let billed = (server.count() - requests) as u64 * ANSWER;
            assert!(billed <= reserved(&project), "{place}");
        }
        project.run(&["fleet", "run", "specs"]).exits(0);
        let asked = (server.count() - requests) as u64;
        assert!((1..=2).contains(&asked), "{asked} requests, {place}");
        assert_eq!(result(&project, "a")["outcome"], "SUCCESS", "{place}");
        // A request whose answer was lost counts with its worst case.
        let reserved = reserved(&project);
        assert!(asked * ANSWER <= reserved, "{reserved}, {place}");
        assert!(
            reserved == ANSWER || asked == 2 || ANSWER < reserved,
            "{reserved}, {place}"
        );
        let files = project.files();
        let left: Vec<&String> = files.keys().filter(|path| path.contains(".new")).collect();
        assert!(left.is_empty(), "{left:?}, {place}");
    }
    assert!(5 < hits, "{hits} calls");
    eprintln!("{arguments:?}: killed at {hits} calls");
}

#[test]
fn a_task_that_is_killed_at_any_call_is_completed() {
    killed_at_every_call(&["fleet", "task", "fleet", "0"], 17, |project| {
        let plan = ["fleet", "plan", "specs", "--budget", "1"];
        project.run(&plan).exits(0);
    });
}

#[test]
fn a_plan_that_is_killed_at_any_call_is_made_again() {
    killed_at_every_call(&["fleet", "plan", "specs", "--budget", "1"], 1, |_| {});
}
