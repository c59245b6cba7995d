//! A file to a `Spec`: bytes to text, the format by the name's ending, text to a tree, the tree to `validate.rs`.
//!
//! Everything that is wrong with the file is a spec error; nothing here is an I/O error of the root.

use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use serde_json::Value;

use super::examples::example_of;
use super::model::Spec;
use super::setting::{SettingPlaces, SpecSetting, yaml_value};
use super::validate::{MarkdownBody, validate};
use super::validator::os_error_text;
use crate::error::Error;
use crate::source::code;
use crate::source::diagnostic::{Diagnostic, SourceFile, shown_path};
use crate::source::finding::{Finding, FindingLevel, FindingList};
use crate::source::front_matter::split_front_matter;
use crate::source::node::{Node, NodeValue};
use crate::source::text_file::{decode, load};
use crate::source::yaml::{ParsedText, parse_json, parse_yaml};

/// How many names of a folder are compared with that of a missing spec.
const MAX_NAMES: usize = 10_000;
/// How similar the name of another spec is to a mistyped one.
const SIMILAR: f64 = 0.8;

/// Reads and validates the spec in `path`, which is shown in messages as it was given.
///
/// `home` replaces `~` in `sandbox.read`; `settings` replace fields of the file.
pub(crate) fn read_spec(
    path: &Path,
    home: Option<&Path>,
    settings: &[SpecSetting],
) -> Result<Spec, Error> {
    let cannot_read = |error: io::Error| unreadable(path, &error);
    let file = absolute(path).map_err(cannot_read)?;
    let bytes = load(path).map_err(cannot_read)?;
    parse_with_settings((path, file), &bytes, home, settings)
}

/// The error of a file that cannot be read, with the one that was most likely meant.
fn unreadable(path: &Path, error: &io::Error) -> Error {
    let message = format!("cannot read the spec: {}", os_error_text(error));
    let file = path.to_string_lossy();
    let finding = Finding::of_file(&file, FindingLevel::Error, code::INPUT, &message);
    let meant = (error.kind() == io::ErrorKind::NotFound)
        .then(|| similar_file(path))
        .flatten();
    let help = match meant {
        Some(meant) => format!("did you mean {}?", shown_path(&meant)),
        None => "a spec is a .yaml, .yml, .json or .md file, mostly in specs/".to_owned(),
    };
    Error::Findings(vec![finding.with_help(&help)])
}

/// A spec with a similar name in the same folder, or one with this name in its `specs/`.
fn similar_file(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent()?;
    let in_specs = folder.join("specs").join(name);
    if in_specs.is_file() {
        return Some(in_specs);
    }
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let entries = here.read_dir().ok()?.flatten().take(MAX_NAMES);
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_spec_name(name))
        .collect();
    let closeness = |other: &&String| strsim::jaro_winkler(name, other);
    let closest = names
        .iter()
        .max_by(|a, b| closeness(a).total_cmp(&closeness(b)))?;
    (SIMILAR <= closeness(&closest)).then(|| folder.join(closest))
}

fn is_spec_name(name: &str) -> bool {
    let extension = Path::new(name)
        .extension()
        .and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json" | "md"))
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
    match mistake.help_text() {
        Some(help) => finding.with_help(&help),
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
    let is_json = source
        .path
        .extension()
        .is_some_and(|extension| extension == "json");
    let mut findings = FindingList::new(source);
    for (code, mistake) in all {
        let mistake = match is_json && code == code::FIELD {
            true => for_json(mistake),
            false => mistake,
        };
        findings.add(FindingLevel::Error, code, &mistake);
    }
    findings.into_vec()
}

fn in_field(tree: Option<&Node>, mistake: Diagnostic) -> Diagnostic {
    let field = tree.and_then(|tree| tree.field_at(mistake.span.start));
    let Some(field) = field.filter(|field| !field.is_empty()) else {
        return mistake;
    };
    let example = || example_of(&field).map(|example| format!("for example `{example}`"));
    let help = match mistake.instead {
        None => mistake.help.or_else(example),
        Some(_) => mistake.help,
    };
    // An item of a list has no key.
    let key = field.rsplit('.').next().filter(|key| !key.ends_with(']'));
    let instead = mistake.instead.map(|value| match key {
        Some(key) => format!("{key}: {value}"),
        None => value,
    });
    Diagnostic {
        message: format!("`{field}`: {}", mistake.message),
        help,
        instead,
        ..mistake
    }
}

/// The help with its YAML examples as JSON.
fn for_json(mistake: Diagnostic) -> Diagnostic {
    let help = mistake.help_text().map(|help| {
        let parts = help.split('`').enumerate();
        let parts = parts.map(|(index, part)| match index % 2 {
            1 => json_example(part).unwrap_or_else(|| part.to_owned()),
            _ => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join("`")
    });
    Diagnostic {
        help,
        instead: None,
        ..mistake
    }
}

/// `usd: 1` as `"usd": 1`, `- name: a` as `[{"name": "a"}]`.
fn json_example(example: &str) -> Option<String> {
    let spaced = |value: &Value| {
        value
            .to_string()
            .replace("\":", "\": ")
            .replace(",\"", ", \"")
    };
    match yaml_value(example).ok()? {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| format!("\"{key}\": {}", spaced(value)));
            Some(fields.collect::<Vec<_>>().join(", "))
        }
        list @ Value::Array(_) => Some(spaced(&list)),
        _ => None,
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
