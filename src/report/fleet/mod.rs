//! The report of a fleet: its data, what was solved, and the page.

pub(crate) mod model;
pub(crate) mod page;
pub(crate) mod solved;
