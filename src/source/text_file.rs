//! Reads the user's text files: regular files, bounded, UTF-8.

use std::io::{self, Read};
use std::path::Path;

use rustix::fs::OFlags;

use super::code;
use super::diagnostic::{Diagnostic, SourceFile};
use crate::error::Error;
use crate::regular_file::open_regular_file;

/// The largest spec, prompt or ignore file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a regular file of at most 1 MiB.
pub(crate) fn load(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path, OFlags::empty())?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if MAX_BYTES < bytes.len() as u64 {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// The bytes as text without a byte order mark.
pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<SourceFile, Error> {
    match decode_lossy(path, bytes) {
        (source, None) => Ok(source),
        (source, Some(mistake)) => Err(source.error(code::SYNTAX, &mistake)),
    }
}

/// The bytes as text without a byte order mark, and why they are not a text file.
pub(crate) fn decode_lossy(path: &Path, bytes: &[u8]) -> (SourceFile, Option<Diagnostic>) {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let source = SourceFile {
        path: path.to_owned(),
        text: String::from_utf8_lossy(bytes).into_owned(),
    };
    let not_text = str::from_utf8(bytes).err().map(|error| {
        let at = error.valid_up_to();
        let is_utf16 = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
        let message = match is_utf16 {
            true => "this byte is not UTF-8: the file is UTF-16",
            false => "this byte is not UTF-8",
        };
        let help = format!(
            "save the file as UTF-8: `iconv -f {} -t UTF-8 OLD > NEW`",
            if is_utf16 { "UTF-16" } else { "LATIN1" }
        );
        Diagnostic::new(at..at + '\u{fffd}'.len_utf8(), message).with_help(help)
    });
    let nul = || {
        let at = source.text.find('\0')?;
        let mistake = Diagnostic::new(at..at + 1, "a NUL character: this is not a text file");
        Some(mistake.with_help("save it as text in UTF-8"))
    };
    let mistake = not_text.or_else(nul);
    (source, mistake)
}
