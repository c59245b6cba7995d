//! What every part of a spec needs to be validated: the mistakes so far, the fields of a mapping, paths and locations.
//!
//! A mistake in a field is recorded and the field gets its default, so that the other fields are validated too. The
//! result counts only if no mistake was recorded.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::examples::{example_of_key, parents_of};
use super::field_rule::{FieldRule, integer_in};
use crate::source::code;
use crate::source::diagnostic::{Diagnostic, SourceFile, shown_path};
use crate::source::finding::Finding;
use crate::source::location::SourceLocation;
use crate::source::node::{Node, NodeEntry, brief, similar_name, unknown_name};

/// The longest time that a spec can set; adding it to a clock cannot overflow.
const MAX_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

pub(super) struct Validator<'a> {
    source: Arc<SourceFile>,
    folder: PathBuf,
    pub home: Option<&'a Path>,
    pub mistakes: RefCell<Vec<Diagnostic>>,
    pub warnings: RefCell<Vec<Finding>>,
}

impl<'a> Validator<'a> {
    /// A validator for the text of `file`, which is absolute. `home` replaces `~` in `sandbox.read`.
    pub(super) fn new(
        source: Arc<SourceFile>,
        file: &Path,
        home: Option<&'a Path>,
    ) -> Validator<'a> {
        Validator {
            source,
            folder: file.parent().unwrap_or(file).to_owned(),
            home,
            mistakes: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// The fields of a mapping; those not among the `allowed` ones are recorded as mistakes.
    pub(super) fn fields<'n>(
        &'n self,
        node: &'n Node,
        allowed: &[FieldRule],
    ) -> Result<NodeFields<'n>, Diagnostic> {
        let allowed: Vec<&str> = allowed.iter().map(|field| field.name).collect();
        let entries = node.entries()?;
        let unknown = entries
            .iter()
            .filter(|entry| !allowed.contains(&entry.key.as_str()));
        let mistakes = unknown.clone().map(|entry| unknown_field(entry, &allowed));
        self.mistakes.borrow_mut().extend(mistakes);
        Ok(NodeFields {
            span: &node.span,
            entries,
            misspelled: unknown
                .filter_map(|entry| similar_name(&entry.key, &allowed).map(str::to_owned))
                .collect(),
            mistakes: &self.mistakes,
        })
    }

    /// Reads every item, and records the mistakes of those that cannot be read.
    pub(super) fn each<'n, N, T>(
        &self,
        items: &'n [N],
        read: impl Fn(&'n N) -> Result<T, Diagnostic>,
    ) -> Vec<T> {
        let record = |mistake| self.record(mistake);
        items
            .iter()
            .filter_map(|item| read(item).map_err(record).ok())
            .collect()
    }

    pub(super) fn record(&self, mistake: Diagnostic) {
        self.mistakes.borrow_mut().push(mistake);
    }

    pub(super) fn mistake_count(&self) -> usize {
        self.mistakes.borrow().len()
    }

    pub(super) fn location(&self, node: &Node) -> SourceLocation {
        SourceLocation::new(self.source.clone(), node.span.clone())
    }

    /// Warns that an out-of-range number was replaced.
    pub(super) fn warn_of_clamping(&self, node: &Node, field: &str, kept: u64) {
        let found = node.written();
        let message = format!("`{field}` is out of range and clamped to {kept}, found {found}");
        let warning = self.location(node).warning(code::CLAMPED, message);
        self.warnings.borrow_mut().push(warning);
    }

    /// The existing path that a text names, absolute.
    pub(super) fn existing(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let written = node.nonempty_text()?;
        let path = self.folder.join(written);
        let Err(error) = path.metadata() else {
            return Ok(path);
        };
        let why = os_error_text(&error);
        let folder = shown_path(&self.folder);
        let mistake = node.mistake(format!("cannot read {}: {why}", brief(written)));
        let from_parent = Path::new("..").join(written);
        let rule = "paths are relative to the folder of the spec";
        Err(match error.kind() {
            io::ErrorKind::NotFound if written.starts_with("~/") => mistake.with_help(
                "`~` is not replaced here: write the whole path, or one relative to the spec",
            ),
            io::ErrorKind::NotFound if self.folder.join(&from_parent).exists() => {
                mistake.with_help(format!("{rule}: `{}`", shown_path(&from_parent)))
            }
            _ if Path::new(written).is_absolute() => mistake.with_help("write a path that exists"),
            _ => mistake.with_help(format!("{rule}, {folder}")),
        })
    }

    /// The existing folder that a text names, absolute.
    pub(super) fn existing_folder(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        match self.existing(node)? {
            path if path.is_dir() => Ok(path),
            path => Err(node.mistake(format!("{} is not a folder", shown_path(&path)))),
        }
    }
}

/// The fields of a mapping.
pub(super) struct NodeFields<'a> {
    span: &'a Range<usize>,
    entries: &'a [NodeEntry],
    /// The fields that unknown names most likely mean.
    misspelled: Vec<String>,
    mistakes: &'a RefCell<Vec<Diagnostic>>,
}

impl<'a> NodeFields<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'a NodeEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Reads a field; `None` where it is missing or, with a recorded mistake, cannot be read.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Diagnostic>,
    ) -> Option<T> {
        self.recorded(read(self.get(key)?))
    }

    /// Reads a field, or takes the default.
    pub(super) fn read_or<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&'a Node) -> Result<T, Diagnostic>,
    ) -> T {
        self.read(key, read).unwrap_or(default)
    }

    /// Reads a field, or takes the default of its type.
    pub(super) fn read_or_default<T: Default>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Diagnostic>,
    ) -> T {
        self.read(key, read).unwrap_or_default()
    }

    /// Reads a field that must be there; otherwise a mistake is recorded, unless one was for its misspelled name.
    pub(super) fn require<T>(
        &self,
        key: &str,
        read: impl FnOnce(&'a Node) -> Result<T, Diagnostic>,
    ) -> Option<T> {
        if self.get(key).is_none() && self.misspelled.iter().any(|name| name == key) {
            return None;
        }
        self.recorded(self.required(key).and_then(read))
    }

    /// The value of a field that must be there.
    pub(super) fn required(&self, key: &str) -> Result<&'a Node, Diagnostic> {
        let missing = || {
            let mistake = Diagnostic::new(self.span.clone(), format!("missing field `{key}`"));
            match example_of_key(key) {
                Some(example) => mistake.with_help(format!("for example `{example}`")),
                None => mistake,
            }
        };
        self.get(key).ok_or_else(missing)
    }

    fn recorded<T>(&self, result: Result<T, Diagnostic>) -> Option<T> {
        let record = |mistake| self.mistakes.borrow_mut().push(mistake);
        result.map_err(record).ok()
    }
}

/// The mistake of a field that is not among the allowed ones, with where it belongs.
fn unknown_field(entry: &NodeEntry, allowed: &[&str]) -> Diagnostic {
    let mistake = unknown_name("field", &entry.key_span, &entry.key, allowed);
    let parents: Vec<String> = match similar_name(&entry.key, allowed) {
        Some(_) => Vec::new(),
        None => parents_of(&entry.key)
            .map(|parent| format!("`{parent}`"))
            .collect(),
    };
    match (parents.as_slice(), &mistake.help) {
        ([], _) | (_, None) => mistake,
        (parents, Some(help)) => {
            let help = format!("it is a field of {}; {help}", parents.join(" and of "));
            mistake.with_help(help)
        }
    }
}

/// What the system says, without its number.
pub(super) fn os_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

/// The path if it exists.
pub(super) fn readable(node: &Node, path: PathBuf) -> Result<PathBuf, Diagnostic> {
    match path.metadata() {
        Ok(_) => Ok(path),
        Err(error) => Err(node.mistake(format!("cannot read {}: {error}", shown_path(&path)))),
    }
}

/// A number of seconds, integer or not.
pub(super) fn seconds(node: &Node) -> Result<Duration, Diagnostic> {
    let number = node.number().map_err(|mistake| match duration(node) {
        Some(seconds) => mistake
            .with_help("in seconds")
            .with_instead(seconds.to_string()),
        None => mistake,
    })?;
    match number {
        number if number <= 0.0 => Err(node.mistake(format!(
            "must be more than 0 seconds, found {}",
            node.written()
        ))),
        number if MAX_SECONDS < number => Err(node.mistake(format!(
            "must be at most a year of seconds, found {}",
            node.written()
        ))),
        number => Ok(Duration::from_secs_f64(number).max(Duration::from_millis(1))),
    }
}

/// Form of `seconds`.
pub(super) fn seconds_form() -> Value {
    json!({"type": "number", "exclusiveMinimum": 0, "maximum": MAX_SECONDS})
}

/// The seconds of a text such as `5m`.
fn duration(node: &Node) -> Option<u64> {
    let text = node.text().ok()?.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().ok()?;
    let seconds = match unit.trim() {
        "s" | "sec" | "seconds" => 1,
        "m" | "min" | "minutes" => 60,
        "h" | "hours" => 3600,
        _ => return None,
    };
    number.checked_mul(seconds)
}

/// An amount of money: finite and not negative.
pub(super) fn amount(node: &Node) -> Result<f64, Diagnostic> {
    match node.number()? {
        number if number < 0.0 => {
            Err(node.mistake(format!("must not be negative, found {}", node.written())))
        }
        number => Ok(number),
    }
}

/// Form of `amount`.
pub(super) fn amount_form() -> Value {
    json!({"type": "number", "minimum": 0})
}

/// An integer from 0.
pub(super) fn count(node: &Node) -> Result<u32, Diagnostic> {
    node.integer_in(0, u32::MAX.into())
}

/// Form of `count`.
pub(super) fn count_form() -> Value {
    integer_in(0, u32::MAX.into())
}

/// An integer from 1.
pub(super) fn positive(node: &Node) -> Result<u32, Diagnostic> {
    node.integer_in(1, u32::MAX.into())
}

/// Form of `positive`.
pub(super) fn positive_form() -> Value {
    integer_in(1, u32::MAX.into())
}
