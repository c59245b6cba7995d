//! A file to a `Spec`: bytes to text, the format by the name's ending, text to a tree, the tree to `validate.rs`.
//!
//! The file may be anything that a path can lead to, so it is opened without waiting, must be a regular file, and is
//! read up to a bound. Everything that is wrong with it is a spec error; nothing here is an I/O error of the root.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};

use rustix::fs::OFlags;

use super::Spec;
use super::diagnostic::{Diagnostic, SourceText, shown_path};
use super::node::{Node, NodeValue};
use super::validate::{MarkdownBody, SpecValidator};
use super::{json, yaml};
use crate::error::Error;

/// The largest spec, in bytes.
pub const MAX_SPEC_BYTES: u64 = 1 << 20;

/// Returns the validated spec in `path`, which is shown in messages as it was given.
///
/// `home` is what `~/` stands for in `sandbox.read`.
pub fn read(path: &Path, home: Option<&Path>) -> Result<Spec, Error> {
    let refuse = |error: io::Error| {
        Error::Spec(format!(
            "{}: cannot read the spec: {error}",
            shown_path(path)
        ))
    };
    let file = absolute(path).map_err(refuse)?;
    judge(path, file, &load(path).map_err(refuse)?, home)
}

/// Returns the validated spec in the bytes of a file that is shown as `path` and lies at `file`.
pub fn judge(path: &Path, file: PathBuf, bytes: &[u8], home: Option<&Path>) -> Result<Spec, Error> {
    let text = decode(path, bytes)?;
    let document = SourceText { file: path, text };
    let (tree, markdown) = parse(path, text).map_err(|refusal| document.error(&refusal))?;
    let mut validator = SpecValidator::new(document, &file, home);
    let spec = validator
        .spec(&tree, markdown)
        .map_err(|refusal| document.error(&naming_its_field(&tree, refusal)))?;
    Ok(Spec {
        warnings: validator.warnings,
        file,
        ..spec
    })
}

/// Says of a refusal which field it speaks of.
fn naming_its_field(tree: &Node, refusal: Diagnostic) -> Diagnostic {
    match tree.field_at(refusal.at).filter(|field| !field.is_empty()) {
        Some(field) => Diagnostic {
            what: format!("`{field}`: {}", refusal.what),
            ..refusal
        },
        None => refusal,
    }
}

/// Opens a regular file for reading, links followed; anything else is refused without waiting for it.
pub(in crate::build) fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let regular = |metadata: fs::Metadata| match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    // Asked before the opening too, since to open a device may do something.
    regular(fs::metadata(path)?)?;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// Reads a file of at most `MAX_SPEC_BYTES`.
pub(super) fn load(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path, OFlags::empty())?
        .take(MAX_SPEC_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if MAX_SPEC_BYTES < bytes.len() as u64 {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Returns the bytes as text without a byte order mark, or the error that shows the first byte that is none.
pub(super) fn decode<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let refusal = match str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => return Ok(text),
        Ok(text) => Diagnostic::new(
            text.find('\0').unwrap_or(0),
            "a NUL character; this is no text file",
        ),
        Err(error) => Diagnostic::new(error.valid_up_to(), "this byte is not UTF-8"),
    };
    Err(SourceText {
        file: path,
        text: &String::from_utf8_lossy(bytes),
    }
    .error(&refusal))
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
            at,
            value: NodeValue::Null,
        } => Node {
            at,
            value: NodeValue::Map(Vec::new()),
        },
        tree => tree,
    };
    if description.trim().is_empty() {
        return Err(Diagnostic::new(
            front.len(),
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
        0,
        "the front matter is not closed by a line `---`",
    ))
}
