//! Text from outside: output of programs, names, messages of servers.
//!
//! `ansi.rs` is the one parser of terminal escape sequences, `invisible.rs` the one table of characters that cannot
//! be seen, `terminal.rs` renders output as a terminal would, `shorten.rs` cuts,
//! `quote.rs` quotes for shells and YAML, `markdown.rs` escapes for Markdown, `varying.rs` replaces what differs between two
//! runs. Every function takes one pass over its input, whatever the input is.

pub(crate) mod ansi;
pub(crate) mod invisible;
pub(crate) mod markdown;
pub(crate) mod quote;
pub(crate) mod shorten;
pub(crate) mod terminal;
pub(crate) mod varying;

use std::fmt::Write;

/// Lower-case hexadecimal digits, two for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
