//! Names of files in `workspace/`: a `SafePath` exists only if its name is harmless.
//!
//! The rules are of the text alone and hold on every system, so the same answer is judged the same everywhere.
//! What the disk has under such a name (a link, a pipe, a mount) is judged by the resolver.

use std::fmt;

use unicode_normalization::UnicodeNormalization;

pub(crate) use crate::error::Violation;
use crate::text::invisible::is_reordering;

/// The longest component that file systems allow, in bytes.
const MAX_COMPONENT_BYTES: usize = 255;
/// The longest path, in bytes.
const MAX_PATH_BYTES: usize = 4096;
/// The deepest path, in components.
const MAX_COMPONENTS: usize = 100;

/// A relative path that stays inside and whose every component is a harmless name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SafePath(String);

impl SafePath {
    /// Returns the path in its one spelling (`./a//b/` is `a/b`), or why it is refused.
    pub fn parse(text: &str) -> Result<SafePath, Violation> {
        check_text(text).map_err(|rule| Violation::new(text, rule.to_string()))?;
        let components: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        check_components(&components).map_err(|rule| Violation::new(text, rule.to_string()))?;
        Ok(SafePath(components.join("/")))
    }

    /// Returns the path as text, components joined by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the components in order; there is at least one.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the folder that the path names a thing in; none at the top.
    pub fn parent(&self) -> Option<SafePath> {
        self.0
            .rsplit_once('/')
            .map(|(parent, _)| SafePath(parent.to_owned()))
    }

    /// Returns the last component.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Returns whether this is `folder` or lies below it, component by component.
    pub fn starts_with(&self, folder: &SafePath) -> bool {
        self.0
            .strip_prefix(&folder.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the key under which paths collide on a system that folds case or normal forms.
    ///
    /// Upper case comes first because it alone maps `ß` to `SS`.
    pub fn folded(&self) -> String {
        self.0
            .nfd()
            .collect::<String>()
            .to_uppercase()
            .to_lowercase()
    }
}

impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that a path breaks.
#[derive(Debug, thiserror::Error)]
enum PathRule {
    #[error("a path has at most {MAX_PATH_BYTES} bytes; this one has {0}")]
    TooLong(usize),
    #[error("paths are relative to the workspace, never absolute")]
    Absolute,
    #[error("the character U+{:04X} is not allowed in a path", u32::from(*.0))]
    Character(char),
    #[error("a path names a file below the workspace; this one is empty")]
    Empty,
    #[error("\"..\" leads out of the workspace")]
    Parent,
    #[error("a path has at most {MAX_COMPONENTS} components; this one has {0}")]
    TooDeep(usize),
    #[error("a path does not begin with \"-\": programs take it for an option")]
    Option,
    #[error("a path does not begin with a drive letter")]
    Drive,
    #[error("a name has at most {MAX_COMPONENT_BYTES} bytes; one here has {0}")]
    LongName(usize),
    #[error("a name does not end with a blank or a dot: other systems drop it")]
    DroppedEnd,
    #[error("\".git\" holds hooks and settings that git runs, and is never written")]
    Git,
}

/// The rules on the text as a whole.
fn check_text(text: &str) -> Result<(), PathRule> {
    if text.len() > MAX_PATH_BYTES {
        return Err(PathRule::TooLong(text.len()));
    }
    if text.starts_with('/') {
        return Err(PathRule::Absolute);
    }
    if let Some(found) = text.chars().find(|c| is_refused(*c)) {
        return Err(PathRule::Character(found));
    }
    Ok(())
}

/// Control characters and line separators forge lines, bidirectional controls forge names, and a backslash parts
/// components on other systems.
fn is_refused(c: char) -> bool {
    c == '\\' || c.is_control() || is_reordering(c)
}

/// The rules on the components together, then on each.
fn check_components(components: &[&str]) -> Result<(), PathRule> {
    let Some(first) = components.first() else {
        return Err(PathRule::Empty);
    };
    if components.contains(&"..") {
        return Err(PathRule::Parent);
    }
    if components.len() > MAX_COMPONENTS {
        return Err(PathRule::TooDeep(components.len()));
    }
    if first.starts_with('-') {
        return Err(PathRule::Option);
    }
    if matches!(first.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic()) {
        return Err(PathRule::Drive);
    }
    components
        .iter()
        .try_for_each(|component| check_component(component))
}

fn check_component(component: &str) -> Result<(), PathRule> {
    if component.len() > MAX_COMPONENT_BYTES {
        return Err(PathRule::LongName(component.len()));
    }
    if component.ends_with(|c: char| c == '.' || c.is_whitespace()) {
        return Err(PathRule::DroppedEnd);
    }
    if component.eq_ignore_ascii_case(".git") {
        return Err(PathRule::Git);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
