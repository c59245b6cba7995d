//! What each transition does to sessions, stacks, inputs and agents; the fold after every line of recorded runs.

use serde_json::{Value, json};

use super::*;
use crate::conversation::prefix_check::check_every_prefix;
use crate::state::run::new_run_id;
use crate::state::workflow::{NewWorkflow, WorkflowOptions};

/// A workflow whose agent `main` is at START.md, and the number of the last line.
struct Fold {
    log: WorkflowLog,
    line: u64,
}

impl Fold {
    fn new() -> Fold {
        let mut fold = Fold {
            log: WorkflowLog::default(),
            line: 0,
        };
        fold.start(false);
        fold
    }

    fn event(&mut self, event: Value) {
        self.line += 1;
        let event = serde_json::from_value(event).unwrap();
        self.log.apply(self.line, &event);
    }

    fn start(&mut self, resumed: bool) {
        self.event(json!({
            "event": "WorkflowStarted", "workflow_id": "r", "scope_dir": "/", "debug_dir": null, "spec_file": "f",
            "provider": "p", "model": "m", "resumed": resumed, "version": "0", "start_state": "START.md", "input": "in",
        }));
    }

    /// A transition of an agent; its session is then at this line, where one is given.
    fn moved(&mut self, id: &str, tag: &str, to: Option<&str>, session: Option<u64>, facts: Value) {
        let agent = self.log.agent(id).unwrap();
        let mut metadata = json!({"visit": agent.visit});
        if let Some(line) = session {
            metadata["session"] = json!({"id": format!("s{line}"), "line": line});
        }
        let facts = facts.as_object().unwrap().clone();
        metadata.as_object_mut().unwrap().extend(facts);
        self.event(json!({
            "event": "TransitionOccurred", "agent_id": id, "from_state": agent.state, "to_state": to,
            "transition_type": tag, "metadata": metadata,
        }));
    }

    /// State, session, branch, depth of the stack, input and visit of an agent.
    fn shown(&self, id: &str) -> String {
        let Some(agent) = self.log.agent(id) else {
            return format!("ended: {}", self.log.results()[id]);
        };
        let point = |point: &Option<SessionPoint>| match point {
            Some(point) => point.line.to_string(),
            None => "-".into(),
        };
        format!(
            "{} session {} branch {} stack {} input {} visit {}",
            agent.state,
            point(&agent.session),
            point(&agent.branch),
            agent.stack.len(),
            agent.input.as_deref().unwrap_or("-"),
            agent.visit
        )
    }
}

#[test]
fn sessions_and_stacks_follow_the_table() {
    let cases = [
        (
            "goto",
            json!({"input": "v"}),
            "B.md session 9 branch - stack 0 input v visit 2",
        ),
        (
            "reset",
            json!({}),
            "B.md session - branch - stack 0 input - visit 2",
        ),
        (
            "function",
            json!({"return": "R.md"}),
            "B.md session - branch - stack 1 input - visit 2",
        ),
        (
            "call",
            json!({"return": "R.md"}),
            "B.md session - branch 9 stack 1 input - visit 2",
        ),
        (
            "ask",
            json!({"question": "q"}),
            "B.md session 9 branch - stack 0 input - visit 2",
        ),
    ];
    for (tag, facts, expected) in cases {
        let mut fold = Fold::new();
        fold.moved("main", tag, Some("B.md"), Some(9), facts);
        assert_eq!(fold.shown("main"), expected, "{tag}");
    }
}

#[test]
fn a_result_returns_to_the_callers_session_and_ends_without_one() {
    let mut fold = Fold::new();
    fold.moved(
        "main",
        "call",
        Some("C.sh"),
        Some(9),
        json!({"return": "R.md"}),
    );
    // A script leaves the branch for a markdown state.
    fold.moved("main", "goto", Some("C.md"), None, json!({}));
    assert_eq!(
        fold.shown("main"),
        "C.md session - branch 9 stack 1 input - visit 3"
    );
    fold.moved("main", "goto", Some("D.md"), Some(20), json!({}));
    assert_eq!(
        fold.shown("main"),
        "D.md session 20 branch - stack 1 input - visit 4"
    );
    fold.moved(
        "main",
        "result",
        Some("R.md"),
        Some(21),
        json!({"payload": "p"}),
    );
    assert_eq!(
        fold.shown("main"),
        "R.md session 9 branch - stack 0 input p visit 5"
    );
    fold.moved("main", "result", None, Some(30), json!({"payload": "end"}));
    assert_eq!(fold.shown("main"), "ended: end");
}

#[test]
fn a_call_before_its_branch_was_used_branches_from_the_same_point() {
    let mut fold = Fold::new();
    fold.moved(
        "main",
        "call",
        Some("A.sh"),
        Some(9),
        json!({"return": "R.md"}),
    );
    fold.moved(
        "main",
        "call",
        Some("C.md"),
        None,
        json!({"return": "S.md"}),
    );
    assert_eq!(
        fold.shown("main"),
        "C.md session - branch 9 stack 2 input - visit 3"
    );
    fold.moved(
        "main",
        "result",
        Some("S.md"),
        Some(12),
        json!({"payload": "p"}),
    );
    assert_eq!(
        fold.shown("main"),
        "S.md session - branch 9 stack 1 input p visit 4"
    );
}

#[test]
fn a_join_waits_for_all_workers_and_keeps_the_order_of_the_tags() {
    let mut fold = Fold::new();
    let worker = |id: &str| json!({"id": id, "state": "W.md", "vars": {"i": id}, "cwd": "."});
    let workers = json!([worker("main_w1"), worker("main_w2")]);
    fold.moved(
        "main",
        "fork",
        Some("N.md"),
        Some(9),
        json!({"workers": workers, "join": true}),
    );
    assert_eq!(fold.log.agent("main").unwrap().status, AgentStatus::Waiting);
    assert_eq!(fold.log.agent("main_w1").unwrap().vars["i"], "main_w1");
    fold.moved("main_w2", "result", None, None, json!({"payload": "two"}));
    assert_eq!(fold.log.agent("main").unwrap().status, AgentStatus::Waiting);
    fold.moved("main_w1", "result", None, None, json!({"payload": "one"}));
    let main = fold.log.agent("main").unwrap();
    assert_eq!(main.status, AgentStatus::Running);
    assert_eq!(
        main.input.as_deref(),
        Some(r#"{"main_w1":"one","main_w2":"two"}"#)
    );
    assert_eq!(fold.log.unannounced().len(), 4);
    // Numbers are not used again.
    let next = fold.log.facts_of(
        main,
        &Transition::Fork(FanOut {
            workers: vec![crate::workflow::transition::NewWorker {
                to: crate::workflow::transition::Target {
                    state: "W.md".into(),
                    input: None,
                },
                cd: None,
                vars: BTreeMap::new(),
            }],
            after: AfterFork::Next("N.md".into()),
            input: None,
        }),
        VecDeque::new(),
    );
    assert_eq!(next.workers[0].id, "main_w3");
}

#[test]
fn a_resume_takes_up_paused_agents_and_visits_a_failed_state_anew() {
    for (event, visit) in [
        (
            json!({"event": "AgentPaused", "agent_id": "main", "reason": "budget", "message": "m"}),
            1,
        ),
        (
            json!({"event": "AgentFailed", "agent_id": "main", "message": "m"}),
            2,
        ),
    ] {
        let mut fold = Fold::new();
        fold.event(event);
        assert_eq!(fold.log.agent("main").unwrap().error.as_deref(), Some("m"));
        fold.start(true);
        let main = fold.log.agent("main").unwrap();
        assert_eq!((main.status, main.visit), (AgentStatus::Running, visit));
        assert_eq!((main.error.as_deref(), main.environments_since), (None, 3));
    }
}

#[test]
fn an_answer_is_the_input_of_the_next_state() {
    let mut fold = Fold::new();
    fold.moved(
        "main",
        "ask",
        Some("N.md"),
        Some(9),
        json!({"question": "q"}),
    );
    assert_eq!(fold.log.agent("main").unwrap().status, AgentStatus::Asking);
    fold.event(json!({"event": "AgentAnswered", "agent_id": "main", "text": "yes"}));
    assert_eq!(
        fold.shown("main"),
        "N.md session 9 branch - stack 0 input yes visit 2"
    );
    assert_eq!(fold.log.answer("main", 0), Some("yes"));
}

#[test]
fn a_directory_is_restored_by_a_return_and_restarts_the_environments() {
    let mut fold = Fold::new();
    fold.moved(
        "main",
        "function",
        Some("E.md"),
        Some(9),
        json!({"return": "R.md"}),
    );
    fold.moved(
        "main",
        "reset",
        Some("F.md"),
        Some(10),
        json!({"cwd": "sub"}),
    );
    let agent = fold.log.agent("main").unwrap();
    assert_eq!((agent.cwd.as_str(), agent.environments_since), ("sub", 3));
    fold.moved(
        "main",
        "result",
        Some("R.md"),
        Some(11),
        json!({"payload": ""}),
    );
    let agent = fold.log.agent("main").unwrap();
    assert_eq!((agent.cwd.as_str(), agent.environments_since), (".", 4));
}

/// A state as it is saved and read back.
fn saved(log: &WorkflowLog, seq: u64) -> WorkflowState {
    let mut state = WorkflowState::new(NewWorkflow {
        run_id: new_run_id(),
        workflow: "flow/START.md".into(),
        input: None,
        options: WorkflowOptions::default(),
        state_hashes: BTreeMap::new(),
    });
    state.seq = seq;
    log.copy_to(&mut state);
    let bytes = serde_json::to_vec(&state).unwrap();
    let read = WorkflowState::parse(&bytes).unwrap();
    assert_eq!(read, state);
    read
}

#[test]
fn after_every_prefix_of_a_recorded_run_the_fold_of_the_log_is_the_live_projection() {
    let count = check_every_prefix::<WorkflowLog>(|live, line, folded| {
        assert!(folded.agrees_with(&saved(live, line)), "line {line}");
    });
    assert!(count > 200, "{count} events");
}
