//! Every reader of foreign bytes against inputs that nobody would write: none may panic, hang, or hold more memory
//! than a bound that grows with its input.
//!
//! `cargo test --test fuzz` takes a second for each reader and is the same every time. For more:
//!
//! ```text
//! FUZZ_SECONDS=3600 FUZZ_SEED=7 cargo test --release --test fuzz -- --nocapture [reader]
//! ```
//!
//! `tests/corpus/<reader>/` has real examples and everything that was ever wrong; all of it is read first. What breaks
//! a reader is put there as `found-<hash>`, so that the next run begins with it. A reader that takes the process with it
//! (no stack left, no end in two minutes) leaves its input in `target/tmp/fuzz-<reader>`: copy it into the corpus.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and sets its own scene"
)]

mod environments;
mod files;
mod memory;
mod mutate;
mod output;
mod trial;
mod voice;
