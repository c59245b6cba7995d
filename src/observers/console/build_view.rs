//! A build on the console: one live line with the phase, the time of the step, the spend and what is going on.

use std::time::Duration;

use super::held_error::HeldErrors;
use super::live_spend::LiveSpend;
use super::screen::{ConsoleView, TerminalSize, columns};
use super::stream_progress::StreamProgress;
use crate::events::Event;
use crate::observers::event_text::{
    EventText, called, is_request_error, line_before_result, line_of, minutes, name, phase,
    short_phase,
};
use crate::text::shorten::cut_inside;

/// How many columns of what is going on should fit before the rest of the line is shortened.
const MIN_ACTION: usize = 44;
/// Below this many columns a check is only named.
const NARROW: usize = 60;
/// How many characters a check's name has before what it prints.
const MAX_CHECK_NAME: usize = 24;

/// What a live line leaves out to fit, each with all before it.
const SHORTENINGS: [LiveShortening; 6] = [
    LiveShortening::Nothing,
    LiveShortening::PhaseWords,
    LiveShortening::BudgetWords,
    LiveShortening::Spend,
    LiveShortening::Turn,
    LiveShortening::Limit,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LiveShortening {
    Nothing,
    PhaseWords,
    BudgetWords,
    Spend,
    Turn,
    Limit,
}

/// The live line of a build.
#[derive(Default)]
pub(super) struct BuildView {
    result_follows: bool,
    sees_streams: bool,
    phase: Option<LivePhase>,
    /// When the step began: the check, the request, the call of a tool, or the phase.
    since: Duration,
    limit: Option<Duration>,
    turn: Option<u32>,
    action: LiveAction,
    spend: LiveSpend,
    held: HeldErrors,
}

/// A phase in its long and its short form.
struct LivePhase {
    long: String,
    short: String,
}

/// What is going on in a phase.
#[derive(Default)]
enum LiveAction {
    #[default]
    None,
    Request(StreamProgress),
    /// Between two tries of a request.
    Retry,
    Tool(String),
    Check {
        name: String,
        line: String,
    },
}

impl ConsoleView for BuildView {
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Vec<EventText> {
        self.update(event, elapsed);
        let lines = match self.result_follows {
            true => line_before_result(event, elapsed),
            false => line_of(event, elapsed),
        };
        self.held.lines(event, lines)
    }

    fn finish(&mut self) -> Vec<EventText> {
        self.held.remaining()
    }

    fn live(&self, elapsed: Duration, space: TerminalSize) -> Vec<String> {
        let Some(phase) = &self.phase else {
            return Vec::new();
        };
        let space = usize::from(space.columns);
        let action = self.action.text(elapsed, space < NARROW);
        let wanted = action.as_deref().map_or(0, columns).min(MIN_ACTION);
        let heads = SHORTENINGS.map(|shortening| self.head(phase, elapsed, shortening));
        let fits = |head: &&String| columns(head) + ", ".len() + wanted <= space;
        let head = heads.iter().find(fits).or(heads.last()).cloned();
        let parts: Vec<String> = head.into_iter().chain(action).collect();
        vec![parts.join(", ")]
    }
}

impl LiveAction {
    fn text(&self, elapsed: Duration, is_narrow: bool) -> Option<String> {
        match self {
            LiveAction::None => None,
            LiveAction::Request(progress) => Some(progress.text(elapsed)),
            LiveAction::Retry => Some("waiting to ask the model again".to_owned()),
            LiveAction::Tool(call) => Some(call.clone()),
            LiveAction::Check { name, line } if line.is_empty() => Some(format!("check {name}")),
            LiveAction::Check { name, line } => {
                let name = cut_inside(name, MAX_CHECK_NAME);
                let word = if is_narrow { "" } else { "check " };
                Some(format!("{word}{name}: {line}"))
            }
        }
    }
}

impl BuildView {
    /// A view before the first event; `result_follows` is whether the end of the run is printed elsewhere, `sees_streams`
    /// whether there are events for the pieces of an answer.
    pub(super) fn new(result_follows: bool, sees_streams: bool) -> BuildView {
        BuildView {
            result_follows,
            sees_streams,
            ..BuildView::default()
        }
    }

    /// The part of the line before the action.
    fn head(&self, phase: &LivePhase, elapsed: Duration, shortening: LiveShortening) -> String {
        let phase = match shortening < LiveShortening::PhaseWords {
            true => &phase.long,
            false => &phase.short,
        };
        let parts = [
            Some(phase.clone()),
            self.time(elapsed, shortening < LiveShortening::Limit),
            self.spend_text(shortening),
            self.turn
                .filter(|_| shortening < LiveShortening::Turn)
                .map(|turn| format!("turn {}", turn + 1)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The time of the step, with its limit: `12 s of 10 min`. A request that waits says it itself.
    fn time(&self, elapsed: Duration, has_limit: bool) -> Option<String> {
        if matches!(&self.action, LiveAction::Request(progress) if progress.is_waiting()) {
            return None;
        }
        let time = minutes(elapsed.saturating_sub(self.since).as_secs());
        Some(match self.limit.filter(|_| has_limit) {
            Some(limit) => format!(
                "{time} of {}",
                minutes(limit.as_secs()).trim_end_matches(" 0 s")
            ),
            None => time,
        })
    }

    fn spend_text(&self, shortening: LiveShortening) -> Option<String> {
        if LiveShortening::Spend <= shortening {
            return None;
        }
        self.spend
            .text(match shortening < LiveShortening::BudgetWords {
                true => " of ",
                false => "/",
            })
    }

    fn begin(&mut self, action: LiveAction, now: Duration) {
        (self.action, self.since, self.limit) = (action, now, None);
    }

    fn update(&mut self, event: &Event, now: Duration) {
        self.spend.update(event);
        match event {
            Event::StateStarted {
                state_name,
                attempt: Some(attempt),
                of: Some(of),
                ..
            } => {
                let phase = LivePhase {
                    long: phase(state_name, *attempt, *of),
                    short: short_phase(state_name, *attempt, *of),
                };
                (self.phase, self.turn) = (Some(phase), None);
                self.begin(LiveAction::None, now);
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
            Event::ModelRequested { .. } | Event::ModelRetried { .. } => {
                if let Event::ModelRequested { place, .. } = event {
                    self.turn = (0 < place.turn).then_some(place.turn);
                }
                let progress = StreamProgress::begin(now, self.sees_streams);
                self.begin(LiveAction::Request(progress), now);
            }
            Event::ErrorOccurred {
                error_type,
                is_retryable: true,
                ..
            } if is_request_error(error_type) => self.begin(LiveAction::Retry, now),
            Event::TextStreamed { text, bytes, .. } => {
                if let LiveAction::Request(progress) = &mut self.action {
                    progress.add(text, *bytes, now);
                }
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
            Event::ModelAnswered { .. }
            | Event::ScriptOutput { .. }
            | Event::ToolReturned { .. } => {
                self.begin(LiveAction::None, now);
            }
            _ => {}
        }
    }
}
