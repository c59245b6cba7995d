//! `lint` and `diagram`: specs and workflows are looked at, nothing is run or changed.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::project::Project;
use crate::support::running::Ran;

const END: &str = "Say <result>x</result>.\n";

/// A project with the workflow `flow/`.
fn workflow(files: &[(&str, &str)]) -> Project {
    let project = Project::new()
        .without("ANTHROPIC_API_KEY")
        .without("OPENAI_API_KEY");
    for (file, text) in files {
        project.write(&format!("flow/{file}"), text);
    }
    project
}

/// Runs a command that must not change anything.
fn look(project: &Project, arguments: &[&str]) -> Ran {
    let before = project.files();
    let ran = project.run(arguments);
    assert_eq!(project.files(), before, "{}", ran.transcript());
    ran
}

/// The findings of `lint --json` as `file:line:column-end level code`.
fn findings(project: &Project, target: &[&str], exit_code: i32) -> Vec<String> {
    let ran = look(project, &[&["lint", "--json"], target].concat()).exits(exit_code);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    let findings = result["findings"].as_array().unwrap();
    assert_eq!(result.as_object().unwrap().len(), 1);
    let shown = findings.iter().map(|finding| {
        let fields: Vec<&String> = finding.as_object().unwrap().keys().collect();
        let expected = [
            "file",
            "line",
            "column",
            "end_column",
            "level",
            "code",
            "check",
            "message",
            "help",
        ];
        assert_eq!(fields, expected);
        assert_eq!(finding["code"], finding["check"]);
        assert!(!finding["message"].as_str().unwrap().is_empty());
        let text = |field: &str| finding[field].to_string().replace('"', "");
        format!(
            "{}:{}:{}-{} {} {}",
            text("file"),
            text("line"),
            text("column"),
            text("end_column"),
            text("level"),
            text("code")
        )
    });
    shown.collect()
}

#[test]
fn a_workflow_without_mistakes_is_fine() {
    let start = "---\nallowed_transitions:\n  - {tag: goto, target: B}\n---\nDo it.\n";
    let project = workflow(&[
        ("START.md", start),
        ("B.sh", "echo '<result>done</result>'\n"),
    ]);
    for path in ["flow", "flow/", "flow/START.md"] {
        let ran = look(&project, &["lint", path]).exits(0);
        assert_eq!(
            (ran.stdout, ran.stderr),
            (format!("{path} is fine\n"), String::new())
        );
        assert!(findings(&project, &[path], 0).is_empty());
    }
}

#[test]
fn every_mistake_of_a_workflow_is_shown_with_its_place() {
    let start = "---\nallowed_transitions:\n  - {tag: goto, target: NOPE-1}\n  - {tag: result}\nmodle: x\n---\nNOPE-1\n";
    let project = workflow(&[
        ("START.md", start),
        ("B.md", "---\ntimeout: soon\n---\n"),
        ("C.sh", "true\necho '<call>B</call>'\n"),
    ]);
    look(&project, &["lint", "flow"])
        .exits(65)
        .says("error: START.md:3:25: `target` of `goto`: there is no state \"NOPE-1\"\n")
        .says("3 |   - {tag: goto, target: NOPE-1}\n  |                         ^^^^^^\n")
        .says("help: did you mean `model`?")
        .says("error: B.md:2:10: `timeout`: expected a number, found the text \"soon\"\n")
        .says("error: C.sh:2:7: `call` needs `return`");
    let expected = [
        "B.md:1:1-1 warning unreachable",
        "B.md:1:1-1 error empty-prompt",
        "B.md:2:10-14 error front-matter",
        "C.sh:1:1-1 warning unreachable",
        "C.sh:2:7-13 error missing-return",
        "START.md:3:25-31 error name",
        "START.md:5:1-6 warning unknown-key",
    ];
    let mut found = findings(&project, &["flow"], 65);
    found.sort();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn warnings_do_not_fail() {
    let project = workflow(&[
        ("START.md", "Say <goto>B</goto>.\n"),
        ("B.md", "Do it.\n"),
        ("C.md", END),
    ]);
    look(&project, &["lint", "flow"])
        .exits(0)
        .says("warning: B.md:1:1: this prompt names no way on")
        .says("warning: C.md:1:1: no transition leads to this state");
    let expected = [
        "B.md:1:1-1 warning dead-end",
        "C.md:1:1-1 warning unreachable",
    ];
    assert_eq!(findings(&project, &["flow"], 0), expected);
}

#[test]
fn a_workflow_needs_an_entry() {
    let project = workflow(&[("B.md", END), ("README.md", "x\n")]);
    assert_eq!(findings(&project, &["flow"], 65), [".:1:1-1 error entry"]);
    for path in ["flow/README.md", "flow/NOPE.md", "flow/NOPE.sh"] {
        let name = path.trim_start_matches("flow/");
        let expected = [format!("{name}:1:1-1 error entry")];
        assert_eq!(findings(&project, &[path], 65), expected);
    }
    project.write("flow/START.md", END);
    project.write("flow/START.sh", "echo '<goto>B</goto>'\n");
    let expected = ["START.sh:1:1-1 error entry"];
    assert_eq!(findings(&project, &["flow"], 65), expected);
    look(&project, &["lint", "flow"])
        .exits(65)
        .says("there are several starts: START.md, START.sh");
}

#[test]
fn links_that_lead_out_are_not_read() {
    let project = workflow(&[("START.md", END)]);
    project.write("secret.md", "<goto>SECRET</goto>\n");
    symlink("../secret.md", project.path("flow/OUT.md")).unwrap();
    let ran = look(&project, &["lint", "flow"]).exits(65);
    assert!(ran.stderr.contains("OUT.md:1:1: this link leads out"));
    assert!(!ran.stderr.contains("SECRET"), "{}", ran.transcript());
    assert_eq!(
        findings(&project, &["flow"], 65),
        ["OUT.md:1:1-1 error link"]
    );
}

#[test]
fn bytes_of_a_state_do_not_reach_the_terminal() {
    let project = workflow(&[(
        "START.md",
        "<goto>B\u{1b}[2J</goto> <goto>\u{202e}</goto>\n",
    )]);
    project.write("flow/B.md", b"a\xff\x1b[2J");
    project.write("flow/\u{1b}[2J.md", "x");
    for command in ["lint", "diagram"] {
        let ran = look(&project, &[command, "flow"]);
        for text in [&ran.stdout, &ran.stderr] {
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        }
    }
}

#[test]
fn findings_of_a_spec_have_the_same_form() {
    let project = Project::new().spec("name: 5\ndescription: x\ncolour: red\nmax_retries: many\n");
    let expected = [
        "specs/spec.yaml:1:7-8 error field",
        "specs/spec.yaml:3:1-7 error field",
        "specs/spec.yaml:4:14-18 error field",
    ];
    for target in [&["specs/spec.yaml"][..], &["--spec", "specs/spec.yaml"]] {
        assert_eq!(findings(&project, target, 65), expected);
    }
    let check = |spec: &str, code: i32, expected: &[&str]| {
        let project = Project::new().spec(spec);
        let expected: Vec<String> = expected
            .iter()
            .map(|finding| format!("specs/spec.yaml:{finding}"))
            .collect();
        assert_eq!(
            findings(&project, &["specs/spec.yaml"], code),
            expected,
            "{spec}"
        );
    };
    let head = "name: x\ndescription: x\nchecks: [{command: ['true']}]\n";
    check(head, 0, &[]);
    check("name: [\n", 65, &["1:7-8 error syntax"]);
    check("name: a\0\n", 65, &["1:8-9 error syntax"]);
    check(
        &format!("{head}max_retries: 99\n"),
        0,
        &["4:14-16 warning clamped"],
    );
    check(
        "name: x\ndescription: x\nmax_retries: 0\nbudget: {usd: 1}\ngenerator: {model: unheard-of}\n\
         checks: [{command: [no-such-program]}]\n",
        65,
        &[
            "3:14-15 warning clamped",
            "4:15-16 error price",
            "6:21-36 error program",
        ],
    );
    check(
        &format!("{head}workspace: {{copy: [nowhere]}}\n"),
        65,
        &["4:20-27 error field"],
    );
    let project = Project::new();
    assert_eq!(
        findings(&project, &["--spec", "none.md"], 65),
        ["none.md:1:1-1 error input"]
    );
}

#[test]
fn a_diagram_has_the_states_and_their_transitions() {
    let project = workflow(&[
        (
            "START.md",
            "Say <goto>end</goto> or <call return=\"end\">C</call>.\n",
        ),
        ("C.sh", "echo '<result>x</result>'\n"),
        ("end.md", "Say <result>x</result> or <goto>NOPE</goto>.\n"),
    ]);
    let ran = look(&project, &["diagram", "flow"]).exits(0);
    let expected = "\
flowchart TD
    s0[\"C.sh\"]
    s1([\"START.md\"])
    s2[\"end.md\"]
    r((\"result\"))
    m0[\"NOPE (missing)\"]
    s0 -->|result| r
    s1 -->|goto| s2
    s1 -->|call| s0
    s1 -.->|call return| s2
    s2 -->|result| r
    s2 -->|goto| m0
";
    assert_eq!(ran.stdout, expected);
    assert!(
        ran.stderr
            .contains("warning: end.md:1:33: `target` of `goto`"),
        "{}",
        ran.transcript()
    );
}

#[test]
fn a_diagram_needs_an_entry_and_nothing_else() {
    let project = workflow(&[
        ("START.md", "Say <goto>B</goto>.\n"),
        ("B.md", "---\nallowed_transitions: [\n---\n"),
        ("C.md", ""),
    ]);
    let ran = look(&project, &["diagram", "flow"]).exits(0);
    assert!(
        ran.stdout.contains("s2([\"START.md\"])"),
        "{}",
        ran.transcript()
    );
    assert!(ran.stderr.contains("error: B.md:") && ran.stderr.contains("error: C.md:"));
    for path in ["specs", "flow/NOPE.md", "nowhere"] {
        let ran = look(&project, &["diagram", path]).exits(65);
        assert!(
            ran.stdout.is_empty() && ran.stderr.starts_with("error: "),
            "{}",
            ran.transcript()
        );
    }
    project.run(&["diagram"]).exits(64);
}

#[test]
fn the_json_of_a_finding_has_its_help() {
    let project = workflow(&[("START.md", "---\nmodle: x\n---\nSay <result>x</result>.\n")]);
    let ran = look(&project, &["lint", "flow", "--json"]).exits(0);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = json!({
        "file": "START.md", "line": 2, "column": 1, "end_column": 6, "level": "warning", "code": "unknown-key",
        "check": "unknown-key", "message": "unknown key `modle`",
        "help": "did you mean `model`? allowed: allowed_transitions, model, timeout, effort, force_implicit",
    });
    assert_eq!(result["findings"], json!([expected]));
    assert!(ran.stderr.is_empty(), "{}", ran.transcript());
}
