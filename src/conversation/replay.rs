//! Replays a run from its log, offline: every request is compared with the recorded one and gets its answer.
//!
//! Prompts are compared as they are, except for the path of the root. In reports and in tool output, what varies by nature
//! (durations, addresses, dates, temporary paths) is normalised first. The first difference is shown.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use serde_json::Value;

use crate::conversation::event_log::Projection;
use crate::conversation::history::{ConversationHistory, Histories, RecordedAnswer};
use crate::error::{Error, Result};
use crate::events::{Event, RequestPlace};
use crate::regular_file::open_regular_file;
use crate::state::journal::read_lines;
use crate::state::reason::Reason;
use crate::state::store::real_path;
use crate::text::varying::without_varying_text;

/// Characters of a differing line in a message.
const SHOWN: usize = 160;
/// How many of those come before the difference.
const SHOWN_BEFORE: usize = 60;

/// A recorded run that answers requests.
#[derive(Debug)]
pub struct Replay {
    histories: Histories,
    /// Some lines could not be read, so the files that were written last are not known for sure.
    is_damaged: bool,
    /// The answers that were used.
    used: Mutex<BTreeSet<(String, RequestPlace)>>,
    /// Paths of the root: of the recorded run and of this one.
    roots: Vec<String>,
    /// The id of the recorded run, and of this one where prompts may contain it.
    run_ids: Vec<String>,
    /// The folders of both, likewise.
    folders: Vec<String>,
}

impl Replay {
    /// Reads a log, and applies its events to `facts` as well. A file that is not the log of a run is refused.
    pub fn load(path: &Path, root: &Path, facts: &mut dyn Projection) -> Result<Replay> {
        let file = open_regular_file(path, OFlags::empty()).map_err(|error| {
            Error::Usage(format!("cannot open the log {}: {error}", path.display()))
        })?;
        let mut histories = Histories::default();
        let (mut recorded_root, mut run_ids, mut folders) = (None, Vec::new(), Vec::new());
        let read = read_lines(&file, None, &mut |line, event| {
            facts.apply(line, &event);
            if let Event::WorkflowStarted {
                scope_dir,
                workflow_id,
                folder,
                ..
            } = &event
            {
                recorded_root = Some(scope_dir.clone());
                run_ids = vec![workflow_id.clone()];
                folders = folder.iter().cloned().collect();
            }
            histories.apply(line, &event);
        })
        .map_err(|error| {
            Error::Usage(format!("cannot read the log {}: {error}", path.display()))
        })?;
        if read.lines == 0 {
            return Err(Error::Spec(format!(
                "{}:1:1: this is not the log of a run",
                path.display()
            )));
        }
        let mut roots: Vec<String> = recorded_root.into_iter().collect();
        roots.extend([root, &real_path(root)].map(|root| root.display().to_string()));
        roots = roots
            .iter()
            .map(|root| root.trim_end_matches('/').to_owned())
            .filter(|root| !root.is_empty())
            .collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.len()));
        Ok(Replay {
            histories,
            is_damaged: !read.skipped.is_empty(),
            used: Mutex::default(),
            roots,
            run_ids,
            folders,
        })
    }

    /// The id and the folder of this run are equal to those of the recorded one.
    pub(crate) fn with_run(mut self, run_id: &str, folder: &Path) -> Replay {
        self.run_ids.push(run_id.to_owned());
        self.folders.push(folder.display().to_string());
        self
    }

    /// Returns the recorded answer to a request, or fails with what differs. `varying` are the parts of it that vary by
    /// nature.
    pub fn answer(
        &self,
        agent_id: &str,
        place: RequestPlace,
        request: &Value,
        varying: &[String],
    ) -> Result<RecordedAnswer> {
        let mismatch = |text: String| Error::Failed(Reason::ReplayMismatch, text);
        let history = self.conversations(agent_id);
        let Some(recorded) = history.answer(place) else {
            return Err(mismatch(format!(
                "the log has no answer for this request ({place})"
            )));
        };
        // The request's line may be damaged; its answer is there all the same.
        let asked = history.request(place).map(|asked| &asked.content);
        if let Some(difference) = asked.and_then(|asked| self.difference(asked, request, varying)) {
            return Err(mismatch(format!(
                "the request differs from the recorded one ({place}): {difference}"
            )));
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.insert((agent_id.to_owned(), place));
        Ok(recorded.clone())
    }

    /// The answers that were not asked for, as a sentence.
    pub fn unused_answers(&self) -> Option<String> {
        let mut answers = BTreeSet::new();
        for (agent, history) in self.histories.iter() {
            let places = history.answer_places().into_iter();
            answers.extend(places.map(|place| (agent.to_owned(), place)));
        }
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unused = answers.difference(&used);
        let (count, (_, first)) = (unused.clone().count(), unused.next()?);
        Some(format!(
            "{count} of its answers were not asked for, the first one at {first}"
        ))
    }

    /// Whether the files of a replay can be compared: every line was read, and the effect of every call is known.
    pub fn is_repeatable(&self) -> bool {
        !self.is_damaged
            && !self
                .histories
                .iter()
                .any(|(_, history)| history.has_unknown_outcomes())
    }

    /// What the recorded run has of an agent's conversations.
    pub fn conversations(&self, agent_id: &str) -> &ConversationHistory {
        self.histories.of(agent_id)
    }

    /// The first line in which two texts differ after normalising.
    pub fn first_difference(&self, recorded: &str, now: &str) -> Option<String> {
        let (recorded, now) = (self.plain(recorded.to_owned()), self.plain(now.to_owned()));
        first_difference(recorded.lines(), now.lines())
    }

    fn difference(&self, recorded: &Value, request: &Value, varying: &[String]) -> Option<String> {
        let (recorded, request) = (said(recorded, &[]), said(request, varying));
        let mut lines = (Vec::new(), Vec::new());
        for index in 0..recorded.len().max(request.len()) {
            let (old, new) = (recorded.get(index), request.get(index));
            // Whether a line varies is known of the new request only.
            let varies = new.or(old).is_some_and(|line| line.varies);
            let plain = |line: &RequestLine| {
                let text = self.without_roots(line.text.clone());
                if varies {
                    without_varying_text(&text)
                } else {
                    text
                }
            };
            lines.0.extend(old.map(plain));
            lines.1.extend(new.map(plain));
        }
        first_difference(
            lines.0.iter().map(String::as_str),
            lines.1.iter().map(String::as_str),
        )
    }

    fn plain(&self, text: String) -> String {
        without_varying_text(&self.without_roots(text))
    }

    fn without_roots(&self, mut text: String) -> String {
        if let [_, _, ..] = self.folders.as_slice() {
            for folder in &self.folders {
                text = text.replace(folder.as_str(), "<folder>");
            }
        }
        for root in &self.roots {
            text = text.replace(root.as_str(), "<root>");
        }
        // One id alone: prompts do not contain it.
        if let [_, _, ..] = self.run_ids.as_slice() {
            for id in &self.run_ids {
                text = text.replace(id.as_str(), "<run>");
            }
        }
        text
    }
}

/// A line of a request.
#[derive(Debug, PartialEq, Eq)]
struct RequestLine {
    text: String,
    /// Part of it comes from a report or from tool output.
    varies: bool,
}

/// All texts of a request, line by line.
fn said(request: &Value, varying: &[String]) -> Vec<RequestLine> {
    let mut lines = Vec::new();
    let mut add = |text: &str, parts: Option<&[String]>| {
        // `None`: all of it varies.
        let ranges: Vec<_> = parts
            .unwrap_or_default()
            .iter()
            .filter_map(|part| range_of(text, part))
            .collect();
        let mut at = 0;
        for line in text.split('\n') {
            let end = at + line.len();
            let varies = parts.is_none()
                || ranges
                    .iter()
                    .any(|range| range.start <= end && at < range.end);
            lines.push(RequestLine {
                text: line.to_owned(),
                varies,
            });
            at = end + 1;
        }
    };
    for part in ["system", "tools", "messages"] {
        add(&format!("[{part}]"), Some(&[]));
        let mut texts = Vec::new();
        strings(&request[part], false, &mut texts);
        for (text, is_output) in texts {
            add(&text, (!is_output).then_some(varying));
        }
    }
    lines
}

/// The last occurrence of a part in a text; a report comes late in a prompt.
fn range_of(text: &str, part: &str) -> Option<Range<usize>> {
    let part = part.trim();
    let start = text.rfind(part).filter(|_| !part.is_empty())?;
    Some(start..start + part.len())
}

fn first_difference<'a>(
    mut old: impl Iterator<Item = &'a str>,
    mut new: impl Iterator<Item = &'a str>,
) -> Option<String> {
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                let from = old.zip(new).map_or(0, |(old, new)| {
                    difference_begins(old, new).saturating_sub(SHOWN_BEFORE)
                });
                let show = |line: Option<&str>| {
                    line.map_or("(its end)".into(), |line| shortened(line, from))
                };
                return Some(format!(
                    "line {number}: recorded {}, now {}",
                    show(old),
                    show(new)
                ));
            }
        }
    }
    None
}

/// The number of characters before two lines differ.
fn difference_begins(old: &str, new: &str) -> usize {
    old.chars()
        .zip(new.chars())
        .take_while(|(old, new)| old == new)
        .count()
}

fn shortened(line: &str, from: usize) -> String {
    let before = if from > 0 { "…" } else { "" };
    let cut: String = line.chars().skip(from).take(SHOWN).collect();
    let after = if line.chars().nth(from + SHOWN).is_some() {
        "…"
    } else {
        ""
    };
    format!("{before}{cut:?}{after}")
}

/// Every string inside a value, in order, and whether it is tool output.
fn strings(value: &Value, is_output: bool, out: &mut Vec<(String, bool)>) {
    match value {
        Value::String(text) => out.push((text.clone(), is_output)),
        Value::Array(items) => items.iter().for_each(|item| strings(item, is_output, out)),
        Value::Object(fields) => {
            let is_output =
                is_output || fields.get("type").is_some_and(|kind| kind == "tool_result");
            fields
                .values()
                .for_each(|field| strings(field, is_output, out));
        }
        other => out.push((other.to_string(), is_output)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn replay() -> Replay {
        Replay {
            histories: Histories::default(),
            is_damaged: false,
            used: Mutex::default(),
            roots: vec!["/a/root".into()],
            run_ids: Vec::new(),
            folders: Vec::new(),
        }
    }

    fn request(text: &str) -> Value {
        json!({"model": "x", "system": "s", "messages": [{"content": [{"type": "text", "text": text}]}]})
    }

    #[test]
    fn the_first_difference_is_shown() {
        let difference =
            |old: &str, new: &str| replay().difference(&request(old), &request(new), &[]);
        assert_eq!(difference("in /a/root/x\nok", "in <root>/x\nok"), None);
        let two = difference("one\ntwo", "one\nthree").unwrap();
        assert!(
            two.contains("\"two\"") && two.contains("\"three\""),
            "{two}"
        );
        assert!(difference("one\ntwo", "one").unwrap().contains("\"two\""));
    }

    #[test]
    fn only_reports_and_output_are_without_varying_text() {
        let prompt = |task: &str, report: &str| {
            format!("# Task\nWait {task}.\n\n# Report\n{report}\n\nAnswer.")
        };
        let difference = |task: &str, old: &str, new: &str| {
            let varying = [new.to_owned()];
            replay().difference(
                &request(&prompt("5 seconds", old)),
                &request(&prompt(task, new)),
                &varying,
            )
        };
        assert_eq!(
            difference("5 seconds", "failed in 0.03s\nx", "failed in 0.04s\nx"),
            None
        );
        assert!(
            difference("90 minutes", "in 0.03s", "in 0.04s")
                .unwrap()
                .contains("90 minutes")
        );
        assert!(difference("5 seconds", "3 failed in 0.03s", "4 failed in 0.04s").is_some());
        let result = |text: &str| json!({"messages": [{"content": [{"type": "tool_result", "text": text}]}]});
        assert_eq!(
            replay().difference(&result("took 3 ms"), &result("took 4 ms"), &[]),
            None
        );
        assert!(
            replay()
                .difference(&result("a"), &result("b"), &[])
                .is_some()
        );
    }
}
