//! The user's own prompts: `system.md`, `generate.md`, `patch.md` in the folder of `generator.prompts`.
//!
//! They are read and checked once, before anything runs; the generators replace the variables.

use std::io;
use std::path::Path;

use super::inputs::UserPrompts;
use crate::error::Error;
use crate::source::code;
use crate::source::diagnostic::{Diagnostic, shown_path};
use crate::source::node::brief;
use crate::source::text_file::{decode, load};

/// The names that a prompt may have between `{{` and `}}`.
pub(crate) const VARIABLES: [&str; 6] = ["spec", "files", "report", "format", "checks", "tools"];

/// Reads the prompts of a folder; an unknown variable is an error.
pub(super) fn read_prompts(folder: &Path) -> Result<UserPrompts, Error> {
    let prompt = |name: &str| read_one(&folder.join(name));
    Ok(UserPrompts {
        system: prompt("system.md")?,
        generate: prompt("generate.md")?,
        patch: prompt("patch.md")?,
    })
}

fn read_one(path: &Path) -> Result<Option<String>, Error> {
    let bytes = match load(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            return Ok(None);
        }
        Err(error) => {
            return Err(Error::Spec(format!(
                "{}: cannot read the prompt: {error}",
                shown_path(path)
            )));
        }
    };
    let prompt = decode(path, &bytes)?;
    match unknown_variable(&prompt.text) {
        Some(mistake) => Err(prompt.error(code::INPUT, &mistake)),
        None => Ok(Some(prompt.text)),
    }
}

/// The first `{{ word }}` that is not a variable; braces around anything but one word are text.
fn unknown_variable(text: &str) -> Option<Diagnostic> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    for (at, _) in text.match_indices("{{") {
        let rest = &text[at + 2..];
        let end = rest.find(['}', '{', '\n']).unwrap_or(0);
        let word = rest[..end].trim();
        if is_word(word) && rest[end..].starts_with("}}") && !VARIABLES.contains(&word) {
            let mistake = Diagnostic::new(
                at..at + 2 + end + 2,
                format!("unknown variable `{}`", brief(word)),
            );
            return Some(mistake.with_help(format!("allowed: {}", VARIABLES.join(", "))));
        }
    }
    None
}
