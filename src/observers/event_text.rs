//! Renders events as lines for a developer.
//!
//! Pure: an event and the elapsed time in, a line out. Foreign text passes `text::invisible` and is cut to a few lines,
//! the later ones indented, so that it cannot pass for a line of ours.

use std::time::Duration;

use serde_json::Value;

use super::check_text::checked;
use crate::events::{Event, Objection};
use crate::text::invisible::{escaped, printable};
use crate::text::shorten::{cut_chars, cut_inside};

const MAX_LINES: usize = 6;
const MAX_LINE_CHARACTERS: usize = 300;
const MAX_NAME_CHARACTERS: usize = 120;
const EDITOR: &str = "editor";
/// What a tool's result says instead of nothing.
const NO_OUTPUT: &str = "(no output)";
const MAX_NAMES: usize = 5;
/// How much is shown of a name among several.
const MAX_LISTED_CHARACTERS: usize = 72;

/// What a line is about; decides its colour and whether `--quiet` keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Progress,
    Good,
    Bad,
    Warning,
    Error,
}

impl Tone {
    /// Whether the line is written with `--quiet`, too.
    pub(super) fn is_loud(self) -> bool {
        matches!(self, Tone::Warning | Tone::Error)
    }

    pub(super) fn line(self, text: impl Into<String>) -> EventText {
        EventText {
            tone: self,
            text: text.into(),
        }
    }
}

/// A line of the console, or several where a foreign text has several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventText {
    pub tone: Tone,
    pub text: String,
}

/// The line for an event of a build, if it has one; `elapsed` is the time since the command began.
pub(super) fn line_of(event: &Event, elapsed: Duration) -> Option<EventText> {
    match event {
        Event::WorkflowStarted {
            provider, model, ..
        } => {
            let model = match model.is_empty() {
                true => String::new(),
                false => format!(" {}", name(model)),
            };
            started(event, &format!(", {}{model}", name(provider)))
        }
        Event::StateStarted {
            state_name,
            attempt: Some(attempt),
            of: Some(of),
            ..
        } if state_name != "INIT" => Some(Tone::Progress.line(phase(state_name, *attempt, *of))),
        Event::ModelRequested {
            place, objection, ..
        } if place.turn > 0 => Some(Tone::Progress.line(asked(place.turn, *objection))),
        Event::ScriptOutput { .. } => checked(event),
        _ => shared_line(event, elapsed),
    }
}

/// The line for an event that builds and workflows show alike.
pub(super) fn shared_line(event: &Event, elapsed: Duration) -> Option<EventText> {
    match event {
        Event::WorkflowCompleted { .. }
        | Event::WorkflowPaused { .. }
        | Event::WorkflowInterrupted { .. } => end_line(event, elapsed),
        Event::ModelAnswered { .. } | Event::AnswerRefused { .. } => answer_line(event),
        Event::ToolCalled { .. }
        | Event::ToolReturned { .. }
        | Event::EnvironmentsRestarted { .. }
        | Event::FilesApplied { .. }
        | Event::BaselineFinished { .. }
        | Event::ProtectedRestored { .. } => workspace_line(event),
        Event::SandboxFound { .. }
        | Event::NoteAdded { .. }
        | Event::ProgressMessage { .. }
        | Event::ErrorOccurred { .. }
        | Event::LogMended { .. } => notice_line(event),
        // Shown only of a build, or only of a workflow. The fork of a worker names it, and its first state has a line.
        Event::WorkflowStarted { .. }
        | Event::StateStarted { .. }
        | Event::TransitionOccurred { .. }
        | Event::AgentSpawned { .. }
        | Event::AgentTerminated { .. }
        | Event::AgentPaused { .. }
        | Event::AgentFailed { .. }
        | Event::AgentAnswered { .. }
        | Event::Print { .. }
        | Event::ModelRequested { .. }
        | Event::ScriptOutput { .. }
        // The error before it says when the model is asked again.
        | Event::ModelRetried { .. }
        | Event::StateCompleted { .. }
        | Event::PromptSent { .. }
        | Event::ConversationOpened { .. }
        | Event::ConversationClosed { .. }
        | Event::ClaudeInvocationStarted { .. }
        | Event::ModelStreamed { .. }
        | Event::TextStreamed { .. }
        | Event::CheckPrinted { .. }
        | Event::ToolInvocation { .. }
        | Event::RunContinued { .. }
        | Event::SnapshotKept { .. }
        | Event::SnapshotRestored { .. }
        | Event::WorkspaceKept { .. }
        | Event::WorkspaceTested { .. }
        | Event::ChangesApplied { .. }
        | Event::HiddenFilesPlaced { .. }
        | Event::HiddenFilesRemoved { .. } => None,
    }
}

/// Like `line_of`, where the result is printed after the last line: of an end only what the result leaves out.
pub(super) fn line_before_result(event: &Event, elapsed: Duration) -> Option<EventText> {
    let (message, usd) = match event {
        Event::WorkflowCompleted {
            outcome,
            message,
            total_cost_usd,
            ..
        } if outcome != "SUCCESS" => (message, *total_cost_usd),
        Event::WorkflowCompleted { total_cost_usd, .. } => {
            let spent = spent(elapsed, *total_cost_usd);
            return Some(Tone::Progress.line(format!("finished after {spent}")));
        }
        Event::WorkflowPaused {
            message,
            total_cost_usd,
            ..
        } => (message, *total_cost_usd),
        Event::WorkflowInterrupted { .. } => return None,
        _ => return line_of(event, elapsed),
    };
    let ended = format!("ended after {}", spent(elapsed, usd));
    // The result has the first line of the message.
    Some(match few_lines(message).split_once('\n') {
        Some((_, more)) => Tone::Error.line(format!("{ended}\n{more}")),
        None => Tone::Progress.line(ended),
    })
}

/// The end of a run.
fn end_line(event: &Event, elapsed: Duration) -> Option<EventText> {
    let (verb, reason, message, usd) = match event {
        Event::WorkflowCompleted {
            outcome,
            message,
            total_cost_usd,
            ..
        } if outcome == "SUCCESS" => {
            let spent = spent(elapsed, *total_cost_usd);
            let text = format!("succeeded after {spent}: {}", few_lines(message));
            return Some(Tone::Good.line(text));
        }
        Event::WorkflowCompleted {
            reason,
            message,
            total_cost_usd,
            ..
        } => ("failed", reason, message, total_cost_usd),
        Event::WorkflowPaused {
            reason,
            message,
            total_cost_usd,
            ..
        } => ("paused", reason, message, total_cost_usd),
        Event::WorkflowInterrupted {
            reason, message, ..
        } => {
            let text = interrupted(&seconds(elapsed), reason, message);
            return Some(Tone::Error.line(text));
        }
        _ => return None,
    };
    let text = ending(verb, &spent(elapsed, *usd), reason, message);
    Some(Tone::Error.line(text))
}

/// An answer of the model.
fn answer_line(event: &Event) -> Option<EventText> {
    let text = match event {
        Event::ModelAnswered {
            cost_usd,
            duration_ms,
            error,
            answer,
            ..
        } => {
            let spent = spent(Duration::from_millis(*duration_ms), *cost_usd);
            if let Some(error) = error {
                let text = format!("error: {}", few_lines(error));
                return Some(Tone::Error.line(with_aside(&text, &spent)));
            }
            let words = answer.as_ref().and_then(first_words);
            let words = words.map(|words| format!(": {}", name(&words)));
            format!("the model answered ({spent}){}", words.unwrap_or_default())
        }
        Event::AnswerRefused { fault, .. } => {
            few_lines(&format!("the answer was not used: {fault}"))
        }
        _ => return None,
    };
    Some(Tone::Progress.line(text))
}

/// What happens to the workspace: calls of tools, files, checks.
fn workspace_line(event: &Event) -> Option<EventText> {
    let line = match event {
        Event::ToolCalled {
            tool_name,
            arguments,
            ..
        } => Tone::Progress.line(called(tool_name, arguments)),
        Event::ToolReturned { .. } => Tone::Progress.line(returned(event)?),
        Event::EnvironmentsRestarted { .. } => {
            Tone::Progress.line("the environments were restarted")
        }
        Event::FilesApplied {
            written, deleted, ..
        } => Tone::Progress.line(applied(written, deleted)?),
        Event::BaselineFinished { passed: true, .. } => {
            Tone::Good.line("all checks pass before any work: no model is asked")
        }
        Event::BaselineFinished { .. } => {
            Tone::Progress.line("the checks fail before the first request, which has their report")
        }
        Event::ProtectedRestored {
            restored, removed, ..
        } => Tone::Warning.line(put_back(restored, removed)?),
        _ => return None,
    };
    Some(line)
}

fn notice_line(event: &Event) -> Option<EventText> {
    let line = match event {
        // Whole, because it holds something to paste.
        Event::SandboxFound {
            message, is_note, ..
        } if *is_note => Tone::Warning.line(message),
        Event::SandboxFound { message, .. } => Tone::Progress.line(message),
        Event::NoteAdded { note, .. } => Tone::Warning.line(format!("note: {}", few_lines(note))),
        Event::ProgressMessage { message, .. } => Tone::Progress.line(few_lines(message)),
        Event::ErrorOccurred { .. } => return error_line(event),
        Event::LogMended {
            dropped_bytes,
            kept_as,
            ..
        } => Tone::Warning.line(format!(
            "the end of the log could not be read and was cut off ({dropped_bytes} bytes, kept as logs/{kept_as})"
        )),
        _ => return None,
    };
    Some(line)
}

/// A phase with its attempt, such as `testing (attempt 2 of 6)`.
pub(super) fn phase(state_name: &str, attempt: u32, of: u32) -> String {
    format!(
        "{} (attempt {attempt} of {of})",
        name(state_name).to_lowercase()
    )
}

/// The same in fewer columns, such as `testing 2/6`.
pub(super) fn short_phase(state_name: &str, attempt: u32, of: u32) -> String {
    format!("{} {attempt}/{of}", name(state_name).to_lowercase())
}

/// A name on one line, cut where it is very long.
pub(super) fn name(text: &str) -> String {
    cut_chars(&escaped(text), MAX_NAME_CHARACTERS, "...")
}

pub(super) fn money(usd: f64) -> String {
    format!("${usd:.4}")
}

/// A limit, which is mostly in whole cents.
pub(super) fn money_limit(usd: f64) -> String {
    let text = money(usd);
    match text.strip_suffix("00") {
        Some(cents) => cents.to_owned(),
        None => text,
    }
}

/// Whole seconds as `5 s`, `1 min 5 s` or `2 h 3 min`.
pub(super) fn minutes(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// The start of a run; `details` follow its file.
pub(super) fn started(event: &Event, details: &str) -> Option<EventText> {
    let Event::WorkflowStarted {
        workflow_id,
        spec_file,
        resumed,
        debug_dir,
        ..
    } = event
    else {
        return None;
    };
    let verb = if *resumed { "resumed" } else { "started" };
    let (run, file) = (name(workflow_id), name(spec_file));
    let mut text = format!("run {run} {verb}: {file}{details}");
    if let Some(directory) = debug_dir {
        text += &format!(", debug files in {}", name(directory));
    }
    Some(Tone::Progress.line(text))
}

fn ending(verb: &str, spent: &str, reason: &str, message: &str) -> String {
    format!(
        "{verb} after {spent} ({}): {}",
        name(reason),
        few_lines(message)
    )
}

/// The end of a run that a signal or an error of the machine stopped.
fn interrupted(spent: &str, reason: &str, message: &str) -> String {
    let message = few_lines(message);
    match message.strip_prefix("interrupted ") {
        Some(by) => format!("interrupted {by} after {spent}"),
        None => ending("interrupted", spent, reason, &message),
    }
}

/// A call of a tool with the first line of its command, and a mark where there is more.
pub(super) fn called(tool_name: &str, arguments: &serde_json::Value) -> String {
    let what = arguments["command"].as_str().filter(|_| {
        arguments["action"]
            .as_str()
            .is_none_or(|word| word == "run")
    });
    let what = what.or(arguments["action"].as_str()).unwrap_or_default();
    let mut lines = what.trim().lines();
    let first = name(lines.next().unwrap_or_default());
    let mark = lines.next().map_or("", |_| " ...");
    format!("{}: {first}{mark}", name(tool_name))
}

/// A request after the first of its phase.
fn asked(turn: u32, objection: Option<Objection>) -> String {
    let why = match objection {
        None => "",
        Some(Objection::Reminder) => ": the last answer changed nothing",
        Some(Objection::Tampering) => ": it wrote a file that decides the checks, which is refused",
    };
    format!("asking the model, turn {}{why}", turn + 1)
}

/// The first line of what a model says beside files, tool calls and prints, which have lines of their own.
fn first_words(answer: &Value) -> Option<String> {
    let blocks = answer["content"].as_array()?;
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    let text = without_prints(&texts.collect::<Vec<_>>().join("\n"));
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty())?;
    let is_file = first.starts_with("<file ") || first.starts_with("<delete ");
    (!is_file).then(|| first.to_owned())
}

fn without_prints(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, print)) = rest.split_once("<print>") {
        kept += before;
        rest = print.split_once("</print>").map_or("", |(_, after)| after);
    }
    kept + rest
}

/// The outcome of a tool's call, indented below the call.
fn returned(event: &Event) -> Option<String> {
    let Event::ToolReturned {
        tool_name,
        ran,
        is_error,
        output,
        execution_time_ms,
        ..
    } = event
    else {
        return None;
    };
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    // The editor says first what it did; of a program the end is what counts.
    let said = match tool_name.as_str() {
        EDITOR => lines.next(),
        _ => lines.next_back(),
    };
    let said = said.filter(|said| *said != NO_OUTPUT);
    let time = seconds(Duration::from_millis(*execution_time_ms));
    let outcome = match (*ran, *is_error) {
        (false, _) => "not run".to_owned(),
        (true, true) => format!("failed, {time}"),
        (true, false) => format!("ok, {time}"),
    };
    Some(match said {
        None => format!("  {outcome}"),
        Some(said) => format!("  {outcome}: {}", name(said)),
    })
}

/// Whether an error is that of a request, or of all attempts at one. One that is not retried ends or pauses the agent.
pub(super) fn is_request_error(error_type: &str) -> bool {
    matches!(error_type, "model" | "step")
}

fn error_line(event: &Event) -> Option<EventText> {
    let Event::ErrorOccurred {
        error_type,
        error_message,
        is_retryable,
        retry_count,
        max_retries,
        ..
    } = event
    else {
        return None;
    };
    // What the failure of the last attempt leads to, a permanent error or a pause, has a line of its own.
    if is_request_error(error_type) && !is_retryable {
        return None;
    }
    let message = few_lines(error_message);
    Some(if *is_retryable {
        let aside = format!("retry {retry_count} of {max_retries}");
        Tone::Warning.line(with_aside(&message, &aside))
    } else {
        Tone::Error.line(format!("error: {message}"))
    })
}

fn applied(written: &[String], deleted: &[String]) -> Option<String> {
    let parts = [("wrote", written), ("deleted", deleted)];
    listed(parts.map(|(verb, paths)| (format!("{verb} {}", count(paths.len(), "file")), paths)))
}

fn put_back(restored: &[String], removed: &[String]) -> Option<String> {
    let back = format!("put back {}", count(restored.len(), "protected file"));
    let gone = format!(
        "removed {} from protected folders",
        count(removed.len(), "foreign file")
    );
    listed([(back, restored), (gone, removed)])
}

/// Joins actions with their paths; `None` where no action has any.
fn listed(actions: [(String, &[String]); 2]) -> Option<String> {
    let actions = actions.iter().filter(|(_, paths)| !paths.is_empty());
    let lists: Vec<String> = actions
        .map(|(action, paths)| format!("{action}: {}", names(paths)))
        .collect();
    (!lists.is_empty()).then(|| lists.join("; "))
}

pub(super) fn names(paths: &[String]) -> String {
    let mut names: Vec<String> = paths
        .iter()
        .take(MAX_NAMES)
        .map(|path| cut_inside(&escaped(path), MAX_LISTED_CHARACTERS))
        .collect();
    if MAX_NAMES < paths.len() {
        names.push(format!("{} more", paths.len() - MAX_NAMES));
    }
    names.join(", ")
}

pub(super) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Adds an aside at the end of the first line.
fn with_aside(text: &str, aside: &str) -> String {
    match text.split_once('\n') {
        None => format!("{text} ({aside})"),
        Some((first, rest)) => format!("{first} ({aside})\n{rest}"),
    }
}

/// A foreign text, printable and short.
pub(super) fn few_lines(text: &str) -> String {
    let plain = printable(text);
    let mut lines = plain.lines().filter(|line| !line.trim().is_empty());
    let mut few: Vec<String> = lines
        .by_ref()
        .take(MAX_LINES)
        .map(|line| cut_chars(line, MAX_LINE_CHARACTERS, "..."))
        .collect();
    match lines.count() {
        0 => {}
        more => few.push(format!("... {}", count(more, "more line"))),
    }
    few.join("\n  ")
}

fn spent(time: Duration, usd: Option<f64>) -> String {
    let time = seconds(time);
    usd.map_or(time.clone(), |usd| format!("{time}, {}", money(usd)))
}

pub(super) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_millis() as f64 / 1000.0),
        whole => minutes(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_and_have_units() {
        let check = |millis, expected| assert_eq!(seconds(Duration::from_millis(millis)), expected);
        check(0, "0.0 s");
        check(340, "0.3 s");
        check(59_900, "59.9 s");
        check(65_900, "1 min 5 s");
        check(7_380_000, "2 h 3 min");
        assert_eq!(minutes(59), "59 s");
        assert_eq!(money_limit(1.0), "$1.00");
        assert_eq!(money_limit(0.125), "$0.1250");
    }

    #[test]
    fn names_beyond_the_first_are_counted() {
        let paths: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(
            applied(&paths, &[]).unwrap(),
            "wrote 7 files: 0, 1, 2, 3, 4, 2 more"
        );
        assert_eq!(applied(&[], &[]), None);
    }

    #[test]
    fn foreign_text_is_cut_and_indented() {
        assert_eq!(few_lines("a\n\n  b\n"), "a\n    b");
        assert_eq!(few_lines(""), "");
    }
}
