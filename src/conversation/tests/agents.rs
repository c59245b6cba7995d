//! Several agents of one run at once, in threads: one log, one budget.

use std::sync::Barrier;
use std::thread;

use super::*;
use crate::conversation::model_call::ModelCall;
use crate::conversation::usage::UsageLog;
use crate::state::journal::read_lines;
use crate::state::reason::Reason;

/// The events of the log, in order.
fn events(folder: &Path) -> Vec<Event> {
    let file = File::open(folder.join(format!("{RUN_ID}.log"))).unwrap();
    let mut events = Vec::new();
    read_lines(&file, Some(RUN_ID), &mut |_, event| events.push(event)).unwrap();
    events
}

/// Asks once as each agent, all at the same time; returns how many were answered.
fn ask_all(agents: &[Agent], url: &str, budget: Budget) -> usize {
    let barrier = Barrier::new(agents.len());
    thread::scope(|scope| {
        let threads: Vec<_> = agents
            .iter()
            .map(|agent| {
                scope.spawn(|| {
                    let mut model = model(url, budget);
                    let request = request(vec![user(agent.log.agent_id())]);
                    barrier.wait();
                    let asked = model.exchange(agent, ModelCall::single(agent.place(0), &request));
                    match asked {
                        Ok(exchange) => exchange.answer.map(|_| true).unwrap(),
                        Err(error) => {
                            assert_eq!(error.reason(), Reason::Budget, "{error}");
                            false
                        }
                    }
                })
            })
            .collect();
        let answered = threads.into_iter().map(|thread| thread.join().unwrap());
        answered.filter(|is_answered| *is_answered).count()
    })
}

#[test]
fn agents_ask_at_once_and_each_finds_its_own_answer_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = open_log(folder.path());
    let agents: Vec<Agent> = (0..8)
        .map(|number| agent(&log, &format!("w{number}"), 1, folder.path()))
        .collect();
    let server = server(&["x"; 8]);
    assert_eq!(ask_all(&agents, &server.url, Budget::default()), 8);
    drop((agents, log));
    // A resume asks for nothing again: the server is gone.
    let log = open_log(folder.path());
    let agents: Vec<Agent> = (0..8)
        .map(|number| agent(&log, &format!("w{number}"), 1, folder.path()))
        .collect();
    assert_eq!(ask_all(&agents, "http://127.0.0.1:9", Budget::default()), 8);
    assert_eq!(log.read(|state| state.usage().totals(true).llm_calls), 8);
}

#[test]
fn the_budget_is_reserved_for_all_requests_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let log = open_log(folder.path());
    let agents: Vec<Agent> = (0..8)
        .map(|number| agent(&log, &format!("w{number}"), 1, folder.path()))
        .collect();
    let server = server(&["x"; 8]);
    // The worst case of a request is a little more than its 1,000 output tokens.
    let budget = priced(0.0035);
    // Answers cost nothing, so every request that waits for a reservation is sent at last.
    assert_eq!(ask_all(&agents, &server.url, budget), 8);
    // At every line, what is used and what is reserved fits.
    let mut usage = UsageLog::default();
    for event in events(folder.path()) {
        usage.apply(&event);
        let used = usage.totals(true).cost_usd.unwrap() + usage.charges().usd;
        assert!(used <= 0.0035, "{used} after {event:?}");
    }
}

#[test]
fn a_handle_and_a_model_can_be_sent_to_a_thread() {
    fn is_send<T: Send>() {}
    is_send::<Agent>();
    is_send::<RecordedModel>();
}
