//! Modules installed beside the interpreters that the checks may use: pytest, its plugins, their requirements, and what
//! `.pth` files import at every start.
//!
//! Found by reading the folders of packages; nothing is run. A superfluous name does no harm.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::process::check_env::{CallerEnv, find_program};

/// Names that packages install by mistake and projects use for good reasons.
const TOO_COMMON: [&str; 6] = ["tests", "test", "docs", "examples", "src", "scripts"];
const PROGRAMS: [&str; 3] = ["python3", "python", "pytest"];
/// Longer metadata is ignored.
const MAX_BYTES: u64 = 1 << 20;

/// The modules that the interpreters on these `PATH`s import before the tests, without the standard library;
/// `programs` are those that checks name by absolute path.
pub(super) fn imported<'a>(
    base: &CallerEnv,
    paths: impl Iterator<Item = &'a OsStr>,
    programs: impl Iterator<Item = &'a Path>,
    workspace: &Path,
) -> HashSet<String> {
    let mut found: BTreeSet<PathBuf> = programs.map(Path::to_owned).collect();
    for path in paths {
        found.extend(
            PROGRAMS
                .iter()
                .filter_map(|name| find_program(path, OsStr::new(name), workspace)),
        );
    }
    let mut folders = BTreeSet::new();
    for prefix in &prefixes(base, &found) {
        folders.extend(package_folders(prefix));
        // With several versions side by side, a file in the project may choose any of them.
        folders.extend(
            entries(&prefix.join("versions"))
                .iter()
                .flat_map(|version| package_folders(version)),
        );
    }
    folders.retain(|folder| !folder.starts_with(workspace));
    folders
        .iter()
        .flat_map(|folder| imported_from(folder))
        .collect()
}

/// The installation prefixes of programs, as named and with links resolved, and those of the user.
fn prefixes(base: &CallerEnv, programs: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut prefixes: BTreeSet<PathBuf> = base.named_toolchains().into_iter().collect();
    prefixes.extend(base.home().map(|home| home.join(".local")));
    for program in programs {
        prefixes.extend(prefix(program));
        prefixes.extend(program.canonicalize().ok().and_then(|real| prefix(&real)));
    }
    prefixes
}

/// `/usr` of `/usr/bin/python3`.
fn prefix(program: &Path) -> Option<PathBuf> {
    Some(program.parent()?.parent()?.to_owned())
}

fn package_folders(prefix: &Path) -> Vec<PathBuf> {
    let libraries = ["lib", "lib64", "local/lib"].map(|lib| prefix.join(lib));
    let pythons = libraries
        .iter()
        .flat_map(|lib| entries(lib))
        .filter(|path| name(path).starts_with("python"));
    let folders = pythons
        .flat_map(|python| ["site-packages", "dist-packages"].map(|folder| python.join(folder)));
    // A folder with two names is read once.
    folders
        .filter_map(|folder| folder.canonicalize().ok())
        .filter(|folder| folder.is_dir())
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .map(|all| all.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn read(path: &Path) -> Option<String> {
    let is_short = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES);
    is_short
        .then(|| fs::read(path).ok())
        .flatten()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The modules of pytest, of its plugins, of their requirements, and of `.pth` files.
fn imported_from(folder: &Path) -> HashSet<String> {
    let mut modules = HashSet::new();
    let mut distributions: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut waiting = vec!["pytest".to_owned()];
    for path in entries(folder) {
        let name = name(&path);
        if name.ends_with(".pth") {
            modules.extend(read(&path).iter().flat_map(|text| imported_by_pth(text)));
        } else if let Some(stem) = name
            .strip_suffix(".dist-info")
            .or(name.strip_suffix(".egg-info"))
        {
            let distribution = normal(stem.split('-').next().unwrap_or(stem));
            let plugins: Vec<String> = read(&path.join("entry_points.txt"))
                .iter()
                .flat_map(|text| plugins(text))
                .collect();
            if !plugins.is_empty() {
                modules.extend(plugins);
                waiting.push(distribution.clone());
            }
            distributions.insert(distribution, path);
        }
    }
    while let Some(next) = waiting.pop() {
        let Some(path) = distributions.remove(&next) else {
            continue;
        };
        let metadata = read(&path.join("METADATA"))
            .or_else(|| read(&path.join("PKG-INFO")))
            .unwrap_or_default();
        for required in requirements(&metadata) {
            modules.insert(required.clone());
            waiting.push(required);
        }
    }
    modules.retain(|name| !TOO_COMMON.contains(&name.as_str()));
    modules
}

/// A name as modules and folders are spelled.
fn normal(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

/// The top-level modules that `pytest11` names.
fn plugins(entry_points: &str) -> Vec<String> {
    let mut is_pytest = false;
    let mut found = Vec::new();
    for line in entry_points.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_pytest = section.trim_end_matches(']').trim() == "pytest11";
        } else if let Some((_, module)) = line.split_once('=').filter(|_| is_pytest) {
            let top = module
                .trim()
                .split(['.', ':', ' ', '['])
                .next()
                .unwrap_or_default();
            found.push(top.to_owned());
        }
    }
    found
}

/// The distributions that are always required, without extras.
fn requirements(metadata: &str) -> Vec<String> {
    let head = metadata.split("\n\n").next().unwrap_or_default();
    let required = head
        .lines()
        .filter_map(|line| line.strip_prefix("Requires-Dist:"));
    let always = required.filter(|line| !line.contains("extra ==") && !line.contains("extra=="));
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let names = always.map(|line| {
        line.trim()
            .split(|c| !is_of_name(c))
            .next()
            .unwrap_or_default()
    });
    names.filter(|name| !name.is_empty()).map(normal).collect()
}

/// The modules that a `.pth` file imports; Python runs its lines that begin with `import`.
fn imported_by_pth(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| line.starts_with("import ") || line.starts_with("import\t"));
    let mut found = Vec::new();
    for line in lines {
        let words: Vec<&str> = line
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        let pairs = words
            .iter()
            .enumerate()
            .filter(|(_, word)| matches!(**word, "import" | "__import__"));
        for (at, _) in pairs {
            found.extend(
                words[at + 1..]
                    .iter()
                    .find(|word| !word.is_empty())
                    .map(|word| (*word).to_owned()),
            );
        }
    }
    // The standard library has tables of its own.
    found.retain(|name| !super::python::is_stdlib(name));
    found
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "a temporary folder of the test")]

    use super::*;

    #[test]
    fn plugins_and_their_requirements_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "pytest-9.0.dist-info/METADATA",
            "Name: pytest\nRequires-Dist: pluggy (<2)\nRequires-Dist: six; extra == 'dev'\n\nbody",
        );
        write(
            "pluggy-1.0.dist-info/METADATA",
            "Name: pluggy\nRequires-Dist: needed-by.pluggy>=1\n\nRequires-Dist: body\n",
        );
        write(
            "pytest_odd-1.dist-info/entry_points.txt",
            "[console_scripts]\nodd = odd_cli:main\n[ pytest11 ]\na = odd_plugin.inner\n",
        );
        write("pytest_odd-1.dist-info/METADATA", "Requires-Dist: tests\n");
        write("other-1.dist-info/METADATA", "Requires-Dist: unrelated\n");
        write(
            "a.pth",
            "import os; e = 1; e and __import__('_hack').x()\n/some/folder\n# import no\n",
        );
        let mut found: Vec<String> = imported_from(folder.path()).into_iter().collect();
        found.sort();
        assert_eq!(found, ["_hack", "needed_by_pluggy", "odd_plugin", "pluggy"]);
    }
}
