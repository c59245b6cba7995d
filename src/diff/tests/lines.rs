//! Changed lines of texts.

use std::time::Instant;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::diff::lines::{ChangedLines, changed_lines, changed_lines_until, split_lines};
use crate::diff::slide::slide;

/// The old lines with the changes made.
fn applied<'a>(old: &[&'a [u8]], new: &[&'a [u8]], changes: &[ChangedLines]) -> Vec<&'a [u8]> {
    let mut lines = Vec::new();
    let mut from = 0;
    for change in changes {
        lines.extend(&old[from..change.old.start]);
        lines.extend(&new[change.new.clone()]);
        from = change.old.end;
    }
    lines.extend(&old[from..]);
    lines
}

#[test]
fn lines_keep_their_newlines() {
    assert!(split_lines(b"").is_empty());
    assert_eq!(split_lines(b"a\r\n\nb"), [b"a\r\n", b"\n".as_slice(), b"b"]);
}

#[test]
fn neighbouring_changes_are_one() {
    let (old, new) = (
        split_lines(b"a\nb\nc\nd\n"),
        split_lines(b"a\nx\ny\nd\ne\n"),
    );
    let expected = [
        ChangedLines {
            old: 1..3,
            new: 1..3,
        },
        ChangedLines {
            old: 4..4,
            new: 4..5,
        },
    ];
    assert_eq!(changed_lines(&old, &new), expected);
}

/// The search of a short difference may end at once: the result is longer, not wrong.
#[test]
fn changes_are_right_when_the_time_is_over() {
    let text = |step: usize| -> String {
        let numbers = (0..20_000).map(|line| line * step % 20_011);
        numbers.map(|number| format!("{number}\n")).collect()
    };
    let (old, new) = (text(7), text(5));
    let (old, new) = (split_lines(old.as_bytes()), split_lines(new.as_bytes()));
    let changes = changed_lines_until(&old, &new, Instant::now());
    assert!(!changes.is_empty());
    assert!(applied(&old, &new, &changes) == new);
}

/// Checks that changes are right, and that no two of them meet.
fn check(old: &[&[u8]], new: &[&[u8]], changes: &[ChangedLines]) -> Result<(), TestCaseError> {
    prop_assert_eq!(applied(old, new, changes), new);
    for pair in changes.windows(2) {
        prop_assert!(pair[0].old.end < pair[1].old.start);
        prop_assert!(pair[0].new.end < pair[1].new.start);
    }
    Ok(())
}

#[test]
fn an_insertion_moves_to_the_start_of_its_block() {
    let old = split_lines(b"a {\n}\n\nc {\n}\n");
    let new = split_lines(b"a {\n}\n\nb {\n}\n\nc {\n}\n");
    for start in [1, 2, 3] {
        let mut changes = [ChangedLines {
            old: start..start,
            new: start..start + 3,
        }];
        slide(&mut changes, &old, &new);
        assert_eq!((&changes[0].old, &changes[0].new), (&(3..3), &(3..6)));
    }
}

proptest! {
    #[test]
    fn changes_lead_from_the_old_lines_to_the_new(
        old in "(( |\t|)(a|b|\\}|)\n){0,30}",
        new in "(( |\t|)(a|b|\\}|)\n){0,30}",
    ) {
        let (old, new) = (split_lines(old.as_bytes()), split_lines(new.as_bytes()));
        let mut changes = changed_lines(&old, &new);
        check(&old, &new, &changes)?;
        slide(&mut changes, &old, &new);
        check(&old, &new, &changes)?;
    }
}
