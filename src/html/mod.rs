//! Pages for people: one HTML file without scripts that loads nothing.
//!
//! `document.rs` has the frame of a page, `writer.rs` escapes text and bounds the size, `units.rs` writes numbers and times,
//! `chart.rs` has what charts share. The content of a page is left to the module that writes it.

pub(crate) mod chart;
pub(crate) mod document;
pub(crate) mod units;
pub(crate) mod writer;
