//! The user's own environments: what lies in `env/` of the project.
//!
//! `env/NAME.py` is a class in a Python host, `env/NAME.yaml` an interactive program with no code at all (the same
//! host wraps it), and an executable `env/NAME` speaks the contract itself. `host.rs` is the process behind each,
//! `lines.rs` what it says.

pub mod host;
pub mod messages;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where the user's environments are, below the project.
pub const FOLDER: &str = "env";
/// A description of a program is short.
const YAML_LIMIT: u64 = 64 << 10;

/// An environment that was found and not yet started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEnvironment {
    pub name: String,
    pub kind: AdhocKind,
    pub path: PathBuf,
}

/// What stands behind a name; the first of these wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdhocKind {
    Python,
    Yaml,
    Executable,
}

/// An interactive program as a file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InteractiveProgram {
    pub command: String,
    pub prompt: String,
    #[serde(default = "some_program")]
    pub description: String,
}

fn some_program() -> String {
    "Interactive program".into()
}

/// Returns the environments of a project, by name, and what has to be said about others. `taken` are names that no
/// file may have.
pub fn find(project: &Path, taken: &[&str]) -> (Vec<FoundEnvironment>, Vec<String>) {
    let mut by_name: BTreeMap<String, Vec<(AdhocKind, PathBuf)>> = BTreeMap::new();
    for entry in std::fs::read_dir(project.join(FOLDER))
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Some((name, kind)) = candidate(&entry.path()) {
            by_name.entry(name).or_default().push((kind, entry.path()));
        }
    }
    let mut found = Vec::new();
    let mut words = Vec::new();
    for (name, mut files) in by_name {
        files.sort();
        let shown = |path: &Path| {
            path.strip_prefix(project)
                .unwrap_or(path)
                .display()
                .to_string()
        };
        if taken.contains(&name.as_str()) {
            let files: Vec<_> = files.iter().map(|(_, path)| shown(path)).collect();
            words.push(format!(
                "Failed to load environment '{name}': the name belongs to a built-in environment ({})",
                files.join(", ")
            ));
            continue;
        }
        for (_, path) in &files[1..] {
            words.push(format!(
                "Ignored {}: {} comes first",
                shown(path),
                shown(&files[0].1)
            ));
        }
        let (kind, path) = files.swap_remove(0);
        found.push(FoundEnvironment { name, kind, path });
    }
    (found, words)
}

/// Returns the environment of that name, as `find` would.
pub fn find_one(project: &Path, name: &str) -> Option<FoundEnvironment> {
    find(project, &[])
        .0
        .into_iter()
        .find(|found| found.name == name)
}

/// Whether a file is an environment by its name and mode: which, and of what kind.
fn candidate(path: &Path) -> Option<(String, AdhocKind)> {
    let data = std::fs::metadata(path).ok().filter(|data| data.is_file())?;
    let stem = path.file_stem()?.to_str()?;
    let kind = match path.extension().and_then(|ending| ending.to_str()) {
        Some("py") => AdhocKind::Python,
        Some("yaml" | "yml") => AdhocKind::Yaml,
        None if data.permissions().mode() & 0o111 != 0 => AdhocKind::Executable,
        _ => return None,
    };
    let is_name = stem.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !stem.starts_with(|c: char| c.is_numeric());
    (is_name && !stem.starts_with('_')).then(|| (stem.to_owned(), kind))
}

/// Reads the description of an interactive program; the error says what is wrong.
pub fn program(path: &Path) -> Result<InteractiveProgram, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if YAML_LIMIT < size {
        return Err(format!("it has {size} bytes, more than {YAML_LIMIT}"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let program: InteractiveProgram =
        serde_yaml::from_str(&text).map_err(|error| error.to_string())?;
    regex::Regex::new(&program.prompt).map_err(|error| format!("prompt: {error}"))?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join("env")).unwrap();
        for (name, text) in files {
            let path = project.path().join("env").join(name);
            std::fs::write(&path, text).unwrap();
            if *text == "x" {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            }
        }
        project
    }

    #[test]
    fn files_are_known_by_name_and_mode() {
        let project = project(&[
            ("b.py", ""),
            ("a.yaml", ""),
            ("c", "x"),
            ("plain", "-"),
            ("_private.py", ""),
            ("notes.txt", ""),
            ("two words.py", ""),
            ("bash.py", ""),
            ("b", "x"),
        ]);
        let (found, words) = find(project.path(), &["bash"]);
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.name.as_str(), found.kind))
            .collect();
        assert_eq!(
            found,
            [
                ("a", AdhocKind::Yaml),
                ("b", AdhocKind::Python),
                ("c", AdhocKind::Executable)
            ]
        );
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(
            words[0].contains("env/b: env/b.py comes first"),
            "{words:?}"
        );
        assert!(words[1].contains("'bash'"), "{words:?}");
    }

    #[test]
    fn a_program_is_described_in_three_fields() {
        let project = project(&[
            ("a.yaml", "command: gdb -q\nprompt: '\\(gdb\\) '\n"),
            ("b.yaml", "command: x\ncolour: 1\n"),
        ]);
        let program_of = |name: &str| program(&project.path().join("env").join(name));
        assert_eq!(
            program_of("a.yaml").unwrap().description,
            "Interactive program"
        );
        assert!(program_of("b.yaml").is_err());
    }
}
