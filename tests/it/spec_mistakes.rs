//! Mistakes that people make when they write a spec: each is shown with its place, its cause and what to write.

use serde_json::Value;

use crate::support::project::Project;

/// File, text, `line:column`, a part of the message, a part of the help.
type MistakeCase = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const YAML: &str = "s.yaml";
const JSON: &str = "s.json";

const CASES: &[MistakeCase] = &[
    (
        YAML,
        "name: a\nbudget:\n\tusd: 1\n",
        "3:1",
        "line 3 is indented with a tab",
        "indent with spaces: `  usd: 1`",
    ),
    (
        YAML,
        "name: a\n description: b\n",
        "2:2",
        "line 2 is indented by 1 space, but the field `name` of line 1 by 0",
        "`description: b`",
    ),
    (
        YAML,
        "name: a\nchecks:\n  - command: [a]\n   timeout: 5\n",
        "4:4",
        "but the field `command` of line 3 by 4",
        "indent it by 4 spaces: `    timeout: 5`",
    ),
    (
        YAML,
        "name: a\nchecks:\n  - command: [a]\n  timeout: 5\n",
        "4:3",
        "like the list item of line 3",
        "indent it by 4 spaces",
    ),
    (
        YAML,
        "name: a\ndescription: Do: it\n",
        "2:14",
        "a `: ` inside plain text",
        "`description: \"Do: it\"`",
    ),
    (
        YAML,
        "name: a\ndescription: \"Do it.\nchecks: []\n",
        "2:14",
        "the quote \" that opens here is not closed",
        "`\"Do it.\"`",
    ),
    (
        YAML,
        "name: 'it's'\n",
        "1:7",
        "text behind the closing quote",
        "`\"it's\"`",
    ),
    (
        YAML,
        "name: a\nchecks:\n- command: [a, b\n  timeout: 5\n",
        "3:12",
        "the `[` that opens here is not closed",
        "`[a, b]`",
    ),
    (
        YAML,
        "budget: {usd: 1\nname: a\n",
        "1:9",
        "the `{` that opens here is not closed",
        "`{usd: 1}`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nname: c\n",
        "3:1",
        "duplicate key `name`: it is on line 1",
        "line 1 or of line 3",
    ),
    (
        YAML,
        "name:calc\ndescription: b\n",
        "1:1",
        "no blank after the colon",
        "`name: calc`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nworkspace:\n  copy:\n    -a\n",
        "5:5",
        "expected a list",
        "`- a`",
    ),
    (
        YAML,
        "name: @a\ndescription: b\n",
        "1:7",
        "cannot begin with `@`",
        "`\"@a\"`",
    ),
    (
        YAML,
        "name: `a`\ndescription: b\n",
        "1:7",
        "cannot begin with",
        "\"`a`\"",
    ),
    (
        YAML,
        "name: %a\ndescription: b\n",
        "1:7",
        "cannot begin with `%`",
        "`\"%a\"`",
    ),
    (
        YAML,
        "name: *a\ndescription: b\n",
        "1:7",
        "cannot begin with `*`",
        "`\"*a\"`",
    ),
    (
        YAML,
        "name: a\ndescription: b\n---\nname: c\n",
        "4:1",
        "a second document",
        "remove the line `---`",
    ),
    (
        YAML,
        "\u{feff}name: 5\ndescription: b\n",
        "1:7",
        "expected text, found 5",
        "\"5\"",
    ),
    (YAML, "", "1:1", "the spec is empty", "`name: calc`"),
    (
        YAML,
        "name: 1e3\ndescription: b\n",
        "1:7",
        "found 1e3",
        "\"1e3\"",
    ),
    (
        YAML,
        "name: null\ndescription: b\n",
        "1:7",
        "found nothing",
        "`name: calc`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbaseline: yes\n",
        "3:11",
        "expected true or false",
        "write `baseline: true`",
    ),
    (
        YAML,
        "- name: a\n",
        "1:1",
        "expected a mapping of fields, found a list",
        "`name: calc`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n  unit: {command: [a]}\n",
        "4:3",
        "expected a list, found a mapping",
        "`- name: unit`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: make test\n",
        "4:12",
        "expected a list",
        "`command: [make, test]`",
    ),
    (
        YAML,
        "name: a\ndescription: |\n  b\n c\n",
        "4:2",
        "line 4 is indented by 1 space, too little",
        "`  c`",
    ),
    (
        YAML,
        "name: a\r\ndescription: \"b\r\nbaseline: 1\r\n",
        "2:14",
        "is not closed",
        "`\"b\"`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: 0.50\n",
        "3:9",
        "expected a mapping",
        "`budget: {usd: 0.50}`",
    ),
    (
        JSON,
        "{\"name\": \"a\",\n}\n",
        "1:13",
        "trailing comma",
        "remove the comma",
    ),
    (
        JSON,
        "{'name': 'a'}\n",
        "1:2",
        "single quotes",
        "`\"name\"`",
    ),
    (
        JSON,
        "{\n // x\n \"name\": \"a\"}\n",
        "2:2",
        "a comment",
        ".yaml",
    ),
    (
        JSON,
        "{\"name\": \"a\"\n \"description\": \"b\"}\n",
        "1:12",
        "no comma",
        "`,`",
    ),
    (
        YAML,
        "name: a\nchecks:\n  - name: unit\n\tcommand: [a]\n",
        "4:1",
        "line 4 is indented with a tab",
        "indent with spaces: `  command: [a]`",
    ),
    (
        YAML,
        "  name: a\ndescription: b\n",
        "1:1",
        "line 1 is indented by 2 spaces, but line 2 by 0",
        "begin the line with `name: a`",
    ),
    (
        YAML,
        "name: a\ndescription:\nBuild it.\n",
        "3:1",
        "too little for the text of `description` in line 2",
        "indent it by 2 spaces: `  Build it.`",
    ),
    (
        YAML,
        "name: a\nchecks:\n  -name: unit\n   command: [a]\n",
        "3:3",
        "there is no blank after the dash of `-name`",
        "write `- name: unit`",
    ),
    (
        YAML,
        "name: a\nchecks:\n  • name: unit\n    command: [a]\n",
        "3:3",
        "`•` does not begin an item",
        "write `- name: unit`",
    ),
    (
        YAML,
        "name:a\ndescription:b\n",
        "1:1",
        "expected a mapping of fields",
        "a blank after the colon: `name: a`",
    ),
    (
        YAML,
        "name = \"a\"\n",
        "1:1",
        "expected a mapping of fields",
        "a colon instead of `=`: `name: \"a\"`",
    ),
    (
        YAML,
        "Build a calculator.\n",
        "1:1",
        "expected a mapping of fields",
        "`name: calc`",
    ),
    (
        YAML,
        "name: a\ndescription: \"Do\" it\n",
        "2:14",
        "text behind the closing quote",
        "`'\"Do\" it'`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: [a, \"-q]\n",
        "4:16",
        "the quote \" that opens here is not closed",
        "close it: `\"-q\"`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: {usd: 1}}\n",
        "3:17",
        "nothing was opened for this `}`",
        "remove it",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks: [{command: [a}]\n",
        "3:22",
        "does not close the `[`",
        "write `]`",
    ),
    (
        YAML,
        "name: & so on\ndescription: b\n",
        "1:7",
        "cannot begin with `&`",
        "`\"& so on\"`",
    ),
    (
        YAML,
        "name: !important\ndescription: b\n",
        "1:7",
        "cannot begin with `!`",
        "`\"!important\"`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: {usd: 1}#x\n",
        "3:17",
        "no blank before this comment",
        "write ` #x`",
    ),
    (
        YAML,
        "name: a\ndescription: \"C:\\path\"\n",
        "2:17",
        "`\\p` means nothing in double quotes",
        "single quotes",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget:\n  usd: 1\n",
        "4:1",
        "the blank U+00A0 before `usd`",
        "indent with spaces",
    ),
    (
        YAML,
        "na\u{7}me: a\n",
        "1:3",
        "the invisible character U+0007",
        "remove it",
    ),
    (
        YAML,
        "name: 計算: 足す\ndescription: b\n",
        "1:7",
        "a `: ` inside plain text",
        "`name: \"計算: 足す\"`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget:\n  - usd: 1\n",
        "4:3",
        "expected a mapping of fields, found a list",
        "`usd: 1`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n  name: unit\n  command: [a]\n",
        "4:3",
        "expected a list, found a mapping",
        "`- name: unit`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: [sh, -c, echo \"a: b\"]\n",
        "4:21",
        "expected text, found a mapping",
        "`'echo \"a: b\"'`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: [pytest \"-q\"]\n",
        "4:13",
        "cannot be the name of a program",
        "`command: [pytest, -q]`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: [a]\n  timeout: 5m\n",
        "5:12",
        "expected a number, found the text \"5m\"",
        "in seconds: `timeout: 300`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nchecks:\n- command: [a]\n  timeout: 0\n",
        "5:12",
        "must be more than 0 seconds, found 0",
        "`timeout: 600`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nmax_retries: \"3\"\n",
        "3:14",
        "expected a whole number, found the text \"3\"",
        "without quotes: `max_retries: 3`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nmax_retries: 3,\n",
        "3:14",
        "expected a whole number, found the text \"3,\"",
        "`max_retries: 3`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: $5\n",
        "3:9",
        "expected a mapping",
        "write `budget: {usd: 5}`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: {usd: -1}\n",
        "3:15",
        "must not be negative, found -1",
        "`usd: 0.50`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nbudget: {usd: .inf}\n",
        "3:15",
        "expected a number, found .inf",
        "`usd: 0.50`",
    ),
    (
        YAML,
        "name: a\ndescription: b\ngenerator: openai\n",
        "3:12",
        "expected a mapping",
        "write `generator: {provider: openai}`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nworkspace: src\n",
        "3:12",
        "expected a mapping",
        "write `workspace: {copy: [src]}`",
    ),
    (
        YAML,
        "name: a\ndescription: b\nmodel: m\n",
        "3:1",
        "unknown field `model`",
        "it is a field of `generator`",
    ),
    (
        YAML,
        "Name: a\ndescription: b\n",
        "1:1",
        "unknown field `Name`",
        "did you mean `name`?",
    ),
    (
        YAML,
        "name: a\ndescription: b\nworkspace: {copy: [nothing-here]}\n",
        "3:20",
        "cannot read nothing-here: No such file or directory",
        "relative to the folder of the spec",
    ),
    (
        YAML,
        "name: a\ndescription: b\nworkspace: {copy: [~/src]}\n",
        "3:20",
        "cannot read ~/src",
        "`~` is not replaced",
    ),
    (
        JSON,
        "{\"name\": \"a\", \"description\": \"b\nc\"}\n",
        "1:32",
        "a new line inside quotes",
        "write `\\n` instead",
    ),
    (
        JSON,
        "{\"name\": \"a\", \"name\": \"b\", \"description\": \"c\"}\n",
        "1:15",
        "duplicate key `name`",
        "remove one of them",
    ),
    (
        JSON,
        "{\"name\": \"a\", \"description\": \"b\", \"budget\": 1}\n",
        "1:45",
        "expected a mapping",
        "write `\"budget\": {\"usd\": 1}`",
    ),
    (
        JSON,
        "{\"name\": 5, \"description\": \"b\"}\n",
        "1:10",
        "expected text, found 5",
        "`\"name\": \"5\"`",
    ),
    (
        JSON,
        "{\"name\": \"a\", \"description\": \"b\", \"baseline\": True}\n",
        "1:47",
        "a word without quotes",
        "write `true`",
    ),
    (
        JSON,
        "{\"name\": \"a\", \"checks\": [{\"name\": \"b\"}\n",
        "1:25",
        "the bracket that opens here is not closed",
        "close it with `]`",
    ),
    (JSON, "", "1:1", "the file is empty", "\"description\""),
    (
        JSON,
        "[{\"name\": \"a\"}]\n",
        "1:1",
        "expected a mapping",
        "`\"name\": \"calc\"`",
    ),
    (
        "s.md",
        "---\nbudget:\n\tusd: 1\n---\nBuild it.\n",
        "3:1",
        "line 3 is indented with a tab",
        "spaces",
    ),
    (
        "s.md",
        "---\nname: a: b\n---\nBuild it.\n",
        "2:7",
        "a `: ` inside",
        "\"a: b\"",
    ),
];

/// The findings of `lint --json`.
fn findings(project: &Project, target: &[&str]) -> Vec<Value> {
    let ran = project
        .run(&[&["lint", "--json"], target].concat())
        .exits(65);
    let result: Value = serde_json::from_str(&ran.stdout).unwrap();
    result["findings"].as_array().unwrap().clone()
}

/// `line:column`, after a look at all fields.
fn place(finding: &Value) -> String {
    for field in ["file", "level", "code", "message", "help"] {
        assert!(
            finding[field].as_str().is_some_and(|text| !text.is_empty()),
            "{field} of {finding}"
        );
    }
    assert!(
        finding["column"].as_u64() <= finding["end_column"].as_u64(),
        "{finding}"
    );
    format!("{}:{}", finding["line"], finding["column"])
}

#[test]
fn every_kind_of_mistake_has_its_place_its_cause_and_a_help() {
    let mut failed = String::new();
    for (file, text, position, message, help) in CASES {
        let project = Project::new();
        project.write(file, text);
        let found = findings(&project, &["--spec", file]);
        let is_expected = |finding: &Value| {
            place(finding) == *position
                && finding["message"].as_str().unwrap().contains(message)
                && finding["help"].as_str().unwrap().contains(help)
        };
        if !found.iter().any(is_expected) {
            failed += &format!("{text}\nexpected {position} {message} | {help}\n{found:#?}\n");
            continue;
        }
        project
            .run(&["lint", "--spec", file])
            .exits(65)
            .says(&format!("{file}:{position}: "))
            .says("^");
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn every_line_with_a_tab_is_shown_and_the_rest_is_read() {
    let project = Project::new();
    let text = "name: 5\ndescription: b\nbudget:\n\tusd: 1\n\ttoken: 5\nchecks:\n  - command: [sh, -c, |\n";
    let text = text.replace(
        "  - command: [sh, -c, |\n",
        "\t- command: [sh]\n\t  timeout: soon\n",
    );
    project.write("s.yaml", text);
    let found = findings(&project, &["--spec", "s.yaml"]);
    let places: Vec<String> = found.iter().map(place).collect();
    assert_eq!(
        places,
        ["1:7", "4:1", "5:1", "5:2", "7:1", "8:1", "8:13"],
        "{found:#?}"
    );
}

#[test]
fn a_path_that_is_meant_from_the_project_is_proposed() {
    let project = Project::new().file("src/a.py", "");
    project.write(
        "specs/s.yaml",
        "name: a\ndescription: b\nworkspace: {copy: [src]}\n",
    );
    let found = findings(&project, &["--spec", "specs/s.yaml"]);
    assert_eq!(
        found[0]["help"],
        "paths are relative to the folder of the spec: `../src`"
    );
}

#[test]
fn a_spec_that_is_not_there_is_refused_with_the_one_that_was_meant() {
    let project = Project::new();
    project.write("specs/calc.yaml", "name: a\ndescription: b\n");
    for (missing, meant) in [
        ("specs/clac.yaml", "did you mean specs/calc.yaml?"),
        ("calc.yaml", "did you mean specs/calc.yaml?"),
        ("specs/other-name.yaml", "mostly in specs/"),
    ] {
        for command in ["lint", "run"] {
            project
                .run(&[command, "--spec", missing])
                .exits(65)
                .says(&format!("{missing}:1:1: cannot read the spec"))
                .says(meant);
        }
    }
}

#[test]
fn bytes_that_are_not_utf8_are_shown() {
    let project = Project::new();
    std::fs::write(project.path("s.yaml"), b"name: caf\xe9\n").unwrap();
    let found = findings(&project, &["--spec", "s.yaml"]);
    assert_eq!(place(&found[0]), "1:10");
    assert!(
        found[0]["help"]
            .as_str()
            .unwrap()
            .contains("iconv -f LATIN1")
    );
}

#[test]
fn mistakes_of_syntax_and_of_fields_come_at_once() {
    let project = Project::new();
    let text = "name: @a\ndescription: Do: it\nbaseline:true\nchecks:\n- {command: make, timeout: 5m}\nbudget: 1\n";
    project.write("s.yaml", text);
    let found = findings(&project, &["--spec", "s.yaml"]);
    let places: Vec<String> = found.iter().map(place).collect();
    assert_eq!(
        places,
        ["1:7", "2:14", "3:1", "5:13", "5:28", "6:9"],
        "{found:#?}"
    );
}

#[test]
fn mistakes_in_the_front_matter_of_a_state_have_the_lines_of_its_file() {
    for (front_matter, position, message) in [
        (
            "allowed_transitions:\n\t- {tag: result}",
            "3:1",
            "with a tab",
        ),
        ("model: \"a", "2:8", "is not closed"),
        ("model: a: b", "2:8", "inside plain text"),
        ("model: a\nmodel: b", "3:1", "duplicate key"),
        ("timeout: soon", "2:10", "expected a number"),
    ] {
        let project = Project::new();
        project.write(
            "flow/START.md",
            format!("---\n{front_matter}\n---\nSay <result>x</result>.\n"),
        );
        let found = findings(&project, &["flow"]);
        assert_eq!(place(&found[0]), position, "{found:#?}");
        assert!(
            found[0]["message"].as_str().unwrap().contains(message),
            "{found:#?}"
        );
    }
}
