//! A file to a `Spec`: bytes to text, the format by the name's ending, text to a tree, the tree to `validate.rs`.
//!
//! Everything that is wrong with the file is a spec error; nothing here is an I/O error of the root.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use super::examples::example_of;
use super::model::Spec;
use super::setting::{SettingPlaces, SpecSetting};
use super::validate::{MarkdownBody, validate};
use crate::error::Error;
use crate::source::code;
use crate::source::diagnostic::{Diagnostic, SourceFile, shown_path};
use crate::source::finding::{Finding, FindingLevel, FindingList};
use crate::source::front_matter::split_front_matter;
use crate::source::node::{Node, NodeValue};
use crate::source::text_file::{decode, load};
use crate::source::yaml::{ParsedText, parse_json, parse_yaml};

/// Reads and validates the spec in `path`, which is shown in messages as it was given.
///
/// `home` replaces `~` in `sandbox.read`; `settings` replace fields of the file.
pub(crate) fn read_spec(
    path: &Path,
    home: Option<&Path>,
    settings: &[SpecSetting],
) -> Result<Spec, Error> {
    let cannot_read = |error: io::Error| {
        let path = shown_path(path);
        Error::Spec(format!("{path}: cannot read the spec: {error}"))
    };
    let file = absolute(path).map_err(cannot_read)?;
    let bytes = load(path).map_err(cannot_read)?;
    parse_with_settings((path, file), &bytes, home, settings)
}

/// Validates the spec in the bytes of `file`, which is absolute and shown as `path`.
pub fn parse_spec(
    path: &Path,
    file: PathBuf,
    bytes: &[u8],
    home: Option<&Path>,
) -> Result<Spec, Error> {
    parse_with_settings((path, file), bytes, home, &[])
}

fn parse_with_settings(
    (path, file): (&Path, PathBuf),
    bytes: &[u8],
    home: Option<&Path>,
    settings: &[SpecSetting],
) -> Result<Spec, Error> {
    let source = Arc::new(decode(path, bytes)?);
    let (mut parsed, markdown) = parse(path, &source.text);
    let places = SettingPlaces::behind(&source.text);
    let found = |parsed: &ParsedText, mistakes: Vec<Diagnostic>| {
        let is_set = |mistake: &Diagnostic| places.setting(settings, &mistake.span).is_some();
        let (of_settings, of_file) = mistakes.into_iter().partition(is_set);
        let mut findings = findings(&source, parsed, of_file);
        let of_settings: Vec<Diagnostic> = of_settings;
        let of_settings = of_settings.iter();
        findings.extend(of_settings.filter_map(|mistake| {
            let setting = places.setting(settings, &mistake.span)?;
            Some(finding_of_setting(path, setting, mistake))
        }));
        Error::Findings(findings)
    };
    let Some(tree) = &mut parsed.tree else {
        return Err(found(&parsed, Vec::new()));
    };
    let misplaced = places.apply(tree, settings);
    match validate(source.clone(), file, home, tree, markdown) {
        Ok(spec) if parsed.mistakes.is_empty() && misplaced.is_empty() => Ok(spec),
        result => {
            let mistakes = result.err().unwrap_or_default();
            Err(found(&parsed, [misplaced, mistakes].concat()))
        }
    }
}

fn finding_of_setting(path: &Path, setting: &SpecSetting, mistake: &Diagnostic) -> Finding {
    let SpecSetting { path: field, value } = setting;
    let message = format!("`{field}`, set to {value}: {}", mistake.message);
    let file = path.to_string_lossy();
    let finding = Finding::of_file(&file, FindingLevel::Error, code::FIELD, &message);
    match &mistake.help {
        Some(help) => finding.with_help(help),
        None => finding,
    }
}

/// The mistakes in the order of the text, those of fields with the name of the field and an example.
fn findings(source: &SourceFile, parsed: &ParsedText, mistakes: Vec<Diagnostic>) -> Vec<Finding> {
    let syntax = parsed.mistakes.iter().cloned();
    let fields = mistakes
        .into_iter()
        .filter(|mistake| parsed.is_original(&mistake.span))
        .map(|mistake| (code::FIELD, in_field(parsed.tree.as_ref(), mistake)));
    let mut all: Vec<_> = syntax
        .map(|mistake| (code::SYNTAX, mistake))
        .chain(fields)
        .collect();
    all.sort_by_key(|(_, mistake)| mistake.span.start);
    let mut findings = FindingList::new(source);
    for (code, mistake) in all {
        findings.add(FindingLevel::Error, code, &mistake);
    }
    findings.into_vec()
}

fn in_field(tree: Option<&Node>, mistake: Diagnostic) -> Diagnostic {
    let field = tree.and_then(|tree| tree.field_at(mistake.span.start));
    let Some(field) = field.filter(|field| !field.is_empty()) else {
        return mistake;
    };
    let help = mistake
        .help
        .or_else(|| example_of(&field).map(|example| format!("for example `{example}`")));
    Diagnostic {
        message: format!("`{field}`: {}", mistake.message),
        help,
        ..mistake
    }
}

fn parse(path: &Path, text: &str) -> (ParsedText, Option<MarkdownBody>) {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("json") => (parse_json(text), None),
        Some("md" | "markdown") => parse_markdown(path, text),
        _ => (parse_yaml(text), None),
    }
}

fn parse_markdown(path: &Path, text: &str) -> (ParsedText, Option<MarkdownBody>) {
    let (front_matter, description) = match split_front_matter(text) {
        Ok(parts) => parts,
        Err(mistake) => {
            return (ParsedText::unreadable(mistake), None);
        }
    };
    let mut parsed = parse_yaml(front_matter);
    if let Some(tree) = parsed
        .tree
        .as_mut()
        .filter(|tree| tree.value == NodeValue::Null)
    {
        tree.value = NodeValue::Map(Vec::new());
    }
    if description.trim().is_empty() {
        let end = front_matter.len();
        let message = "there is no text that describes what to build";
        let help = "write what to build below the front matter";
        parsed
            .mistakes
            .push(Diagnostic::new(end..end, message).with_help(help));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let body = MarkdownBody {
        name: name.into_owned(),
        description: description.to_owned(),
    };
    (parsed, Some(body))
}
