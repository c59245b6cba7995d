//! What a run writes into its root, as lines of `.gitignore`.

use std::io::Read;
use std::path::{Path, PathBuf};

use ignore::gitignore::GitignoreBuilder;
use rustix::fs::OFlags;

use crate::cli::init::new_files::PlannedFile;
use crate::regular_file::open_regular_file;

/// The lines, each with a name that it matches, and whether that is a folder.
const LINES: [(&str, &str, bool); 4] = [
    ("/workspace/", "workspace", true),
    ("/logs/", "logs", true),
    ("/state.json*", "state.json", false),
    ("/.orchestrator*", ".orchestrator.lock", false),
];
const HEADING: &str = "# Files of orchestrator's runs";
/// A longer `.gitignore` is left alone.
const MAX_LENGTH: u64 = 1 << 20;

/// What becomes of `.gitignore`.
pub(super) struct IgnoreChange {
    /// The file to write, if one is.
    pub(super) file: Option<PlannedFile>,
    /// For people.
    pub(super) lines: Vec<String>,
}

/// Decides which lines are missing, and whether they can be written.
pub(super) fn ignore_change(folder: &Path) -> IgnoreChange {
    let Some(top) = repository(folder) else {
        return only_printed(
            &missing(folder, folder),
            "this is not a git repository; lines for its .gitignore",
        );
    };
    let missing = missing(folder, &top);
    if missing.is_empty() {
        return IgnoreChange {
            file: None,
            lines: Vec::new(),
        };
    }
    let path = folder.join(".gitignore");
    let (before, verb) = match (path.symlink_metadata(), whole_text(&path)) {
        (Err(_), _) => (None, "wrote"),
        (Ok(found), Some(text)) if found.is_file() => (Some(text), "added to"),
        _ => {
            return only_printed(
                &missing,
                "add these lines to .gitignore, which is a link or cannot be changed",
            );
        }
    };
    let replaces = before.is_some();
    let mut text = before.unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += &format!("{HEADING}\n{}\n", missing.join("\n"));
    IgnoreChange {
        file: Some(PlannedFile {
            path,
            text,
            replaces,
        }),
        lines: vec![format!("{verb} .gitignore: {}", missing.join(" "))],
    }
}

fn only_printed(missing: &[&str], why: &str) -> IgnoreChange {
    let heading = (!missing.is_empty()).then(|| format!("{why}:"));
    let shown = missing.iter().map(|line| format!("  {line}"));
    IgnoreChange {
        file: None,
        lines: heading.into_iter().chain(shown).collect(),
    }
}

/// The top of the repository that a folder is in.
fn repository(folder: &Path) -> Option<PathBuf> {
    let mut folders = folder.ancestors();
    folders
        .find(|folder| folder.join(".git").exists())
        .map(Path::to_owned)
}

/// The lines whose names no `.gitignore` from the top of the repository to the folder matches.
fn missing(folder: &Path, top: &Path) -> Vec<&'static str> {
    let above = folder
        .ancestors()
        .take_while(|above| above.starts_with(top));
    let rules: Vec<_> = above
        .filter_map(|above| {
            let mut builder = GitignoreBuilder::new(above);
            let text = whole_text(&above.join(".gitignore"))?;
            text.lines()
                .for_each(|line| drop(builder.add_line(None, line)));
            builder.build().ok()
        })
        .collect();
    let is_ignored = |name: &str, is_folder: bool| {
        let path = folder.join(name);
        rules
            .iter()
            .any(|rules| rules.matched(&path, is_folder).is_ignore())
    };
    let lines = LINES
        .iter()
        .filter(|(_, name, is_folder)| !is_ignored(name, *is_folder));
    lines.map(|(line, ..)| *line).collect()
}

/// The text of a file that is not too long and valid UTF-8.
fn whole_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = open_regular_file(path, OFlags::empty()).ok()?;
    let length = file.take(MAX_LENGTH + 1).read_to_string(&mut text).ok()?;
    (length as u64 <= MAX_LENGTH).then_some(text)
}
