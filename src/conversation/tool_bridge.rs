//! Tools for a provider that calls them itself while it answers: between its client and the toolset.

use crate::error::{Error, Result};
use crate::llm::ToolOffer;
use crate::llm::mcp::{ToolCall, ToolOutcome, Toolbox};

/// What runs the calls of a provider that makes them while it answers.
pub(crate) struct InlineTools<'a> {
    pub offers: Vec<ToolOffer>,
    pub call: &'a mut dyn FnMut(ToolCall<'_>) -> Result<ToolOutcome>,
    /// Sent to a session that a crash has interrupted, instead of the whole conversation.
    pub resume_prompt: Option<String>,
    pub turns_left: u32,
}

/// Inline tools as a client sees them. A call that fails the run ends the answer, and the error is kept.
pub(super) struct ToolBridge<'a> {
    tools: InlineTools<'a>,
    failure: Option<Error>,
}

impl<'a> ToolBridge<'a> {
    pub(super) fn new(tools: InlineTools<'a>) -> ToolBridge<'a> {
        ToolBridge {
            tools,
            failure: None,
        }
    }

    /// The error of a call that failed the run.
    pub(super) fn failure(self) -> Option<Error> {
        self.failure
    }
}

impl Toolbox for ToolBridge<'_> {
    fn offers(&self) -> Vec<ToolOffer> {
        self.tools.offers.clone()
    }

    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome> {
        let called = (self.tools.call)(call);
        called.map_err(|error| self.failure = Some(error)).ok()
    }
}
