//! Who writes the code: a model, or, offline, a folder of prepared answers.

pub mod model;
pub mod prompt;
pub mod reply;
pub mod template;

use crate::engine::context::Context;
use crate::error::Result;
use crate::safety::door::Change;

/// Gives a phase its answer.
pub trait Generator {
    /// Returns the changes of this phase, judged and ready to be applied.
    fn changes(&mut self, context: &mut Context) -> Result<Vec<Change>>;

    /// Whether the answer of the phase in which a run is found is there already, at least its beginning, so that
    /// going on asks for nothing twice.
    fn has_begun(&self, context: &Context) -> bool;
}
