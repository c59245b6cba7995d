//! Sessions across scopes: continued, branched from a point, and fresh.

use super::*;
use crate::conversation::model_call::{Continuation, ModelCall};
use crate::conversation::session::exchanges_until;
use crate::conversation::state::ConversationState;

/// Sends the pending messages of a conversation and takes its answer.
fn turn(agent: &Agent, model: &mut RecordedModel, state: &mut ConversationState) -> u64 {
    let new = std::mem::take(&mut state.pending);
    new.iter()
        .for_each(|message| state.window.add(message.clone()));
    state.request.messages = state.window.messages();
    let call = ModelCall {
        continued: state.line.map(|line| Continuation {
            line,
            messages: &new,
        }),
        ..ModelCall::single(agent.place(state.index), &state.request)
    };
    let exchange = model.exchange(agent, call).unwrap();
    state.line = exchange.line;
    state.take_answer(exchange.answer).unwrap();
    state.line.unwrap()
}

fn fresh(opening: &str) -> ConversationState {
    ConversationState::new(request(Vec::new()), 100_000, 50, user(opening))
}

/// The session up to a line of the log, entered for a new scope with this message.
fn at(log: &EventLog, line: u64, opening: &str) -> ConversationState {
    let mut state = fresh("");
    let exchanges = log.read(|log| exchanges_until(log, line)).unwrap();
    state.replay_exchanges(exchanges, &|_| 100_000).unwrap();
    state.enter_scope(user(opening));
    state
}

fn texts(state: &ConversationState) -> Vec<String> {
    let messages = state.window.messages();
    let blocks = messages.iter().flat_map(|message| &message.content);
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    blocks.filter_map(text).collect()
}

#[test]
fn a_session_is_continued_or_branched_from_a_recorded_point() {
    let folder = tempfile::tempdir().unwrap();
    let log = open_log(folder.path());
    let server = server(&["one", "two", "three", "four"]);
    let mut model = model(&server.url, Budget::default());
    let mut state = fresh("first");
    let first = turn(&agent(&log, "a", 1, folder.path()), &mut model, &mut state);
    // The same agent goes on in its next visit.
    state.enter_scope(user("second"));
    let second = turn(&agent(&log, "a", 2, folder.path()), &mut model, &mut state);
    // Another agent branches from the first point, and then continues its own branch.
    let mut branch = at(&log, first, "branch");
    let third = turn(&agent(&log, "b", 1, folder.path()), &mut model, &mut branch);
    let mut continued = at(&log, third, "again");
    turn(
        &agent(&log, "b", 2, folder.path()),
        &mut model,
        &mut continued,
    );
    assert_eq!(texts(&state), ["first", "one", "second", "two"]);
    assert_eq!(
        texts(&continued),
        ["first", "one", "branch", "three", "again", "four"]
    );
    // After a restart of the process the log gives the same sessions.
    drop(log);
    let log = open_log(folder.path());
    let restored = at(&log, second, "third");
    assert_eq!(texts(&restored), ["first", "one", "second", "two"]);
    assert!(log.read(|log| exchanges_until(log, 999).is_none()));
}

#[test]
fn a_branch_sends_the_same_prefix_as_the_session_it_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let log = open_log(folder.path());
    let server = server(&["one", "two", "three"]);
    let mut model = model(&server.url, Budget::default());
    let mut state = fresh("first");
    let first = turn(&agent(&log, "a", 1, folder.path()), &mut model, &mut state);
    state.enter_scope(user("second"));
    turn(&agent(&log, "a", 2, folder.path()), &mut model, &mut state);
    let mut branch = at(&log, first, "branch");
    turn(&agent(&log, "b", 1, folder.path()), &mut model, &mut branch);
    let bodies: Vec<String> = server.requests.iter().take(3).collect();
    let prefix = |body: &str| {
        body.split("second")
            .next()
            .unwrap()
            .split("branch")
            .next()
            .unwrap()
            .len()
    };
    let body = |request: &str| request.split_once("\r\n\r\n").unwrap().1.to_owned();
    let (continued, branched) = (body(&bodies[1]), body(&bodies[2]));
    assert_eq!(
        continued[..prefix(&continued)],
        branched[..prefix(&branched)]
    );
    assert!(continued.contains("first") && prefix(&continued) > 50);
}
