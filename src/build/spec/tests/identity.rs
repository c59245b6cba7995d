//! What the hash of a spec covers, and what may change during a run.

use super::Folder;
use crate::build::spec::collect_inputs;
use crate::cancel::CancelToken;

const SPEC: &str = "name: calc\ndescription: Write it.\nworkspace:\n  copy: [../tests]\n  protect: [../one.txt]\n\
                    checks:\n  - {name: unit, command: [make, test], env: {A: '1'}, min_tests: 2}\n  \
                    - {command: ['true'], hidden: true, files: [../empty]}\n\
                    generator: {prompts: ../prompts}\nsandbox: {read: [/usr, ../tests]}\n";

/// The hash of a spec in the folder.
fn hash_in(folder: &Folder, name: &str, text: &str) -> String {
    folder.put(name, text);
    let spec = folder
        .read(name)
        .unwrap_or_else(|error| panic!("{text}\n{error}"));
    collect_inputs(&spec, folder.path(), &CancelToken::never().unwrap())
        .unwrap()
        .hash
}

fn hash(text: &str) -> String {
    hash_in(&Folder::new(), "specs/spec.yaml", text)
}

/// The spec with one part replaced.
fn with(from: &str, to: &str) -> String {
    assert!(SPEC.contains(from), "{from}");
    SPEC.replacen(from, to, 1)
}

#[test]
fn a_change_of_what_is_asked_for_changes_the_hash() {
    let first = hash(SPEC);
    let changes = [
        with("name: calc", "name: other"),
        with("Write it.", "Write it!"),
        with("copy: [../tests]", "copy: [{from: ../tests, to: other}]"),
        with("copy: [../tests]", "copy: [../tests, ../empty]"),
        with("copy: [../tests]", "copy: []"),
        with(
            "copy: [../tests]",
            "copy: [{from: ../tests, exclude: ['*.csv']}]",
        ),
        with(
            "protect: [../one.txt]",
            "protect: [{from: ../one.txt, to: two.txt}]",
        ),
        with(
            "copy: [../tests]\n  protect: [../one.txt]",
            "copy: [../one.txt]\n  protect: [../tests]",
        ),
        with("name: unit", "name: other"),
        with("[make, test]", "[make, check]"),
        with("[make, test]", "[maketest]"),
        with("[make, test]", "[make, test, '']"),
        with("{A: '1'}", "{A: '2'}"),
        with("{A: '1'}", "{}"),
        with("min_tests: 2", "min_tests: 3"),
        with(", min_tests: 2", ""),
        with("hidden: true, files: [../empty]", "hidden: false"),
        with("files: [../empty]", "files: [../one.txt]"),
        with("{prompts: ../prompts}", "{}"),
        with("{prompts", "{provider: openai, prompts"),
        with("{prompts", "{mode: agent, prompts"),
        with("{read: [/usr, ../tests]}", "{read: [/usr]}"),
        with("{read", "{network: true, read"),
    ];
    for text in changes {
        assert_ne!(hash(&text), first, "{text}");
    }
}

#[test]
fn limits_and_models_do_not_change_the_hash() {
    let first = hash(SPEC);
    let more = |fields: &str| format!("{SPEC}{fields}\n");
    let generator = |fields: &str| with("{prompts", &format!("{{{fields}, prompts"));
    let changes = [
        more("max_retries: 9"),
        more("on_timeout: patch"),
        more("budget: {usd: 5, tokens: 9}"),
        more("baseline: false"),
        more("stuck_after: 2"),
        more("snapshots: {keep: 2}"),
        with("name: unit", "name: unit, timeout: 9"),
        generator("model: other"),
        generator("base_url: 'http://localhost:1'"),
        generator("max_tokens: 9"),
        generator("max_turns: 9"),
        generator("temperature: 1"),
        generator("format_retries: 0"),
        generator("idle_timeout: 9"),
        generator("price: {input: 1, output: 2}"),
        generator("context: 9000"),
        generator("phase_timeout: 9"),
        generator("effort: high"),
        with("{read", "{limits: {memory: 1 GiB}, read"),
    ];
    for text in changes {
        assert_eq!(hash(&text), first, "{text}");
    }
}

#[test]
fn formats_and_defaults_do_not_change_the_hash() {
    let first = hash(SPEC);
    let json = r#"{"sandbox": {"read": ["../tests/", "/usr/", "/usr"], "network": false}, "max_retries": 5,
        "generator": {"prompts": "./../prompts/", "provider": "anthropic", "mode": "files", "max_tokens": 16000},
        "checks": [{"min_tests": 2, "hidden": false, "env": {"A": "1"}, "command": ["make", "test"], "name": "unit"},
                   {"name": "check 2", "files": [{"to": "empty/", "from": "../empty/."}], "hidden": true, "command": ["true"]}],
        "workspace": {"protect": ["./../one.txt"], "copy": [{"from": "..//tests/", "to": "./tests"}]},
        "description": "Write it.", "name": "calc"}"#;
    let same = [
        (
            "specs/spec.yaml",
            format!("# a comment\n\n{SPEC}\n# another\n"),
        ),
        (
            "specs/spec.yaml",
            with("name: calc", "name: \"calc\" # the name"),
        ),
        ("specs/spec.yaml", json.to_owned()),
        ("specs/other.json", json.to_owned()),
        ("specs/other.yml", SPEC.to_owned()),
    ];
    for (name, text) in same {
        assert_eq!(
            hash_in(&Folder::new(), name, &text),
            first,
            "{name}\n{text}"
        );
    }
    let default = "name: calc\ndescription: Write it.\n";
    let written = format!(
        "{default}checks: [{{name: pytest, command: [python3, -m, pytest]}}]\nworkspace: {{copy: []}}\n"
    );
    assert_eq!(hash(&written), hash(default));
    let markdown = "---\nname: calc\n---\nWrite it.";
    assert_eq!(
        hash_in(&Folder::new(), "specs/spec.md", markdown),
        hash(default),
        "Markdown"
    );
}
