//! Rules about the code as a whole, which a reader of one file cannot see: layers, import cycles, names, comments.
//!
//! Exceptions are listed here. An entry that is not needed any longer fails its test, so the lists only shrink.

mod imports;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::LazyLock;

use regex::Regex;

use source::{Source, repository, rust_files, sources};

const MAX_LINES: usize = 800;

/// Types that share their name with another one, in percent of all types.
const MAX_SHARED_TYPE_NAMES: usize = 5;

const MAX_PARAMETERS: usize = 5;

/// Functions with more parameters.
const TOO_MANY_PARAMETERS: &[&str] = &[];

/// Import cycles of more than two modules.
const IMPORT_CYCLES: &[&[&str]] = &[];

/// Comment lines with words that the style guide replaces by the ordinary term.
const HOUSE_WORDS: &[(&str, usize)] = &[];

/// The part of `src/` that a file belongs to: its folder, or its own name.
fn folder(path: &str) -> &str {
    path.split('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".rs")
}

/// The layer of a folder. `error`, `observers` and `internals` have none, see `may_import`.
fn layer(folder: &str) -> Option<u32> {
    match folder {
        "text" | "source" | "diff" | "html" | "regular_file" | "json_rpc" | "state" | "events"
        | "cancel" | "secrets" => Some(0),
        "workspace" => Some(1),
        "process" | "snapshots" => Some(2),
        "environments" | "llm" | "apply" => Some(3),
        "conversation" => Some(4),
        "build" | "workflow" | "server" | "report" | "fleet" => Some(5),
        "cli" => Some(6),
        _ => None,
    }
}

/// Whether one folder may import another: a lower layer, and within layer 0 any. Everything may import `error`;
/// `observers` imports layer 0 alone and is imported by `cli` alone; `internals` imports anything, for tests.
fn may_import(from: &str, to: &str) -> bool {
    match (from, to) {
        _ if from == to => true,
        ("error" | "internals", _) | (_, "error") => true,
        (_, "observers") => from == "cli",
        ("observers", _) => layer(to) == Some(0),
        _ => match (layer(from), layer(to)) {
            (Some(0), Some(0)) => true,
            (Some(from), Some(to)) => to < from,
            _ => false,
        },
    }
}

#[test]
fn imports_go_down_the_layers() {
    let sources = sources();
    let modules: BTreeSet<String> = sources.iter().map(Source::module).collect();
    let mut wrong = BTreeSet::new();
    for source in &sources {
        if source.module().is_empty() {
            continue;
        }
        for path in imports::named_paths(source, &modules) {
            let to = path.first().map(String::as_str).unwrap_or_default();
            if !to.is_empty() && !may_import(folder(&source.path), to) {
                wrong.insert(format!("{} imports {to}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_folder_has_a_layer() {
    let without_layer = ["error", "observers", "internals", "lib", "main"];
    let folders: BTreeSet<String> = sources()
        .iter()
        .map(|source| folder(&source.path).to_owned())
        .collect();
    let unknown: Vec<_> = folders
        .iter()
        .filter(|folder| layer(folder).is_none() && !without_layer.contains(&folder.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn there_is_no_import_cycle_of_more_than_two_modules() {
    let found: BTreeSet<String> = imports::cycles(&imports::graph(&sources()))
        .iter()
        .map(|cycle| format!("{cycle:?}"))
        .collect();
    let listed: BTreeSet<String> = IMPORT_CYCLES
        .iter()
        .map(|cycle| format!("{:?}", cycle.iter().collect::<BTreeSet<_>>()))
        .collect();
    assert_only_shrinks("IMPORT_CYCLES", &found, &listed);
}

#[test]
fn type_names_are_unique() {
    let definition =
        Regex::new(r"(?m)^(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|type)\s+(\w+)").unwrap();
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for found in definition.captures_iter(&source.shipped) {
            let defined = files.entry(found[1].to_owned()).or_default();
            defined.push(source.path.clone());
        }
    }
    let all: usize = files.values().map(Vec::len).sum();
    files.retain(|_, files| 1 < files.len());
    let shared: usize = files.values().map(Vec::len).sum();
    assert!(100 < all, "only {all} types found");
    assert!(
        shared * 100 <= all * MAX_SHARED_TYPE_NAMES,
        "{shared} of {all} types share a name: {files:#?}"
    );
}

#[test]
fn functions_have_few_parameters() {
    let mut found = BTreeSet::new();
    for source in sources() {
        for (name, parameters) in functions(&source.shipped) {
            if MAX_PARAMETERS < parameters {
                found.insert(format!("{}: {name}", source.path));
            }
        }
    }
    let listed = TOO_MANY_PARAMETERS
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
    assert_only_shrinks("TOO_MANY_PARAMETERS", &found, &listed);
}

/// The functions of a text with the number of their parameters, `self` not counted.
fn functions(code: &str) -> Vec<(&str, usize)> {
    static HEAD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn (\w+)").unwrap());
    static RECEIVER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^\s*(&\s*('\w+\s+)?)?(mut\s+)?self\b").unwrap());
    let mut functions = Vec::new();
    for name in HEAD.captures_iter(code).filter_map(|found| found.get(1)) {
        let rest = &code[name.end()..];
        let rest = match rest.starts_with('<') {
            true => bracketed(rest).map_or(rest, |(_, rest)| rest),
            false => rest,
        };
        let (mut parameters, _) = bracketed(rest).unwrap_or_default();
        parameters.retain(|text| !text.trim().is_empty() && !RECEIVER.is_match(text));
        functions.push((name.as_str(), parameters.len()));
    }
    functions
}

/// Splits the list in the bracket that a text begins with at its commas; also returns what follows the bracket.
fn bracketed(text: &str) -> Option<(Vec<&str>, &str)> {
    let (mut items, mut start, mut depth, mut before) = (Vec::new(), 1, 0, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 1 => {
                items.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = character;
        if depth == 0 {
            items.push(text.get(start..at)?);
            return Some((items, &text[at + 1..]));
        }
    }
    None
}

#[test]
fn parameters_are_counted() {
    let code =
        "fn a() {} fn b(&mut self, x: u8) {} fn c<F: Fn(u8, u8) -> u8, T>(f: F, x: &[(T, T)],) {}";
    assert_eq!(functions(code), [("a", 0), ("b", 1), ("c", 2)]);
}

#[test]
fn comments_use_ordinary_words() {
    let comment = Regex::new(r"^\s*(//.*)|\s(//\s.*)$").unwrap();
    let house_word = Regex::new(concat!(
        r"(?i)\b(who|whoever|whom|nobody|somebody|anybody|told|tells?|telling|hears?|heard|walls?|doors?|keepers?",
        r"|pockets?|scribe|voice|hands|trials?|surroundings|equipment|desk|anew|mend(?:s|ed|ing)?|purse|wish(?:es)?|dwell\w*|epitaph|bury|buried",
        r"|fell(?:ing|ed)|stands?|standing|house|rooms?|floors?|come to|came to|comes to)\b",
        r"|\b(?:is|are|was|were|be) no\b|\bno more\b|\bin peace\b|\bby itself\b|\bof one's own\b",
    ))
    .unwrap();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(rust_files) {
        let text = fs::read_to_string(&path).unwrap();
        let name = path
            .strip_prefix(repository())
            .unwrap()
            .display()
            .to_string();
        let area = match name.strip_prefix("src/") {
            Some(below) => format!("src/{}", folder(below)),
            None => folder(&name).to_owned(),
        };
        for (number, line) in text.lines().enumerate() {
            let found = comment.captures(line);
            let found = found.and_then(|found| found.get(1).or(found.get(2)));
            if found.is_some_and(|comment| {
                house_word.is_match(&comment.as_str().replace("no longer", ""))
            }) {
                let place = format!("{name}:{}: {}", number + 1, line.trim());
                lines.entry(area.clone()).or_default().push(place);
            }
        }
    }
    let found: BTreeMap<&str, usize> = lines
        .iter()
        .map(|(area, lines)| (area.as_str(), lines.len()))
        .collect();
    let listed: BTreeMap<&str, usize> = HOUSE_WORDS.iter().copied().collect();
    for (area, count) in &found {
        let allowed = listed.get(area).copied().unwrap_or_default();
        assert!(
            *count <= allowed,
            "{count} comments of {area} use such words, {allowed} may: {:#?}",
            lines[*area]
        );
    }
    assert_eq!(found, listed, "fewer than listed: lower HOUSE_WORDS");
}

/// Compares what breaks a rule with what is listed as breaking it.
fn assert_only_shrinks(list: &str, found: &BTreeSet<String>, listed: &BTreeSet<String>) {
    let new: Vec<_> = found.difference(listed).collect();
    let obsolete: Vec<_> = listed.difference(found).collect();
    assert!(
        new.is_empty() && obsolete.is_empty(),
        "new: {new:#?}\nno longer needed in {list}: {obsolete:#?}"
    );
}

#[test]
fn files_are_short_and_begin_with_their_purpose() {
    let sources = sources();
    let long: Vec<_> = sources
        .iter()
        .filter(|source| MAX_LINES < source.text.lines().count())
        .map(|source| &source.path)
        .collect();
    assert!(long.is_empty(), "too long: {long:?}");
    let without_doc: Vec<_> = sources
        .iter()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| &source.path)
        .collect();
    assert!(without_doc.is_empty(), "no module doc: {without_doc:?}");
}

/// The tables name tests as `name`, as `file::name` and as `file`: `name`, files as `src/...`, and modules with unit
/// tests as unit `name`.
#[test]
fn every_test_and_file_that_the_tables_name_exists() {
    let code: BTreeMap<String, String> = ["src", "tests"]
        .into_iter()
        .flat_map(rust_files)
        .map(|path| {
            let name = path.strip_prefix(repository()).unwrap();
            let name = name.display().to_string();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    let is_test = |path: &str| {
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        let file = format!("tests/it/{}", module.replace("::", "/"));
        code.iter()
            .filter(|(path, _)| module.is_empty() || path.starts_with(&file))
            .any(|(_, text)| text.contains(&format!("fn {name}(")))
    };
    let test = Regex::new(r"`((?:[a-z_]+::)*[a-z]+(?:_[a-z0-9]+){3,})`").unwrap();
    let file = Regex::new(r"`((?:src|tests)/[^`…]*)`").unwrap();
    let module = Regex::new(r"`(\w+)`: `").unwrap();
    let unit = Regex::new(r"unit ((?:`\w+`(?:, )?)+)").unwrap();
    for table in ["tests/FAULTS.md", "tests/ATTACKS.md"] {
        let text = fs::read_to_string(repository().join(table)).unwrap();
        let captured = |pattern: &Regex| -> Vec<String> {
            let found = pattern.captures_iter(&text);
            found.map(|found| found[1].to_owned()).collect()
        };
        let mut missing = captured(&test);
        missing.retain(|path| !is_test(path));
        let mut files = captured(&file);
        files.retain(|path| !path.contains('<') && !repository().join(path).exists());
        let mut modules = captured(&module);
        modules.retain(|name| {
            name != "unit"
                && !code
                    .keys()
                    .any(|path| path == &format!("tests/it/{name}.rs"))
        });
        let mut units: Vec<String> = captured(&unit)
            .iter()
            .flat_map(|list| list.split(", "))
            .map(|name| name.trim_matches('`').to_owned())
            .collect();
        units.retain(|name| {
            let [file, folder] = [format!("/{name}.rs"), format!("/{name}/mod.rs")];
            !code.keys().any(|path| {
                path.starts_with("src/") && (path.ends_with(&file) || path.ends_with(&folder))
            })
        });
        assert!(
            [&missing, &files, &modules, &units]
                .iter()
                .all(|list| list.is_empty()),
            "{table}: {missing:#?} {files:#?} {modules:#?} {units:#?}"
        );
    }
}

#[test]
fn every_file_that_the_guides_name_exists() {
    let names: BTreeSet<String> = ["src", "tests", "benches"]
        .into_iter()
        .flat_map(rust_files)
        .chain([repository().join("build.rs")])
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    let name = Regex::new(r"\b(\w+\.rs)\b").unwrap();
    let path = Regex::new(r"`((?:src|tests|docs|benches)/[^`…*]*)`").unwrap();
    for guide in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(repository().join(guide)).unwrap();
        let captured = |pattern: &Regex| -> Vec<String> {
            let found = pattern.captures_iter(&text);
            found.map(|found| found[1].to_owned()).collect()
        };
        let mut missing = captured(&name);
        missing.retain(|name| !names.contains(name));
        let mut paths = captured(&path);
        paths.retain(|path| !repository().join(path).exists());
        assert!(
            missing.is_empty() && paths.is_empty(),
            "{guide}: {missing:?} {paths:?}"
        );
    }
}

#[test]
fn on_other_systems_the_build_fails_with_one_message() {
    let text = fs::read_to_string(repository().join("src/lib.rs")).unwrap();
    assert!(text.contains("#[cfg(not(target_os = \"linux\"))]\ncompile_error!("));
    // A module that is compiled there would add errors of its own.
    let count = |pattern| Regex::new(pattern).unwrap().find_iter(&text).count();
    let modules = count(r"(?m)^(pub )?mod ");
    let left_out = r#"(?m)^#\[cfg\(target_os = "linux"\)\]\n(#\[doc\(hidden\)\]\n)?(pub )?mod "#;
    assert_eq!(count(left_out), modules);
    assert!(5 < modules);
}
