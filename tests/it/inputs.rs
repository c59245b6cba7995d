//! What a run copies from the user's folders, and what it leaves out: ignored files, secrets, hidden tests, the spec.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::Signal;
use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, checked_by, processes};
use crate::support::reply;
use crate::support::server::Server;

const CHECK: &str = "grep -qx 42 answer.txt";
/// Text that must not appear anywhere but in the user's file.
const LEFT: &str = "LEFT-OUT-4711\n";

/// A project whose files lie in the spec's folder.
fn project(server: &Server, files: &[(&str, &str)], workspace: &str) -> Project {
    let project = Project::with(
        checked_by(CHECK) + &format!("workspace: {workspace}\n"),
        server,
    );
    for (path, content) in files {
        project.write(&format!("specs/{path}"), content);
    }
    project
}

/// Runs to SUCCESS and returns the copied files; nothing that was left out was sent or logged.
fn copied_files(files: &[(&str, &str)], workspace: &str) -> BTreeSet<String> {
    let server = Server::start([reply::answer("42")]);
    let project = project(&server, files, workspace);
    project.run(RUN).exits(0);
    assert!(
        !server.requests()[0].text().contains(LEFT.trim()),
        "{}",
        server.requests()[0].text()
    );
    assert!(!project.read(&project.log_path()).contains(LEFT.trim()));
    project
        .workspace_names()
        .into_iter()
        .filter(|name| name != "answer.txt")
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| name.to_string()).collect()
}

#[test]
fn files_excluded_by_ignore_files_are_not_copied() {
    let check = |files: &[(&str, &str)], expected: &[&str]| {
        for (list, from) in [("copy", "."), ("protect", "."), ("copy", "./")] {
            let came = copied_files(files, &format!("{{{list}: [{from}]}}"));
            assert_eq!(came, names(expected), "{list} of {files:?}");
        }
    };
    check(
        &[
            (".gitignore", "*.log\n!keep.log\nbuild/\n"),
            ("x.log", LEFT),
            ("keep.log", "k"),
            ("build/o", LEFT),
        ],
        &[".gitignore", "keep.log"],
    );
    // Below, above and across: the deepest file wins, and `.ignore` over `.gitignore`.
    check(
        &[
            (".gitignore", "gen.py\n/only-top\n"),
            ("sub/.gitignore", "!gen.py\nother.py\n"),
            ("gen.py", LEFT),
            ("only-top", LEFT),
            ("sub/only-top", "k"),
            ("sub/gen.py", "k"),
            ("sub/other.py", LEFT),
            ("other.py", "k"),
            (".ignore", "!kept\n*.big\n"),
            ("kept", "k"),
            ("x.big", LEFT),
        ],
        &[
            ".gitignore",
            "sub/.gitignore",
            "sub/only-top",
            "sub/gen.py",
            "other.py",
            ".ignore",
            "kept",
        ],
    );
    // As in git, content of an excluded folder cannot be included again.
    check(
        &[
            (".gitignore", "out/\n!out/a\n"),
            ("out/a", LEFT),
            ("b", "k"),
        ],
        &[".gitignore", "b"],
    );
    // Neither `.git` nor caches are copied, even if nothing ignores them.
    check(
        &[
            (".git/config", LEFT),
            ("sub/.git", LEFT),
            ("__pycache__/a.pyc", LEFT),
            ("notes~", LEFT),
            (".orchestrator-copies-x/0", LEFT),
            ("a", "k"),
        ],
        &["a"],
    );
}

#[test]
fn secrets_are_not_copied() {
    let secrets = [
        ".env",
        ".env.local",
        "deep/er/.env",
        "certs/server.pem",
        "tls.key",
        ".ssh/id_ed25519",
        ".netrc",
    ];
    let more = ["web/.npmrc", ".pypirc", "id_rsa.pub"];
    let mut files: Vec<(&str, &str)> = secrets
        .iter()
        .chain(&more)
        .map(|name| (*name, LEFT))
        .collect();
    files.extend([
        (".env.example", "KEY="),
        ("notes/env.md", "k"),
        ("key.py", "k"),
        ("id_service/main.py", "k"),
    ]);
    let expected = names(&[
        ".env.example",
        "notes/env.md",
        "key.py",
        "id_service/main.py",
    ]);
    assert_eq!(copied_files(&files, "{copy: [.]}"), expected);
    assert_eq!(copied_files(&files, "{protect: [.]}"), expected);
}

#[test]
fn a_file_listed_by_name_is_copied() {
    let files = [
        (".gitignore", "node_modules/\n.venv\ngenerated.py\n"),
        ("node_modules/a/index.js", "k"),
        ("node_modules/a/.env", LEFT),
        ("generated.py", "k"),
        (".env", "k"),
        ("key.pem", LEFT),
    ];
    let came = copied_files(
        &files,
        "{copy: [., node_modules/, generated.py], protect: [.env]}",
    );
    assert_eq!(
        came,
        names(&[
            ".gitignore",
            "node_modules/a/index.js",
            "generated.py",
            ".env"
        ])
    );
}

#[test]
fn exclude_patterns_leave_files_out() {
    let files = [
        ("proj/a.py", "k"),
        ("proj/x.csv", LEFT),
        ("proj/sub/y.csv", LEFT),
        ("proj/data/d.py", LEFT),
        ("proj/sub/data", "a file of that name comes"),
        ("proj/top", LEFT),
        ("proj/sub/top", "k"),
        ("proj/sub/keep.csv", "k"),
    ];
    for list in ["copy", "protect"] {
        let exclude = "['*.csv', ./data/, /top, '!keep.csv']";
        let came = copied_files(
            &files,
            &format!("{{{list}: [{{from: proj, to: p, exclude: {exclude}}}]}}"),
        );
        assert_eq!(
            came,
            names(&["p/a.py", "p/sub/data", "p/sub/top", "p/sub/keep.csv"]),
            "{list}"
        );
    }
    let refused = |exclude: &str, place: &str, word: &str| {
        let server = Server::start([]);
        let project = project(
            &server,
            &files,
            &format!("{{copy: [{{from: proj, exclude: {exclude}}}]}}"),
        );
        project
            .run(RUN)
            .exits(65)
            .says(&format!("spec.yaml:6:{place}: "))
            .says(word);
        assert!(!project.exists("workspace"));
    };
    refused("['*.csv', '[z-a]']", "52", "is not a pattern");
    refused("['']", "43", "must not be empty");
    refused("'*.csv'", "42", "expected a list");
    let server = Server::start([]);
    let project = project(&server, &files, "{copy: [{from: proj/a.py, exclude: [a]}]}");
    project.run(RUN).exits(65).says("`exclude` needs a folder");
}

#[test]
fn one_line_lists_what_was_not_copied() {
    let server = Server::start([reply::answer("42")]);
    let files = [
        (".gitignore", "*.log\nbuild/\n"),
        ("a.log", LEFT),
        ("b.log", LEFT),
        ("build/x", LEFT),
        (".env", LEFT),
        ("web/.npmrc", LEFT),
        ("named.log", "k"),
        ("data.csv", LEFT),
    ];
    let project = project(
        &server,
        &files,
        "{copy: [{from: ., exclude: ['*.csv']}, named.log]}",
    );
    let line = "left out: 3 ignored, 1 excluded, .env, web/.npmrc, spec.yaml (the spec)";
    project
        .run(&["lint", "--spec", "specs/spec.yaml"])
        .exits(0)
        .says(line);
    project.run(RUN).exits(0).says(line);
    assert!(project.log().iter().any(|event| event["message"] == line));
    let nothing = Server::start([reply::answer("42")]);
    let project = Project::with(checked_by(CHECK), &nothing).file("specs/a/b", "k");
    let ran = project
        .spec(checked_by(CHECK) + "workspace: {copy: [a]}\n")
        .run(RUN)
        .exits(0);
    assert!(!ran.stderr.contains("left out"), "{}", ran.transcript());
}

#[test]
fn the_spec_file_is_not_copied() {
    let server = Server::start([reply::answer("42")]);
    let text = checked_by(CHECK) + "workspace: {copy: [.]}\n# SPEC-MARK\n";
    let project = Project::new()
        .model(&server)
        .file("sub/odd name.yml", &text)
        .file("sub/a", "k");
    symlink("odd name.yml", project.path("sub/link.yml")).unwrap();
    project.run(&["run", "--spec", "sub/link.yml"]).exits(0);
    assert_eq!(project.workspace_names(), ["a", "answer.txt"]);
    assert!(!server.requests()[0].text().contains("SPEC-MARK"));
}

/// Runs with a hidden test inside a copied folder, in both modes; returns the project.
fn with_hidden(workspace: &str, files: &str, agent: bool) {
    let hidden_script = "grep -q HIDDEN-MARK tests/hidden/h && grep -qx 42 answer.txt";
    let checks = format!(
        "name: a\ndescription: b\nchecks:\n- command: {}\n- {{name: held, hidden: true, command: {}, files: {files}}}\n\
         workspace: {workspace}\ngenerator: {{mode: {}}}\n",
        json!(["sh", "-c", "test -e tests/v && ! test -e tests/hidden/h"]),
        json!(["sh", "-c", hidden_script]),
        if agent { "agent" } else { "files" },
    );
    let server = match agent {
        true => Server::start([
            reply::bash("find . | grep hidden; cat tests/hidden/* spec.yaml; echo 42 > answer.txt"),
            reply::text("Done."),
        ]),
        false => Server::start([reply::answer("42")]),
    };
    let project = Project::with(&checks, &server)
        .file("specs/tests/v", "k")
        .file("specs/tests/hidden/h", "HIDDEN-MARK");
    project.run(RUN).exits(0);
    for request in server.requests() {
        assert!(
            !request.text().contains("HIDDEN-MARK"),
            "{workspace} {files}: {}",
            request.text()
        );
    }
    assert!(
        !project.exists("workspace/tests/hidden/h") && project.exists("workspace/tests/v"),
        "{workspace} {files}"
    );
    for event in project
        .events("ModelRequested")
        .iter()
        .chain(&project.events("ToolReturned"))
    {
        assert!(!event.to_string().contains("HIDDEN-MARK"), "{event}");
    }
}

#[test]
fn hidden_tests_inside_a_copied_folder_stay_hidden() {
    let folder = "[{from: tests/hidden, to: tests/hidden}]";
    let file = "[{from: tests/hidden/../hidden/h, to: tests/hidden/h}]";
    for (workspace, files, agent) in [
        ("{copy: [.]}", folder, false),
        ("{copy: [tests/]}", file, false),
        ("{protect: [tests/]}", folder, false),
        ("{copy: [.], protect: [tests/]}", file, true),
        ("{protect: [tests/]}", folder, true),
    ] {
        with_hidden(workspace, files, agent);
    }
}

#[test]
fn a_hidden_file_that_is_also_listed_is_copied_with_a_warning() {
    let server = Server::start([reply::answer("42")]);
    let text = checked_by(CHECK).replace(
        "command",
        "hidden: true\n    files: [tests/hidden]\n    command",
    );
    let project = Project::with(
        text + "workspace: {protect: [tests, {from: ./tests/hidden/, to: h}]}\n",
        &server,
    )
    .file("specs/tests/hidden/h", "HIDDEN-MARK")
    .file("specs/tests/v", "k");
    let warning =
        "spec.yaml:8:30: ./tests/hidden/ is named by a hidden check too; the model sees it";
    project
        .run(&["lint", "--spec", "specs/spec.yaml"])
        .exits(0)
        .says(warning);
    let ran = project.run(RUN_JSON).exits(0).says(warning);
    assert!(
        ran.result()["notes"].to_string().contains(warning),
        "{}",
        ran.transcript()
    );
    assert_eq!(project.workspace_names(), ["answer.txt", "h/h", "tests/v"]);
    // A part of a hidden folder can be listed on purpose.
    let server = Server::start([reply::answer("42")]);
    let text =
        checked_by(CHECK).replace("command", "hidden: true\n    files: [tests]\n    command");
    let project = Project::with(text + "workspace: {copy: [tests/helper.py]}\n", &server)
        .file("specs/tests/helper.py", "k")
        .file("specs/tests/test_h.py", LEFT);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt", "helper.py"]);
}

#[test]
fn a_link_to_the_outside_is_refused_with_a_suggested_entry() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    let project = project(&server, &[("proj/deep/a", "k")], "{copy: [proj]}");
    symlink("/etc/hostname", project.path("specs/proj/deep/out")).unwrap();
    let line = "{from: proj, exclude: [/deep/out]}";
    let ran = project
        .run(RUN)
        .exits(65)
        .says("spec.yaml:6:20: ")
        .says("proj/deep/out")
        .says("/etc/hostname")
        .says(line);
    assert!(
        !project.exists("workspace") && server.count() == 0,
        "{}",
        ran.transcript()
    );
    let project = project.spec(checked_by(CHECK) + &format!("workspace: {{copy: [{line}]}}\n"));
    project.run(RUN).exits(0);
    assert_eq!(project.workspace_names(), ["answer.txt", "proj/deep/a"]);
    // A link that is not copied may lead anywhere.
    project.write("specs/proj/.gitignore", "out\n");
    project
        .spec(checked_by(CHECK) + "workspace: {copy: [proj]}\n")
        .run(RUN)
        .exits(0);
}

#[test]
fn a_virtual_environment_is_readable_but_not_copied() {
    let server = Server::start([]);
    let project = project(
        &server,
        &[("venv/pyvenv.cfg", "home = /usr/bin\n"), ("a", "k")],
        "{copy: [.]}",
    );
    fs::create_dir(project.path("specs/venv/bin")).unwrap();
    symlink("/usr/bin/python3", project.path("specs/venv/bin/python")).unwrap();
    let venv = project.path("specs/venv").canonicalize().unwrap();
    project
        .run(RUN)
        .exits(65)
        .says("venv/bin/python")
        .says("{from: ., exclude: [/venv/]}")
        .says(&format!("`sandbox: {{read: [{}]}}`", venv.display()));
}

#[test]
fn new_scripts_are_executable() {
    let script = "#!/bin/sh\ngrep -qx 42 answer.txt\n";
    let text = "name: a\ndescription: b\nchecks: [{command: [./run/check]}]\n";
    let mode = |project: &Project, path: &str| {
        fs::metadata(project.path(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    let server = Server::start([
        reply::answer("42"),
        reply::files(&[("run/check", script), ("plain", "x #!/bin/sh\n")]),
    ]);
    let project = Project::with(text, &server);
    project.run(RUN).exits(0);
    assert_eq!(
        (
            mode(&project, "workspace/run/check") & 0o100,
            mode(&project, "workspace/plain") & 0o111
        ),
        (0o100, 0)
    );
    // An existing file keeps its mode.
    let server = Server::start([reply::files(&[("given", script)]), reply::answer("42")]);
    let project = Project::with(
        text.replace("run/check", "given") + "workspace: {copy: [given]}\nmax_retries: 1\n",
        &server,
    )
    .file("specs/given", "x");
    project.run(RUN).exits(1);
    assert_eq!(mode(&project, "workspace/given") & 0o111, 0);
    let template = "generator: {provider: template, template: t}\n";
    let project = Project::new()
        .spec(text.to_owned() + template)
        .file("specs/t/0/run/check", script);
    project
        .file("specs/t/0/answer.txt", "42\n")
        .run(RUN)
        .exits(0);
    let call = json!({"command": format!("create run/check\n{script}")});
    let server = Server::start([
        reply::call("editor", call),
        reply::bash("echo 42 > answer.txt"),
        reply::text("Done."),
    ]);
    Project::with(text.to_owned() + "generator: {mode: agent}\n", &server)
        .run(RUN)
        .exits(0);
}

#[test]
fn a_run_killed_in_a_hidden_check_continues_without_a_new_request() {
    // The root is the project itself, so our own files lie in the copied folder.
    let server = Server::start([reply::answer("42")]);
    let project = Project::new()
        .model(&server)
        .file("a", "k")
        .file("held/h", "k");
    let gate = project.outside("gate");
    fs::create_dir(&gate).unwrap();
    let hidden = json!([
        "sh",
        "-c",
        format!(
            "test -e {}/open || sleep {}",
            gate.display(),
            project.marker()
        )
    ]);
    let text = format!(
        "name: a\ndescription: b\nbaseline: false\nworkspace: {{copy: [.]}}\nsandbox: {{read: [{}]}}\nchecks:\n- command: ['true']\n\
         - {{hidden: true, command: {hidden}, files: [held/]}}\n",
        gate.display()
    );
    let project = project.file("spec.yaml", text);
    let run = ["run", "--spec", "spec.yaml"];
    let mut running = project.start(&run);
    running.until("the hidden check runs", || {
        !processes(&[&format!("sleep\0{}", project.marker())]).is_empty()
    });
    running.signal(Signal::KILL);
    running.wait();
    let names = fs::read_dir(project.root())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    assert!(
        names
            .into_iter()
            .any(|name| name.to_string_lossy().starts_with(".orchestrator-copies-"))
    );
    let id = project.state_text("run_id");
    fs::write(gate.join("open"), "").unwrap();
    project.run(&run).exits(0);
    assert_eq!((project.state_text("run_id"), server.count()), (id, 1));
    assert_eq!(project.workspace_names(), ["a", "answer.txt"]);
}
