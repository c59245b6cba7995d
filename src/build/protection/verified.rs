//! Metadata of protected files: recorded once their content was verified, compared later instead of the content.
//!
//! A file is known by inode, size and times from then on. No program can set the change time (ctime), so a rewrite
//! that was undone is noticed, too.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::build::spec::inputs::{WorkspaceInput, outermost};
use crate::error::Result;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{RecordStep, RecordedWalk, WalkCursor, Workspace, WorkspaceEntry};

/// The names of restored and removed files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RestoredFiles {
    pub restored: Vec<String>,
    pub removed: Vec<String>,
}

impl RestoredFiles {
    /// Adds more, each name once.
    pub(crate) fn add(&mut self, more: RestoredFiles) {
        let add = |all: &mut Vec<String>, more: Vec<String>| {
            let known: HashSet<String> = all.iter().cloned().collect();
            all.extend(more.into_iter().filter(|name| !known.contains(name)));
        };
        add(&mut self.restored, more.restored);
        add(&mut self.removed, more.removed);
    }
}

/// What is known of protected files since their content was last verified, and of the workspace.
#[derive(Debug, Default)]
pub(crate) struct VerifiedFiles {
    /// The entries that were as given.
    pub(super) tree: Option<ProtectedTree>,
    /// Whether the tree is complete, and no program ran since.
    pub(super) is_current: bool,
    /// A walk over the whole workspace, if nothing changed since.
    pub(super) whole: Option<Rc<RecordedWalk>>,
}

/// All entries of protected places, links not followed, and the folders around them.
#[derive(Debug)]
pub(super) struct ProtectedTree {
    walk: Rc<RecordedWalk>,
    /// Where the walk has them.
    ranges: Vec<Range<usize>>,
    /// What was not as given, and was replaced since.
    pub(super) replaced: HashSet<PathBuf>,
}

impl ProtectedTree {
    /// Walks the places of these inputs.
    pub(super) fn read(workspace: &Workspace, inputs: &[&WorkspaceInput]) -> Result<ProtectedTree> {
        let mut places = ProtectedPlaces::of(inputs);
        let walk = workspace.record_walk(&mut |entry| match places.locate(&entry.path) {
            PlaceRelation::Outside => RecordStep::Omit,
            PlaceRelation::Inside | PlaceRelation::Around => RecordStep::Enter,
        })?;
        Ok(ProtectedTree::in_walk(Rc::new(walk), inputs))
    }

    /// Finds the places of these inputs in a walk over the workspace.
    pub(super) fn in_walk(walk: Rc<RecordedWalk>, inputs: &[&WorkspaceInput]) -> ProtectedTree {
        let mut places = ProtectedPlaces::of(inputs);
        let mut ranges = Vec::new();
        let mut cursor = walk.cursor();
        while cursor.advance() {
            match places.locate(&cursor.entry().path) {
                PlaceRelation::Inside => {
                    ranges.push(cursor.index()..cursor.folder_end());
                    cursor.skip_folder();
                }
                PlaceRelation::Around => ranges.push(cursor.index()..cursor.index() + 1),
                PlaceRelation::Outside => cursor.skip_folder(),
            }
        }
        drop(cursor);
        ProtectedTree {
            walk,
            ranges,
            replaced: HashSet::new(),
        }
    }

    /// Whether an equal entry in a later tree has the same content.
    pub(super) fn is_settled(&self, entry: &WorkspaceEntry) -> bool {
        self.walk.is_settled(entry)
    }

    /// Whether nothing has changed since, as far as times show.
    pub(super) fn is_same(&self, later: &ProtectedTree) -> bool {
        self.has_same_entries(later) && self.walk.are_settled(&self.ranges)
    }

    /// Whether names and metadata are the same.
    pub(super) fn has_same_entries(&self, later: &ProtectedTree) -> bool {
        let other = (&*later.walk, &later.ranges[..]);
        self.replaced.is_empty() && self.walk.has_same_entries(&self.ranges, other)
    }

    pub(super) fn cursor(&self) -> TreeCursor<'_> {
        TreeCursor {
            cursor: self.walk.cursor(),
            ranges: &self.ranges,
        }
    }
}

/// Goes over the entries of a tree in the order of paths.
#[derive(Debug)]
pub(super) struct TreeCursor<'a> {
    cursor: WalkCursor<'a>,
    /// The ranges that are not left behind.
    ranges: &'a [Range<usize>],
}

impl TreeCursor<'_> {
    /// The next entry.
    pub(super) fn advance(&mut self) -> Option<&WorkspaceEntry> {
        loop {
            if !self.cursor.advance() {
                return None;
            }
            let index = self.cursor.index();
            while self.ranges.first().is_some_and(|range| range.end <= index) {
                self.ranges = &self.ranges[1..];
            }
            match self.ranges.first() {
                None => return None,
                Some(range) if range.contains(&index) => return Some(self.cursor.entry()),
                Some(_) => self.cursor.skip_folder(),
            }
        }
    }
}

type MaybeEntry<'a> = Option<&'a WorkspaceEntry>;

/// Visits the paths of two trees: what the first has there, and what the second has.
pub(super) fn visit_pairs(
    earlier: Option<&ProtectedTree>,
    later: &ProtectedTree,
    visit: &mut dyn FnMut(MaybeEntry<'_>, MaybeEntry<'_>) -> Result<()>,
) -> Result<()> {
    let (mut earlier, mut later) = (earlier.map(ProtectedTree::cursor), later.cursor());
    let mut was = earlier.as_mut().and_then(TreeCursor::advance);
    let mut now = later.advance();
    loop {
        let order = match (was, now) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(was), Some(now)) => was.path.cmp(&now.path),
        };
        match order {
            Ordering::Less => visit(was, None)?,
            Ordering::Greater => visit(None, now)?,
            Ordering::Equal => visit(was, now)?,
        }
        if order != Ordering::Greater {
            was = earlier.as_mut().and_then(TreeCursor::advance);
        }
        if order != Ordering::Less {
            now = later.advance();
        }
    }
}

/// The places of inputs in the workspace, for a walk.
pub(super) struct ProtectedPlaces<'a> {
    places: HashSet<&'a [u8]>,
    around: HashSet<&'a [u8]>,
    /// The place that the walk is in: it visits all of a place before it leaves it.
    current: Vec<u8>,
}

/// Where a path is in relation to protected places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceRelation {
    Inside,
    Around,
    Outside,
}

impl<'a> ProtectedPlaces<'a> {
    pub(super) fn of(inputs: &[&'a WorkspaceInput]) -> ProtectedPlaces<'a> {
        let mut places = HashSet::new();
        let mut around = HashSet::new();
        for input in outermost(inputs.iter().copied()) {
            let path = input.to.as_str();
            places.insert(path.as_bytes());
            around.extend(
                path.match_indices('/')
                    .map(|(end, _)| &path.as_bytes()[..end]),
            );
        }
        ProtectedPlaces {
            places,
            around,
            current: Vec::new(),
        }
    }

    pub(super) fn locate(&mut self, path: &Path) -> PlaceRelation {
        let path = path.as_os_str().as_bytes();
        let is_inside = !self.current.is_empty()
            && path
                .strip_prefix(&self.current[..])
                .is_some_and(|rest| rest.starts_with(b"/"));
        if is_inside {
            return PlaceRelation::Inside;
        }
        self.current.clear();
        if self.places.contains(path) {
            self.current.extend_from_slice(path);
            PlaceRelation::Inside
        } else if self.around.contains(path) {
            PlaceRelation::Around
        } else {
            PlaceRelation::Outside
        }
    }
}

/// The input with this path; the inputs are sorted.
pub(super) fn input_at(inputs: &[&WorkspaceInput], path: &Path) -> Option<usize> {
    let path = path.as_os_str().as_bytes();
    let found = inputs.binary_search_by(|input| input.to.as_str().as_bytes().cmp(path));
    found.ok()
}

pub(super) fn is_below(path: &SafePath, folders: &[SafePath]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

pub(super) fn path_of(input: &WorkspaceInput) -> &Path {
    Path::new(input.to.as_str())
}
