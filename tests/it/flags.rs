//! Flags that are valid with a spec and flags that are not, and paths without a flag.

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply;
use crate::support::running::Ran;
use crate::support::server::Server;

const PRICE: &str = "generator: {price: {input: 3, output: 15}, max_tokens: 16000}\n";

/// The command is refused with 64 and this message, and nothing was run or changed.
fn check_refused(project: &Project, arguments: &[&str], words: &[&str]) -> Ran {
    let before = project.files();
    let ran = project.run(arguments).exits(64);
    for word in words {
        assert!(
            ran.stderr.contains(word),
            "no {word:?}\n{}",
            ran.transcript()
        );
    }
    assert_eq!(project.files(), before, "{}", ran.transcript());
    ran
}

#[test]
fn workflow_flags_are_refused_with_a_spec() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let flags = [
        &["--input", "text"][..],
        &["--project-dir", "."],
        &["--price", "1,2"],
        &["--jobs", "2"],
        &["--timeout", "5"],
        &["--network"],
        &["--read", "/usr"],
        &["--keep-env", "HOME"],
        &["--answer", "yes"],
    ];
    for flag in flags {
        check_refused(&project, &[RUN, flag].concat(), &[flag[0], "spec"]);
        let ran = check_refused(
            &project,
            &[&["run", "specs/spec.yaml", "--json"], flag].concat(),
            &[flag[0]],
        );
        assert_eq!(
            ran.outcome_and_reason(),
            ("REFUSED".into(), "usage".into()),
            "{}",
            ran.transcript()
        );
    }
    check_refused(
        &project,
        &[RUN, &["--continue", "--no-resume"]].concat(),
        &["--continue"],
    );
    assert_eq!(server.count(), 0);
}

#[test]
fn the_budget_flag_overrides_the_spec() {
    for (in_spec, flag, requests) in [
        ("", "0.01", 0),
        ("budget: {usd: 5}\n", "0.01", 0),
        ("budget: {usd: 0.01}\n", "5", 1),
    ] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::with(answer_spec() + PRICE + in_spec, &server);
        let ran = project.run(&[RUN_JSON, &["--budget", flag]].concat());
        assert_eq!(
            ran.code,
            Some(1 - requests),
            "{in_spec:?} {flag}\n{}",
            ran.transcript()
        );
        assert_eq!(server.count(), requests as usize, "{in_spec:?} {flag}");
        assert_eq!(
            ran.outcome_and_reason().1,
            if requests == 0 {
                "budget"
            } else {
                "tests_passed"
            }
        );
    }
}

#[test]
fn a_budget_keeps_a_run_from_spending_more() {
    // Each answer costs 0.06 USD, and a request 0.24 at the worst.
    let server = Server::answering(|_| reply::answer("41").usage(10_000, 2_000));
    let project = Project::with(answer_spec() + PRICE + "stuck_after: 0\n", &server);
    let ran = project
        .run(&[RUN_JSON, &["--budget", "0.40"]].concat())
        .exits(1);
    assert_eq!(ran.outcome_and_reason().1, "budget");
    let spent = ran.result()["usage"]["cost_usd"].as_f64().unwrap();
    assert!(
        spent <= 0.40 && server.count() == 3,
        "{spent} {}\n{}",
        server.count(),
        ran.transcript()
    );
}

#[test]
fn the_resume_command_repeats_the_budget() {
    let server = Server::start([reply::status(401), reply::answer("42")]);
    let project = Project::with(answer_spec() + PRICE, &server);
    let ran = project
        .run(&["run", "specs/spec.yaml", "--json", "--budget", "2.5"])
        .exits(4);
    assert_eq!(
        ran.result()["next"],
        "orchestrator run --spec specs/spec.yaml --budget 2.5 --json"
    );
}

#[test]
fn an_invalid_budget_is_refused() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec() + PRICE, &server);
    for value in ["nan", "inf", "-1", "much", "", "1e999"] {
        check_refused(
            &project,
            &[RUN, &[&format!("--budget={value}")]].concat(),
            &["--budget"],
        );
    }
    let unknown = Project::with(
        answer_spec() + "generator: {model: nobody-knows-1}\n",
        &server,
    );
    check_refused(
        &unknown,
        &[RUN, &["--budget", "1"]].concat(),
        &["--budget", "nobody-knows-1", "generator.price"],
    );
    assert_eq!(server.count(), 0);
}

#[test]
fn a_yaml_or_json_path_is_a_spec() {
    let spec = json!({"name": "j", "description": "Do it.", "checks": [{"command": ["grep", "-qx", "42", "answer.txt"]}]});
    for path in [
        "specs/a.yaml",
        "specs/a.yml",
        "specs/a.json",
        "specs/A.JSON",
    ] {
        let server = Server::start([reply::answer("42")]);
        let project = Project::new().model(&server).file(path, spec.to_string());
        project.run(&["lint", path]).exits(0);
        project.run(&["run", path]).exits(0);
        assert_eq!(
            (project.state_text("spec_file").as_str(), server.count()),
            (path, 1)
        );
    }
}

#[test]
fn an_ambiguous_path_needs_the_spec_flag() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server)
        .file("specs/task.md", "Do it.\n")
        .file("specs/task.sh", "true\n")
        .file("specs/task.txt", "x\n")
        .file("flow/START.md", "x\n");
    let states = ["specs/task.md", "specs/task.sh"];
    for (command, states) in [("run", &states[..]), ("lint", &[])] {
        for path in states
            .iter()
            .copied()
            .chain(["specs/task.txt", "specs/none"])
        {
            let ran = check_refused(&project, &[command, path], &[&format!("--spec {path}")]);
            assert_eq!(
                ran.stderr.contains(&format!("--workflow {path}")),
                command == "run",
                "{}",
                ran.transcript()
            );
        }
        check_refused(
            &project,
            &[command, "specs/spec.yaml", "--spec", "specs/spec.yaml"],
            &["--spec"],
        );
        check_refused(&project, &[command], &["--spec"]);
    }
    let ran = check_refused(&project, &["run", "specs/task.md", "--json"], &[]);
    assert_eq!(ran.outcome_and_reason(), ("REFUSED".into(), "usage".into()));
    assert_eq!(server.count(), 0);
}

#[test]
fn lint_accepts_a_path_like_a_flag() {
    let project = Project::new().file(
        "specs/broken.yaml",
        "name: x\ndescription: y\ncolour: red\n",
    );
    for arguments in [
        &["lint", "specs/broken.yaml"][..],
        &["lint", "--spec", "specs/broken.yaml"],
    ] {
        project
            .run(arguments)
            .exits(65)
            .says("specs/broken.yaml:3:1");
    }
    let ran = project.run(&["lint", "specs/none", "--json"]).exits(64);
    assert!(ran.stdout.is_empty(), "{}", ran.transcript());
}

#[test]
fn set_replaces_fields_of_the_spec() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let set = [
        "--set",
        "generator.temperature=0.25",
        "--set",
        "max_retries=2",
        "--set",
        "name=another name",
        "--set",
        "model=mine",
    ];
    project.run(&[RUN, &set].concat()).exits(0);
    assert_eq!(server.requests()[0].body["temperature"], 0.25);
    assert_eq!(server.requests()[0].body["model"], "mine");
    assert_eq!(project.state()["max_retries"], 2);
    let log = project.log();
    let options = log[0]["options"].as_array().unwrap();
    assert!(options.contains(&json!("name=another name")), "{options:?}");
    // The hash is that of the fields as they were set: without them the spec is another one.
    let ran = project.run(RUN_JSON);
    assert!(
        ran.stderr.contains("the spec has changed"),
        "{}",
        ran.transcript()
    );
}

#[test]
fn a_setting_that_does_not_fit_is_refused() {
    let server = Server::start([]);
    let project = Project::with(answer_spec(), &server);
    let before = project.files();
    for (setting, word) in [
        (
            "generator.temperature=hot",
            "`generator.temperature`, set to \"hot\": expected a number",
        ),
        ("generator.temprature=1", "did you mean `temperature`"),
        ("name.x=1", "not inside a mapping"),
        ("checks.7.timeout=1", "number of an item"),
    ] {
        let ran = project
            .run(&[RUN_JSON, &["--set", setting]].concat())
            .exits(65);
        assert!(ran.stderr.contains(word), "{word}\n{}", ran.transcript());
        assert!(
            ran.stderr.contains("specs/spec.yaml:1:1: "),
            "{}",
            ran.transcript()
        );
    }
    for setting in ["x", "=1", "a=[1"] {
        check_refused(&project, &[RUN, &["--set", setting]].concat(), &["--set"]);
    }
    assert_eq!(project.files(), before);
}
