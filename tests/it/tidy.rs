//! The house rules that a reader of one file cannot see: the floors, and what every file of `src/` owes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use regex::Regex;

const MOST_LINES: usize = 800;

/// A source file: its path below `src/`, all of it, and what of it is no test.
struct Source {
    path: String,
    text: String,
    shipped: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut texts, mut waiting) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = waiting.pop() {
        for path in fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            match path.is_dir() {
                true => waiting.push(path),
                false if path.extension().is_some_and(|end| end == "rs") => {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    texts.push((name, fs::read_to_string(&path).unwrap()));
                }
                false => {}
            }
        }
    }
    assert!(20 < texts.len(), "where is the source?");
    let tests: BTreeSet<String> = texts
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let source = |(path, text): (String, String)| {
        let is_test = Path::new(path.trim_end_matches(".rs"))
            .ancestors()
            .any(|part| tests.contains(&*part.to_string_lossy()));
        let shipped = if is_test {
            String::new()
        } else {
            shipped(&text)
        };
        Source {
            path,
            text,
            shipped,
        }
    };
    texts.into_iter().map(source).collect()
}

/// The paths, without their ending, of modules that this file names for tests alone.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let named = Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod (\w+);").unwrap();
    let folder = path
        .trim_end_matches(".rs")
        .trim_end_matches("mod")
        .trim_end_matches('/');
    named
        .captures_iter(text)
        .map(|found| format!("{folder}/{}", &found[1]))
        .collect()
}

/// What of a file is no comment and no test; tests stand at its end.
fn shipped(text: &str) -> String {
    let test_block = Regex::new(r"(?m)^#\[cfg\(test\)\]\s*mod \w+ \{").unwrap();
    let end = test_block
        .find(text)
        .map_or(text.len(), |found| found.start());
    let lines = text[..end]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn paths<'a>(sources: &[&'a Source]) -> Vec<&'a str> {
    sources.iter().map(|source| source.path.as_str()).collect()
}

/// The room a file belongs to: its folder, or itself.
fn room(path: &str) -> &str {
    path.split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs")
}

/// The floor of a room; errors are named on all of them.
fn floor(room: &str) -> Option<u32> {
    match room {
        "secrets" | "regular_file" | "state" | "events" | "cancel" => Some(0),
        "workspace" => Some(1),
        "process" => Some(2),
        "environments" | "llm" => Some(3),
        "build" | "workflow" | "server" => Some(4),
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
    for source in sources()
        .iter()
        .filter(|source| !["lib.rs", "main.rs"].contains(&source.path.as_str()))
    {
        for found in named.captures_iter(&source.shipped) {
            let list = found.get(1).or(found.get(2)).unwrap().as_str();
            for to in list
                .split(',')
                .map(|item| item.trim().split("::").next().unwrap_or_default())
            {
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
    let rooms: BTreeSet<String> = sources()
        .iter()
        .map(|source| room(&source.path).to_owned())
        .collect();
    let lost: Vec<_> = rooms
        .iter()
        .filter(|room| floor(room).is_none() && !beside.contains(&room.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn files_are_short_enough_to_read_and_say_what_they_are_for() {
    let sources = sources();
    let long: Vec<_> = sources
        .iter()
        .filter(|source| MOST_LINES < source.text.lines().count())
        .collect();
    assert!(long.is_empty(), "too long: {:?}", paths(&long));
    let silent: Vec<_> = sources
        .iter()
        .filter(|source| !source.text.starts_with("//!"))
        .collect();
    assert!(
        silent.is_empty(),
        "not said what they are for: {:?}",
        paths(&silent)
    );
}

#[test]
fn nothing_that_ships_panics_on_a_whim() {
    let whim =
        Regex::new(r"\.unwrap\(\)|\.expect\(|\bpanic!|\bunreachable!|\btodo!|\bunimplemented!")
            .unwrap();
    for source in sources() {
        // What has its reason above it is no whim.
        let lines: Vec<&str> = source.shipped.lines().collect();
        let excused = |at: usize| {
            lines[at.saturating_sub(3)..at]
                .iter()
                .any(|line| line.contains("#[expect(clippy::"))
        };
        let found = (0..lines.len()).find(|at| whim.is_match(lines[*at]) && !excused(*at));
        assert!(
            found.is_none(),
            "{}: {}",
            source.path,
            lines[found.unwrap_or_default()].trim()
        );
    }
}

#[test]
fn every_test_that_a_fault_names_is_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let table = fs::read_to_string(tests.join("FAULTS.md")).unwrap();
    let folders = ["it", "fuzz"].map(|folder| fs::read_dir(tests.join(folder)).unwrap());
    let files = folders
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file());
    let all: String = files
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let names = Regex::new(r"`([a-z]+(?:_[a-z0-9]+){3,})`").unwrap();
    let lost: Vec<_> = names
        .captures_iter(&table)
        .map(|name| name[1].to_owned())
        .filter(|name| !all.contains(&format!("fn {name}(")))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn on_other_systems_the_build_has_one_message() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    assert!(text.contains("#[cfg(not(target_os = \"linux\"))]\ncompile_error!("));
    // A module that is compiled there would bury it among errors of its own.
    let modules = text.matches("pub mod ").count();
    assert_eq!(
        text.matches("#[cfg(target_os = \"linux\")]\npub mod ")
            .count(),
        modules
    );
    assert!(5 < modules);
}
