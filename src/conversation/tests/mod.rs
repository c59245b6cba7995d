//! Conversations against a scripted server on loopback: several agents at once, and sessions across scopes.

mod agents;
mod sessions;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::cancel::CancelToken;
use crate::conversation::agent::{Agent, Directory};
use crate::conversation::budget::Budget;
use crate::conversation::event_log::{EventLog, OpenedLog, Projection};
use crate::conversation::log_state::LogState;
use crate::conversation::model_call::RecordedModel;
use crate::events::bus::Bus;
use crate::events::{ConversationScope, Event, MAIN_AGENT};
use crate::llm::anthropic::Anthropic;
use crate::llm::endpoint::Endpoint;
use crate::llm::price::Price;
use crate::llm::retry::{RetryPolicy, RetryRounds};
use crate::llm::test_server::{ScriptStep, TestServer};
use crate::llm::{ContentBlock, Message, Model, ModelRequest, Role};
use crate::secrets::Secrets;
use crate::state::journal::Journal;

const RUN_ID: &str = "0b9e6ed1-62a1-4d51-9a63-3a8a1d7f0c11";

/// A kind of run that keeps nothing of its own.
struct NoFacts;

impl Projection for NoFacts {
    fn apply(&mut self, _line: u64, _event: &Event) {}
}

/// Opens the log of a run in a folder.
fn open_log(folder: &Path) -> EventLog {
    let mut state = LogState::default();
    let logs = File::open(folder).unwrap();
    let (journal, _) = Journal::open(
        logs.as_fd(),
        folder,
        RUN_ID,
        &Secrets::default(),
        &mut |line, event| state.apply(line, &event),
    )
    .unwrap();
    EventLog::new(
        MAIN_AGENT,
        OpenedLog {
            journal,
            bus: Bus::default(),
            has_details: false,
            has_live_view: false,
            state,
            facts: Arc::new(Mutex::new(NoFacts)),
        },
    )
}

fn agent(log: &EventLog, id: &str, visit: u64, folder: &Path) -> Agent {
    Agent {
        log: log.for_agent(id),
        run_id: RUN_ID.into(),
        scope: ConversationScope::Visit { visit },
        state_name: "STATE".into(),
        cancel: CancelToken::never().unwrap(),
        directory: Some(Directory {
            parent: Arc::new(File::open(folder.parent().unwrap()).unwrap().into()),
            name: "workspace",
            path: folder.to_owned(),
        }),
    }
}

fn model(url: &str, budget: Budget) -> RecordedModel {
    let endpoint = Endpoint {
        base_url: url.into(),
        key: None,
        idle_timeout: Duration::from_secs(60),
        cancel: CancelToken::never().unwrap(),
    };
    RecordedModel {
        client: Model::Client(Box::new(Anthropic::new(endpoint))),
        provider: "anthropic",
        budget,
        shared_budget: None,
        policy: RetryPolicy {
            scale: 0.0,
            until: None,
            rounds: RetryRounds::One,
        },
        replay: None,
        on_text: None,
        secrets: Secrets::default(),
    }
}

fn priced(usd: f64) -> Budget {
    Budget {
        usd: Some(usd),
        tokens: None,
        price: Some(Price::given(1.0, 1.0)),
    }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        max_tokens: 1000,
        temperature: None,
        effort: None,
        system: "s".into(),
        tools: Vec::new(),
        messages,
        varying: Vec::new(),
    }
}

fn user(text: &str) -> Message {
    Message {
        role: Role::User,
        content: vec![ContentBlock::text(text)],
    }
}

/// The steps of a whole answer with this text.
fn answering(text: &str) -> Vec<ScriptStep> {
    let body = json!({
        "id": "msg", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    });
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    vec![ScriptStep::send(format!("{head}{body}"))]
}

fn server(answers: &[&str]) -> TestServer {
    TestServer::start(answers.iter().map(|text| answering(text)).collect())
}
