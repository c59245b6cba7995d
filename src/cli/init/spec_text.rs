//! The text of the spec that `init` writes.

use std::collections::BTreeSet;

use crate::cli::init::detection::DetectedProjects;
use crate::cli::init::project::DetectedProject;
use crate::llm::provider::Provider;
use crate::text::invisible::printable;
use crate::text::quote::yaml_scalar;

/// How many protected files are listed.
const MAX_PROTECTED: usize = 200;

/// What the spec is about, besides the project.
pub(super) struct SpecFrame<'a> {
    pub(super) name: &'a str,
    /// The file of the schema, beside the spec.
    pub(super) schema: &'a str,
    /// What is left out of the copy, besides what tools write.
    pub(super) exclude: Vec<String>,
}

/// The spec for the chosen project; the others are comments in it.
pub(super) fn spec_text(frame: &SpecFrame<'_>, projects: &DetectedProjects) -> String {
    let mut text = head(frame, &projects.chosen);
    text += &workspace(frame, projects);
    text += &checks(&projects.chosen, &projects.others);
    text += &sandbox(&projects.chosen);
    text += &generator();
    text
}

fn head(frame: &SpecFrame<'_>, project: &DetectedProject) -> String {
    format!(
        "# yaml-language-server: $schema={}\n\
         # What orchestrator builds here, and how it is checked. Found: {}.\n\
         # Paths are relative to this file. Check it with: orchestrator lint specs/{}.yaml\n\
         name: {}\n\n\
         # What is to be done, for the model: replace this by your own words.\n\
         description: |\n  Make all tests pass.{}\n\n",
        frame.schema,
        comment(&project.title()),
        comment(frame.name),
        yaml_scalar(frame.name),
        match project.protect.is_empty() {
            true => "",
            false => " The tests are right: do not change them.",
        }
    )
}

fn workspace(frame: &SpecFrame<'_>, projects: &DetectedProjects) -> String {
    let project = &projects.chosen;
    let mut text = String::from(
        "workspace:\n  \
         # The model works on a copy in workspace/; `orchestrator apply` brings its changes back.\n  \
         # Not copied: what .gitignore excludes, .git, files with the usual names of secrets, and `exclude`.\n  \
         copy:\n    - from: ..\n      to: .\n      exclude:\n",
    );
    let all = std::iter::once(project).chain(&projects.others);
    let written = all.flat_map(|project| &project.exclude);
    let mut seen = BTreeSet::new();
    for pattern in frame.exclude.iter().chain(written) {
        if seen.insert(pattern) {
            text += &format!("        - {}\n", yaml_scalar(pattern));
        }
    }
    if project.protect.is_empty() {
        return text
            + "  # Files that the model may read and not change, such as tests:\n  # protect:\n  #   - {from: ../tests, to: tests}\n\n";
    }
    text += "  # Can be read and not changed: the tests decide.\n  protect:\n";
    for path in project.protect.iter().take(MAX_PROTECTED) {
        let (from, to) = (yaml_scalar(&format!("../{path}")), yaml_scalar(path));
        text += &format!("    - {{from: {from}, to: {to}}}\n");
    }
    if let Some(more) = project
        .protect
        .len()
        .checked_sub(MAX_PROTECTED)
        .filter(|more| 0 < *more)
    {
        text += &format!(
            "    # {more} more files of tests are not protected: list them, or move them into one folder\n"
        );
    }
    text + "\n"
}

fn checks(project: &DetectedProject, others: &[DetectedProject]) -> String {
    let mut text = String::from(
        "# All checks must pass. A command is a list of words, not a shell line.\nchecks:\n",
    );
    for remark in &project.remarks {
        text += &format!("  # {}\n", comment(remark));
    }
    text += &check("tests", project);
    for other in others {
        text += &format!("  # Also found: {}. Its check:\n", comment(&other.title()));
        for line in check(&format!("{}-tests", other.family), other).lines() {
            text += &format!("  # {}\n", line.strip_prefix("  ").unwrap_or(line));
        }
        for entry in &other.read {
            text += &format!(
                "  # For it sandbox.read has to list {}\n",
                comment(&entry.path)
            );
        }
    }
    text + "\n\
         # If all checks pass before any work, no model is asked. For work that no test asks for yet:\n\
         # baseline: false\n\n"
}

fn check(name: &str, project: &DetectedProject) -> String {
    let words: Vec<String> = project
        .check_command()
        .iter()
        .map(|word| command_word(word))
        .collect();
    let mut text = format!(
        "  - name: {}\n    command: [{}]\n    timeout: {} # seconds; at most 600\n",
        yaml_scalar(name),
        words.join(", "),
        project.timeout
    );
    let variables = project
        .env
        .iter()
        .map(|(name, value)| format!("{name}: {}", yaml_scalar(value)));
    let variables: Vec<String> = variables.collect();
    if !variables.is_empty() {
        text += &format!("    env: {{{}}}\n", variables.join(", "));
    }
    text
}

/// A word of a command as an item of a list. An option needs no quotes there, unlike elsewhere.
fn command_word(word: &str) -> String {
    let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
    let is_plain = |text: &str| {
        let mut letters = text.chars();
        letters
            .next()
            .is_some_and(|first| first.is_ascii_alphabetic())
            && letters.all(|c| c.is_ascii_alphanumeric() || "-=_".contains(c))
    };
    match option.is_some_and(is_plain) {
        true => word.to_owned(),
        false => yaml_scalar(word),
    }
}

fn sandbox(project: &DetectedProject) -> String {
    let mut text = String::from(
        "# Programs write in workspace/ only, have no network, and see the system, your toolchains and workspace/.\n",
    );
    let is_open = project.read.iter().any(|entry| entry.exists);
    let mark = if is_open { "" } else { "# " };
    text += &format!("{mark}sandbox:\n");
    if project.read.is_empty() {
        text += "#   read: [~/data] # more to read\n";
    } else {
        text += &format!("{mark}  read:\n");
        for entry in &project.read {
            let mark = if entry.exists { "" } else { "# " };
            text += &format!("{mark}    - {} # {}\n", yaml_scalar(&entry.path), entry.why);
        }
    }
    let network = if is_open {
        "  # network: true\n\n"
    } else {
        "#   network: true\n\n"
    };
    text + network
}

fn generator() -> String {
    let facts = Provider::default().facts();
    format!(
        "generator:\n  \
         provider: {} # its key is in {}\n  \
         model: {}\n  \
         # mode: agent # the model works with tools instead of answering with whole files\n  \
         # A model on this machine (Ollama, llama.cpp, vLLM, LM Studio), instead of the two lines above:\n  \
         # provider: openai\n  \
         # base_url: http://localhost:11434/v1\n  \
         # model: qwen3-coder\n  \
         # context: 32000 # tokens; what the server was started with\n\n\
         # What a run may use; a model without a known price needs `tokens` instead of `usd`.\n\
         budget:\n  usd: 1.00\n  # tokens: 2000000\n\n\
         # How often the model may patch what fails.\n\
         max_retries: 5\n",
        facts.name,
        facts.key_variable.unwrap_or("the environment"),
        facts.default_model
    )
}

/// Text as the content of a comment: one line, without characters that are not shown.
fn comment(text: &str) -> String {
    printable(text).replace(['\n', '\r'], " ")
}
