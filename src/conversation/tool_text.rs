//! The tools as a model sees them, whatever serves them: their descriptions, and the text of a result.

use std::borrow::Cow;

use crate::conversation::tools::{self, CallRefusal};
use crate::environments::adhoc::{self, AdhocKind, FoundEnvironment};
use crate::environments::{Response, ScreenSection};
use crate::llm::ToolOffer;
use crate::process::sandbox::SandboxPolicy;
use crate::process::sandbox::hints::denials;
use crate::secrets::Secrets;
use crate::text::shorten::cut_middle;

/// Bytes of a call's output that the model gets.
const OUTPUT_LIMIT: usize = 16 << 10;
/// Bytes of all screens together.
const SCREEN_LIMIT: usize = 16 << 10;

const BUILT_IN: [(&str, &str); 3] = [
    (
        "bash",
        "A bash that lives as long as this conversation: directory, variables, functions and background jobs stay. \
         Commands read an empty stdin.",
    ),
    (
        "python",
        "A Python that lives as long as this conversation: variables and imports stay. Expressions are shown as at a \
         prompt.",
    ),
    (
        "editor",
        "Views of files that follow every change. `view PATH /START/ /END/` opens a view from the first line that \
         matches START to the next that matches END; `edit PATH FIRST-LAST` and the new lines below it replaces lines of a view; \
         `create PATH` and the content below it; `search \"PATTERN\" GLOB`; `close ID`.",
    ),
];

/// The tools: the built-in ones, then these of the user's own.
pub(crate) fn offers(own: &[FoundEnvironment]) -> Vec<ToolOffer> {
    let built_in = BUILT_IN
        .iter()
        .map(|(name, description)| tools::offer(name, description));
    let own = own
        .iter()
        .map(|found| tools::offer(&found.name, &described(found)));
    built_in.chain(own).collect()
}

/// Why a call of a tool that does not exist is not run.
pub(crate) fn unknown_tool(name: &str, offers: &[ToolOffer]) -> CallRefusal {
    let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
    CallRefusal(format!(
        "there is no tool {name:?}; there are {}",
        names.join(", ")
    ))
}

/// The output of a call: redacted, bounded, with what the sandbox may have refused.
pub(crate) fn output_text(
    response: Response,
    secrets: &Secrets,
    policy: Option<&SandboxPolicy>,
) -> String {
    let mut output = match response.output {
        blank if blank.trim().is_empty() => "(no output)\n".to_owned(),
        output => output,
    };
    if let Cow::Owned(redacted) = secrets.redact(&output) {
        output = redacted;
    }
    if !output.ends_with('\n') {
        output.push('\n');
    }
    let policy = policy.filter(|_| !response.success);
    let refused = policy
        .map(|policy| denials(&output, "", policy))
        .unwrap_or_default();
    let mut output = cut_middle(&output, OUTPUT_LIMIT);
    output.extend(
        refused
            .iter()
            .map(|denial| format!("[sandbox: {}]\n", denial.sentence)),
    );
    output
}

/// The screens of the environments used so far, the one just used first.
pub(crate) fn screens_text(
    mut sections: Vec<(String, ScreenSection)>,
    used: &[String],
    newest: &str,
    secrets: &Secrets,
) -> String {
    sections.retain(|(name, _)| used.contains(name));
    sections.sort_by_key(|(name, _)| name != newest);
    let mut all = String::new();
    for (name, ScreenSection { content, .. }) in sections {
        let section = format!("\n[screen of {name}]\n{}\n", content.trim_end());
        all += &cut_end(
            &secrets.redact(&section),
            SCREEN_LIMIT.saturating_sub(all.len()),
        );
    }
    all
}

fn described(found: &FoundEnvironment) -> String {
    let name = &found.name;
    let own = || format!("The user's own environment {name}.");
    match found.kind {
        AdhocKind::Yaml => {
            adhoc::read_program(&found.path).map_or_else(|_| own(), |program| program.description)
        }
        AdhocKind::Mcp => format!(
            "The tools of the MCP server {name}. A command is the name of one of its tools, then the arguments as a JSON \
             object: `TOOL {{\"name\": \"value\"}}`. An empty command lists the tools and their parameters, `TOOL ?` describes one."
        ),
        AdhocKind::Python | AdhocKind::Executable => own(),
    }
}

fn cut_end(text: &str, room: usize) -> String {
    const NOTE: &str = "\n[the rest of the screens is left out]\n";
    if text.len() <= room {
        return text.to_owned();
    }
    match room.checked_sub(NOTE.len()) {
        Some(room) => text[..text.floor_char_boundary(room)].to_owned() + NOTE,
        None => String::new(),
    }
}
