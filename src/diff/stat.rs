//! How much of each file changed: the table of `git diff --stat`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lines::{changed_lines, split_lines};
use super::name::quoted;
use super::version::{FileDiff, content, is_binary};

/// How much of a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileStat {
    /// Numbers of lines.
    Text { added: usize, deleted: usize },
    /// Sizes in bytes; both are 0 if only the mode changed.
    Binary { old_size: usize, new_size: usize },
}

/// The widths of the columns of the table.
struct Columns {
    name: usize,
    number: usize,
    graph: usize,
    /// The most changed lines of a file.
    max_change: usize,
}

/// Counts what changed in a file.
pub(crate) fn file_stat(diff: &FileDiff<'_>) -> FileStat {
    let old = content(diff.old.as_ref());
    let new = content(diff.new.as_ref());
    if is_binary(old) || is_binary(new) {
        let (old_size, new_size) = match old == new {
            true => (0, 0),
            false => (old.len(), new.len()),
        };
        return FileStat::Binary { old_size, new_size };
    }
    let changes = changed_lines(&split_lines(old), &split_lines(new));
    FileStat::Text {
        added: changes.iter().map(|change| change.new.len()).sum(),
        deleted: changes.iter().map(|change| change.old.len()).sum(),
    }
}

/// A line for each file and one with the sums, at most `width` columns wide unless that is too few. Empty without files.
pub(crate) fn stat_table(files: &[(PathBuf, FileStat)], width: usize) -> String {
    if files.is_empty() {
        return String::new();
    }
    let files: Vec<(String, FileStat)> = files
        .iter()
        .map(|(path, stat)| (shown_name(path), *stat))
        .collect();
    let columns = Columns::new(&files, width);
    let mut table: String = files
        .iter()
        .map(|(name, stat)| format!(" {} |{}\n", columns.name(name), columns.change(*stat)))
        .collect();
    table.push_str(&summary(&files));
    table
}

/// The quoted name, which is always ASCII.
fn shown_name(path: &Path) -> String {
    String::from_utf8_lossy(&quoted(path.as_os_str().as_bytes())).into_owned()
}

fn summary(files: &[(String, FileStat)]) -> String {
    let (mut added, mut deleted) = (0, 0);
    for (_, stat) in files {
        if let FileStat::Text {
            added: a,
            deleted: d,
        } = stat
        {
            added += a;
            deleted += d;
        }
    }
    let plural = |count| if count == 1 { "" } else { "s" };
    let count = files.len();
    let mut line = format!(" {count} file{} changed", plural(count));
    if 0 < added || deleted == 0 {
        line.push_str(&format!(", {added} insertion{}(+)", plural(added)));
    }
    if 0 < deleted || added == 0 {
        line.push_str(&format!(", {deleted} deletion{}(-)", plural(deleted)));
    }
    line + "\n"
}

impl Columns {
    /// Three eighths of the width are for the graph, if the names need the rest.
    fn new(files: &[(String, FileStat)], width: usize) -> Columns {
        let (mut max_change, mut binary, mut number) = (0, 0, 0);
        for (_, stat) in files {
            match *stat {
                FileStat::Text { added, deleted } => max_change = max_change.max(added + deleted),
                FileStat::Binary { old_size, new_size } => {
                    number = "Bin".len();
                    // ` -> `, ` bytes` and `Bin ` have 14 characters.
                    binary = binary.max(14 + digits(old_size) + digits(new_size));
                }
            }
        }
        let number = digits(max_change).max(number);
        let longest = files.iter().map(|(name, _)| name.len()).max();
        let mut columns = Columns {
            name: longest.unwrap_or(0),
            number,
            graph: max_change.max(binary.saturating_sub(4)),
            max_change,
        };
        columns.fit(width);
        columns
    }

    fn fit(&mut self, width: usize) {
        let width = width.max(16 + 6 + self.number);
        let available = width - self.number - 6;
        if self.name + self.graph <= available {
            return;
        }
        let graph = (width * 3 / 8).saturating_sub(self.number + 6).max(6);
        self.graph = self.graph.min(graph);
        if available - self.graph < self.name {
            self.name = available - self.graph;
        } else {
            self.graph = available - self.name;
        }
    }

    /// A name in its column; of one that is too long the end, from a slash if there is one.
    fn name(&self, name: &str) -> String {
        let width = self.name;
        if name.len() <= width {
            return format!("{name:width$}");
        }
        let width = width.saturating_sub(3);
        let end = &name[name.len() - width..];
        let end = end.find('/').map_or(end, |slash| &end[slash..]);
        format!("...{end:width$}")
    }

    fn change(&self, stat: FileStat) -> String {
        let number = self.number;
        match stat {
            FileStat::Binary {
                old_size: 0,
                new_size: 0,
            } => format!(" {:>number$}", "Bin"),
            FileStat::Binary { old_size, new_size } => {
                format!(" {:>number$} {old_size} -> {new_size} bytes", "Bin")
            }
            FileStat::Text {
                added: 0,
                deleted: 0,
            } => format!(" {:>number$}", 0),
            FileStat::Text { added, deleted } => {
                let (plus, minus) = self.graph(added, deleted);
                let (plus, minus) = ("+".repeat(plus), "-".repeat(minus));
                format!(" {:>number$} {plus}{minus}", added + deleted)
            }
        }
    }

    /// The numbers of plus and minus signs: at most the width in all, and one at least where something changed.
    fn graph(&self, added: usize, deleted: usize) -> (usize, usize) {
        if self.max_change < self.graph {
            return (added, deleted);
        }
        let mut total = self.scaled(added + deleted);
        if total < 2 && 0 < added && 0 < deleted {
            total = 2;
        }
        if added < deleted {
            let plus = self.scaled(added);
            (plus, total - plus)
        } else {
            let minus = self.scaled(deleted);
            (total - minus, minus)
        }
    }

    fn scaled(&self, count: usize) -> usize {
        match count {
            0 => 0,
            _ => 1 + count * (self.graph - 1) / self.max_change,
        }
    }
}

fn digits(number: usize) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |digits| digits as usize + 1)
}
