//! Files that stay at the top of `workspace/` when it is emptied: they belong to the repository around it.

use std::path::Path;

pub const KEPT_NAMES: [&str; 2] = [".gitkeep", ".gitignore"];

pub fn is_kept(path: &Path) -> bool {
    KEPT_NAMES.iter().any(|name| path == Path::new(name))
}
