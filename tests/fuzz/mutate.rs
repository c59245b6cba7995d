//! Mutations of examples: flipped bits, parts cut, doubled, joined, nested and exchanged.
//!
//! An input depends only on its number and the seed, so it can be made again.

use std::ops::Range;

/// The longest input, in bytes.
const LONGEST: usize = 256 << 10;
/// One input in this many is enlarged.
const BLOWN_UP: usize = 24;

/// Numbers that counts, sizes and times are compared with, or overflow at.
const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "-1",
    "1e308",
    "1e999",
    "0.1e-400",
    "127",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "9007199254740993",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
];
const BYTES: [u8; 14] = [
    0, 1, 2, 7, 8, 9, b'\n', b'\r', 0x1b, b' ', 0x7f, 0x80, 0xc3, 0xff,
];
/// Characters that some parsers treat specially.
const CHARACTERS: [&str; 10] = [
    "\u{feff}", "\u{2028}", "\u{202e}", "ß", "é", "e\u{301}", "𝕏", "\u{85}", "\u{9b}", "İ",
];

/// A deterministic random number generator.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The generator `splitmix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// A random part of this length; short parts are as likely as long ones.
    fn part(&mut self, length: usize) -> Range<usize> {
        let start = self.below(length + 1);
        let most = (length - start).min(1 << self.below(17));
        start..start + self.below(most + 1)
    }
}

/// A new input made of examples and words.
pub(crate) fn mutated(dice: &mut Dice, examples: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = examples[dice.below(examples.len())].clone();
    for _ in 0..=dice.below(4) {
        change(&mut input, dice, examples, words);
    }
    if dice.below(BLOWN_UP) == 0 {
        blow_up(&mut input, dice, words);
    }
    input.truncate(LONGEST);
    input
}

fn change(input: &mut Vec<u8>, dice: &mut Dice, examples: &[Vec<u8>], words: &[&str]) {
    let part = dice.part(input.len());
    match dice.below(12) {
        0 if !input.is_empty() => {
            let at = dice.below(input.len());
            input[at] ^= 1 << dice.below(8);
        }
        1 => drop(input.splice(part, [BYTES[dice.below(BYTES.len())]])),
        2 => drop(input.drain(part)),
        3 => input.truncate(part.start),
        4 => {
            let times = 1 + dice.below(6);
            let copy = input[part.clone()].repeat(times);
            drop(input.splice(part.end..part.end, copy));
        }
        5 => drop(input.splice(part.start..part.start, dice.one(words).bytes())),
        6 => drop(input.splice(part, dice.one(words).bytes())),
        7 => {
            let other = &examples[dice.below(examples.len())];
            let piece = other[dice.part(other.len())].to_vec();
            drop(input.splice(part, piece));
        }
        8 => join(input, &examples[dice.below(examples.len())], dice),
        9 => renumber(input, dice),
        10 => drop(input.splice(part.start..part.start, dice.one(&CHARACTERS).bytes())),
        _ => exchange(input, dice),
    }
}

/// Continues, after the end of a line, with the rest of another example after one of its lines.
fn join(input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let (here, there) = (line_end(input, dice), line_end(other, dice));
    input.truncate(here);
    input.extend_from_slice(&other[there..]);
}

fn line_end(text: &[u8], dice: &mut Dice) -> usize {
    let from = dice.below(text.len() + 1);
    text[from..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(text.len(), |end| from + end + 1)
}

/// Replaces a number by another.
fn renumber(input: &mut Vec<u8>, dice: &mut Dice) {
    let from = dice.below(input.len() + 1);
    let Some(start) = input[from..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|found| from + found)
    else {
        return;
    };
    let length = input[start..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    drop(input.splice(start..start + length, dice.one(&NUMBERS).bytes()));
}

/// Exchanges two lines.
fn exchange(input: &mut Vec<u8>, dice: &mut Dice) {
    let mut lines: Vec<&[u8]> = input.split_inclusive(|byte| *byte == b'\n').collect();
    if let count @ 1.. = lines.len() {
        lines.swap(dice.below(count), dice.below(count));
        *input = lines.concat();
    }
}

/// Repeats a part or a word very often, alone or as opening and closing halves.
fn blow_up(input: &mut Vec<u8>, dice: &mut Dice, words: &[&str]) {
    let at = dice.part(input.len());
    let room = 1 << (8 + dice.below(11));
    let repeated = |piece: &[u8], room: usize| piece.repeat(room / piece.len().max(1));
    let grown = match dice.below(4) {
        0 => repeated(&input[at.clone()], room),
        1 => repeated(dice.one(words).as_bytes(), room),
        2 => repeated(
            &[dice.one(words), dice.one(words)].concat().into_bytes(),
            room,
        ),
        _ => {
            let (open, close) = dice.one(&[
                &("[", "]"),
                &("{\"a\":", "}"),
                &("{a: ", "}"),
                &("<a>", "</a>"),
                &("(", ")"),
            ]);
            let depth = room / (open.len() + close.len());
            [open.repeat(depth), close.repeat(depth)]
                .concat()
                .into_bytes()
        }
    };
    drop(input.splice(at, grown));
}
