//! A tree to a `Spec`: the fields at the top, and their defaults.
//!
//! Two numbers are clamped with a warning, `max_retries` and a check's `timeout`; everything else that is out of range
//! is a mistake. Paths are made absolute against the spec's folder, and must exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::checks::{DEFAULT_CHECK, DEFAULT_COMMAND, checks_form, flow_word};
use super::field_rule::{
    FieldRule, boolean, choice, integer, integer_in, mapping, nonempty_text, with,
};
use super::generator::generator_form;
use super::model::{BudgetSpec, InputSource, MAX_RETRIES_CEILING, OnTimeout, Spec};
use super::sandbox::sandbox_form;
use super::sources::sources_form;
use super::validator::{NodeFields, Validator, amount, amount_form, count, count_form};
use crate::source::diagnostic::{Diagnostic, SourceFile};
use crate::source::location::SourceLocation;
use crate::source::node::{Node, NodeValue, bare_number, brief};

const ON_TIMEOUT: [(&str, OnTimeout); 2] = [("fail", OnTimeout::Fail), ("patch", OnTimeout::Patch)];

const DEFAULT_MAX_RETRIES: u32 = 5;
const DEFAULT_STUCK_AFTER: u32 = 4;
const DEFAULT_KEPT_SNAPSHOTS: u32 = 200;

const TOP_HELP: &str =
    "fields, not a list or a text: `name: calc`, `description: A calculator in calc.py.`";

/// The fields of a spec.
pub(super) const FIELDS: &[FieldRule] = &[
    FieldRule::new("name", nonempty_text, "Name of the project.")
        .required()
        .examples(|| json!(["calculator"])),
    FieldRule::new(
        "description",
        nonempty_text,
        "What to build; sent to the model.",
    )
    .required(),
    FieldRule::new(
        "workspace",
        || mapping(WORKSPACE_FIELDS),
        "Files and folders that are put into the workspace before generation.",
    ),
    FieldRule::new(
        "checks",
        checks_form,
        "Commands that decide. All run, in this order; all must pass.",
    )
    .default(|| json!([{"name": DEFAULT_CHECK, "command": DEFAULT_COMMAND}])),
    FieldRule::new(
        "on_timeout",
        || choice(&ON_TIMEOUT),
        "fail: a check that times out ends the run. patch: it counts as a failure that the model may patch.",
    )
    .default(|| json!(ON_TIMEOUT[0].0)),
    FieldRule::new(
        "max_retries",
        max_retries_form,
        "How often the model may patch.",
    )
    .default(|| json!(DEFAULT_MAX_RETRIES)),
    FieldRule::new("generator", generator_form, "The model that writes the code."),
    FieldRule::new(
        "budget",
        || mapping(BUDGET_FIELDS),
        "Limits of the whole run. The worst case of a request must fit before it is sent.",
    )
    .examples(|| json!([{"usd": 2.0}])),
    FieldRule::new("sandbox", sandbox_form, "What checks and tools may reach, and their limits."),
    FieldRule::new(
        "baseline",
        boolean,
        "Run the checks once before the first request, if files are copied or protected.",
    )
    .default(|| json!(true)),
    FieldRule::new(
        "stuck_after",
        count_form,
        "End the run after so many equal failures in a row; 0 is never.",
    )
    .default(|| json!(DEFAULT_STUCK_AFTER)),
    FieldRule::new(
        "snapshots",
        || mapping(SNAPSHOT_FIELDS),
        "How attempts are kept.",
    ),
];

fn max_retries_form() -> Value {
    let description = format!(
        "How often the model may patch, 1 to {MAX_RETRIES_CEILING}; other numbers are clamped with a warning."
    );
    with(integer(), json!({"description": description}))
}

const WORKSPACE_FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "copy",
        sources_form,
        "Copied into the workspace before generation; the model may change these files.",
    )
    .examples(|| json!([["."], ["starter/"]])),
    FieldRule::new(
        "protect",
        sources_form,
        "Copied likewise; read-only in checks, restored whenever something changes them.",
    )
    .examples(|| json!([["tests/"]])),
];

const BUDGET_FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "usd",
        amount_form,
        "Limit in USD. A model without a known price needs generator.price.",
    )
    .examples(|| json!([2.0])),
    FieldRule::new(
        "tokens",
        || integer_in(0, u64::MAX),
        "Limit in tokens, input and output.",
    )
    .examples(|| json!([500_000])),
];

const SNAPSHOT_FIELDS: &[FieldRule] = &[FieldRule::new(
    "keep",
    count_form,
    "How many snapshots a root keeps; the oldest go first, never those of the newest run.",
)
.default(|| json!(DEFAULT_KEPT_SNAPSHOTS))];

/// The number of a budget that is written as one.
fn amount_of_money(node: &Node) -> Option<String> {
    match &node.value {
        NodeValue::Text(text) => bare_number(text).map(str::to_owned),
        _ => node.number().ok().map(|_| node.written()),
    }
}

/// What a Markdown spec has outside its front matter.
pub(super) struct MarkdownBody {
    pub name: String,
    pub description: String,
}

/// The spec of a tree from `file`, which is absolute, or all its mistakes.
pub(super) fn validate(
    source: Arc<SourceFile>,
    file: PathBuf,
    home: Option<&Path>,
    tree: &Node,
    markdown: Option<MarkdownBody>,
) -> Result<Spec, Vec<Diagnostic>> {
    let validator = Validator::new(source, &file, home);
    let spec = validator.spec(tree, markdown);
    let mut mistakes = validator.mistakes.into_inner();
    let warnings = validator.warnings.into_inner();
    match spec {
        Ok(spec) if mistakes.is_empty() => Ok(Spec {
            file,
            warnings,
            ..spec
        }),
        result => {
            mistakes.extend(result.err());
            Err(mistakes)
        }
    }
}

impl Validator<'_> {
    /// The spec without `file` and `warnings`.
    fn spec(&self, tree: &Node, markdown: Option<MarkdownBody>) -> Result<Spec, Diagnostic> {
        let fields = self.top_fields(tree)?;
        let (name, description) = self.title(&fields, markdown);
        let (copy, protect) = fields.read_or_default("workspace", |node| self.workspace(node));
        let (budget, usd_location) = fields.read_or_default("budget", |node| self.budget(node));
        Ok(Spec {
            name,
            description,
            copy,
            protect,
            checks: self.checks_or_default(&fields, tree),
            on_timeout: fields.read_or("on_timeout", ON_TIMEOUT[0].1, |node| {
                node.choice("word", &ON_TIMEOUT)
            }),
            max_retries: fields.read_or("max_retries", DEFAULT_MAX_RETRIES, |node| {
                self.max_retries(node)
            }),
            generator: fields.read_or_default("generator", |node| self.generator(node)),
            budget,
            usd_location,
            sandbox: fields.read_or_default("sandbox", |node| self.sandbox(node)),
            baseline: fields.read_or("baseline", true, Node::boolean),
            stuck_after: fields.read_or("stuck_after", DEFAULT_STUCK_AFTER, count),
            kept_snapshots: fields.read_or("snapshots", DEFAULT_KEPT_SNAPSHOTS, |node| {
                self.kept_snapshots(node)
            }),
            file: PathBuf::new(),
            warnings: Vec::new(),
        })
    }

    fn top_fields<'n>(&'n self, tree: &'n Node) -> Result<NodeFields<'n>, Diagnostic> {
        match tree.value {
            NodeValue::Null => Err(tree
                .mistake("the spec is empty")
                .with_help("`name` and `description` are required: `name: calc`, `description: A calculator in calc.py.`")),
            NodeValue::List(_) => self.fields(tree, FIELDS).map_err(|mistake| mistake.with_help(TOP_HELP)),
            _ => self.fields(tree, FIELDS).map_err(|mistake| match mistake.help {
                None => mistake.with_help(TOP_HELP),
                Some(_) => mistake,
            }),
        }
    }

    fn title(&self, fields: &NodeFields<'_>, markdown: Option<MarkdownBody>) -> (String, String) {
        let Some(markdown) = markdown else {
            let text = |key| fields.require(key, Node::nonempty_text).unwrap_or_default();
            return (text("name").to_owned(), text("description").to_owned());
        };
        if let Some(entry) = fields.entry("description") {
            let message = "in Markdown the text below the front matter is the description";
            let mistake = Diagnostic::new(entry.key_span.clone(), message);
            self.record(
                mistake.with_help("remove `description`, and write it below the line `---`"),
            );
        }
        let name = fields.read("name", Node::nonempty_text).map(str::to_owned);
        (name.unwrap_or(markdown.name), markdown.description)
    }

    /// What is copied and what is protected.
    fn workspace(&self, node: &Node) -> Result<(Vec<InputSource>, Vec<InputSource>), Diagnostic> {
        let fields = self
            .fields(node, WORKSPACE_FIELDS)
            .map_err(|mistake| match &node.value {
                NodeValue::Text(path) => {
                    mistake.with_instead(format!("{{copy: [{}]}}", flow_word(&brief(path))))
                }
                _ => mistake,
            })?;
        let sources = |key| fields.read_or_default(key, |node| self.sources(node));
        Ok((sources("copy"), sources("protect")))
    }

    fn max_retries(&self, node: &Node) -> Result<u32, Diagnostic> {
        let asked = node.integer()?;
        let kept = asked.clamp(1, MAX_RETRIES_CEILING.into());
        let clamped = u32::try_from(kept).unwrap_or(MAX_RETRIES_CEILING);
        if asked != kept {
            self.warn_of_clamping(node, "max_retries", clamped.into());
        }
        Ok(clamped)
    }

    fn budget(&self, node: &Node) -> Result<(BudgetSpec, Option<SourceLocation>), Diagnostic> {
        let fields =
            self.fields(node, BUDGET_FIELDS)
                .map_err(|mistake| match amount_of_money(node) {
                    Some(usd) => mistake.with_instead(format!("{{usd: {usd}}}")),
                    None => mistake,
                })?;
        let budget = BudgetSpec {
            usd: fields.read("usd", amount),
            tokens: fields.read("tokens", |node| node.integer_in(0, u64::MAX.into())),
        };
        Ok((budget, fields.get("usd").map(|node| self.location(node))))
    }

    fn kept_snapshots(&self, node: &Node) -> Result<u32, Diagnostic> {
        let fields = self.fields(node, SNAPSHOT_FIELDS)?;
        Ok(fields.read_or("keep", DEFAULT_KEPT_SNAPSHOTS, count))
    }
}
