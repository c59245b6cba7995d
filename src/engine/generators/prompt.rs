//! What the model is shown, above all in files mode: the task, the files, the failure, in an order that keeps the long stable
//! part first, so that a provider's cache can serve it.
//!
//! The texts are templates in `prompts/`; a user's own take their place (`generator.prompts`).

use crate::engine::spec::{Check, Prompts as OwnPrompts, Spec, VARIABLES};
use crate::llm::{Block, Message, Role};

const SYSTEM: &str = include_str!("prompts/system.md");
const GENERATE: &str = include_str!("prompts/generate.md");
const PATCH: &str = include_str!("prompts/patch.md");
const FORMAT: &str = include_str!("prompts/format.md");

/// The templates of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    system: String,
    generate: String,
    patch: String,
    /// What `{{format}}` says.
    format: String,
}

/// The built-in templates of a mode.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    pub system: &'static str,
    pub generate: &'static str,
    pub patch: &'static str,
    pub format: &'static str,
}

/// Those of files mode.
pub const FILES_MODE: BuiltIn = BuiltIn { system: SYSTEM, generate: GENERATE, patch: PATCH, format: FORMAT };

/// A file of the workspace as the model is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFile {
    pub path: String,
    pub protected: bool,
    pub content: Shown,
}

/// How a file is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    Text(String),
    /// Only that it is there, and why not more: "binary, 12 bytes".
    Name(String),
}

impl Prompts {
    /// Returns the built-in templates, or the user's where there are any.
    pub fn new(own: &OwnPrompts, built_in: BuiltIn) -> Prompts {
        let choose = |own: &Option<String>, built_in: &str| own.clone().unwrap_or_else(|| built_in.to_owned());
        Prompts {
            system: choose(&own.system, built_in.system),
            generate: choose(&own.generate, built_in.generate),
            patch: choose(&own.patch, built_in.patch),
            format: built_in.format.trim_end().to_owned(),
        }
    }

    /// Returns the system prompt; `tools` is what it says of them.
    pub fn system(&self, spec: &Spec, tools: &str) -> String {
        render(&self.system, &|name| self.stable(name, spec, tools)).trim_end().to_owned()
    }

    /// Returns the message that opens a conversation, in one piece.
    pub fn task(&self, spec: &Spec, tools: &str, files: &str, report: Option<&str>) -> Message {
        let template = if report.is_some() { &self.patch } else { &self.generate };
        let values = |name: &str| match name {
            "report" => report.unwrap_or_default().trim_end().to_owned(),
            "files" => files.trim_end().to_owned(),
            name => self.stable(name, spec, tools),
        };
        Message { role: Role::User, content: vec![Block::cached(render(template, &values).trim_end())] }
    }

    /// Returns the message that opens a phase; `report` is what the checks said, in PATCHING.
    pub fn opening(&self, spec: &Spec, files: &[ShownFile], report: Option<&str>) -> Message {
        let template = if report.is_some() { &self.patch } else { &self.generate };
        let values = |name: &str| match name {
            "report" => report.unwrap_or_default().trim_end().to_owned(),
            name => self.stable(name, spec, ""),
        };
        let (before, after) = template.split_once("{{files}}").unwrap_or((template, ""));
        let stable = files.iter().filter(|file| file.protected);
        let changing = files.iter().filter(|file| !file.protected);
        let mut content = vec![Block::cached(render(before, &values) + &protected_files(stable))];
        content.push(Block::cached(workspace_files(changing)));
        content.push(Block::text(render(after, &values).trim_end().to_owned()));
        content.retain(|block| !matches!(block, Block::Text { text, .. } if text.trim().is_empty()));
        Message { role: Role::User, content }
    }

    /// Returns the value of a variable that is the same in every phase.
    fn stable(&self, name: &str, spec: &Spec, tools: &str) -> String {
        match name {
            "spec" => format!("# Task: {}\n\n{}", spec.name, spec.description.trim_end()),
            "checks" => checks(&spec.checks),
            "format" => self.format.clone(),
            "tools" => tools.trim_end().to_owned(),
            _ => String::new(),
        }
    }
}

/// The `{{name}}`s of a text, each with where it begins.
fn variables(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("{{").filter_map(|(at, _)| {
        let name = text[at + 2..].split_once("}}")?.0;
        name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_').then_some((at, name))
    })
}

/// Fills a template in one pass, so that a value's own braces stay as they are.
pub fn render(template: &str, value: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut from = 0;
    for (at, name) in variables(template) {
        if VARIABLES.contains(&name) {
            out += &template[from..at];
            out += &value(name);
            from = at + name.len() + 4;
        }
    }
    out + &template[from..]
}

fn checks(checks: &[Check]) -> String {
    let visible: Vec<_> = checks.iter().filter(|check| !check.hidden).collect();
    let mut out = String::from("# Checks\n");
    if visible.is_empty() {
        out += "\nThe solution is checked, but you are not told how.";
    }
    for check in visible {
        let words: Vec<_> = check.command.iter().map(|word| format!("{word:?}")).collect();
        out += &format!("\n- {}: [{}]", check.name, words.join(", "));
    }
    out
}

fn protected_files<'a>(files: impl Iterator<Item = &'a ShownFile>) -> String {
    let shown: Vec<_> = files.map(show).collect();
    if shown.is_empty() {
        return String::new();
    }
    format!("# Protected files: given, never changed; what you write there is put back\n\n{}\n", shown.join("\n"))
}

fn workspace_files<'a>(files: impl Iterator<Item = &'a ShownFile>) -> String {
    let shown: Vec<_> = files.map(show).collect();
    if shown.is_empty() {
        return "# Files in the workspace\n\nThere are none of yours yet.\n".into();
    }
    format!("# Files in the workspace, as they are now\n\n{}\n", shown.join("\n"))
}

fn show(file: &ShownFile) -> String {
    let path = file.path.escape_debug();
    match &file.content {
        Shown::Name(why) => format!("({path}: {why}, not shown)"),
        Shown::Text(text) => {
            let end = closing_line(text);
            let word = if end == "</file>" { String::new() } else { format!(" end=\"{end}\"") };
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            let note = if gap.is_empty() { String::new() } else { format!("\n({path} has no newline at its end)") };
            format!("<file path=\"{path}\"{word}>\n{text}{gap}{end}{note}")
        }
    }
}

/// Returns a closing line that the content does not have; counted, not drawn, so that equal runs ask alike.
fn closing_line(text: &str) -> String {
    let mut end = String::from("</file>");
    let mut number = 0;
    while text.lines().any(|line| line == end) {
        number += 1;
        end = format!("END-{number}");
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_filled_in_one_pass() {
        let value = |name: &str| format!("<{name} {{{{files}}}}>");
        assert_eq!(
            render("a {{spec}} b {{what}} {{report}}", &value),
            "a <spec {{files}}> b {{what}} <report {{files}}>"
        );
        assert_eq!(render("{{", &value), "{{");
    }

    #[test]
    fn a_file_cannot_close_its_own_block() {
        let file = |text: &str| ShownFile { path: "a".into(), protected: false, content: Shown::Text(text.into()) };
        assert_eq!(show(&file("x\n")), "<file path=\"a\">\nx\n</file>");
        assert_eq!(show(&file("</file>\nEND-1\n")), "<file path=\"a\" end=\"END-2\">\n</file>\nEND-1\nEND-2");
        assert!(show(&file("x")).contains("no newline"));
    }
}
