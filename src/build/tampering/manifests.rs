//! Files that configure runners and builds, and the settings in them that can steer a test run.
//!
//! Any change of a runner's own configuration counts. A manifest describes the project as well: it is parsed, and only
//! the fields in `tables.rs` count, so that a new dependency or another description is not reported.

mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value};

use tables::{
    CARGO, CARGO_DEPENDENCIES, GO_PLAIN, PACKAGE, PACKAGE_DEPENDENCIES, PACKAGE_INSTALL, PYPROJECT,
    SETUP_SECTIONS, counts_as_a_whole, words,
};

/// How a file is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ManifestKind {
    /// Any change counts.
    Whole,
    PyProject,
    Cargo,
    Package,
    SetupCfg,
    GoMod,
}

/// The settings of a manifest that can steer a test run: fields with their values.
pub(super) type TestSettings = BTreeMap<String, Value>;

/// The kind of configuration file, by name; nothing for other files.
pub(super) fn kind(path: &Path) -> Option<ManifestKind> {
    let name = path.file_name()?.to_str()?;
    Some(match name {
        "pyproject.toml" => ManifestKind::PyProject,
        "Cargo.toml" => ManifestKind::Cargo,
        "package.json" => ManifestKind::Package,
        "setup.cfg" => ManifestKind::SetupCfg,
        "go.mod" => ManifestKind::GoMod,
        _ if counts_as_a_whole(name, path) => ManifestKind::Whole,
        _ => return None,
    })
}

/// The settings of a manifest that can steer a test run; nothing if it cannot be parsed. `commands` are the words of
/// the checks, which may name scripts and profiles.
pub(super) fn test_settings(
    kind: ManifestKind,
    text: &[u8],
    commands: &[&str],
) -> Option<TestSettings> {
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match kind {
        ManifestKind::Whole => Some(TestSettings::from([(
            "content".to_owned(),
            Value::from(text),
        )])),
        ManifestKind::PyProject => Some(selected(&toml::from_str(text).ok()?, words(PYPROJECT))),
        ManifestKind::Cargo => Some(of_cargo(&toml::from_str(text).ok()?, commands)),
        ManifestKind::Package => Some(of_package(&serde_json::from_str(text).ok()?, commands)),
        ManifestKind::SetupCfg => of_setup_cfg(text),
        ManifestKind::GoMod => Some(of_go_mod(text)),
    }
}

/// The names of the fields that differ.
pub(super) fn differing(before: &TestSettings, after: &TestSettings) -> Vec<String> {
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    all.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

fn selected<'a>(value: &Value, patterns: impl Iterator<Item = &'a str>) -> TestSettings {
    let mut found = TestSettings::new();
    for pattern in patterns {
        let parts: Vec<&str> = pattern.split('.').collect();
        select(value, &parts, String::new(), &mut found);
    }
    found
}

fn select(value: &Value, pattern: &[&str], field: String, found: &mut TestSettings) {
    let Some((first, rest)) = pattern.split_first() else {
        found.insert(field, value.clone());
        return;
    };
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, value)| (at.to_string(), value))
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in children {
        let fits = match first.strip_suffix('*') {
            Some(prefix) => key.starts_with(prefix),
            None => key == *first,
        };
        if fits {
            let field = match field.as_str() {
                "" => key,
                outer => format!("{outer}.{key}"),
            };
            select(value, rest, field, found);
        }
    }
}

fn of_cargo(manifest: &Value, commands: &[&str]) -> TestSettings {
    let mut patterns: Vec<String> = words(CARGO).map(str::to_owned).collect();
    // `[project]` is the old name of `[package]`.
    patterns.extend(
        words(CARGO)
            .filter_map(|pattern| Some(format!("project.{}", pattern.strip_prefix("package.")?))),
    );
    for table in words(CARGO_DEPENDENCIES) {
        for field in ["path", "git", "package", "registry"] {
            patterns.push(format!("{table}.*.{field}"));
            patterns.push(format!("target.*.{table}.*.{field}"));
        }
    }
    let named = commands
        .iter()
        .map(|word| word.trim_start_matches('-'))
        .map(|word| word.trim_start_matches("profile="));
    patterns.extend(
        named
            .filter(|name| !name.is_empty() && !name.contains(['.', '*']))
            .map(|name| format!("profile.{name}")),
    );
    let mut found = selected(manifest, patterns.iter().map(String::as_str));
    // Even an empty `[workspace]` separates a package from the workspace around it.
    found.extend(
        manifest
            .get("workspace")
            .map(|_| ("workspace".to_owned(), Value::from(true))),
    );
    found
}

fn of_package(manifest: &Value, commands: &[&str]) -> TestSettings {
    let mut found = selected(manifest, words(PACKAGE));
    for table in words(PACKAGE_DEPENDENCIES) {
        let all = selected(manifest, [format!("{table}.*").as_str()].into_iter());
        found.extend(all.into_iter().filter(|(_, from)| is_local(from)));
    }
    match manifest.get("scripts") {
        Some(Value::Object(scripts)) => found.extend(test_scripts(scripts, commands)),
        // npm refuses a value that is not a table.
        Some(invalid) => drop(found.insert("scripts".to_owned(), invalid.clone())),
        None => {}
    }
    found.extend(selected(manifest, words(PACKAGE_INSTALL)));
    found
}

/// The scripts that the checks run: those that a check, or a script that a check runs, names.
fn test_scripts(scripts: &Map<String, Value>, commands: &[&str]) -> TestSettings {
    let mut found = TestSettings::new();
    let mut waiting: Vec<&str> = commands.to_vec();
    waiting.extend(
        scripts
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with("test")),
    );
    waiting.push("test");
    while let Some(name) = waiting.pop() {
        for name in [format!("pre{name}"), format!("post{name}"), name.to_owned()] {
            let Some(script) = scripts.get(&name) else {
                continue;
            };
            let is_new = found
                .insert(format!("scripts.{name}"), script.clone())
                .is_none();
            if is_new {
                waiting.extend(script.as_str().unwrap_or_default().split_whitespace());
            }
        }
    }
    found
}

/// Whether a package comes from a folder of the project, or from elsewhere than the registry.
fn is_local(from: &Value) -> bool {
    let from = from.as_str().unwrap_or("file:");
    [
        "file:", "link:", "portal:", "npm:", "git", "http", ".", "/", "~/",
    ]
    .iter()
    .any(|known| from.starts_with(known))
}

/// The sections for runners; nothing if the text has no section at all.
fn of_setup_cfg(text: &str) -> Option<TestSettings> {
    let mut sections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut section: Option<String> = None;
    for line in text.lines() {
        match (line.trim().strip_prefix('['), &section) {
            (Some(header), _) => {
                let name = header.split(']').next().unwrap_or(header).trim().to_owned();
                sections.entry(name.clone()).or_default();
                section = Some(name);
            }
            (None, Some(section)) => sections
                .entry(section.clone())
                .or_default()
                .push(line.trim_end()),
            (None, None) => {}
        }
    }
    let is_for_runner = |name: &str| words(SETUP_SECTIONS).any(|known| name.starts_with(known));
    let is_empty = sections.is_empty();
    let found = sections.into_iter().filter(|(name, _)| is_for_runner(name));
    (!is_empty).then(|| {
        found
            .map(|(name, lines)| (name, Value::from(lines.join("\n"))))
            .collect()
    })
}

fn of_go_mod(text: &str) -> TestSettings {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let words: Vec<&str> = line
            .split("//")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        match (words.as_slice(), &block) {
            ([], _) => {}
            ([")", ..], Some(_)) => block = None,
            (words, Some(verb)) => found.entry(verb.clone()).or_default().push(words.join(" ")),
            ([verb, "("], None) => block = Some((*verb).to_owned()),
            ([verb, rest @ ..], None) => found
                .entry((*verb).to_owned())
                .or_default()
                .push(rest.join(" ")),
        }
    }
    found.retain(|verb, _| !GO_PLAIN.contains(&verb.as_str()));
    found
        .into_iter()
        .map(|(verb, lines)| (verb, Value::from(lines)))
        .collect()
}
