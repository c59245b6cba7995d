//! A build on the console: one live line with the phase, the time of the step, the spend and what is going on.

use std::time::Duration;

use super::screen::ConsoleView;
use super::stream_progress::StreamProgress;
use crate::events::Event;
use crate::observers::event_text::{
    EventText, called, line_before_result, line_of, minutes, money, name, phase,
};

/// The live line of a build.
#[derive(Default)]
pub(super) struct BuildView {
    result_follows: bool,
    phase: Option<String>,
    /// When the step began: the check, the request, the call of a tool, or the phase.
    since: Duration,
    limit: Option<Duration>,
    turn: Option<u32>,
    action: LiveAction,
    spend: Option<f64>,
    budget: Option<f64>,
}

/// What is going on in a phase.
#[derive(Default)]
enum LiveAction {
    #[default]
    None,
    Request(StreamProgress),
    Tool(String),
    Check {
        name: String,
        line: String,
    },
}

impl ConsoleView for BuildView {
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Option<EventText> {
        self.update(event, elapsed);
        match self.result_follows {
            true => line_before_result(event, elapsed),
            false => line_of(event, elapsed),
        }
    }

    fn live(&self, elapsed: Duration, _rows: usize) -> Vec<String> {
        let Some(phase) = &self.phase else {
            return Vec::new();
        };
        let parts = [
            Some(phase.clone()),
            Some(self.time(elapsed)),
            self.spend_text(),
            self.turn.map(|turn| format!("turn {}", turn + 1)),
            self.action.text(elapsed),
        ];
        vec![parts.into_iter().flatten().collect::<Vec<_>>().join(", ")]
    }
}

impl LiveAction {
    fn text(&self, elapsed: Duration) -> Option<String> {
        match self {
            LiveAction::None => None,
            LiveAction::Request(progress) => Some(progress.text(elapsed)),
            LiveAction::Tool(call) => Some(call.clone()),
            LiveAction::Check { name, line } if line.is_empty() => Some(format!("check {name}")),
            LiveAction::Check { name, line } => Some(format!("check {name}: {line}")),
        }
    }
}

impl BuildView {
    /// A view before the first event; `result_follows` is whether the end of the run is printed elsewhere.
    pub(super) fn new(result_follows: bool) -> BuildView {
        BuildView {
            result_follows,
            ..BuildView::default()
        }
    }

    /// The time of the step, with its limit: `12 s of 10 min`.
    fn time(&self, elapsed: Duration) -> String {
        let time = minutes(elapsed.saturating_sub(self.since).as_secs());
        match self.limit {
            Some(limit) => format!(
                "{time} of {}",
                minutes(limit.as_secs()).trim_end_matches(" 0 s")
            ),
            None => time,
        }
    }

    fn spend_text(&self) -> Option<String> {
        match (self.spend, self.budget) {
            (spend, Some(budget)) => Some(format!(
                "{} of {}",
                money(spend.unwrap_or(0.0)),
                money(budget)
            )),
            (spend, None) => spend.map(money),
        }
    }

    fn begin(&mut self, action: LiveAction, now: Duration) {
        (self.action, self.since, self.limit) = (action, now, None);
    }

    fn update(&mut self, event: &Event, now: Duration) {
        match event {
            Event::WorkflowStarted { budget, .. } => {
                self.budget = budget.and_then(|budget| budget.usd);
            }
            Event::StateStarted {
                state_name,
                attempt: Some(attempt),
                of: Some(of),
                ..
            } => {
                (self.phase, self.turn) = (Some(phase(state_name, *attempt, *of)), None);
                self.begin(LiveAction::None, now);
            }
            Event::StateCompleted { total_cost_usd, .. } => {
                self.spend = total_cost_usd.or(self.spend);
            }
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => self.phase = None,
            _ => self.update_action(event, now),
        }
    }

    /// Notes what is done in the phase.
    fn update_action(&mut self, event: &Event, now: Duration) {
        match event {
            Event::ModelRequested { place, .. } => {
                self.turn = (0 < place.turn).then_some(place.turn);
                self.begin(LiveAction::Request(StreamProgress::begin(now)), now);
            }
            Event::ModelRetried { .. } => {
                self.begin(LiveAction::Request(StreamProgress::begin(now)), now);
            }
            Event::TextStreamed { text, bytes, .. } => {
                if let LiveAction::Request(progress) = &mut self.action {
                    progress.add(text, *bytes, now);
                }
            }
            Event::ModelAnswered { cost_usd, .. } => {
                let sum = cost_usd.map(|cost| self.spend.unwrap_or(0.0) + cost);
                self.spend = sum.or(self.spend);
                self.begin(LiveAction::None, now);
            }
            Event::ToolCalled {
                place,
                tool_name,
                arguments,
                ..
            } => {
                self.turn = Some(place.turn);
                self.begin(LiveAction::Tool(called(tool_name, arguments)), now);
            }
            Event::ToolInvocation {
                tool_name,
                timeout_s,
                ..
            } => {
                let (name, line) = (name(tool_name), String::new());
                self.begin(LiveAction::Check { name, line }, now);
                self.limit = timeout_s.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
            }
            Event::CheckPrinted { line: printed, .. } => {
                if let LiveAction::Check { line, .. } = &mut self.action {
                    *line = name(printed);
                }
            }
            Event::ScriptOutput { .. } | Event::ToolReturned { .. } => {
                self.begin(LiveAction::None, now);
            }
            _ => {}
        }
    }
}
