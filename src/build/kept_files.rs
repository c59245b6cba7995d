//! Files that stay at the top of `workspace/` when it is emptied: they belong to the repository around it.

use std::path::Path;

pub(crate) const KEPT_NAMES: [&str; 2] = [".gitkeep", ".gitignore"];

pub(crate) fn is_kept(path: &Path) -> bool {
    KEPT_NAMES.iter().any(|name| path == Path::new(name))
}
