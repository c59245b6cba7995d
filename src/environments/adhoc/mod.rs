//! The user's own environments: the files in `env/` of the project.
//!
//! `env/NAME.py` is a class in a Python host, `env/NAME.yaml` describes an interactive program (wrapped by the same host,
//! without code), `env/NAME.mcp.yaml` an MCP server (`mcp/`), and an executable `env/NAME` implements the protocol itself.
//! This file finds them; `host.rs` is the environment, `process.rs` its process, `messages.rs` the protocol.

pub(crate) mod host;
pub(crate) mod mcp;
pub(crate) mod messages;
pub(crate) mod own;
mod process;
mod program_file;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use program_file::{InvalidProgram, read_yaml};

/// The folder of the user's environments, in the project.
pub(crate) const FOLDER: &str = "env";

/// An environment that was found, not yet started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundEnvironment {
    pub name: String,
    pub kind: AdhocKind,
    pub path: PathBuf,
}

/// The kind of an environment; of several files with one name, the first of these wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AdhocKind {
    Python,
    Yaml,
    Mcp,
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

/// Finds the environments of a project, sorted by name. Also returns warnings about files that are ignored; `reserved`
/// are the names of built-in environments.
pub(crate) fn find(project: &Path, reserved: &[&str]) -> (Vec<FoundEnvironment>, Vec<String>) {
    let shown = |path: &Path| {
        let path = path.strip_prefix(project).unwrap_or(path);
        path.display().to_string()
    };
    let mut found = Vec::new();
    let mut warnings = Vec::new();
    for (name, mut files) in candidates(project) {
        if reserved.contains(&name.as_str()) {
            let files: Vec<_> = files.iter().map(|(_, path)| shown(path)).collect();
            warnings.push(format!(
                "Failed to load environment '{name}': the name belongs to a built-in environment ({})",
                files.join(", ")
            ));
            continue;
        }
        for (_, path) in &files[1..] {
            warnings.push(format!(
                "Ignored {}: {} comes first",
                shown(path),
                shown(&files[0].1)
            ));
        }
        let (kind, path) = files.swap_remove(0);
        found.push(FoundEnvironment { name, kind, path });
    }
    (found, warnings)
}

/// The files that may be environments, by name, each in order of preference.
fn candidates(project: &Path) -> BTreeMap<String, Vec<(AdhocKind, PathBuf)>> {
    let mut by_name: BTreeMap<String, Vec<(AdhocKind, PathBuf)>> = BTreeMap::new();
    let entries = std::fs::read_dir(project.join(FOLDER));
    for entry in entries.into_iter().flatten().flatten() {
        if let Some((name, kind)) = candidate(&entry.path()) {
            by_name.entry(name).or_default().push((kind, entry.path()));
        }
    }
    by_name.values_mut().for_each(|files| files.sort());
    by_name
}

/// Finds the environment of that name.
pub(crate) fn find_one(project: &Path, name: &str) -> Option<FoundEnvironment> {
    find(project, &[])
        .0
        .into_iter()
        .find(|found| found.name == name)
}

/// The name and kind of an environment, by the name and mode of its file; nothing for other files.
fn candidate(path: &Path) -> Option<(String, AdhocKind)> {
    let data = std::fs::metadata(path).ok().filter(|data| data.is_file())?;
    let stem = path.file_stem()?.to_str()?;
    let ending = path.extension().and_then(|ending| ending.to_str());
    let (stem, is_server) = match stem.strip_suffix(".mcp") {
        Some(name) => (name, true),
        None => (stem, false),
    };
    let kind = match ending {
        Some("yaml" | "yml") if is_server => AdhocKind::Mcp,
        _ if is_server => return None,
        Some("py") => AdhocKind::Python,
        Some("yaml" | "yml") => AdhocKind::Yaml,
        None if data.permissions().mode() & 0o111 != 0 => AdhocKind::Executable,
        _ => return None,
    };
    let is_name = stem.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !stem.starts_with(|c: char| c.is_numeric());
    (is_name && !stem.starts_with('_')).then(|| (stem.to_owned(), kind))
}

/// Reads the description of an interactive program.
pub fn read_program(path: &Path) -> Result<InteractiveProgram, InvalidProgram> {
    let program: InteractiveProgram = read_yaml(path)?;
    regex::Regex::new(&program.prompt)?;
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
    fn environments_are_found_by_name_and_mode() {
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
            ("d.mcp.yaml", ""),
            ("e.mcp", "x"),
            ("a.mcp.yml", ""),
        ]);
        let (found, warnings) = find(project.path(), &["bash"]);
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.name.as_str(), found.kind))
            .collect();
        assert_eq!(
            found,
            [
                ("a", AdhocKind::Yaml),
                ("b", AdhocKind::Python),
                ("c", AdhocKind::Executable),
                ("d", AdhocKind::Mcp)
            ]
        );
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(
            warnings[0].contains("env/a.mcp.yml: env/a.yaml comes first"),
            "{warnings:?}"
        );
        assert!(
            warnings[1].contains("env/b: env/b.py comes first"),
            "{warnings:?}"
        );
        assert!(warnings[2].contains("'bash'"), "{warnings:?}");
    }

    #[test]
    fn a_program_has_three_fields() {
        let project = project(&[
            ("a.yaml", "command: gdb -q\nprompt: '\\(gdb\\) '\n"),
            ("b.yaml", "command: x\ncolour: 1\n"),
        ]);
        let program_of = |name: &str| read_program(&project.path().join("env").join(name));
        assert_eq!(
            program_of("a.yaml").unwrap().description,
            "Interactive program"
        );
        assert!(program_of("b.yaml").is_err());
    }
}
