//! Search: the lines of the project's files that match, in the order of their paths.
//!
//! Small files are searched side by side, in batches, so that the answer can be put together in order and never holds
//! more than may be given out; a file that is large, or has much to tell, waits for its turn alone.

use std::collections::VecDeque;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cannot;
use super::glob::Filter;
use super::pattern::{Effort, Pattern, TooSlow};
use super::place::{MAX_SIZE, Project, Trouble};
use super::text::{Text, shown};
use super::walk;

/// How long a search may take; what was found by then is the answer.
const MAX_TIME: Duration = Duration::from_secs(10);
/// The processor's time that one file may take.
const FILE_MILLISECONDS: i64 = 1000;
const MAX_THREADS: usize = 4;
const BATCH: usize = 512;
/// What a file of a batch may weigh, and what it may have to tell.
const SMALL_FILE: u64 = 1 << 20;
const SMALL_ANSWER: usize = 1 << 17;
/// What is kept of the beginning of an answer, and as much again of its end.
const KEPT_AT_EACH_END: usize = 4_990_000;
const MAX_NOTES: usize = 20;

/// Returns the lines that match in the files that the glob names, in all without one.
pub(super) fn search(project: &Project, pattern: &Pattern, glob: Option<&str>) -> Result<String, String> {
    let until = Instant::now() + MAX_TIME;
    let filter = glob.map_or_else(|| Ok(Filter::all()), |glob| Filter::parse(project, glob))?;
    let mut answer = Answer::default();
    let mut paths = Vec::new();
    if filter.walks {
        let files = walk::files(project, &filter, until);
        answer.is_whole = files.is_whole;
        paths = files.paths;
    }
    if let Some(named) = &filter.named {
        let (_, text, _) =
            project.read(named).map_err(|trouble| cannot("search", &named.to_string_lossy(), trouble))?;
        // Its place in the order is found by the same comparison that made the order.
        let after =
            paths.partition_point(|path| path.as_os_str().as_encoded_bytes() < named.as_os_str().as_encoded_bytes());
        let later = paths.split_off(after);
        answer.add_files(project, pattern, &paths, until);
        answer.add_text(pattern, named, &text);
        paths = later;
    }
    answer.add_files(project, pattern, &paths, until);
    Ok(answer.finish())
}

/// What is put together of an answer.
#[derive(Debug)]
struct Answer {
    head: String,
    tail: VecDeque<String>,
    tail_bytes: usize,
    dropped: usize,
    dropped_bytes: usize,
    notes: Vec<String>,
    is_whole: bool,
}

impl Default for Answer {
    fn default() -> Answer {
        Answer {
            head: String::new(),
            tail: VecDeque::new(),
            tail_bytes: 0,
            dropped: 0,
            dropped_bytes: 0,
            notes: Vec::new(),
            is_whole: true,
        }
    }
}

impl Answer {
    fn add_files(&mut self, project: &Project, pattern: &Pattern, paths: &[PathBuf], until: Instant) {
        for batch in paths.chunks(BATCH) {
            let found = search_batch(project, pattern, batch);
            for (path, found) in batch.iter().zip(found) {
                if until < Instant::now() {
                    self.is_whole = false;
                    return;
                }
                match found {
                    Some(lines) => lines.split_inclusive('\n').for_each(|line| self.push(line)),
                    None => self.add_alone(project, pattern, path),
                }
            }
        }
    }

    fn add_alone(&mut self, project: &Project, pattern: &Pattern, path: &Path) {
        match project.read_straight(path, MAX_SIZE) {
            Ok(text) => self.add_text(pattern, path, &text),
            Err(Trouble::TooLarge) => self.note(format!("{} is larger than 32 MB", path.display())),
            Err(_) => {}
        }
    }

    fn add_text(&mut self, pattern: &Pattern, path: &Path, text: &Text) {
        let found = search_text(pattern, path, text, &mut |line| {
            self.push(line);
            true
        });
        if found.is_err() {
            self.note(format!("{} takes too long to match", path.display()));
        }
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
        let mut text = if self.head.is_empty() { "No matches".to_owned() } else { format!("Matches:\n{}", self.head) };
        if 0 < self.dropped {
            text += &format!("  [... {} matches dropped, {} bytes ...]\n", self.dropped, self.dropped_bytes);
        }
        text.extend(self.tail);
        text.truncate(text.trim_end_matches('\n').len());
        for note in self.notes {
            text += &format!("\n[not searched: {note}]");
        }
        if !self.is_whole {
            text += &format!("\n[stopped after {} seconds: name a smaller part of the tree]", MAX_TIME.as_secs());
        }
        text
    }
}

/// Searches files side by side; nothing is returned for one that has to be searched alone.
fn search_batch(project: &Project, pattern: &Pattern, paths: &[PathBuf]) -> Vec<Option<String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some((at, path)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            paths.get(at).map(|path| (at, path))
        } {
            found.push((at, search_small(project, pattern, path)));
        }
        found
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS).min(1 + paths.len() / 16);
    let mut answers = vec![Some(String::new()); paths.len()];
    thread::scope(|scope| {
        // A thread that cannot be had is not missed: this one does its work too.
        let others: Vec<_> =
            (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok()).collect();
        let own = work();
        for (at, found) in others.into_iter().filter_map(|other| other.join().ok()).flatten().chain(own) {
            answers[at] = found;
        }
    });
    answers
}

/// Returns the lines of a file that match, or nothing if it has to be searched alone.
fn search_small(project: &Project, pattern: &Pattern, path: &Path) -> Option<String> {
    let text = match project.read_straight(path, SMALL_FILE) {
        Ok(text) => text,
        Err(Trouble::TooLarge) => return None,
        // Binary, unreadable or gone.
        Err(_) => return Some(String::new()),
    };
    let mut lines = String::new();
    let searched = search_text(pattern, path, &text, &mut |line| {
        lines.push_str(line);
        lines.len() < SMALL_ANSWER
    });
    (searched.is_ok() && lines.len() < SMALL_ANSWER).then_some(lines)
}

/// Gives out every line that matches, until it is told to stop.
fn search_text(pattern: &Pattern, path: &Path, text: &Text, give: &mut dyn FnMut(&str) -> bool) -> Result<(), TooSlow> {
    let mut effort = Effort::milliseconds(FILE_MILLISECONDS);
    let (mut at, mut number) = (text.top(), 1);
    while let Some(line) = pattern.next_line(text, at, &mut effort)? {
        number += text.newlines(at..line.start);
        if !give(&format!("  {}:{number}: {}\n", path.display(), shown(text.content(line)))) {
            break;
        }
        (at, number) = (line.next, number + 1);
    }
    Ok(())
}
