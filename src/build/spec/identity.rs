//! The identity of a run: a hash over what its spec asks for.
//!
//! It covers parsed values and the contents of files, so comments, the order of keys, YAML or JSON, defaults that are
//! written out and the path of the root make no difference. Time limits, retries, prices and the model are not part
//! of it: a run can be resumed after they change.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::inputs::{InputKind, Inputs, WorkspaceInput};
use super::model::{CheckSpec, GeneratorMode, InputSource, Spec};

/// Every part is hashed with its length before it, so that no two different specs hash the same bytes.
pub(super) fn hash(spec: &Spec, inputs: &Inputs) -> String {
    let mut hasher = SpecHasher {
        sha: Sha256::new(),
        folder: spec.file.parent().unwrap_or(&spec.file),
    };
    hasher.record(["name"], spec.name.as_bytes());
    hasher.record(["description"], spec.description.as_bytes());
    hasher.sources("copy", &spec.copy, &inputs.copy);
    hasher.sources("protect", &spec.protect, &inputs.protect);
    for (check, files) in spec.checks.iter().zip(&inputs.hidden) {
        hasher.check(check, files);
    }
    hasher.generator(spec, inputs);
    hasher.record(["network"], &[u8::from(spec.sandbox.network)]);
    let mut read: Vec<PathBuf> = spec
        .sandbox
        .read
        .iter()
        .map(|path| normalised(hasher.folder, path))
        .collect();
    read.sort();
    read.dedup();
    for path in read {
        hasher.record(["read"], path.as_os_str().as_bytes());
    }
    format!("sha256:{}", crate::text::hex(&hasher.sha.finalize()))
}

/// A path relative to the spec's folder where it was given so or is inside, without dots and final slash.
fn normalised(folder: &Path, path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for component in path.strip_prefix(folder).unwrap_or(path).components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(parts.components().next_back(), Some(Component::Normal(_))) =>
            {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts
}

struct SpecHasher<'a> {
    sha: Sha256,
    folder: &'a Path,
}

impl SpecHasher<'_> {
    /// Adds the entries of one list, and the files that they brought.
    fn sources(&mut self, role: &str, sources: &[InputSource], inputs: &[WorkspaceInput]) {
        for source in sources {
            let from = normalised(self.folder, &source.from);
            let to = source.to.as_ref().map_or("", |to| to.as_str());
            self.record([role, "from", to], from.as_os_str().as_bytes());
            for pattern in &source.exclude {
                self.record([role, "exclude"], pattern.as_bytes());
            }
        }
        self.inputs(role, inputs);
    }

    fn inputs(&mut self, role: &str, inputs: &[WorkspaceInput]) {
        for input in inputs {
            let to = input.to.as_str();
            match &input.kind {
                InputKind::Dir => self.record([role, to, "dir"], b""),
                InputKind::Link { target } => {
                    self.record([role, to, "link"], target.as_os_str().as_bytes())
                }
                // Only the executable bits of the mode: the rest depends on the user's umask.
                InputKind::File { mode, sha256, .. } if mode & 0o111 != 0 => {
                    self.record([role, to, "program"], sha256)
                }
                InputKind::File { sha256, .. } => self.record([role, to, "file"], sha256),
            }
        }
    }

    /// Adds a check without what may change: `timeout`, `rerun`, `writable`.
    fn check(&mut self, check: &CheckSpec, files: &[WorkspaceInput]) {
        self.record(["check", &check.name], &[u8::from(check.hidden)]);
        for word in &check.command {
            self.record(["word"], word.as_bytes());
        }
        for (name, value) in &check.env {
            self.record(["variable", name], value.as_bytes());
        }
        if let Some(least) = check.min_tests {
            self.record(["min_tests"], &least.to_le_bytes());
        }
        self.sources("hidden", &check.files, files);
    }

    /// Adds provider and mode, and the user's own templates, prompts and environments.
    fn generator(&mut self, spec: &Spec, inputs: &Inputs) {
        self.record(["provider"], spec.generator.provider.name().as_bytes());
        self.record(
            ["agent"],
            &[u8::from(spec.generator.mode == GeneratorMode::Agent)],
        );
        for (index, round) in inputs.template.iter().flatten().enumerate() {
            for (to, content) in &round.files {
                self.record(
                    ["template", &index.to_string(), to.as_str()],
                    &Sha256::digest(content),
                );
            }
        }
        self.inputs("env", &inputs.environments);
        for (name, text) in inputs.prompts.named() {
            self.record(["prompt", name], &Sha256::digest(text));
        }
    }

    fn record<const N: usize>(&mut self, words: [&str; N], content: &[u8]) {
        self.sha.update((N as u64 + 1).to_le_bytes());
        for part in words.map(str::as_bytes).into_iter().chain([content]) {
            self.sha.update((part.len() as u64).to_le_bytes());
            self.sha.update(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised() {
        let folder = Path::new("/r/specs");
        let check = |text: &str, expected: &str| {
            assert_eq!(
                normalised(folder, &folder.join(text)),
                Path::new(expected),
                "{text}"
            );
        };
        check("tests", "tests");
        check("./tests/", "tests");
        check("tests//a/.", "tests/a");
        check("a/../tests", "tests");
        check("../tests/", "../tests");
        check("../a/../../tests", "../../tests");
        check("/r/specs/tests/", "tests");
        check("/opt/sdk/./", "/opt/sdk");
        check("/opt/../sdk", "/sdk");
        check(".", "");
        assert_ne!(
            normalised(folder, Path::new("/r/specs2/tests")),
            Path::new("2/tests")
        );
    }
}
