//! The JSON Schema of a spec: a validator from PyPI and the reader agree on which specs are valid.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use orchestrator::internals::build::parse_spec;
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::needs;
use crate::support::project::{Project, files_below};

const HEAD: &str = "name: calc\ndescription: Write it.\n";

/// A spec with every field.
const ALL_FIELDS: &str = "name: all
description: |
  A long
  description.
workspace:
  copy: [., {from: tests, to: a/tests, exclude: ['*.csv', deep/]}]
  protect: [one.txt]
checks:
  - {name: unit, command: [make, test], timeout: 1.5, env: {A: '1'}, min_tests: 3, rerun: 1, writable: [tests/deep]}
  - {command: [make], hidden: true, files: [{from: tests, to: secret}]}
on_timeout: patch
max_retries: 7
generator:
  {provider: openai, model: m, mode: agent, base_url: 'http://localhost:1/v1', max_tokens: 4096, max_turns: 9, temperature: 0.5,
  format_retries: 3, idle_timeout: 30, price: {input: 1.5, output: 2}, template: template, context: 1000, phase_timeout: 600,
  prompts: prompts, effort: low}
budget: {usd: 1.5, tokens: 1000}
sandbox: {network: true, read: [/usr, ~/tests], devices: [/dev/null], limits: {processes: 1, memory: 1 GiB, disk: 5, files: 9}}
baseline: false
stuck_after: 0
snapshots: {keep: 3}
";

/// Parts of messages of the reader about what no schema can say, and why.
const ONLY_THE_READER: &[(&str, &str)] = &[
    ("cannot read ", "whether a path exists"),
    (" is not a folder", "what is at a path"),
    ("has no folder 0/", "what is in a folder"),
    ("`exclude` needs a folder", "what is at a path"),
    ("found 5.0", "5.0 is an integer for JSON Schema"),
    ("found 1.0", "1.0 is an integer for JSON Schema"),
    ("found 1e+30", "1e30 is an integer for JSON Schema"),
    ("`sandbox.limits.disk`: must be a size", "beyond 64 bits"),
];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn schema() -> Value {
    let printed = Project::new().run(&["schema"]).exits(0).stdout;
    serde_json::from_str(&printed).unwrap()
}

/// What the schema says about each spec; `None` without a validator.
fn errors_by_schema(schema: &Value, specs: &[Value]) -> Option<Vec<Vec<String>>> {
    let script = repository().join("tests/it/support/validate_specs.py");
    let mut validator = Command::new(needs::jsonschema()?.join("bin/python"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let given = json!({"schema": schema, "specs": specs}).to_string();
    let mut stdin = validator.stdin.take().unwrap();
    stdin.write_all(given.as_bytes()).unwrap();
    drop(stdin);
    let output = validator.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A folder with everything that the specs of these tests name.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for dir in ["tests/deep", "template/0", "empty", "prompts", "x/0", "5/0"] {
        fs::create_dir_all(folder.path().join(dir)).unwrap();
    }
    fs::write(folder.path().join("one.txt"), "1").unwrap();
    folder
}

/// What the reader says about a spec.
fn error_by_reader(folder: &Path, name: &str, text: &str) -> Option<String> {
    let file = folder.join(name);
    let parsed = parse_spec(Path::new(name), file, text.as_bytes(), Some(folder));
    parsed.err().map(|error| error.to_string())
}

/// The value of a YAML text as the reader sees it; `None` if it is not YAML, or has a number that JSON does not have.
fn value(text: &str) -> Option<Value> {
    let options = serde_yaml::options! { strict_booleans: true, reject_unsupported_tags: true };
    let value: Value = serde_yaml::from_str_with_options(text, options).ok()?;
    let odd = Regex::new(r"(?i): *[-+]?\.(nan|inf)\b|1e309").unwrap();
    (!odd.is_match(text)).then_some(value)
}

/// Compares both on specs with what the reader says about them.
fn compare(cases: &[(Value, Option<String>)]) {
    let schema = schema();
    let specs: Vec<Value> = cases.iter().map(|(spec, _)| spec.clone()).collect();
    let Some(found) = errors_by_schema(&schema, &specs) else {
        return;
    };
    let mut wrong = String::new();
    for ((spec, by_reader), by_schema) in cases.iter().zip(found) {
        let is_beyond_schema = by_reader.as_deref().is_some_and(is_beyond_schema);
        if by_reader.is_some() == by_schema.is_empty() && !is_beyond_schema {
            wrong += &format!("{spec}\nreader: {by_reader:?}\nschema: {by_schema:?}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether every mistake in a message of the reader is one that no schema can say.
fn is_beyond_schema(message: &str) -> bool {
    let mut mistakes = message.lines().filter(|line| line.starts_with("spec."));
    mistakes.all(|line| {
        let mut parts = ONLY_THE_READER.iter();
        parts.any(|(part, _)| line.contains(part))
    })
}

/// The rows of the tables of refused specs in the reader's own tests, as texts.
fn refused_by_own_tests() -> Vec<String> {
    let table = Regex::new("(?s)refuse_all\\(\\s*(HEAD|CHECK|GENERATOR|\"\"),\\s*r#\"(.*?)\"#");
    let table = table.unwrap();
    let mut texts = Vec::new();
    for name in ["refused.rs", "read.rs"] {
        let source = repository().join("src/build/spec/tests").join(name);
        let source = fs::read_to_string(source).unwrap();
        for found in table.captures_iter(&source) {
            let head = match &found[1] {
                "HEAD" => HEAD.to_owned(),
                "CHECK" => format!("{HEAD}checks:\n  - command: [make]\n"),
                "GENERATOR" => format!("{HEAD}generator:\n"),
                _ => String::new(),
            };
            for row in found[2].trim().lines() {
                let rest = row.split(" | ").nth(1).unwrap().trim_end();
                texts.push(format!("{head}{}\n", rest.replace("\\n", "\n")));
            }
        }
    }
    texts
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    let folder = folder();
    let mut texts = refused_by_own_tests();
    assert!(90 < texts.len(), "{}", texts.len());
    let further = [
        "max_retries: \"5\"",
        "max_retries: true",
        "max_retries: [5]",
        "checks: [{command: [a], timeout: -3}]",
        "checks: [{command: [a], timeout: 0}]",
        "checks: [{command: [a], timeout: '5'}]",
        "checks: [{command: [a], min_tests: 4294967296}]",
        "checks: [{command: [a], rerun: 4}]",
        "checks: [{command: [a], hidden: false, files: [tests]}]",
        "checks: [{command: [a], writable: [../x]}]",
        "checks: [{command: [a], writable: [/x]}]",
        "checks: [{command: [a], writable: [.]}]",
        "checks: [{command: [a b]}]",
        "checks: [{command: ['a&&b']}]",
        "checks: [{command: [\"a\\0b\"]}]",
        "workspace: {copy: [{from: ..}]}",
        "workspace: {copy: [{from: tests, to: ../x}]}",
        "workspace: {copy: [{from: tests, to: .git/x}]}",
        "workspace: {copy: [{from: tests, to: a/-b., exclude: []}]}",
        "workspace: {copy: [/]}",
        "workspace: {copy: [tests/..]}",
        "sandbox: {limits: {processes: 0}}",
        "sandbox: {limits: {memory: 5 MB}}",
        "sandbox: {limits: {memory: 0 GiB}}",
        "sandbox: {limits: {disk: '+1'}}",
        "sandbox: {limits: {disk: ''}}",
        "sandbox: {limits: {memory: 1.5}}",
        "sandbox: {devices: [/dev]}",
        "sandbox: {devices: [/dev/.]}",
    ];
    texts.extend(further.map(|rest| format!("{HEAD}{rest}\n")));
    let sources = ["one.txt", "checks"].map(|word| match word {
        "checks" => format!("{HEAD}checks: [{}]\n", "{command: [x]}, ".repeat(1001)),
        word => format!(
            "{HEAD}workspace: {{copy: [{}]}}\n",
            format!("{word}, ").repeat(1001)
        ),
    });
    texts.extend(sources);
    let cases: Vec<_> = texts
        .iter()
        .filter_map(|text| {
            let message = error_by_reader(folder.path(), "spec.yaml", text);
            assert!(message.is_some(), "accepted: {text}");
            Some((value(text)?, message))
        })
        .collect();
    assert!(100 < cases.len(), "{}", cases.len());
    compare(&cases);
}

#[test]
fn the_schema_accepts_what_the_reader_accepts() {
    let folder = folder();
    let mut texts: Vec<String> = [
        "",
        "max_retries: 0",
        "max_retries: -1",
        "max_retries: 1000",
        "max_retries: 18446744073709551616",
        "checks: [{command: [a], timeout: 600.5}]",
        "checks: [{command: [a], timeout: 1e300}]",
        "checks: [{command: [a, '', 'b c && d']}]",
        "checks: [{command: [a], hidden: true, files: [tests]}]",
        "checks: [{command: [a], hidden: true}]",
        "checks: [{command: [a], writable: [tests/deep, ./a//b]}]",
        "workspace: {copy: [., ./., {from: .., to: .}, {from: tests, to: a/b, exclude: [deep/]}]}",
        "workspace: {copy: [{from: tests, to: ./}], protect: [tests/deep/../deep, one.txt]}",
        "generator: {provider: template, template: template}",
        "generator: {provider: template, template: template, mode: files}",
        "generator: {base_url: 'https://example.com'}",
        "sandbox: {limits: {memory: 2 GiB, disk: 3KiB, files: 4, processes: 1}}",
        "sandbox: {limits: {memory: 007, disk: '12'}}",
        "sandbox: {devices: [/dev/null, //dev/./null]}",
        "budget: {usd: 0, tokens: 18446744073709551615}",
        "workspace: {}\ngenerator: {}\nbudget: {}\nsandbox: {limits: {}}\nsnapshots: {}",
    ]
    .map(|rest| format!("{HEAD}{rest}\n"))
    .into();
    texts.push(ALL_FIELDS.to_owned());
    let cases: Vec<_> = texts
        .iter()
        .map(|text| {
            let message = error_by_reader(folder.path(), "spec.yaml", text);
            assert_eq!(message, None, "{text}");
            (value(text).unwrap(), None)
        })
        .collect();
    compare(&cases);
}

#[test]
fn the_specs_of_the_repository_are_valid() {
    let mut cases = Vec::new();
    for (name, content) in files_below(&repository().join("specs")) {
        if name.ends_with(".yaml") {
            let text = String::from_utf8(content.to_vec()).unwrap();
            let folder = repository().join("specs").join(&name);
            let message = error_by_reader(folder.parent().unwrap(), "spec.yaml", &text);
            assert_eq!(message, None, "{name}");
            cases.push((value(&text).unwrap(), None));
        }
    }
    assert!(3 < cases.len());
    compare(&cases);
}

#[test]
fn the_spec_that_init_writes_is_valid_by_the_schema_beside_it() {
    let project = Project::new().file("tests/test_a.py", "import unittest\n");
    project.run(&["init", "--spec", "mine"]).exits(0);
    let beside = project.read("specs/.orchestrator.schema.json");
    let mut beside: Value = serde_json::from_str(&beside).unwrap();
    let spec = value(&project.read("specs/mine.yaml")).unwrap();
    if let Some(found) = errors_by_schema(&beside, &[spec, json!({"name": "a"})]) {
        assert_eq!(found[0], Vec::<String>::new());
        assert_eq!(found[1].len(), 1, "{:?}", found[1]);
    }
    beside.as_object_mut().unwrap().shift_remove("$comment");
    assert_eq!(beside, schema());
}

/// Every field of a mapping and below it, as `docs/spec.md` names them, with its schema.
fn fields<'a>(prefix: &str, schema: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    let properties = schema["properties"].as_object();
    for (name, field) in properties.into_iter().flatten() {
        let path = format!("{prefix}{name}");
        found.push((path.clone(), field));
        fields(&format!("{path}."), field, found);
        let item = &field["items"];
        let alternatives = item["anyOf"].as_array();
        for item in alternatives.into_iter().flatten().chain([item]) {
            fields(&format!("{path}[]."), item, found);
        }
    }
}

#[test]
fn the_schema_and_the_spec_page_have_the_same_fields() {
    let schema = schema();
    let mut found = Vec::new();
    fields("", &schema, &mut found);
    let page = fs::read_to_string(repository().join("docs/spec.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z_.\[\]]+)` \|").unwrap();
    let documented: BTreeSet<&str> = row
        .captures_iter(&page)
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    let is_row = |path: &str| {
        // Inputs of all lists are described once, a mapping by its fields.
        let below = format!("{path}.");
        let is_mapping = documented.iter().any(|other| other.starts_with(&below));
        let is_input = path.starts_with("workspace.protect[]") || path.contains("files[]");
        !is_input && (!is_mapping || documented.contains(path))
    };
    let named = found.iter().map(|(path, _)| path.as_str());
    assert_eq!(
        named.filter(|path| is_row(path)).collect::<BTreeSet<_>>(),
        documented
    );
    for (path, field) in found {
        let description = field["description"].as_str().unwrap_or_default();
        let is_sentence = description.ends_with('.') && description.len() < 160;
        assert!(is_sentence, "{path}: {description}");
    }
}

/// A default as the page writes it.
fn shown_default(value: &Value) -> Option<String> {
    match value {
        Value::Bool(_) => Some(format!("`{value}`")),
        Value::String(text) => Some(format!("`{text}`")),
        Value::Number(number) if number.as_u64() == Some(10 << 30) => Some("10 GiB".into()),
        Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[test]
fn the_schema_and_the_spec_page_have_the_same_defaults_and_values() {
    let schema = schema();
    let mut found = Vec::new();
    fields("", &schema, &mut found);
    let found: BTreeMap<String, &Value> = found.into_iter().collect();
    let page = fs::read_to_string(repository().join("docs/spec.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([a-z_.\[\]]+)` \| (.+?) \| (.*?) ?\| ").unwrap();
    let mut compared = 0;
    for cells in row.captures_iter(&page) {
        let (path, shown_values, default) = (&cells[1], &cells[2], &cells[3]);
        let field = found[path];
        if let Some(expected) = shown_default(&field["default"]) {
            assert_eq!(default, expected, "{path}");
            compared += 1;
        }
        if let Some(values) = field["enum"].as_array() {
            let values = values
                .iter()
                .map(|value| format!("`{}`", value.as_str().unwrap()));
            assert_eq!(
                shown_values,
                values.collect::<Vec<_>>().join(", "),
                "{path}"
            );
            compared += 1;
        }
        if let (Some((least, most)), Some(_)) =
            (shown_values.split_once(" to "), field.get("maximum"))
        {
            let bound = |name: &str| field[name].as_f64().unwrap().to_string();
            assert_eq!(
                (bound("minimum").as_str(), bound("maximum").as_str()),
                (least, most),
                "{path}"
            );
            compared += 1;
        }
    }
    assert!(20 < compared, "{compared}");
    // The models of the providers, as the program names them.
    let source = fs::read_to_string(repository().join("src/llm/provider.rs")).unwrap();
    let model = Regex::new(r#"default_model: "([^"]+)""#).unwrap();
    let models: Vec<String> = model
        .captures_iter(&source)
        .map(|found| format!("`{}`", &found[1]))
        .collect();
    let shown = format!("| `generator.model` | text | {}; ", models.join(", "));
    assert!(!models.is_empty() && page.contains(&shown), "{shown}");
}

/// A spec with this value at a path such as `checks[].timeout`.
fn spec_with(path: &str, value: &Value) -> Value {
    let mut spec = json!({
        "name": "a",
        "description": "b",
        "workspace": {"copy": [{"from": "x", "to": "y"}]},
        "checks": [{"command": ["a"]}],
        "generator": {"price": {"input": 1, "output": 1}},
        "budget": {},
        "sandbox": {"limits": {}},
        "snapshots": {},
    });
    let mut at = &mut spec;
    for part in path.split('.') {
        at = match part.strip_suffix("[]") {
            Some(name) => &mut at[name][0],
            None => &mut at[part],
        };
    }
    *at = value.clone();
    spec
}

#[test]
fn defaults_and_examples_are_valid() {
    let folder = folder();
    let schema = schema();
    let mut found = Vec::new();
    fields("", &schema, &mut found);
    let mut cases = Vec::new();
    for (path, field) in found {
        let reader_error = |value: &Value| {
            let spec = spec_with(&path, value);
            let message = error_by_reader(folder.path(), "spec.json", &spec.to_string());
            (spec, message)
        };
        if path.contains("protect[]") || path.contains("files[]") {
            continue;
        }
        let default = field.get("default").map(reader_error);
        let examples = field["examples"].as_array();
        let examples = examples.into_iter().flatten().map(reader_error);
        for (spec, message) in examples.chain(default) {
            let is_valid = message.as_deref().is_none_or(is_beyond_schema);
            assert!(is_valid, "{path}: {message:?}");
            cases.push((spec, None));
        }
    }
    assert!(40 < cases.len(), "{}", cases.len());
    compare(&cases);
}

#[test]
fn both_agree_on_every_field_with_values_of_every_kind() {
    let values = json!([
        null, true, false, 0, -1, 1, 3, 4, 51, 1.5, 2.5, 5_000_000_000_u64, 1e30, "", " ", "x", "5", "5 GiB", "agent",
        "template", "http://x", "/dev/null", [], ["x"], [""], [1], [null], [["x"]], [{"from": "x"}], {}, {"x": 1}, {"x": "y"}
    ]);
    let folder = folder();
    let schema = schema();
    let mut found = Vec::new();
    fields("", &schema, &mut found);
    let is_reachable = |path: &str| !path.contains("protect[]") && !path.contains("files[]");
    let mut cases = Vec::new();
    for (path, _) in found.iter().filter(|(path, _)| is_reachable(path)) {
        for value in values.as_array().unwrap() {
            let spec = spec_with(path, value);
            let message = error_by_reader(folder.path(), "spec.json", &spec.to_string());
            cases.push((spec, message));
        }
    }
    assert!(1000 < cases.len(), "{}", cases.len());
    compare(&cases);
}
