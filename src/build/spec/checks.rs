//! The spec's `checks`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::field_rule::{FieldRule, boolean, integer_in, list, mapping, nonempty_text, text, with};
use super::model::{CheckSpec, WritableDir};
use super::sources::{safe_path, safe_path_form, sources_form};
use super::validator::{NodeFields, Validator, count, count_form, seconds};
use crate::source::diagnostic::Diagnostic;
use crate::source::node::{Node, NodeEntry, NodeValue, brief};

/// The one check of a spec without `checks`.
pub(super) const DEFAULT_CHECK: &str = "pytest";
pub(super) const DEFAULT_COMMAND: [&str; 3] = ["python3", "-m", "pytest"];
const MAX_CHECKS: usize = 1_000;
const MAX_RERUN: u32 = 3;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// Characters of a shell line that the name of a program does not have, beside white space.
const SHELL_OPERATORS: &str = "&|;<>";
const SHELL_HELP: &str = "a list of words, not a shell line; for a shell: `[sh, -c, \"…\"]`";

const FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "name",
        nonempty_text,
        "Name in messages and in the log; default: check and its number.",
    ),
    FieldRule::new(
        "command",
        command_form,
        "Program and arguments, never a shell line.",
    )
    .required()
    .examples(|| {
        json!([
            ["python3", "-m", "pytest", "-q"],
            ["sh", "-c", "make && ./test"]
        ])
    }),
    FieldRule::new(
        "timeout",
        timeout_form,
        "Seconds.",
    )
    .default(|| json!(DEFAULT_TIMEOUT.as_secs())),
    FieldRule::new("env", env_form, "Additional variables; their values are texts.")
        .examples(|| json!([{"RUST_BACKTRACE": "1"}])),
    FieldRule::new(
        "min_tests",
        count_form,
        "Fewer executed tests fail the check.",
    ),
    FieldRule::new(
        "rerun",
        || integer_in(0, MAX_RERUN.into()),
        "How often a failure is run again before it counts; a pass after a failure is reported as flaky.",
    )
    .default(|| json!(0)),
    FieldRule::new(
        "hidden",
        boolean,
        "Runs only after the others passed; the model gets the fact that it failed and nothing else.",
    )
    .default(|| json!(false)),
    FieldRule::new(
        "files",
        sources_form,
        "Only with `hidden: true`: in the workspace only while this check runs.",
    ),
    FieldRule::new(
        "writable",
        || list(safe_path_form()),
        "Folders inside protected ones that this check may write.",
    ),
];

/// Form of `checks`.
pub(super) fn checks_form() -> Value {
    let files_need_hidden = json!({
        "if": {"required": ["files"]},
        "then": {"required": ["hidden"], "properties": {"hidden": {"const": true}}},
    });
    let check = with(mapping(FIELDS), files_need_hidden);
    with(list(check), json!({"minItems": 1, "maxItems": MAX_CHECKS}))
}

/// More than `MAX_TIMEOUT` is valid, and clamped.
fn timeout_form() -> Value {
    let most = MAX_TIMEOUT.as_secs();
    let description = format!("Seconds, at most {most}; a larger value is clamped with a warning.");
    json!({"description": description, "type": "number", "exclusiveMinimum": 0})
}

fn command_form() -> Value {
    let program = json!({
        "type": "string",
        "minLength": 1,
        "not": {"pattern": format!("[\\s\\u0000{SHELL_OPERATORS}]")},
    });
    with(
        list(text()),
        json!({"prefixItems": [program], "minItems": 1}),
    )
}

fn env_form() -> Value {
    json!({
        "type": "object",
        "propertyNames": {"minLength": 1, "not": {"pattern": "[=\\u0000]"}},
        "additionalProperties": text(),
    })
}

impl Validator<'_> {
    /// The checks of a spec; without the field, pytest is the one check.
    pub(super) fn checks_or_default(&self, spec: &NodeFields<'_>, tree: &Node) -> Vec<CheckSpec> {
        match spec.get("checks") {
            Some(_) => spec.read_or_default("checks", |node| self.checks(node)),
            None => vec![self.default_check(tree)],
        }
    }

    fn checks(&self, node: &Node) -> Result<Vec<CheckSpec>, Diagnostic> {
        let items = node
            .list_of_at_most(MAX_CHECKS, "checks")
            .map_err(|mistake| match (&mistake.help, checks_help(node)) {
                (None, Some(help)) => mistake.with_help(help),
                _ => mistake,
            })?;
        if items.is_empty() {
            return Err(node
                .mistake("there must be at least one check")
                .with_help("without `checks`, pytest is the one check"));
        }
        let numbered: Vec<(usize, &Node)> = (1..).zip(items).collect();
        Ok(self.each(&numbered, |(number, item)| self.check(*number, item)))
    }

    fn default_check(&self, tree: &Node) -> CheckSpec {
        CheckSpec {
            name: DEFAULT_CHECK.to_owned(),
            command: DEFAULT_COMMAND.map(str::to_owned).to_vec(),
            location: self.location(tree),
            timeout: DEFAULT_TIMEOUT,
            env: BTreeMap::new(),
            min_tests: None,
            rerun: 0,
            hidden: false,
            files: Vec::new(),
            writable: Vec::new(),
        }
    }

    fn check(&self, number: usize, node: &Node) -> Result<CheckSpec, Diagnostic> {
        let fields = self
            .fields(node, FIELDS)
            .map_err(|mistake| match &node.value {
                NodeValue::Text(line) => {
                    mistake.with_help(format!("write `{}`", command_list(line)))
                }
                _ => mistake,
            })?;
        let command = fields.get("command").unwrap_or(node);
        let program = command.list().ok().and_then(<[Node]>::first);
        Ok(CheckSpec {
            name: match fields.read("name", Node::nonempty_text) {
                Some(name) => name.to_owned(),
                None => format!("check {number}"),
            },
            command: fields
                .require("command", |node| self.command(node))
                .unwrap_or_default(),
            location: self.location(program.unwrap_or(command)),
            timeout: fields.read_or("timeout", DEFAULT_TIMEOUT, |node| self.timeout(node)),
            env: fields
                .read("env", Node::entries)
                .map(|entries| BTreeMap::from_iter(self.each(entries, variable)))
                .unwrap_or_default(),
            min_tests: fields.read("min_tests", count),
            rerun: fields.read_or("rerun", 0, |node| node.integer_in(0, MAX_RERUN.into())),
            hidden: self.hidden(&fields),
            files: fields.read_or_default("files", |node| self.sources(node)),
            writable: fields.read_or_default("writable", |node| self.writable(node)),
        })
    }

    fn hidden(&self, fields: &NodeFields<'_>) -> bool {
        let hidden = fields.read("hidden", Node::boolean);
        let is_visible = hidden == Some(false) || fields.get("hidden").is_none();
        if let Some(entry) = fields.entry("files").filter(|_| is_visible) {
            let message = "`files` needs `hidden: true`";
            self.record(Diagnostic::new(entry.key_span.clone(), message));
        }
        !is_visible
    }

    fn command(&self, node: &Node) -> Result<Vec<String>, Diagnostic> {
        let items = node
            .list()
            .map_err(|mistake| mistake.with_help(command_help(node)))?;
        let Some(program) = items.first() else {
            return Err(node.mistake("must not be empty"));
        };
        let is_shell = |c: char| c.is_whitespace() || SHELL_OPERATORS.contains(c);
        if program.nonempty_text()?.contains(is_shell) {
            let line = program.text()?;
            let mistake = program.mistake(format!(
                "\"{}\" cannot be the name of a program",
                brief(line)
            ));
            return Err(match items {
                [_] => mistake.with_help(format!("{SHELL_HELP}; here `{}`", command_list(line))),
                _ => mistake.with_help(SHELL_HELP),
            });
        }
        Ok(self.each(items, |item| Ok(item.text()?.to_owned())))
    }

    fn timeout(&self, node: &Node) -> Result<Duration, Diagnostic> {
        let Ok(asked) = node.number() else {
            return seconds(node);
        };
        if asked < MAX_TIMEOUT.as_secs_f64() {
            return seconds(node);
        }
        if MAX_TIMEOUT.as_secs_f64() < asked {
            self.warn_of_clamping(node, "timeout", MAX_TIMEOUT.as_secs());
        }
        Ok(MAX_TIMEOUT)
    }

    fn writable(&self, node: &Node) -> Result<Vec<WritableDir>, Diagnostic> {
        let folder = |item| {
            Ok(WritableDir {
                path: safe_path(item, item.nonempty_text()?)?,
                location: self.location(item),
            })
        };
        Ok(self.each(node.list()?, folder))
    }
}

/// The list of words of a command that is written as one text.
fn command_help(node: &Node) -> String {
    match &node.value {
        NodeValue::Text(line) => format!(
            "a list of words, not a shell line: `{}`",
            command_list(line)
        ),
        _ => SHELL_HELP.to_owned(),
    }
}

fn command_list(line: &str) -> String {
    let needs_shell = line.contains(|c: char| SHELL_OPERATORS.contains(c) || "$*`".contains(c));
    let words = shlex::split(line).filter(|_| !needs_shell);
    let words = words.unwrap_or_else(|| ["sh", "-c", line].map(str::to_owned).to_vec());
    let words: Vec<String> = words.iter().map(|word| flow_word(&brief(word))).collect();
    format!("command: [{}]", words.join(", "))
}

/// Checks that are written as a mapping, as a list.
fn checks_help(node: &Node) -> Option<String> {
    let NodeValue::Map(entries) = &node.value else {
        return None;
    };
    let first = entries.first()?;
    let help = match FIELDS.iter().any(|field| field.name == first.key) {
        true => {
            let value = first.value.text().map_or("…", |text| text);
            let field = format!("{}: {}", first.key, flow_word(&brief(value)));
            format!("a list of checks, each with its fields: `- {field}`")
        }
        false => {
            let name = flow_word(&brief(&first.key));
            format!("a list of checks, each with its name and its fields: `- name: {name}`")
        }
    };
    Some(help)
}

/// A word as an item of a list in brackets.
pub(super) fn flow_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./+=@%-".contains(c);
    let is_text = word
        .starts_with(|c: char| c.is_ascii_alphabetic() || "_./".contains(c) && word != ".")
        || (word.starts_with('-')
            && 1 < word.len()
            && !word[1..].starts_with(|c: char| c.is_ascii_digit()));
    let is_reserved = matches!(word, "true" | "false" | "null");
    match is_text && word.chars().all(is_plain) && !is_reserved {
        true => word.to_owned(),
        false => serde_json::Value::from(word).to_string(),
    }
}

fn variable(entry: &NodeEntry) -> Result<(String, String), Diagnostic> {
    if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
        return Err(Diagnostic::new(
            entry.key_span.clone(),
            "a variable's name must not be empty or hold `=` or NUL",
        ));
    }
    Ok((entry.key.clone(), entry.value.text()?.to_owned()))
}
