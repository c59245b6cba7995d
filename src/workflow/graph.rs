//! The states of a workflow and the transitions that they name, and what follows from them: which states can be
//! reached, from which a `result` can be reached, and which cycles have none.
//!
//! A name that is computed may lead anywhere; so may a name that is left open, and a state that cannot be read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::literal::{LiteralTransition, NameRole, foreign_tags, of_policy, of_text};
use super::scope::{NameProblem, StateKind, WorkflowScope};
use super::script_text::ScriptText;
use super::state_file::{MarkdownState, StateDraft, read_draft};
use super::tags::TagName;
use crate::source::code;
use crate::source::diagnostic::SourceFile;
use crate::source::finding::{Finding, FindingLevel};
use crate::source::text_file::decode_lossy;

/// Where the transitions of a state are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransitionOrigin {
    /// With so many entries, whether or not they can be read.
    Policy {
        entries: usize,
    },
    Prompt,
    Script,
}

/// A state, its text and its transitions.
#[derive(Debug)]
pub(super) struct GraphState {
    pub(super) file: String,
    pub(super) source: SourceFile,
    pub(super) origin: TransitionOrigin,
    /// Empty for a script.
    pub(super) prompt: String,
    pub(super) transitions: Vec<LiteralTransition>,
    /// Tags of other programs, in a prompt without policy or in a script.
    pub(super) foreign_tags: Vec<(Range<usize>, String)>,
    /// What reading it found.
    pub(super) findings: Vec<Finding>,
    /// There is an error in it: its transitions are not all known.
    pub(super) is_broken: bool,
}

/// What a name in a transition means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameMeaning {
    /// By its index in the graph.
    State(usize),
    Unresolved(String, NameProblem),
    /// Computed, or left to the model.
    Open,
}

/// A name of a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GraphEdge {
    pub(super) tag: TagName,
    pub(super) role: NameRole,
    pub(super) meaning: NameMeaning,
    pub(super) span: Range<usize>,
}

/// All states of a directory, by name, and where their transitions lead.
#[derive(Debug)]
pub(crate) struct StateGraph {
    pub(super) states: Vec<GraphState>,
    /// Of each state, one list for each of its transitions.
    pub(super) edges: Vec<Vec<Vec<GraphEdge>>>,
    indices: BTreeMap<String, usize>,
}

impl StateGraph {
    /// Reads all states of a scope.
    pub(crate) fn read(scope: &WorkflowScope) -> StateGraph {
        let states: Vec<GraphState> = scope
            .states()
            .map(|file| read_state(file, scope.read(file)))
            .collect();
        let files = states.iter().map(|state| state.file.clone());
        let mut graph = StateGraph {
            indices: files.zip(0..).collect(),
            edges: Vec::new(),
            states,
        };
        let edges = |state: &GraphState| {
            let has_way_on = has_way_on(&state.transitions);
            let transitions = state.transitions.iter();
            transitions
                .map(|transition| graph.resolve(scope, transition, has_way_on))
                .collect()
        };
        graph.edges = graph.states.iter().map(edges).collect();
        graph
    }

    pub(super) fn index(&self, file: &str) -> Option<usize> {
        self.indices.get(file).copied()
    }

    fn resolve(
        &self,
        scope: &WorkflowScope,
        transition: &LiteralTransition,
        has_way_on: bool,
    ) -> Vec<GraphEdge> {
        let edge = |role, meaning, span: &Range<usize>| GraphEdge {
            tag: transition.tag,
            role,
            meaning,
            span: span.clone(),
        };
        let written = transition.names.iter().map(|name| {
            let meaning = name.name.as_ref().map(|name| match scope.resolve(name) {
                Ok(file) => self.index(&file).map(NameMeaning::State),
                Err(problem) => Some(NameMeaning::Unresolved(name.clone(), problem)),
            });
            let meaning = meaning.flatten().unwrap_or(NameMeaning::Open);
            edge(name.role, meaning, &name.span)
        });
        let open = open_roles(transition, has_way_on).into_iter();
        let open = open.map(|role| edge(role, NameMeaning::Open, &transition.span));
        written.chain(open).collect()
    }

    /// The edges of a state along which an agent can go on.
    pub(super) fn leading_edges(&self, state: usize) -> impl Iterator<Item = &GraphEdge> {
        let edges = self.edges[state].iter().flatten();
        edges.filter(|edge| NameRole::of_tag(edge.tag).contains(&edge.role))
    }

    /// The states that a name may mean; `None`: any.
    pub(super) fn meant(&self, meaning: &NameMeaning) -> Option<Vec<usize>> {
        match meaning {
            NameMeaning::State(state) => Some(vec![*state]),
            NameMeaning::Open => None,
            NameMeaning::Unresolved(name, NameProblem::Ambiguous) => {
                let files = ["md", "sh"].map(|ending| format!("{}.{ending}", name.trim()));
                Some(files.iter().filter_map(|file| self.index(file)).collect())
            }
            NameMeaning::Unresolved(..) => Some(Vec::new()),
        }
    }

    /// Whether each state can be reached from one of these.
    pub(super) fn reachable(&self, starts: &[usize]) -> Vec<bool> {
        let mut is_reached = vec![false; self.states.len()];
        let mut pending = starts.to_vec();
        while let Some(state) = pending.pop() {
            if std::mem::replace(&mut is_reached[state], true) {
                continue;
            }
            let mut ways = self.leading_edges(state);
            let next = ways.try_fold(Vec::new(), |mut all, edge| {
                all.extend(self.meant(&edge.meaning)?);
                Some(all)
            });
            match next.filter(|_| !self.states[state].is_broken) {
                Some(next) => pending.extend(next),
                None => return vec![true; self.states.len()],
            }
        }
        is_reached
    }

    /// Whether an agent that enters a state can reach a `result` of its own: one that no call inside takes.
    pub(super) fn returning(&self) -> Vec<bool> {
        let mut returns = vec![false; self.states.len()];
        loop {
            let is_new = |state: &usize| !returns[*state] && self.returns(*state, &returns);
            let new: Vec<usize> = (0..self.states.len()).filter(is_new).collect();
            if new.is_empty() {
                return returns;
            }
            new.into_iter().for_each(|state| returns[state] = true);
        }
    }

    fn returns(&self, state: usize, known: &[bool]) -> bool {
        let transitions = self.states[state].transitions.iter();
        self.states[state].is_broken
            || transitions
                .zip(&self.edges[state])
                .any(|(transition, edges)| can_return(transition.tag, edges, known))
    }

    /// Groups of states in a cycle from which an agent has no way to a `result`.
    pub(super) fn endless_cycles(&self, returning: &[bool]) -> Vec<Vec<usize>> {
        let next: Vec<Vec<usize>> = (0..self.states.len())
            .map(|state| match returning[state] {
                true => Vec::new(),
                false => self.next_states(state, returning),
            })
            .collect();
        components(&next)
            .into_iter()
            .filter(|group| 1 < group.len() || next[group[0]].contains(&group[0]))
            .collect()
    }

    /// Where the same agent may be next. Workers are other agents; a call that does not return does not get to its
    /// return state.
    fn next_states(&self, state: usize, returning: &[bool]) -> Vec<usize> {
        let mut next = Vec::new();
        for edges in &self.edges[state] {
            let never_returns = edges.iter().any(|edge| {
                let is_callee = edge.role == NameRole::Target;
                is_callee
                    && matches!(edge.meaning, NameMeaning::State(callee) if !returning[callee])
            });
            for edge in edges {
                let is_taken = match (edge.tag, edge.role) {
                    (TagName::Fork, NameRole::Target) => false,
                    (TagName::Call | TagName::Function, NameRole::Return) => !never_returns,
                    (tag, role) => NameRole::of_tag(tag).contains(&role),
                };
                if let (true, NameMeaning::State(to)) = (is_taken, &edge.meaning) {
                    next.push(*to);
                }
            }
        }
        next
    }
}

/// The names that a transition needs and leaves open. A fork beside another that says where to go on, or beside a goto,
/// needs none.
fn open_roles(transition: &LiteralTransition, has_way_on: bool) -> Vec<NameRole> {
    let needed: &[NameRole] = match transition.tag {
        TagName::Fork if has_way_on => &[NameRole::Target],
        TagName::Fork => &[NameRole::Target, NameRole::Next],
        tag => NameRole::of_tag(tag),
    };
    let is_open = |role: &NameRole| !transition.has(*role);
    needed.iter().copied().filter(is_open).collect()
}

/// Whether a fork among these transitions, or a goto, says where the parent goes on.
pub(super) fn has_way_on(transitions: &[LiteralTransition]) -> bool {
    transitions.iter().any(|transition| match transition.tag {
        TagName::Goto => true,
        TagName::Fork => transition.goes_on(),
        _ => false,
    })
}

fn can_return(tag: TagName, edges: &[GraphEdge], known: &[bool]) -> bool {
    let mut along = NameRole::of_tag(tag)
        .iter()
        .filter(|role| tag != TagName::Fork || **role != NameRole::Target)
        .flat_map(|role| edges.iter().filter(move |edge| edge.role == *role))
        .map(|edge| match edge.meaning {
            NameMeaning::State(state) => known[state],
            NameMeaning::Unresolved(..) | NameMeaning::Open => true,
        });
    match tag {
        TagName::Result => true,
        TagName::Fork => along.any(|returns| returns),
        TagName::Goto | TagName::Reset | TagName::Call | TagName::Function | TagName::Ask => {
            along.all(|returns| returns)
        }
    }
}

fn read_state(file: &str, content: io::Result<Vec<u8>>) -> GraphState {
    let kind = StateKind::of_file(file).unwrap_or(StateKind::Script);
    match (content, kind) {
        (Ok(bytes), StateKind::Markdown) => markdown_state(read_draft(file, &bytes)),
        (Ok(bytes), StateKind::Script) => script_state(file, &bytes),
        (Err(error), _) => unreadable_state(file, &error),
    }
}

fn markdown_state(draft: StateDraft) -> GraphState {
    let is_broken = draft.has_errors();
    let MarkdownState { prompt, policy, .. } = draft.state;
    let start = draft.source.text.len().saturating_sub(prompt.len());
    let (origin, transitions, foreign_tags) = match &policy {
        Some(policy) => {
            let entries = draft.entry_count;
            let transitions = of_policy(policy, &draft.spans);
            (
                TransitionOrigin::Policy { entries },
                transitions,
                Vec::new(),
            )
        }
        None => {
            let (transitions, foreign) = read_text(&prompt, |at| start + at);
            (TransitionOrigin::Prompt, transitions, foreign)
        }
    };
    GraphState {
        file: draft.source.path.to_string_lossy().into_owned(),
        source: draft.source,
        origin,
        prompt,
        transitions,
        foreign_tags,
        findings: draft.findings,
        is_broken,
    }
}

fn script_state(file: &str, bytes: &[u8]) -> GraphState {
    // A script is for bash, which does not mind bytes that are not UTF-8.
    let (source, _) = decode_lossy(Path::new(file), bytes);
    let script = ScriptText::new(&source.text);
    let (transitions, foreign_tags) = read_text(&script.text, |at| script.original(at));
    GraphState {
        file: file.to_owned(),
        source,
        origin: TransitionOrigin::Script,
        prompt: String::new(),
        transitions,
        foreign_tags,
        findings: Vec::new(),
        is_broken: false,
    }
}

fn unreadable_state(file: &str, error: &io::Error) -> GraphState {
    let message = format!("cannot read the state: {error}");
    GraphState {
        findings: vec![Finding::of_file(
            file,
            FindingLevel::Error,
            code::FRONT_MATTER,
            &message,
        )],
        is_broken: true,
        ..script_state(file, b"")
    }
}

/// The transitions and the tags of other programs in a text, with positions in the file.
fn read_text(
    text: &str,
    position: impl Fn(usize) -> usize,
) -> (Vec<LiteralTransition>, Vec<(Range<usize>, String)>) {
    let shifted = |span: &Range<usize>| position(span.start)..position(span.end);
    let mut transitions = of_text(text);
    for transition in &mut transitions {
        transition.span = shifted(&transition.span);
        for name in &mut transition.names {
            name.span = shifted(&name.span);
        }
    }
    let foreign = foreign_tags(text).into_iter();
    let foreign = foreign.map(|(span, name)| (shifted(&span), name.to_owned()));
    (transitions, foreign.collect())
}

/// The strongly connected components of a graph, each sorted.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut before = vec![Vec::new(); next.len()];
    for (from, targets) in next.iter().enumerate() {
        for to in targets {
            before[*to].push(from);
        }
    }
    let mut is_seen = vec![false; next.len()];
    let mut order = Vec::new();
    for start in 0..next.len() {
        order.extend(visit(start, next, &mut is_seen));
    }
    is_seen.fill(false);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for start in order.into_iter().rev() {
        let mut group = visit(start, &before, &mut is_seen);
        group.sort_unstable();
        groups.push(group);
    }
    groups.retain(|group| !group.is_empty());
    groups.sort();
    groups
}

/// The new states that can be reached from a state, each after those behind it.
fn visit(start: usize, next: &[Vec<usize>], is_seen: &mut [bool]) -> Vec<usize> {
    let mut finished = Vec::new();
    if std::mem::replace(&mut is_seen[start], true) {
        return finished;
    }
    let mut path = vec![(start, 0)];
    while let Some((state, index)) = path.last_mut() {
        match next[*state].get(*index) {
            Some(to) => {
                *index += 1;
                if !std::mem::replace(&mut is_seen[*to], true) {
                    path.push((*to, 0));
                }
            }
            None => {
                finished.push(*state);
                path.pop();
            }
        }
    }
    finished
}

#[cfg(test)]
mod tests {
    use super::components;

    #[test]
    fn cycles_are_components() {
        let check = |next: &[&[usize]], expected: &[&[usize]]| {
            let next: Vec<Vec<usize>> = next.iter().map(|to| to.to_vec()).collect();
            assert_eq!(components(&next), expected);
        };
        check(&[], &[]);
        check(&[&[1], &[2], &[0], &[0]], &[&[0, 1, 2], &[3]]);
        check(&[&[1], &[0, 2], &[3], &[2]], &[&[0, 1], &[2, 3]]);
        check(&[&[1, 2], &[], &[1]], &[&[0], &[1], &[2]]);
    }
}
