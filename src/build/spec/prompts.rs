//! The user's own prompts: `system.md`, `generate.md`, `patch.md` in the folder of `generator.prompts`.
//!
//! They are read and checked once, before anything runs; the generators replace the variables.

use std::io;
use std::ops::Range;
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
        None => Ok(Some(without_blanks(&prompt.text))),
    }
}

/// The `{{ word }}`s of a text and where they are; braces around anything but one word are text.
fn words(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    text.match_indices("{{").filter_map(|(at, _)| {
        let rest = &text[at + 2..];
        let end = rest.find(['}', '{', '\n'])?;
        let word = rest[..end].trim();
        let is_word = !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_closed = rest[end..].starts_with("}}");
        (is_word && is_closed).then_some((at..at + 2 + end + 2, word))
    })
}

fn unknown_variable(text: &str) -> Option<Diagnostic> {
    let (place, word) = words(text).find(|(_, word)| !VARIABLES.contains(word))?;
    let mistake = Diagnostic::new(place, format!("unknown variable `{}`", brief(word)));
    Some(mistake.with_help(format!("allowed: {}", VARIABLES.join(", "))))
}

/// The text with `{{spec}}` for `{{ spec }}`: the generators look for the first form alone.
fn without_blanks(text: &str) -> String {
    let mut out = String::new();
    let mut from = 0;
    for (place, word) in words(text) {
        out += &format!("{}{{{{{word}}}}}", &text[from..place.start]);
        from = place.end;
    }
    out + &text[from..]
}
