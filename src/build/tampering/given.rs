//! The files that the user gave, by which an unchanged one is recognized.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::build::spec::inputs::{
    InputContent, InputKind, Inputs, WorkspaceInput, find_input, has_input,
};
use crate::error::Result;
use crate::workspace::{ReadOutcome, Workspace};

/// All given files by their path in the workspace.
pub(super) struct GivenFiles {
    inputs: Arc<Inputs>,
}

/// A file or link that the user gave.
#[derive(Clone, Copy)]
pub(super) struct GivenFile<'a>(&'a InputKind);

impl GivenFiles {
    pub(super) fn new(inputs: Arc<Inputs>) -> GivenFiles {
        GivenFiles { inputs }
    }

    /// What was given at this path; a protected file before a copied one, and that before a hidden one.
    pub(super) fn get(&self, path: &Path) -> Option<GivenFile<'_>> {
        let hidden = self.inputs.hidden.iter().rev();
        let mut lists = [&self.inputs.protect, &self.inputs.copy]
            .into_iter()
            .chain(hidden);
        lists.find_map(|list| {
            let input = find_input(list, path)?;
            (input.kind != InputKind::Dir).then_some(GivenFile(&input.kind))
        })
    }

    /// The paths of all that was given and is not a folder.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let inputs = &*self.inputs;
        let all = inputs.hidden.iter().flatten();
        all.chain(&inputs.copy)
            .chain(&inputs.protect)
            .filter(|input| input.kind != InputKind::Dir)
            .map(|input| Path::new(input.to.as_str()))
    }

    /// Whether this path is restored anyway.
    pub(super) fn is_protected(&self, path: &Path) -> bool {
        has_input(&self.inputs.protect, path)
    }

    /// Whether this is a file of the user's tests, protected or hidden.
    pub(super) fn is_test(&self, path: &Path) -> bool {
        let is_file = |list: &Vec<WorkspaceInput>| {
            find_input(list, path).is_some_and(|input| input.kind != InputKind::Dir)
        };
        is_file(&self.inputs.protect) || self.inputs.hidden.iter().any(is_file)
    }
}

impl GivenFile<'_> {
    pub(super) fn is_link(&self) -> bool {
        matches!(self.0, InputKind::Link { .. })
    }

    /// The content as it was given, if it can still be read.
    pub(super) fn content(&self) -> Option<Vec<u8>> {
        match self.0 {
            InputKind::File {
                content: InputContent::Held(content),
                ..
            } => Some(content.to_vec()),
            InputKind::File {
                content: InputContent::Source(source),
                ..
            } => fs::read(source)
                .ok()
                .filter(|content| self.has_content(content)),
            InputKind::Link { .. } | InputKind::Dir => None,
        }
    }

    pub(super) fn has_content(&self, bytes: &[u8]) -> bool {
        matches!(self.0, InputKind::File { sha256, .. } if Sha256::digest(bytes)[..] == sha256[..])
    }

    /// Whether the workspace still has it at `path`; `link` is the target if there is a link now.
    pub(super) fn is_unchanged(
        &self,
        workspace: &Workspace,
        path: &Path,
        link: Option<&Path>,
    ) -> Result<bool> {
        Ok(match self.0 {
            InputKind::Link { target } => link == Some(target),
            InputKind::File { .. } | InputKind::Dir => {
                matches!(workspace.read_file(path, u64::MAX)?, ReadOutcome::File(bytes) if self.has_content(&bytes))
            }
        })
    }
}
