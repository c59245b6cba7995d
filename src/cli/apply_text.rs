//! What `apply` prints: a line for each file on stdout, conflicts and what is not carried on stderr.

use std::path::{Path, PathBuf};

use crate::apply::changes::ApplyConflict;
use crate::apply::plan::{ApplyPlan, PlannedChange};
use crate::apply::skipped::SkippedPaths;
use crate::cli::output::print_stderr;
use crate::text::invisible::escaped;

/// Writes paths relative to the current directory.
pub(super) struct ApplyText {
    current_dir: PathBuf,
}

impl ApplyText {
    /// `current_dir` is without links.
    pub(super) fn new(current_dir: &Path) -> ApplyText {
        ApplyText {
            current_dir: current_dir.to_owned(),
        }
    }

    /// One line per file, as `git status --short` marks it.
    pub(super) fn changes(&self, plan: &ApplyPlan) -> String {
        let lines = plan.changes.iter().map(|change| {
            let target = self.shown(&plan.target(change));
            format!("{} {target}\n", mark(change))
        });
        lines.collect()
    }

    pub(super) fn print_conflicts(&self, conflicts: &[ApplyConflict]) {
        for conflict in conflicts {
            let target = self.shown(&conflict.target);
            print_stderr(&format!("conflict: {target}: {}", conflict.problem));
        }
        match conflicts.len() {
            0 => {}
            1 => print_stderr("nothing was written: 1 conflict"),
            count => print_stderr(&format!("nothing was written: {count} conflicts")),
        }
    }

    pub(super) fn print_skipped(&self, skipped: &SkippedPaths) {
        for (path, reason) in skipped {
            let path = escaped(&path.to_string_lossy());
            print_stderr(&format!("not carried: {path}: {reason}"));
        }
    }

    fn shown(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.current_dir).unwrap_or(path);
        escaped(&below.to_string_lossy())
    }
}

fn mark(change: &PlannedChange) -> char {
    let is_same_kind = std::mem::discriminant(&change.old) == std::mem::discriminant(&change.new);
    match change {
        _ if change.new.is_absent() => 'D',
        _ if change.old.is_absent() => 'A',
        _ if is_same_kind => 'M',
        _ => 'T',
    }
}

/// How many files of each kind a plan changes, such as `2 changed, 1 added`.
pub(super) fn change_count(plan: &ApplyPlan) -> String {
    let count = |marks: &[char]| {
        let changes = plan.changes.iter();
        changes
            .filter(|change| marks.contains(&mark(change)))
            .count()
    };
    let parts = [
        (count(&['M', 'T']), "changed"),
        (count(&['A']), "added"),
        (count(&['D']), "deleted"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| 0 < *count)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    match parts.is_empty() {
        true => "nothing".into(),
        false => parts.join(", "),
    }
}
