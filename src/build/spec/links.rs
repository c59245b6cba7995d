//! Links in folders that are copied: those that stay inside are taken as links, others are refused with help.

use std::fs;
use std::path::{Component, Path};

use super::input_error::InputError;
use super::inputs::InputKind;
use super::model::InputSource;
use crate::text::quote::yaml_scalar;

/// The link at `path` if its target is below `top`, both as written and, where it exists, resolved.
pub(super) fn read_link(path: &Path, top: &Path) -> Result<InputKind, InputError> {
    let target = fs::read_link(path).map_err(|error| InputError::unreadable(path, error))?;
    let depth = path
        .strip_prefix(top)
        .map_or(0, |inside| inside.components().count() - 1);
    let resolved = fs::canonicalize(path).ok();
    match stays_inside(depth, &target) && resolved.is_none_or(|end| end.starts_with(top)) {
        true => Ok(InputKind::Link { target }),
        false => Err(InputError::LeavingLink {
            link: path.to_owned(),
            target,
        }),
    }
}

/// Whether a target stays below the top when followed from a folder at this depth.
fn stays_inside(depth: usize, target: &Path) -> bool {
    let end = target
        .components()
        .try_fold(depth, |depth, component| match component {
            Component::Normal(_) => Some(depth + 1),
            Component::CurDir => Some(depth),
            Component::ParentDir => depth.checked_sub(1),
            Component::RootDir | Component::Prefix(_) => None,
        });
    end.is_some()
}

/// What to write in the spec to leave a link of `source` out.
pub(super) fn exclusion_help(link: &Path, source: &InputSource) -> Option<String> {
    let top = source.from.canonicalize().ok()?;
    Some(match virtual_environment(link, &top) {
        None => format!(
            "`{}` leaves it out",
            entry_excluding(source, &exact_pattern(&top, link))
        ),
        Some(folder) => format!(
            "`{}` leaves the virtual environment out, and `sandbox: {{read: [{}]}}` shows it to checks",
            entry_excluding(source, &format!("{}/", exact_pattern(&top, folder))),
            yaml_scalar(&folder.to_string_lossy())
        ),
    })
}

/// The virtual environment below `top` that a link belongs to.
fn virtual_environment<'a>(link: &'a Path, top: &Path) -> Option<&'a Path> {
    link.ancestors()
        .skip(1)
        .take_while(|folder| folder.starts_with(top) && *folder != top)
        .find(|folder| folder.join("pyvenv.cfg").is_file())
}

/// The pattern of `exclude` that matches exactly this path.
fn exact_pattern(top: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(top).unwrap_or(path).to_string_lossy();
    let mut pattern = String::from("/");
    for character in inside.chars() {
        pattern.extend("*?[]{}\\".contains(character).then_some('\\'));
        pattern.push(character);
    }
    pattern
}

/// The entry of the spec with one more pattern in its `exclude`.
fn entry_excluding(source: &InputSource, pattern: &str) -> String {
    let patterns = source.exclude.iter().map(String::as_str).chain([pattern]);
    let patterns: Vec<String> = patterns.map(yaml_scalar).collect();
    let own_name = source.from.file_name().and_then(|name| name.to_str());
    let to = match &source.to {
        Some(to) if Some(to.as_str()) != own_name => format!(", to: {}", yaml_scalar(to.as_str())),
        _ => String::new(),
    };
    format!(
        "{{from: {}{to}, exclude: [{}]}}",
        yaml_scalar(&source.written),
        patterns.join(", ")
    )
}
