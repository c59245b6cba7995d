//! What earlier attempts changed and why they failed, a line each for the next prompt.
//!
//! An attempt is numbered by the patches before it (`retry_count`). It is a fold of the log, so that a resumed run says what
//! an uninterrupted one would have said.

use std::collections::BTreeMap;

use crate::events::Event;
use crate::state::phase::Phase;
use crate::state::run::RunState;
use crate::text::shorten::cut_chars;

/// Files named in a line.
const MOST_FILES: usize = 8;
/// Characters of a name in a line.
const NAME_CHARACTERS: usize = 100;
/// Characters of a cause in a line.
const CAUSE_CHARACTERS: usize = 160;
/// The field of a transition to PATCHING that holds the first cause.
pub(crate) const CAUSE: &str = "cause";

/// The attempts of a run so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    known: BTreeMap<u64, Attempt>,
    /// An attempt whose files were written and not yet tested.
    applied: Option<Attempt>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Attempt {
    written: Vec<String>,
    deleted: Vec<String>,
    cause: String,
}

impl Attempts {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::FilesApplied {
                written, deleted, ..
            } => {
                self.applied = Some(Attempt {
                    written: written.clone(),
                    deleted: deleted.clone(),
                    cause: String::new(),
                });
            }
            Event::TransitionOccurred {
                to_state, metadata, ..
            } => {
                let number = metadata["retry_count"].as_u64().unwrap_or_default();
                let to_state = to_state.as_deref().and_then(Phase::of_name);
                if let Some(attempt) = self.applied.take_if(|_| to_state == Some(Phase::Testing)) {
                    self.known.insert(number, attempt);
                }
                if let (Some(Phase::Patching), Some(cause)) = (to_state, metadata[CAUSE].as_str()) {
                    self.known.entry(number).or_default().cause = cause.to_owned();
                }
            }
            _ => {}
        }
    }

    /// For the prompt: that the last `equal` attempts failed alike, and what each of them changed.
    pub(crate) fn repeated_failure(&self, equal: usize) -> String {
        let mut text = format!(
            "The last {equal} attempts failed in the same way. What they changed did not touch the cause:"
        );
        for (index, attempt) in self.known.iter().rev().take(equal).rev() {
            text += &format!("\n- Attempt {} {}", index + 1, attempt.changes());
        }
        text + "\nLook for the cause elsewhere and try another way."
    }

    /// For the prompt: which attempt this is, how many are left, and a line for each earlier one.
    pub(crate) fn summary(&self, state: &RunState) -> String {
        let (number, all) = state.attempt();
        let mut text = match all - number {
            0 => format!("This is attempt {number} of {all}, the last one."),
            1 => format!("This is attempt {number} of {all}; 1 more is left after it."),
            left => format!("This is attempt {number} of {all}; {left} more are left after it."),
        };
        let mut earlier = self.known.clone();
        if let Some(last) = u64::from(number).checked_sub(2) {
            // A power cut can lose the newest lines of the log; the state was synced.
            let last = earlier.entry(last).or_default();
            if last.written.is_empty() && last.deleted.is_empty() {
                last.written.clone_from(&state.attempt_files);
            }
            if last.cause.is_empty() {
                last.cause = first_cause(&state.last_test_output);
            }
        }
        for (index, attempt) in earlier.range(..u64::from(number) - 1) {
            text += &format!("\n- Attempt {}: {}", index + 1, attempt.line());
        }
        text
    }
}

impl Attempt {
    fn line(&self) -> String {
        let mut line = self.changes();
        if !self.cause.is_empty() {
            line += &format!("; failed with: {}", self.cause);
        }
        line
    }

    /// What it wrote and deleted.
    fn changes(&self) -> String {
        match (self.written.is_empty(), self.deleted.is_empty()) {
            (true, true) => "changed nothing".to_owned(),
            (false, true) => format!("wrote {}", list(&self.written)),
            (true, false) => format!("deleted {}", list(&self.deleted)),
            (false, false) => format!(
                "wrote {}; deleted {}",
                list(&self.written),
                list(&self.deleted)
            ),
        }
    }
}

fn list(names: &[String]) -> String {
    let mut shown: Vec<String> = names
        .iter()
        .take(MOST_FILES)
        .map(|name| shortened(name))
        .collect();
    if names.len() > MOST_FILES {
        shown.push(format!("{} more", names.len() - MOST_FILES));
    }
    shown.join(", ")
}

/// Keeps the end of a path, which says more than its beginning.
fn shortened(name: &str) -> String {
    let characters = name.chars().count();
    let end: String = name
        .chars()
        .skip(characters.saturating_sub(NAME_CHARACTERS))
        .collect();
    let cut = if characters > NAME_CHARACTERS {
        "…"
    } else {
        ""
    };
    format!("{cut}{}", end.escape_debug())
}

/// The first cause of a report in one line: the first of its list, else the heading of the first failed check.
pub(crate) fn first_cause(report: &str) -> String {
    let listed = whole_cause(report).and_then(|cause| cause.lines().next());
    let heading = || report.lines().find_map(|line| line.strip_prefix("## "));
    let line = without_root(listed.or_else(heading).unwrap_or_default().trim());
    cut_chars(&line, CAUSE_CHARACTERS, "…")
}

/// The first cause of a report that lists causes, with all its lines.
pub(crate) fn whole_cause(report: &str) -> Option<&str> {
    let (_, list) = report.split_once("\nWhat failed:\n")?;
    let (border, _) = list.split_once('\n')?;
    // What a check printed ends with a line that it does not contain.
    let end = format!("\n{}", border.replacen(" begin ", " end ", 1));
    let list = list.split_once(&end).map_or(list, |(list, _)| list);
    let start = list.find("\n1. ")? + "\n1. ".len();
    let cause = &list[start..];
    let cause = cause.split_once("\n2. ").map_or(cause, |(first, _)| first);
    Some(cause.trim_end())
}

/// Makes paths in the workspace relative, so that a line is cut at the same character wherever the root is.
fn without_root(line: &str) -> String {
    const FOLDER: &str = "/workspace/";
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(FOLDER) {
        let is_edge =
            |character: char| character.is_whitespace() || "'\"`(<[=,".contains(character);
        let start = rest[..at].rfind(is_edge).map_or(0, |edge| edge + 1);
        text += &rest[..start];
        rest = &rest[at + FOLDER.len()..];
    }
    text + rest
}

/// The cause that a transition to PATCHING records.
pub(crate) fn cause_of(state: &RunState, to: Phase) -> Option<String> {
    (to == Phase::Patching).then(|| first_cause(&state.last_test_output))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::events::MAIN_AGENT;
    use crate::state::run::{NewRun, new_run_id};

    #[test]
    fn the_first_cause_is_one_line() {
        let report = "1 check failed.\n\n## Check unit failed: exit code 1\nCommand: x\n\nWhat failed:\n----- begin output-1 -----\n\
                      1. cannot import 'a' from 'b' (/home/me/p/workspace/b.py)\n  at c.py:3\n";
        assert_eq!(first_cause(report), "cannot import 'a' from 'b' (b.py)");
        assert_eq!(
            first_cause("1 check failed.\n\n## Check unit failed: exit code 1\n"),
            "Check unit failed: exit code 1"
        );
        assert_eq!(first_cause(""), "");
        assert_eq!(
            whole_cause(report),
            Some("cannot import 'a' from 'b' (/home/me/p/workspace/b.py)\n  at c.py:3")
        );
        assert_eq!(
            first_cause(&format!("## {}", "é".repeat(500)))
                .chars()
                .count(),
            CAUSE_CHARACTERS + 1
        );
        assert_eq!(
            without_root("a '/x/workspace/b' /y/workspace/c/d, workspace/e"),
            "a 'b' c/d, workspace/e"
        );
    }

    #[test]
    fn a_whole_cause_has_all_its_lines_and_nothing_of_the_next() {
        let long = "x".repeat(5000);
        let report = format!(
            "1 check failed.\n\nWhat failed:\n----- begin output-2 -----\n1. {long}\n  a.py:1\n   tests: t\n2. more\n\
             ----- end output-2 -----\n\nStandard output: empty\n"
        );
        let expected = format!("{long}\n  a.py:1\n   tests: t");
        assert_eq!(whole_cause(&report), Some(expected.as_str()));
        let alone = report.replace("\n2. more", "");
        assert_eq!(whole_cause(&alone), Some(expected.as_str()));
        assert_eq!(whole_cause("## Check unit failed\n"), None);
    }

    fn wrote(name: &str) -> Event {
        Event::FilesApplied {
            agent_id: MAIN_AGENT.into(),
            written: vec![name.into()],
            deleted: Vec::new(),
            hashes: BTreeMap::new(),
            unchanged: false,
        }
    }

    fn moved(from_state: Phase, to_state: Phase, retry_count: u32, cause: &str) -> Event {
        let metadata = match to_state {
            Phase::Patching => json!({"retry_count": retry_count, "cause": cause}),
            _ => json!({"retry_count": retry_count}),
        };
        Event::TransitionOccurred {
            agent_id: MAIN_AGENT.into(),
            from_state: from_state.name().into(),
            to_state: Some(to_state.name().into()),
            transition_type: "advance".into(),
            metadata,
        }
    }

    fn state(phase: Phase, retry_count: u32) -> RunState {
        let birth = NewRun {
            run_id: new_run_id(),
            spec_file: "s.yaml",
            spec_hash: "",
            max_retries: 3,
            price_is_known: true,
            continues: None,
        };
        let mut state = RunState::new(birth);
        (state.phase, state.retry_count) = (phase, retry_count);
        state
    }

    #[test]
    fn earlier_attempts_have_a_line_each_whatever_was_repeated() {
        let mut attempts = Attempts::default();
        assert_eq!(
            attempts.summary(&state(Phase::Generating, 0)),
            "This is attempt 1 of 4; 3 more are left after it."
        );
        let events = [
            wrote("a.py"),
            wrote("a.py"),
            moved(Phase::Generating, Phase::Testing, 0, ""),
            moved(Phase::Testing, Phase::Patching, 0, "first"),
            moved(Phase::Patching, Phase::Testing, 0, ""),
            moved(Phase::Testing, Phase::Patching, 0, "first again"),
            wrote("b.py"),
            moved(Phase::Patching, Phase::Testing, 1, ""),
            moved(Phase::Testing, Phase::Patching, 1, "second"),
        ];
        events.iter().for_each(|event| attempts.apply(event));
        let expected = "This is attempt 3 of 4; 1 more is left after it.\n\
                        - Attempt 1: wrote a.py; failed with: first again\n- Attempt 2: wrote b.py; failed with: second";
        assert_eq!(attempts.summary(&state(Phase::Patching, 1)), expected);
        assert!(
            attempts
                .summary(&state(Phase::Patching, 2))
                .starts_with("This is attempt 4 of 4, the last one.")
        );
    }
}
