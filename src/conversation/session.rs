//! A session across scopes: continued from a recorded point, or branched from it.
//!
//! A session is the chain of requests that continue each other in the log, whichever agent made them. Two sessions that
//! share a chain share the same prefix of messages, byte for byte, so that a provider's cache can serve it.

use std::collections::HashMap;

use crate::conversation::history::{RecordedAnswer, RecordedRequest};
use crate::conversation::log_state::LogState;
use crate::conversation::state::{ConversationState, UnusableAnswer};
use crate::events::RequestPlace;

/// The recorded exchanges that lead to a line of the log, oldest first; none where the log lacks one of them.
pub(crate) fn exchanges_until(
    state: &LogState,
    line: u64,
) -> Option<Vec<(RecordedRequest, RecordedAnswer)>> {
    let mut places: HashMap<u64, (&str, RequestPlace)> = HashMap::new();
    for (agent, history) in state.histories().iter() {
        places.extend(
            history
                .request_lines()
                .map(|(line, place)| (line, (agent, place))),
        );
    }
    let mut exchanges = Vec::new();
    let mut next = Some(line);
    while let Some(line) = next {
        let (agent, place) = places.get(&line)?;
        let history = state.conversations(agent);
        let request = history.request(*place)?.clone();
        let answer = history.answer(*place)?.clone();
        // A chain leads backwards only.
        next = request.continues.filter(|before| *before < line);
        exchanges.push((request, answer));
    }
    exchanges.reverse();
    Some(exchanges)
}

impl ConversationState {
    /// Applies recorded exchanges to a conversation that has only its opening, which they replace.
    pub(crate) fn replay_exchanges(
        &mut self,
        exchanges: Vec<(RecordedRequest, RecordedAnswer)>,
    ) -> Result<(), UnusableAnswer> {
        for (request, answer) in exchanges {
            self.adopt_request(&request);
            self.window.shrink();
            self.take_answer(answer)?;
        }
        Ok(())
    }
}
