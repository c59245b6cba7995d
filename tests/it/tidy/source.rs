//! The files of `src/`, and what of each is neither a comment nor a test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

static TEST_MODULE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod (\w+);").unwrap()
});
static TEST_BLOCK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^#\[cfg\(test\)\]\s*mod \w+ \{").unwrap());

/// A source file: its path below `src/`, its text, and the code that ships.
pub(super) struct Source {
    pub path: String,
    pub text: String,
    pub shipped: String,
}

impl Source {
    /// The module path below the crate, such as `process::sandbox`; empty for `lib.rs` and `main.rs`.
    pub(super) fn module(&self) -> String {
        let path = self.path.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        match path {
            "lib" | "main" => String::new(),
            path => path.replace('/', "::"),
        }
    }
}

pub(super) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All `.rs` files below a folder of the repository.
pub(super) fn rust_files(folder: &str) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![repository().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

pub(super) fn sources() -> Vec<Source> {
    let root = repository().join("src");
    let texts: Vec<(String, String)> = rust_files("src")
        .iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    assert!(20 < texts.len(), "src/ has only {} files", texts.len());
    let tests: BTreeSet<String> = texts
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let source = |(path, text): (String, String)| {
        let is_test = Path::new(path.trim_end_matches(".rs"))
            .ancestors()
            .any(|part| tests.contains(&*part.to_string_lossy()));
        let shipped = if is_test {
            String::new()
        } else {
            shipped(&text)
        };
        Source {
            path,
            text,
            shipped,
        }
    };
    texts.into_iter().map(source).collect()
}

/// The paths, without their ending, of modules that this file declares under `cfg(test)`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = path
        .trim_end_matches(".rs")
        .trim_end_matches("mod")
        .trim_end_matches('/');
    TEST_MODULE
        .captures_iter(text)
        .map(|found| format!("{folder}/{}", &found[1]))
        .collect()
}

/// The code before the block of tests, without lines that are comments.
fn shipped(text: &str) -> String {
    let end = TEST_BLOCK
        .find(text)
        .map_or(text.len(), |found| found.start());
    let lines = text[..end]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}
