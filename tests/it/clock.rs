//! Clock jumps, and time that passes while the process is stopped.

use std::time::Duration;
use std::{fs, thread};

use rustix::process::Signal;

use crate::disk_faults::preload;
use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::until;
use crate::support::server::Server;

const YEAR: i64 = 365 * 24 * 60 * 60;

#[test]
fn a_clock_jump_changes_only_timestamps() {
    let Some(library) = preload() else { return };
    for offset in [-24 * 60 * 60, 10 * YEAR, -100 * YEAR] {
        let server = Server::start([reply::answer("41").held(), reply::answer("42").held()]);
        let project = Project::with(answer_spec(), &server);
        let clock = project.outside("clock");
        fs::write(&clock, "0").unwrap();
        let project = project
            .env("LD_PRELOAD", library)
            .env("FAULT_CLOCK", &clock.display().to_string());
        let running = project.start(RUN);
        server.wait_for(1);
        fs::write(&clock, offset.to_string()).unwrap();
        server.release();
        server.wait_for(2);
        running.signal(Signal::INT);
        running.wait().exits(130);
        // The next process starts with the other clock.
        let server = Server::start([reply::answer("42")]);
        let project = project.model(&server);
        project.run(RUN).exits(0);
        assert_eq!(
            project.phases().join(" "),
            "INIT GENERATING TESTING PATCHING TESTING PATCHING TESTING SUCCESS"
        );
        let (created, updated) = (
            project.state_text("created_at"),
            project.state_text("updated_at"),
        );
        assert!(created <= updated, "{offset}: {created} {updated}");
        let first = project.state_text("run_id");
        project.run(&[RUN, &["--no-resume"]].concat()).exits(1);
        assert_ne!(project.state_text("run_id"), first, "{offset}");
        for step in project.events("StateCompleted") {
            assert!(
                step["duration_ms"]
                    .as_u64()
                    .is_some_and(|time| time < 100_000),
                "{offset}: {step}"
            );
        }
    }
}

#[test]
fn a_corrupt_state_is_kept_before_the_epoch() {
    let Some(library) = preload() else { return };
    let project = Project::new()
        .spec(answer_spec())
        .file("state.json", "torn");
    fs::write(project.outside("clock"), (-100 * YEAR).to_string()).unwrap();
    let clock = project.outside("clock").display().to_string();
    project
        .env("LD_PRELOAD", library)
        .env("FAULT_CLOCK", &clock)
        .run(RUN)
        .exits(3);
}

/// Stops the process for longer than the limit, which the test has set to one second.
fn stop_for_a_while(project: &Project, running: &crate::support::running::Running) {
    running.signal(Signal::STOP);
    let status = format!("/proc/{}/stat", running.id());
    until("it stands still", || {
        fs::read_to_string(&status).is_ok_and(|stat| stat.contains(") T "))
    });
    // This sleep is the fault itself, not a wait.
    thread::sleep(Duration::from_millis(1500));
    assert!(project.exists("state.json"));
    running.signal(Signal::CONT);
}

#[test]
fn a_stopped_process_sends_no_burst_of_requests() {
    let server = Server::start([reply::answer("42").stall_after(3), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server).env("ORCHESTRATOR_IDLE_TIMEOUT", "1");
    let running = project.start(RUN);
    server.wait_for(1);
    stop_for_a_while(&project, &running);
    running.wait().exits(0);
    assert!(server.count() <= 2, "{}", server.count());
}

#[test]
fn a_check_that_ended_in_time_while_we_were_stopped_passes() {
    let server = Server::start([reply::answer("42")]);
    let script = "touch begun; until [ -e go ]; do sleep 0.01; done; touch done";
    let spec = checked_by(script).replace("    command:", "    timeout: 1\n    command:");
    let project = Project::with(spec, &server);
    let mut running = project.start(RUN);
    running.until("the check has begun", || project.exists("workspace/begun"));
    running.signal(Signal::STOP);
    project.write("workspace/go", "");
    until("the check has ended", || project.exists("workspace/done"));
    stop_for_a_while(&project, &running);
    running.wait().exits(0);
}
