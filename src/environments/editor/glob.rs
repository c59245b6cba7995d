//! Which files a search is asked for.
//!
//! In a glob `*` stops at a slash and `**/` includes the top; one without a slash names files in every folder. Hidden
//! names match only where the glob writes their dot. A glob without wildcards is a path, and always meant.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{Error, GlobBuilder, GlobMatcher};

use super::error::{EditorError, FileError};
use crate::workspace::{PathError, ProjectDir, ProjectTarget};

/// The files that a glob names.
#[derive(Debug, Default)]
pub(super) struct GlobFilter {
    /// A file that is searched whatever rules say.
    pub named: Option<PathBuf>,
    /// Whether the tree is gone through for others.
    pub walks: bool,
    /// Nothing outside of this folder is meant.
    base: PathBuf,
    /// Whether the folder was named as it is, so that rules do not hold for it.
    is_base_named: bool,
    glob: Option<GlobMatcher>,
    /// The parts of the glob that begin with a dot.
    dots: Vec<GlobMatcher>,
}

impl GlobFilter {
    /// Returns the filter that names everything.
    pub(super) fn all() -> GlobFilter {
        GlobFilter {
            walks: true,
            ..GlobFilter::default()
        }
    }

    /// Reads a glob; the error says why it cannot be searched.
    pub(super) fn parse(project: &ProjectDir, glob: &str) -> Result<GlobFilter, EditorError> {
        let refused = |error: PathError| FileError::from(error).cannot("search", glob);
        let relative = project.relative(Path::new(glob)).map_err(refused)?;
        let parts: Vec<&str> = relative.iter().filter_map(OsStr::to_str).collect();
        if parts.contains(&"..") {
            return Err(refused(PathError::Outside));
        }
        if parts.is_empty() {
            return Ok(GlobFilter::all());
        }
        let is_anchored = glob.trim_end_matches('/').contains('/');
        let everywhere = GlobFilter::of_glob(&parts, is_anchored, glob.ends_with('/'))
            .map_err(|error| EditorError(format!("Invalid glob {glob}: {}", error.kind())))?;
        if !is_literal(glob) {
            return Ok(everywhere);
        }
        let named = GlobFilter::of_path(project, &relative).map_err(refused)?;
        Ok(if is_anchored || named.walks {
            named
        } else {
            GlobFilter {
                named: named.named,
                ..everywhere
            }
        })
    }

    /// Returns the filter that names a file, or a folder with what is in it, or nothing.
    fn of_path(project: &ProjectDir, path: &Path) -> Result<GlobFilter, PathError> {
        let is_in_git = |real: &Path| real.iter().any(|name| name == ".git");
        match project.find(path) {
            Ok(ProjectTarget::Folder(base)) if !is_in_git(&base) => Ok(GlobFilter {
                base,
                is_base_named: true,
                ..GlobFilter::all()
            }),
            Ok(ProjectTarget::Entry(found)) if !found.real.parent().is_some_and(is_in_git) => {
                let is_there = found.existing()?.is_some();
                Ok(GlobFilter {
                    named: is_there.then(|| path.to_owned()),
                    ..GlobFilter::default()
                })
            }
            Ok(_) | Err(PathError::Missing) => Ok(GlobFilter::default()),
            Err(problem) => Err(problem),
        }
    }

    fn of_glob(parts: &[&str], is_anchored: bool, is_folder: bool) -> Result<GlobFilter, Error> {
        let before = if is_anchored { "" } else { "**/" };
        let after = if is_folder { "/**" } else { "" };
        let glob = Some(matcher(&format!("{before}{}{after}", parts.join("/")))?);
        let folders = if is_anchored {
            &parts[..parts.len() - 1]
        } else {
            &[]
        };
        let base = folders.iter().take_while(|part| is_literal(part)).collect();
        let dots = dotted(parts)
            .iter()
            .map(|part| matcher(part))
            .collect::<Result<_, _>>()?;
        Ok(GlobFilter {
            walks: true,
            base,
            glob,
            dots,
            ..GlobFilter::default()
        })
    }

    /// Returns whether what is in this folder may be meant.
    pub(super) fn enters(&self, folder: &Path) -> bool {
        self.base.starts_with(folder) || folder.starts_with(&self.base)
    }

    /// Returns whether no rule holds for this folder, for it is on the way to one that was named.
    pub(super) fn names_folder(&self, folder: &Path) -> bool {
        self.is_base_named && self.base.starts_with(folder)
    }

    /// Returns whether a file is meant.
    pub(super) fn names(&self, file: &Path) -> bool {
        file.starts_with(&self.base) && self.glob.as_ref().is_none_or(|glob| glob.is_match(file))
    }

    /// Returns whether a hidden name is written out.
    pub(super) fn names_hidden(&self, name: &OsStr) -> bool {
        self.dots.iter().any(|dot| dot.is_match(Path::new(name)))
    }
}

/// Returns whether a name begins with a dot.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn is_literal(glob: &str) -> bool {
    !glob.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

fn matcher(glob: &str) -> Result<GlobMatcher, Error> {
    Ok(GlobBuilder::new(glob)
        .literal_separator(true)
        .build()?
        .compile_matcher())
}

/// The parts that begin with a dot, those in braces among them; of one that goes on in braces the beginning counts.
fn dotted(parts: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for piece in parts
        .iter()
        .flat_map(|part| part.split_inclusive(['{', ',', '}']))
    {
        let bare = piece.trim_end_matches(['{', ',', '}']);
        if bare.starts_with('.') {
            found.push(if piece.ends_with('{') {
                format!("{bare}*")
            } else {
                bare.to_owned()
            });
        }
    }
    found
}
