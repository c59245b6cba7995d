//! Moves insertions and deletions to where they are easiest to read.
//!
//! Where the line after inserted lines equals the first of them, the insertion may as well begin one line later. Of all
//! such positions one is best that has little indentation and blank lines before its ends: a new function then begins
//! with its first line and not with the last one of the function before.

use std::ops::Range;

use super::lines::ChangedLines;

/// How far a change is moved.
const MAX_DISTANCE: usize = 100;

/// The most blank lines that are skipped to find an indentation.
const MAX_BLANK: usize = 20;

/// The most columns of indentation that are counted.
const MAX_COLUMNS: usize = 200;

/// What an end of a change costs that is not at a blank line, or is at the end of a block, in columns of indentation.
const PENALTY: usize = 2;

/// Moves each change that only inserts or only deletes. The order stays, and at least one line between two changes.
pub(super) fn slide(changes: &mut [ChangedLines], old: &[&[u8]], new: &[&[u8]]) {
    for at in 0..changes.len() {
        let above = at
            .checked_sub(1)
            .map_or(0, |before| changes[before].old.end + 1);
        let below = changes
            .get(at + 1)
            .map_or(old.len(), |after| after.old.start - 1);
        let change = &mut changes[at];
        let (above, below) = (change.old.start - above, below - change.old.end);
        let (lines, range) = match (change.old.is_empty(), change.new.is_empty()) {
            (true, false) => (new, &change.new),
            (false, true) => (old, &change.old),
            _ => continue,
        };
        let from = range.start;
        let to = best_start(
            lines,
            range,
            above.min(MAX_DISTANCE),
            below.min(MAX_DISTANCE),
        );
        change.old = change.old.start + to - from..change.old.end + to - from;
        change.new = change.new.start + to - from..change.new.end + to - from;
    }
}

/// The best start of a range that may move by some lines. The lowest of equally good ones.
fn best_start(lines: &[&[u8]], range: &Range<usize>, above: usize, below: usize) -> usize {
    let length = range.len();
    let is_same = |start: usize| lines[start] == lines[start + length];
    let up = (range.start - above..range.start)
        .rev()
        .take_while(|start| is_same(*start))
        .count();
    let down = (range.start..range.start + below)
        .take_while(|start| is_same(*start))
        .count();
    (range.start - up..=range.start + down)
        .rev()
        .min_by_key(|start| cost(lines, *start) + cost(lines, start + length))
        .unwrap_or(range.start)
}

/// How badly a change begins or ends before a line: the less the better.
fn cost(lines: &[&[u8]], at: usize) -> usize {
    let (before, after) = lines.split_at(at);
    let (Some(previous), Some(next)) = (before.last(), after.first()) else {
        return 0;
    };
    let (previous, next) = (indentation(previous), indentation(next));
    let mut following = after.iter().take(MAX_BLANK);
    let columns = following.find_map(|line| indentation(line)).unwrap_or(0);
    // The end of a block, like a closing bracket, belongs to what is before it.
    let ends_block = previous.is_some_and(|previous| next.is_some_and(|next| next < previous));
    let faults = [next.is_none(), previous.is_some(), ends_block];
    columns + PENALTY * faults.iter().filter(|is_fault| **is_fault).count()
}

/// The columns before the text of a line; `None` if the line is blank.
fn indentation(line: &[u8]) -> Option<usize> {
    let mut columns = 0;
    for byte in line.iter().take(MAX_COLUMNS) {
        match byte {
            b' ' => columns += 1,
            b'\t' => columns += 8 - columns % 8,
            b'\r' | b'\n' => {}
            _ => return Some(columns),
        }
    }
    (MAX_COLUMNS < line.len()).then_some(columns)
}
