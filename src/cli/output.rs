//! Where a command writes: results to stdout, lines for people to stderr.

use std::io::Write;

use crate::observers::printable::plain_text;

/// Writes to stdout; whether it arrived. A closed or full stdout is no reason to panic.
pub fn write_stdout(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .is_ok()
}

/// Writes a line for people; what is foreign in it cannot reach the terminal raw.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", plain_text(text));
}
