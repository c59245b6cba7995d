//! Tools for a provider that calls them itself while it answers, between the client and whoever carries them out.
//!
//! Both the calls and what is told of the stream end up in one log, so both reach the context through one cell, one at
//! a time. A call that breaks the run ends the answer, and what broke it is kept.

use std::cell::RefCell;

use crate::build::context::Context;
use crate::error::{Error, Result};
use crate::llm::ToolOffer;
use crate::llm::mcp::{ToolCall, ToolOutcome, Toolbox};

/// What carries out the calls of a provider that makes them while it answers.
pub struct InlineTools<'a> {
    pub offers: Vec<ToolOffer>,
    pub call: &'a mut dyn FnMut(&mut Context, ToolCall<'_>) -> Result<ToolOutcome>,
    /// What is said to a session that a crash has interrupted, instead of all of it again.
    pub resume_prompt: Option<String>,
    pub turns_left: u32,
}

/// What carries out the calls, and the context that they change.
pub struct ToolBridge<'a, 'b, 'c> {
    context: &'a RefCell<&'b mut Context>,
    equipment: InlineTools<'c>,
    failure: Option<Error>,
}

impl<'a, 'b, 'c> ToolBridge<'a, 'b, 'c> {
    pub fn new(
        context: &'a RefCell<&'b mut Context>,
        equipment: InlineTools<'c>,
    ) -> ToolBridge<'a, 'b, 'c> {
        ToolBridge {
            context,
            equipment,
            failure: None,
        }
    }

    /// Returns what broke the run in a call, if something did.
    pub fn failure(self) -> Option<Error> {
        self.failure
    }
}

impl Toolbox for ToolBridge<'_, '_, '_> {
    fn offers(&self) -> Vec<ToolOffer> {
        self.equipment.offers.clone()
    }

    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome> {
        let called = (self.equipment.call)(&mut self.context.borrow_mut(), call);
        called.map_err(|error| self.failure = Some(error)).ok()
    }
}
