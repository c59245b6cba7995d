//! A tree to a `Spec`: which fields there are, what they may be, what they are when nobody says.
//!
//! Two numbers are clamped with a warning, `max_retries` and a check's `timeout`; all else that is out of range is
//! refused at its place. Paths are made absolute against the spec's folder, and must lead somewhere.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::diagnostic::{Diagnostic, SourceFile, SourceLocation, shown_path};
use super::exclusions;
use super::model::{
    BudgetSpec, CHECK_TIMEOUT_CEILING, CheckSpec, GeneratorSpec, InputSource, MAX_RETRIES_CEILING,
    OnTimeout, SandboxSpec, Spec, WritableDir,
};
use super::node::{Node, NodeEntry, NodeFields, NodeValue, brief};
use crate::workspace::safe_path::{SafePath, Violation};

const FIELDS: [&str; 12] = [
    "name",
    "description",
    "workspace",
    "checks",
    "on_timeout",
    "max_retries",
    "generator",
    "budget",
    "sandbox",
    "baseline",
    "stuck_after",
    "snapshots",
];
const CHECK_FIELDS: [&str; 9] = [
    "name",
    "command",
    "timeout",
    "env",
    "min_tests",
    "rerun",
    "hidden",
    "files",
    "writable",
];
const MAX_RERUN: i128 = 3;
const ON_TIMEOUT: [(&str, OnTimeout); 2] = [("fail", OnTimeout::Fail), ("patch", OnTimeout::Patch)];

const DEFAULT_CHECK_TIMEOUT: Duration = Duration::from_secs(300);
const DEFAULT_MAX_RETRIES: u32 = 5;
const DEFAULT_STUCK_AFTER: u32 = 4;
const DEFAULT_KEPT_SNAPSHOTS: u32 = 200;
/// The longest time that can be asked for; clocks can be moved by it without harm.
const MAX_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// What tells a shell line from the name of a program, beside white space.
const SHELL_SIGNS: &str = "&|;<>";
const SHELL_HINT: &str = "a list of words, not a shell line; for a shell: `[sh, -c, \"…\"]`";

const MAX_CHECKS: usize = 1_000;
/// The most files and folders in a list.
const MAX_SOURCES: usize = 1_000;

/// What a Markdown spec says outside its front matter.
pub struct MarkdownBody {
    pub name: String,
    pub description: String,
}

/// Walks one spec's tree; collects warnings.
pub struct SpecValidator<'a> {
    source: Arc<SourceFile>,
    folder: PathBuf,
    pub(super) home: Option<&'a Path>,
    pub warnings: Vec<String>,
}

impl<'a> SpecValidator<'a> {
    /// Returns a validator for the text of `file`, which is absolute.
    pub fn new(source: Arc<SourceFile>, file: &Path, home: Option<&'a Path>) -> SpecValidator<'a> {
        let folder = file.parent().unwrap_or(file).to_owned();
        SpecValidator {
            source,
            folder,
            home,
            warnings: Vec::new(),
        }
    }

    /// Returns the spec, without what only the file itself knows (`file`, `warnings`).
    pub fn spec(
        &mut self,
        tree: &Node,
        markdown: Option<MarkdownBody>,
    ) -> Result<Spec, Diagnostic> {
        if tree.value == NodeValue::Null {
            return Err(tree
                .refuse("the spec is empty")
                .with_help("`name` and `description` are required"));
        }
        let fields = tree.fields(&FIELDS)?;
        let (name, description) = self.title(&fields, markdown)?;
        let (copy, protect) = fields
            .optional("workspace")
            .map_or(Ok(Default::default()), |node| self.workspace(node))?;
        let budget = fields.optional("budget");
        Ok(Spec {
            name,
            description,
            copy,
            protect,
            checks: self.checks(tree, fields.optional("checks"))?,
            on_timeout: fields
                .optional("on_timeout")
                .map_or(Ok(OnTimeout::Fail), |node| node.choice("word", &ON_TIMEOUT))?,
            max_retries: fields
                .optional("max_retries")
                .map_or(Ok(DEFAULT_MAX_RETRIES), |node| self.max_retries(node))?,
            generator: fields
                .optional("generator")
                .map_or_else(|| Ok(GeneratorSpec::default()), |node| self.generator(node))?,
            budget: budget.map_or(Ok(BudgetSpec::default()), budget_of)?,
            usd_location: budget.and_then(usd_of).map(|node| self.location(node)),
            sandbox: fields
                .optional("sandbox")
                .map_or(Ok(SandboxSpec::default()), |node| self.sandbox(node))?,
            baseline: fields
                .optional("baseline")
                .map_or(Ok(true), Node::boolean)?,
            stuck_after: fields
                .optional("stuck_after")
                .map_or(Ok(DEFAULT_STUCK_AFTER), |node| {
                    node.whole_in(0, u32::MAX.into())
                })?,
            kept_snapshots: fields
                .optional("snapshots")
                .map_or(Ok(DEFAULT_KEPT_SNAPSHOTS), kept_snapshots)?,
            file: PathBuf::new(),
            warnings: Vec::new(),
        })
    }

    fn title(
        &self,
        fields: &NodeFields<'_>,
        markdown: Option<MarkdownBody>,
    ) -> Result<(String, String), Diagnostic> {
        let Some(markdown) = markdown else {
            let (name, description) = (fields.required("name")?, fields.required("description")?);
            return Ok((
                name.some_text()?.to_owned(),
                description.some_text()?.to_owned(),
            ));
        };
        if let Some(entry) = fields.entry("description") {
            return Err(Diagnostic::new(
                entry.key_span.clone(),
                "in Markdown the text below the front matter is the description",
            ));
        }
        let name = fields
            .optional("name")
            .map_or(Ok(markdown.name.as_str()), Node::some_text)?;
        Ok((name.to_owned(), markdown.description))
    }

    fn workspace(
        &mut self,
        node: &Node,
    ) -> Result<(Vec<InputSource>, Vec<InputSource>), Diagnostic> {
        let fields = node.fields(&["copy", "protect"])?;
        let mut sources = |key| {
            fields
                .optional(key)
                .map_or(Ok(Vec::new()), |node| self.sources(node))
        };
        Ok((sources("copy")?, sources("protect")?))
    }

    fn sources(&mut self, node: &Node) -> Result<Vec<InputSource>, Diagnostic> {
        match node.list()? {
            items if MAX_SOURCES < items.len() => Err(node.refuse(format!(
                "there are more than {MAX_SOURCES} files and folders"
            ))),
            items => items.iter().map(|item| self.source(item)).collect(),
        }
    }

    fn source(&mut self, node: &Node) -> Result<InputSource, Diagnostic> {
        let NodeValue::Map(_) = node.value else {
            let from = self.existing(node)?;
            let written = node.text()?.to_owned();
            let to = own_name(node, &from)?;
            return Ok(InputSource {
                from,
                written,
                to,
                exclude: Vec::new(),
                location: self.location(node),
            });
        };
        let fields = node.fields(&["from", "to", "exclude"])?;
        let named = fields.required("from")?;
        let from = self.existing(named)?;
        let to = match fields.optional("to") {
            Some(to) if !is_top(to.some_text()?) => Some(safe(to, to.some_text()?)?),
            // A file cannot be the top itself, so there it keeps its name.
            Some(_) if from.is_dir() => None,
            _ => own_name(named, &from)?,
        };
        let exclude = match fields.entry("exclude") {
            Some(entry) if !from.is_dir() => {
                return Err(Diagnostic::new(
                    entry.key_span.clone(),
                    "`exclude` needs a folder",
                ));
            }
            Some(entry) => entry
                .value
                .list()?
                .iter()
                .map(excluded)
                .collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(InputSource {
            from,
            written: named.text()?.to_owned(),
            to,
            exclude,
            location: self.location(node),
        })
    }

    fn checks(&mut self, spec: &Node, node: Option<&Node>) -> Result<Vec<CheckSpec>, Diagnostic> {
        let Some(node) = node else {
            return Ok(vec![default_check(self.location(spec))]);
        };
        match node.list()? {
            [] => Err(node
                .refuse("there must be at least one check")
                .with_help("without `checks`, pytest is the one check")),
            items if MAX_CHECKS < items.len() => {
                Err(node.refuse(format!("there are more than {MAX_CHECKS} checks")))
            }
            items => items
                .iter()
                .enumerate()
                .map(|(index, item)| self.check(index, item))
                .collect(),
        }
    }

    fn check(&mut self, index: usize, node: &Node) -> Result<CheckSpec, Diagnostic> {
        let fields = node.fields(&CHECK_FIELDS)?;
        let hidden = fields.optional("hidden").map_or(Ok(false), Node::boolean)?;
        if let Some(entry) = fields.entry("files").filter(|_| !hidden) {
            return Err(Diagnostic::new(
                entry.key_span.clone(),
                "`files` needs `hidden: true`",
            ));
        }
        let words = fields.required("command")?;
        Ok(CheckSpec {
            name: match fields.optional("name") {
                Some(name) => name.some_text()?.to_owned(),
                None => format!("check {}", index + 1),
            },
            command: command(words)?,
            location: self.location(words.list()?.first().unwrap_or(words)),
            timeout: fields
                .optional("timeout")
                .map_or(Ok(DEFAULT_CHECK_TIMEOUT), |node| self.timeout(node))?,
            env: fields.optional("env").map_or(Ok(BTreeMap::new()), env)?,
            min_tests: fields
                .optional("min_tests")
                .map(|node| node.whole_in(0, u32::MAX.into()))
                .transpose()?,
            rerun: fields
                .optional("rerun")
                .map_or(Ok(0), |node| node.whole_in(0, MAX_RERUN))?,
            hidden,
            files: fields
                .optional("files")
                .map_or(Ok(Vec::new()), |node| self.sources(node))?,
            writable: fields
                .optional("writable")
                .map_or(Ok(Vec::new()), |node| self.writable(node))?,
        })
    }

    fn writable(&mut self, node: &Node) -> Result<Vec<WritableDir>, Diagnostic> {
        let folder = |item: &Node| {
            Ok(WritableDir {
                path: safe(item, item.some_text()?)?,
                location: self.location(item),
            })
        };
        node.list()?.iter().map(folder).collect()
    }

    fn timeout(&mut self, node: &Node) -> Result<Duration, Diagnostic> {
        let asked = node.number()?;
        let ceiling = CHECK_TIMEOUT_CEILING.as_secs();
        if ceiling as f64 <= asked {
            self.clamped(node, "timeout", asked > ceiling as f64, ceiling);
            return Ok(CHECK_TIMEOUT_CEILING);
        }
        seconds(node)
    }

    fn max_retries(&mut self, node: &Node) -> Result<u32, Diagnostic> {
        let asked = node.whole()?;
        let kept = asked.clamp(1, MAX_RETRIES_CEILING.into());
        self.clamped(node, "max_retries", asked != kept, kept);
        Ok(u32::try_from(kept).unwrap_or(MAX_RETRIES_CEILING))
    }

    fn clamped(
        &mut self,
        node: &Node,
        field: &str,
        is_clamped: bool,
        kept: impl std::fmt::Display,
    ) {
        if is_clamped {
            let warning = format!(
                "{}: `{field}` is out of range and clamped to {kept}",
                self.location(node).head()
            );
            self.warnings.push(warning);
        }
    }

    /// Returns the path that a text names, absolute; it exists.
    pub(super) fn existing(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        let path = self.folder.join(node.some_text()?);
        match path.metadata() {
            Ok(_) => Ok(path),
            Err(error) => Err(node.refuse(format!("cannot read {}: {error}", shown_path(&path)))),
        }
    }

    /// Returns the folder that a text names, absolute; it exists.
    pub(super) fn existing_folder(&self, node: &Node) -> Result<PathBuf, Diagnostic> {
        match self.existing(node)? {
            path if path.is_dir() => Ok(path),
            path => Err(node.refuse(format!("{} is not a folder", shown_path(&path)))),
        }
    }

    fn location(&self, node: &Node) -> SourceLocation {
        SourceLocation::new(self.source.clone(), node.span.clone())
    }
}

/// Returns the time that a number of seconds, whole or not, stands for.
pub(super) fn seconds(node: &Node) -> Result<Duration, Diagnostic> {
    match node.number()? {
        number if number <= 0.0 => Err(node.refuse("must be more than 0 seconds")),
        number if MAX_SECONDS < number => Err(node.refuse("must be at most a year of seconds")),
        number => Ok(Duration::from_secs_f64(number).max(Duration::from_millis(1))),
    }
}

/// Returns a number of money: finite and not negative.
pub(super) fn amount(node: &Node) -> Result<f64, Diagnostic> {
    match node.number()? {
        number if number < 0.0 => Err(node.refuse("must not be negative")),
        number => Ok(number),
    }
}

/// Returns the check that there is when the spec names none.
fn default_check(location: SourceLocation) -> CheckSpec {
    CheckSpec {
        name: "pytest".to_owned(),
        command: ["python3", "-m", "pytest"].map(str::to_owned).to_vec(),
        location,
        timeout: DEFAULT_CHECK_TIMEOUT,
        env: BTreeMap::new(),
        min_tests: None,
        rerun: 0,
        hidden: false,
        files: Vec::new(),
        writable: Vec::new(),
    }
}

fn command(node: &Node) -> Result<Vec<String>, Diagnostic> {
    let items = node
        .list()
        .map_err(|refusal| refusal.with_help(SHELL_HINT))?;
    let Some(program) = items.first() else {
        return Err(node.refuse("must not be empty"));
    };
    if program
        .some_text()?
        .contains(|c: char| c.is_whitespace() || SHELL_SIGNS.contains(c))
    {
        let what = format!(
            "\"{}\" cannot be the name of a program",
            brief(program.some_text()?)
        );
        return Err(program.refuse(what).with_help(SHELL_HINT));
    }
    items
        .iter()
        .map(|item| Ok(item.text()?.to_owned()))
        .collect()
}

fn excluded(node: &Node) -> Result<String, Diagnostic> {
    let text = node.some_text()?;
    let hint = "as in .gitignore: *.csv, data/, /only/here";
    exclusions::pattern(text).map_err(|_| {
        node.refuse(format!("`{}` is not a pattern", brief(text)))
            .with_help(hint)
    })
}

fn env(node: &Node) -> Result<BTreeMap<String, String>, Diagnostic> {
    node.entries()?.iter().map(variable).collect()
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

fn budget_of(node: &Node) -> Result<BudgetSpec, Diagnostic> {
    let fields = node.fields(&["usd", "tokens"])?;
    Ok(BudgetSpec {
        usd: fields.optional("usd").map(amount).transpose()?,
        tokens: fields
            .optional("tokens")
            .map(|node| node.whole_in(0, u64::MAX.into()))
            .transpose()?,
    })
}

fn kept_snapshots(node: &Node) -> Result<u32, Diagnostic> {
    let keep = node.fields(&["keep"])?.optional("keep");
    keep.map_or(Ok(DEFAULT_KEPT_SNAPSHOTS), |node| {
        node.whole_in(0, u32::MAX.into())
    })
}

fn usd_of(budget: &Node) -> Option<&Node> {
    budget.fields(&["usd", "tokens"]).ok()?.optional("usd")
}

/// Returns where a source arrives when nobody says: under its own name, `.` at the top.
fn own_name(node: &Node, from: &Path) -> Result<Option<SafePath>, Diagnostic> {
    if from.is_dir() && is_top(node.text()?) {
        return Ok(None);
    }
    let name = Path::new(node.text()?)
        .file_name()
        .and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        node.refuse("this has no name of its own")
            .with_help("say {from: …, to: …}")
    })?;
    safe(node, name).map(Some)
}

fn is_top(text: &str) -> bool {
    !text.is_empty()
        && Path::new(text)
            .components()
            .all(|component| component == Component::CurDir)
}

fn safe(node: &Node, text: &str) -> Result<SafePath, Diagnostic> {
    SafePath::parse(text)
        .map_err(|Violation { what, rule }| node.refuse(format!("\"{what}\": {rule}")))
}
