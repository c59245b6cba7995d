//! The report of a run: reads its log, and writes HTML, Markdown, JSON and JUnit.
//!
//! `model.rs` has the data, which are also the JSON format; `log_fold.rs` makes them of the lines of a log with `checks.rs`,
//! `exchanges.rs` and `agents.rs`; `changes.rs` adds what the kept snapshots say. `html/`, `markdown.rs` and `junit.rs` render them.
//! `fleet/` has the page of a fleet. Where a report is written, and which run is meant, is left to `cli`.

mod agents;
pub(crate) mod changes;
mod checks;
mod exchanges;
pub(crate) mod fleet;
pub(crate) mod foreign;
mod html;
mod junit;
pub(crate) mod log_fold;
mod markdown;
pub(crate) mod model;

pub(crate) use self::html::page;
pub(crate) use self::junit::junit_xml;
pub(crate) use self::markdown::markdown;
