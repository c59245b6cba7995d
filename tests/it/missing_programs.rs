//! Checks that cannot start are refused before any request or change, with the position in the spec and a remedy.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, checked_by};
use crate::support::reply;
use crate::support::restrictions::Restrictions;
use crate::support::running::Ran;
use crate::support::server::Server;

const LINT: &[&str] = &["lint", "--spec", "specs/spec.yaml"];
const NO_SANDBOX: &[&str] = &["run", "--spec", "specs/spec.yaml", "--no-sandbox"];

/// A spec with one check of this command; `more` are further fields of the check.
fn spec(command: &[&str], more: &str) -> String {
    format!(
        "name: a\ndescription: b\nmax_retries: 1\nchecks:\n  - name: odd\n    command: {}\n{more}",
        json!(command)
    )
}

fn program(path: &Path, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "#!/bin/sh\ngrep -qx 42 answer.txt\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Asserts that the run is refused at the position of the command without a request or change; `lint` reports the same.
fn refused(project: &Project, server: &Server, words: &[&str]) -> Ran {
    let before = project.files();
    let linted = project.run(LINT).exits(65);
    let ran = project.run(RUN).exits(65);
    for ran in [&linted, &ran] {
        for word in words.iter().chain(&["specs/spec.yaml:6:15: "]) {
            assert!(
                ran.stderr.contains(word),
                "no {word:?} in\n{}",
                ran.transcript()
            );
        }
    }
    assert_eq!(
        (project.files(), server.count()),
        (before, 0),
        "{}",
        ran.transcript()
    );
    ran
}

#[test]
fn a_program_that_is_not_on_path_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(spec(&["pytset", "-q"], ""), &server);
    refused(
        &project,
        &server,
        &[
            "cannot start pytset",
            "PATH that checks get",
            "help: install it",
        ],
    );
    project
        .run(NO_SANDBOX)
        .exits(65)
        .says("PATH that checks get");
    let ran = project.run(RUN_JSON).exits(65);
    assert_eq!(
        ran.outcome_and_reason(),
        ("REFUSED".into(), "spec_invalid".into())
    );
    // All missing programs are reported at once, including those of hidden checks.
    let both = "name: a\ndescription: b\nchecks:\n- command: [one-4711]\n- {command: [two-4711], hidden: true}\n";
    let project = Project::with(both, &server);
    project
        .run(RUN)
        .exits(65)
        .says("spec.yaml:4:13: ")
        .says("one-4711")
        .says("spec.yaml:5:14: ")
        .says("two-4711");
}

#[test]
fn a_path_that_is_not_a_program_is_refused_with_its_reason() {
    let server = Server::start([]);
    let check = |name: &str, words: &[&str], make: &dyn Fn(&Path)| {
        let project = Project::new().model(&server);
        let path = project.outside(name);
        make(&path);
        let project = project.spec(spec(&[&path.display().to_string()], ""));
        refused(&project, &server, words);
        let ran = project.run(NO_SANDBOX).exits(65);
        assert!(ran.stderr.contains(words[0]), "{}", ran.transcript());
    };
    check("prog", &["does not exist", "help: install it"], &|_| {});
    check("prog", &["is a link that leads nowhere"], &|path| {
        symlink("nowhere", path).unwrap()
    });
    check("prog", &["is a folder"], &|path| {
        fs::create_dir(path).unwrap()
    });
    check("prog", &["is not executable", "help: chmod +x "], &|path| {
        program(path, 0o644)
    });
}

#[test]
fn a_script_whose_interpreter_is_missing_is_refused() {
    let server = Server::start([]);
    for (interpreter, word) in [
        ("/no/such/sh", "/no/such/sh does not exist"),
        ("../sh", "the sandbox does not show it"),
    ] {
        let project = Project::new().model(&server);
        program(&project.outside("sh"), 0o755);
        let tool = project.outside("kit/tool");
        program(&tool, 0o755);
        let interpreter =
            interpreter.replace("../sh", &project.outside("sh").display().to_string());
        fs::write(&tool, format!("#! {interpreter} -e\n")).unwrap();
        let opened = format!(
            "sandbox: {{read: [{}]}}\n",
            tool.parent().unwrap().display()
        );
        let project = project.spec(spec(&[&tool.display().to_string()], &opened));
        refused(&project, &server, &["of the interpreter that", word]);
    }
}

#[test]
fn a_program_hidden_by_the_sandbox_is_refused_with_a_suggested_entry() {
    for (command, path_of_check) in [
        ("absolute", false),
        ("far-tool", false),
        ("far-tool", true),
        ("reduced", false),
    ] {
        let server = Server::start([reply::answer("42"), reply::answer("42")]);
        let mut project = Project::new().model(&server);
        if command == "reduced" {
            project = project.restricted(Restrictions::default().without_namespaces());
        }
        let tool = project.outside("elsewhere/venv/bin/far-tool");
        program(&tool, 0o755);
        let folder = tool.parent().unwrap().display().to_string();
        let command = if command == "far-tool" {
            command.to_owned()
        } else {
            tool.display().to_string()
        };
        let path = format!("{folder}:/usr/bin:/bin");
        let more = if path_of_check {
            format!("    env: {{PATH: \"{path}\"}}\n")
        } else {
            String::new()
        };
        let project = project.env(
            "PATH",
            if path_of_check {
                "/usr/bin:/bin"
            } else {
                &path
            },
        );
        let project = project.spec(spec(&[&command], &more));
        let kit = tool
            .parent()
            .unwrap()
            .parent()
            .unwrap()
            .canonicalize()
            .unwrap();
        let line = format!(
            "exists, but the sandbox does not show it: `sandbox: {{read: [{}]}}`",
            kit.display()
        );
        let ran = refused(&project, &server, &[&line]);
        assert!(
            !ran.stderr.contains("does not exist"),
            "{}",
            ran.transcript()
        );
        let opened = format!("sandbox: {{read: [{}]}}\n", kit.display());
        Project::run(
            &project.spec(spec(&[&command], &(more.clone() + &opened))),
            RUN,
        )
        .exits(0);
    }
}

#[test]
fn a_link_hidden_by_the_sandbox_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let link = project.outside("venv/bin/shell");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink("/bin/sh", &link).unwrap();
    let command = [&link.display().to_string(), "-c", "grep -qx 42 answer.txt"];
    let project = project.spec(spec(&command, ""));
    let line = format!(
        "`sandbox: {{read: [{}]}}`",
        project.outside("venv").canonicalize().unwrap().display()
    );
    refused(&project, &server, &["the sandbox does not show it", &line]);
    let opened = spec(
        &command,
        &format!(
            "sandbox: {{read: [{}]}}\n",
            project.outside("venv").display()
        ),
    );
    project.spec(opened).run(RUN).exits(0);
}

#[test]
fn no_suggested_entry_opens_a_large_folder() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let tool = project.outside("home/mytool");
    program(&tool, 0o755);
    // A program directly in the home: only the file is suggested, never the home.
    let path = format!("{}:/usr/bin:/bin", project.outside("home").display());
    let project = project.env("PATH", &path).spec(spec(&["mytool"], ""));
    let real = tool.canonicalize().unwrap();
    refused(
        &project,
        &server,
        &[&format!("`sandbox: {{read: [{}]}}`", real.display())],
    );
    project
        .spec(spec(
            &["mytool"],
            &format!("sandbox: {{read: [{}]}}\n", real.display()),
        ))
        .run(RUN)
        .exits(0);
}

#[test]
fn a_link_target_that_stays_hidden_is_named() {
    let server = Server::start([]);
    let project = Project::new().model(&server);
    program(&project.path("specs/tests/run"), 0o755);
    let command = project.path("specs/tests/run").display().to_string();
    let project = project.spec(spec(&[&command], "workspace: {protect: [tests/]}\n"));
    let ran = refused(
        &project,
        &server,
        &[
            "the sandbox does not show it",
            "help: name its copy in the workspace",
        ],
    );
    assert!(!ran.stderr.contains("read: ["), "{}", ran.transcript());
}

#[test]
fn a_shell_line_as_one_word_is_refused() {
    for line in [
        "python3 -m unittest",
        "true;false",
        "true>out",
        "cat<in",
        "a|b",
        "a&&b",
        "./run\tme",
        "make\u{a0}x",
    ] {
        let server = Server::start([]);
        let project = Project::with(spec(&[line], ""), &server);
        let words = ["a list of words, not a shell line; for a shell: `[sh, -c, \"…\"]`"];
        refused(&project, &server, &words);
    }
    let text = "name: a\ndescription: b\nchecks: [{command: make test}]\n";
    Project::new()
        .spec(text)
        .run(RUN)
        .exits(65)
        .says("spec.yaml:3:20: ")
        .says("`command: [make, test]`");
}

#[test]
fn a_relative_program_may_be_generated_later() {
    let script = "#!/bin/sh\ngrep -qx 42 answer.txt\n";
    for command in ["bin/check", "./bin/check"] {
        let server = Server::start([reply::answer("42"), reply::files(&[("bin/check", script)])]);
        let project = Project::with(spec(&[command], ""), &server);
        project.run(LINT).exits(0);
        project.run(RUN).exits(0);
        assert_eq!(project.events("ScriptOutput")[0]["exit_code"], 127);
        assert!(
            server.requests()[1].text().contains("does not exist"),
            "{}",
            server.requests()[1].text()
        );
    }
}

#[test]
fn a_missing_interpreter_of_a_generated_script_is_reported_to_the_model() {
    let server = Server::start([
        reply::files(&[
            ("check", "#!/no/such/interpreter\n"),
            ("answer.txt", "42\n"),
        ]),
        reply::files(&[("check", "#!/bin/sh\n")]),
    ]);
    let project = Project::with(spec(&["./check"], ""), &server);
    project.run(RUN).exits(0);
    let said = server.requests()[1].text();
    assert!(
        said.contains("the interpreter it asks for is not: \"/no/such/interpreter\""),
        "{said}"
    );
}

#[test]
fn a_missing_program_leaves_an_existing_run_untouched() {
    let server = Server::start([reply::status(401), reply::answer("42")]);
    let project = Project::new().model(&server);
    let tool = project.outside("home/tools/bin/mytool");
    program(&tool, 0o755);
    let path = format!("{}:/usr/bin:/bin", tool.parent().unwrap().display());
    let project = project.env("PATH", &path).spec(spec(&["mytool"], ""));
    project.run(RUN).exits(4);
    let before = project.files();
    fs::rename(&tool, project.outside("home/tools/bin/other")).unwrap();
    project.run(RUN).exits(65).says("mytool");
    assert_eq!(project.files(), before);
    fs::rename(project.outside("home/tools/bin/other"), &tool).unwrap();
    project.run(RUN).exits(0);
    // A finished run is reported even if its programs are gone.
    fs::remove_file(&tool).unwrap();
    project.run(RUN).exits(0).says("this run is over");
    project
        .run(&["run", "--spec", "specs/spec.yaml", "--no-resume"])
        .exits(65);
}

#[test]
fn a_root_with_a_colon_is_refused() {
    let server = Server::start([]);
    let project = Project::with(checked_by("true"), &server);
    let odd = project.outside("co:lon");
    fs::create_dir(&odd).unwrap();
    symlink(&odd, project.outside("plain")).unwrap();
    for root in ["co:lon", "plain"] {
        let root = project.outside(root).display().to_string();
        let ran = project
            .run(&["run", "--spec", "specs/spec.yaml", "--root", &root])
            .exits(64)
            .says("`:`");
        assert!(
            fs::read_dir(&odd).unwrap().next().is_none(),
            "{}",
            ran.transcript()
        );
    }
}

#[test]
fn a_wrong_value_in_a_list_is_named_by_its_field() {
    let spec = "name: x\ndescription: x\nchecks:\n  - {name: a, command: ['true']}\n  - name: b\n    command: [sh, -c, 5]\n";
    let ran = Project::new().spec(spec).run(LINT).exits(65);
    let message = "specs/spec.yaml:6:23: `checks[1].command[2]`: expected text, found 5";
    assert!(ran.stderr.contains(message), "{}", ran.transcript());
}

#[test]
fn lint_reports_all_mistakes_at_once() {
    let invalid = "name: 5\ndescription: x\ncolour: red\nmax_retries: many\n";
    Project::new()
        .spec(invalid)
        .run(LINT)
        .exits(65)
        .says("spec.yaml:1:7: `name`: expected text, found 5")
        .says("spec.yaml:3:1: unknown field `colour`")
        .says("spec.yaml:4:14: `max_retries`: expected a whole number");
    let cannot_run = "name: x\ndescription: x\nbudget: {usd: 1}\ngenerator: {model: unheard-of}\n\
                      checks: [{command: [no-such-program]}]\n";
    Project::new()
        .spec(cannot_run)
        .run(LINT)
        .exits(65)
        .says("spec.yaml:3:15: cannot keep a budget in USD: the price of the model")
        .says("spec.yaml:5:21: check check 1: cannot start no-such-program");
}
