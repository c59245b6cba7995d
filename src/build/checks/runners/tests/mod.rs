//! Output of real runners, and prose that looks like it.

mod failures;
mod summaries;
