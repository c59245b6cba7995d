//! Disks that are full, out of inodes, read-only or foreign; short and torn writes; flipped bits.
//!
//! `support/preload.c` intercepts the writes of the binary; small disks are mounted in a private mount namespace.
//! Skipped without a C compiler or without the right to mount.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::crash::{end, from_a_template};
use crate::support::needs;
use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply;
use crate::support::running::Ran;
use crate::support::server::Server;

/// The library for `LD_PRELOAD`, compiled once; `None` without a compiler.
pub(crate) fn preload() -> Option<&'static str> {
    static LIBRARY: OnceLock<Option<String>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let path = format!(
            "{}/preload-{}.so",
            env!("CARGO_TARGET_TMPDIR"),
            std::process::id()
        );
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/preload.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-o", &path, source, "-ldl"])
            .stderr(Stdio::null());
        compiler
            .status()
            .is_ok_and(|status| status.success())
            .then_some(path)
    });
    if made.is_none() {
        needs::skip("preload.c cannot be compiled here");
    }
    made.as_deref()
}

/// Runs a line in a private mount namespace; `None` where that is refused.
///
/// `"$@"` is the binary with the arguments, and the line begins in the root.
pub(crate) fn in_private_mount_namespace(
    project: &Project,
    line: &str,
    arguments: &[&str],
) -> Option<Ran> {
    let probe = "mkdir -p m && unshare -m mount -t tmpfs none m; code=$?; rmdir m; exit $code";
    let probed = project.run_in_shell(probe, &[]);
    if probed.code != Some(0) {
        needs::skip(format!(
            "nothing can be mounted here: {}",
            probed.stderr.trim()
        ));
        return None;
    }
    fs::write(project.outside("line"), line).unwrap();
    Some(project.run_in_shell("exec unshare -m sh -e ../line \"$@\"", arguments))
}

/// Runs with a fault at the first, second, … write until no write is left; returns the number of faults.
fn at_every_write(fault: &str, check: impl Fn(u32, &Project, &Ran)) -> u32 {
    let Some(library) = preload() else {
        return u32::MAX;
    };
    for number in 1.. {
        let project = from_a_template()
            .env("LD_PRELOAD", library)
            .env("FAULT_WRITE", &format!("{fault} {number}"));
        let ran = project.run(RUN);
        if fault == "torn" && ran.code == Some(0) || fault == "short" && number > 60 {
            return number;
        }
        check(number, &project, &ran);
    }
    0
}

#[test]
fn a_torn_write_is_repaired() {
    let undisturbed = from_a_template();
    undisturbed.run(RUN).exits(0);
    let goal = end(&undisturbed);
    let points = at_every_write("torn", |number, project, ran| {
        assert_eq!(ran.signal, Some(9), "write {number}: {}", ran.transcript());
        project
            .run_in_shell("unset FAULT_WRITE; exec \"$@\"", RUN)
            .exits(0);
        assert_eq!(end(project), goal, "write {number}");
        project.nothing_left();
    });
    assert!(20 < points, "only {points} writes");
}

#[test]
fn a_short_write_is_completed() {
    let undisturbed = from_a_template();
    undisturbed.run(RUN).exits(0);
    let goal = end(&undisturbed);
    at_every_write("short", |number, project, ran| {
        assert_eq!(ran.code, Some(0), "write {number}: {}", ran.transcript());
        assert_eq!(end(project), goal, "write {number}");
    });
}

#[test]
fn a_full_disk_is_reported_before_the_first_request() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    fs::rename(project.path("specs"), project.outside("specs")).unwrap();
    let line = "mount -t tmpfs -o size=64k none \"$PWD\"\ncd \"$PWD\"\ncp -r ../specs .\ncat /dev/zero > full 2>/dev/null || true\n\
        \"$@\" && exit 98\ncode=$?\nrm full\n\"$@\"\nexit $code";
    if let Some(ran) = in_private_mount_namespace(&project, line, RUN) {
        ran.exits(74).says("No space left");
        assert_eq!(server.count(), 1, "the first run asked");
    }
}

#[test]
fn a_disk_without_inodes_stops_the_run_and_no_answer_is_paid_twice() {
    for names in [7, 8, 9, 10, 11, 12, 13] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec(), &server);
        fs::rename(project.path("specs"), project.outside("specs")).unwrap();
        let line = format!(
            "mount -t tmpfs -o nr_inodes={names} none \"$PWD\"\ncd \"$PWD\"\ncp -r ../specs .\n\
             code=0\n\"$@\" || code=$?\nmount -o remount,nr_inodes=1000 none \"$PWD\"\n\"$@\"\nexit $code"
        );
        let Some(ran) = in_private_mount_namespace(&project, &line, RUN) else {
            return;
        };
        assert!(
            matches!(ran.code, Some(0 | 74)),
            "{names}: {}",
            ran.transcript()
        );
        assert!(
            ran.code == Some(0) || ran.stderr.contains("No space left"),
            "{names}: {}",
            ran.transcript()
        );
        assert_eq!(server.count(), 1, "{names}: {}", ran.transcript());
    }
}

/// A folder that cannot be written: refused before anything starts.
fn check_refused(what: &str, line: &str) {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    fs::create_dir(project.path("logs")).unwrap();
    let before = project.files();
    let Some(ran) = in_private_mount_namespace(&project, line, RUN_JSON) else {
        return;
    };
    if ran.code == Some(99) {
        return needs::skip(format!("{what} cannot be had here: {}", ran.stderr.trim()));
    }
    assert_eq!(ran.code, Some(74), "{what}: {}", ran.transcript());
    assert_eq!(ran.outcome_and_reason().1, "io_error", "{what}");
    assert_eq!(server.count(), 0, "{what}");
    assert_eq!(project.files(), before, "{what}");
}

#[test]
fn a_read_only_or_foreign_root_is_refused_at_the_start() {
    let read_only = "mount --bind \"$PWD\" \"$PWD\"; mount -o remount,ro,bind \"$PWD\"; cd \"$PWD\"; exec \"$@\"";
    check_refused("a read-only root", read_only);
    check_refused(
        "an immutable root",
        "chattr +i . || exit 99; code=0; \"$@\" || code=$?; chattr -i .; exit $code",
    );
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    check_refused(
        "a root of somebody else",
        &format!("{nobody} test -x \"$1\" || exit 99; exec {nobody} \"$@\""),
    );
}

#[test]
fn a_read_only_logs_folder_is_refused_before_the_first_request() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    fs::create_dir(project.path("logs")).unwrap();
    let line = "mount --bind logs logs; mount -o remount,ro,bind logs; exec \"$@\"";
    let Some(ran) = in_private_mount_namespace(&project, line, RUN_JSON) else {
        return;
    };
    ran.exits(74).says("Read-only file system");
    assert_eq!(server.count(), 0);
    assert!(!project.exists("state.json"), "half a run was begun");
    project.run(RUN).exits(0);
}

#[test]
fn a_damaged_state_is_either_valid_or_corrupt() {
    let server = Server::start([reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let sound = fs::read(project.path("state.json")).unwrap();
    let check = |bad: &[u8], what: String| {
        project.write("state.json", bad);
        let ran = project.run(&["status"]);
        assert!(
            matches!(ran.code, Some(0 | 3)),
            "{what}: {}",
            ran.transcript()
        );
        assert_eq!(fs::read(project.path("state.json")).unwrap(), bad, "{what}");
        ran.code
    };
    let mut corrupt = 0;
    for at in (0..sound.len()).step_by(5) {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at / 5 % 8);
        corrupt += u32::from(check(&flipped, format!("bit of byte {at}")) == Some(3));
    }
    assert!(30 < corrupt, "only {corrupt} were found out");
    for end in (0..sound.len() - 2).step_by(11) {
        assert_eq!(
            check(&sound[..end], format!("cut at {end}")),
            Some(3),
            "cut at {end}"
        );
    }
    project.run(&["reset"]).exits(0);
    assert!(!project.exists("state.json"));
}

#[test]
fn a_failed_sync_stops_the_run() {
    if !needs::may_trace() {
        return;
    }
    for call in ["fsync", "fdatasync"] {
        for number in crate::crash::numbers(&from_a_template(), call) {
            let project = from_a_template();
            let fault = format!("inject={call}:error=EIO:when={number}");
            let ran = crate::crash::traced(
                &project,
                &[
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={call}"),
                    "-e",
                    &fault,
                ],
            );
            assert_eq!(ran.code, Some(74), "{call} {number}: {}", ran.transcript());
            assert!(
                ran.stderr.contains("Input/output error"),
                "{call} {number}: {}",
                ran.transcript()
            );
            let phase = fs::read(project.path("state.json"))
                .ok()
                .map(|bytes| serde_json::from_slice::<Value>(&bytes).unwrap());
            assert!(
                phase.is_none_or(|state| state["state"] != "FAILED"),
                "{call} {number}"
            );
        }
    }
}
