//! Tools for a provider that calls them itself while it answers, between the client and whoever carries them out.
//!
//! Both the calls and what is told of the stream end up in one log, so both reach the context through one cell, one at
//! a time. A call that breaks the run ends the answer, and what broke it is kept.

use std::cell::RefCell;
use std::time::Instant;

use crate::build::context::Context;
use crate::error::{Error, Result};
use crate::llm::mcp::{ToolCall, ToolOutcome, Toolbox};
use crate::llm::{Answer, LlmError, ModelClient, ModelRequest, ToolOffer};

/// What carries out the calls of a provider that makes them while it answers.
pub struct InlineTools<'a> {
    pub offers: Vec<ToolOffer>,
    pub call: &'a mut dyn FnMut(&mut Context, ToolCall<'_>) -> Result<ToolOutcome>,
    /// What is said to a session that a crash has interrupted, instead of all of it again.
    pub resume_prompt: Option<String>,
    pub turns_left: u32,
}

/// A client together with what carries out its calls.
pub struct ToolBridge<'a, 'b, 'c> {
    client: &'a mut dyn ModelClient,
    tools: BridgedTools<'a, 'b, 'c>,
}

struct BridgedTools<'a, 'b, 'c> {
    context: &'a RefCell<&'b mut Context>,
    equipment: InlineTools<'c>,
    failure: Option<Error>,
}

impl<'a, 'b, 'c> ToolBridge<'a, 'b, 'c> {
    /// Returns a client whose every attempt has these tools.
    pub fn new(
        client: &'a mut dyn ModelClient,
        context: &'a RefCell<&'b mut Context>,
        equipment: InlineTools<'c>,
    ) -> ToolBridge<'a, 'b, 'c> {
        ToolBridge {
            client,
            tools: BridgedTools {
                context,
                equipment,
                failure: None,
            },
        }
    }

    /// Returns what broke the run in a call, if something did.
    pub fn failure(self) -> Option<Error> {
        self.tools.failure
    }
}

impl Toolbox for BridgedTools<'_, '_, '_> {
    fn offers(&self) -> Vec<ToolOffer> {
        self.equipment.offers.clone()
    }

    fn call(&mut self, call: ToolCall<'_>) -> Option<ToolOutcome> {
        let called = (self.equipment.call)(&mut self.context.borrow_mut(), call);
        called.map_err(|error| self.failure = Some(error)).ok()
    }
}

impl ModelClient for ToolBridge<'_, '_, '_> {
    fn encode(&self, request: &ModelRequest) -> String {
        self.client.encode(request)
    }

    fn set_deadline(&mut self, until: Option<Instant>) {
        self.client.set_deadline(until);
    }

    fn attempt(
        &mut self,
        body: &str,
        watch: &mut dyn FnMut(&str),
    ) -> std::result::Result<Answer, LlmError> {
        self.client.converse(body, &mut self.tools, watch)
    }
}
