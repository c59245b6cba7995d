//! Search: the lines of the project's files that match, in the order of their paths.
//!
//! Small files are searched side by side, in batches, so that the answer can be put together in order and never holds
//! more than may be given out; a file that is large, or has many matches, waits for its turn alone.

use std::collections::VecDeque;
use std::iter;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::error::EditorError;
use super::file::TextFile;
use super::glob::GlobFilter;
use super::pattern::{CpuBudget, Pattern, TooSlow};
use super::text::{FileText, shown};
use super::walk;
use crate::workspace::{MAX_FILE_SIZE, PathError, ProjectDir};

/// How long a search may take; what was found by then is the answer.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The processor's time that one file may take, and how many may take it.
const FILE_MILLISECONDS: i64 = 500;
const MAX_SLOW_FILES: usize = 3;
const MAX_THREADS: usize = 4;
const FILES_WORTH_A_THREAD: usize = 16;
const BATCH: usize = 512;
/// The largest size of a file of a batch, and of its matches.
const SMALL_FILE: u64 = 1 << 20;
const SMALL_ANSWER: usize = 1 << 17;
/// What is kept of the beginning of an answer, and as much again of its end.
const KEPT_AT_EACH_END: usize = 4_990_000;
const MAX_NOTES: usize = 20;

/// Returns the lines that match in the files that the glob names, in all without one.
pub(super) fn search(
    project: &ProjectDir,
    pattern: &Pattern,
    glob: Option<&str>,
) -> Result<String, EditorError> {
    let filter = glob.map_or_else(
        || Ok(GlobFilter::all()),
        |glob| GlobFilter::parse(project, glob),
    )?;
    let search = Search {
        project,
        pattern,
        until: Instant::now() + MAX_TIME,
        slow: AtomicUsize::new(0),
    };
    let mut answer = SearchAnswer {
        is_whole: true,
        ..SearchAnswer::default()
    };
    let mut paths = Vec::new();
    if filter.walks {
        let files = walk::files(project, &filter, search.until);
        answer.is_whole = files.is_whole;
        paths = files.paths;
    }
    if let Some(named) = &filter.named {
        let file = TextFile::read(project, named)
            .map_err(|error| error.cannot("search", &named.to_string_lossy()))?;
        // Its place in the order is found by the comparison that made the order.
        let name = named.as_os_str().as_bytes();
        let later =
            paths.split_off(paths.partition_point(|path| path.as_os_str().as_bytes() < name));
        answer.add_files(&search, &paths);
        answer.add_text(&search, named, &file.text);
        paths = later;
    }
    answer.add_files(&search, &paths);
    Ok(answer.finish())
}

/// What is searched for, and for how long.
struct Search<'a> {
    project: &'a ProjectDir,
    pattern: &'a Pattern,
    until: Instant,
    /// How many files took too long.
    slow: AtomicUsize,
}

/// The matches of a file.
#[derive(Debug, Clone)]
enum FileMatches {
    Lines(String),
    /// It has to be searched alone.
    Much,
    TooSlow,
}

/// What is put together of an answer.
#[derive(Debug, Default)]
struct SearchAnswer {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    dropped: usize,
    dropped_bytes: usize,
    notes: Vec<String>,
    is_whole: bool,
}

impl SearchAnswer {
    fn add_files(&mut self, search: &Search<'_>, paths: &[PathBuf]) {
        for batch in paths.chunks(BATCH) {
            for (path, found) in batch.iter().zip(search.search_batch(batch)) {
                match found {
                    FileMatches::Lines(lines) => {
                        lines.split_inclusive('\n').for_each(|line| self.push(line))
                    }
                    FileMatches::TooSlow => self.note_slow(path),
                    FileMatches::Much if search.is_over() => {
                        self.is_whole = false;
                        return;
                    }
                    FileMatches::Much => self.add_alone(search, path),
                }
            }
        }
    }

    fn add_alone(&mut self, search: &Search<'_>, path: &Path) {
        match search.read(path, MAX_FILE_SIZE) {
            Ok(Some(text)) => self.add_text(search, path, &text),
            Err(PathError::TooLarge(_)) => {
                self.note(format!("{} is larger than 32 MB", path.display()))
            }
            Ok(None) | Err(_) => {}
        }
    }

    fn add_text(&mut self, search: &Search<'_>, path: &Path, text: &FileText) {
        let searched = search.search_text(path, text, &mut |line| {
            self.push(line);
            true
        });
        if searched.is_err() {
            self.note_slow(path);
        }
    }

    fn note_slow(&mut self, path: &Path) {
        self.note(format!("{} takes too long to match", path.display()));
    }

    /// Adds a line, with its newline.
    fn push(&mut self, line: &str) {
        if self.tail.is_empty() && self.head.len() + line.len() <= KEPT_AT_EACH_END {
            self.head.push_str(line);
            return;
        }
        self.tail_bytes += line.len();
        self.tail.push_back(line.to_owned());
        while KEPT_AT_EACH_END < self.tail_bytes
            && let Some(oldest) = self.tail.pop_front()
        {
            self.tail_bytes -= oldest.len();
            self.dropped_bytes += oldest.len();
            self.dropped += 1;
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    fn finish(self) -> String {
        let mut text = if self.head.is_empty() {
            "No matches".to_owned()
        } else {
            format!("Matches:\n{}", self.head)
        };
        if 0 < self.dropped {
            text += &format!(
                "  [... {} matches dropped, {} bytes ...]\n",
                self.dropped, self.dropped_bytes
            );
        }
        text.extend(self.tail);
        text.truncate(text.trim_end_matches('\n').len());
        for note in self.notes {
            text += &format!("\n[not searched: {note}]");
        }
        if !self.is_whole {
            text += "\n[stopped, for it takes too long: name a smaller part of the tree, or a simpler pattern]";
        }
        text
    }
}

impl Search<'_> {
    fn is_over(&self) -> bool {
        MAX_SLOW_FILES <= self.slow.load(Ordering::Relaxed) || self.until < Instant::now()
    }

    /// Searches files side by side.
    fn search_batch(&self, paths: &[PathBuf]) -> Vec<FileMatches> {
        let next = AtomicUsize::new(0);
        let work = || {
            let claim =
                || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < paths.len());
            iter::from_fn(claim)
                .map(|at| (at, self.search_small(&paths[at])))
                .collect::<Vec<_>>()
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores
            .min(MAX_THREADS)
            .min(1 + paths.len() / FILES_WORTH_A_THREAD);
        let mut all = vec![FileMatches::Much; paths.len()];
        thread::scope(|scope| {
            // A thread that cannot be had is not missed: this one does its work too.
            let others: Vec<_> = (1..threads)
                .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let own = work();
            for (at, found) in others
                .into_iter()
                .filter_map(|other| other.join().ok())
                .flatten()
                .chain(own)
            {
                all[at] = found;
            }
        });
        all
    }

    /// Reads a file; `None` if it is binary.
    fn read(&self, path: &Path, limit: u64) -> Result<Option<FileText>, PathError> {
        let content = self.project.read_straight(path, limit)?;
        Ok(FileText::new(content))
    }

    fn search_small(&self, path: &Path) -> FileMatches {
        if self.is_over() {
            return FileMatches::Much;
        }
        let text = match self.read(path, SMALL_FILE) {
            Ok(Some(text)) => text,
            Err(PathError::TooLarge(_)) => return FileMatches::Much,
            // Binary, unreadable or gone.
            Ok(None) | Err(_) => return FileMatches::Lines(String::new()),
        };
        let mut lines = String::new();
        let searched = self.search_text(path, &text, &mut |line| {
            lines.push_str(line);
            lines.len() < SMALL_ANSWER
        });
        match searched {
            Err(TooSlow) => FileMatches::TooSlow,
            Ok(()) if lines.len() < SMALL_ANSWER => FileMatches::Lines(lines),
            Ok(()) => FileMatches::Much,
        }
    }

    /// Passes on every line that matches, until `found` asks to stop.
    fn search_text(
        &self,
        path: &Path,
        text: &FileText,
        give: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), TooSlow> {
        let mut effort = CpuBudget::milliseconds(FILE_MILLISECONDS);
        let (mut at, mut number) = (text.top(), 1);
        while let Some(line) = self
            .pattern
            .next_line(text, at, &mut effort)
            .inspect_err(|_| self.count_slow())?
        {
            number += text.newlines(at..line.start);
            if !give(&format!(
                "  {}:{number}: {}\n",
                path.display(),
                shown(text.content(line))
            )) {
                break;
            }
            (at, number) = (line.next, number + 1);
        }
        Ok(())
    }

    fn count_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }
}
