//! Specs that are refused, each with the position in the message.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use tempfile::TempDir;

use super::Folder;
use super::read::{CHECK, GENERATOR, HEAD, refuse, refuse_all, refuse_below, refuse_yaml};
use crate::build::spec::read_spec;

#[test]
fn wrong_shapes_are_refused_with_their_position() {
    refuse_all(
        HEAD,
        r#"
        3:1  | colour: red                                 | unknown field `colour`
        3:1  | chekcs: red                                 | did you mean `checks`?
        3:1  | name: b                                     | duplicate key `name`
        3:20 | budget: {usd: 1.0, euro: 1.0}               | unknown field `euro`
        5:28 | workspace:\n  copy:\n    - {from: tests, to: b, mode: c} | unknown field `mode`
        3:11 | sandbox: {enabled: false}                   | unknown field
        3:9  | checks: make test                           | expected a list
        3:7  | checks:\n                                   | expected a list, found nothing
        3:9  | checks: []                                  | at least one check
        3:10 | checks: [{name: a}]                         | missing field `command`
        4:14 | checks:\n  - command: make test             | not a shell line
        3:20 | checks: [{command: []}]                     | must not be empty
        3:21 | checks: [{command: ['']}]                   | must not be empty
        3:24 | checks: [{command: [a, 5]}]                 | `checks[0].command[1]`: expected text, found 5
        7:7  | checks:\n  - command: [a]\n  - command:\n    - b\n    - 5 | `checks[1].command[1]`: expected
        3:26 | checks: [{command: [a]}, b]                 | `checks[1]`: expected a mapping of fields
        5:14 | workspace:\n  copy:\n    - {from: 7, to: b} | `workspace.copy[0].from`: expected text
        3:31 | sandbox: {limits: {processes: x}}           | `sandbox.limits.processes`:
        3:26 | sandbox: {network: true, enabled: false}    | `sandbox`: unknown field `enabled`
        3:24 | checks: [{command: [a, 5]}]                 | quotes make it text
        3:31 | checks: [{command: [a], env: {'': b}}]      | variable's name
        3:31 | checks: [{command: [a], env: {A=B: b}}]     | variable's name
        3:34 | checks: [{command: [a], env: {A: 1}}]       | expected text, found 1
        3:37 | checks: [{command: [a], env: {A: a, A: b}}] | duplicate
        3:20 | workspace: {copy: [nowhere]}                | cannot read nowhere
        3:20 | workspace: {copy: [{to: b}]}                | missing field `from`
        3:20 | workspace: {copy: ['']}                     | must not be empty
        3:38 | workspace: {copy: [{from: tests, to: ''}]}  | must not be empty
        3:20 | workspace: {copy: [..]}                     | no name of its own
        3:13 | on_timeout: retry                           | allowed: fail, patch
        3:9  | budget: []                                  | expected a mapping
        "#,
    );
    refuse_all(
        CHECK,
        r#"
        5:5  |     shell: true                    | allowed: name, command, timeout
        5:13 |     hidden: yes                    | expected true or false, found the text "yes"
        5:5  |     files: [tests]                 | `files` needs `hidden: true`
        6:12 |     hidden: true\n    files: tests | expected a list
        "#,
    );
    refuse_all(
        "",
        r#"
        1:1  | name: x\nchecks: []          | missing field `description`
        1:7  | name: [a]\ndescription: x    | expected text, found a list
        1:7  | name: 5\ndescription: x      | quotes make it text
        1:7  | name: ~\ndescription: x      | expected text, found nothing
        1:7  | name: ' '\ndescription: x    | must not be empty
        2:14 | name: x\ndescription: ''     | must not be empty
        1:7  | name: "a\0b"\ndescription: x | NUL
        "#,
    );
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_the_text() {
    let message = Folder::new()
        .write(
            "spec.yaml",
            "chekcs: 1\nname: 5\nworkspace: {copy: [nowhere, {to: a}], protct: []}\nchecks:\n- command: [a, 1, 2]\n  \
             hidden: 3\n  files: [one.txt]\n- 4\nbudget: {usd: x, tokens: -1}\nmax_retries: 0\ngenerator: {provider: \
             template, template: nowhere, price: {}}\nbaseline: 7\n",
        )
        .message("spec.yaml");
    let heads: Vec<&str> = message
        .lines()
        .filter_map(|line| line.strip_prefix("spec.yaml:"))
        .collect();
    let expected = [
        "1:1: unknown field `chekcs`",
        "1:1: missing field `description`",
        "2:7: `name`: expected text, found 5",
        "3:20: `workspace.copy[0]`: cannot read nowhere: No such file or directory",
        "3:29: `workspace.copy[1]`: missing field `from`",
        "3:39: `workspace`: unknown field `protct`",
        "5:16: `checks[0].command[1]`: expected text, found 1",
        "5:19: `checks[0].command[2]`: expected text, found 2",
        "6:11: `checks[0].hidden`: expected true or false, found 3",
        "8:3: `checks[1]`: expected a mapping of fields, found 4",
        "9:15: `budget.usd`: expected a number, found the text \"x\"",
        "9:26: `budget.tokens`: must be at least 0, found -1",
        "11:43: `generator.template`: cannot read nowhere: No such file or directory",
        "11:59: `generator.price`: missing field `input`",
        "11:59: `generator.price`: missing field `output`",
        "12:11: `baseline`: expected true or false, found 7",
    ];
    assert_eq!(heads, expected, "{message}");
    let many: String = (0..50).map(|n| format!("k{n}: 1\n")).collect();
    let message = Folder::new()
        .write("spec.yaml", format!("{HEAD}{many}"))
        .message("spec.yaml");
    assert_eq!(message.matches("unknown field").count(), 20);
    assert!(
        message.ends_with("\nspec.yaml: 30 more mistakes"),
        "{message}"
    );
}

#[test]
fn wrong_values_are_refused_with_their_position() {
    for value in ["\"5\"", "5.0", "true", "five", "[5]", "1e309", ".inf"] {
        refuse_below(HEAD, &format!("max_retries: {value}"), "3:14");
    }
    for value in ["-3", "0", "0.0", "-0.0", "soon", "'5'", ".nan"] {
        refuse_below(CHECK, &format!("    timeout: {value}"), "5:14");
    }
    for value in ["-1", "1.0", "4294967296", "many"] {
        refuse_below(CHECK, &format!("    min_tests: {value}"), "5:16");
    }
    refuse_all(
        GENERATOR,
        r#"
        4:13 |   provider: oracle              | unknown provider `oracle`
        4:9 |   mode: telepathy               | unknown mode
        4:15 |   max_tokens: 0                 | at least 1
        4:15 |   max_tokens: lots              | whole number
        4:14 |   max_turns: 0                  | at least 1
        4:12 |   context: 0                    | at least 1
        4:16 |   temperature: 2.5              | between 0 and 2
        4:16 |   temperature: -1               | between 0 and 2
        4:16 |   temperature: hot              | a number
        4:19 |   format_retries: 4             | at most 3
        4:19 |   format_retries: -1            | at least 0
        4:17 |   idle_timeout: 0               | more than 0
        4:17 |   idle_timeout: 1e30            | at most a year
        4:18 |   phase_timeout: -1             | more than 0
        4:18 |   price: {input: -1, output: 1} | negative
        4:10 |   price: {input: 1}             | missing field `output`
        4:13 |   base_url: localhost           | http://
        4:13 |   base_url: 'http://a b'        | http://
        4:10 |   model: ''                     | empty
        4:11 |   effort: 3                     | expected text
        4:13 |   template: nowhere             | cannot read nowhere
        4:13 |   template: one.txt             | not a folder
        4:13 |   template: empty               | has no folder 0/
        4:12 |   prompts: one.txt              | not a folder
        4:13 |   provider: template            | needs `generator.template`
        4:13 |   provider: template\n  template: template\n  mode: agent | no `mode: agent`
        "#,
    );
    for limit in [
        "processes: 0",
        "processes: many",
        "files: -1",
        "memory: 0",
        "memory: 5 MB",
        "disk: '+1'",
        "disk: 99999999999 GiB",
        "disk: ''",
        "memory: 1.5",
        "memory: []",
    ] {
        let column = 20 + limit.find(' ').unwrap() + 1;
        let rest = format!("sandbox: {{limits: {{{limit}}}}}");
        refuse_below(HEAD, &rest, &format!("3:{column}"));
    }
    refuse_all(
        HEAD,
        r#"
        3:15 | budget: {usd: -1}                 | negative
        3:18 | budget: {tokens: -1}              | at least 0
        3:18 | budget: {tokens: 1.5}             | whole number
        3:20 | sandbox: {network: perhaps}       | true or false
        3:17 | sandbox: {read: /opt}             | a list
        3:18 | sandbox: {read: [/nowhere/x]}     | cannot read /nowhere/x
        3:18 | sandbox: {read: [~/nowhere]}      | cannot read nowhere
        3:21 | sandbox: {devices: [/etc/passwd]} | below /dev
        3:21 | sandbox: {devices: [/dev/../etc]} | below /dev
        "#,
    );
}

#[test]
fn invalid_yaml_is_refused_with_its_position() {
    refuse("spec.yaml", b"name: a\nd\xc3\xa4\xff\n", "2:3", "not UTF-8");
    refuse("spec.yaml", b"name: a\nd\0\n", "2:2", "NUL");
    refuse_yaml("", "1:1", "empty");
    refuse_yaml("name: \u{7}\u{202e}\n", "1:7", "");
    refuse_all(
        HEAD,
        r#"
        4:1 | checks:\n\t- name: unit | with a tab
        3:9 | checks: [               | not closed
        "#,
    );
    refuse_all(
        "",
        r#"
        3:4  | ä: 1\r\nb: 2\r\nc: [\r                  | not closed
        3:1  | name: a\n---\nname: b                   | document
        1:1  | just words                              | expected a mapping
        2:1  | # nothing                               | empty
        1:7 | name: !!python/object x\ndescription: b | cannot begin with `!`
        1:7  | name: *zz\ndescription: b               | begin with `*`
        "#,
    );
}

#[test]
fn invalid_json_is_refused_with_its_position() {
    let cases = [
        ("{\n \"name\": \"a\",\n}\n", "2:13", "trailing comma"),
        ("{\n \"name\": \"a", "2:10", "EOF"),
        (
            "{\"name\": \"a\",\n \"description\": \"b\",\n \"extra\": 1}\n",
            "3:2",
            "unknown field `extra`",
        ),
        (
            "{\"name\": \"a\",\n \"description\": 7}\n",
            "2:17",
            "expected text, found 7",
        ),
        (
            "{\"name\": \"a\", \"name\": \"b\"}",
            "1:15",
            "duplicate key `name`",
        ),
        (
            "{\"name\": \"ä\", \"description\": \"b\", \"max_retries\": 5.0}",
            "1:50",
            "whole number",
        ),
        (
            "{\"name\": \"a\", \"description\": \"b\", \"max_retries\": 1e309}",
            "1:54",
            "number out of range",
        ),
        (
            "{\"name\": \"a\", \"description\": \"b\", \"checks\": [ {\"command\": [ ] } ]}",
            "1:59",
            "must not be empty",
        ),
        (
            "{\"a\\\"b\": {}, \"c\" : [ 1 , 2 ]}",
            "1:2",
            "unknown field `a\"b`",
        ),
        ("[]", "1:1", "expected a mapping"),
        ("", "1:1", "the file is empty"),
        ("{} {}", "1:4", "trailing"),
    ];
    for (text, position, part) in cases {
        refuse("spec.json", text, position, part);
    }
}

#[test]
fn invalid_markdown_is_refused_with_its_position() {
    refuse(
        "task.md",
        "---\nmax_retries: 2\ncolour: red\n---\n# Task\n",
        "3:1",
        "unknown field `colour`",
    );
    refuse(
        "task.md",
        "---\ndescription: x\n---\n# Task\n",
        "2:1",
        "below the front matter",
    );
    refuse("task.md", "---\nname: x\n# Task\n", "1:1", "not closed");
    refuse("task.md", "---\nname: x\n---\n \n", "3:1", "no text");
    refuse("task.md", "", "1:1", "no text");
    refuse(
        "task.md",
        "---\njust words\n---\n# Task\n",
        "2:1",
        "expected a mapping",
    );
}

#[test]
fn texts_that_expand_or_nest_too_much_are_refused() {
    let mut laughs =
        format!("{HEAD}workspace:\n  copy:\n    - &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (before, this) in "abcdefghi".chars().zip("bcdefghij".chars()) {
        laughs += &format!(
            "    - &{this} [{}]\n",
            vec![format!("*{before}"); 10].join(", ")
        );
    }
    let wide = format!(
        "a: &a [{}]\nb: [{}]\n",
        "x, ".repeat(8000),
        "*a, ".repeat(8000)
    );
    let long = format!(
        "name: &a \"{}\"\nb: [{}]\n",
        "x".repeat(500_000),
        "*a, ".repeat(900)
    );
    for text in [
        laughs,
        wide,
        long,
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
    ] {
        Folder::new().write("spec.yaml", &text).message("spec.yaml");
        Folder::new().write("spec.json", &text).message("spec.json");
    }
    for (text, part) in [
        (
            format!(
                "{HEAD}workspace: {{copy: [{}]}}\n",
                "one.txt, ".repeat(45_000)
            ),
            "more than 1000 files",
        ),
        (
            format!(
                "{HEAD}checks: [{}]\n",
                "{command: [x], timeout: 900}, ".repeat(15_000)
            ),
            "more than 1000 checks",
        ),
        (
            format!(
                "{HEAD}{}",
                (0..60_000)
                    .map(|n| format!("k{n}: 1\n"))
                    .collect::<String>()
            ),
            "YAML document too large",
        ),
        (
            format!(
                "{HEAD}{}",
                (0..40_000)
                    .map(|n| format!("k{n}: 1\n"))
                    .collect::<String>()
            ),
            "unknown field `k0`",
        ),
    ] {
        let message = Folder::new().write("spec.yaml", text).message("spec.yaml");
        assert!(message.contains(part), "{message}");
    }
    let large = Folder::new().write("spec.yaml", format!("{HEAD}#{}", "x".repeat(1 << 20)));
    assert!(large.message("spec.yaml").contains("larger than 1 MiB"));
    let long_key = format!("{{\"{}\": 1}}", "k".repeat(1000));
    refuse("spec.json", long_key, "1:2", "unknown field");
}

#[test]
fn only_regular_files_are_read() {
    let folder = Folder::new();
    symlink("nowhere", folder.path().join("dangling.yaml")).unwrap();
    symlink(
        "dangling.yaml/../loop.yaml",
        folder.path().join("loop.yaml"),
    )
    .unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path().join("fifo.yaml"),
        fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    for name in [
        "dangling.yaml",
        "loop.yaml",
        "fifo.yaml",
        "tests",
        "missing.yaml",
        "/dev/zero",
        "/proc/self/mem",
    ] {
        assert!(
            folder
                .message(name)
                .starts_with(&format!("{name}:1:1: cannot read the spec: ")),
            "{name}"
        );
    }
    folder.put("real.yaml", HEAD);
    symlink("real.yaml", folder.path().join("link.yaml")).unwrap();
    assert!(folder.read("link.yaml").is_ok());
}

#[test]
fn messages_carry_no_control_characters() {
    for (name, text) in [
        ("a.json", "{\"\\u001b[31m\\u202e\": 1}"),
        ("b\u{1b}[2J.yaml", "\"\\e[31m\": 1\n"),
        ("c.yaml", "name: \u{9b}\u{202e}x\n"),
        (
            "d.yaml",
            "name: a\ndescription: b\nworkspace: {copy: [\"\\e]0;x\\a\"]}\n",
        ),
        ("e.yaml", "name: !<\u{202e}> x\n"),
        ("f.yaml", "name: a\n\"\\u202ea\": 1\n\"\\u202ea\": 2\n"),
    ] {
        let message = Folder::new().write(name, text).message(name);
        let is_raw =
            |c: char| c != '\n' && c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!message.contains(is_raw), "{message:?}");
    }
}

fn yaml_fragments() -> impl Strategy<Value = String> {
    let fragment = prop_oneof![
        Just("name: a\n"),
        Just("description: b\n"),
        Just("checks:\n"),
        Just("  - "),
        Just("command: [x]\n"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(", "),
        Just(": "),
        Just("\""),
        Just("'"),
        Just("\\"),
        Just("---\n"),
        Just("&a "),
        Just("*a "),
        Just("<<: "),
        Just("\n"),
        Just("\t"),
        Just("max_retries: "),
        Just("9999999999999999999999"),
        Just("1e5"),
        Just("!!str "),
        Just("|\n"),
        Just("ä\u{feff}"),
        Just("\r\n"),
        Just("\"name\":"),
        Just("null"),
        Just("\\ud83d"),
        Just("generator: "),
        Just("\u{2028}"),
        Just("%YAML 1.2\n"),
        Just("...\n"),
        Just("? "),
        Just("# x\n"),
    ];
    proptest::collection::vec(fragment, 0..30).prop_map(|fragments| fragments.concat())
}

#[test]
fn a_mistake_behind_the_last_character_is_shown() {
    let folder = TempDir::new().unwrap();
    for text in ["? ", "? \n", "a: b\n? "] {
        let path = folder.path().join("s.yaml");
        fs::write(&path, text).unwrap();
        assert!(read_spec(&path, None, &[]).is_err(), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in yaml_fragments()) {
        let folder = TempDir::new().unwrap();
        for name in ["s.yaml", "s.json", "s.md"] {
            for content in [bytes.as_slice(), text.as_bytes(), format!("---\n{text}\n---\nx").as_bytes()] {
                fs::write(folder.path().join(name), content).unwrap();
                let _ = read_spec(&folder.path().join(name), None, &[]);
            }
        }
    }
}
