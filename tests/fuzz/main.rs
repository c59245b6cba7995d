//! Every parser of foreign bytes with mutated inputs: none may panic, hang, or use more memory than a bound that
//! grows with its input; most also check a property of the result.
//!
//! `cargo test --test fuzz` takes a second for each parser and is deterministic. For more:
//!
//! ```text
//! FUZZ_SECONDS=3600 FUZZ_SEED=7 cargo test --release --test fuzz -- --nocapture [parser]
//! ```
//!
//! `tests/corpus/<parser>/` has real examples and all inputs that ever failed; they come first. An input that fails is
//! added as `found-<hash>`. A parser that ends the whole process (stack overflow, two minutes without an end) leaves its
//! input in `target/tmp/fuzz-<parser>`: copy it into the corpus.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and prepares its own files and processes"
)]

mod environments;
mod files;
mod harness;
mod memory;
mod model_answers;
mod mutate;
mod output;
mod workflows;
