//! Names of what programs leave beside the user's files: caches, editors' backups, our own passing entries.
//!
//! None of it is the user's work, so it is never copied, protected, hashed, shown, restored or reported as a change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const NAMES: [&str; 5] = [
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".DS_Store",
];
const ENDINGS: [&str; 2] = [".swp", "~"];
const OWN_PREFIX: &str = ".orchestrator";
/// Folders that tools fill: dependencies, build products, repositories. They may be the user's, and are not looked into.
const TOOL_FOLDERS: [&str; 5] = [".git", "node_modules", "target", ".venv", "venv"];

/// Returns whether a file or folder of this name is a leftover; with a folder goes everything in it.
pub(crate) fn is_generated(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    NAMES.iter().any(|known| bytes == known.as_bytes())
        || ENDINGS
            .iter()
            .any(|ending| bytes.ends_with(ending.as_bytes()))
        || bytes.starts_with(OWN_PREFIX.as_bytes())
}

/// Whether a folder of this name is filled by a tool.
pub(crate) fn is_tool_folder(name: &OsStr) -> bool {
    TOOL_FOLDERS.iter().any(|known| name == *known)
}

/// Returns whether a relative path is a leftover or lies in one.
pub(crate) fn is_in_generated(path: &Path) -> bool {
    path.iter().any(is_generated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_leave_is_known_by_its_name() {
        let left = [
            "__pycache__",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".DS_Store",
            ".notes.txt.swp",
            "notes.txt~",
            ".orchestrator.lock",
            ".orchestrator-copies-ab12",
            ".orchestrator",
        ];
        assert_eq!(
            left.iter()
                .filter(|name| !is_generated(OsStr::new(name)))
                .count(),
            0
        );
        let work = [
            "pycache",
            "cache.py",
            ".gitignore",
            "a.swp.py",
            "~a",
            "orchestrator",
            "__pycache__.py",
            ".env",
        ];
        assert_eq!(
            work.iter()
                .filter(|name| is_generated(OsStr::new(name)))
                .count(),
            0
        );
    }

    #[test]
    fn with_a_folder_goes_what_is_in_it() {
        assert!(is_in_generated(Path::new("tests/__pycache__/a.pyc")));
        assert!(!is_in_generated(Path::new("tests/a.py")));
    }
}
