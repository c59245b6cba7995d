//! Which lines differ between two texts.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline};

/// The time for the search of a short difference. Once it is over, what is not compared yet counts as replaced: the
/// patch is longer, and as correct.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Neighbouring lines that are replaced: `old` by `new`. One of the ranges may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChangedLines {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// The lines of a text with their newlines; the last one may have none.
pub(super) fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// The changes from one list of lines to another, in order; between two of them is at least one equal line.
pub(super) fn changed_lines(old: &[&[u8]], new: &[&[u8]]) -> Vec<ChangedLines> {
    changed_lines_until(old, new, Instant::now() + TIME_LIMIT)
}

/// The same with a given end of the search.
pub(super) fn changed_lines_until(
    old: &[&[u8]],
    new: &[&[u8]],
    deadline: Instant,
) -> Vec<ChangedLines> {
    let (old, new) = numbered(old, new);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
    merged(&operations)
}

/// Equal lines become equal numbers, so that comparing two lines takes constant time.
fn numbered<'a>(old: &[&'a [u8]], new: &[&'a [u8]]) -> (Vec<u32>, Vec<u32>) {
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut number = |line: &&'a [u8]| {
        let next = numbers.len() as u32;
        *numbers.entry(line).or_insert(next)
    };
    let old = old.iter().map(&mut number).collect();
    let new = new.iter().map(&mut number).collect();
    (old, new)
}

fn merged(operations: &[DiffOp]) -> Vec<ChangedLines> {
    let mut changes: Vec<ChangedLines> = Vec::new();
    for operation in operations {
        let (tag, old, new) = operation.as_tag_tuple();
        if tag == DiffTag::Equal {
            continue;
        }
        match changes.last_mut() {
            Some(last) if last.old.end == old.start && last.new.end == new.start => {
                last.old.end = old.end;
                last.new.end = new.end;
            }
            _ => changes.push(ChangedLines { old, new }),
        }
    }
    changes
}
