//! A walk that is kept: what it found can be visited again, as often as needed, without the disk.
//!
//! Names are kept in one piece of memory, so that 200,000 entries take some 16 MB.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Error;
use crate::workspace::entry::FileTime;
use crate::workspace::handle::{Workspace, now_of_files};
use crate::workspace::walk::{EntryKind, WalkStep, WorkspaceEntry};

/// Entries of the workspace at one moment, in the order of a walk.
#[derive(Debug)]
pub(crate) struct RecordedWalk {
    entries: Vec<RecordedEntry>,
    /// The name of each entry, after that of a link its target.
    text: Vec<u8>,
    begun: FileTime,
    has_reliable_times: bool,
}

#[derive(Debug)]
struct RecordedEntry {
    /// Where its text begins; it ends where that of the next one begins.
    text: usize,
    name_length: u16,
    metadata: EntryMetadata,
}

/// What an entry is compared by; times are in two parts because they take less space so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryMetadata {
    /// How many folders it is in.
    depth: u16,
    kind: RecordedKind,
    mode: u16,
    links: u32,
    size: u64,
    ino: u64,
    seconds: [i64; 2],
    nanoseconds: [u32; 2],
}

impl EntryMetadata {
    fn ctime(&self) -> FileTime {
        (self.seconds[0], self.nanoseconds[0])
    }

    fn mtime(&self) -> FileTime {
        (self.seconds[1], self.nanoseconds[1])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordedKind {
    File,
    Dir,
    Link,
    Special,
}

impl Workspace {
    /// Visits entries like `walk_whole`, and records those that are visited.
    pub(crate) fn record_walk(
        &self,
        visit: &mut dyn FnMut(&WorkspaceEntry) -> RecordStep,
    ) -> Result<RecordedWalk, Error> {
        let mut recorder = WalkRecorder::new(self);
        self.walk_whole(&mut |entry| {
            let step = visit(entry);
            if step != RecordStep::Omit {
                recorder.add(entry);
            }
            match step {
                RecordStep::Enter => WalkStep::On,
                RecordStep::Record | RecordStep::Omit => WalkStep::Skip,
            }
        })?;
        Ok(recorder.recorded)
    }
}

/// Records the entries of a walk that begins now.
#[derive(Debug)]
pub(super) struct WalkRecorder {
    pub recorded: RecordedWalk,
    /// The lengths of the paths of the last entry and of the folders around it.
    folders: Vec<usize>,
}

impl WalkRecorder {
    pub(super) fn new(workspace: &Workspace) -> WalkRecorder {
        WalkRecorder {
            recorded: RecordedWalk {
                entries: Vec::new(),
                text: Vec::new(),
                begun: now_of_files(),
                has_reliable_times: workspace.has_reliable_times(),
            },
            folders: Vec::new(),
        }
    }

    /// Adds an entry, in the order of the walk.
    pub(super) fn add(&mut self, entry: &WorkspaceEntry) {
        let length = entry.path.as_os_str().len();
        let name = entry.path.file_name().unwrap_or_default().as_bytes();
        let around = (length - name.len()).saturating_sub(1);
        while self.folders.last().is_some_and(|length| *length > around) {
            self.folders.pop();
        }
        self.recorded.add(self.folders.len(), name, entry);
        self.folders.push(length);
    }
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordStep {
    /// It is recorded, and so is what is in it.
    Enter,
    Record,
    Omit,
}

impl RecordedWalk {
    fn add(&mut self, depth: usize, name: &[u8], entry: &WorkspaceEntry) {
        let (kind, mode, size) = match &entry.kind {
            EntryKind::File { size, mode } => (RecordedKind::File, *mode, *size),
            EntryKind::Dir { mode } => (RecordedKind::Dir, *mode, 0),
            EntryKind::Link { .. } => (RecordedKind::Link, 0, 0),
            EntryKind::Special => (RecordedKind::Special, 0, 0),
        };
        let text = self.text.len();
        self.text.extend_from_slice(name);
        if let EntryKind::Link { target } = &entry.kind {
            self.text.extend_from_slice(target.as_os_str().as_bytes());
        }
        self.entries.push(RecordedEntry {
            text,
            // A name has at most 255 bytes, a mode twelve bits, and a walk is not that deep.
            name_length: u16::try_from(name.len()).unwrap_or(u16::MAX),
            metadata: EntryMetadata {
                depth: u16::try_from(depth).unwrap_or(u16::MAX),
                mode: u16::try_from(mode).unwrap_or(u16::MAX),
                kind,
                links: entry.links,
                size,
                ino: entry.ino,
                seconds: [entry.ctime.0, entry.mtime.0],
                nanoseconds: [entry.ctime.1, entry.mtime.1],
            },
        });
    }

    /// How many entries were recorded.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Visits what was recorded like a walk.
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(&WorkspaceEntry) -> WalkStep) {
        let mut cursor = self.cursor();
        while cursor.advance() {
            match visit(cursor.entry()) {
                WalkStep::On => {}
                WalkStep::Skip => cursor.skip_folder(),
                WalkStep::Stop => return,
            }
        }
    }

    pub(crate) fn cursor(&self) -> WalkCursor<'_> {
        WalkCursor {
            walk: self,
            next: 0,
            entry: WorkspaceEntry::unknown(),
            folders: Vec::new(),
        }
    }

    /// The file system's time when the walk began, if its times are reliable: a later change has this ctime or a later
    /// one.
    pub(crate) fn begun(&self) -> Option<FileTime> {
        self.has_reliable_times.then_some(self.begun)
    }

    /// Whether equal metadata later means an equal content. A change within the clock tick in which the walk began would
    /// leave no trace in the times.
    pub(crate) fn is_settled(&self, entry: &WorkspaceEntry) -> bool {
        self.has_reliable_times && entry.ctime < self.begun
    }

    /// Whether all entries in these ranges are settled.
    pub(crate) fn are_settled(&self, ranges: &[Range<usize>]) -> bool {
        let mut entries = ranges.iter().flat_map(|range| &self.entries[range.clone()]);
        self.has_reliable_times && entries.all(|entry| entry.metadata.ctime() < self.begun)
    }

    /// Whether the entries in these ranges have the same names and metadata as those in ranges of another walk.
    pub(crate) fn has_same_entries(
        &self,
        ranges: &[Range<usize>],
        (other, other_ranges): (&RecordedWalk, &[Range<usize>]),
    ) -> bool {
        let count = |ranges: &[Range<usize>]| ranges.iter().map(ExactSizeIterator::len).sum();
        let (own, others): (usize, usize) = (count(ranges), count(other_ranges));
        let mut pairs = ranges
            .iter()
            .cloned()
            .flatten()
            .zip(other_ranges.iter().cloned().flatten());
        own == others
            && pairs.all(|(index, at)| {
                self.entries[index].metadata == other.entries[at].metadata
                    && self.text(index) == other.text(at)
            })
    }

    /// The name of an entry, and the target of a link.
    fn text(&self, index: usize) -> (&[u8], &[u8]) {
        let entry = &self.entries[index];
        let next = self.entries.get(index + 1);
        let end = next.map_or(self.text.len(), |next| next.text);
        self.text[entry.text..end].split_at(entry.name_length.into())
    }
}

/// Goes over a recorded walk, one entry after the other.
#[derive(Debug)]
pub(crate) struct WalkCursor<'a> {
    walk: &'a RecordedWalk,
    next: usize,
    entry: WorkspaceEntry,
    /// The lengths of the paths of the folders that the entry is in, and of its own.
    folders: Vec<usize>,
}

impl WalkCursor<'_> {
    /// Goes to the next entry; false at the end.
    pub(crate) fn advance(&mut self) -> bool {
        let Some(recorded) = self.walk.entries.get(self.next) else {
            return false;
        };
        let (name, target) = self.walk.text(self.next);
        let metadata = &recorded.metadata;
        self.folders.truncate(metadata.depth.into());
        let folder = self.folders.last().copied().unwrap_or(0);
        self.entry.rename(folder, OsStr::from_bytes(name));
        self.folders.push(self.entry.path.as_os_str().len());
        let mode = metadata.mode.into();
        self.entry.kind = match metadata.kind {
            RecordedKind::File => EntryKind::File {
                size: metadata.size,
                mode,
            },
            RecordedKind::Dir => EntryKind::Dir { mode },
            RecordedKind::Link => EntryKind::Link {
                target: PathBuf::from(OsStr::from_bytes(target)),
            },
            RecordedKind::Special => EntryKind::Special,
        };
        (self.entry.ino, self.entry.links) = (metadata.ino, metadata.links);
        (self.entry.ctime, self.entry.mtime) = (metadata.ctime(), metadata.mtime());
        self.next += 1;
        true
    }

    /// The entry that `advance` went to.
    pub(crate) fn entry(&self) -> &WorkspaceEntry {
        &self.entry
    }

    /// The index of that entry.
    pub(crate) fn index(&self) -> usize {
        self.next.saturating_sub(1)
    }

    /// How many folders that entry is in.
    pub(crate) fn depth(&self) -> usize {
        self.folders.len().saturating_sub(1)
    }

    /// Leaves out what is in that entry.
    pub(crate) fn skip_folder(&mut self) {
        self.next = self.folder_end();
    }

    /// The index after the last entry in that entry.
    pub(crate) fn folder_end(&self) -> usize {
        let depth = self.depth();
        let inside = self.walk.entries[self.next..].iter();
        let is_inside = |entry: &&RecordedEntry| usize::from(entry.metadata.depth) > depth;
        self.next + inside.take_while(is_inside).count()
    }
}
