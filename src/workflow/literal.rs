//! The transitions that a state names: in its policy, or as literal tags in its prompt or script.

use std::ops::Range;

use super::state_file::{EntrySpans, Policy, PolicyEntry};
use super::tags::{Tag, TagName, is_foreign_tag, read_tags};

/// What a name in a transition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRole {
    Target,
    Return,
    Next,
    Join,
}

impl NameRole {
    pub(crate) fn word(self) -> &'static str {
        match self {
            NameRole::Target => "target",
            NameRole::Return => "return",
            NameRole::Next => "next",
            NameRole::Join => "join",
        }
    }

    /// The names that lead on from a transition.
    pub(crate) fn of_tag(tag: TagName) -> &'static [NameRole] {
        match tag {
            TagName::Goto | TagName::Reset => &[NameRole::Target],
            TagName::Function | TagName::Call => &[NameRole::Target, NameRole::Return],
            TagName::Fork => &[NameRole::Target, NameRole::Next, NameRole::Join],
            TagName::Ask => &[NameRole::Next],
            TagName::Result => &[],
        }
    }
}

/// A name of a state as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteralName {
    pub(crate) role: NameRole,
    /// `None`: computed when it runs.
    pub(crate) name: Option<String>,
    pub(crate) span: Range<usize>,
}

/// A transition as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiteralTransition {
    pub(crate) tag: TagName,
    pub(crate) names: Vec<LiteralName>,
    pub(crate) span: Range<usize>,
}

impl LiteralTransition {
    pub(crate) fn has(&self, role: NameRole) -> bool {
        self.names.iter().any(|name| name.role == role)
    }

    /// Whether a fork says where its parent goes on.
    pub(crate) fn goes_on(&self) -> bool {
        self.has(NameRole::Next) || self.has(NameRole::Join)
    }
}

/// The transitions of a policy. `spans` are those of its entries.
pub(super) fn of_policy(policy: &Policy, spans: &[EntrySpans]) -> Vec<LiteralTransition> {
    let entries = policy.entries.iter().zip(spans);
    entries
        .map(|(entry, spans)| LiteralTransition {
            tag: entry.tag,
            names: entry_names(entry, spans),
            span: spans.get("tag").unwrap_or(&entry.span).clone(),
        })
        .collect()
}

fn entry_names(entry: &PolicyEntry, spans: &EntrySpans) -> Vec<LiteralName> {
    let given = [
        (NameRole::Target, &entry.target),
        (NameRole::Return, &entry.return_state),
        (NameRole::Next, &entry.next),
        (NameRole::Join, &entry.join),
    ];
    given
        .into_iter()
        .filter(|(_, name)| name.is_some())
        .map(|(role, name)| LiteralName {
            role,
            name: name.clone(),
            span: spans.get(role.word()).unwrap_or(&entry.span).clone(),
        })
        .collect()
}

/// The transitions of the tags in a text.
pub(super) fn of_text(text: &str) -> Vec<LiteralTransition> {
    read_tags(text)
        .tags
        .iter()
        .map(|tag| LiteralTransition {
            tag: tag.name,
            names: tag_names(tag),
            span: tag.opening.clone(),
        })
        .collect()
}

fn tag_names(tag: &Tag) -> Vec<LiteralName> {
    let mut names = Vec::new();
    for role in NameRole::of_tag(tag.name).iter().copied() {
        let (name, span) = match role {
            NameRole::Target => (Some(tag.content.as_str()), content_span(tag)),
            _ => (tag.attribute(role.word()), tag.opening.clone()),
        };
        names.extend(name.map(|name| LiteralName {
            role,
            name: is_literal(name.trim()).then(|| name.trim().to_owned()),
            span,
        }));
    }
    names
}

/// Where the content of a tag is, without the blanks around it.
fn content_span(tag: &Tag) -> Range<usize> {
    let blanks = tag.content.len() - tag.content.trim_start().len();
    let start = tag.opening.end + blanks;
    start..start + tag.content.trim().len()
}

/// Whether a name means what it says: no variable, template or command is in it.
fn is_literal(name: &str) -> bool {
    name.chars()
        .all(|character| character.is_alphanumeric() || "_.-".contains(character))
}

/// The tags of other workflow programs in a text, each with the place of its name.
pub(super) fn foreign_tags(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut found = Vec::new();
    for start in memchr::memchr_iter(b'<', text.as_bytes()).map(|at| at + 1) {
        let rest = &text[start..];
        let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        if is_foreign_tag(name) {
            found.push((start..start + name.len(), name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let transitions = of_text(text).into_iter().map(|transition| {
            let names = transition.names.iter().map(|name| {
                let written = name.name.as_deref().unwrap_or("?");
                format!(" {}={written}", name.role.word())
            });
            format!("{}{}", transition.tag, names.collect::<String>())
        });
        transitions.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn literal_names_are_read() {
        for (text, expected) in [
            ("<goto>B</goto>", "goto target=B"),
            ("<goto> v1.2-a_b\n</goto>", "goto target=v1.2-a_b"),
            ("<goto>{{input}}</goto>", "goto target=?"),
            (
                "<goto>$X</goto> <goto>a/b</goto>",
                "goto target=?, goto target=?",
            ),
            ("<goto></goto>", "goto target="),
            (
                "<call return=\"R\" next=\"N\">C</call>",
                "call target=C return=R",
            ),
            (
                "<fork next='$N' return='x'>W</fork>",
                "fork target=W next=?",
            ),
            ("<ask next=\"N\">why?</ask>", "ask next=N"),
            ("<result>B</result>", "result"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn the_target_has_its_place() {
        let text = "say <goto>\n  B </goto>";
        let target = &of_text(text)[0].names[0];
        assert_eq!(&text[target.span.clone()], "B");
    }

    #[test]
    fn tags_of_other_programs_have_a_place() {
        let text = "<call-workflow>x</call-workflow> <goto-x> <fork-workflow";
        let found = foreign_tags(text);
        let names: Vec<&str> = found.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, ["call-workflow", "fork-workflow"]);
        assert!(
            found
                .iter()
                .all(|(span, name)| text[span.clone()] == **name)
        );
    }
}
