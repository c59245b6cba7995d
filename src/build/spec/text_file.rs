//! Reads the user's text files: regular files, bounded, UTF-8.

use std::io::{self, Read};
use std::path::Path;

use rustix::fs::OFlags;

use super::diagnostic::{Diagnostic, SourceText};
use crate::error::Error;
use crate::regular_file::open_regular_file;

/// The largest spec, in bytes.
pub const MAX_SPEC_BYTES: u64 = 1 << 20;

/// Reads a file of at most `MAX_SPEC_BYTES`.
pub fn load(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path, OFlags::empty())?
        .take(MAX_SPEC_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if MAX_SPEC_BYTES < bytes.len() as u64 {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Returns the bytes as text without a byte order mark, or the error that shows the first byte that is none.
pub fn decode<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let refusal = match str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => return Ok(text),
        Ok(text) => Diagnostic::new(
            text.find('\0').unwrap_or(0),
            "a NUL character; this is no text file",
        ),
        Err(error) => Diagnostic::new(error.valid_up_to(), "this byte is not UTF-8"),
    };
    Err(SourceText {
        file: path,
        text: &String::from_utf8_lossy(bytes),
    }
    .error(&refusal))
}
