//! A markdown state: front matter and prompt.
//!
//! All mistakes of the file are reported at once. Names of states are not looked up here; `lint.rs` does it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use crate::source::code;
use crate::source::diagnostic::{Diagnostic, SourceFile};
use crate::source::finding::{Finding, FindingLevel, FindingList};
use crate::source::front_matter::split_front_matter;
use crate::source::node::{Node, NodeEntry, NodeValue, brief, unknown_name};
use crate::source::text_file::decode_lossy;
use crate::source::yaml::parse_yaml;
use crate::workflow::tags::{TagName, is_foreign_tag};

const KEYS: [&str; 5] = [
    "allowed_transitions",
    "model",
    "timeout",
    "effort",
    "force_implicit",
];
const ENTRY_KEYS: [&str; 7] = [
    "tag", "target", "return", "next", "join", "payload", "input",
];
/// The longest timeout; adding it to a clock cannot overflow.
const MAX_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// A state that a model is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MarkdownState {
    pub(crate) prompt: String,
    pub(crate) policy: Option<Policy>,
    pub(crate) model: Option<String>,
    /// Without any output; zero: none.
    pub(crate) timeout: Option<Duration>,
    pub(crate) effort: Option<String>,
}

/// The transitions that a state allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Not empty.
    pub(crate) entries: Vec<PolicyEntry>,
    /// The only entry is taken whatever the model writes.
    pub(crate) force_implicit: bool,
}

/// An allowed transition: a transition matches if it has the tag and every value that is set here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyEntry {
    pub(crate) tag: TagName,
    pub(crate) target: Option<String>,
    pub(crate) return_state: Option<String>,
    pub(crate) next: Option<String>,
    pub(crate) join: Option<String>,
    pub(crate) payload: Option<String>,
    /// A template; it is not compared.
    pub(crate) input: Option<String>,
    /// In the text without byte order mark.
    pub(crate) span: Range<usize>,
}

/// Where the values of a policy entry are, by key.
pub(super) type EntrySpans = BTreeMap<&'static str, Range<usize>>;

/// A markdown state as far as it can be read.
#[derive(Debug)]
pub(super) struct StateDraft {
    pub(super) source: SourceFile,
    pub(super) state: MarkdownState,
    /// Of each entry of the policy.
    pub(super) spans: Vec<EntrySpans>,
    /// Of the policy as it is written.
    pub(super) entry_count: usize,
    pub(super) findings: Vec<Finding>,
}

/// Reads a markdown state: the state, unless a finding is an error.
pub(crate) fn read_markdown(file: &str, bytes: &[u8]) -> (Option<MarkdownState>, Vec<Finding>) {
    let draft = read_draft(file, bytes);
    let is_valid = !draft.has_errors();
    (is_valid.then_some(draft.state), draft.findings)
}

/// Reads a markdown state as far as possible.
pub(super) fn read_draft(file: &str, bytes: &[u8]) -> StateDraft {
    let (source, mistake) = decode_lossy(Path::new(file), bytes);
    let mut reader = StateReader {
        text: &source.text,
        spans: Vec::new(),
        entry_count: 0,
        findings: FindingList::new(&source),
    };
    let state = match mistake {
        Some(mistake) => reader.refuse(&mistake),
        None => reader.state(),
    };
    let (spans, entry_count) = (reader.spans, reader.entry_count);
    let findings = reader.findings.into_vec();
    StateDraft {
        state: state.unwrap_or_default(),
        spans,
        entry_count,
        findings,
        source,
    }
}

impl StateDraft {
    pub(super) fn has_errors(&self) -> bool {
        self.findings.iter().any(Finding::is_error)
    }
}

struct StateReader<'a> {
    text: &'a str,
    spans: Vec<EntrySpans>,
    entry_count: usize,
    findings: FindingList<'a>,
}

impl StateReader<'_> {
    fn state(&mut self) -> Option<MarkdownState> {
        let (front_matter, prompt) = match split_front_matter(self.text) {
            Ok(parts) => parts,
            Err(mistake) => return self.refuse(&mistake),
        };
        let parsed = parse_yaml(front_matter);
        for mistake in &parsed.mistakes {
            self.refuse::<()>(mistake);
        }
        let state = parsed.whole_tree().and_then(|tree| self.fields(tree));
        if prompt.trim().is_empty() {
            let message = "there is no prompt: nothing to ask the model";
            self.findings
                .add_whole(FindingLevel::Error, code::EMPTY_PROMPT, message);
        }
        Some(MarkdownState {
            prompt: prompt.to_owned(),
            ..state?
        })
    }

    /// The state without its prompt.
    fn fields(&mut self, tree: &Node) -> Option<MarkdownState> {
        if tree.value == NodeValue::Null {
            return Some(MarkdownState::default());
        }
        let entries = self.accept(tree.entries())?;
        self.warn_of_unknown_keys(entries, &KEYS);
        let policy = value(entries, "allowed_transitions").and_then(|node| self.policy(node));
        let forced = self.read(entries, "force_implicit", Node::boolean);
        let policy = match (policy, forced) {
            (policy, Some(true)) => self.forced(policy, entries),
            (policy, _) => policy,
        };
        Some(MarkdownState {
            prompt: String::new(),
            policy,
            model: self.read(entries, "model", word),
            timeout: self.read(entries, "timeout", seconds),
            effort: self.read(entries, "effort", word),
        })
    }

    fn policy(&mut self, node: &Node) -> Option<Policy> {
        let items = match node.value {
            NodeValue::Null => &[],
            _ => self.accept(
                node.list()
                    .map_err(|mistake| in_key("allowed_transitions", mistake)),
            )?,
        };
        if items.is_empty() {
            let message = "`allowed_transitions` is empty: nothing would be allowed";
            return self.refuse(&node.mistake(message));
        }
        self.entry_count = items.len();
        let mut entries = Vec::new();
        for item in items {
            if let Some((entry, spans)) = self.entry(item) {
                entries.push(entry);
                self.spans.push(spans);
            }
        }
        Some(Policy {
            entries,
            force_implicit: false,
        })
    }

    fn entry(&mut self, node: &Node) -> Option<(PolicyEntry, EntrySpans)> {
        let entries = self.accept(node.entries())?;
        self.warn_of_unknown_keys(entries, &ENTRY_KEYS);
        let mut text = |key| self.read(entries, key, |node| node.text().map(str::to_owned));
        let [target, return_state, next, join] =
            ["target", "return", "next", "join"].map(&mut text);
        if let (Some(_), Some(join)) = (&next, find(entries, "join")) {
            let message = "`next` and `join` exclude each other";
            self.refuse::<()>(&Diagnostic::new(join.key_span.clone(), message));
        }
        let entry = PolicyEntry {
            payload: self.scalar(entries, "payload"),
            input: self.scalar(entries, "input"),
            tag: self.tag(node, entries)?,
            target,
            return_state,
            next,
            join,
            span: node.span.clone(),
        };
        Some((entry, spans(entries)))
    }

    fn tag(&mut self, node: &Node, entries: &[NodeEntry]) -> Option<TagName> {
        let Some(tag) = value(entries, "tag") else {
            return self.refuse(&node.mistake("missing key `tag`"));
        };
        let name = self.accept(tag.text())?;
        let known = TagName::of_word(name);
        if known.is_none() {
            let mistake = unknown_tag(tag.span.clone(), name);
            self.findings
                .add(FindingLevel::Error, code::UNKNOWN_TAG, &mistake);
        }
        known
    }

    /// The policy whose only entry is always taken.
    fn forced(&mut self, policy: Option<Policy>, entries: &[NodeEntry]) -> Option<Policy> {
        let problem = match policy.as_ref().map(|policy| policy.entries.as_slice()) {
            None if find(entries, "allowed_transitions").is_some() => return policy,
            None => Some("there is no policy"),
            Some([entry]) => not_implicit(entry),
            Some(_) => Some("the policy has several entries"),
        };
        if let (Some(problem), Some(entry)) = (problem, find(entries, "force_implicit")) {
            let message = format!("`force_implicit` needs one entry to take: {problem}");
            self.refuse::<()>(&Diagnostic::new(entry.key_span.clone(), message));
        }
        policy.map(|policy| Policy {
            force_implicit: true,
            ..policy
        })
    }

    /// Text; numbers and booleans as they are spelled.
    fn scalar(&mut self, entries: &[NodeEntry], key: &str) -> Option<String> {
        let text = self.text;
        self.read(entries, key, |node| match &node.value {
            NodeValue::Bool(_) | NodeValue::Integer(_) | NodeValue::Float(_) => {
                Ok(text.get(node.span.clone()).unwrap_or_default().to_owned())
            }
            _ => node.text().map(str::to_owned),
        })
    }

    fn read<T>(
        &mut self,
        entries: &[NodeEntry],
        key: &str,
        read: impl FnOnce(&Node) -> Result<T, Diagnostic>,
    ) -> Option<T> {
        let result = read(value(entries, key)?);
        self.accept(result.map_err(|mistake| in_key(key, mistake)))
    }

    fn warn_of_unknown_keys(&mut self, entries: &[NodeEntry], allowed: &[&str]) {
        for entry in entries {
            if !allowed.contains(&entry.key.as_str()) {
                let mistake = unknown_name("key", &entry.key_span, &entry.key, allowed);
                self.findings
                    .add(FindingLevel::Warning, code::UNKNOWN_KEY, &mistake);
            }
        }
    }

    fn accept<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(mistake) => self.refuse(&mistake),
        }
    }

    fn refuse<T>(&mut self, mistake: &Diagnostic) -> Option<T> {
        self.findings
            .add(FindingLevel::Error, code::FRONT_MATTER, mistake);
        None
    }
}

/// What can be written for a key.
fn example(key: &str) -> Option<String> {
    let example = match key {
        "allowed_transitions" => "allowed_transitions: [{tag: goto, target: NEXT}]",
        "model" => "model: claude-sonnet-5-5",
        "timeout" => "timeout: 600",
        "effort" => "effort: high",
        "force_implicit" => "force_implicit: true",
        "payload" => "payload: done",
        "input" => "input: '{{input}}'",
        "target" | "return" | "next" | "join" => return Some(format!("for example `{key}: NEXT`")),
        _ => return None,
    };
    Some(format!("for example `{example}`"))
}

/// The mistake with the key whose value it is in.
fn in_key(key: &str, mistake: Diagnostic) -> Diagnostic {
    Diagnostic {
        message: format!("`{key}`: {}", mistake.message),
        help: match &mistake.instead {
            None => mistake.help.or_else(|| example(key)),
            Some(_) => mistake.help,
        },
        instead: mistake.instead.map(|value| format!("{key}: {value}")),
        ..mistake
    }
}

fn find<'a>(entries: &'a [NodeEntry], key: &str) -> Option<&'a NodeEntry> {
    entries.iter().find(|entry| entry.key == key)
}

fn value<'a>(entries: &'a [NodeEntry], key: &str) -> Option<&'a Node> {
    find(entries, key).map(|entry| &entry.value)
}

fn spans(entries: &[NodeEntry]) -> EntrySpans {
    let spans = ENTRY_KEYS.map(|key| Some((key, value(entries, key)?.span.clone())));
    spans.into_iter().flatten().collect()
}

/// Text with more than blanks.
fn word(node: &Node) -> Result<String, Diagnostic> {
    node.nonempty_text().map(|text| text.trim().to_owned())
}

fn seconds(node: &Node) -> Result<Duration, Diagnostic> {
    match node.number()? {
        number if number < 0.0 => Err(node.mistake("must not be negative; 0 is no timeout")),
        number if MAX_SECONDS < number => Err(node.mistake("must be at most a year of seconds")),
        0.0 => Ok(Duration::ZERO),
        number => Ok(Duration::from_secs_f64(number).max(Duration::from_millis(1))),
    }
}

/// Why an entry cannot be taken without a tag in the output.
fn not_implicit(entry: &PolicyEntry) -> Option<&'static str> {
    match entry.tag {
        TagName::Ask => Some("an `ask` has a question of the model"),
        TagName::Result if entry.payload.is_none() => Some("the `result` has no `payload`"),
        TagName::Result => None,
        _ if entry.target.is_none() => Some("the entry has no `target`"),
        _ => None,
    }
}

/// The mistake of a tag that does not exist.
pub(super) fn unknown_tag(span: Range<usize>, name: &str) -> Diagnostic {
    if !is_foreign_tag(name) {
        return unknown_name("tag", &span, name, &TagName::ALL.map(TagName::word));
    }
    let own = name.trim_end_matches("-workflow");
    Diagnostic::new(span, format!("unknown tag `{}`", brief(name))).with_help(format!(
        "a workflow cannot start another one: put its states into this directory and use `{own}` with the name of a state"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings as `line level code`.
    fn findings(text: &str) -> String {
        let (state, findings) = read_markdown("A.md", text.as_bytes());
        assert_eq!(
            state.is_none(),
            findings.iter().any(Finding::is_error),
            "{text}"
        );
        let shown = findings.iter().map(|finding| {
            let level = finding.level.word();
            format!("{} {level} {}", finding.line, finding.code)
        });
        shown.collect::<Vec<_>>().join(", ")
    }

    fn read(text: &str) -> MarkdownState {
        let (state, findings) = read_markdown("A.md", text.as_bytes());
        state.unwrap_or_else(|| panic!("{text}: {findings:?}"))
    }

    #[test]
    fn front_matter_is_not_part_of_the_prompt() {
        let policy = "---\nallowed_transitions:\n  - {tag: goto, target: B}\n---\n";
        for (text, prompt, has_policy) in [
            ("Do it.\n".to_owned(), "Do it.\n", false),
            (format!("{policy}Do it."), "Do it.", true),
            (format!("\u{feff}{policy}Do it."), "Do it.", true),
            (
                policy.replace('\n', "\r\n") + "Do\r\nit.",
                "Do\r\nit.",
                true,
            ),
            ("---\n---\nDo it.".to_owned(), "Do it.", false),
            ("---\n# nothing\n---\nDo it.".to_owned(), "Do it.", false),
            (
                "Do\n---\nmodel: x\n---\n".to_owned(),
                "Do\n---\nmodel: x\n---\n",
                false,
            ),
            ("\n---\na\n---\n".to_owned(), "\n---\na\n---\n", false),
        ] {
            let state = read(&text);
            assert_eq!(
                (state.prompt.as_str(), state.policy.is_some()),
                (prompt, has_policy),
                "{text:?}"
            );
        }
    }

    #[test]
    fn every_key_is_read() {
        let state = read(
            "---\nmodel: haiku\ntimeout: 2.5\neffort: high\nforce_implicit: true\nallowed_transitions:\n\
             - tag: fork\n  target: W\n  next: N\n  input: '{{input}}'\n---\nx",
        );
        assert_eq!(state.model.as_deref(), Some("haiku"));
        assert_eq!(state.timeout, Some(Duration::from_millis(2500)));
        assert_eq!(state.effort.as_deref(), Some("high"));
        let policy = state.policy.unwrap();
        assert!(policy.force_implicit);
        let entry = &policy.entries[0];
        assert_eq!(
            (entry.tag, entry.target.as_deref(), entry.next.as_deref()),
            (TagName::Fork, Some("W"), Some("N"))
        );
        assert_eq!(entry.input.as_deref(), Some("{{input}}"));
        let none = (&entry.join, &entry.return_state, &entry.payload);
        assert_eq!(none, (&None, &None, &None));
    }

    #[test]
    fn numbers_and_booleans_are_payloads_as_they_are_spelled() {
        for (yaml, expected) in [
            ("5", "5"),
            ("5.0", "5.0"),
            ("0x1F", "0x1F"),
            ("true", "true"),
            ("''", ""),
            ("' a '", " a "),
            ("yes", "yes"),
        ] {
            let text =
                format!("---\nallowed_transitions:\n- {{tag: result, payload: {yaml}}}\n---\nx");
            let payload = read(&text).policy.unwrap().entries.remove(0).payload;
            assert_eq!(payload.as_deref(), Some(expected), "{yaml}");
        }
    }

    #[test]
    fn a_timeout_of_zero_is_none() {
        for (yaml, expected) in [("0", 0), ("0.0", 0), ("0.0000001", 1), ("7", 7000)] {
            let timeout = read(&format!("---\ntimeout: {yaml}\n---\nx")).timeout;
            assert_eq!(timeout, Some(Duration::from_millis(expected)), "{yaml}");
        }
    }

    #[test]
    fn mistakes_have_a_line_and_a_code() {
        let check = |front_matter: &str, expected: &str| {
            let text = format!("---\n{front_matter}\n---\nx\n");
            assert_eq!(findings(&text), expected, "{text}");
        };
        check("model: a", "");
        check("alowed: 1", "2 warning unknown-key");
        check("model: [a]", "2 error front-matter");
        check("model: 5", "2 error front-matter");
        check("model: ' '", "2 error front-matter");
        check("model:", "2 error front-matter");
        check("effort: [high]", "2 error front-matter");
        check("timeout: soon", "2 error front-matter");
        check("timeout: -1", "2 error front-matter");
        check("timeout: .inf", "2 error front-matter");
        check("timeout: 1e30", "2 error front-matter");
        check("force_implicit: 1", "2 error front-matter");
        check("force_implicit: false", "");
        check("force_implicit: true", "2 error front-matter");
        check("- a", "2 error front-matter");
        check("text", "2 error front-matter");
        check("model: a\nmodel: b", "3 error front-matter");
        check("allowed_transitions:", "2 error front-matter");
        check("allowed_transitions: []", "2 error front-matter");
        check("allowed_transitions: [goto]", "2 error front-matter");
        check(
            "allowed_transitions: {tag: goto, target: B}",
            "2 error front-matter",
        );
        check(
            "allowed_transitions:\n\t- x",
            "3 error front-matter, 3 error front-matter",
        );
        check(
            "model: 1\ntimeout: x\nfoo: 1",
            "4 warning unknown-key, 2 error front-matter, 3 error front-matter",
        );
    }

    #[test]
    fn mistakes_in_a_policy_have_a_line_and_a_code() {
        let check = |entries: &str, expected: &str| {
            let text = format!("---\nallowed_transitions:\n{entries}\n---\nx\n");
            assert_eq!(findings(&text), expected, "{text}");
        };
        check("- {tag: goto, target: B}", "");
        check("- {tag: ask, next: B}", "");
        check("- {tag: Goto, target: B}", "3 error unknown-tag");
        check("- {tag: call-workflow, target: B}", "3 error unknown-tag");
        check("- {tag: 5}", "3 error front-matter");
        check("- {target: B}", "3 error front-matter");
        check("- {}", "3 error front-matter");
        check("- tag: goto\n  target: 5", "4 error front-matter");
        check("- tag: goto\n  target:", "4 error front-matter");
        check(
            "- {tag: result, payload: [a]}\n- {tag: x}",
            "3 error front-matter, 4 error unknown-tag",
        );
        check("- tag: goto\n  to: B", "4 warning unknown-key");
        check(
            "- {tag: fork, target: W, next: A, join: A}",
            "3 error front-matter",
        );
        let forced = "\nforce_implicit: true";
        check(&format!("- {{tag: goto, target: B}}{forced}"), "");
        check(&format!("- {{tag: result, payload: ''}}{forced}"), "");
        let refused = "4 error front-matter";
        check(&format!("- {{tag: result}}{forced}"), refused);
        check(&format!("- {{tag: ask, next: B}}{forced}"), refused);
        check(&format!("- {{tag: goto}}{forced}"), refused);
        check(
            &format!("- {{tag: goto, target: B}}\n- {{tag: result}}{forced}"),
            "5 error front-matter",
        );
    }

    #[test]
    fn a_prompt_is_not_empty() {
        let fault = "1 error empty-prompt";
        for text in [
            "",
            " \n\t\n",
            "---\nmodel: a\n---",
            "---\r\nmodel: a\r\n---\r\n\r\n",
        ] {
            assert_eq!(findings(text), fault, "{text:?}");
        }
        assert_eq!(findings("---\nmodel: a\nx"), "1 error front-matter");
        assert_eq!(findings("a\0b"), "1 error front-matter");
        let (state, findings) = read_markdown("A.md", b"a\n\xff");
        assert!(state.is_none());
        assert_eq!(findings[0].line, 2);
    }
}
