//! Attacks with a set-up of their own: files that control the user's programs, modules and terminals of
//! environments, paths in the state, and too many processes where the kernel does not count them.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::needs;
use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply;
use crate::support::restrictions::Restrictions;
use crate::support::serve_client::Serving;
use crate::support::server::Server;

/// The process limit of a check in this test.
const PROCESSES: u32 = 60;

fn modes() -> [Restrictions; 2] {
    [
        Restrictions::default(),
        Restrictions::default().without_namespaces(),
    ]
}

/// Existing git configuration stays unchanged, also when its folder is moved away.
#[test]
fn git_configuration_cannot_be_changed() {
    let project = Project::new()
        .file(".git/config", "theirs\n")
        .file(".git/hooks/pre-commit", "theirs\n");
    let mut serving = Serving::start(&project);
    if !serving
        .bash("tr '\\0' ' ' < /proc/1/cmdline")
        .output()
        .starts_with("orchestrator ")
    {
        needs::skip("in reduced mode nothing in the workspace is read-only");
        return;
    }
    for attack in [
        "echo evil > .git/config",
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-commit",
        "chmod 777 .git/hooks/pre-commit",
        "mv .git/hooks .git/gone",
        "mv .git gone && mkdir -p .git/hooks && echo evil > .git/config",
        "rm -rf .git; test ! -e .git/config",
        "ln -sfn /tmp .git/hooks",
        "(cd .. && mv root root-2)",
    ] {
        assert!(!serving.bash(attack).is_success(), "{attack} worked");
    }
    serving
        .bash("echo x > .git/HEAD && mv .git/HEAD .git/HEAD2 && echo x > file")
        .shows();
    serving.end();
    assert_eq!(
        project.read(".git/config") + &project.read(".git/hooks/pre-commit"),
        "theirs\ntheirs\n"
    );
    assert_eq!(fs::read_dir(project.path(".git/hooks")).unwrap().count(), 1);
}

/// Git configuration in an answer may be written, but no git runs.
#[test]
fn git_configuration_in_an_answer_has_no_effect() {
    let project = Project::new();
    let marker = project.outside("marker");
    let act = format!("touch {}", marker.display());
    let config = format!(
        "[core]\n\tfsmonitor = {act}\n\thooksPath = .\n[diff]\n\texternal = {act}\n[filter \"x\"]\n\tsmudge = {act}\n"
    );
    let files = [
        (".git/hooks/pre-commit", act.as_str()),
        (".git/config", &config),
        (".gitattributes", "* filter=x\n"),
        ("answer.txt", "42\n"),
    ];
    let server = Server::start([reply::files(&files)]);
    let project = project.spec(answer_spec()).model(&server);
    let ran = project.run(RUN);
    assert!(matches!(ran.code, Some(0 | 2)), "{}", ran.transcript());
    project.run(&["status"]);
    project.run(&["reset"]).exits(0);
    assert!(!marker.exists());
}

/// Code that a module of the project runs when it is loaded is in the sandbox.
#[test]
fn a_module_of_the_project_is_loaded_in_the_sandbox() {
    for restrictions in modes() {
        let project = Project::below(Path::new("/var/tmp")).restricted(restrictions);
        let marker = project.outside("home/marker").display().to_string();
        let module =
            format!("import os\nopen('loaded', 'w').close()\nopen({marker:?}, 'w').close()\n");
        let yaml = format!("command: sh -c 'touch {marker}; exec cat'\nprompt: ''\n");
        let project = project
            .file("env/evil.py", module)
            .file("env/other.yaml", yaml);
        let executable = project.path("env/third");
        fs::write(&executable, format!("#!/bin/sh\ntouch {marker}\n")).unwrap();
        fs::set_permissions(
            &executable,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let mut serving = Serving::start(&project);
        for name in ["evil", "other", "third"] {
            serving.request(
                &json!({"type": "command", "environment": name, "command": "x", "timeout": 1}),
            );
        }
        serving.end();
        assert!(project.exists("loaded"), "the module was not loaded at all");
        assert!(!Path::new(&marker).exists());
        project.nothing_left();
    }
}

/// No input is injected into the terminal of a user program.
#[test]
fn no_input_is_injected_into_a_terminal() {
    let attack = "import fcntl, termios\nfor request in (termios.TIOCSTI, 0x541C):\n  try: print(fcntl.ioctl(0, request, b'x'))\n  except OSError as error: print(error)\n";
    for restrictions in modes() {
        let prompt = "command: python3 -q -i\nprompt: '(>>>|\\.\\.\\.) $'\n";
        let project = Project::new()
            .file("env/prompt.yaml", prompt)
            .file("attack.py", attack)
            .restricted(restrictions);
        let mut serving = Serving::start(&project);
        let answer = serving.ask("prompt", "exec(open('attack.py').read())");
        assert_eq!(
            answer.output().matches("Operation not permitted").count(),
            2,
            "{}",
            answer.output()
        );
        serving.end();
    }
}

/// A state with a log path outside is corrupt, and nothing is written there.
#[test]
fn a_state_cannot_redirect_the_log() {
    for (field, value) in [
        ("run_id", json!("../../marker")),
        ("run_id", json!("x\u{0}y")),
        ("run_id", json!("x".repeat(1 << 20))),
        ("run_id", json!("/tmp/marker")),
        ("spec_file", json!(7)),
    ] {
        let server = Server::start([reply::answer("41"), reply::status(400)]);
        let project = Project::with(answer_spec(), &server);
        project.run(RUN).exits(1);
        let mut state = project.state();
        (state["state"], state["reason"], state["last_error"]) =
            (json!("TESTING"), json!(null), json!(null));
        state[field] = value;
        project.write("state.json", state.to_string());
        let logs = fs::read_dir(project.path("logs")).unwrap().count();
        project.run(RUN).exits(3);
        assert_eq!(
            fs::read_dir(project.path("logs")).unwrap().count(),
            logs,
            "{field}"
        );
        assert!(!project.outside("marker.log").exists() && !Path::new("/tmp/marker.log").exists());
    }
}

/// Twenty processes above the limit are refused, or the check is ended with the limit named; also where the kernel does not count.
#[test]
fn too_many_processes_end_the_check() {
    for restrictions in modes() {
        let project = Project::new();
        let marker = project.marker();
        let script = format!(
            "i=0; while [ $i -lt {} ]; do sleep {marker} & i=$((i+1)); done; wait",
            PROCESSES + 20
        );
        let server = Server::start([reply::answer("42"), reply::status(400)]);
        let spec =
            checked_by(&script) + &format!("sandbox: {{limits: {{processes: {PROCESSES}}}}}\n");
        let project = project.spec(spec).model(&server).restricted(restrictions);
        project.run(RUN).exits(1);
        let problem = project.events("ScriptOutput")[0]["problem"].to_string();
        assert!(
            problem.contains("the limit is 60 (sandbox.limits.processes)"),
            "{problem}"
        );
        project.nothing_left();
    }
}
