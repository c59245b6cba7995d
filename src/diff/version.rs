//! The two versions of a file that are compared.

use std::borrow::Cow;
use std::path::Path;

use sha1::{Digest, Sha1};

use crate::text::hex;

/// As git decides it: a file with a zero byte in this many first bytes is binary.
const BINARY_PREFIX: usize = 8000;

/// What a path is in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VersionKind {
    Regular,
    Executable,
    /// A symbolic link; the content is its target.
    Link,
}

/// One version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileVersion<'a> {
    pub(crate) kind: VersionKind,
    pub(crate) content: Cow<'a, [u8]>,
}

/// A path, relative to the folder that is compared, and its versions. `None`: it does not exist on that side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileDiff<'a> {
    pub(crate) path: &'a Path,
    pub(crate) old: Option<FileVersion<'a>>,
    pub(crate) new: Option<FileVersion<'a>>,
}

impl VersionKind {
    /// The mode as git writes it.
    pub(super) fn mode(self) -> &'static str {
        match self {
            VersionKind::Regular => "100644",
            VersionKind::Executable => "100755",
            VersionKind::Link => "120000",
        }
    }
}

impl FileVersion<'_> {
    pub(super) fn is_link(&self) -> bool {
        self.kind == VersionKind::Link
    }

    /// The name of git's object with this content: 40 digits.
    pub(super) fn object_name(&self) -> String {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.content.len()));
        hash.update(&self.content);
        hex(&hash.finalize())
    }
}

/// The content of a version; that of a missing one is empty.
pub(super) fn content<'a>(version: Option<&'a FileVersion<'_>>) -> &'a [u8] {
    version.map_or(&[], |version| &version.content)
}

/// Whether a content is not text for git.
pub(super) fn is_binary(content: &[u8]) -> bool {
    let prefix = &content[..content.len().min(BINARY_PREFIX)];
    memchr::memchr(0, prefix).is_some()
}
