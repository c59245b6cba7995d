//! The editor's resolver as it was before it became a caller of `workspace`, for `differential.rs` alone.

pub(super) mod resolve;
pub(super) mod write;
