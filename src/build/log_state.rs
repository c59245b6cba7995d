//! What a run's log remembers: its answers by their places, what they cost, and what a crash left half done.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

use crate::build::agent::history::ConversationHistory;
use crate::build::attempts::Attempts;
use crate::build::protection::RestoredFiles;
use crate::build::rounds::Rounds;
use crate::events::{Charge, Event, ReplacedRun, RequestPlace, TestedFile};
use crate::llm::{Answer, Message, PermanentError, PermanentErrorKind, TokenUsage};
use crate::state::phase::Phase;
use crate::state::run::UsageTotals;

/// What came back for a request.
pub type RecordedAnswer = std::result::Result<Answer, PermanentError>;

/// The sum of a log. Events are handed to `hear` in their order.
#[derive(Debug, Default)]
pub struct LogState {
    answers: HashMap<RequestPlace, RecordedAnswer>,
    requests: HashMap<RequestPlace, RecordedRequest>,
    refused: HashMap<RequestPlace, AnswerRefusal>,
    conversations: ConversationHistory,
    rounds: Rounds,
    attempts: Attempts,
    totals: Option<UsageTotals>,
    /// What requests that broke off may have cost.
    lost: Vec<Charge>,
    /// What answers that show no usage count as.
    uncounted: ChargeTotal,
    /// A request that is under way as far as the log knows, and its worst case.
    open: Option<Charge>,
    worst: Charge,
    notes: Vec<String>,
    sandbox: Option<String>,
    phase: Option<Phase>,
    hidden: Vec<String>,
    put_back: RestoredFiles,
    /// The files that answers and tools wrote and did not delete since, with what tells their contents where that is known.
    files: BTreeMap<String, Option<String>>,
    /// Outcome and reason of a run that is over.
    end: Option<(String, String)>,
    root: Option<String>,
    max_retries: Option<u32>,
    replaced: Option<ReplacedRun>,
    tested: Option<BTreeMap<String, TestedFile>>,
    /// The number of the line that is being heard.
    line: u64,
}

/// A request as the log has it: its line's number, and what it says, or, in a conversation, what was new in it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    pub line: u64,
    pub said: Value,
}

impl RecordedRequest {
    /// Returns the messages that it said.
    pub fn messages(&self) -> impl Iterator<Item = Message> {
        let all = self.said["messages"].as_array().into_iter().flatten();
        all.filter_map(|message| Message::deserialize(message).ok())
    }
}

/// Why an answer was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRefusal {
    pub fault: String,
    pub had_a_block: bool,
}

/// Tokens and USD that count against the budget beside the recorded answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ChargeTotal {
    pub tokens: u64,
    pub usd: f64,
}

impl ChargeTotal {
    /// Adds a charge.
    pub fn add(&mut self, charge: Charge) {
        self.tokens = self.tokens.saturating_add(charge.tokens);
        self.usd += charge.cost_usd.unwrap_or(0.0);
    }
}

impl LogState {
    /// Takes in one event of the log.
    pub fn apply(&mut self, event: Event) {
        self.rounds.apply(&event);
        self.attempts.apply(&event);
        match event {
            Event::WorkflowStarted {
                scope_dir,
                resumed,
                max_retries,
                replaces,
                ..
            } => {
                self.replaced = self.replaced.take().or(replaces);
                self.root = Some(scope_dir);
                self.max_retries = max_retries;
                // A run begins in INIT, which no transition leads to.
                self.phase = self.phase.or((!resumed).then_some(Phase::Init));
            }
            Event::ModelRequested {
                place,
                worst,
                request,
                ..
            } => {
                self.settle();
                self.worst = worst;
                self.open = Some(worst);
                self.requests.insert(
                    place,
                    RecordedRequest {
                        line: self.line,
                        said: request,
                    },
                );
            }
            Event::ModelRetried { .. } => {
                self.settle();
                self.open = Some(self.worst);
            }
            Event::ErrorOccurred {
                error_type, charge, ..
            } if error_type == MODEL_ERROR => {
                self.open = None;
                self.lost.extend(charge);
            }
            Event::ModelAnswered {
                place,
                answer,
                error,
                cost_usd,
                ..
            } => self.answered(place, answer, error, cost_usd),
            Event::AnswerRefused {
                place,
                fault,
                had_a_block,
                ..
            } => {
                self.refused
                    .insert(place, AnswerRefusal { fault, had_a_block });
            }
            Event::TransitionOccurred { to_state, .. } => {
                self.phase = Some(to_state);
                // A round that is over has taken them away, also where the line that says so cannot be read.
                self.hidden.clear();
            }
            Event::NoteAdded { note, .. } => self.notes.push(note),
            Event::SandboxFound {
                mode,
                message,
                is_note,
                ..
            } => {
                self.sandbox = Some(mode);
                if is_note && !self.notes.contains(&message) {
                    self.notes.push(message);
                }
            }
            Event::WorkspaceKept { .. } => self.replaced = None,
            Event::WorkspaceTested { files, .. } => self.tested = Some(files),
            Event::FilesApplied {
                written,
                deleted,
                hashes,
                ..
            } => self.applied(&written, &deleted, &hashes),
            Event::WorkflowCompleted {
                outcome, reason, ..
            } => self.end = Some((outcome, reason)),
            Event::ProtectedRestored {
                restored, removed, ..
            } => self.put_back.add(RestoredFiles { restored, removed }),
            Event::HiddenFilesPlaced { paths, .. } => self.hidden = paths,
            Event::HiddenFilesRemoved { .. } => self.hidden.clear(),
            other => self.conversations.apply(other),
        }
    }

    /// Takes in what a phase has written.
    fn applied(
        &mut self,
        written: &[String],
        deleted: &[String],
        hashes: &BTreeMap<String, String>,
    ) {
        self.put_back = RestoredFiles::default();
        deleted
            .iter()
            .for_each(|path| drop(self.files.remove(path)));
        self.files.extend(
            written
                .iter()
                .map(|path| (path.clone(), hashes.get(path).cloned())),
        );
    }

    /// Takes in one line of the log.
    pub fn apply_line(&mut self, line: u64, event: Event) {
        self.line = line;
        self.apply(event);
    }

    fn answered(
        &mut self,
        place: RequestPlace,
        answer: Option<Value>,
        error: Option<String>,
        cost_usd: Option<f64>,
    ) {
        self.open = None;
        let answer = answer.and_then(|value| serde_json::from_value::<Answer>(value).ok());
        if answer
            .as_ref()
            .is_some_and(|answer| answer.usage == TokenUsage::default())
        {
            self.uncounted.add(self.worst);
        }
        if let Some(answer) = &answer {
            let totals = self.totals.get_or_insert(UsageTotals::none(true));
            totals.add(
                answer.calls(),
                answer.usage.all_input(),
                answer.usage.output,
                cost_usd,
            );
        }
        let error = error.map(|message| PermanentError {
            kind: PermanentErrorKind::of_recorded_text(&message),
            message,
        });
        if let Some(recorded) = answer.map(Ok).or(error.map(Err)) {
            self.answers.insert(place, recorded);
        }
    }

    /// A request that was under way when the log went on without its end counts with its worst case.
    fn settle(&mut self) {
        self.lost.extend(self.open.take());
    }

    /// Returns what came back for a place.
    pub fn answer(&self, place: RequestPlace) -> Option<&RecordedAnswer> {
        self.answers.get(&place)
    }

    /// Returns why the answer at a place was not used, if it was not.
    pub fn refused(&self, place: RequestPlace) -> Option<&AnswerRefusal> {
        self.refused.get(&place)
    }

    /// Returns what was asked at a place.
    pub fn request(&self, place: RequestPlace) -> Option<&RecordedRequest> {
        self.requests.get(&place)
    }

    /// Returns what is known of conversations.
    pub fn conversations(&self) -> &ConversationHistory {
        &self.conversations
    }

    /// Returns what is known of earlier attempts.
    pub fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// Keeps what happens to conversations, attempts and rounds while the run goes on.
    pub fn apply_live(&mut self, event: &Event) {
        self.rounds.apply(event);
        self.attempts.apply(event);
        match event {
            Event::FilesApplied {
                written,
                deleted,
                hashes,
                ..
            } => self.applied(written, deleted, hashes),
            Event::ScriptOutput { .. }
            | Event::StateStarted { .. }
            | Event::TransitionOccurred { .. } => {}
            other => self.conversations.apply(other.clone()),
        }
    }

    /// Returns what is known of rounds of checks.
    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Returns the files that answers and tools wrote, with what tells their contents where that is known.
    pub fn files(&self) -> &BTreeMap<String, Option<String>> {
        &self.files
    }

    /// Returns outcome and reason of a run that is over.
    pub fn end(&self) -> Option<(&str, &str)> {
        self.end
            .as_ref()
            .map(|(outcome, reason)| (outcome.as_str(), reason.as_str()))
    }

    /// Returns the places of all answers, in their order.
    pub fn answer_places(&self) -> BTreeSet<RequestPlace> {
        self.answers.keys().copied().collect()
    }

    /// Whether the log has any answer.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns what the recorded answers came to, where there are any.
    pub fn totals(&self) -> Option<UsageTotals> {
        self.totals
    }

    /// Returns what counts beside the recorded answers: requests that broke off, and answers that show no usage.
    pub fn charges(&self) -> ChargeTotal {
        let mut charges = self.uncounted;
        self.losses().for_each(|charge| charges.add(charge));
        charges
    }

    /// Returns what requests that broke off may have cost, in USD; nothing where the price of one was not known.
    pub fn lost_usd(&self) -> Option<f64> {
        self.losses()
            .try_fold(0.0, |sum, charge| Some(sum + charge.cost_usd?))
    }

    /// Requests that broke off, one that was under way at the end included.
    fn losses(&self) -> impl Iterator<Item = Charge> {
        self.lost.iter().copied().chain(self.open)
    }

    /// Returns the mode of the walls that the run had last.
    pub fn sandbox(&self) -> Option<&str> {
        self.sandbox.as_deref()
    }

    /// Returns the notes of the run.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the phase that the last transition led to.
    pub fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// Returns the places of hidden files that a crash left in the workspace.
    pub fn hidden(&self) -> &[String] {
        &self.hidden
    }

    /// Hands over, once, what was put back since the last files were written: the model has not been told yet.
    pub fn take_restored(&mut self) -> RestoredFiles {
        std::mem::take(&mut self.put_back)
    }

    /// Returns what the spec said of `max_retries` when the run was started last.
    pub fn max_retries(&self) -> Option<u32> {
        self.max_retries
    }

    /// Remembers the run whose files are still in the workspace.
    pub fn set_replaced_run(&mut self, replaced: Option<ReplacedRun>) {
        self.replaced = replaced;
    }

    /// Hands over, once, the run whose files are still in the workspace.
    pub fn take_replaced_run(&mut self) -> Option<ReplacedRun> {
        self.replaced.take()
    }

    /// Returns the files that all checks have passed on; nothing where the log is from before they were recorded.
    pub fn tested(&self) -> Option<&BTreeMap<String, TestedFile>> {
        self.tested.as_ref()
    }

    /// Returns the root in which the log was written.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }
}

/// The `error_type` of an attempt at the model that gave no answer.
pub const MODEL_ERROR: &str = "model";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::{ContentBlock, StopReason, TokenUsage};

    fn place(turn: u32) -> RequestPlace {
        RequestPlace {
            phase: Phase::Generating,
            retry_count: 0,
            turn,
        }
    }

    fn charge(tokens: u64) -> Charge {
        Charge {
            tokens,
            cost_usd: Some(tokens as f64),
        }
    }

    fn requested(turn: u32, worst: u64) -> Event {
        Event::ModelRequested {
            agent_id: "main".into(),
            place: place(turn),
            provider: "anthropic".into(),
            model: "m".into(),
            hash: String::new(),
            worst: charge(worst),
            continues: None,
            request: Value::Null,
        }
    }

    fn failed(charge: Option<Charge>) -> Event {
        Event::ErrorOccurred {
            agent_id: "main".into(),
            error_type: MODEL_ERROR.into(),
            error_message: String::new(),
            current_state: String::new(),
            is_retryable: true,
            retry_count: 1,
            max_retries: 4,
            charge,
        }
    }

    fn answered(turn: u32, input: u64) -> Event {
        let answer = Answer {
            content: vec![ContentBlock::text("x")],
            stop: StopReason::EndTurn,
            usage: TokenUsage {
                input,
                ..TokenUsage::default()
            },
            model: String::new(),
            request_id: None,
            bill: None,
        };
        Event::ModelAnswered {
            agent_id: "main".into(),
            place: place(turn),
            hash: String::new(),
            cost_usd: Some(0.5),
            duration_ms: 1,
            answer: serde_json::to_value(answer).ok(),
            error: None,
        }
    }

    fn sum(events: Vec<Event>) -> LogState {
        let mut log_state = LogState::default();
        for event in events {
            log_state.apply(event);
        }
        log_state
    }

    #[test]
    fn answers_are_found_by_their_place_and_added_up() {
        let log_state = sum(vec![
            requested(0, 100),
            answered(0, 7),
            requested(1, 100),
            answered(1, 8),
        ]);
        assert!(
            log_state
                .answer(place(0))
                .is_some_and(|recorded| recorded.is_ok())
        );
        assert!(log_state.answer(place(2)).is_none());
        let totals = log_state.totals().unwrap();
        assert_eq!(
            (totals.llm_calls, totals.input_tokens, totals.cost_usd),
            (2, 15, Some(1.0))
        );
        assert_eq!(log_state.charges().tokens, 0);
    }

    #[test]
    fn an_answer_that_shows_no_usage_counts_as_the_worst_case() {
        let log_state = sum(vec![requested(0, 100), answered(0, 0)]);
        assert_eq!(log_state.charges().tokens, 100);
        assert_eq!(
            log_state.lost_usd().map(f64::to_bits),
            Some(0),
            "it did not break off, and zero has no sign"
        );
    }

    #[test]
    fn what_was_never_recorded_is_charged() {
        let retried = || Event::ModelRetried {
            agent_id: "main".into(),
            place: place(0),
            attempt: 2,
        };
        let cases = [
            (vec![requested(0, 100)], 100),
            (vec![requested(0, 100), requested(0, 100)], 200),
            (
                vec![requested(0, 100), failed(None), retried(), answered(0, 1)],
                0,
            ),
            (
                vec![
                    requested(0, 100),
                    failed(Some(charge(30))),
                    retried(),
                    answered(0, 1),
                ],
                30,
            ),
            (
                vec![requested(0, 100), failed(Some(charge(30))), retried()],
                130,
            ),
            (vec![requested(0, 100), failed(None)], 0),
        ];
        for (events, tokens) in cases {
            let shown = format!("{events:?}");
            let log_state = sum(events);
            assert_eq!(log_state.charges().tokens, tokens, "{shown}");
            assert_eq!(log_state.lost_usd(), Some(tokens as f64), "{shown}");
        }
        let unpriced = Charge {
            tokens: 7,
            cost_usd: None,
        };
        assert_eq!(
            sum(vec![requested(0, 100), failed(Some(unpriced))]).lost_usd(),
            None
        );
    }
}
