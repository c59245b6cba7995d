//! Text of which only the two ends are kept.
//!
//! The head fills first and stays; after it comes a ring with the end of the text. Cuts fall between characters, and
//! what falls out is counted in bytes of text, never of what the child wrote.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::mem;

/// How far a cut may move so as not to split a character.
const SLACK: usize = 3;

/// How many bytes are kept from either end of a text that is longer than both.
#[derive(Debug, Clone, Copy)]
pub struct EndLimits {
    pub head: usize,
    pub tail: usize,
}

/// A text, or its two ends.
#[derive(Debug)]
pub struct BoundedText {
    limits: EndLimits,
    head: String,
    /// UTF-8 from the start of a character on. It may grow past its limit by what the head came short of its own, lest
    /// a text that fits is cut.
    tail: VecDeque<u8>,
    dropped: usize,
}

impl BoundedText {
    /// Returns an empty text.
    pub fn new(limits: EndLimits) -> BoundedText {
        BoundedText {
            limits,
            head: String::new(),
            tail: VecDeque::new(),
            dropped: 0,
        }
    }

    /// Adds to the end.
    pub fn push(&mut self, text: &str) {
        let room = if self.is_head_open() {
            self.limits.head.saturating_sub(self.head.len())
        } else {
            0
        };
        let (fitting, rest) = text.split_at(text.floor_char_boundary(room));
        self.head.push_str(fitting);
        if !rest.is_empty() {
            self.push_tail(rest);
        }
    }

    /// Adds another text to the end, and leaves it empty.
    pub fn append(&mut self, other: &mut BoundedText) {
        self.push(&other.head);
        if 0 < other.dropped {
            self.dropped += self.tail.len() + other.dropped;
            self.tail = mem::take(&mut other.tail);
        } else if !other.tail.is_empty() {
            self.push(&text_of(other.tail.make_contiguous()));
        }
        other.clear();
    }

    /// Takes the last character away. Of those that were not kept nobody knows the size; each counts as one byte.
    pub fn pop(&mut self) {
        if self.is_head_open() {
            self.head.pop();
        } else if self.tail.is_empty() {
            self.dropped -= 1;
        } else {
            while self.tail.pop_back().is_some_and(is_inside_character) {}
        }
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.head.clear();
        self.tail.clear();
        self.dropped = 0;
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.is_head_open()
    }

    /// Takes the text, with a line in the place of what was dropped; where there is no head there is no such line.
    pub fn take(&mut self) -> String {
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

    fn push_tail(&mut self, text: &str) {
        let excess = (self.tail.len() + text.len()).saturating_sub(self.limits.tail + SLACK);
        let skipped = text.ceil_char_boundary(excess.saturating_sub(self.tail.len()));
        self.drop_front(excess.min(self.tail.len()));
        self.dropped += skipped;
        self.tail.extend(&text.as_bytes()[skipped..]);
    }

    /// Drops that many bytes from the start of the tail, and the rest of a character that they begin.
    fn drop_front(&mut self, count: usize) {
        let before = self.tail.len();
        self.tail.drain(..count);
        while self.tail.front().copied().is_some_and(is_inside_character) {
            self.tail.pop_front();
        }
        self.dropped += before - self.tail.len();
    }
}

/// Returns what is text already. Checking that is several times as fast as replacing what might be wrong.
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
    fn characters_are_taken_back_through_what_was_dropped() {
        let mut kept = BoundedText::new(SMALL);
        kept.push(&"é".repeat(20));
        (0..7).for_each(|_| kept.pop());
        assert_eq!(kept.tail.len(), 0);
        (0..100).for_each(|_| kept.pop());
        assert!(kept.is_empty());
        kept.push("é");
        assert_eq!(kept.take(), "é");
    }

    proptest! {
        #[test]
        fn what_fits_is_whole_and_of_more_both_ends_are_kept(pieces in prop::collection::vec("[a-z\né€]{0,8}", 0..12)) {
            let text = pieces.concat();
            let mut kept = BoundedText::new(SMALL);
            pieces.iter().for_each(|piece| kept.push(piece));
            prop_assert_eq!(kept.is_empty(), text.is_empty());
            let fits = text.len() <= SMALL.head + SMALL.tail;
            prop_assert_eq!(kept.take(), if fits { text } else { both_ends(&text) });
        }

        #[test]
        fn a_text_kept_apart_first_is_the_same(pieces in prop::collection::vec("[a-zé€]{0,60}", 0..6)) {
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
