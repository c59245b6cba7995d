//! The editor: views of files that stay on the screen, edits of what they show, and search.
//!
//! It starts no process, so a command has ended when `begin` returns. `command.rs` parses commands, `view.rs` finds what
//! is shown, `edit.rs` changes it, `search.rs` searches the tree that `walk.rs` lists; `text.rs` and `pattern.rs` handle
//! lines and what matches them. Files are reached through `workspace::ProjectDir` alone and read again for every screen;
//! only what a view last showed is kept.

mod command;
mod edit;
mod environment;
mod error;
mod file;
mod glob;
mod pattern;
mod search;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod walk;

pub use self::environment::EditorEnvironment;
pub(crate) use crate::workspace::FrozenPaths;
