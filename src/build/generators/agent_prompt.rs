//! The prompts of agent mode: the sandbox, the task, the names of the files, and, after a failed attempt, the report and how
//! the last conversation ended.

use crate::build::context::Context;
use crate::build::generators::prompt::BuiltInPrompts;
use crate::build::kept_files::is_kept;
use crate::conversation::history::ClosedConversation;
use crate::conversation::tools::DEFAULT_TIMEOUT;
use crate::error::Result;
use crate::llm::ToolOffer;
use crate::state::phase::Phase;
use crate::text::shorten::first_names;
use crate::workspace::generated::{is_generated, is_tool_folder};
use crate::workspace::{EntryKind, WalkStep};

/// The templates of a conversation.
pub(crate) const AGENT_MODE: BuiltInPrompts = BuiltInPrompts {
    system: include_str!("agent_prompts/system.md"),
    generate: include_str!("agent_prompts/generate.md"),
    repair: include_str!("agent_prompts/repair.md"),
    patch: include_str!("agent_prompts/patch.md"),
    format: include_str!("agent_prompts/format.md"),
};
const LIMITS: &str = include_str!("agent_prompts/limits.md");
const MOST_FILES: usize = 200;
const MOST_PROTECTED: usize = 50;
const CLOSING_CHARACTERS: usize = 4000;

/// Describes the tools and the sandbox around them.
pub(crate) fn tools(context: &Context, offers: &[ToolOffer]) -> String {
    let mut text = String::from("# Tools\n\n");
    for offer in offers {
        text += &format!("- {}: {}\n", offer.name, offer.description);
    }
    text + "\n" + &sandbox_section(context)
}

fn sandbox_section(context: &Context) -> String {
    let network = match context.spec.sandbox.network {
        true => "it can be reached",
        false => "none but the loopback of your tools",
    };
    let values = [
        (
            "{{directory}}",
            context.root.join("workspace").display().to_string(),
        ),
        ("{{network}}", network.to_owned()),
        ("{{protected}}", protected(context)),
        ("{{seconds}}", DEFAULT_TIMEOUT.as_secs().to_string()),
        ("{{turns}}", context.spec.generator.max_turns.to_string()),
    ];
    values
        .iter()
        .fold(LIMITS.to_owned(), |text, (name, value)| {
            text.replace(name, value)
        })
}

fn protected(context: &Context) -> String {
    let names: Vec<&str> = context
        .inputs
        .protect
        .iter()
        .map(|input| input.to.as_str())
        .collect();
    match names.is_empty() {
        true => "the system and the toolchains.".into(),
        false => format!(
            "the system, the toolchains, and these protected files, which are restored if they change: {}.",
            first_names(&names, MOST_PROTECTED)
        ),
    }
}

/// The names and sizes of the workspace's files.
pub(crate) fn files(context: &Context) -> Result<String> {
    let mut lines = Vec::new();
    let mut count = 0;
    context.workspace.walk(&mut |entry| {
        if entry.path.file_name().is_some_and(is_generated) {
            return WalkStep::Skip;
        }
        let name = entry.path.display().to_string().escape_debug().to_string();
        let is_one = entry.path.file_name().is_some_and(is_tool_folder);
        let (line, next) = match &entry.kind {
            EntryKind::Dir { .. } if is_one => (format!("- {name}/ (generated)"), WalkStep::Skip),
            EntryKind::Dir { .. } => return WalkStep::On,
            EntryKind::File { size, .. } => (format!("- {name} ({size} bytes)"), WalkStep::On),
            EntryKind::Link { target } => (
                format!("- {name} (a link to {:?})", target.to_string_lossy()),
                WalkStep::On,
            ),
            EntryKind::Special => (format!("- {name} (no regular file)"), WalkStep::On),
        };
        if is_kept(&entry.path) {
            return next;
        }
        count += 1;
        if count <= MOST_FILES {
            lines.push(line);
        }
        next
    })?;
    if lines.is_empty() {
        return Ok("# Files in the workspace\n\nThere are none yet.".into());
    }
    if count > MOST_FILES {
        lines.push(format!("- and {} more", count - MOST_FILES));
    }
    Ok(format!("# Files in the workspace\n\n{}", lines.join("\n")))
}

/// The report of the checks; in PATCHING also whether the last attempts failed alike, and how the last conversation ended.
pub(crate) fn report(context: &Context, before: Option<&ClosedConversation>) -> Option<String> {
    let mut text = context.report()?.trim_end().to_owned();
    if context.state.phase != Phase::Patching {
        return Some(text);
    }
    if let Some(repeated) = context.facts(|facts| facts.repeated_failure()) {
        text += &format!("\n\n{repeated}");
    }
    let Some(ClosedConversation { words, killed, .. }) = before else {
        return Some(text);
    };
    if !words.trim().is_empty() {
        let words: String = words.trim().chars().take(CLOSING_CHARACTERS).collect();
        text += &format!("\n\n# What you said at the end of the last attempt\n\n{words}");
    }
    if !killed.is_empty() {
        text += "\n\n# Commands that were still running at the end of the last attempt, and were stopped\n";
        killed
            .iter()
            .for_each(|command| text += &format!("\n- {command}"));
    }
    Some(text)
}
