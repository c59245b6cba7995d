//! Changes from outside during a run: the log is deleted, moved, truncated; the binary is deleted or replaced; checks
//! hang, fill the disk, cannot start.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::json;

use crate::disk_faults::in_private_mount_namespace;
use crate::support::project::{BINARY, Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::running::{Running, until};
use crate::support::serve_client::{Serving, command};
use crate::support::server::Server;

/// Changes the log while a request is pending: the run stops with a message and can be resumed.
fn check_log(what: &str, change: impl Fn(&Project), asked: usize) {
    let server = Server::answering(|_| reply::answer("42").held());
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN_JSON);
    server.wait_for(1);
    change(&project);
    server.release();
    let ran = running.wait();
    assert_eq!(ran.code, Some(74), "{what}: {}", ran.transcript());
    assert!(
        ran.stderr.contains("the log"),
        "{what}: {}",
        ran.transcript()
    );
    let again = project.start(RUN);
    if 1 < asked {
        server.wait_for(asked);
        server.release();
    }
    again.wait().exits(0);
    assert_eq!(server.count(), asked, "{what}");
}

#[test]
fn a_removed_log_stops_the_run() {
    let path = |project: &Project| project.path(&project.log_path());
    check_log(
        "deleted",
        |project| fs::remove_file(path(project)).unwrap(),
        2,
    );
    check_log(
        "moved",
        |project| fs::rename(path(project), project.path("logs/old")).unwrap(),
        2,
    );
    check_log(
        "emptied",
        |project| fs::write(path(project), "").unwrap(),
        2,
    );
    let rotate = |project: &Project| {
        fs::rename(path(project), project.path("logs/old")).unwrap();
        fs::write(path(project), "").unwrap();
    };
    check_log("rotated", rotate, 2);
}

#[test]
fn a_log_written_by_another_process_stops_the_run() {
    let scribble = |project: &Project| {
        let path = project.path(&project.log_path());
        fs::write(&path, fs::read_to_string(&path).unwrap() + "note to self\n").unwrap();
    };
    // The foreign line is skipped; the answer after it was recorded.
    check_log("written to", scribble, 1);
}

#[test]
fn a_deleted_or_replaced_binary_does_not_matter() {
    let server = Server::answering(|_| reply::answer("42").held());
    for another in [None, Some("#!/bin/sh\ntouch ../evil\n")] {
        let project = Project::with(answer_spec(), &server);
        let binary = project.outside("orchestrator");
        fs::copy(BINARY, &binary).unwrap();
        let running = Running::start(
            project.command(&binary.display().to_string(), RUN),
            project.root(),
        );
        until("it asks", || {
            server.count() == 1 + usize::from(another.is_some())
        });
        fs::remove_file(&binary).unwrap();
        if let Some(another) = another {
            fs::write(&binary, another).unwrap();
            fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        }
        server.release();
        running.wait().exits(0);
        assert!(!project.outside("evil").exists());
    }
}

#[test]
fn a_hanging_check_is_ended_at_its_timeout() {
    let ways = [
        ("busy", "echo so-far; while :; do :; done"),
        ("stopped", "echo so-far; kill -STOP $$"),
        ("silent", "echo so-far; exec >&- 2>&- <&-; sleep 600"),
        (
            "deaf",
            "echo so-far; trap '' TERM INT HUP QUIT; while :; do sleep 600; done",
        ),
    ];
    for (what, script) in ways {
        let server = Server::start([reply::answer("42")]);
        let spec = checked_by(script).replace("    command:", "    timeout: 1\n    command:");
        let project = Project::with(spec, &server);
        let ran = project.run(RUN_JSON).exits(1);
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), "check_timeout".into()),
            "{what}"
        );
        assert!(
            project.state_text("last_test_output").contains("so-far"),
            "{what}"
        );
        project.nothing_left();
    }
}

#[test]
fn every_kind_of_check_exit_is_reported() {
    let ends = [
        ("kill -ABRT $$", 134),
        ("kill -SEGV $$", 139),
        ("kill -KILL $$", 137),
        ("exit 1", 1),
        ("exit 124", 124),
        ("exit 126", 126),
        ("exit 255", 255),
    ];
    for (script, code) in ends {
        let server = Server::start([reply::answer("42"), reply::status(400)]);
        let project = Project::with(checked_by(script), &server);
        project.run(RUN).exits(1);
        assert_eq!(project.state()["last_test_exit_code"], code, "{script}");
        let words = if script.starts_with("exit") {
            format!("exit code {code}")
        } else {
            "signal".to_owned()
        };
        let said = server.requests()[1].text().to_lowercase();
        assert!(said.contains(&words), "{script}: {said}");
    }
}

#[test]
fn a_check_that_cannot_start_fails_with_the_reason() {
    let programs: [(&str, &str); 3] = [
        ("not executable", "plain.sh"),
        ("no interpreter", "lost.sh"),
        ("a folder", "folder"),
    ];
    for (what, name) in programs {
        let server = Server::start([reply::answer("42"), reply::status(400)]);
        let command = json!([format!("./{name}")]);
        let spec = format!(
            "name: a\ndescription: b\nworkspace: {{copy: [given/]}}\nchecks: [{{name: odd, command: {command}}}]\n"
        );
        let project = Project::with(spec, &server).file("specs/given/plain.sh", "exit 0\n");
        let project = project
            .file("specs/given/lost.sh", "#!/no/such/interpreter\n")
            .file("specs/given/folder/x", "");
        fs::set_permissions(
            project.path("specs/given/lost.sh"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        project.run(RUN).exits(1);
        assert_eq!(project.state()["last_test_exit_code"], 127, "{what}");
        assert!(
            server.requests()[1].text().contains("cannot start"),
            "{what}"
        );
    }
}

#[test]
fn a_check_that_fills_the_disk_loses_nothing() {
    let server = Server::start([reply::answer("42")]);
    let script = "[ -e was-full ] && exec grep -qx 42 answer.txt; touch was-full; cat /dev/zero > full; exit 1";
    let project = Project::with(checked_by(script), &server);
    fs::rename(project.path("specs"), project.outside("specs")).unwrap();
    let line = "mount -t tmpfs -o size=1m none \"$PWD\"\ncd \"$PWD\"\ncp -r ../specs .\n\
        code=0\n\"$@\" || code=$?\nrm workspace/full\n\"$@\"\nexit $code";
    let Some(ran) = in_private_mount_namespace(&project, line, RUN) else {
        return;
    };
    ran.exits(74).says("No space left");
    assert_eq!(server.count(), 1);
}

#[test]
fn a_split_utf8_character_is_shown_when_it_is_complete() {
    let project = Project::new();
    let mut serving = Serving::start(&project);
    assert_eq!(serving.bash("printf 'a\\303'").shows(), "a\u{fffd}");
    assert_eq!(
        serving
            .bash("printf 'a\\303'; sleep 0.1; printf '\\251b'")
            .shows(),
        "aéb"
    );
    assert_eq!(
        serving
            .python("import os\n_ = os.write(1, b'a\\xe2\\x82')")
            .shows(),
        "a\u{fffd}"
    );
    assert_eq!(serving.bash("echo b").shows(), "b\n");
}

#[test]
fn a_state_of_another_version_is_reported_and_kept() {
    for (version, words) in [(json!(2), "newer version"), (json!(0), "unknown version")] {
        let server = Server::start([reply::status(401)]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(4);
        let mut state = project.state();
        state["version"] = version;
        project.write("state.json", state.to_string());
        project.run(RUN).exits(3).says(words);
        assert_eq!(server.count(), 1);
        assert!(
            project
                .files()
                .values()
                .any(|content| *content == state.to_string().into_bytes()),
            "{words}"
        );
    }
}

#[test]
fn the_root_is_locked_in_every_phase_and_free_after_a_kill() {
    let server = Server::answering(
        |request| match request.text().contains("answer.txt says 41") {
            true => reply::answer("42").held(),
            false => reply::answer("41").held(),
        },
    );
    let script = "touch begun; until [ -e go ]; do sleep 0.01; done; grep -qx 42 answer.txt && exit; \
                  echo \"answer.txt says $(cat answer.txt)\"; exit 1";
    let project = Project::with(checked_by(script), &server);
    let mut running = project.start(RUN);
    let refused = || {
        let ran = project.run(RUN_JSON).exits(75);
        assert_eq!(
            ran.outcome_and_reason().1,
            "root_locked",
            "{}",
            ran.transcript()
        );
    };
    server.wait_for(1);
    refused();
    server.release();
    running.until("the check runs", || project.exists("workspace/begun"));
    refused();
    project.write("workspace/go", "");
    server.wait_for(2);
    refused();
    running.signal(Signal::KILL);
    // The killed process has not been waited for, but the root is free.
    let stat = format!("/proc/{}/stat", running.id());
    until("it is dead", || {
        fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
    let again = project.start(RUN);
    server.wait_for(3);
    server.release();
    again.wait().exits(0);
    running.wait();
    project.nothing_left();
}

#[test]
fn input_that_ends_within_a_request_is_one_error() {
    let project = Project::new();
    let mut serving = Serving::start(&project);
    serving.send(&command(
        "bash",
        &format!("sleep {} & echo", project.marker()),
    ));
    serving.write("{\"id\": 7, \"type\": \"comm");
    serving.close_input();
    assert!(serving.answer().is_success());
    assert!(serving.answer().error().contains("Failed to parse command"));
    serving.end().exits(0);
    project.nothing_left();
}
