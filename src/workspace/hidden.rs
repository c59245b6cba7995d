//! What the editor treats as absent although it is in the project directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::state::store::is_own_entry;

/// Entries that can be neither seen nor created, by their paths in the project, without links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HiddenPaths {
    /// Files, and folders with all that is in them.
    pub paths: BTreeSet<PathBuf>,
    /// The root of the run, if it lies in the project: its state, its logs and its lock are hidden.
    pub root: Option<PathBuf>,
}

impl HiddenPaths {
    /// Whether a path without links is hidden.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let is_any = !self.paths.is_empty() || self.root.is_some();
        is_any
            && path
                .ancestors()
                .any(|part| self.paths.contains(part) || self.is_of_root(part))
    }

    fn is_of_root(&self, path: &Path) -> bool {
        let is_in_root = self.root.is_some() && path.parent() == self.root.as_deref();
        is_in_root && path.file_name().is_some_and(is_own_entry)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::HiddenPaths;

    #[test]
    fn files_folders_and_what_belongs_to_the_run_are_hidden() {
        let hidden = HiddenPaths {
            paths: ["flow/START.md", "secret"].map(Into::into).into(),
            root: Some("sub/root".into()),
        };
        for (path, expected) in [
            ("flow/START.md", true),
            ("flow/START.md/x", true),
            ("flow", false),
            ("flow/START.md2", false),
            ("START.md", false),
            ("secret/a/b", true),
            ("sub/root", false),
            ("sub/root/state.json", true),
            ("sub/root/state.json.tmp-1f", true),
            ("sub/root/state.json.corrupt-2026", true),
            ("sub/root/state.json.example", false),
            ("sub/root/.orchestrator.lock", true),
            ("sub/root/logs", true),
            ("sub/root/logs/a/b.log", true),
            ("sub/root/workspace/logs", false),
            ("sub/state.json", false),
            ("logs", false),
            ("", false),
        ] {
            assert_eq!(hidden.contain(Path::new(path)), expected, "{path}");
        }
        let top = HiddenPaths {
            root: Some("".into()),
            ..HiddenPaths::default()
        };
        assert!(top.contain(Path::new("logs/x")) && !top.contain(Path::new("a/logs")));
    }
}
