//! The files and folders that a spec names for the workspace: `workspace.copy`, `workspace.protect`, a check's `files`.

use std::path::{Component, Path};

use serde_json::{Value, json};

use super::field_rule::{FieldRule, list, mapping, nonempty_text, with};
use super::ignore_rules::exclude_pattern;
use super::model::InputSource;
use super::validator::{NodeFields, Validator};
use crate::source::diagnostic::Diagnostic;
use crate::source::node::{Node, NodeValue, brief};
use crate::workspace::safe_path::{SafePath, Violation};

/// The most files and folders in one list.
const MAX_SOURCES: usize = 1_000;

/// Paths without a name of their own: they end with `..`, or are `/`.
const NAMELESS: &str = r"(^|/)\.\.(/\.?)*$|^/+(\./+)*\.?$";

/// What `SafePath` refuses, except for bounds of length and rare characters.
const UNSAFE: &str = concat!(
    r"^/|(^|/)\.\.(/|$)|[\\\u0000-\u001f\u007f-\u009f]",
    r"|^(\.?/)*(-|[A-Za-z]:)|([^/]\.|\s)(/|$)|(^|/)\.[gG][iI][tT](/|$)"
);

/// Texts that mean the top of the workspace.
const TOP: &str = r"^\.?(/\.?)*$";

const FIELDS: &[FieldRule] = &[
    FieldRule::new(
        "from",
        nonempty_text,
        "A file or a folder, relative to the folder of the spec.",
    )
    .required()
    .examples(|| json!(["../src"])),
    FieldRule::new(
        "to",
        destination_form,
        "Where it is put in the workspace, default: its own name; `.` puts the contents of a folder at the top.",
    )
    .examples(|| json!(["src", "."])),
    FieldRule::new(
        "exclude",
        || list(nonempty_text()),
        "For a folder: what to leave out, in the syntax of .gitignore.",
    )
    .examples(|| json!([["*.csv", "data/"]])),
];

/// Form of a list of inputs.
pub(super) fn sources_form() -> Value {
    let named = with(
        nonempty_text(),
        json!({"not": {"pattern": format!(r"\u0000|{NAMELESS}")}}),
    );
    let nameless_needs_to = json!({
        "if": {"properties": {"from": {"type": "string", "pattern": NAMELESS}}},
        "then": {"required": ["to"]},
    });
    let placed = with(mapping(FIELDS), nameless_needs_to);
    let source = json!({"anyOf": [named, placed]});
    with(list(source), json!({"maxItems": MAX_SOURCES}))
}

fn destination_form() -> Value {
    with(nonempty_text(), json!({"not": {"pattern": UNSAFE}}))
}

/// Form of `safe_path`.
pub(super) fn safe_path_form() -> Value {
    let pattern = format!("{UNSAFE}|{TOP}");
    with(nonempty_text(), json!({"not": {"pattern": pattern}}))
}

impl Validator<'_> {
    pub(super) fn sources(&self, node: &Node) -> Result<Vec<InputSource>, Diagnostic> {
        let items = node.list_of_at_most(MAX_SOURCES, "files and folders")?;
        Ok(self.each(items, |item| self.source(item)))
    }

    fn source(&self, node: &Node) -> Result<InputSource, Diagnostic> {
        let NodeValue::Map(_) = node.value else {
            let from = self.existing(node)?;
            return Ok(InputSource {
                to: own_name(node, &from)?,
                from,
                written: node.text()?.to_owned(),
                exclude: Vec::new(),
                location: self.location(node),
            });
        };
        let fields = self.fields(node, FIELDS)?;
        let named = fields.required("from")?;
        let from = self.existing(named)?;
        Ok(InputSource {
            to: destination(&fields, named, &from)?,
            exclude: self.exclude(&fields, &from)?,
            from,
            written: named.text()?.to_owned(),
            location: self.location(node),
        })
    }

    fn exclude(&self, fields: &NodeFields<'_>, from: &Path) -> Result<Vec<String>, Diagnostic> {
        match fields.entry("exclude") {
            Some(entry) if !from.is_dir() => Err(Diagnostic::new(
                entry.key_span.clone(),
                "`exclude` needs a folder",
            )),
            Some(entry) => Ok(self.each(entry.value.list()?, pattern)),
            None => Ok(Vec::new()),
        }
    }
}

/// Where a source arrives; `None` is the top of the workspace.
fn destination(
    fields: &NodeFields<'_>,
    named: &Node,
    from: &Path,
) -> Result<Option<SafePath>, Diagnostic> {
    match fields.get("to") {
        Some(to) if !is_top(to.nonempty_text()?) => safe_path(to, to.text()?).map(Some),
        // A file cannot be the top itself, so there it keeps its name.
        Some(_) if from.is_dir() => Ok(None),
        _ => own_name(named, from),
    }
}

/// Where a source arrives without `to`: under its own name, and `.` at the top.
fn own_name(node: &Node, from: &Path) -> Result<Option<SafePath>, Diagnostic> {
    if from.is_dir() && is_top(node.text()?) {
        return Ok(None);
    }
    let name = Path::new(node.text()?).file_name();
    let name = name.and_then(|name| name.to_str()).ok_or_else(|| {
        node.mistake("this has no name of its own")
            .with_help("write {from: …, to: …}")
    })?;
    safe_path(node, name).map(Some)
}

fn is_top(text: &str) -> bool {
    let mut components = Path::new(text).components();
    !text.is_empty() && components.all(|component| component == Component::CurDir)
}

fn pattern(node: &Node) -> Result<String, Diagnostic> {
    let text = node.nonempty_text()?;
    exclude_pattern(text).map_err(|_| {
        node.mistake(format!("`{}` is not a pattern", brief(text)))
            .with_help("as in .gitignore: *.csv, data/, /only/here")
    })
}

/// A path below the workspace.
pub(super) fn safe_path(node: &Node, text: &str) -> Result<SafePath, Diagnostic> {
    SafePath::parse(text)
        .map_err(|Violation { what, rule }| node.mistake(format!("\"{what}\": {rule}")))
}
