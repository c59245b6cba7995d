//! A file to a `Spec`: bytes to text, the format by the name's ending, text to a tree, the tree to `validate.rs`.
//!
//! Everything that is wrong with the file is a spec error; nothing here is an I/O error of the root.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::model::Spec;
use super::validate::{MarkdownBody, validate};
use crate::error::Error;
use crate::source::code;
use crate::source::diagnostic::{Diagnostic, SourceFile, shown_path};
use crate::source::finding::{FindingLevel, FindingList};
use crate::source::front_matter::split_front_matter;
use crate::source::node::{Node, NodeValue};
use crate::source::text_file::{decode, load};
use crate::source::yaml::{parse_json, parse_yaml};

/// Reads and validates the spec in `path`, which is shown in messages as it was given.
///
/// `home` replaces `~` in `sandbox.read`.
pub(crate) fn read_spec(path: &Path, home: Option<&Path>) -> Result<Spec, Error> {
    let cannot_read = |error: io::Error| {
        let path = shown_path(path);
        Error::Spec(format!("{path}: cannot read the spec: {error}"))
    };
    let file = absolute(path).map_err(cannot_read)?;
    parse_spec(path, file, &load(path).map_err(cannot_read)?, home)
}

/// Validates the spec in the bytes of `file`, which is absolute and shown as `path`.
pub fn parse_spec(
    path: &Path,
    file: PathBuf,
    bytes: &[u8],
    home: Option<&Path>,
) -> Result<Spec, Error> {
    let source = Arc::new(decode(path, bytes)?);
    let syntax = |mistake| source.error(code::SYNTAX, &mistake);
    let (tree, markdown) = parse(path, &source.text).map_err(syntax)?;
    validate(source.clone(), file, home, &tree, markdown)
        .map_err(|mistakes| error(&source, &tree, mistakes))
}

/// The mistakes in the order of the text, each with the name of its field.
fn error(source: &SourceFile, tree: &Node, mut mistakes: Vec<Diagnostic>) -> Error {
    mistakes.sort_by_key(|mistake| mistake.span.start);
    let mut findings = FindingList::new(source);
    for mistake in mistakes {
        let named = match tree.field_at(mistake.span.start) {
            Some(field) if !field.is_empty() => Diagnostic {
                message: format!("`{field}`: {}", mistake.message),
                ..mistake
            },
            _ => mistake,
        };
        findings.add(FindingLevel::Error, code::FIELD, &named);
    }
    Error::Findings(findings.into_vec())
}

fn parse(path: &Path, text: &str) -> Result<(Node, Option<MarkdownBody>), Diagnostic> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("json") => Ok((parse_json(text)?, None)),
        Some("md" | "markdown") => parse_markdown(path, text),
        _ => Ok((parse_yaml(text)?, None)),
    }
}

fn parse_markdown(path: &Path, text: &str) -> Result<(Node, Option<MarkdownBody>), Diagnostic> {
    let (front_matter, description) = split_front_matter(text)?;
    let mut tree = parse_yaml(front_matter)?;
    if tree.value == NodeValue::Null {
        tree.value = NodeValue::Map(Vec::new());
    }
    if description.trim().is_empty() {
        let end = front_matter.len();
        let message = "there is no text that describes what to build";
        return Err(Diagnostic::new(end..end, message));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let body = MarkdownBody {
        name: name.into_owned(),
        description: description.to_owned(),
    };
    Ok((tree, Some(body)))
}
