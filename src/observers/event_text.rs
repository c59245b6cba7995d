//! What an event is in words: the lines that a developer reads.
//!
//! Pure: an event and the time so far in, a line out. All that comes from outside passes `text::invisible` and is cut to a
//! few lines, the later ones indented, so that no foreign text can pass for a line of ours.

use std::time::Duration;

use crate::events::Event;
use crate::text::invisible::{escaped, printable};
use crate::text::shorten::cut_chars;

const MAX_LINES: usize = 6;
const MAX_LINE_CHARACTERS: usize = 300;
const MAX_NAME_CHARACTERS: usize = 120;
const MAX_NAMES: usize = 5;

/// How a line is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Progress,
    Good,
    Bad,
    Warning,
    Error,
}

impl Tone {
    /// Whether the line is said even to a user who wants quiet.
    pub fn is_loud(self) -> bool {
        matches!(self, Tone::Warning | Tone::Error)
    }
}

/// One thing worth saying: plain text, more than one line only where a foreign text has more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventText {
    pub tone: Tone,
    pub text: String,
}

/// Returns what to say of an event, if anything; `elapsed` is the time since the command began.
pub fn line_of(event: &Event, elapsed: Duration) -> Option<EventText> {
    let (tone, text) = match event {
        Event::WorkflowStarted { .. } => (Tone::Progress, started(event)?),
        Event::WorkflowCompleted {
            outcome,
            reason,
            message,
            total_cost_usd,
            ..
        } => {
            return Some(completed(
                outcome == "SUCCESS",
                reason,
                message,
                &spent(elapsed, *total_cost_usd),
            ));
        }
        Event::WorkflowPaused {
            reason,
            message,
            total_cost_usd,
            ..
        } => (
            Tone::Error,
            ending("paused", &spent(elapsed, *total_cost_usd), reason, message),
        ),
        Event::WorkflowInterrupted {
            reason, message, ..
        } => (
            Tone::Error,
            ending("interrupted", &spent(elapsed, None), reason, message),
        ),
        Event::StateStarted { state_name, .. } if state_name == "INIT" => return None,
        Event::StateStarted {
            state_name,
            attempt,
            of,
            ..
        } => (Tone::Progress, phase(state_name, *attempt, *of)),
        Event::ToolCalled {
            tool_name,
            arguments,
            ..
        } => (Tone::Progress, called(tool_name, arguments)),
        Event::EnvironmentsRestarted { .. } => {
            (Tone::Progress, "the environments were restarted".into())
        }
        Event::ModelRequested { place, .. } if place.turn == 0 => return None,
        Event::ModelRequested { place, .. } => (
            Tone::Progress,
            format!("asking the model, turn {}", place.turn + 1),
        ),
        Event::ModelRetried { attempt, .. } => (
            Tone::Progress,
            format!("asking the model again (try {attempt})"),
        ),
        Event::ModelAnswered { .. } => return answered(event),
        Event::FilesApplied {
            written, deleted, ..
        } => (Tone::Progress, applied(written, deleted)?),
        Event::ScriptOutput { .. } => return checked(event),
        Event::ProtectedRestored {
            restored, removed, ..
        } => (Tone::Warning, put_back(restored, removed)?),
        // Whole, for it holds something to paste.
        Event::SandboxFound {
            message, is_note, ..
        } => (
            if *is_note {
                Tone::Warning
            } else {
                Tone::Progress
            },
            message.clone(),
        ),
        Event::NoteAdded { note, .. } => (Tone::Warning, format!("note: {}", few_lines(note))),
        Event::AnswerRefused { fault, .. } => (
            Tone::Progress,
            few_lines(&format!("the answer was not used: {fault}")),
        ),
        Event::ProgressMessage { message, .. } => (Tone::Progress, few_lines(message)),
        Event::ErrorOccurred { .. } => return broke(event),
        Event::LogMended {
            dropped_bytes,
            kept_as,
            ..
        } => {
            let text = "the end of the log could not be read and was cut off";
            (
                Tone::Warning,
                format!("{text} ({dropped_bytes} bytes, kept as logs/{kept_as})"),
            )
        }
        Event::StateCompleted { .. }
        | Event::PromptSent { .. }
        | Event::ConversationOpened { .. }
        | Event::ToolReturned { .. }
        | Event::ConversationClosed { .. }
        | Event::TransitionOccurred { .. }
        | Event::ClaudeInvocationStarted { .. }
        | Event::ModelStreamed { .. }
        | Event::ToolInvocation { .. }
        | Event::WorkspaceKept { .. }
        | Event::WorkspaceTested { .. }
        | Event::HiddenFilesPlaced { .. }
        | Event::HiddenFilesRemoved { .. } => return None,
    };
    Some(EventText { tone, text })
}

/// Returns a phase with its attempt, such as `testing (attempt 2 of 6)`.
pub fn phase(state_name: &str, attempt: u32, of: u32) -> String {
    format!(
        "{} (attempt {attempt} of {of})",
        name(state_name).to_lowercase()
    )
}

/// Returns a name on one line, cut where it is very long.
pub fn name(text: &str) -> String {
    cut_chars(&escaped(text), MAX_NAME_CHARACTERS, "...")
}

/// Returns a sum of money.
pub fn money(usd: f64) -> String {
    format!("${usd:.4}")
}

/// Returns whole seconds as a person would say them.
pub fn minutes(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

fn started(event: &Event) -> Option<String> {
    let Event::WorkflowStarted {
        workflow_id,
        spec_file,
        provider,
        model,
        resumed,
        debug_dir,
        ..
    } = event
    else {
        return None;
    };
    let verb = if *resumed { "resumed" } else { "started" };
    let mut text = format!(
        "run {} {verb}: {}, {}",
        name(workflow_id),
        name(spec_file),
        name(provider)
    );
    if !model.is_empty() {
        text += &format!(" {}", name(model));
    }
    if let Some(directory) = debug_dir {
        text += &format!(", debug files in {}", name(directory));
    }
    Some(text)
}

fn completed(success: bool, reason: &str, message: &str, spent: &str) -> EventText {
    if success {
        EventText {
            tone: Tone::Good,
            text: format!("succeeded after {spent}: {}", few_lines(message)),
        }
    } else {
        EventText {
            tone: Tone::Error,
            text: ending("failed", spent, reason, message),
        }
    }
}

fn ending(verb: &str, spent: &str, reason: &str, message: &str) -> String {
    format!(
        "{verb} after {spent} ({}): {}",
        name(reason),
        few_lines(message)
    )
}

fn answered(event: &Event) -> Option<EventText> {
    let Event::ModelAnswered {
        cost_usd,
        duration_ms,
        error,
        ..
    } = event
    else {
        return None;
    };
    let spent = spent(Duration::from_millis(*duration_ms), *cost_usd);
    Some(match error {
        None => EventText {
            tone: Tone::Progress,
            text: format!("the model answered ({spent})"),
        },
        Some(error) => EventText {
            tone: Tone::Error,
            text: with_aside(&format!("error: {}", few_lines(error)), &spent),
        },
    })
}

fn called(tool_name: &str, arguments: &serde_json::Value) -> String {
    let what = arguments["command"].as_str().filter(|_| {
        arguments["action"]
            .as_str()
            .is_none_or(|word| word == "run")
    });
    let what = what.or(arguments["action"].as_str()).unwrap_or_default();
    format!(
        "{}: {}",
        name(tool_name),
        name(what.trim().lines().next().unwrap_or_default())
    )
}

fn checked(event: &Event) -> Option<EventText> {
    let Event::ScriptOutput {
        tool_name,
        hidden,
        passed,
        problem,
        exit_code,
        execution_time_ms,
        tests,
        ..
    } = event
    else {
        return None;
    };
    let kind = if *hidden { "hidden check" } else { "check" };
    let time = seconds(Duration::from_millis(*execution_time_ms));
    let verdict = match (*passed, problem, tests) {
        (true, _, None) => "passed".to_owned(),
        (true, _, Some(tests)) => format!("passed, {}", count(tests.executed as usize, "test")),
        (false, Some(problem), _) => format!("failed, {}", few_lines(problem)),
        (false, None, _) => format!("failed, exit code {exit_code}"),
    };
    let tone = if *passed { Tone::Good } else { Tone::Bad };
    Some(EventText {
        tone,
        text: with_aside(&format!("{kind} {}: {verdict}", name(tool_name)), &time),
    })
}

fn broke(event: &Event) -> Option<EventText> {
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
    // The last attempt's failure is told with what it leads to: a permanent error, a pause.
    if error_type == "model" && !is_retryable {
        return None;
    }
    let message = few_lines(error_message);
    Some(if *is_retryable {
        let aside = format!("retry {retry_count} of {max_retries}");
        EventText {
            tone: Tone::Warning,
            text: with_aside(&message, &aside),
        }
    } else {
        EventText {
            tone: Tone::Error,
            text: format!("error: {message}"),
        }
    })
}

fn applied(written: &[String], deleted: &[String]) -> Option<String> {
    let parts = [("wrote", written), ("deleted", deleted)];
    said(parts.map(|(verb, paths)| (format!("{verb} {}", count(paths.len(), "file")), paths)))
}

fn put_back(restored: &[String], removed: &[String]) -> Option<String> {
    let back = format!("put back {}", count(restored.len(), "protected file"));
    let gone = format!(
        "removed {} from protected folders",
        count(removed.len(), "foreign file")
    );
    said([(back, restored), (gone, removed)])
}

/// Joins what was done to which paths; nothing where there are none.
fn said(parts: [(String, &[String]); 2]) -> Option<String> {
    let parts = parts.iter().filter(|(_, paths)| !paths.is_empty());
    let said: Vec<String> = parts
        .map(|(what, paths)| format!("{what}: {}", names(paths)))
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

fn names(paths: &[String]) -> String {
    let mut names: Vec<String> = paths
        .iter()
        .take(MAX_NAMES)
        .map(|path| name(path))
        .collect();
    if MAX_NAMES < paths.len() {
        names.push(format!("{} more", paths.len() - MAX_NAMES));
    }
    names.join(", ")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Puts an aside at the end of the first line.
fn with_aside(text: &str, aside: &str) -> String {
    match text.split_once('\n') {
        None => format!("{text} ({aside})"),
        Some((first, rest)) => format!("{first} ({aside})\n{rest}"),
    }
}

/// Returns a foreign text made harmless and short.
fn few_lines(text: &str) -> String {
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

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_millis() as f64 / 1000.0),
        whole => minutes(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_say_them() {
        let check = |millis, expected| assert_eq!(seconds(Duration::from_millis(millis)), expected);
        check(0, "0.0 s");
        check(340, "0.3 s");
        check(59_900, "59.9 s");
        check(65_900, "1 min 5 s");
        check(7_380_000, "2 h 3 min");
        assert_eq!(minutes(59), "59 s");
    }

    #[test]
    fn many_names_are_counted() {
        let paths: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        assert_eq!(
            applied(&paths, &[]).unwrap(),
            "wrote 7 files: 0, 1, 2, 3, 4, 2 more"
        );
        assert_eq!(applied(&[], &[]), None);
    }

    #[test]
    fn foreign_texts_are_cut() {
        assert_eq!(few_lines("a\n\n  b\n"), "a\n    b");
        assert_eq!(few_lines(""), "");
    }
}
