//! Where a command writes: results to stdout, lines for people to stderr.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::invisible::printable;

/// Writes a result. A closed or full stdout is an error, not a panic.
pub(super) fn write_stdout(text: &str) -> Result<()> {
    write_stdout_bytes(text.as_bytes())
}

/// Writes a result that need not be text.
pub(super) fn write_stdout_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Error::io("write to", Path::new("stdout"), error))
}

/// A result as indented JSON, with a newline at its end.
pub(super) fn pretty_json(result: &impl Serialize) -> Result<String> {
    match serde_json::to_string_pretty(result) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::Bug(format!("cannot serialize a result: {error}"))),
    }
}

/// Writes a line for people; control characters in it are escaped.
pub(super) fn print_stderr(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
}

/// Writes an error for people and returns its exit code.
pub(super) fn print_error(error: &Error) -> u8 {
    print_stderr(&format!("error: {error}"));
    error.exit_code()
}
