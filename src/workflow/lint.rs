//! Finds mistakes in a workflow before it runs: every state is looked at, reachable or not.
//!
//! An error stops a run; a warning is likely a mistake. Where a state has a policy, only the policy counts, else the
//! literal tags in its prompt or script.

use std::collections::HashSet;
use std::path::Path;

use super::graph::{GraphEdge, GraphState, NameMeaning, StateGraph, TransitionOrigin, has_way_on};
use super::literal::{LiteralTransition, NameRole, of_text};
use super::scope::{ScopeError, WorkflowScope, stem};
use super::state_file::unknown_tag;
use super::tags::TagName;
use crate::source::code;
use crate::source::diagnostic::Diagnostic;
use crate::source::finding::{Finding, FindingLevel, FindingList};
use crate::source::node::similar_name;

/// Everything that is wrong with a workflow, in the order of files and lines.
pub(crate) fn lint(scope: &WorkflowScope, start: &str) -> Vec<Finding> {
    lint_graph(scope, &StateGraph::read(scope), &[start.to_owned()])
}

/// Lints the workflow at a path, whether or not it has a start.
pub(crate) fn lint_path(path: &Path) -> Vec<Finding> {
    let error = match WorkflowScope::open(path) {
        Ok((scope, start)) => return lint(&scope, &start),
        Err(error) => error,
    };
    let starts = match &error {
        ScopeError::SeveralStarts(starts) => starts.clone(),
        ScopeError::NoStart | ScopeError::NotAState | ScopeError::Unreadable(_) => Vec::new(),
    };
    let has_states = matches!(error, ScopeError::NoStart | ScopeError::SeveralStarts(_));
    let mut findings = vec![entry_finding(path, &error)];
    if let (true, Ok(scope)) = (has_states, WorkflowScope::list(path)) {
        findings.extend(lint_graph(&scope, &StateGraph::read(&scope), &starts));
    }
    findings
}

/// The finding about a path that is not a workflow, or has no start.
pub(crate) fn entry_finding(path: &Path, error: &ScopeError) -> Finding {
    let file = match error {
        ScopeError::SeveralStarts(starts) => starts.last().cloned(),
        ScopeError::NoStart => None,
        ScopeError::NotAState | ScopeError::Unreadable(_) => path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned()),
    };
    Finding::of_file(
        file.as_deref().unwrap_or("."),
        FindingLevel::Error,
        code::ENTRY,
        &format!("{}: {error}", path.display()),
    )
}

/// All findings about the states of a graph. Without starts, nothing is unreachable.
pub(super) fn lint_graph(
    scope: &WorkflowScope,
    graph: &StateGraph,
    starts: &[String],
) -> Vec<Finding> {
    let starts: Vec<usize> = starts.iter().filter_map(|file| graph.index(file)).collect();
    let linter = Linter {
        graph,
        reachable: match starts.is_empty() {
            true => vec![true; graph.states.len()],
            false => graph.reachable(&starts),
        },
        returning: graph.returning(),
    };
    let mut findings: Vec<Finding> = scope
        .outside
        .iter()
        .map(|file| leaving_link(file))
        .collect();
    for index in 0..graph.states.len() {
        findings.extend(linter.state(index));
    }
    findings.extend(linter.endless_cycles());
    findings.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    findings
}

fn leaving_link(file: &str) -> Finding {
    let message = "this link leads out of the workflow's directory";
    Finding::of_file(file, FindingLevel::Error, code::LINK, message)
        .with_help("put a copy of the file in its place")
}

struct Linter<'a> {
    graph: &'a StateGraph,
    reachable: Vec<bool>,
    returning: Vec<bool>,
}

impl Linter<'_> {
    /// The findings about one state.
    fn state(&self, index: usize) -> Vec<Finding> {
        let state = &self.graph.states[index];
        let mut list = FindingList::new(&state.source);
        if !self.reachable[index] {
            let message = "no transition leads to this state from the start";
            list.add_whole(FindingLevel::Warning, code::UNREACHABLE, message);
        }
        self.names(index, &mut list);
        self.calls(index, &mut list);
        missing_names(state, &mut list);
        differing_forks(&self.graph.edges[index], &mut list);
        match state.origin {
            TransitionOrigin::Policy { entries: 0 | 1 } => {}
            TransitionOrigin::Policy { .. } => unused_entries(state, &mut list),
            TransitionOrigin::Prompt | TransitionOrigin::Script => no_way_on(state, &mut list),
        }
        let read = state.findings.iter().cloned();
        read.chain(list.into_vec()).collect()
    }

    /// Names that mean no state, or two.
    fn names(&self, index: usize, list: &mut FindingList<'_>) {
        let level = match self.graph.states[index].origin {
            TransitionOrigin::Policy { .. } => FindingLevel::Error,
            TransitionOrigin::Prompt | TransitionOrigin::Script => FindingLevel::Warning,
        };
        for edge in self.graph.edges[index].iter().flatten() {
            if let NameMeaning::Unresolved(name, problem) = &edge.meaning {
                let role = edge.role.word();
                let message = format!("`{role}` of `{}`: {}", edge.tag, problem.with_name(name));
                let mistake = Diagnostic::new(edge.span.clone(), message);
                list.add(level, code::NAME, &self.with_guess(mistake, name));
            }
        }
    }

    /// Adds the state that a name most likely means.
    fn with_guess(&self, mistake: Diagnostic, name: &str) -> Diagnostic {
        let states = self.graph.states.iter();
        let stems: Vec<&str> = states.map(|state| stem(&state.file)).collect();
        match similar_name(stem(name), &stems) {
            Some(guess) if guess != name => mistake.with_help(format!("did you mean `{guess}`?")),
            _ => mistake,
        }
    }

    /// Calls that do not return.
    fn calls(&self, index: usize, list: &mut FindingList<'_>) {
        for edge in self.graph.leading_edges(index) {
            let is_call = matches!(edge.tag, TagName::Call | TagName::Function);
            let callee = match edge.meaning {
                NameMeaning::State(callee) if is_call && edge.role == NameRole::Target => callee,
                _ => continue,
            };
            if !self.returning[callee] {
                let file = &self.graph.states[callee].file;
                let message = format!(
                    "this `{}` never returns: {file} cannot reach a `result`",
                    edge.tag
                );
                let mistake = Diagnostic::new(edge.span.clone(), message);
                list.add(FindingLevel::Warning, code::NEVER_RETURNS, &mistake);
            }
        }
    }

    /// Cycles without a way to a `result`, each at a transition of its first state.
    fn endless_cycles(&self) -> Vec<Finding> {
        let cycles = self.graph.endless_cycles(&self.returning);
        cycles
            .iter()
            .filter_map(|cycle| self.endless(cycle))
            .collect()
    }

    fn endless(&self, cycle: &[usize]) -> Option<Finding> {
        let first = *cycle.first()?;
        let is_inside = |meaning: &NameMeaning| matches!(meaning, NameMeaning::State(state) if cycle.contains(state));
        let mut edges = self.graph.leading_edges(first);
        let edge = edges.find(|edge| is_inside(&edge.meaning))?;
        let files: Vec<&str> = cycle
            .iter()
            .map(|state| self.graph.states[*state].file.as_str())
            .collect();
        let message = format!(
            "no `result` can be reached from this cycle: {}",
            files.join(", ")
        );
        Some(Finding::new(
            &self.graph.states[first].source,
            FindingLevel::Warning,
            code::ENDLESS,
            &Diagnostic::new(edge.span.clone(), message),
        ))
    }
}

/// A `return` or `next` that is missing where nothing supplies it: in a script, and in the only entry of a policy.
fn missing_names(state: &GraphState, list: &mut FindingList<'_>) {
    let has_way_on = has_way_on(&state.transitions);
    for transition in &state.transitions {
        let is_decided = match state.origin {
            TransitionOrigin::Policy { entries: 1 } => is_implicit(transition),
            TransitionOrigin::Policy { .. } | TransitionOrigin::Prompt => false,
            TransitionOrigin::Script => true,
        };
        let missing = match transition.tag {
            TagName::Call | TagName::Function => missing_return(transition),
            TagName::Ask => missing_next(transition, "`next`"),
            TagName::Fork if has_way_on => None,
            TagName::Fork => missing_next(transition, "`next` or `join`"),
            TagName::Goto | TagName::Reset | TagName::Result => None,
        };
        if let (true, Some((code, mistake))) = (is_decided, missing) {
            list.add(FindingLevel::Error, code, &mistake);
        }
    }
}

/// Whether the only entry of a policy is taken without a tag. A question has no target; where it leads is not left to
/// the model either.
fn is_implicit(transition: &LiteralTransition) -> bool {
    transition.has(NameRole::Target) || transition.tag == TagName::Ask
}

fn missing_return(transition: &LiteralTransition) -> Option<(&'static str, Diagnostic)> {
    let message = format!("`{}` needs `return`: the state after it", transition.tag);
    let mistake = Diagnostic::new(transition.span.clone(), message);
    (!transition.has(NameRole::Return)).then_some((code::MISSING_RETURN, mistake))
}

fn missing_next(transition: &LiteralTransition, what: &str) -> Option<(&'static str, Diagnostic)> {
    let message = format!("`{}` needs {what}: the state after it", transition.tag);
    let mistake = Diagnostic::new(transition.span.clone(), message);
    (!transition.goes_on()).then_some((code::MISSING_NEXT, mistake))
}

/// Forks that disagree about where their parent goes on: together they are a mistake.
fn differing_forks(transitions: &[Vec<GraphEdge>], list: &mut FindingList<'_>) {
    let mut ways_on = transitions.iter().flatten().filter(|edge| {
        let is_way_on = matches!(edge.role, NameRole::Next | NameRole::Join);
        edge.tag == TagName::Fork && is_way_on && edge.meaning != NameMeaning::Open
    });
    let Some(first) = ways_on.next() else { return };
    let other = ways_on.find(|edge| (edge.role, &edge.meaning) != (first.role, &first.meaning));
    if let Some(edge) = other {
        let message =
            "the forks of this state differ in `next` or `join`: written together they are refused";
        let mistake = Diagnostic::new(edge.span.clone(), message);
        list.add(FindingLevel::Warning, code::FORK_NEXT, &mistake);
    }
}

/// Entries with a target that the prompt does not mention, where there is a choice.
fn unused_entries(state: &GraphState, list: &mut FindingList<'_>) {
    let tags = of_text(&state.prompt).into_iter();
    let computed = tags.filter(|tag| tag.names.iter().any(|name| name.name.is_none()));
    let computed: HashSet<TagName> = computed.map(|tag| tag.tag).collect();
    for transition in &state.transitions {
        let is_computed = computed.contains(&transition.tag);
        let targets = transition.names.iter();
        for target in targets.filter(|name| name.role == NameRole::Target) {
            let name = stem(target.name.as_deref().unwrap_or_default().trim());
            if !mentions(&state.prompt, name) && !is_computed {
                let message = format!("nothing in the prompt mentions `{name}`");
                let mistake = Diagnostic::new(target.span.clone(), message);
                list.add(FindingLevel::Warning, code::UNUSED_ENTRY, &mistake);
            }
        }
    }
}

/// Whether a name occurs in a text as a word.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    name.is_empty()
        || text.match_indices(name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
}

/// Tags of other programs, and a state without any tag.
fn no_way_on(state: &GraphState, list: &mut FindingList<'_>) {
    for (span, name) in &state.foreign_tags {
        let mistake = unknown_tag(span.clone(), name);
        list.add(FindingLevel::Warning, code::UNKNOWN_TAG, &mistake);
    }
    if state.transitions.is_empty() && state.foreign_tags.is_empty() && !state.is_broken {
        let message = match state.origin {
            TransitionOrigin::Script => "this script has no literal tag: no way on is known",
            TransitionOrigin::Prompt | TransitionOrigin::Policy { .. } => {
                "this prompt names no way on: it has neither `allowed_transitions` nor a tag"
            }
        };
        list.add_whole(FindingLevel::Warning, code::DEAD_END, message);
    }
}

#[cfg(test)]
mod tests;
