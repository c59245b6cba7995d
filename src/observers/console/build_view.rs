//! A build on the console: one live line with the phase, the time, the spend and what is going on.

use std::time::Duration;

use super::screen::ConsoleView;
use crate::events::Event;
use crate::observers::event_text::{EventText, line_of, minutes, money, name, phase};

/// The live line of a build.
#[derive(Default)]
pub(super) struct BuildView {
    phase: Option<String>,
    action: Option<String>,
    spend: Option<f64>,
}

impl ConsoleView for BuildView {
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Option<EventText> {
        self.update(event);
        line_of(event, elapsed)
    }

    fn live(&self, elapsed: Duration, _rows: usize) -> Vec<String> {
        let Some(phase) = &self.phase else {
            return Vec::new();
        };
        let parts = [
            Some(phase.clone()),
            Some(minutes(elapsed.as_secs())),
            self.spend.map(money),
            self.action.clone(),
        ];
        vec![parts.into_iter().flatten().collect::<Vec<_>>().join(", ")]
    }
}

impl BuildView {
    fn update(&mut self, event: &Event) {
        match event {
            Event::StateStarted {
                state_name,
                attempt: Some(attempt),
                of: Some(of),
                ..
            } => {
                self.phase = Some(phase(state_name, *attempt, *of));
                self.action = None;
            }
            Event::ModelRequested { .. } => self.action = Some("waiting for the model".to_owned()),
            Event::ModelAnswered { cost_usd, .. } => {
                let sum = cost_usd.map(|cost| self.spend.unwrap_or(0.0) + cost);
                self.spend = sum.or(self.spend);
                self.action = None;
            }
            Event::ToolInvocation { tool_name, .. } => {
                self.action = Some(format!("check {}", name(tool_name)));
            }
            Event::ToolCalled { tool_name, .. } => {
                self.action = Some(format!("tool {}", name(tool_name)));
            }
            Event::ScriptOutput { .. } | Event::ToolReturned { .. } => self.action = None,
            Event::StateCompleted { total_cost_usd, .. } => {
                self.spend = total_cost_usd.or(self.spend);
            }
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => self.phase = None,
            _ => {}
        }
    }
}
