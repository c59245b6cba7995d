//! The patch of one file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::binary::push_binary;
use super::hunks::push_hunks;
use super::name::quoted;
use super::version::{FileDiff, FileVersion, content, is_binary};

/// Digits of an object's name in the patch of a text. A binary patch needs all of them.
const SHORT_NAME: usize = 7;

const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// The patch of a file as `git diff --binary` writes it; empty if the versions are the same.
pub(crate) fn git_patch(diff: &FileDiff<'_>) -> Vec<u8> {
    let (old, new) = (diff.old.as_ref(), diff.new.as_ref());
    let mut patch = Vec::new();
    match (old, new) {
        _ if old == new => {}
        // A file does not become a link: it is deleted, and a link is created.
        (Some(before), Some(after)) if before.is_link() != after.is_link() => {
            push_patch(&mut patch, diff.path, old, None);
            push_patch(&mut patch, diff.path, None, new);
        }
        _ => push_patch(&mut patch, diff.path, old, new),
    }
    patch
}

/// Adds the patch between two versions that differ.
fn push_patch(
    patch: &mut Vec<u8>,
    path: &Path,
    old: Option<&FileVersion<'_>>,
    new: Option<&FileVersion<'_>>,
) {
    let (before, after) = (content(old), content(new));
    let is_binary = is_binary(before) || is_binary(after);
    push_line(
        patch,
        &[b"diff --git ", &name(b"a/", path), b" ", &name(b"b/", path)],
    );
    push_modes(patch, old, new);
    push_index(patch, old, new, is_binary);
    if before == after {
        return;
    }
    if is_binary {
        push_binary(patch, before, after);
        return;
    }
    push_file_line(patch, b"--- ", old.map(|_| name(b"a/", path)));
    push_file_line(patch, b"+++ ", new.map(|_| name(b"b/", path)));
    push_hunks(patch, before, after);
}

fn push_modes(patch: &mut Vec<u8>, old: Option<&FileVersion<'_>>, new: Option<&FileVersion<'_>>) {
    let lines: &[(&str, &str)] = match (old, new) {
        (None, Some(new)) => &[("new file mode ", new.kind.mode())],
        (Some(old), None) => &[("deleted file mode ", old.kind.mode())],
        (Some(old), Some(new)) if old.kind != new.kind => &[
            ("old mode ", old.kind.mode()),
            ("new mode ", new.kind.mode()),
        ],
        _ => &[],
    };
    for (label, mode) in lines {
        push_line(patch, &[label.as_bytes(), mode.as_bytes()]);
    }
}

/// Adds the names of the objects, if they differ, and the mode, if it is the same.
fn push_index(
    patch: &mut Vec<u8>,
    old: Option<&FileVersion<'_>>,
    new: Option<&FileVersion<'_>>,
    is_binary: bool,
) {
    let object = |version: Option<&FileVersion<'_>>| {
        let name = version.map_or_else(|| NO_OBJECT.to_owned(), FileVersion::object_name);
        let digits = if is_binary { name.len() } else { SHORT_NAME };
        name[..digits].to_owned()
    };
    let mode = match (old, new) {
        (Some(old), Some(new)) if old.content == new.content => return,
        (Some(old), Some(new)) if old.kind == new.kind => format!(" {}", new.kind.mode()),
        _ => String::new(),
    };
    let line = format!("index {}..{}{mode}", object(old), object(new));
    push_line(patch, &[line.as_bytes()]);
}

/// Adds a line that names one of the files; a name with a blank is followed by a tab, which ends it.
fn push_file_line(patch: &mut Vec<u8>, label: &[u8], name: Option<Vec<u8>>) {
    let name = name.unwrap_or_else(|| b"/dev/null".to_vec());
    let end: &[u8] = if name.contains(&b' ') { b"\t" } else { b"" };
    push_line(patch, &[label, &name, end]);
}

fn push_line(patch: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| patch.extend_from_slice(part));
    patch.push(b'\n');
}

fn name(prefix: &[u8], path: &Path) -> Vec<u8> {
    quoted(&[prefix, path.as_os_str().as_bytes()].concat())
}
