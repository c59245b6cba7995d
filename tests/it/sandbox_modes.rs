//! Runs where parts of the sandbox are missing: each step of its set-up is made to fail, and the run
//! names the remaining layers or does not start. The check never succeeds in writing outside.

use rustix::process::Signal;

use crate::support::needs;
use crate::support::needs::may_trace;
use crate::support::project::{BINARY, Project, RUN, RUN_JSON, checked_by};
use crate::support::restrictions::Restrictions;
use crate::support::running::{Ran, Running};
use crate::support::serve_client::Serving;
use crate::support::{reply, server::Server};

const WITHOUT_LANDLOCK: &str = "sandbox: full (without Landlock)";
const REDUCED: &str = "sandbox: reduced";
const NONE: &str = "no sandbox available";

/// Faults in the syntax of `strace`, and the mode that remains.
const FAULTS: [(&str, &str); 15] = [
    ("landlock_create_ruleset:error=ENOSYS", WITHOUT_LANDLOCK),
    ("landlock_create_ruleset:error=EOPNOTSUPP", WITHOUT_LANDLOCK),
    ("landlock_add_rule:error=EINVAL", WITHOUT_LANDLOCK),
    ("landlock_restrict_self:error=EPERM", WITHOUT_LANDLOCK),
    ("mount:error=EPERM", REDUCED),
    ("mount:error=EACCES:when=9+", REDUCED),
    ("mount_setattr:error=ENOSYS", REDUCED),
    ("pivot_root:error=EPERM", REDUCED),
    ("umount2:error=EPERM", REDUCED),
    ("seccomp:error=EINVAL", NONE),
    ("capset:error=EPERM", NONE),
    ("prctl:error=EINVAL", NONE),
    ("prlimit64:error=EPERM", NONE),
    ("setsid:error=EPERM", NONE),
    ("clone:error=EPERM", NONE),
];

/// A project whose check writes outside and then passes; `None` where the system cannot be disturbed.
fn project(server: &Server) -> Option<Project> {
    let project = Project::new().model(server);
    let script = format!(
        "echo x > {}; touch ran; grep -qx 42 answer.txt",
        project.outside("escaped").display()
    );
    let project = project.spec(checked_by(&script));
    may_trace().then_some(project)
}

fn under_strace(project: &Project, options: &[&str], arguments: &[&str]) -> Ran {
    let always = ["-f", "-qq", "-o", "/dev/null", "-e", "signal=none"];
    let arguments = [&always[..], options, &[BINARY], arguments].concat();
    Running::start(project.command("strace", &arguments), project.root()).wait()
}

/// Checks a run against the mode that it should have found.
fn check_run(project: &Project, server: &Server, ran: Ran, mode: &str) {
    assert!(!project.outside("escaped").exists(), "{}", ran.transcript());
    if mode != NONE {
        let result = ran.exits(0).says(mode).result();
        assert!(result["notes"].to_string().contains(mode), "{result}");
        assert!(project.exists("workspace/ran"));
        return;
    }
    let ran = ran.exits(2).says(NONE).says("Fix: ");
    assert_eq!(
        ran.outcome_and_reason(),
        ("REFUSED".into(), "safety_violation".into())
    );
    assert_eq!(server.requests().len(), 0);
    assert!(!project.exists("state.json") && !project.exists("workspace/ran"));
}

#[test]
fn a_failing_layer_is_reported_or_refused() {
    for (fault, mode) in FAULTS {
        let server = Server::start([reply::answer("42")]);
        let Some(project) = project(&server) else {
            return;
        };
        let (call, _) = fault.split_once(':').unwrap();
        let options = [
            "-e",
            &format!("trace={call}"),
            "-e",
            &format!("inject={fault}"),
        ];
        check_run(
            &project,
            &server,
            under_strace(&project, &options, RUN_JSON),
            mode,
        );
    }
}

#[test]
fn an_unmappable_user_gets_no_namespaces() {
    for file in ["uid_map", "gid_map", "setgroups"] {
        let server = Server::start([reply::answer("42")]);
        let Some(project) = project(&server) else {
            return;
        };
        let options = [
            "-P",
            &format!("/proc/self/{file}"),
            "-e",
            "inject=open,openat,write:error=EPERM",
        ];
        check_run(
            &project,
            &server,
            under_strace(&project, &options, RUN_JSON),
            REDUCED,
        );
    }
}

#[test]
fn without_namespaces_and_landlock_the_run_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let Some(project) = project(&server) else {
        return;
    };
    let fault = [
        "-e",
        "trace=mount,landlock_restrict_self",
        "-e",
        "inject=mount,landlock_restrict_self:error=EPERM",
    ];
    check_run(
        &project,
        &server,
        under_strace(&project, &fault, RUN_JSON),
        NONE,
    );
    project.run(RUN).exits(0);
}

#[test]
fn a_sandbox_failure_within_a_run_stops_it_resumably() {
    let server = Server::start([reply::answer("42")]);
    let Some(project) = project(&server) else {
        return;
    };
    // The mount tree of a probe has fewer entries than that of a check.
    let fault = [
        "-e",
        "trace=mount",
        "-e",
        "inject=mount:error=EPERM:when=19+",
    ];
    let ran = under_strace(&project, &fault, RUN_JSON)
        .exits(2)
        .says("the sandbox cannot be applied any more");
    assert_eq!(
        ran.outcome_and_reason(),
        ("INTERRUPTED".into(), "safety_violation".into())
    );
    assert!(!project.exists("workspace/ran"));
    project.run(RUN).exits(0);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_run_started_in_full_mode_continues_in_reduced_mode_with_a_note() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let script = format!(
        "test \"$HOME\" != /home/orchestrator || {{ touch begun; sleep {}; }}",
        project.marker()
    );
    let mut project = project.spec(checked_by(&script));
    let mut running = project.start(RUN);
    running.until("the check has begun, or the run is over", || {
        project.exists("workspace/begun")
            || project.exists("state.json") && project.state_text("state") == "SUCCESS"
    });
    running.signal(Signal::KILL);
    if !running.wait().stderr.contains("sandbox: full") {
        return needs::skip("there is nothing to lose here: no full containment");
    }
    project = project.restricted(Restrictions::default().without_namespaces());
    project
        .run(RUN)
        .exits(0)
        .says(REDUCED)
        .says("before it was resumed this run had: full");
    project.nothing_left();
}

#[test]
fn a_server_in_reduced_mode_names_the_loss_and_the_remedy() {
    let project = Project::new().restricted(Restrictions::default().without_namespaces());
    let mut serving = Serving::start(&project);
    assert_eq!(serving.bash("echo $((6 * 7))").output(), "42\n");
    let ran = serving.end().exits(0);
    assert!(
        ran.stderr.contains(REDUCED) && ran.stderr.contains("Fix: "),
        "{}",
        ran.transcript()
    );
}
