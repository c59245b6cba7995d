//! Answers in files mode: the format, reminders, paths outside the workspace, and atomic application.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::project::{Project, RUN_JSON, answer_spec, checked_by};
use crate::support::reply::{self, Reply, block};
use crate::support::running::Ran;
use crate::support::server::Server;

/// A spec that any answer in the format satisfies, without reminders.
fn strict() -> String {
    checked_by("true") + "generator: {format_retries: 0}\n"
}

fn run(spec: &str, replies: Vec<Reply>) -> (Project, Server, Ran) {
    let server = Server::start(replies);
    let project = Project::with(spec, &server);
    let ran = project.run(RUN_JSON);
    (project, server, ran)
}

/// The text becomes exactly these files.
fn check_files(text: &str, expected: &[(&str, &str)]) {
    let (project, _, ran) = run(&strict(), vec![reply::text(text)]);
    assert_eq!(ran.code, Some(0), "{text:?}\n{}", ran.transcript());
    let expected = expected
        .iter()
        .map(|(path, content)| ((*path).to_owned(), content.as_bytes().to_vec()));
    assert_eq!(project.workspace_files(), expected.collect(), "{text:?}");
}

#[test]
fn files_are_written_byte_for_byte() {
    check_files("<file path=\"a.txt\">\nx\n</file>", &[("a.txt", "x\n")]);
    check_files(
        "Sure!\n<file path=\"a.txt\">\nx\n</file>\nDone.",
        &[("a.txt", "x\n")],
    );
    check_files("<file path=\"a.txt\">\n</file>\n", &[("a.txt", "")]);
    check_files(
        "<file path=\"p/q/a.txt\">\nx\n\n</file>\n",
        &[("p/q/a.txt", "x\n\n")],
    );
    check_files(
        "<file path=\"./p//a.txt\">\nx\n</file>\n",
        &[("p/a.txt", "x\n")],
    );
    check_files(
        "<file path=\"a.txt\">\r\nx\r\n</file>\r\n",
        &[("a.txt", "x\r\n")],
    );
    check_files(
        "<file path=\"a.txt\">\n  </file>\nx</file>\n</file>\n",
        &[("a.txt", "  </file>\nx</file>\n")],
    );
    check_files(
        "<file path=\"a.txt\" end=\"STOP\">\n</file>\nSTOP \nSTOP\n",
        &[("a.txt", "</file>\nSTOP \n")],
    );
    check_files(
        "<file path=\"a.txt\">\n<file path=\"b.txt\">\n</file>\n",
        &[("a.txt", "<file path=\"b.txt\">\n")],
    );
    check_files(
        "<file path=\"ä ö.txt\">\n漢字 👩‍💻\n</file>\n",
        &[("ä ö.txt", "漢字 👩‍💻\n")],
    );
    check_files(
        &(block("a", "1\n") + &block("b", "2\n")),
        &[("a", "1\n"), ("b", "2\n")],
    );
}

#[test]
fn a_deletion_removes_a_whole_folder() {
    let first = reply::files(&[
        ("old/one.txt", "1\n"),
        ("old/two.txt", "2\n"),
        ("gone.txt", "x\n"),
        ("stays.txt", "x\n"),
    ]);
    let second = reply::text(&format!(
        "<delete path=\"old\"/>\n<delete path=\"gone.txt\"/>\n{}",
        block("answer.txt", "42\n")
    ));
    let (project, _, ran) = run(&answer_spec(), vec![first, second]);
    ran.exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt", "stays.txt"]);
    assert!(!project.exists("workspace/old"));
}

#[test]
fn a_file_can_replace_a_folder_that_the_same_answer_deletes() {
    let second = reply::text(&format!(
        "<delete path=\"a\"/>\n{}{}",
        block("a/c.txt", "x\n"),
        block("answer.txt", "42\n")
    ));
    let (project, _, ran) = run(
        &answer_spec(),
        vec![reply::files(&[("a", "file\n")]), second],
    );
    ran.exits(0);
    assert_eq!(project.workspace_names(), ["a/c.txt", "answer.txt"]);
}

/// The text is not in the format: nothing is written, and the reminder contains `reason`.
fn check_reminder(text: &str, told: &str) {
    let server = Server::start([reply::text(text), reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN_JSON);
    server.wait_for(2);
    assert_eq!(project.workspace_names(), [""; 0], "{text:?}");
    let said = server.requests()[1].text();
    let first = server.requests()[0].text();
    let new = said.strip_prefix(first.as_str()).unwrap_or(&said);
    assert!(
        new.contains(told),
        "{told:?} is not in the reminder for {text:?}:\n{new}"
    );
    server.release();
    running.wait().exits(0);
    assert_eq!(
        project.phases().join(" "),
        "INIT GENERATING TESTING SUCCESS"
    );
    assert_eq!(project.state()["retry_count"], 0);
}

#[test]
fn an_answer_in_the_wrong_format_gets_a_reminder_in_the_same_phase() {
    check_reminder("I would rather talk.", "<file path=");
    check_reminder("<file path=\"half.txt\">\nx\n", "half.txt");
    check_reminder(
        &(block("whole.txt", "x\n") + "<file path=\"half.txt\">\nx\n"),
        "half.txt",
    );
    check_reminder(
        &(block("twice.txt", "1\n") + &block("./twice.txt", "2\n")),
        "twice.txt",
    );
    check_reminder(
        &(block("Case.txt", "1\n") + &block("cASE.txt", "2\n")),
        "ASE.txt",
    );
    check_reminder(
        &(block("both.txt", "1\n") + "<delete path=\"both.txt\"/>\n"),
        "both.txt",
    );
    check_reminder(
        &(block("thing", "1\n") + &block("thing/inside", "2\n")),
        "thing",
    );
    check_reminder(&block("folder/", "1\n"), "\"folder/\" ends like a folder");
}

#[test]
fn a_truncated_answer_writes_nothing() {
    let (project, server, ran) = run(
        &answer_spec(),
        vec![reply::answer("41").stop("max_tokens"), reply::answer("42")],
    );
    ran.exits(0);
    assert_eq!(
        (server.count(), project.state()["retry_count"].as_u64()),
        (2, Some(0))
    );
}

#[test]
fn reminders_are_limited_and_the_reason_names_what_was_missing() {
    let check = |replies: Vec<Reply>, retries: &str, reason: &str, requests: usize| {
        let spec = answer_spec() + &format!("generator: {{format_retries: {retries}}}\n");
        let (_, server, ran) = run(&spec, replies);
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), reason.into()),
            "{}",
            ran.transcript()
        );
        assert_eq!((ran.code, server.count()), (Some(1), requests));
    };
    let talk = || reply::text("words");
    let half = || reply::text("<file path=\"a\">\nx\n");
    check(vec![talk(), talk(), talk(), talk()], "2", "no_output", 3);
    check(vec![talk(), half()], "1", "generation_error", 2);
    check(vec![talk()], "0", "no_output", 1);
    check(
        vec![reply::answer("41"), half(), half()],
        "1",
        "patch_error",
        3,
    );
    check(vec![reply::answer("41"), talk()], "0", "no_output", 2);
    check(vec![reply::text("")], "0", "no_output", 1);
}

#[test]
fn a_reminder_contains_all_answers_of_the_phase() {
    let (_, server, ran) = run(
        &answer_spec(),
        vec![
            reply::text("first-try"),
            reply::text("second-try"),
            reply::answer("42"),
        ],
    );
    ran.exits(0);
    let said = server.requests()[2].text();
    assert!(
        said.contains("first-try") && said.contains("second-try"),
        "{said}"
    );
    assert!(
        server.requests()[2].raw.starts_with(
            server.requests()[0]
                .raw
                .split_once("\"messages\"")
                .unwrap()
                .0
        )
    );
}

/// A path that is outside or not allowed: the run fails and nothing of the answer is written.
fn check_escape(path: &str) {
    let text = block("fine.txt", "x\n") + &block(path, "bad\n");
    let (project, server, ran) = run(&strict(), vec![reply::text(&text)]);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "safety_violation".into()),
        "{path:?}\n{}",
        ran.transcript()
    );
    assert_eq!((ran.code, server.count()), (Some(2), 1), "{path:?}");
    assert_eq!(project.workspace_names(), [""; 0], "{path:?}");
    assert!(
        !project.outside("evil").exists() && !project.exists("evil"),
        "{path:?}"
    );
    assert!(project.state()["last_error"].is_string());
    assert!(
        !ran.stderr.contains('\u{1b}'),
        "{path:?} reaches the terminal raw"
    );
    project.run(RUN_JSON).exits(2);
}

#[test]
fn a_path_outside_the_workspace_is_a_violation() {
    for path in [
        "../evil",
        "a/../../evil",
        "a/../b",
        "..",
        "/tmp/evil",
        "../workspace-evil/x",
        "C:\\evil",
        "a\\..\\evil",
    ] {
        check_escape(path);
    }
    check_escape("a\u{1b}[31m.txt");
    check_escape(&"n".repeat(300));
    check_escape(&"d/".repeat(3000));
}

#[test]
fn a_deletion_outside_the_workspace_is_a_violation() {
    for path in ["../specs", "/tmp", "."] {
        let (project, _, ran) = run(
            &strict(),
            vec![reply::text(&format!("<delete path=\"{path}\"/>\n"))],
        );
        assert_eq!(ran.code, Some(2), "{path}\n{}", ran.transcript());
        assert!(project.exists("specs/spec.yaml"));
    }
}

/// A project whose check leaves something in the workspace before the next answer.
fn after_check(script: &str, second: Reply) -> (Project, Ran) {
    let spec = checked_by(&format!("grep -qx 42 answer.txt && exit; {script}; exit 1"));
    let (project, _, ran) = run(&spec, vec![reply::answer("41"), second]);
    (project, ran)
}

#[test]
fn a_link_to_the_outside_is_a_violation() {
    let both = |path: &str| reply::files(&[("answer.txt", "42\n"), (path, "bad\n")]);
    for (script, path) in [
        ("ln -s / way", "way/tmp/evil"),
        ("ln -s ../specs way", "way/evil"),
        ("ln -s .. up; ln -s up way", "way/evil"),
        ("ln -s /proc/self/cwd/.. way", "way/evil"),
    ] {
        let (project, ran) = after_check(script, both(path));
        assert_eq!(ran.code, Some(2), "{script}\n{}", ran.transcript());
        assert_eq!(project.workspace("answer.txt"), "41\n", "{script}");
        assert!(!project.exists("specs/evil") && !project.exists("evil"));
    }
}

#[test]
fn an_inner_link_is_followed_as_a_folder_and_replaced_as_a_file() {
    let second = reply::files(&[
        ("answer.txt", "42\n"),
        ("way/in.txt", "x\n"),
        ("leaf", "new\n"),
    ]);
    let (project, ran) = after_check(
        "mkdir real; ln -s real way; echo old > target; ln -s target leaf",
        second,
    );
    ran.exits(0);
    assert_eq!(project.workspace("real/in.txt"), "x\n");
    assert_eq!(project.workspace("target"), "old\n");
    assert!(
        fs::symlink_metadata(project.path("workspace/leaf"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn a_link_to_a_file_outside_is_replaced_or_refused_but_never_written_through() {
    let (project, ran) = after_check(
        "ln -s ../specs/spec.yaml leaf",
        reply::files(&[("leaf", "bad\n"), ("answer.txt", "42\n")]),
    );
    assert!(matches!(ran.code, Some(0 | 2)), "{}", ran.transcript());
    assert!(project.read("specs/spec.yaml").contains("name: answer"));
}

#[test]
fn a_hard_link_is_broken_not_written_through() {
    let server = Server::start([
        reply::answer("41"),
        reply::files(&[("linked", "new\n"), ("answer.txt", "42\n")]).held(),
    ]);
    let project = Project::with(answer_spec(), &server);
    fs::write(project.outside("precious"), "precious\n").unwrap();
    let running = project.start(RUN_JSON);
    server.wait_for(2);
    fs::hard_link(
        project.outside("precious"),
        project.path("workspace/linked"),
    )
    .unwrap();
    server.release();
    running.wait().exits(0);
    assert_eq!(
        fs::read_to_string(project.outside("precious")).unwrap(),
        "precious\n"
    );
    assert_eq!(project.workspace("linked"), "new\n");
}

#[test]
fn a_special_file_in_the_way_does_not_hang() {
    let (_, ran) = after_check(
        "mkfifo pipe",
        reply::files(&[("pipe", "x\n"), ("answer.txt", "42\n")]),
    );
    assert!(matches!(ran.code, Some(0..=2)), "{}", ran.transcript());
}

#[test]
fn a_link_made_while_the_model_answers_is_not_followed() {
    let server = Server::start([reply::files(&[("folder/new.txt", "x\n")]).held()]);
    let project = Project::with(strict(), &server);
    fs::create_dir(project.outside("precious")).unwrap();
    let running = project.start(RUN_JSON);
    server.wait_for(1);
    symlink(
        project.outside("precious"),
        project.path("workspace/folder"),
    )
    .unwrap();
    server.release();
    running.wait().exits(2);
    assert_eq!(
        fs::read_dir(project.outside("precious")).unwrap().count(),
        0
    );
}

#[test]
fn a_failed_write_leaves_no_partial_answer() {
    // There is a folder at the path of the second file, so the answer contradicts the workspace.
    let (project, server, ran) = {
        let spec =
            checked_by("grep -qx 42 answer.txt && exit; mkdir -p taken; touch taken/x; exit 1")
                + "generator: {format_retries: 0}\n";
        run(
            &spec,
            vec![
                reply::answer("41"),
                reply::files(&[("answer.txt", "42\n"), ("taken", "x\n")]),
            ],
        )
    };
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "patch_error".into()),
        "{}",
        ran.transcript()
    );
    assert_eq!(project.workspace("answer.txt"), "41\n");
    assert_eq!(server.count(), 2);
    project.nothing_left();
}
