//! Real output of real runners, and prose that is none.

mod failures;
mod summaries;
