//! Differences between two versions of a file, as git writes them: patches that `git apply` takes, and the table of
//! `git diff --stat`.
//!
//! Everything here is computed from bytes; reading the versions, paging and printing are left to the caller.

mod binary;
mod color;
mod hunks;
mod lines;
mod name;
mod patch;
mod slide;
mod stat;
#[cfg(test)]
mod tests;
mod version;

pub(crate) use self::color::terminal_text;
pub(crate) use self::patch::git_patch;
pub(crate) use self::stat::{FileStat, file_stat, stat_table};
pub(crate) use self::version::{FileDiff, FileVersion, VersionKind};
