//! Which module imports which: every `use` and every path in the code, resolved to the longest module it names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::source::Source;

static USE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\buse\s+([^;]*);").unwrap());
static INLINE_PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bcrate(?:::\w+)+").unwrap());

/// The paths that a file names, from the crate's root, such as `["process", "sandbox", "SandboxPolicy"]`.
pub(super) fn named_paths(source: &Source, modules: &BTreeSet<String>) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for found in USE.captures_iter(&source.shipped) {
        expand(&found[1], &[], &mut paths);
    }
    for found in INLINE_PATH.find_iter(&USE.replace_all(&source.shipped, "")) {
        paths.push(segments(found.as_str()));
    }
    let module = segments(&source.module());
    paths
        .into_iter()
        .filter_map(|path| from_root(path, &module, modules))
        .collect()
}

/// The modules that each module imports.
pub(super) fn graph(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let modules: BTreeSet<String> = sources
        .iter()
        .filter(|source| !source.shipped.is_empty())
        .map(Source::module)
        .filter(|module| !module.is_empty())
        .collect();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let module = source.module();
        if !modules.contains(&module) {
            continue;
        }
        let imported = named_paths(source, &modules)
            .into_iter()
            .filter_map(|path| longest_module(&path, &modules))
            .filter(|imported| *imported != module);
        graph.entry(module.clone()).or_default().extend(imported);
    }
    graph
}

/// The strongly connected components of more than two modules.
pub(super) fn cycles(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> = graph
        .keys()
        .map(|module| (module, reachable_from(module, graph)))
        .collect();
    graph
        .keys()
        .map(|module| {
            let mutual = reachable[module]
                .iter()
                .filter(|other| reachable[*other].contains(module));
            mutual.map(|other| (*other).clone()).collect()
        })
        .filter(|component: &BTreeSet<String>| 2 < component.len())
        .collect()
}

fn reachable_from<'a>(
    module: &'a String,
    graph: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let (mut reached, mut waiting) = (BTreeSet::new(), vec![module]);
    while let Some(module) = waiting.pop() {
        for imported in graph.get(module).into_iter().flatten() {
            if reached.insert(imported) {
                waiting.push(imported);
            }
        }
    }
    reached
}

/// Splits the tree of a `use` statement into its paths.
fn expand(tree: &str, prefix: &[String], paths: &mut Vec<Vec<String>>) {
    for item in split_at_top(tree) {
        let item = item.trim();
        if let Some((path, inner)) = item.strip_suffix('}').and_then(|item| item.split_once('{')) {
            expand(inner, &[prefix, &segments(path)].concat(), paths);
        } else if let Some(path) = item.split(" as ").next().filter(|path| !path.is_empty()) {
            paths.push([prefix, &segments(path)].concat());
        }
    }
}

/// Splits at the commas that are outside of braces.
fn split_at_top(tree: &str) -> Vec<&str> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&tree[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(&tree[start..]);
    items
}

fn segments(path: &str) -> Vec<String> {
    path.split("::")
        .map(str::trim)
        .filter(|segment| !segment.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Resolves `crate`, `super`, `self` and names of child modules; `None` for other crates.
fn from_root(
    path: Vec<String>,
    module: &[String],
    modules: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let first = path.first()?.as_str();
    let supers = path.iter().take_while(|part| *part == "super").count();
    let child = [module, &path[..1]].concat().join("::");
    match first {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some(
            [
                &module[..module.len().checked_sub(supers)?],
                &path[supers..],
            ]
            .concat(),
        ),
        "self" => Some([module, &path[1..]].concat()),
        _ if modules.contains(&child) => Some([module, &path[..]].concat()),
        _ => None,
    }
}

fn longest_module(path: &[String], modules: &BTreeSet<String>) -> Option<String> {
    (1..=path.len())
        .rev()
        .map(|length| path[..length].join("::"))
        .find(|module| modules.contains(module))
}
