//! A workflow as a Mermaid flowchart.
//!
//! Nodes have made-up ids (`s0`, `s1`), so that no name of a state can be taken for a word of Mermaid; the names are
//! labels, with everything that means something to Mermaid as an entity.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::graph::{GraphEdge, NameMeaning, StateGraph};
use super::literal::NameRole;
use super::scope::WorkflowScope;
use super::tags::TagName;

/// The node of a `result`.
const RESULT: &str = "r";
/// The node of names that are computed or left open.
const ANYWHERE: &str = "a";

/// The diagram of the states of a scope.
pub(crate) fn mermaid(scope: &WorkflowScope, start: &str) -> String {
    let graph = StateGraph::read(scope);
    let mut diagram = Diagram {
        graph: &graph,
        missing: BTreeMap::new(),
        edges: Vec::new(),
        known: BTreeSet::new(),
    };
    for index in 0..graph.states.len() {
        diagram.add_edges(index);
    }
    let lines: Vec<String> = std::iter::once("flowchart TD".to_owned())
        .chain(diagram.states(start))
        .chain(diagram.other_nodes())
        .chain(diagram.edges.iter().map(DiagramEdge::line))
        .collect();
    lines.join("\n    ") + "\n"
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DiagramEdge {
    from: usize,
    to: String,
    label: String,
    is_dotted: bool,
}

impl DiagramEdge {
    fn line(&self) -> String {
        let arrow = if self.is_dotted { "-.->" } else { "-->" };
        format!("s{} {arrow}|{}| {}", self.from, self.label, self.to)
    }
}

struct Diagram<'a> {
    graph: &'a StateGraph,
    /// Names without a state, by their number.
    missing: BTreeMap<String, usize>,
    edges: Vec<DiagramEdge>,
    known: BTreeSet<DiagramEdge>,
}

impl Diagram<'_> {
    fn states(&self, start: &str) -> Vec<String> {
        let states = self.graph.states.iter().enumerate();
        states
            .map(
                |(index, state)| match (state.file == start, label(&state.file)) {
                    (true, label) => format!("s{index}([\"{label}\"])"),
                    (false, label) => format!("s{index}[\"{label}\"]"),
                },
            )
            .collect()
    }

    /// The nodes that edges lead to and that are not states.
    fn other_nodes(&self) -> Vec<String> {
        let shapes = [(RESULT, "((\"result\"))"), (ANYWHERE, "{{\"?\"}}")];
        let is_used = |id: &str| self.edges.iter().any(|edge| edge.to == id);
        let used = shapes.iter().filter(|(id, _)| is_used(id));
        let used = used.map(|(id, shape)| format!("{id}{shape}"));
        let missing = self.missing.iter();
        let missing =
            missing.map(|(name, index)| format!("m{index}[\"{} (missing)\"]", label(name)));
        used.chain(missing).collect()
    }

    fn add_edges(&mut self, from: usize) {
        let mut transitions = self.graph.states[from].transitions.iter();
        if transitions.any(|transition| transition.tag == TagName::Result) {
            self.add(DiagramEdge {
                from,
                to: RESULT.to_owned(),
                label: TagName::Result.to_string(),
                is_dotted: false,
            });
        }
        for edge in self.graph.leading_edges(from) {
            for to in self.node_ids(&edge.meaning) {
                self.add(diagram_edge(from, to, edge));
            }
        }
    }

    /// Adds an edge once.
    fn add(&mut self, edge: DiagramEdge) {
        if self.known.insert(edge.clone()) {
            self.edges.push(edge);
        }
    }

    fn node_ids(&mut self, meaning: &NameMeaning) -> Vec<String> {
        let name = match (meaning, self.graph.meant(meaning)) {
            (NameMeaning::Unresolved(name, _), Some(states)) if states.is_empty() => name.trim(),
            (_, Some(states)) => return states.iter().map(|state| format!("s{state}")).collect(),
            (_, None) => return vec![ANYWHERE.to_owned()],
        };
        let next = self.missing.len();
        let index = *self.missing.entry(name.to_owned()).or_insert(next);
        vec![format!("m{index}")]
    }
}

/// Where an agent goes after something else has ended is dotted.
fn diagram_edge(from: usize, to: String, edge: &GraphEdge) -> DiagramEdge {
    let label = match edge.role {
        NameRole::Target => edge.tag.to_string(),
        role => format!("{} {}", edge.tag, role.word()),
    };
    DiagramEdge {
        from,
        to,
        label,
        is_dotted: edge.role != NameRole::Target,
    }
}

/// Text in a quoted label.
fn label(text: &str) -> String {
    let mut label = String::new();
    for character in text.chars() {
        match character {
            _ if character.is_alphanumeric() || "_-. ()".contains(character) => {
                label.push(character);
            }
            _ => {
                let _ = write!(label, "#{};", u32::from(character));
            }
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn drawn(files: &[(&str, &str)]) -> String {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in files {
            fs::write(directory.path().join(file), text).unwrap();
        }
        let (scope, start) = WorkflowScope::open(directory.path()).unwrap();
        mermaid(&scope, &start)
    }

    #[test]
    fn states_are_nodes_and_transitions_edges() {
        let drawn = drawn(&[
            (
                "START.md",
                "<goto>end</goto> <goto>end.md</goto> <call return=\"R\">end</call> <goto>{{x}}</goto> <goto>NOPE</goto>",
            ),
            ("R.sh", "echo '<fork join=\"end\">START</fork>'"),
            ("end.md", "<result>x</result> <ask next=\"R\">?</ask>"),
        ]);
        let expected = "\
flowchart TD
    s0[\"R.sh\"]
    s1([\"START.md\"])
    s2[\"end.md\"]
    r((\"result\"))
    a{{\"?\"}}
    m0[\"NOPE (missing)\"]
    s0 -->|fork| s1
    s0 -.->|fork join| s2
    s1 -->|goto| s2
    s1 -->|call| s2
    s1 -.->|call return| s0
    s1 -->|goto| a
    s1 -->|goto| m0
    s2 -->|result| r
    s2 -.->|ask next| s0
";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn names_cannot_break_a_line() {
        let drawn = drawn(&[
            ("START.md", "<goto>A\"]B\n#1;</goto>"),
            ("a\"]\n`<b>.md", "x"),
        ]);
        assert!(
            drawn.contains("\"a#34;#93;#10;#96;#60;b#62;.md\""),
            "{drawn}"
        );
        assert_eq!(drawn.lines().count(), 5);
    }
}
