//! `apply`: carries what changed in `workspace/` back to where `copy` took it from.
//!
//! `routes.rs` finds the target of a path, `changes.rs` compares what was taken in, the workspace and the targets, and
//! says what is changed, what conflicts, and what is not carried. All or nothing: `plan.rs` keeps the changes in
//! `logs/apply.json` before the first of them is made, and `execute.rs` makes them, undoes them after an error, and
//! completes them after a crash; `carry_out.rs` puts both together. What a folder's ignore files leave out is asked of the caller.

pub(crate) mod carry_out;
pub(crate) mod changes;
mod execute;
mod file_state;
pub(crate) mod plan;
pub(crate) mod routes;
pub(crate) mod skipped;
#[cfg(test)]
mod tests;
