//! A file to a `Spec`: bytes to text, the format by the name's ending, text to a tree, the tree to `validate.rs`.
//!
//! The file may be anything that a path can lead to, so it is opened without waiting, must be a regular file, and is
//! read up to a bound. Everything that is wrong with it is a spec error; nothing here is an I/O error of the root.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::diagnostic::{Diagnostic, shown_path};
use super::model::Spec;
use super::node::{Node, NodeValue};
use super::text_file::{decode, load};
use super::validate::{MarkdownBody, SpecValidator};
use super::{json, yaml};
use crate::error::Error;

/// Returns the validated spec in `path`, which is shown in messages as it was given.
///
/// `home` is what `~/` stands for in `sandbox.read`.
pub fn read_spec(path: &Path, home: Option<&Path>) -> Result<Spec, Error> {
    let refuse = |error: io::Error| {
        Error::Spec(format!(
            "{}: cannot read the spec: {error}",
            shown_path(path)
        ))
    };
    let file = absolute(path).map_err(refuse)?;
    parse_spec(path, file, &load(path).map_err(refuse)?, home)
}

/// Returns the validated spec in the bytes of a file that is shown as `path` and lies at `file`.
pub fn parse_spec(
    path: &Path,
    file: PathBuf,
    bytes: &[u8],
    home: Option<&Path>,
) -> Result<Spec, Error> {
    let source = Arc::new(decode(path, bytes)?);
    let (tree, markdown) = parse(path, &source.text).map_err(|refusal| source.error(&refusal))?;
    let mut validator = SpecValidator::new(source.clone(), &file, home);
    let spec = validator
        .spec(&tree, markdown)
        .map_err(|refusal| source.error(&naming_its_field(&tree, refusal)))?;
    Ok(Spec {
        warnings: validator.warnings,
        file,
        ..spec
    })
}

/// Says of a refusal which field it speaks of.
fn naming_its_field(tree: &Node, refusal: Diagnostic) -> Diagnostic {
    match tree
        .field_at(refusal.span.start)
        .filter(|field| !field.is_empty())
    {
        Some(field) => Diagnostic {
            message: format!("`{field}`: {}", refusal.message),
            ..refusal
        },
        None => refusal,
    }
}

fn parse(path: &Path, text: &str) -> Result<(Node, Option<MarkdownBody>), Diagnostic> {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    match ending.to_str() {
        Some("json") => Ok((json::parse(text)?, None)),
        Some("md" | "markdown") => parse_markdown(path, text),
        _ => Ok((yaml::parse(text)?, None)),
    }
}

fn parse_markdown(path: &Path, text: &str) -> Result<(Node, Option<MarkdownBody>), Diagnostic> {
    let (front, description) = split_front_matter(text)?;
    // The opening `---` is a document start in YAML, so it stays, and with it every position is that of the file.
    let tree = match yaml::parse(front)? {
        Node {
            span,
            value: NodeValue::Null,
        } => Node {
            span,
            value: NodeValue::Map(Vec::new()),
        },
        tree => tree,
    };
    if description.trim().is_empty() {
        return Err(Diagnostic::new(
            front.len()..front.len(),
            "there is no text that says what to build",
        ));
    }
    let name = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok((
        tree,
        Some(MarkdownBody {
            name,
            description: description.to_owned(),
        }),
    ))
}

/// Returns the front matter with its opening line, and the text after its closing line.
fn split_front_matter(text: &str) -> Result<(&str, &str), Diagnostic> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| is_fence(line)) else {
        return Ok(("", text));
    };
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok((&text[..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err(Diagnostic::new(
        0..3,
        "the front matter is not closed by a line `---`",
    ))
}
