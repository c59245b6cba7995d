//! Binary patches: both contents whole, compressed, in git's base 85.

use miniz_oxide::deflate::compress_to_vec_zlib;

/// The level of compression that git uses by default.
const LEVEL: u8 = 6;

/// The bytes of one line. The character for their number precedes them: `A` to `Z` for 1 to 26, `a` to `z` above.
const LINE: usize = 52;

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Adds a patch between two contents that can be applied in both directions.
pub(super) fn push_binary(patch: &mut Vec<u8>, old: &[u8], new: &[u8]) {
    patch.extend_from_slice(b"GIT binary patch\n");
    push_literal(patch, new);
    push_literal(patch, old);
}

fn push_literal(patch: &mut Vec<u8>, content: &[u8]) {
    patch.extend(format!("literal {}\n", content.len()).into_bytes());
    for line in compress_to_vec_zlib(content, LEVEL).chunks(LINE) {
        let length = line.len() as u8;
        patch.push(match length {
            ..=26 => b'A' + length - 1,
            _ => b'a' + length - 27,
        });
        line.chunks(4).for_each(|bytes| push_digits(patch, bytes));
        patch.push(b'\n');
    }
    patch.push(b'\n');
}

/// Adds five digits for up to four bytes; missing ones are zero.
fn push_digits(patch: &mut Vec<u8>, bytes: &[u8]) {
    let mut value = (0..4).fold(0_u32, |value, at| {
        value << 8 | u32::from(bytes.get(at).copied().unwrap_or(0))
    });
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(value % 85) as usize];
        value /= 85;
    }
    patch.extend_from_slice(&digits);
}
