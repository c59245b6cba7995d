//! The house rules that a reader of one file cannot see: the floors, and what every file of `src/` owes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

const MOST_LINES: usize = 600;

/// A source file: its path below `src/`, all of it, and what of it is no test.
struct Source {
    path: String,
    text: String,
    shipped: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(folder) = waiting.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => waiting.push(path),
                false if path.extension().is_some_and(|end| end == "rs") => found.push(read(&root, path)),
                false => {}
            }
        }
    }
    assert!(20 < found.len(), "where is the source?");
    found
}

fn read(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let path = path.strip_prefix(root).unwrap().display().to_string();
    let is_test = path.ends_with("tests.rs") || path.contains("/tests/");
    // Tests stand at the end of a file.
    let shipped = if is_test { "" } else { text.split("#[cfg(test)]").next().unwrap_or_default() };
    let shipped = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    let shipped = shipped.flat_map(|line| [line, "\n"]).collect();
    Source { path, text, shipped }
}

/// The room a file belongs to: its folder, or itself.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// The floor of a room; errors are named on all of them.
fn floor(room: &str) -> Option<u32> {
    match room {
        "config" | "state" | "events" | "stop" => Some(0),
        "safety" => Some(1),
        "process" => Some(2),
        "environments" | "llm" => Some(3),
        "engine" | "workflow" | "server" => Some(4),
        "cli" => Some(5),
        _ => None,
    }
}

/// Whether one room may name another. The facts of the ground floor may name each other.
fn may_name(from: &str, to: &str) -> bool {
    match (from, to) {
        _ if from == to => true,
        ("error", _) | (_, "error") => true,
        (_, "observers") => from == "cli",
        ("observers", _) => floor(to) == Some(0),
        _ => match (floor(from), floor(to)) {
            (Some(0), Some(0)) => true,
            (Some(from), Some(to)) => to < from,
            _ => false,
        },
    }
}

#[test]
fn calls_go_down_the_floors() {
    let named = Regex::new(r"\bcrate::(?:(\w+)|\{([^}]*)\})").unwrap();
    let mut wrong = BTreeSet::new();
    for source in sources().iter().filter(|source| !["lib.rs", "main.rs"].contains(&source.path.as_str())) {
        for found in named.captures_iter(&source.shipped) {
            let list = found.get(1).or(found.get(2)).unwrap().as_str();
            for to in list.split(',').map(|item| item.trim().split("::").next().unwrap_or_default()) {
                if !to.is_empty() && !may_name(room(&source.path), to) {
                    wrong.insert(format!("{} names {to}", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_has_a_floor() {
    let beside = ["error", "observers", "lib", "main"];
    let rooms: BTreeSet<String> = sources().iter().map(|source| room(&source.path).to_owned()).collect();
    let lost: Vec<_> = rooms.iter().filter(|room| floor(room).is_none() && !beside.contains(&room.as_str())).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn files_are_short_enough_to_read_and_say_what_they_are_for() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines", source.path);
        assert!(source.text.starts_with("//!"), "{} does not say what it is for", source.path);
    }
}

#[test]
fn nothing_that_ships_panics_on_a_whim() {
    let whim = Regex::new(r"\.unwrap\(\)|\.expect\(|\bpanic!|\bunreachable!|\btodo!|\bunimplemented!").unwrap();
    for source in sources() {
        let found = source.shipped.lines().find(|line| whim.is_match(line));
        assert!(found.is_none(), "{}: {}", source.path, found.unwrap_or_default().trim());
    }
}
