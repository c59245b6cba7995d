//! A session across scopes: continued from a recorded point, or branched from it.
//!
//! A session is the chain of requests that continue each other in the log, whichever agent made them. Two sessions that
//! share a chain share the same prefix of messages, byte for byte, so that a provider's cache can serve it.

use crate::conversation::history::{RecordedAnswer, RecordedRequest};
use crate::conversation::log_state::LogState;
use crate::conversation::state::{ConversationState, UnusableAnswer};
use crate::events::RequestPlace;

/// The recorded exchanges that lead to a line of the log, oldest first; none where the log lacks one of them.
pub(crate) fn exchanges_until(
    state: &LogState,
    line: u64,
) -> Option<Vec<(RecordedRequest, RecordedAnswer)>> {
    let mut exchanges = Vec::new();
    let mut next = Some(line);
    while let Some(line) = next {
        let (history, place) = state.histories().request_at(line)?;
        let request = history.request(place).filter(|known| known.line == line)?;
        let answer = history.answer(place)?;
        exchanges.push((request.clone(), answer.clone()));
        next = before(request);
    }
    exchanges.reverse();
    Some(exchanges)
}

/// A chain leads backwards only.
fn before(request: &RecordedRequest) -> Option<u64> {
    request.continues.filter(|before| *before < request.line)
}

/// Whether the log has every exchange of a session up to a line.
pub(crate) fn is_complete(state: &LogState, line: u64) -> bool {
    let mut next = Some(line);
    while let Some(line) = next {
        let found = state.histories().request_at(line);
        let found = found.filter(|(history, place)| history.answer(*place).is_some());
        let Some(request) = found.and_then(|(history, place)| history.request(place)) else {
            return false;
        };
        next = before(request);
    }
    true
}

/// The line of the last request of a session, up to `line`, that used environments or reported their restart.
pub(crate) fn last_use_of_environments(state: &LogState, line: u64) -> Option<u64> {
    let mut next = Some(line);
    while let Some(line) = next {
        let (history, place): (_, RequestPlace) = state.histories().request_at(line)?;
        if history.uses_environments(place) {
            return Some(line);
        }
        next = before(history.request(place)?);
    }
    None
}

impl ConversationState {
    /// Applies recorded exchanges to a conversation that has only its opening, which they replace. `context_of` is the
    /// context of a model, in tokens: what was shortened then stays so.
    pub(crate) fn replay_exchanges(
        &mut self,
        exchanges: Vec<(RecordedRequest, RecordedAnswer)>,
        context_of: &dyn Fn(&str) -> usize,
    ) -> Result<(), UnusableAnswer> {
        for (request, answer) in exchanges {
            self.window.set_context(context_of(&request.model));
            self.adopt_request(&request);
            self.window.shrink();
            self.take_answer(answer)?;
        }
        self.window.set_context(context_of(&self.request.model));
        Ok(())
    }
}
