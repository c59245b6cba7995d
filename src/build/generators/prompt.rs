//! Builds prompts: the task, the files, the failure. The long stable part comes first, so that the provider can cache
//! it.
//!
//! The texts are templates in `prompts/`; the user's own (`generator.prompts`) replace them.

use crate::build::spec::{CheckSpec, Spec, UserPrompts, VARIABLES};
use crate::llm::{ContentBlock, Message, Role};
use crate::text::shorten::first_names;

const SYSTEM: &str = include_str!("prompts/system.md");
const GENERATE: &str = include_str!("prompts/generate.md");
const REPAIR: &str = include_str!("prompts/repair.md");
const PATCH: &str = include_str!("prompts/patch.md");
const FORMAT: &str = include_str!("prompts/format.md");
/// A summary of the format, at the end of each message that opens a phase.
const REMINDER: &str = include_str!("prompts/reminder.md");
/// How many read-only files the end of a message names.
const NAMED_READ_ONLY: usize = 20;

/// The templates of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptTemplates {
    system: String,
    generate: String,
    /// Opens GENERATING where the checks have failed already.
    repair: String,
    patch: String,
    /// The value of `{{format}}`.
    format: String,
}

/// The built-in templates of a mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuiltInPrompts {
    pub system: &'static str,
    pub generate: &'static str,
    pub repair: &'static str,
    pub patch: &'static str,
    pub format: &'static str,
}

/// The templates of files mode.
pub(crate) const FILES_MODE: BuiltInPrompts = BuiltInPrompts {
    system: SYSTEM,
    generate: GENERATE,
    repair: REPAIR,
    patch: PATCH,
    format: FORMAT,
};

/// A file of the workspace in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownFile {
    pub path: String,
    pub protected: bool,
    pub content: ShownContent,
}

/// How a file is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShownContent {
    Text(String),
    /// Only the name, and why: "binary, 12 bytes".
    Name(String),
    /// Only the name, because it does not fit.
    LeftOut,
}

/// The content of the message that opens a phase of files mode, besides the task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpeningMessage {
    pub files: Vec<ShownFile>,
    /// The report of the checks: of the last attempt, or of the files that a run begins with.
    pub report: Option<String>,
    /// Whether the report is about an attempt.
    pub is_patch: bool,
    /// Which attempt this is, and the results of earlier ones.
    pub attempts: String,
    /// The files that the model must not write.
    pub read_only: Vec<String>,
}

/// A report of the checks in a prompt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptReport<'a> {
    pub text: &'a str,
    /// Whether it is about an attempt, and not about the files that the run begins with.
    pub is_patch: bool,
}

impl PromptTemplates {
    /// The user's templates, or else the built-in ones.
    pub(crate) fn new(own: &UserPrompts, built_in: BuiltInPrompts) -> PromptTemplates {
        let choose = |own: &Option<String>, built_in: &str| {
            own.clone().unwrap_or_else(|| built_in.to_owned())
        };
        PromptTemplates {
            system: choose(&own.system, built_in.system),
            generate: choose(&own.generate, built_in.generate),
            repair: own
                .generate
                .as_deref()
                .map_or(built_in.repair.into(), with_report),
            patch: choose(&own.patch, built_in.patch),
            format: built_in.format.trim_end().to_owned(),
        }
    }

    /// The system prompt; `tools` is the value of `{{tools}}`.
    pub(crate) fn system(&self, spec: &Spec, tools: &str) -> String {
        render(&self.system, &|name| self.stable(name, spec, tools))
            .trim_end()
            .to_owned()
    }

    /// The message that opens a conversation, in one block.
    pub(crate) fn task(
        &self,
        spec: &Spec,
        tools: &str,
        files: &str,
        report: Option<PromptReport<'_>>,
    ) -> Message {
        let template = self.template(report.as_ref().map(|report| report.is_patch));
        let report = report.map(|report| report.text);
        let values = |name: &str| match name {
            "report" => report.unwrap_or_default().trim_end().to_owned(),
            "files" => files.trim_end().to_owned(),
            name => self.stable(name, spec, tools),
        };
        Message {
            role: Role::User,
            content: vec![ContentBlock::cached(render(template, &values).trim_end())],
        }
    }

    /// The message that opens a phase. It ends with the attempts and the format, also with the user's templates.
    pub(crate) fn opening(&self, spec: &Spec, opening: &OpeningMessage) -> Message {
        let template = self.template(opening.report.as_ref().map(|_| opening.is_patch));
        let values = |name: &str| match name {
            "report" => opening
                .report
                .as_deref()
                .unwrap_or_default()
                .trim_end()
                .to_owned(),
            name => self.stable(name, spec, ""),
        };
        let (before, after) = template.split_once("{{files}}").unwrap_or((template, ""));
        let (read_only, changing): (Vec<_>, Vec<_>) =
            opening.files.iter().partition(|file| file.protected);
        let mut content = vec![ContentBlock::cached(
            render(before, &values) + &read_only_files(&read_only),
        )];
        content.push(ContentBlock::cached(workspace_files(&changing)));
        let end = render(after, &values).trim().to_owned() + "\n\n" + &ending(opening);
        content.push(ContentBlock::text(end));
        content.retain(
            |block| !matches!(block, ContentBlock::Text { text, .. } if text.trim().is_empty()),
        );
        Message {
            role: Role::User,
            content,
        }
    }

    /// The template of a request without a report, with one about the first files, or with one about an attempt.
    fn template(&self, is_patch: Option<bool>) -> &str {
        match is_patch {
            None => &self.generate,
            Some(false) => &self.repair,
            Some(true) => &self.patch,
        }
    }

    /// The value of a variable that is the same in every phase.
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

/// The user's own template with the report in it.
fn with_report(own: &str) -> String {
    if own.contains("{{report}}") {
        return own.to_owned();
    }
    format!(
        "{}\n\n# What the checks say\n\n{{{{report}}}}\n\nMake all checks pass.\n",
        own.trim_end()
    )
}

/// The `{{name}}`s of a text with their offsets.
fn variables(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("{{").filter_map(|(at, _)| {
        let name = text[at + 2..].split_once("}}")?.0;
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_')
            .then_some((at, name))
    })
}

/// Fills a template in one pass, so that braces inside a value stay unchanged.
pub(crate) fn render(template: &str, value: &dyn Fn(&str) -> String) -> String {
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

fn checks(checks: &[CheckSpec]) -> String {
    let visible: Vec<_> = checks.iter().filter(|check| !check.hidden).collect();
    let mut out = String::from("# Checks\n");
    if visible.is_empty() {
        out += "\nThe solution is checked, but you are not told how.";
    }
    for check in visible {
        let words: Vec<_> = check
            .command
            .iter()
            .map(|word| format!("{word:?}"))
            .collect();
        out += &format!("\n- {}: [{}]", check.name, words.join(", "));
    }
    out
}

/// The end of a message: the attempts, what the model may write, and the format.
fn ending(opening: &OpeningMessage) -> String {
    let mut text = format!("# Attempts\n\n{}\n", opening.attempts);
    if opening.is_patch {
        text += "\nThe files above are those of the last attempt. The same files would fail again: change what caused the failure.\n";
    }
    text += "\n# Your answer\n\n";
    if !opening.read_only.is_empty() {
        let names = opening.read_only.iter();
        let names: Vec<String> = names.map(|name| name.escape_debug().to_string()).collect();
        let names = first_names(&names, NAMED_READ_ONLY);
        text += &format!(
            "The read-only files ({names}) are in place already: do not write or delete them.\n"
        );
    }
    text += "Files that are not shown above must not be rewritten: their content would be lost.\n";
    text + REMINDER.trim_end()
}

/// Shows read-only files in a form that is not the form of an answer.
fn read_only_files(files: &[&ShownFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let shown = sections(files, read_only_block);
    format!("# Read-only files\n\nThey are given and stay as they are.\n\n{shown}\n")
}

fn workspace_files(files: &[&ShownFile]) -> String {
    if files.is_empty() {
        return "# Files that you may change\n\nThere are none yet.\n".into();
    }
    format!(
        "# Files that you may change, as they are now\n\n{}\n",
        sections(files, block)
    )
}

/// Shows each file; those that do not fit are named in one line at the end.
fn sections(files: &[&ShownFile], show_text: fn(&str, &str) -> String) -> String {
    let mut shown = Vec::new();
    let mut left_out = Vec::new();
    for file in files {
        let path = file.path.escape_debug().to_string();
        match &file.content {
            ShownContent::Text(text) => shown.push(show_text(&path, text)),
            ShownContent::Name(why) => shown.push(format!("({path}: {why}, not shown)")),
            ShownContent::LeftOut => left_out.push(path),
        }
    }
    if !left_out.is_empty() {
        shown.push(format!(
            "({} files are not shown, there is no room: {})",
            left_out.len(),
            left_out.join(", ")
        ));
    }
    shown.join("\n\n")
}

/// A read-only file. The tag is not valid in an answer, so an answer that repeats it writes nothing. Small models take
/// it for an example of the form and continue with the next file; text behind bars or in fences they repeat
/// (`benches/prompts`).
fn read_only_block(path: &str, text: &str) -> String {
    block_with(path, " read-only", text)
}

/// A file in the form of an answer.
fn block(path: &str, text: &str) -> String {
    block_with(path, "", text)
}

fn block_with(path: &str, mark: &str, text: &str) -> String {
    let end = closing_line(text);
    let word = if end == "</file>" {
        String::new()
    } else {
        format!(" end=\"{end}\"")
    };
    let gap = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let note = if gap.is_empty() {
        String::new()
    } else {
        format!("\n({path} has no newline at its end)")
    };
    format!("<file path=\"{path}\"{mark}{word}>\n{text}{gap}{end}{note}")
}

/// A closing line that the content does not contain; counted, not random, so that equal runs send equal requests.
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
    use crate::build::generators::answer_format;

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
        assert_eq!(block("a", "x\n"), "<file path=\"a\">\nx\n</file>");
        assert_eq!(
            block("a", "</file>\nEND-1\n"),
            "<file path=\"a\" end=\"END-2\">\n</file>\nEND-1\nEND-2"
        );
        assert!(block("a", "x").contains("no newline"));
        assert_eq!(
            read_only_block("a", "x\n"),
            "<file path=\"a\" read-only>\nx\n</file>"
        );
        assert!(
            answer_format::parse(&read_only_block("a", "x\n"))
                .blocks
                .is_empty(),
            "a repeated block writes nothing"
        );
    }
}
