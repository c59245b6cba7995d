//! The specs that a command line names: files, folders, globs and manifests.

use std::fs;
use std::path::{Path, PathBuf};

use globset::GlobBuilder;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::fleet::variables::{BUDGET, MAX_RETRIES, MODEL, PROVIDER};
use crate::fleet::folder::DRIVER_LOCK;
use crate::fleet::names::{is_entry_name, usual_spelling};
use crate::regular_file::open_regular_file;
use crate::source::code;
use crate::source::finding::{Finding, FindingLevel};

/// The endings of specs in folders.
const SPEC_ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
const MANIFEST_ENDING: &str = "jsonl";

/// A spec that is asked for, before matrices and repetitions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SelectedSpec {
    /// Absolute.
    pub path: PathBuf,
    /// As messages show it.
    pub shown: PathBuf,
    /// What the manifest says of it, and where.
    pub line: Option<(ManifestLine, LinePlace)>,
}

/// The place of a line in a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinePlace {
    pub file: String,
    pub line: usize,
}

/// A line of a manifest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ManifestLine {
    pub spec: String,
    pub name: Option<String>,
    pub provider: Option<Value>,
    pub model: Option<Value>,
    pub max_retries: Option<Value>,
    pub budget: Option<Value>,
    #[serde(default)]
    pub set: Map<String, Value>,
    pub repeat: Option<u32>,
}

impl ManifestLine {
    /// The variables of the line.
    pub(super) fn variables(&self) -> Map<String, Value> {
        let options = [
            (PROVIDER, &self.provider),
            (MODEL, &self.model),
            (MAX_RETRIES, &self.max_retries),
            (BUDGET, &self.budget),
        ];
        let options = options
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
        self.set.clone().into_iter().chain(options).collect()
    }
}

/// Expands absolute paths and globs. Messages show paths relative to the current directory. Mistakes are collected; a folder
/// or a glob that had `known` specs may have none now.
pub(super) fn select_specs(
    named: &[PathBuf],
    known: &[PathBuf],
    current_dir: &Path,
    findings: &mut Vec<Finding>,
) -> Vec<SelectedSpec> {
    let mut selection = Selection {
        current_dir,
        known,
        findings,
        selected: Vec::new(),
    };
    for path in named {
        if path.is_dir() {
            selection.add_folder(path);
        } else if !path.exists() && is_glob(path) {
            selection.add_glob(path);
        } else {
            selection.add_file(path);
        }
    }
    selection.selected
}

/// What was found so far.
struct Selection<'a> {
    current_dir: &'a Path,
    known: &'a [PathBuf],
    findings: &'a mut Vec<Finding>,
    selected: Vec<SelectedSpec>,
}

fn is_glob(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[', '{'])
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().unwrap_or_default().to_ascii_lowercase();
    ending
        .to_str()
        .is_some_and(|ending| endings.contains(&ending))
}

impl Selection<'_> {
    fn shown(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix(self.current_dir);
        inside.unwrap_or(path).to_owned()
    }

    fn report(&mut self, path: &Path, message: &str) {
        let file = self.shown(path).display().to_string();
        let finding = Finding::of_file(&file, FindingLevel::Error, code::FIELD, message);
        self.findings.push(finding);
    }

    fn add_file(&mut self, path: &Path) {
        match has_ending(path, &[MANIFEST_ENDING]) {
            true => self.add_manifest(path),
            false => self.add_spec(path, None),
        }
    }

    fn add_spec(&mut self, path: &Path, line: Option<(ManifestLine, LinePlace)>) {
        let path = usual_spelling(path);
        if path.to_str().is_none() {
            return self.report(&path, "the path of the spec is not UTF-8");
        }
        let shown = self.shown(&path);
        self.selected.push(SelectedSpec { path, shown, line });
    }

    fn add_folder(&mut self, path: &Path) {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.report(path, &format!("cannot read the folder: {error}")),
        };
        let files = entries.flatten().map(|entry| entry.path());
        let is_spec = |path: &PathBuf| has_ending(path, &SPEC_ENDINGS) && path.is_file();
        let mut files: Vec<PathBuf> = files.filter(is_spec).collect();
        files.sort();
        let folder = usual_spelling(path);
        let mut known = self.known.iter();
        if files.is_empty() && !known.any(|spec| spec.parent() == Some(&folder)) {
            let message = "the folder has no spec (*.yaml, *.yml, *.json directly inside)";
            self.report(path, message);
        }
        for file in files {
            self.add_spec(&file, None);
        }
    }

    fn add_glob(&mut self, pattern: &Path) {
        let named = pattern.ancestors().find(|part| !is_glob(part));
        let named = named.unwrap_or(Path::new("/"));
        let base = usual_spelling(named);
        let pattern = &base.join(pattern.strip_prefix(named).unwrap_or(pattern));
        let glob = GlobBuilder::new(&pattern.to_string_lossy())
            .literal_separator(true)
            .build();
        let matcher = match glob {
            Ok(glob) => glob.compile_matcher(),
            Err(error) => {
                return self.report(pattern, &format!("invalid pattern: {}", error.kind()));
            }
        };
        let mut files = Vec::new();
        walk(&base, &mut files);
        files.retain(|path| matcher.is_match(path));
        files.sort();
        let mut known = self.known.iter();
        if files.is_empty() && !known.any(|spec| matcher.is_match(spec)) {
            self.report(pattern, "the pattern matches no file");
        }
        for file in files {
            self.add_file(&file);
        }
    }

    fn add_manifest(&mut self, path: &Path) {
        let opened = open_regular_file(path, rustix::fs::OFlags::empty());
        let text = match opened.and_then(std::io::read_to_string) {
            Ok(text) => text,
            Err(error) => return self.report(path, &format!("cannot read the manifest: {error}")),
        };
        let folder = path.parent().unwrap_or(Path::new("/"));
        let file = self.shown(path).display().to_string();
        for (number, text) in text.lines().enumerate() {
            if text.trim().is_empty() {
                continue;
            }
            let place = LinePlace {
                file: file.clone(),
                line: number + 1,
            };
            match parse_line(text) {
                Ok(line) => {
                    let spec = folder.join(&line.spec);
                    self.add_spec(&spec, Some((line, place)));
                }
                Err((column, message)) => {
                    self.report(path, &message);
                    if let Some(finding) = self.findings.pop() {
                        self.findings.push(finding.at(place.line, column));
                    }
                }
            }
        }
    }
}

/// All files below a folder, without those of fleets. Links to folders are not followed.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && entry.path().join(DRIVER_LOCK).exists() => {}
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            Ok(_) if entry.path().is_file() => files.push(entry.path()),
            _ => {}
        }
    }
}

fn parse_line(text: &str) -> Result<ManifestLine, (usize, String)> {
    let line: ManifestLine = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message
            .rsplit_once(" at line ")
            .map_or(message.as_str(), |(message, _)| message);
        (error.column().max(1), message.to_owned())
    })?;
    match &line.name {
        Some(name) if !is_entry_name(name) => Err((
            1,
            format!(
                "invalid name {name:?}: expected up to 64 of A-Z a-z 0-9 . _ - with a letter or digit first"
            ),
        )),
        _ if line.repeat == Some(0) => Err((1, "invalid repeat: expected 1 or more".into())),
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(folder: &Path, named: &[&str]) -> (Vec<String>, Vec<String>) {
        let named: Vec<PathBuf> = named.iter().map(|name| folder.join(name)).collect();
        let mut findings = Vec::new();
        let specs = select_specs(&named, &[], folder, &mut findings);
        let paths = specs.iter().map(|spec| {
            let path = spec.path.strip_prefix(folder).unwrap();
            path.display().to_string()
        });
        let findings = findings.iter().map(Finding::summary);
        (paths.collect(), findings.collect())
    }

    #[test]
    fn files_folders_globs_and_manifests_are_expanded_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for file in [
            "s/b.yaml",
            "s/a.yml",
            "s/c.json",
            "s/d.md",
            "s/deep/e.yaml",
            "s/m.jsonl",
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let lines = "{\"spec\": \"b.yaml\"}\n\n{\"spec\": \"deep/e.yaml\", \"model\": \"x\"}\n";
            fs::write(path, lines).unwrap();
        }
        let check = |named: &[&str], expected: &[&str]| {
            let (paths, findings) = selected(folder, named);
            assert_eq!(
                (paths, findings),
                (expected.iter().map(|s| (*s).to_owned()).collect(), vec![])
            );
        };
        check(
            &["s/d.md", "s"],
            &["s/d.md", "s/a.yml", "s/b.yaml", "s/c.json"],
        );
        check(&["s/*.yaml"], &["s/b.yaml"]);
        check(&["s/**/*.yaml"], &["s/b.yaml", "s/deep/e.yaml"]);
        check(&["s/{a,c}.*"], &["s/a.yml", "s/c.json"]);
        check(&["s/m.jsonl"], &["s/b.yaml", "s/deep/e.yaml"]);
        // One that is not there is reported when it is read.
        check(&["gone.yaml"], &["gone.yaml"]);
        check(&["./s//../s/./d.md"], &["s/d.md"]);
        check(&["s/../gone.yaml"], &["gone.yaml"]);
        // A `..` behind a link leads elsewhere.
        std::os::unix::fs::symlink("s/deep", folder.join("link")).unwrap();
        check(&["link/../d.md"], &["link/../d.md"]);
    }

    #[test]
    fn mistakes_in_manifests_have_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [
            "{\"spec\": \"a.yaml\"}",
            "{\"spec\": \"a.yaml\", \"speck\": 1}",
            "{\"spec\": ",
            "{\"spec\": \"a.yaml\", \"name\": \"-x\"}",
            "{\"spec\": \"a.yaml\", \"repeat\": 0}",
        ];
        fs::write(folder.path().join("m.jsonl"), lines.join("\n")).unwrap();
        let (paths, findings) = selected(folder.path(), &["m.jsonl", "none*.yaml"]);
        assert_eq!(paths, ["a.yaml"]);
        assert!(
            findings[0].starts_with("m.jsonl:2:26: unknown field `speck`"),
            "{findings:?}"
        );
        assert!(findings[1].starts_with("m.jsonl:3:"), "{findings:?}");
        assert!(
            findings[2].starts_with("m.jsonl:4:1: invalid name"),
            "{findings:?}"
        );
        assert!(
            findings[3].starts_with("m.jsonl:5:1: invalid repeat"),
            "{findings:?}"
        );
        assert!(
            findings[4].starts_with("none*.yaml:1:1: the pattern matches"),
            "{findings:?}"
        );
    }
}
