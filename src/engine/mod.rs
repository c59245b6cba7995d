//! The build loop: spec, generate, test, patch, stop.

pub mod checks;
pub mod generators;
pub mod spec;
