//! The files that the user gave, by which an unchanged one is recognized.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::build::spec::inputs::{InputKind, Inputs, WorkspaceInput};
use crate::error::Result;
use crate::workspace::{ReadOutcome, Workspace};

/// A file or link that the user gave.
pub(super) enum GivenFile {
    File {
        sha256: [u8; 32],
        content: OriginalContent,
    },
    Link {
        target: PathBuf,
    },
}

/// Where the content of a given file can be read.
pub(super) enum OriginalContent {
    Held(Arc<[u8]>),
    Source(PathBuf),
}

/// All given files by their path in the workspace.
pub(super) fn given_files(inputs: &Inputs) -> HashMap<PathBuf, GivenFile> {
    let files = inputs
        .hidden
        .iter()
        .flatten()
        .chain(&inputs.copy)
        .chain(&inputs.protect);
    files
        .filter_map(|input| Some((PathBuf::from(input.to.as_str()), GivenFile::of(input)?)))
        .collect()
}

impl GivenFile {
    fn of(input: &WorkspaceInput) -> Option<GivenFile> {
        match &input.kind {
            InputKind::File {
                sha256,
                content,
                source,
                ..
            } => Some(GivenFile::File {
                sha256: *sha256,
                content: match content {
                    Some(content) => OriginalContent::Held(content.clone()),
                    None => OriginalContent::Source(source.clone()),
                },
            }),
            InputKind::Link { target } => Some(GivenFile::Link {
                target: target.clone(),
            }),
            InputKind::Dir => None,
        }
    }

    /// The content as it was given, if it can still be read.
    pub(super) fn content(&self) -> Option<Vec<u8>> {
        match self {
            GivenFile::File {
                content: OriginalContent::Held(content),
                ..
            } => Some(content.to_vec()),
            GivenFile::File {
                content: OriginalContent::Source(source),
                ..
            } => fs::read(source)
                .ok()
                .filter(|content| self.has_content(content)),
            GivenFile::Link { .. } => None,
        }
    }

    pub(super) fn has_content(&self, bytes: &[u8]) -> bool {
        matches!(self, GivenFile::File { sha256, .. } if Sha256::digest(bytes)[..] == sha256[..])
    }

    /// Whether the workspace still has it at `path`; `link` is the target if there is a link now.
    pub(super) fn is_unchanged(
        &self,
        workspace: &Workspace,
        path: &Path,
        link: Option<&Path>,
    ) -> Result<bool> {
        Ok(match self {
            GivenFile::Link { target } => link == Some(target),
            GivenFile::File { .. } => {
                matches!(workspace.read_file(path, u64::MAX)?, ReadOutcome::File(bytes) if self.has_content(&bytes))
            }
        })
    }
}
