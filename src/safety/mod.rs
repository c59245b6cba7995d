//! Says what may be touched, and is the only room that touches `workspace/`.
//!
//! `path.rs` judges names; `door/` opens, writes and removes relative to a handle on the directory, so that no
//! link, race or special file leads out; `snapshot.rs` remembers a tree and puts it back; `leftovers.rs` knows the names
//! of what is never taken for the user's work.

pub mod door;
pub mod leftovers;
pub mod path;
pub mod snapshot;
