//! Snapshots of `workspace/`: taken after each round of checks and before anything is emptied, compared, brought back.
//!
//! Contents are objects named by their SHA-256 in `logs/objects/`, once per root (`objects.rs`). A folder is an object,
//! too: a list of names, modes and ids (`tree.rs`), so a snapshot is one id, and equal trees have equal ids. `take.rs`
//! walks the workspace, with an index by inode, size and times that spares unchanged files. `records.rs` names the
//! snapshots of a run in `logs/<run_id>/attempts/`; `restore.rs` brings one back; `prune.rs` removes the oldest, and
//! keeps what an interrupted `apply` needs (`pending_apply.rs`).
//!
//! Order on disk: contents are durable before they get their names, the names before a record has the id, the record
//! before the log mentions it.

pub(crate) mod objects;
pub(crate) mod pending_apply;
pub(crate) mod prune;
pub(crate) mod records;
pub(crate) mod restore;
pub(crate) mod take;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
