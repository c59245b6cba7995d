//! Checks: order, environment, timeouts, what counts as a pass, and what is reported to the model.

use std::fs;

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, checked_by, processes};
use crate::support::reply;
use crate::support::running::until;
use crate::support::server::Server;

const HEAD: &str = "name: answer\ndescription: Write the answer to answer.txt.\n";

/// A spec with these checks, each a name, a line for `sh`, and further fields.
fn spec(checks: &[(&str, &str, &str)]) -> String {
    let one = |(name, script, more): &(&str, &str, &str)| {
        format!(
            "  - {{name: {name}, command: {}, {more}}}\n",
            json!(["sh", "-c", script])
        )
    };
    format!(
        "{HEAD}checks:\n{}",
        checks.iter().map(one).collect::<String>()
    )
}

#[test]
fn all_checks_run_in_order_and_all_must_pass() {
    let checks = [
        ("one", "echo one >> order; grep -qx 42 answer.txt", ""),
        (
            "two",
            "echo two >> order; echo told-by-two; test -e second",
            "",
        ),
        ("three", "echo three >> order", ""),
    ];
    let second = reply::files(&[("answer.txt", "42\n"), ("second", "")]);
    let server = Server::start([reply::answer("42"), second]);
    let project = Project::with(spec(&checks), &server);
    project.run(RUN).exits(0);
    assert_eq!(
        project.workspace("order"),
        "one\ntwo\nthree\none\ntwo\nthree\n"
    );
    assert!(server.requests()[1].text().contains("told-by-two"));
    let finished: Vec<_> = project
        .events("ScriptOutput")
        .iter()
        .map(|line| line["passed"].clone())
        .collect();
    assert_eq!(finished, [true, false, true, true, true, true]);
}

#[test]
fn a_sandbox_denial_is_explained_to_the_model() {
    let refused = "grep -qx 42 answer.txt && exit; echo \"touch: cannot touch '/srv/x': Read-only file system\" >&2; exit 1";
    let hidden =
        "test -e second && exit; echo 'curl: (6) Could not resolve host: secret-host'; exit 1";
    let checks = [("open", refused, ""), ("covert", hidden, "hidden: true")];
    let third = reply::files(&[("answer.txt", "42\n"), ("second", "")]);
    let server = Server::start([reply::answer("41"), reply::answer("42"), third]);
    let project = Project::with(spec(&checks), &server);
    let ran = project.run(RUN_JSON).exits(0);
    let (first, second) = (server.requests()[1].text(), server.requests()[2].text());
    assert!(
        first.contains("write outside workspace refused: /srv/x; write below the workspace"),
        "{first}"
    );
    assert!(
        !second.contains("network was refused") && !second.contains("secret-host"),
        "{second}"
    );
    let notes = ran.result()["notes"].to_string();
    assert!(
        notes.contains("check open: write outside workspace refused: /srv/x"),
        "{notes}"
    );
    assert!(
        notes.contains("check covert: the network was refused"),
        "{notes}"
    );
}

#[test]
fn a_check_gets_a_rebuilt_environment() {
    let script = "env | cut -d= -f1 | sort > names; echo \"$TZ $PYTHONHASHSEED $COLUMNS $NO_COLOR $TERM $GREETING\" > values; \
        echo \"$HOME\" > home; cat > stdin; ls -l /proc/self/fd > descriptors; pwd > folder";
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(spec(&[("look", script, "env: {GREETING: hello}")]), &server)
        .env("LD_PRELOAD", "")
        .env("BASH_ENV", "/nowhere")
        .env("PYTHONSTARTUP", "/nowhere")
        .env("SECRET_TOKEN", "hidden-from-children");
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("values").trim(), "UTC 0 200 1 dumb hello");
    let names = project.workspace("names");
    for absent in [
        "API_KEY",
        "SECRET_TOKEN",
        "BASH_ENV",
        "PYTHONSTARTUP",
        "LD_PRELOAD",
        "ORCHESTRATOR",
        "PYTHONPYCACHEPREFIX",
    ] {
        assert!(
            !names.contains(absent),
            "{absent} reaches the check:\n{names}"
        );
    }
    for present in [
        "PATH",
        "HOME",
        "LANG",
        "PYTHONPATH",
        "TMPDIR",
        "PYTHONDONTWRITEBYTECODE",
    ] {
        assert!(
            names.lines().any(|name| name == present),
            "no {present} in\n{names}"
        );
    }
    assert_eq!(project.workspace("stdin"), "");
    assert!(project.workspace("folder").trim().ends_with("workspace"));
    // The listing has a descriptor of its own, and test runners have one to report on.
    assert!(
        project.workspace("descriptors").matches(" -> ").count() <= 5,
        "{}",
        project.workspace("descriptors")
    );
    project.nothing_left();
}

#[test]
fn a_check_has_no_terminal() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(
        checked_by("if (: > /dev/tty) 2> /dev/null; then exit 1; fi"),
        &server,
    );
    project.run(RUN).exits(0);
}

#[test]
fn a_check_timeout_fails_the_run_and_leaves_no_process() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let marker = project.marker().to_owned();
    let script = format!(
        "echo so-far; (setsid sh -c 'sleep {marker} & sleep {marker}' &); trap '' TERM; sleep {marker}"
    );
    let project = project.spec(spec(&[("slow", &script, "timeout: 1")]));
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "check_timeout".into())
    );
    assert_eq!(project.state()["last_test_exit_code"], 124);
    assert!(project.state_text("last_test_output").contains("so-far"));
    until("the daemons are gone", || processes(&[&marker]).is_empty());
}

#[test]
fn a_timeout_can_be_handed_to_the_model() {
    let script = "grep -qx 42 answer.txt || sleep 600";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(
        spec(&[("slow", script, "timeout: 1")]) + "on_timeout: patch\n",
        &server,
    );
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 1);
    assert!(server.requests()[1].text().contains("slow"));
}

#[test]
fn a_daemon_that_outlives_its_check_is_ended() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let script = format!(
        "(setsid sh -c 'setsid sleep {} &' &); exit 0",
        project.marker()
    );
    let project = project.spec(checked_by(&script));
    project.run(RUN).exits(0);
    project.nothing_left();
}

#[test]
fn a_death_by_signal_has_its_exit_code_and_is_reported() {
    let check = |command: serde_json::Value, code: u32, told: &[&str]| {
        let server = Server::start([reply::answer("42"), reply::status(400)]);
        let project = Project::with(
            format!("{HEAD}checks: [{{name: odd, command: {command}}}]\n"),
            &server,
        );
        project.run(RUN).exits(1);
        assert_eq!(project.state()["last_test_exit_code"], code, "{command}");
        let said = server.requests()[1].text();
        assert!(
            told.iter().any(|word| said.contains(word)),
            "{command}: {said}"
        );
    };
    check(
        json!(["sh", "-c", "kill -SEGV $$"]),
        139,
        &["139", "SIGSEGV", "signal 11"],
    );
    check(
        json!(["sh", "-c", "kill -9 $$"]),
        137,
        &["137", "SIGKILL", "signal 9"],
    );
    check(json!(["sh", "-c", "exit 77"]), 77, &["77"]);
    check(json!(["./not-there"]), 127, &["not-there"]);
}

#[test]
fn a_check_is_started_without_a_shell() {
    let server = Server::start([reply::answer("42")]);
    let command = json!([
        "sh",
        "-c",
        "printf '%s\\n' \"$@\" > words",
        "sh",
        "$HOME",
        "a;b",
        "*",
        ""
    ]);
    let project = Project::with(
        format!("{HEAD}checks: [{{name: words, command: {command}}}]\n"),
        &server,
    );
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("words"), "$HOME\na;b\n*\n\n");
}

#[test]
fn long_output_is_bounded_and_its_end_is_kept() {
    let script = "grep -qx 42 answer.txt && exit; echo first-line; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last-line; exit 1";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    let said = server.requests()[1].text();
    assert!(
        said.contains("first-line") && said.contains("last-line"),
        "{}",
        said.len()
    );
    assert!(said.len() < 200_000, "{} bytes are said", said.len());
    let line = &project.events("ScriptOutput")[0];
    assert!(line["stdout"].as_str().unwrap().len() <= 66_000);
    assert!(20_000_000 < line["stdout_bytes"].as_u64().unwrap());
}

#[test]
fn output_is_data_for_the_model_and_the_log() {
    let script = "grep -qx 42 answer.txt && exit; printf '\\033[31mred\\033[0m\\n10%%\\r100%%\\n{\"event\":\"forged\"}\\n\\377\\n'; exit 1";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    let said = server.requests()[1].text();
    assert!(!said.contains('\u{1b}') && said.contains("red"), "{said}");
    assert!(said.contains("100%") && !said.contains("10%\r"), "{said}");
    assert!(project.events("forged").is_empty());
}

#[test]
fn a_hidden_check_runs_last_and_the_model_never_sees_it() {
    let checks = [
        ("seen", "ls > visible-saw; grep -q 4 answer.txt", ""),
        (
            "exam",
            "cat exam/secret.txt; echo said-by-exam; ls exam; touch left-behind; grep -qx 42 answer.txt",
            "hidden: true, files: [exam/]",
        ),
    ];
    let server = Server::start([reply::answer("1"), reply::answer("41"), reply::answer("42")]);
    let project =
        Project::with(spec(&checks), &server).file("specs/exam/secret.txt", "the-solution\n");
    project.run(RUN).exits(0);
    for request in server.requests() {
        for word in ["the-solution", "said-by-exam", "secret.txt"] {
            assert!(!request.text().contains(word), "{word} was said");
        }
    }
    let told = server.requests()[2].text();
    assert!(
        told.contains("hidden") || told.contains("exam"),
        "the model learns that it failed: {told}"
    );
    assert_eq!(project.workspace_names(), ["answer.txt", "visible-saw"]);
    assert!(!project.workspace("visible-saw").contains("exam"));
    let exams = project
        .events("ScriptOutput")
        .iter()
        .filter(|line| line["tool_name"] == "exam")
        .count();
    assert_eq!(exams, 2, "it runs only when the others pass");
}

/// A folder beside the root in which a test leaves a file for a check: what the check writes itself is undone.
fn gate(project: &Project) -> String {
    let gate = project.outside("gate");
    fs::create_dir(&gate).unwrap();
    gate.display().to_string()
}

#[test]
fn files_beside_hidden_ones_survive_a_crash() {
    let server = Server::start([reply::files(&[
        ("tests/own", "x\n"),
        ("answer.txt", "42\n"),
    ])]);
    let project = Project::new()
        .model(&server)
        .file("specs/exam/deep/secret", "");
    let gate = gate(&project);
    let script = format!(
        "test -e {gate}/open || {{ touch again; sleep {}; }}",
        project.marker()
    );
    let exam = (
        "exam",
        script.as_str(),
        "hidden: true, files: [{from: exam, to: tests}]",
    );
    let text = spec(&[("seen", "true", ""), exam]) + &format!("sandbox: {{read: [{gate}]}}\n");
    let project = project.spec(text);
    let mut running = project.start(RUN);
    running.until("the hidden check runs", || {
        project.exists("workspace/again")
    });
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    assert!(project.exists("workspace/tests/deep/secret"));
    fs::write(format!("{gate}/open"), "").unwrap();
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt", "tests/own"]);
    let left = fs::read_dir(project.root())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    assert!(
        !left
            .into_iter()
            .any(|name| name.to_string_lossy().contains("copies"))
    );
}

#[test]
fn hidden_files_are_removed_first_after_a_crash() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new()
        .model(&server)
        .file("specs/exam/secret.txt", "the-solution\n");
    let gate = gate(&project);
    let script = format!(
        "test -e {gate}/open && exit; touch seen; sleep {}",
        project.marker()
    );
    let visible = "test ! -e exam";
    let checks = [
        ("seen", visible, ""),
        ("exam", script.as_str(), "hidden: true, files: [exam/]"),
    ];
    let project = project.spec(spec(&checks) + &format!("sandbox: {{read: [{gate}]}}\n"));
    let mut running = project.start(RUN);
    running.until("the hidden check runs", || project.exists("workspace/seen"));
    assert!(project.exists("workspace/exam/secret.txt"));
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    fs::write(format!("{gate}/open"), "").unwrap();
    project.run(RUN).exits(0);
    assert!(!project.exists("workspace/exam") && !project.exists("workspace/seen"));
    assert_eq!(server.count(), 1);
}

#[test]
fn a_pass_needs_executed_tests() {
    let check = |script: &str, more: &str, code: i32| {
        let server = Server::start([reply::answer("42"), reply::answer("42")]);
        let project = Project::with(
            spec(&[("suite", script, more)]) + "max_retries: 1\n",
            &server,
        );
        let ran = project.run(RUN);
        assert_eq!(
            ran.code,
            Some(code),
            "{script} {more}\n{}",
            ran.transcript()
        );
    };
    let unittest =
        |ran: u32| format!("printf -- '-----\\nRan {ran} tests in 0.001s\\n\\nOK\\n' >&2");
    check(&unittest(3), "", 0);
    check(&unittest(0), "", 1);
    check("echo '===== no tests ran in 0.01s ====='", "", 1);
    check("echo '===== 3 skipped in 0.01s ====='", "", 1);
    check("echo '===== 2 passed, 1 skipped in 0.01s ====='", "", 0);
    check(&unittest(3), "min_tests: 4", 1);
    check(&unittest(4), "min_tests: 4", 0);
    check("echo fine", "", 0);
    check("echo fine", "min_tests: 1", 1);
}

#[test]
fn a_real_suite_is_recognised() {
    let test = "import unittest\nfrom calc import add\nclass Add(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(2, 2), 4)\n";
    let spec = format!(
        "{HEAD}workspace: {{protect: [test_calc.py]}}\nchecks: [{{name: unit, command: [python3, -m, unittest, -q]}}]\n"
    );
    let calc = |operator: &str| {
        reply::files(&[(
            "calc.py",
            &format!("def add(a, b):\n    return a {operator} b\n"),
        )])
    };
    let server = Server::start([calc("-"), calc("+")]);
    let project = Project::with(spec, &server).file("specs/test_calc.py", test);
    project.run(RUN).exits(0);
    assert!(
        server.requests()[1].text().contains("AssertionError"),
        "{}",
        server.requests()[1].text()
    );
    assert_eq!(project.events("ScriptOutput")[1]["tests"]["executed"], 1);
    assert_eq!(
        project.workspace_names(),
        ["calc.py", "test_calc.py"],
        "no cache is left"
    );
}

#[test]
fn protected_files_keep_the_content_the_user_gave() {
    let spec = checked_by(
        "test \"$(cat tests/t.txt)\" = original || exit 9; test ! -e tests/extra.txt || exit 8; \
         grep -qx 42 answer.txt && exit; echo changed > tests/t.txt; touch tests/extra.txt; exit 1",
    ) + "workspace: {protect: [tests/]}\n";
    let first = reply::files(&[
        ("answer.txt", "41\n"),
        ("tests/t.txt", "mine\n"),
        ("tests/extra.txt", "x\n"),
    ]);
    let server = Server::start([first, reply::answer("42")]);
    let project = Project::with(spec, &server).file("specs/tests/t.txt", "original\n");
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 1);
    assert_eq!(project.workspace("tests/t.txt"), "original\n");
    assert!(!project.exists("workspace/tests/extra.txt"));
    assert!(
        server.requests()[1].text().contains("tests/t.txt"),
        "the model is told"
    );
    assert!(!project.events("ProtectedRestored").is_empty());
}

#[test]
fn a_deleted_protected_file_is_restored_with_its_mode() {
    let spec = checked_by("./run.sh || exit 9; grep -qx 42 answer.txt && exit; rm run.sh; exit 1")
        + "workspace: {protect: [run.sh]}\n";
    let server = Server::start([
        reply::text(&(reply::block("answer.txt", "41\n") + "<delete path=\"run.sh\"/>\n")),
        reply::answer("42"),
    ]);
    let project = Project::with(spec, &server).file("specs/run.sh", "#!/bin/sh\nexit 0\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(project.path("specs/run.sh"), mode).unwrap();
    project.run(RUN).exits(0);
    assert!(project.exists("workspace/run.sh"));
}

#[test]
fn files_that_control_a_test_runner_are_a_violation() {
    for path in [
        "sitecustomize.py",
        "deep/usercustomize.py",
        "pytest.py",
        "unittest/__init__.py",
    ] {
        let server = Server::start([reply::files(&[("answer.txt", "42\n"), (path, "x = 1\n")])]);
        let project = Project::with(checked_by("true"), &server);
        let ran = project.run(RUN_JSON).exits(2);
        assert_eq!(
            ran.outcome_and_reason(),
            ("FAILED".into(), "safety_violation".into()),
            "{path}"
        );
        assert_eq!(project.workspace_names(), [""; 0], "{path}");
    }
}

#[test]
fn a_tampering_file_written_by_a_check_is_found_before_the_next_check() {
    let checks = [
        ("plant", "touch sitecustomize.py", ""),
        ("next", "touch ran", ""),
    ];
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(spec(&checks), &server);
    project.run(RUN).exits(2);
    assert!(!project.exists("workspace/ran"));
}

#[test]
fn files_that_may_control_a_test_runner_are_noted() {
    let spec = checked_by("true") + "workspace: {protect: [tests/]}\n";
    let server = Server::start([reply::files(&[
        ("conftest.py", "\n"),
        ("json.py", "\n"),
        ("answer.txt", "42\n"),
    ])]);
    let project = Project::with(spec, &server).file("specs/tests/t.txt", "x\n");
    let ran = project.run(RUN_JSON).exits(0);
    for name in ["conftest.py", "json.py"] {
        assert!(
            ran.result()["notes"].to_string().contains(name),
            "{}",
            ran.transcript()
        );
        assert!(ran.stderr.contains(name), "{}", ran.transcript());
        assert!(
            project
                .events("NoteAdded")
                .iter()
                .any(|line| line["note"].to_string().contains(name))
        );
    }
    assert!(!ran.result()["notes"].to_string().contains("answer.txt"));
}

#[test]
fn a_check_that_empties_the_workspace_is_survived() {
    let script = "grep -qx 42 answer.txt && exit; rm -rf ./* ; exit 1";
    let server = Server::start([
        reply::files(&[("answer.txt", "41\n"), ("deep/er/x", "x\n")]),
        reply::answer("42"),
    ]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt"]);
}

#[test]
fn hidden_files_left_by_a_crash_are_removed_without_their_neighbours() {
    let server = Server::start([reply::files(&[("exam/own.txt", "mine\n")])]);
    let project = Project::new()
        .model(&server)
        .file("specs/secret/question.txt", "?\n");
    let script = format!(
        "test -e {} || sleep {}",
        project.outside("again").display(),
        project.marker()
    );
    let project = project.spec(spec(&[(
        "exam",
        &script,
        "hidden: true, files: [{from: secret/, to: exam}]",
    )]));
    // The marker that distinguishes the two runs is outside of the workspace.
    let run = &["run", "--spec", "specs/spec.yaml", "--no-sandbox"];
    let mut running = project.start(run);
    running.until("the hidden file is there", || {
        project.exists("workspace/exam/question.txt")
    });
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    std::fs::write(project.outside("again"), "").unwrap();
    project.run(run).exits(0);
    assert_eq!(project.workspace_names(), ["exam/own.txt"]);
}

#[test]
fn a_check_that_locks_a_protected_folder_fails_and_it_is_unlocked() {
    let lock = "grep -qx 42 answer.txt && exit; touch tests/foreign; chmod 000 tests";
    let checks = [("lock", lock, ""), ("look", "ls tests >> seen", "")];
    let spec = spec(&checks) + "workspace: {protect: [tests/]}\n";
    // File modes do not restrict root unless it drops these capabilities.
    let line = "[ \"$(id -u)\" = 0 ] || exec \"$@\"; exec setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"";
    for more in [&[][..], &["--no-sandbox"]] {
        let server = Server::start([reply::answer("41"), reply::answer("42")]);
        let project = Project::with(&spec, &server).file("specs/tests/t", "");
        project.run_in_shell(line, &[RUN, more].concat()).exits(0);
        assert_eq!(project.workspace("seen"), "t\nt\n");
        assert_eq!(
            project.state()["retry_count"],
            1,
            "a check that locks it has failed"
        );
    }
}

#[test]
fn a_workspace_removed_by_a_check_is_recreated() {
    let script = "grep -qx 42 answer.txt && exit; rm -rf \"$PWD\"; exit 1";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt"]);
}

#[test]
fn a_check_that_empties_the_workspace_has_not_passed() {
    let script = "grep -qx 42 answer.txt && exit; rm -rf ./*";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    assert!(
        server.requests()[1]
            .text()
            .contains("emptied the workspace")
    );
}

#[test]
fn a_workspace_replaced_by_a_link_is_a_violation() {
    let script = "mv ../workspace ../away; ln -s ../../precious ../workspace; exit 1";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    fs::create_dir(project.outside("precious")).unwrap();
    let ran = project
        .run(&["run", "--spec", "specs/spec.yaml", "--json", "--no-sandbox"])
        .exits(2);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "safety_violation".into())
    );
    assert_eq!(
        fs::read_dir(project.outside("precious")).unwrap().count(),
        0
    );
}
