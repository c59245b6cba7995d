//! Agent mode and files: changed files, protected files, tampering, and user environments.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::agent_mode::{CHECK, agent_spec, converse, done, solve};
use crate::support::needs;
use crate::support::project::{ANTHROPIC_KEY, Project, RUN, RUN_JSON, checked_by};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::server::{Received, Server};

const CLASS: &str = "\
from orchestrator.types import CommandResponse, CommandText, ScreenSection


class Counter:
    def __init__(self):
        self.count = 0

    def handle_command(self, cmd: CommandText) -> CommandResponse:
        self.count += 1
        open('counted.txt', 'a').write(cmd.value)
        return CommandResponse(f'{cmd.value} {self.count} WHO', True)

    def get_screen(self) -> ScreenSection:
        return ScreenSection(f'count is {self.count}')
";

const SPEAKER: &str = "#!/bin/sh
while read line; do
  case $line in
    *command*) echo '{\"output\": \"spoken\", \"success\": true}';;
    *) echo '{\"content\": \"a screen\", \"max_lines\": 3}';;
  esac
done
";

#[test]
fn an_attempt_lists_the_files_whose_content_changed() {
    let command = "mkdir -p sub .git/x target __pycache__ node_modules/a .venv; echo 41 > answer.txt; echo x > sub/b; \
        echo x > .git/x/y; echo x > target/z; echo x > node_modules/a/b; echo x > __pycache__/c; echo x > .venv/d; \
        touch gone; rm gone; touch copied.txt; rm deleted.txt; ln -s answer.txt link";
    let spec = agent_spec("") + "workspace: {copy: [copied.txt, deleted.txt]}\n";
    let server = Server::start([bash(command), done(), solve(), done()]);
    let project = Project::with(spec, &server)
        .file("specs/copied.txt", "x")
        .file("specs/deleted.txt", "x");
    let running = project.run(RUN);
    running.exits(0);
    let applied = &project.events("FilesApplied")[0];
    let named = [
        ".git",
        ".venv",
        "__pycache__",
        "answer.txt",
        "link",
        "node_modules",
        "sub/b",
        "target",
    ];
    assert_eq!(
        (&applied["written"], &applied["deleted"]),
        (&json!(named), &json!(["deleted.txt"]))
    );
    assert_eq!(
        project.state()["attempt_files"],
        json!(["answer.txt"]),
        "those of the last phase"
    );
}

#[test]
fn an_attempt_lists_at_most_a_thousand_files() {
    let (project, _) = converse(
        &agent_spec(""),
        vec![bash("echo 42 > answer.txt; touch f{1..1500}"), done()],
        0,
    );
    let names = project.state()["attempt_files"].as_array().unwrap().clone();
    assert_eq!(names.len(), 1000);
    assert!(
        names
            .windows(2)
            .all(|pair| pair[0].as_str() < pair[1].as_str())
    );
}

/// A project with a protected folder and a file in it that may be changed.
fn protecting(server: &Server, generator: &str) -> Project {
    let spec = agent_spec(generator)
        + "workspace: {copy: [{from: mine, to: given/mine.txt}], protect: [given/]}\n";
    Project::with(spec, server)
        .file("specs/given/a.txt", "yours\n")
        .file("specs/mine", "old\n")
}

#[test]
fn protected_files_are_restored_and_the_model_is_informed() {
    let change = "echo mine > given/a.txt; echo foreign > given/b.txt; echo 41 > answer.txt";
    let server = Server::start([bash(change), done(), solve(), done()]);
    let project = protecting(&server, "");
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("given/a.txt"), "yours\n");
    assert!(!project.exists("workspace/given/b.txt"));
    let requests = server.requests();
    assert!(
        requests[0].text().contains("given/a.txt"),
        "the prompt names what is read-only"
    );
    assert!(
        requests[2].text().contains("given/"),
        "{}",
        requests[2].text()
    );
    assert_eq!(
        project.events("FilesApplied")[0]["written"],
        json!(["answer.txt"])
    );
}

#[test]
fn the_editor_refuses_to_change_protected_files() {
    let editor = |command: &str| call("editor", json!({"command": command}));
    let server = Server::start([
        editor("view given/a.txt /yours/ /yours/"),
        editor("edit given/a.txt 1-1\nmine"),
        editor("create given/new/b.txt\nforeign\n"),
        bash("ln -s given link; ln -s given/a.txt file; true"),
        editor("create link/c.txt\nforeign\n"),
        editor("view file /yours/ /yours/"),
        editor("edit file 1-1\nmine"),
        editor("view given/mine.txt /old/ /old/"),
        editor("edit given/mine.txt 1-1\nnew"),
        editor("create answer.txt\n42\n"),
        done(),
    ]);
    let project = protecting(&server, "");
    project.run(RUN).exits(0);
    let results: Vec<_> = server.requests()[1..]
        .iter()
        .map(Received::result)
        .collect();
    assert!(
        results[0].text.contains("yours"),
        "what is protected may be read: {:?}",
        results[0]
    );
    for index in [1, 2, 4, 6] {
        let result = &results[index];
        assert!(
            result.is_error == Some(true) && result.text.contains("protected"),
            "{index}: {result:?}"
        );
    }
    assert_eq!(results[8].is_error, Some(false), "{:?}", results[8]);
    assert_eq!(
        project.workspace("given/mine.txt"),
        "new\n",
        "what `copy` brought there is the model's to change"
    );
    assert!(
        project.events("ProtectedRestored").is_empty(),
        "nothing had to be put back"
    );
}

#[test]
fn a_sandbox_denial_is_a_failed_result_with_its_cause() {
    let attempts = [
        ("echo x > /etc/evil", "/etc/evil"),
        ("cat ../state.json", "No such file"),
        ("cat /srv/none", "only the workspace"),
        ("fallocate -l 3G ~/large", "2 GiB"),
        (
            "python3 -c 'open(\"large\", \"wb\").truncate(5 << 30)'",
            "one file holds 4 GiB",
        ),
    ];
    let answers = attempts
        .iter()
        .map(|(command, _)| bash(command))
        .chain([bash("echo 42 > answer.txt"), done()]);
    let server = Server::start(answers);
    let ran = Project::with(agent_spec(""), &server).run(RUN).exits(0);
    if ran.stderr.contains("sandbox: reduced") {
        return needs::skip("in reduced mode things are refused in other words");
    }
    for (request, (command, words)) in server.requests()[1..].iter().zip(attempts) {
        let result = request.result();
        assert!(
            result.is_error == Some(true) && result.text.contains(words),
            "{command}: {result:?}"
        );
        assert!(
            result.text.contains("[sandbox: ") || words == "No such file",
            "{command}: {result:?}"
        );
    }
}

#[test]
fn a_tampering_file_is_reported_once_before_it_is_a_violation() {
    for (plant, name) in [
        ("sitecustomize.py", "sitecustomize"),
        ("pytest.py", "pytest"),
    ] {
        let planted = || bash(&format!("echo 42 > answer.txt; echo x = 1 > {plant}"));
        let told = |request: &Received| request.text().matches("steers the checks").count();
        let removed = vec![planted(), done(), bash(&format!("rm {plant}")), done()];
        let (_, requests) = converse(&agent_spec(""), removed, 0);
        assert_eq!((told(&requests[2]), told(&requests[1])), (1, 0));
        assert!(requests[2].text().contains(name));
        let (project, requests) = converse(&agent_spec(""), vec![planted(), done(), done()], 2);
        assert_eq!(
            (project.state_text("reason").as_str(), requests.len()),
            ("safety_violation", 3)
        );
    }
}

#[test]
fn a_runner_configuration_file_is_noted() {
    let spec = agent_spec("") + "workspace: {protect: [given.txt]}\n";
    let server = Server::start([bash("echo 42 > answer.txt; touch conftest.py"), done()]);
    let project = Project::with(spec, &server).file("specs/given.txt", "x");
    let ran = project.run(RUN_JSON).exits(0);
    assert!(
        ran.result()["notes"].to_string().contains("conftest.py"),
        "{}",
        ran.transcript()
    );
}

/// A root with an environment of each kind, and one that is broken.
fn with_environments(server: &Server) -> Project {
    let project = Project::with(agent_spec(""), server)
        .file("env/counter.py", CLASS.replace("WHO", "of the root"))
        .file(
            "env/calc.yaml",
            "command: python3 -q -i\nprompt: '>>> $'\ndescription: Sums, one a line.\n",
        )
        .file("env/speaker", SPEAKER)
        .file("env/broken.py", "import nothing_of_this_name\n")
        .file("env/bash.py", CLASS);
    fs::set_permissions(
        project.path("env/speaker"),
        PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    project
}

#[test]
fn user_environments_are_offered_by_name() {
    let own = |name: &str, command: &str| call(name, json!({"command": command}));
    let server = Server::start([
        own("calc", "40 + 2"),
        bash(&format!(
            "mkdir -p env; cat > env/counter.py <<'X'\n{}X\nfor name in json inspect sitecustomize; do echo 'raise SystemExit' > $name.py; done",
            CLASS.replace("WHO", "of the workspace")
        )),
        own("counter", "a"),
        own("counter", "b"),
        call("counter", json!({"action": "restart"})),
        own("counter", "c"),
        own("speaker", "x"),
        own("broken", "x"),
        bash("rm *.py; echo 42 > answer.txt"),
        done(),
    ]);
    let project = with_environments(&server);
    let ran = project.run(RUN_JSON).exits(0);
    project.nothing_left();
    let requests = server.requests();
    let tools = requests[0].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect::<Vec<&Value>>();
    assert_eq!(
        tools,
        [
            "bash", "python", "editor", "broken", "calc", "counter", "speaker"
        ]
    );
    assert!(requests[0].raw.contains("Sums, one a line."));
    let result = |index: usize| requests[index].result();
    assert!(result(1).text.contains("42"), "{:?}", result(1));
    assert!(
        result(3).text.starts_with("a 1 of the root\n"),
        "{:?}",
        result(3)
    );
    assert!(
        result(3).text.contains("[screen of counter]\ncount is 1"),
        "{:?}",
        result(3)
    );
    assert!(
        result(4).text.starts_with("b 2 of the root\n"),
        "{:?}",
        result(4)
    );
    assert!(
        result(6).text.starts_with("c 1 of the root\n"),
        "{:?}",
        result(6)
    );
    assert!(result(7).text.starts_with("spoken\n"), "{:?}", result(7));
    assert!(
        result(8).text.contains("nothing_of_this_name") && result(8).is_error == Some(true),
        "{:?}",
        result(8)
    );
    assert_eq!(
        project.workspace("counted.txt"),
        "abc",
        "it works in the workspace"
    );
    assert!(
        ran.result()["notes"].to_string().contains("bash"),
        "a name that is taken is told: {}",
        ran.transcript()
    );
}

#[test]
fn env_folder_of_the_workspace_is_never_loaded() {
    let make =
        format!("mkdir env; cat > env/counter.py <<'X'\n{CLASS}X\ncp env/counter.py env/more.py");
    let replies = vec![
        bash(&make),
        call("counter", json!({"command": "x"})),
        bash("echo 41 > answer.txt"),
        done(),
    ];
    let (_, requests) = converse(
        &agent_spec(""),
        replies.into_iter().chain([solve(), done()]).collect(),
        0,
    );
    assert!(
        requests[2]
            .result()
            .text
            .contains("there is no tool \"counter\""),
        "{:?}",
        requests[2].result()
    );
    assert!(!requests[4].body["tools"].to_string().contains("counter"));
}

#[test]
fn environments_get_the_check_variables_without_those_of_the_spec() {
    let spec = format!(
        "name: a\ndescription: b\ngenerator: {{mode: agent}}\nchecks:\n  - name: x\n    command: [sh, -c, {}]\n    env: {{SECRET_OF_CHECK: 'yes'}}\n",
        json!(format!("env | cut -d= -f1 | sort > seen; {CHECK}"))
    );
    let replies = vec![
        bash("compgen -e | sort > mine; env; echo 42 > answer.txt"),
        done(),
    ];
    let server = Server::start(replies);
    let project = Project::with(spec, &server).env("SECRET_OF_USER", "x");
    project.run(RUN).exits(0);
    let got = server.requests()[1].result().text;
    assert!(
        got.contains("PYTHONHASHSEED=0") && got.contains("TZ=UTC"),
        "{got}"
    );
    assert!(!got.contains("SECRET_OF"), "{got}");
    let (mine, seen) = (project.workspace("mine"), project.workspace("seen"));
    // Only checks get the variables that make test runners report.
    let of_checks = [
        "SECRET_OF_CHECK",
        "TEST_REPORT_FD",
        "NODE_OPTIONS",
        "GOFLAGS",
    ];
    for name in seen.lines().filter(|name| !of_checks.contains(name)) {
        assert!(mine.lines().any(|line| line == name), "no {name} in {mine}");
    }
}

#[test]
fn a_key_in_an_output_is_not_passed_on() {
    let show = format!(
        "echo 42 > answer.txt; echo before {ANTHROPIC_KEY} after; cp answer.txt {ANTHROPIC_KEY}"
    );
    let editor = "view show.txt /key/ /key/";
    let server = Server::start([
        bash(&show.replace(ANTHROPIC_KEY, "$(cat ../../key)")),
        bash("cat ../../key > show.txt; echo key >> show.txt"),
        call("editor", json!({"command": editor})),
        bash("rm -f show.txt sk-*"),
        done(),
    ]);
    let project = Project::with(agent_spec(""), &server);
    fs::write(project.outside("key"), format!("key {ANTHROPIC_KEY}")).unwrap();
    project.run(&[
        "run",
        "--spec",
        "specs/spec.yaml",
        "--debug",
        "--no-sandbox",
    ]);
    fs::remove_file(project.outside("key")).unwrap();
    for request in server.requests() {
        assert!(!request.raw.contains(ANTHROPIC_KEY), "{}", request.raw);
    }
    project.nothing_left();
}

#[test]
fn a_workspace_that_a_command_removed_is_recreated() {
    for away in [
        "rm -rf \"$PWD\"",
        "mv \"$PWD\" ../away",
        "rm -rf \"$PWD\"; touch \"$PWD\"",
    ] {
        let server = Server::start([bash(away), bash("pwd"), done(), done(), done()]);
        let project = Project::with(agent_spec("format_retries: 1"), &server);
        let ran = project.run(RUN_JSON);
        let (outcome, reason) = ran.outcome_and_reason();
        assert_eq!(outcome, "FAILED", "{}", ran.transcript());
        assert!(
            matches!(reason.as_str(), "no_output" | "safety_violation"),
            "{away}: {}",
            ran.transcript()
        );
    }
}

#[test]
fn emptying_the_workspace_in_patching_is_survived() {
    let first = [bash("echo 41 > answer.txt"), done()];
    let second: [Reply; 2] = [bash("rm -rf ./*"), reply::text("gone")];
    let server = Server::start(first.into_iter().chain(second).chain([solve(), done()]));
    let project = Project::with(checked_by(CHECK) + "generator: {mode: agent}\n", &server);
    project.run(RUN).exits(0);
    assert_eq!(project.state()["retry_count"], 2);
}

#[test]
fn a_workspace_that_changes_while_it_is_read_is_survived() {
    let churn = "echo 42 > answer.txt; for n in 1 2 3; do (while :; do mkdir -p d$n/e; echo x > d$n/e/f; mv d$n d$n.x; \
        rm -rf d$n.x; done >/dev/null 2>&1 & disown); done";
    for _ in 0..3 {
        let (project, _) = converse(&agent_spec(""), vec![bash(churn), bash("true"), done()], 0);
        assert_eq!(project.workspace("answer.txt"), "42\n");
    }
}

#[test]
fn an_exceeded_limit_is_named_in_the_result() {
    let spec = agent_spec("") + "sandbox: {limits: {disk: 20 MiB}}\n";
    let steps = vec![
        bash("fallocate -l 40000000 large; sleep 60"),
        bash("rm large; echo 42 > answer.txt"),
        done(),
    ];
    let (_, requests) = converse(&spec, steps, 0);
    let result = requests[1].result();
    assert!(
        result.is_error == Some(true) && result.text.contains("the limit is 20 MiB"),
        "{result:?}"
    );
    assert!(!result.text.contains("ended: ended"), "{result:?}");
}

#[test]
fn environments_come_from_the_root_not_from_the_current_directory() {
    let server = Server::start([solve(), done()]);
    let project = Project::with(agent_spec(""), &server);
    fs::create_dir_all(project.outside("elsewhere/env")).unwrap();
    fs::write(project.outside("elsewhere/env/counter.py"), CLASS).unwrap();
    let (root, spec) = (
        project.root().display().to_string(),
        project.path("specs/spec.yaml").display().to_string(),
    );
    let arguments = ["run", "--root", &root, "--spec", &spec];
    project
        .run_in_shell("cd ../elsewhere && exec \"$@\"", &arguments)
        .exits(0);
    let tools = server.requests()[0].body["tools"].to_string();
    assert!(
        tools.contains("\"editor\"") && !tools.contains("counter"),
        "{tools}"
    );
}
