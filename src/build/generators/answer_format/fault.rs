//! What is wrong with an answer.

use std::collections::{BTreeMap, HashMap};

use crate::build::generators::answer_format::{FileBlock, ParsedAnswer};
use crate::workspace::safe_path::SafePath;

/// An answer with more blocks is refused.
const MAX_BLOCKS: usize = 10_000;

/// Why an answer is refused; the text is sent to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatFault {
    #[error(
        "the answer was cut off at the limit of output tokens (max_tokens), so none of it was used; \
         answer with fewer or shorter files"
    )]
    CutOff,
    #[error("the answer has no <file> or <delete> block")]
    NoBlock,
    #[error("the answer has more than {MAX_BLOCKS} blocks")]
    TooMany,
    #[error("the block of \"{path}\" is not closed: no line after it is exactly {end}")]
    Unclosed { path: String, end: String },
    #[error("\"{0}\" is named by more than one block")]
    Repeated(String),
    #[error("\"{first}\" and \"{second}\" name the same file (or differ only in case)")]
    SameFile { first: String, second: String },
    #[error("\"{file}\" is written as a file, but \"{below}\" needs it to be a folder")]
    FileAndFolder { file: String, below: String },
    /// A file with the name of a folder.
    #[error("\"{0}\" ends like a folder, but a <file> block writes a file; name the file")]
    FolderName(String),
    /// A conflict with a file or folder in the workspace.
    #[error("{0}")]
    Conflict(String),
}

impl ParsedAnswer {
    /// What is wrong with the answer; `paths` are those of the blocks, in order.
    pub fn fault(&self, paths: &[SafePath], cut_off: bool) -> Option<FormatFault> {
        if cut_off {
            return Some(FormatFault::CutOff);
        }
        if self.blocks.is_empty() {
            return Some(FormatFault::NoBlock);
        }
        if self.blocks.len() > MAX_BLOCKS {
            return Some(FormatFault::TooMany);
        }
        if let (Some(end), Some(last)) = (&self.unclosed, self.blocks.last()) {
            return Some(FormatFault::Unclosed {
                path: last.path().to_owned(),
                end: end.clone(),
            });
        }
        self.folder_name().or_else(|| self.collision(paths))
    }

    /// A written file may not end like a folder; a deletion may.
    fn folder_name(&self) -> Option<FormatFault> {
        let mut written = self
            .blocks
            .iter()
            .filter(|block| matches!(block, FileBlock::Write { .. }))
            .map(FileBlock::path);
        let named = written.find(|path| path.ends_with('/') || path.ends_with("/."));
        named.map(|path| FormatFault::FolderName(path.to_owned()))
    }

    fn collision(&self, paths: &[SafePath]) -> Option<FormatFault> {
        let mut seen: HashMap<String, &SafePath> = HashMap::new();
        for path in paths {
            if let Some(first) = seen.insert(path.folded(), path) {
                let (first, second) = (first.to_string(), path.to_string());
                return Some(match first == second {
                    true => FormatFault::Repeated(first),
                    false => FormatFault::SameFile { first, second },
                });
            }
        }
        // Sorted, so that equal answers have equal faults.
        let written: BTreeMap<String, &SafePath> = self
            .blocks
            .iter()
            .zip(paths)
            .filter(|(block, _)| matches!(block, FileBlock::Write { .. }))
            .map(|(_, path)| (path.folded(), path))
            .collect();
        written.iter().find_map(|(key, below)| {
            let parents = key.match_indices('/').map(|(at, _)| &key[..at]);
            let file = parents.into_iter().find_map(|parent| written.get(parent))?;
            Some(FormatFault::FileAndFolder {
                file: file.to_string(),
                below: below.to_string(),
            })
        })
    }
}
