//! `report` as JUnit, checked against the schemas of Apache Ant and Jenkins; as JSON, compared with its page; as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::needs;
use crate::support::reported_runs::{reported, reported_runs};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn junit_is_valid_for_the_schemas_of_ant_and_jenkins() {
    let Some(tools) = needs::report_tools() else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let mut validator = Command::new("node");
    validator
        .arg(repository().join("tests/it/report_page/validate_junit.cjs"))
        .arg(tools);
    for run in reported_runs() {
        let file = folder.path().join(run.name).with_extension("xml");
        fs::write(&file, &run.junit).unwrap();
        validator.arg(file);
    }
    let output = validator.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let errors: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// The attributes of each element of a kind.
fn elements(xml: &str, name: &str) -> Vec<BTreeMap<String, String>> {
    let element = Regex::new(&format!("<{name} ([^>]*)>")).unwrap();
    let attribute = Regex::new("([a-z]+)=\"([^\"]*)\"").unwrap();
    let read = |text: &str| {
        let all = attribute.captures_iter(text);
        all.map(|found| (found[1].to_owned(), found[2].to_owned()))
            .collect()
    };
    element
        .captures_iter(xml)
        .map(|found| read(&found[1]))
        .collect()
}

#[test]
fn junit_has_a_suite_per_check_of_the_last_attempt() {
    let failed = &reported("failed").junit;
    let suites = elements(failed, "testsuite");
    let counts: Vec<[&str; 5]> = suites
        .iter()
        .map(|suite| {
            ["name", "tests", "failures", "errors", "skipped"].map(|name| suite[name].as_str())
        })
        .collect();
    assert_eq!(
        counts,
        [["unit", "3", "1", "0", "1"], ["style", "1", "0", "0", "0"]]
    );
    assert!(
        failed.contains("<failure message=\"AssertionError: 2 != -1\""),
        "{failed}"
    );
    let named = |xml: &str| -> Vec<String> {
        let cases = elements(xml, "testcase").into_iter();
        cases
            .filter(|case| case["classname"] == "unit")
            .map(|case| case["name"].clone())
            .collect()
    };
    // The tests are protected, so the log has the names of those that passed.
    assert_eq!(
        named(failed),
        [
            "test_calc.Calc.test_neg",
            "test_calc.Calc.test_power",
            "test_calc.Calc.test_add"
        ]
    );
    let success = &reported("success").junit;
    assert_eq!(elements(success, "testsuite").len(), 3);
    assert_eq!(named(success).len(), 3);
    assert!(!success.contains("<failure") && !success.contains("<error"));
}

#[test]
fn junit_of_a_run_without_checks_has_its_outcome() {
    let killed = &reported("workflow_failed").junit;
    let agents: Vec<String> = elements(killed, "testsuite")
        .into_iter()
        .map(|suite| format!("{} {}", suite["name"], suite["errors"]))
        .collect();
    assert_eq!(agents, ["main 1", "main_one1 0", "main_two2 1"]);
    assert!(killed.contains("there is no transition tag"), "{killed}");
}

#[test]
fn a_request_without_a_known_end_may_have_cost_something() {
    for name in ["killed", "running"] {
        let report = &reported(name).json;
        let lost = report["usage"]["lost_usd"].as_f64();
        assert!(
            lost.is_some_and(|lost| 0.0 < lost),
            "{name}: {}",
            report["usage"]
        );
        let time = &report["attempts"][1]["duration_ms"];
        assert!(time.is_u64(), "{name}: {time}");
    }
    let success = &reported("success").json["usage"];
    assert_eq!(success["lost_usd"], 0.0);
}

#[test]
fn a_state_that_failed_has_an_end() {
    let phases = reported("workflow_failed").json["phases"].as_array();
    let failed = phases
        .into_iter()
        .flatten()
        .find(|span| span["name"] == "TWO.md");
    let failed = failed.unwrap();
    assert!(
        failed["ended_at"].is_string() && failed["duration_ms"].is_u64(),
        "{failed}"
    );
}

/// The objects of a report by their paths, each with its fields.
fn add_fields(path: &str, value: &Value, found: &mut BTreeMap<String, BTreeSet<String>>) {
    match value {
        Value::Array(items) => items
            .iter()
            .for_each(|item| add_fields(&format!("{path}[]"), item, found)),
        Value::Object(fields) => {
            let names = found.entry(path.to_owned()).or_default();
            names.extend(fields.keys().cloned());
            let start = if path.is_empty() { "" } else { "." };
            for (name, field) in fields {
                add_fields(&format!("{path}{start}{name}"), field, found);
            }
        }
        _ => {}
    }
}

/// The objects of the page: a table below a heading that has the paths of the objects in backticks.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(repository().join("docs/report.md")).unwrap();
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let first_name = |line: &str| quoted.captures(line).map(|found| found[1].to_owned());
    let mut objects: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut paths: Vec<String> = Vec::new();
    for line in page.lines() {
        if line.starts_with('#') {
            let names = quoted.captures_iter(line);
            paths = names.map(|found| found[1].to_owned()).collect();
            if line.ends_with("The object") {
                paths.push(String::new());
            }
        } else if line.starts_with("| `") {
            for path in &paths {
                let fields = objects.entry(path.clone()).or_default();
                fields.extend(first_name(line));
            }
        }
    }
    objects
}

#[test]
fn the_page_of_reports_has_every_field_of_the_json() {
    let mut found = BTreeMap::new();
    for run in reported_runs() {
        assert_eq!(run.json["version"], 1);
        add_fields("", &run.json, &mut found);
    }
    let documented = documented();
    let paths: Vec<_> = found.keys().collect();
    assert_eq!(paths, documented.keys().collect::<Vec<_>>());
    for (path, fields) in &found {
        assert_eq!(fields, &documented[path], "of {path:?}");
    }
}

#[test]
fn json_tells_attempts_costs_and_what_the_model_was_told() {
    let report = &reported("failed").json;
    let attempts = report["attempts"].as_array().unwrap();
    let costs: Vec<f64> = attempts
        .iter()
        .map(|attempt| attempt["cost_usd"].as_f64().unwrap())
        .collect();
    let expected = [0.0081, 0.0039 + 0.00015 + 0.0045 + 0.0042, 0.0051 + 0.0039];
    for (cost, expected) in costs.iter().zip(expected) {
        assert!((cost - expected).abs() < 1e-9, "{costs:?}");
    }
    let total = report["usage"]["cost_usd"].as_f64().unwrap();
    assert!((costs.iter().sum::<f64>() - total).abs() < 1e-9);
    let second = &attempts[1];
    assert!(
        second["told"]
            .as_str()
            .unwrap()
            .contains("AssertionError: 1 != -1")
    );
    assert_eq!(second["refused"].as_array().map(Vec::len), Some(1));
    assert_eq!(second["changes"][0]["path"], "calc.py");
    let patch = second["changes"][0]["patch"].as_str().unwrap();
    assert!(
        patch.contains("\n-    return a\n+    return a - 0\n"),
        "{patch}"
    );
    assert_eq!(
        attempts[2]["cause"],
        "AssertionError: 2 != -1 at tests/test_calc.py:9"
    );
}

#[test]
fn markdown_has_no_markup_of_others() {
    let code = Regex::new("(?s)(`{3,})text\n.*?\n(`{3,})\n").unwrap();
    let tags = Regex::new("<[^>]*>").unwrap();
    for run in reported_runs()
        .iter()
        .filter(|run| run.name.starts_with("hostile"))
    {
        let outside = code.replace_all(&run.md, "");
        let own = ["<details>", "<summary>", "</summary>", "</details>"];
        let foreign: Vec<&str> = tags
            .find_iter(&outside)
            .map(|found| found.as_str())
            .filter(|tag| !own.contains(tag))
            .collect();
        assert!(foreign.is_empty(), "{}: {foreign:?}\n{}", run.name, run.md);
    }
}
