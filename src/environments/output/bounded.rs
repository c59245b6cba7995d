//! Text of which only the two ends are kept.
//!
//! A text that fits is one piece. Of a longer one the head stays, and a ring buffer has its end. Cuts are at character
//! boundaries; dropped bytes are counted in the cleaned text, not in what the child wrote.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem;

/// How far a cut may move to reach a character boundary.
const SLACK: usize = 3;

/// How many bytes are kept from either end of a longer text.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndLimits {
    pub head: usize,
    pub tail: usize,
}

/// A text, or its two ends.
#[derive(Debug)]
pub(super) struct BoundedText {
    limits: EndLimits,
    /// The whole text while it fits.
    head: String,
    /// UTF-8 that begins at a character boundary.
    tail: VecDeque<u8>,
    dropped: usize,
}

impl BoundedText {
    pub(super) fn new(limits: EndLimits) -> BoundedText {
        BoundedText {
            limits,
            head: String::new(),
            tail: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Adds to the end.
    pub(super) fn push(&mut self, text: &str) {
        if !self.is_head_open() {
            return self.push_tail(text);
        }
        if self.head.len() + text.len() <= self.limits.head + self.limits.tail {
            return self.head.push_str(text);
        }
        self.close_head();
        let room = self.limits.head - self.head.len();
        let is_cut = !self.tail.is_empty();
        let fitting = if is_cut {
            0
        } else {
            text.floor_char_boundary(room)
        };
        let (fitting, rest) = text.split_at(fitting);
        self.head.push_str(fitting);
        self.push_tail(rest);
    }

    /// Moves another text to the end.
    pub(super) fn append(&mut self, other: &mut BoundedText) {
        if self.is_head_open() && self.head.is_empty() {
            mem::swap(self, other);
        } else {
            self.push(&other.head);
            if 0 < other.dropped {
                self.close_head();
                self.dropped += self.tail.len() + other.dropped;
                self.tail = mem::take(&mut other.tail);
            } else if !other.tail.is_empty() {
                self.push(&text_of(other.tail.make_contiguous()));
            }
        }
        other.clear();
    }

    /// Removes the last character. The sizes of dropped characters are unknown; each counts as one byte.
    pub(super) fn pop(&mut self) {
        if self.is_head_open() {
            self.head.pop();
        } else if self.tail.is_empty() {
            self.dropped -= 1;
        } else {
            while self.tail.pop_back().is_some_and(is_inside_character) {}
        }
    }

    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.tail.clear();
        self.dropped = 0;
    }

    /// Takes the text, with a line that counts the dropped bytes; not without a head.
    pub(super) fn take(&mut self) -> String {
        if self.limits.head + self.limits.tail < self.head.len() + self.dropped + self.tail.len() {
            self.drop_front(self.tail.len().saturating_sub(self.limits.tail));
        }
        let BoundedText {
            mut head,
            mut tail,
            dropped,
            limits,
        } = mem::replace(self, BoundedText::new(self.limits));
        if 0 < dropped && 0 < limits.head {
            let border = if head.is_empty() || head.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            head.push_str(&format!(
                "{border}[... {dropped} bytes dropped: output is cut at 10 MB ...]\n"
            ));
        }
        head.push_str(&text_of(tail.make_contiguous()));
        head
    }

    fn is_head_open(&self) -> bool {
        self.tail.is_empty() && self.dropped == 0
    }

    /// Moves what exceeds the limit of the head to the tail.
    fn close_head(&mut self) {
        let end = self.head.floor_char_boundary(self.limits.head);
        // The ring passes through all of its memory.
        self.tail.reserve_exact(self.limits.tail + SLACK);
        self.tail.extend(&self.head.as_bytes()[end..]);
        self.head.truncate(end);
        self.head.shrink_to(self.limits.head);
    }

    fn push_tail(&mut self, text: &str) {
        let excess = (self.tail.len() + text.len()).saturating_sub(self.limits.tail + SLACK);
        let skipped = text.ceil_char_boundary(excess.saturating_sub(self.tail.len()));
        self.drop_front(excess.min(self.tail.len()));
        self.dropped += skipped;
        self.tail.extend(&text.as_bytes()[skipped..]);
    }

    /// Drops bytes from the start of the tail, up to a character boundary.
    fn drop_front(&mut self, count: usize) {
        let before = self.tail.len();
        self.tail.drain(..count);
        while self.tail.front().copied().is_some_and(is_inside_character) {
            self.tail.pop_front();
        }
        self.dropped += before - self.tail.len();
    }
}

/// The bytes are valid already; checking is several times faster than replacing invalid ones.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

fn is_inside_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use super::{BoundedText, EndLimits};
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    const SMALL: EndLimits = EndLimits { head: 10, tail: 12 };

    fn both_ends(text: &str) -> String {
        let head = &text[..text.floor_char_boundary(SMALL.head)];
        let tail = &text[text.ceil_char_boundary(text.len() - SMALL.tail)..];
        let dropped = text.len() - head.len() - tail.len();
        let border = if head.ends_with('\n') { "" } else { "\n" };
        format!("{head}{border}[... {dropped} bytes dropped: output is cut at 10 MB ...]\n{tail}")
    }

    #[test]
    fn pop_removes_dropped_characters_too() {
        let mut kept = BoundedText::new(SMALL);
        kept.push(&"é".repeat(20));
        (0..7).for_each(|_| kept.pop());
        assert_eq!(kept.tail.len(), 0);
        (0..100).for_each(|_| kept.pop());
        assert_eq!(kept.take(), "");
        kept.push("é");
        assert_eq!(kept.take(), "é");
    }

    proptest! {
        #[test]
        fn a_text_that_fits_is_complete_and_of_a_longer_one_both_ends_are_kept(pieces in prop::collection::vec("[a-z\né€]{0,8}", 0..12)) {
            let text = pieces.concat();
            let mut kept = BoundedText::new(SMALL);
            pieces.iter().for_each(|piece| kept.push(piece));
            let fits = text.len() <= SMALL.head + SMALL.tail;
            prop_assert_eq!(kept.take(), if fits { text } else { both_ends(&text) });
        }

        #[test]
        fn removed_characters_leave_both_ends(pieces in prop::collection::vec("[a-z\né€]{0,30}", 0..6), count in 0usize..12) {
            let mut text = pieces.concat();
            let mut kept = BoundedText::new(SMALL);
            pieces.iter().for_each(|piece| kept.push(piece));
            let fits = text.len() <= SMALL.head + SMALL.tail;
            if fits {
                (0..count).for_each(|_| kept.pop());
                let left = text.chars().count().saturating_sub(count);
                text = text.chars().take(left).collect();
                kept.push("end");
                text.push_str("end");
                let fits = text.len() <= SMALL.head + SMALL.tail;
                prop_assert_eq!(kept.take(), if fits { text } else { both_ends(&text) });
            }
        }

        #[test]
        fn appending_a_bounded_text_equals_pushing_it(pieces in prop::collection::vec("[a-zé€]{0,60}", 0..6)) {
            let (mut straight, mut joined, mut apart) = (BoundedText::new(SMALL), BoundedText::new(SMALL), BoundedText::new(SMALL));
            for piece in &pieces {
                straight.push(piece);
                piece.split_inclusive('e').for_each(|part| apart.push(part));
                joined.append(&mut apart);
            }
            prop_assert_eq!(joined.take(), straight.take());
        }

        #[test]
        fn memory_is_bounded(sizes in prop::collection::vec(0usize..500, 0..50)) {
            let mut kept = BoundedText::new(SMALL);
            for size in sizes {
                kept.push(&"x".repeat(size));
                prop_assert!(kept.head.capacity() + kept.tail.capacity() <= 3 * (SMALL.head + SMALL.tail));
            }
        }
    }
}
