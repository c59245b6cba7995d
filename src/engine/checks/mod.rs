//! The checks of a run: tools, run in order, each to a result; and what their output says.
//!
//! `text.rs` makes output plain, `evidence.rs` counts the tests in it, `causes.rs` finds what failed and why,
//! `report.rs` puts together what the model is told.

pub mod causes;
pub mod evidence;
pub mod report;
pub mod text;

mod xml;
