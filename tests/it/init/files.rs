//! What `init` writes and refuses to write, what it leaves out, and what it prints.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::Value;

use super::{PYTHON, SPEC, UNITTEST, check_passes, initialised, made_by};
use crate::support::needs;
use crate::support::project::Project;
use crate::support::restrictions::Restrictions;

#[test]
fn an_existing_spec_is_never_overwritten() {
    let project = Project::new().file(SPEC, "mine\n");
    let before = project.files();
    project
        .run(&["init"])
        .exits(64)
        .says("cannot write specs/root.yaml: it exists")
        .says("help: orchestrator init --spec OTHER");
    assert_eq!(project.files(), before);
    project
        .run(&["init", "--spec", "other"])
        .exits(0)
        .says_on_stdout("wrote specs/other.yaml\n");
    project
        .run(&["init", "--spec", "specs/third.yaml"])
        .exits(0);
    project.run(&["lint", "specs/third.yaml"]).exits(0);
    assert_eq!(project.read(SPEC), "mine\n");
}

#[test]
fn the_schema_is_written_unless_it_is_the_users() {
    let schema = "specs/.orchestrator.schema.json";
    let project = Project::new();
    project.run(&["init"]).exits(0);
    let written = project.read(schema);
    let parsed: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(
        parsed["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    project.write(schema, written.replace("\"object\"", "\"array\""));
    project.run(&["init", "--spec", "b"]).exits(0);
    assert_eq!(project.read(schema), written);
    project.write(schema, "{}");
    project
        .run(&["init", "--spec", "c"])
        .exits(0)
        .says_on_stdout(&format!("kept {schema}, which init did not write\n"));
    assert_eq!(project.read(schema), "{}");
}

#[test]
fn lines_of_gitignore_are_added_where_they_are_missing() {
    if !needs::program("git") {
        return;
    }
    let all = "/workspace/\n/logs/\n/state.json*\n/.orchestrator*\n";
    let heading = "# Files of orchestrator's runs\n";
    let project = made_by(Project::new(), "git init -q .");
    project
        .run(&["init"])
        .exits(0)
        .says_on_stdout("wrote .gitignore: /workspace/ /logs/");
    assert_eq!(project.read(".gitignore"), format!("{heading}{all}"));
    project.run(&["init", "--spec", "b"]).exits(0);
    assert_eq!(project.read(".gitignore"), format!("{heading}{all}"));
    project.write(".gitignore", "*.log\nlogs\n/work*");
    project
        .run(&["init", "--spec", "c"])
        .exits(0)
        .says_on_stdout("added to .gitignore: /state.json* /.orchestrator*\n");
    let expected = format!("*.log\nlogs\n/work*\n{heading}/state.json*\n/.orchestrator*\n");
    assert_eq!(project.read(".gitignore"), expected);
    fs::remove_file(project.path(".gitignore")).unwrap();
    symlink("README.md", project.path(".gitignore")).unwrap();
    project
        .run(&["init", "--spec", "d"])
        .exits(0)
        .says_on_stdout("add these lines to .gitignore");
    assert!(!project.exists("README.md"));
}

#[test]
fn without_a_repository_the_lines_are_only_printed() {
    let project = Project::new();
    project
        .run(&["init"])
        .exits(0)
        .says_on_stdout("this is not a git repository; lines for its .gitignore:\n  /workspace/\n");
    assert!(!project.exists(".gitignore"));
}

#[test]
fn a_directory_that_cannot_be_used_is_refused() {
    let project = Project::new().file("file", "").file("linked/calc.py", "");
    let home = project.outside("home").display().to_string();
    for (directory, message) in [
        ("missing", "cannot use "),
        ("file", "it is not a directory"),
        (home.as_str(), "it is your home or above it"),
        ("/", "it is your home or above it"),
    ] {
        project
            .run(&["init", directory])
            .exits(64)
            .says(message)
            .says("help: ");
    }
    fs::create_dir(project.path("a:b")).unwrap();
    project
        .run(&["init", "a:b"])
        .exits(64)
        .says("its path has a `:`");
    symlink("elsewhere", project.path("linked/specs")).unwrap();
    project
        .run(&["init", "linked"])
        .exits(64)
        .says("it is a link");
    for name in ["", "..", "a/b", ".hidden", "-x", "a\u{1b}b"] {
        let option = format!("--spec={name}");
        project
            .run(&["init", &option])
            .exits(64)
            .says("invalid --spec: expected a name");
    }
    assert_eq!(project.files().len(), 3);
}

#[test]
fn after_an_error_nothing_is_left() {
    let project = Project::new().file("calc.py", PYTHON);
    fs::remove_dir(project.path("specs")).unwrap();
    project.write("specs", "a file\n");
    let before = project.files();
    project
        .run(&["init"])
        .exits(74)
        .says("cannot make the folder");
    assert_eq!(project.files(), before);
    let project = Project::new()
        .file("calc.py", PYTHON)
        .restricted(Restrictions::unprivileged());
    let before = project.files();
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&project.outside("."), 0o755);
    mode(&project.root(), 0o555);
    project.run(&["init"]).exits(74).says("cannot write in ");
    // The root can be written, `specs/` cannot: no .gitignore is made either.
    fs::create_dir(project.path(".git")).unwrap();
    mode(&project.root(), 0o777);
    mode(&project.path("specs"), 0o555);
    project.run(&["init"]).exits(74).says("cannot write ");
    assert_eq!(project.files(), before);
}

#[test]
fn links_out_of_the_project_are_left_out() {
    let project = Project::new()
        .file("calc.py", PYTHON)
        .file("test_calc.py", UNITTEST);
    symlink("/etc", project.path("settings")).unwrap();
    symlink("../home", project.path("x[1]*")).unwrap();
    symlink("calc.py", project.path("inside.py")).unwrap();
    check_passes(&project, 1)
        .says_on_stdout("left out: settings, a link that leads out of the project\n");
    assert!(project.exists("workspace/inside.py") && !project.exists("workspace/settings"));
}

#[test]
fn what_a_copy_would_refuse_is_left_out() {
    let project = Project::new()
        .file("calc.py", PYTHON)
        .file("test_calc.py", UNITTEST)
        .file("back\\slash", "")
        .file("sub/new\nline \u{1b}ü", "")
        .file("a\\b/inside", "")
        .file("sub/stays", "");
    let name = OsStr::from_bytes(b"bad \xff name");
    fs::write(project.root().join(name), "").unwrap();
    let made = project.run_in_shell("mkfifo pipe", &[]);
    made.exits(0);
    check_passes(&project, 1).says_on_stdout("left out: pipe, neither a file nor a folder\n");
    assert_eq!(
        project.workspace_names(),
        ["calc.py", "sub/stays", "test_calc.py"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_left_out() {
    let project = Project::new()
        .file("calc.py", PYTHON)
        .file("kept", "")
        .file("sealed/x", "");
    fs::remove_dir(project.path("specs")).unwrap();
    let project = project.restricted(Restrictions::unprivileged());
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&project.outside("."), 0o755);
    mode(&project.root(), 0o777);
    mode(&project.path("kept"), 0o000);
    mode(&project.path("sealed"), 0o000);
    let ran = project.run(&["init"]).exits(0);
    ran.says_on_stdout("left out: kept, not readable\n")
        .says_on_stdout("left out: sealed, not readable\n");
    project.run(&["lint", SPEC]).exits(0);
    mode(&project.path("sealed"), 0o755);
}

#[test]
fn odd_names_are_escaped_and_harmless() {
    let project = Project::new();
    let folder = project.path("a b\u{1b}[31m #\n{x}");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("test_\u{1b}.py"), UNITTEST).unwrap();
    fs::write(folder.join("test_a: #b.py"), UNITTEST).unwrap();
    fs::write(
        folder.join("package.json"),
        "{\"scripts\": {\"test\": \"a\\n\\u001b[31m: b\"}}",
    )
    .unwrap();
    let ran = project.run(&["init", folder.to_str().unwrap()]).exits(0);
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.transcript());
    let specs: Vec<_> = fs::read_dir(folder.join("specs"))
        .unwrap()
        .flatten()
        .collect();
    let spec = specs
        .iter()
        .map(|entry| entry.path())
        .find(|path| path.extension().unwrap() == "yaml");
    let spec = spec.unwrap();
    assert!(!fs::read_to_string(&spec).unwrap().contains('\u{1b}'));
    let name = spec.file_name().unwrap().to_str().unwrap();
    assert!(
        name.chars()
            .all(|c| c.is_alphanumeric() || "-_.".contains(c)),
        "{name}"
    );
}

#[test]
fn a_specs_folder_of_the_project_is_copied() {
    let project = Project::new()
        .file("specs/calc.py", PYTHON)
        .file("test_a.py", UNITTEST.replace("calc", "specs.calc"));
    check_passes(&project, 1);
    assert!(project.exists("workspace/specs/calc.py"));
    assert!(!project.exists("workspace/specs/.orchestrator.schema.json"));
}

#[test]
fn the_next_commands_are_ready_to_type() {
    let project = Project::new().file("my app/calc.py", PYTHON);
    let told = project.run(&["init", "my app"]).exits(0).stdout;
    let path = project.path("my app");
    assert!(
        told.contains(&format!("\nnext:\n  cd '{}'", path.display())),
        "{told}"
    );
    assert!(
        told.contains("\n  orchestrator run --spec specs/my-app.yaml "),
        "{told}"
    );
    assert!(!told.contains("ANTHROPIC_API_KEY"), "{told}");
    let told = Project::new()
        .without("ANTHROPIC_API_KEY")
        .run(&["init"])
        .exits(0);
    told.says_on_stdout("\n  export ANTHROPIC_API_KEY=<your key> ");
}

#[test]
fn run_without_arguments_says_what_to_type() {
    let given = "error: no spec and no workflow is given\n";
    let project = Project::new();
    project
        .run(&["run"])
        .exits(64)
        .says(&format!("{given}help: orchestrator init "));
    project.write("specs/a b.yaml", "");
    project.write("specs/.orchestrator.schema.json", "{}");
    project.run(&["run"]).exits(64).says(&format!(
        "{given}help: orchestrator run --spec 'specs/a b.yaml'\n"
    ));
    let root = project.root().display().to_string();
    let ran = project.run(&["--root", &root, "run"]).exits(64);
    ran.says(&format!("--spec '{root}/specs/a b.yaml' --root {root}\n"));
    for number in 1..=12 {
        project.write(&format!("specs/{number:02}.json"), "");
    }
    let ran = project
        .run(&["run"])
        .exits(64)
        .says("help: one of\n  orchestrator run --spec specs/01.json\n");
    let ran = ran.says("specs/10.json\n  … and 3 more in specs/\n");
    assert!(!ran.stderr.contains("specs/11.json"));
    let result = project.run(&["run", "--json"]).exits(64).result();
    assert_eq!(result["reason"], "usage");
}

#[test]
fn a_program_that_the_sandbox_does_not_show_is_opened() {
    let project = Project::new().file(
        "package.json",
        r#"{"packageManager": "bun@1.0.0", "scripts": {"test": "sh test.sh"}}"#,
    );
    let folder = project.outside("tools/bin");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("bun"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(folder.join("bun"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let project = project.env("PATH", &path);
    initialised(&project);
    let shown = format!(
        "    - {} # the program of the check\n",
        project.outside("tools").display()
    );
    assert!(
        project.read(SPEC).contains(&shown),
        "{}",
        project.read(SPEC)
    );
    let ran = project.run(&["run", "--spec", SPEC]).exits(0);
    ran.says("check tests: passed");
}
