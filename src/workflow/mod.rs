//! The workflow loop: agents go from state to state, concurrently, by the tags that models and scripts write.
//!
//! `scope.rs` finds the states, `tags.rs` and `template.rs` read and fill texts.

pub(crate) mod scope;
pub(crate) mod tags;
pub(crate) mod template;
