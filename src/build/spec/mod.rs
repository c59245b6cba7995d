//! A spec: what to build, how it is checked, which generator writes it. Plain data, validated.
//!
//! `read.rs` turns a file into a `Spec` or an error with file, line and column: `source/` makes a tree of values with
//! positions, `validate.rs` and its siblings turn the tree into the types of `model.rs`. `field_rule.rs` has the form of the tables of
//! fields, from which `schema.rs` makes the JSON Schema. `collect.rs` reads the files that the spec copies, protects, hides or uses as a
//! template (`inputs.rs`), `copy_filter.rs` says what it would leave out; `identity.rs` computes the hash over all of it. `setting.rs` replaces fields by those of the command line.

mod checks;
mod collect;
mod copy_filter;
mod examples;
mod exclusions;
mod field_rule;
mod generator;
mod identity;
mod ignore_rules;
mod input_error;
pub(crate) mod inputs;
mod links;
mod model;
mod prompts;
mod read;
mod sandbox;
pub(crate) mod schema;
pub(crate) mod setting;
mod sources;
#[cfg(test)]
mod tests;
mod validate;
mod validator;
mod walk;

pub(crate) use collect::collect_inputs;
pub(crate) use copy_filter::CopyFilter;
pub(crate) use inputs::UserPrompts;
pub(crate) use model::{
    BudgetSpec, CheckSpec, GeneratorMode, GeneratorProvider, InputSource, LimitsSpec,
    MAX_RETRIES_CEILING, OnTimeout, SandboxSpec, Spec,
};
pub(crate) use prompts::VARIABLES;
pub use read::parse_spec;
pub(crate) use read::read_spec;
