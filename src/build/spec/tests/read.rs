//! Specs that are read, and what their fields become.

use std::time::Duration;

use super::Folder;
use crate::build::spec::{GeneratorMode, InputSource, OnTimeout, Spec};

pub(super) const HEAD: &str = "name: calc\ndescription: Write it.\n";
pub(super) const CHECK: &str = "name: calc\ndescription: Write it.\nchecks:\n  - command: [make]\n";
pub(super) const GENERATOR: &str = "name: calc\ndescription: Write it.\ngenerator:\n";

pub(super) fn accept(text: &str) -> Spec {
    Folder::new()
        .write("spec.yaml", text)
        .read("spec.yaml")
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Expects a message with this position and this part.
pub(super) fn refuse(name: &str, text: impl AsRef<[u8]>, position: &str, part: &str) {
    let shown = String::from_utf8_lossy(text.as_ref()).into_owned();
    let message = Folder::new().write(name, text).message(name);
    let head = format!("{name}:{position}: ");
    assert!(
        message.lines().any(|line| line.starts_with(&head)) && message.contains(part),
        "{shown}\n{message}\nexpected {head}…{part}"
    );
    assert!(
        message.lines().any(|line| line.trim_end().ends_with('^')),
        "no caret:\n{message}"
    );
}

pub(super) fn refuse_yaml(text: &str, position: &str, part: &str) {
    refuse("spec.yaml", text, position, part);
}

/// Refuses each line of a table: the position, what follows `head` (with `\n`, `\r` and `\t`), a part of the message.
pub(super) fn refuse_all(head: &str, table: &str) {
    for line in table.trim().lines() {
        let [position, rest, part] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("not three cells: {line}");
        };
        let rest = rest.trim_end().replace("\\n", "\n");
        let rest = rest.replace("\\r", "\r").replace("\\t", "\t");
        refuse_yaml(&format!("{head}{rest}\n"), position.trim(), part);
    }
}

pub(super) fn refuse_below(head: &str, rest: &str, position: &str) {
    refuse_yaml(&format!("{head}{rest}\n"), position, "");
}

#[test]
fn missing_fields_have_defaults() {
    let spec = accept(HEAD);
    assert_eq!(
        (spec.name.as_str(), spec.description.as_str()),
        ("calc", "Write it.")
    );
    assert_eq!((spec.max_retries, spec.on_timeout), (5, OnTimeout::Fail));
    assert_eq!(spec.checks.len(), 1);
    assert_eq!(
        (spec.checks[0].name.as_str(), spec.checks[0].timeout),
        ("pytest", Duration::from_secs(300))
    );
    assert_eq!(spec.checks[0].command, ["python3", "-m", "pytest"]);
    let generator = &spec.generator;
    assert_eq!(
        (generator.provider.name(), generator.mode),
        ("anthropic", GeneratorMode::Files)
    );
    assert_eq!(
        (
            generator.max_tokens,
            generator.max_turns,
            generator.format_retries
        ),
        (16_000, 50, 2)
    );
    assert_eq!(generator.idle_timeout, Duration::from_secs(600));
    assert_eq!(generator.phase_timeout, Duration::from_secs(3600));
    assert!(spec.warnings.is_empty() && spec.file.is_absolute() && !spec.sandbox.network);
    assert_eq!(
        (spec.baseline, spec.stuck_after, spec.kept_snapshots),
        (true, 4, 200)
    );
}

#[test]
fn baseline_stuck_after_and_snapshots_are_validated() {
    let spec = accept(&format!(
        "{HEAD}baseline: false\nstuck_after: 0\nsnapshots: {{keep: 3}}\n"
    ));
    assert_eq!(
        (spec.baseline, spec.stuck_after, spec.kept_snapshots),
        (false, 0, 3)
    );
    assert_eq!(
        accept(&format!("{HEAD}snapshots: {{}}\n")).kept_snapshots,
        200
    );
    refuse_all(
        HEAD,
        r#"
        3:11 | baseline: 1             | true or false
        3:11 | baseline: 'no'          | true or false
        3:14 | stuck_after: -1         | at least 0
        3:14 | stuck_after: 1.5        | whole number
        3:12 | snapshots: 3            | mapping
        3:19 | snapshots: {keep: many} | whole number
        3:13 | snapshots: {kept: 3}    | unknown field
        "#,
    );
}

#[test]
fn every_field_is_read() {
    let spec = accept(
        "# comment\nname: 'calc'\ndescription: |\n  Do:\n\n    this\nworkspace:\n  copy: [., one.txt, {from: one.txt, to: a/b}, {from: \
         tests, to: .}]\n  protect: [tests/, ./tests/deep]\nchecks:\n- {name: unit, command: [make, \"\"], timeout: 1.5, \
         env: {A: \"1\", B: ''}, min_tests: 0}\n- command: ['true']\n  hidden: true\n  files: [tests]\non_timeout: \
         patch\nmax_retries: 2\ngenerator: {provider: openai, model: m, mode: agent, base_url: 'http://localhost:1/v1', \
         max_tokens: 1, max_turns: 2, temperature: 0, format_retries: 0, idle_timeout: 0.5, price: {input: 3, output: \
         1.5}, template: template/, context: 9, phase_timeout: 8, prompts: prompts, effort: high}\nbudget: {usd: 2, \
         tokens: 18446744073709551615}\nsandbox: {network: true, read: [/usr, ~/tests, tests], devices: [/dev/null], \
         limits: {processes: 1, memory: 2 GiB, disk: 3KiB, files: 4}}\n",
    );
    assert_eq!(spec.description, "Do:\n\n  this\n");
    let to = |sources: &[InputSource]| -> Vec<String> {
        sources
            .iter()
            .map(|source| {
                source
                    .to
                    .as_ref()
                    .map_or(".".to_owned(), |to| to.to_string())
            })
            .collect()
    };
    assert_eq!(to(&spec.copy), [".", "one.txt", "a/b", "."]);
    assert_eq!(to(&spec.protect), ["tests", "deep"]);
    assert_eq!(
        (spec.checks[0].env["A"].as_str(), spec.checks[0].min_tests),
        ("1", Some(0))
    );
    assert_eq!(
        (spec.checks[0].timeout, spec.checks[1].name.as_str()),
        (Duration::from_millis(1500), "check 2")
    );
    assert_eq!(
        (spec.checks[1].hidden, to(&spec.checks[1].files)),
        (true, vec!["tests".to_owned()])
    );
    assert_eq!((spec.on_timeout, spec.max_retries), (OnTimeout::Patch, 2));
    assert_eq!(
        (spec.generator.provider.name(), spec.generator.mode),
        ("openai", GeneratorMode::Agent)
    );
    assert_eq!(
        (spec.generator.temperature, spec.generator.context),
        (Some(0.0), Some(9))
    );
    assert_eq!(
        (spec.budget.usd, spec.budget.tokens),
        (Some(2.0), Some(u64::MAX))
    );
    assert_eq!(spec.sandbox.limits.memory, Some(2 << 30));
    assert_eq!(
        (spec.sandbox.limits.disk, spec.sandbox.read.len()),
        (Some(3 << 10), 3)
    );
    assert!(spec.sandbox.read.iter().all(|path| path.is_absolute()));
    let message = spec
        .usd_location
        .unwrap()
        .error("price", "no price")
        .to_string();
    assert!(message.contains("spec.yaml:18:15: no price\n"), "{message}");
}

#[test]
fn the_extension_decides_the_format() {
    let folder = Folder::new()
        .write("a.json", "{\"name\": \"\\ud83d\\ude00\", \"description\": \"b\\n\", \"checks\": [{\"command\": [\"x\"]}], \"budget\": {}}")
        .write("b.YML", "\u{feff}name: 'n'\r\ndescription: d\r\n")
        .write("adder.md", "# Adder\n\n---\nnot front matter\n")
        .write("front.markdown", "---\r\nmax_retries: 2 # two\r\n---\r\n\n# Text\n---\nmore\n")
        .write("named.md", "---\nname: other\n---\nText")
        .write("bare.md", "---\n---\nText")
        .write("merge.yaml", "name: a\ndescription: d\nchecks:\n- &c {command: [x], timeout: 7}\n- {<<: *c, name: b}\n");
    assert_eq!(folder.read("a.json").unwrap().name, "😀");
    assert_eq!(folder.read("b.YML").unwrap().name, "n");
    let adder = folder.read("adder.md").unwrap();
    assert_eq!(
        (adder.name.as_str(), adder.description.as_str()),
        ("adder", "# Adder\n\n---\nnot front matter\n")
    );
    let front = folder.read("front.markdown").unwrap();
    assert_eq!(
        (
            front.name.as_str(),
            front.description.as_str(),
            front.max_retries
        ),
        ("front", "\n# Text\n---\nmore\n", 2)
    );
    assert_eq!(folder.read("named.md").unwrap().name, "other");
    assert_eq!(folder.read("bare.md").unwrap().description, "Text");
    assert_eq!(
        folder.read("merge.yaml").unwrap().checks[1].timeout,
        Duration::from_secs(7)
    );
}

#[test]
fn two_numbers_are_clamped_with_a_warning() {
    for (asked, kept) in [
        ("-1", 1),
        ("0", 1),
        ("51", 50),
        ("1000", 50),
        ("18446744073709551616", 50),
        ("-99999999999999999999", 1),
    ] {
        let spec = accept(&format!("{HEAD}max_retries: {asked}\n"));
        assert_eq!(spec.max_retries, kept, "{asked}");
        assert!(spec.warnings[0].summary().contains(&format!(
            "spec.yaml:3:14: `max_retries` is out of range and clamped to {kept}"
        )));
    }
    for (asked, warned) in [("600", 0), ("600.5", 1), ("601", 1), ("1e300", 1)] {
        let spec = accept(&format!("{CHECK}    timeout: {asked}\n"));
        assert_eq!(
            (spec.checks[0].timeout.as_secs(), spec.warnings.len()),
            (600, warned),
            "{asked}"
        );
    }
    let spec = Folder::new().write(
        "s.json",
        "{\"name\":\"a\",\"description\":\"b\",\"max_retries\":340282366920938463463374607431768211456}",
    );
    assert_eq!(spec.read("s.json").unwrap().max_retries, 50);
}
