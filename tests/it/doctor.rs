//! `doctor`: each of its rows, on a machine where things are missing, hang or are wrong.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use regex::Regex;
use serde_json::Value;

use crate::support::needs;
use crate::support::project::{ANTHROPIC_KEY, OPENAI_KEY, Project};
use crate::support::restrictions::Restrictions;

const PROGRAMS: [&str; 14] = [
    "claude", "python3", "pytest", "cargo", "node", "npm", "go", "java", "mvn", "gradle", "cmake",
    "make", "git", "bash",
];

/// A project whose PATH has these programs only, each a shell script.
fn with_programs(programs: &[(&str, &str)]) -> Project {
    let project = Project::new();
    let folder = project.outside("bin");
    fs::create_dir(&folder).unwrap();
    for (name, script) in programs {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    project.env("PATH", &folder.display().to_string())
}

fn report(project: &Project, code: i32) -> Value {
    let ran = project.run(&["doctor", "--json"]).exits(code);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut entries = list.as_array().unwrap().iter();
    entries.find(|entry| entry["name"] == name).unwrap()
}

#[test]
fn a_machine_that_is_ready() {
    let project = with_programs(&[
        ("python3", "echo Python 3.12.4"),
        ("java", "echo 'openjdk version \"21.0.3\" 2024-04-16' >&2"),
        ("go", "echo \"go $1 go1.22.1 linux/amd64\""),
    ]);
    let ran = project.run(&["doctor"]).exits(0);
    for line in [
        "orchestrator   0.1.0",
        "kernel         Linux ",
        "clock          20",
        "               writable, ",
        "anthropic      ANTHROPIC_API_KEY is set  http://127.0.0.1:9 ",
        "python3        3.12.4   ",
        "java           21.0.3   ",
        "go             1.22.1   ",
        "cargo          -        not found\n",
        "\na run can start\n",
    ] {
        assert!(ran.stdout.contains(line), "{line}\n{}", ran.transcript());
    }
    let report = report(&project, 0);
    assert_eq!(report["ready"], true);
    assert_eq!(report["problems"], serde_json::json!([]));
    let path = project.outside("bin/python3").display().to_string();
    assert_eq!(named(&report["programs"], "python3")["path"], path);
    assert!(report["root"]["free_bytes"].as_u64().unwrap() > 0);
    assert!(project.files().is_empty(), "{:?}", project.files().keys());
}

#[test]
fn the_commit_is_that_of_the_version() {
    let project = with_programs(&[]);
    let version = project.run(&["--version"]).exits(0).stdout;
    let found = report(&project, 0);
    let commit = found["commit"].as_str();
    let shown = commit.map_or(String::new(), |commit| format!(" (commit {commit})"));
    assert_eq!(
        version,
        format!("orchestrator {}{shown}\n", env!("CARGO_PKG_VERSION"))
    );
    let line = format!("orchestrator   {}{shown}\n", env!("CARGO_PKG_VERSION"));
    project.run(&["doctor"]).exits(0).says_on_stdout(&line);
}

#[test]
fn gradle_writes_nothing_into_the_home() {
    let script =
        "[ $1 = --gradle-user-home ] && mkdir $2/native && echo $2 > $USED && echo Gradle 8.5";
    let project = with_programs(&[("gradle", script)]);
    let used = project.outside("used");
    let path = format!("{}:/usr/bin:/bin", project.outside("bin").display());
    let project = project
        .env("PATH", &path)
        .env("USED", &used.display().to_string());
    let found = report(&project, 0);
    assert_eq!(named(&found["programs"], "gradle")["version"], "8.5");
    let folder = fs::read_to_string(used).unwrap();
    assert!(!Path::new(folder.trim()).exists(), "{folder}");
}

#[test]
fn keys_are_never_shown() {
    let secret = "http://me:hidden-password@127.0.0.1:9/v1";
    let script = "echo 1.2.$ANTHROPIC_API_KEY.$OPENAI_API_KEY.x";
    let project = with_programs(&[("node", script), ("npm", &format!("echo 1.0-{OPENAI_KEY}"))])
        .env("OPENAI_BASE_URL", secret);
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let ran = project.run(arguments).exits(0);
        for word in [ANTHROPIC_KEY, OPENAI_KEY, "hidden-password"] {
            assert!(
                !ran.stdout.contains(word) && !ran.stderr.contains(word),
                "{}",
                ran.transcript()
            );
        }
        assert!(
            ran.stdout.contains("http://127.0.0.1:9/v1"),
            "{}",
            ran.transcript()
        );
        assert!(ran.stdout.contains("1.2"), "{}", ran.transcript());
    }
}

#[test]
fn programs_that_hang_cost_one_time_limit() {
    let project = Project::new();
    let script = format!("sleep {} & sleep {}", project.marker(), project.marker());
    let scripts = PROGRAMS.map(|name| (name, script.as_str()));
    let hanging =
        with_programs(&scripts).env("HOME", &project.outside("home").display().to_string());
    let path = format!("{}:/usr/bin:/bin", hanging.outside("bin").display());
    let hanging = hanging.env("PATH", &path);
    let report = report(&hanging, 0);
    for name in PROGRAMS {
        let program = named(&report["programs"], name);
        assert_eq!(
            program["problem"], "does not answer within 5 s",
            "{program}"
        );
        assert_eq!(program["version"], Value::Null);
    }
    project.nothing_left();
    hanging.nothing_left();
}

#[test]
fn programs_that_print_garbage_or_fail_are_reported() {
    let project = with_programs(&[
        ("python3", "exit 3"),
        ("node", "printf '\\033[31m\\377\\000v9.8.7\\033[0m\\n'"),
        ("npm", "kill -9 $$"),
        ("git", "head -c 3000000 /dev/zero | tr '\\0' x"),
        ("cargo", "printf '\\033]0;title\\007'"),
        ("bash", "printf '1.1%01000d' 0"),
    ]);
    let path = format!("{}:/usr/bin:/bin", project.outside("bin").display());
    let project = project.env("PATH", &path);
    let report = report(&project, 0);
    for (name, version, problem) in [
        (
            "python3",
            None,
            Some("exits with 3 when asked for its version"),
        ),
        ("node", Some("9.8.7"), None),
        (
            "npm",
            None,
            Some("is ended by signal 9 when asked for its version"),
        ),
        ("git", None, Some("prints no version")),
        ("cargo", None, Some("prints no version")),
    ] {
        let program = named(&report["programs"], name);
        assert_eq!(program["version"].as_str(), version, "{program}");
        assert_eq!(program["problem"].as_str(), problem, "{program}");
    }
    let long = named(&report["programs"], "bash")["version"]
        .as_str()
        .unwrap()
        .len();
    assert_eq!(long, 40);
    let ran = project.run(&["doctor"]).exits(0);
    assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.transcript());
}

#[test]
fn pytest_is_also_found_as_a_module() {
    let project = with_programs(&[(
        "python3",
        "[ \"$1\" = -m ] && echo pytest 8.1.0 || echo Python 3.9.1",
    )]);
    assert_eq!(
        named(&report(&project, 0)["programs"], "pytest")["version"],
        "8.1.0"
    );
    let project = with_programs(&[("python3", "[ \"$1\" = -m ] && exit 1; echo Python 3.9.1")]);
    let report = report(&project, 0);
    let pytest = named(&report["programs"], "pytest");
    assert!(
        pytest["path"].is_null() && pytest["problem"].is_null(),
        "{pytest}"
    );
}

#[test]
fn without_a_provider_no_run_can_start() {
    let project = with_programs(&[])
        .without("ANTHROPIC_API_KEY")
        .without("OPENAI_API_KEY");
    // A server on this machine needs no key.
    let report_of_local = report(&project, 0);
    assert_eq!(
        named(&report_of_local["providers"], "openai")["ready"],
        true
    );
    assert_eq!(
        named(&report_of_local["providers"], "anthropic")["key_set"],
        false
    );
    let project = project.without("OPENAI_BASE_URL");
    project
        .run(&["doctor"])
        .exits(1)
        .says_on_stdout("no run with a model can start; a template and --replay need none:\n- no provider can be asked\n  help: export ANTHROPIC_API_KEY=<your key>")
        .says_on_stdout("claude-code    its own login ")
        .says_on_stdout("npm install -g @anthropic-ai/claude-code");
    let project = project.env("ANTHROPIC_API_KEY", "two words");
    let report = report(&project, 1);
    let problem = &named(&report["providers"], "anthropic")["problem"];
    assert_eq!(
        problem,
        "invalid ANTHROPIC_API_KEY: expected a key of printable ASCII characters"
    );
}

#[test]
fn a_root_that_cannot_be_used_is_named() {
    let project = Project::new();
    let missing = project.path("missing").display().to_string();
    project
        .run(&["--root", &missing, "doctor"])
        .exits(1)
        .says_on_stdout(&format!(
            "- the root {missing} is not a directory\n  help: "
        ));
    let project = project.restricted(Restrictions::unprivileged());
    let mode = |mode| fs::Permissions::from_mode(mode);
    fs::set_permissions(project.outside("."), mode(0o755)).unwrap();
    fs::set_permissions(project.root(), mode(0o555)).unwrap();
    let report = report(&project, 1);
    assert_eq!(report["root"]["writable"], false);
    let message = report["problems"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("cannot write in the root "),
        "{message}"
    );
    let linked = Project::new();
    std::os::unix::fs::symlink("/tmp", linked.path("workspace")).unwrap();
    linked
        .run(&["doctor"])
        .exits(1)
        .says_on_stdout("\"workspace\": is a link");
}

#[test]
fn a_root_in_use_is_named_with_its_process() {
    let project = Project::new();
    let lock = fs::File::create(project.path(".orchestrator.lock")).unwrap();
    lock.lock().unwrap();
    let own = std::process::id();
    project
        .run(&["doctor"])
        .exits(1)
        .says_on_stdout(&format!("is in use by process {own}\n"));
    drop(lock);
    project.run(&["doctor"]).exits(0);
}

#[test]
fn files_of_a_root_that_prevent_a_run_are_named() {
    for (path, text, message, help) in [
        (
            "state.json",
            "{",
            "state.json is corrupt: ",
            "orchestrator reset",
        ),
        (
            "logs/apply.json",
            "{}",
            "an apply was interrupted: `orchestrator apply` completes it",
            "",
        ),
        (
            "workspace/mine.txt",
            "x",
            "workspace has files, but there is no state.json",
            "move them away",
        ),
    ] {
        let project = with_programs(&[]).file(path, text);
        let found = report(&project, 1);
        let problem = &found["problems"][0];
        assert!(
            problem["message"].as_str().unwrap().contains(message),
            "{problem}"
        );
        assert!(
            problem["help"].as_str().unwrap().starts_with(help),
            "{problem}"
        );
        let specs = "name: a\ndescription: b\nchecks: [{command: [/bin/true]}]\n";
        project.write("specs/spec.yaml", specs);
        let refused = project.run(&["run", "specs/spec.yaml"]);
        assert!(
            [3, 64].contains(&refused.code.unwrap()),
            "{}",
            refused.transcript()
        );
    }
}

#[test]
fn a_weaker_sandbox_is_named_with_its_fix() {
    let default = Restrictions::default();
    let reduced = with_programs(&[]).restricted(default.without_namespaces());
    let found = report(&reduced, 0);
    assert_eq!(found["sandbox"]["mode"], "reduced");
    assert!(
        found["sandbox"]["missing"]
            .as_str()
            .unwrap()
            .starts_with("this system refuses namespaces")
    );
    assert!(!found["sandbox"]["fix"].as_str().unwrap().is_empty());
    reduced
        .run(&["doctor"])
        .exits(0)
        .says_on_stdout("\n               fix: ");
    let unlocked = with_programs(&[]).restricted(default.without_landlock());
    let found = report(&unlocked, 0);
    if found["sandbox"]["mode"] != "full (without Landlock)" {
        return needs::skip("there is nothing to lose here: no full containment");
    }
    assert!(found["sandbox"]["fix"].as_str().unwrap().contains("lsm="));
}

#[test]
fn without_a_sandbox_no_run_can_start() {
    let restrictions = Restrictions::default()
        .without_namespaces()
        .without_landlock();
    let project = with_programs(&[]).restricted(restrictions);
    let found = report(&project, 1);
    assert_eq!(found["sandbox"]["mode"], Value::Null);
    project
        .run(&["doctor"])
        .exits(1)
        .says_on_stdout("sandbox        none\n")
        .says_on_stdout("- no sandbox available: ")
        .says_on_stdout("help: orchestrator run --no-sandbox");
}

#[test]
fn a_clock_behind_the_last_run_is_reported() {
    let project = with_programs(&[]).file("state.json", "{}");
    let future = SystemTime::now() + Duration::from_secs(400 * 24 * 60 * 60);
    let file = fs::File::options()
        .write(true)
        .open(project.path("state.json"))
        .unwrap();
    file.set_modified(future).unwrap();
    let found = report(&project, 1);
    let problem = found["clock"]["problem"].as_str().unwrap();
    assert!(problem.contains("state.json was changed"), "{problem}");
    project
        .run(&["doctor"])
        .exits(1)
        .says_on_stdout("               likely wrong: it is before ");
}

#[test]
fn the_command_page_has_every_field_of_the_report() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## doctor\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: String = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").next().unwrap())
        .collect();
    let field = Regex::new("`([^`]+)`").unwrap();
    let documented: BTreeSet<String> = field
        .captures_iter(&rows)
        .map(|found| found[1].to_owned())
        .collect();
    let mut fields = BTreeSet::new();
    for (name, value) in report(
        &with_programs(&[])
            .without("ANTHROPIC_API_KEY")
            .without("OPENAI_BASE_URL")
            .without("OPENAI_API_KEY"),
        1,
    )
    .as_object()
    .unwrap()
    {
        let inner = |prefix: &str, value: &Value| {
            let keys = value.as_object().unwrap().keys();
            keys.map(|key| format!("{name}{prefix}.{key}"))
                .collect::<Vec<_>>()
        };
        match value {
            Value::Object(_) => fields.extend(inner("", value)),
            Value::Array(list) => fields.extend(inner("[]", &list[0])),
            _ => fields.extend([name.clone()]),
        }
    }
    assert_eq!(documented, fields);
}
