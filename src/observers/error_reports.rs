//! The error observer of a workflow: one report in `errors/` for each error that ended the work of an agent.
//!
//! A request that failed for good is part of the report of the agent that failed or paused because of it.

use std::collections::BTreeMap;
use std::path::Path;

use super::debug_dir::{DebugDir, DebugError, EventWriter, file_name, fill};
use super::event_text::is_request_error;
use super::workflow_text::{agent_of, state_stem};
use crate::events::Event;
use crate::state::reason::Reason;
use crate::state::run::timestamp;
use crate::text::invisible::printable;

const DIRECTORY: &str = "errors";
/// How many failed requests a report lists.
const MAX_REQUESTS: usize = 20;

/// The events that lead to a report.
pub(super) fn is_written(event: &Event) -> bool {
    matches!(
        event,
        Event::StateStarted { .. }
            | Event::StateCompleted { .. }
            | Event::ErrorOccurred { .. }
            | Event::ScriptOutput { .. }
            | Event::AgentPaused { .. }
            | Event::AgentFailed { .. }
            | Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. }
    )
}

/// Writes the reports.
pub(super) struct ErrorReports {
    directory: DebugDir,
    reports: Option<ReportDir>,
    agents: BTreeMap<String, AgentTrace>,
}

/// The directory of the reports, which the first one creates.
struct ReportDir {
    directory: DebugDir,
    /// The highest number in use.
    number: u32,
}

/// What an agent did in its state, as far as a report needs it.
#[derive(Default)]
struct AgentTrace {
    state: String,
    visit: Option<u64>,
    requests: Vec<String>,
    /// A request failed for good, and no report has it.
    is_pending: bool,
    script: Option<EndedScript>,
}

struct EndedScript {
    exit_code: i32,
    stderr: String,
}

impl EventWriter for ErrorReports {
    fn open(path: &Path) -> Result<ErrorReports, DebugError> {
        Ok(ErrorReports {
            directory: DebugDir::open(path)?,
            reports: None,
            agents: BTreeMap::new(),
        })
    }

    fn write(&mut self, event: &Event) -> Result<(), DebugError> {
        let agent_id = agent_of(event);
        match event {
            Event::StateStarted {
                state_name, visit, ..
            } => self.enter(agent_id, state_name, *visit),
            Event::StateCompleted { .. } => self.trace(agent_id).is_pending = false,
            Event::ScriptOutput { .. } => self.trace(agent_id).script = ended_script(event),
            Event::ErrorOccurred { .. } => return self.error(event),
            Event::AgentPaused {
                reason, message, ..
            } if *reason != Reason::Asking => {
                return self.report(agent_id, &format!("paused ({reason})"), message);
            }
            Event::AgentFailed { message, .. } => {
                return self.report(agent_id, "failed", message);
            }
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => return self.report_pending(),
            _ => {}
        }
        Ok(())
    }
}

impl ErrorReports {
    fn trace(&mut self, agent_id: &str) -> &mut AgentTrace {
        self.agents.entry(agent_id.to_owned()).or_default()
    }

    fn enter(&mut self, agent_id: &str, state: &str, visit: Option<u64>) {
        *self.trace(agent_id) = AgentTrace {
            state: state.to_owned(),
            visit,
            ..AgentTrace::default()
        };
    }

    fn error(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ErrorOccurred {
            agent_id,
            error_type,
            error_message,
            current_state,
            is_retryable,
            ..
        } = event
        else {
            return Ok(());
        };
        let trace = self.trace(agent_id);
        if trace.state.is_empty() {
            trace.state.clone_from(current_state);
        }
        if *is_retryable || is_request_error(error_type) {
            trace.requests.push(error_message.clone());
            trace.is_pending |= !is_retryable;
            return Ok(());
        }
        self.report(agent_id, &format!("error ({error_type})"), error_message)
    }

    /// Writes the reports of requests that failed for good before the run was ended.
    fn report_pending(&mut self) -> Result<(), DebugError> {
        let pending = self.agents.iter().filter(|(_, trace)| trace.is_pending);
        let pending: Vec<String> = pending.map(|(agent_id, _)| agent_id.clone()).collect();
        for agent_id in pending {
            let last = self.trace(&agent_id).requests.pop().unwrap_or_default();
            self.report(&agent_id, "a request failed", &last)?;
        }
        Ok(())
    }

    fn report(&mut self, agent_id: &str, what: &str, message: &str) -> Result<(), DebugError> {
        let mut trace = std::mem::take(self.trace(agent_id));
        if trace.state.is_empty() {
            trace.state = "unknown".to_owned();
        }
        let text = report_text(&trace, agent_id, what, message);
        let (agent, state) = (file_name(agent_id), file_name(state_stem(&trace.state)));
        let reports = match self.reports.take() {
            Some(reports) => reports,
            None => ReportDir::open(&self.directory)?,
        };
        let ReportDir { directory, number } = self.reports.insert(reports);
        let name = |number| format!("{agent}_{state}_{number:03}.txt");
        fill(directory.create_next(number, name)?, &text)?;
        // The agent is still in its state.
        self.enter(agent_id, &trace.state, trace.visit);
        Ok(())
    }
}

impl ReportDir {
    fn open(parent: &DebugDir) -> Result<ReportDir, DebugError> {
        let directory = parent.open_below(DIRECTORY)?;
        let number = directory.highest(number_of)?;
        Ok(ReportDir { directory, number })
    }
}

/// The number in the name of a report: its last part.
fn number_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".txt")?;
    stem.rsplit('_').next()?.parse().ok()
}

fn ended_script(event: &Event) -> Option<EndedScript> {
    match event {
        Event::ScriptOutput {
            exit_code, stderr, ..
        } => Some(EndedScript {
            exit_code: *exit_code,
            stderr: stderr.clone(),
        }),
        _ => None,
    }
}

fn report_text(trace: &AgentTrace, agent_id: &str, what: &str, message: &str) -> String {
    let visit = trace
        .visit
        .map_or(String::new(), |visit| format!(", visit {visit}"));
    let mut text = format!(
        "time: {}\nagent: {agent_id}\nstate: {}{visit}\nerror: {what}\n\n{message}\n",
        timestamp(),
        trace.state
    );
    if !trace.requests.is_empty() {
        let first = trace.requests.len().saturating_sub(MAX_REQUESTS);
        let shown = trace.requests[first..].join("\n");
        let number = trace.requests.len();
        text += &format!("\nfailed requests, {number} in all:\n{shown}\n");
    }
    if let Some(EndedScript { exit_code, stderr }) = &trace.script {
        text += &format!("\nscript: exit code {exit_code}; stderr:\n{stderr}");
    }
    printable(&text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::events::bus::Bus;
    use crate::observers::debug_dir::DebugObserver;

    fn entered(agent: &str) -> Event {
        Event::StateStarted {
            agent_id: agent.into(),
            state_name: "START.md".into(),
            state_type: "markdown".into(),
            attempt: None,
            of: None,
            visit: Some(3),
        }
    }

    fn failed_request(error_type: &str, message: &str, is_retryable: bool) -> Event {
        Event::ErrorOccurred {
            agent_id: "main".into(),
            error_type: error_type.into(),
            error_message: message.into(),
            current_state: "START.md".into(),
            is_retryable,
            retry_count: 1,
            max_retries: 4,
            charge: None,
        }
    }

    fn paused(reason: Reason, message: &str) -> Event {
        Event::AgentPaused {
            agent_id: "main".into(),
            reason,
            message: message.into(),
        }
    }

    fn failed(agent: &str, message: &str) -> Event {
        Event::AgentFailed {
            agent_id: agent.into(),
            message: message.into(),
        }
    }

    fn interrupted() -> Event {
        Event::WorkflowInterrupted {
            workflow_id: "r1".into(),
            reason: "interrupted".into(),
            message: "by SIGINT".into(),
        }
    }

    /// The names and contents of the reports after these events.
    fn reports(path: &Path, events: &[Event]) -> Vec<(String, String)> {
        let mut bus = Bus::default();
        let has_failed = Arc::default();
        DebugObserver::<ErrorReports>::attach(&mut bus, path.into(), is_written, &has_failed);
        events.iter().for_each(|event| bus.emit(event));
        assert!(bus.take_failures().is_empty());
        let Ok(entries) = fs::read_dir(path.join(DIRECTORY)) else {
            return Vec::new();
        };
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut reports: Vec<_> = paths
            .map(|path| {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, fs::read_to_string(&path).unwrap())
            })
            .collect();
        reports.sort();
        reports
    }

    #[test]
    fn a_failed_request_and_the_pause_it_leads_to_are_one_report() {
        let root = tempfile::tempdir().unwrap();
        let events = [
            entered("main"),
            failed_request("model", "overloaded, try 1", true),
            failed_request("model", "overloaded, try 2", false),
            failed_request("step", "overloaded", false),
            paused(Reason::ProviderUnavailable, "gave up"),
        ];
        let found = reports(root.path(), &events);
        assert_eq!(found.len(), 1, "{found:?}");
        let (name, text) = &found[0];
        assert_eq!(name, "main_START_001.txt");
        for part in [
            "agent: main\nstate: START.md, visit 3\nerror: paused (provider_unavailable)\n\ngave up\n",
            "failed requests, 3 in all:\noverloaded, try 1\noverloaded, try 2\noverloaded\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn every_error_has_a_report_and_a_question_has_none() {
        let root = tempfile::tempdir().unwrap();
        let events = [
            entered("main"),
            entered("main_w1"),
            paused(Reason::Asking, "which?"),
            failed("main_w1", "no \u{1b}[31mtag"),
            failed_request("sandbox", "cannot start", false),
            interrupted(),
        ];
        let found = reports(root.path(), &events);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["main_START_002.txt", "main_w1_START_001.txt"]);
        assert!(found[0].1.contains("error (sandbox)\n\ncannot start"));
        assert!(found[1].1.contains("error: failed\n\nno tag"));
        let again = reports(root.path(), &[entered("main"), failed("main", "again")]);
        assert_eq!(again[1].0, "main_START_003.txt");
    }

    #[test]
    fn a_request_that_failed_for_good_is_reported_unless_its_state_ends_well() {
        let root = tempfile::tempdir().unwrap();
        let error = || failed_request("model", "lost", false);
        let completed = Event::StateCompleted {
            agent_id: "main".into(),
            state_name: "START.md".into(),
            cost_usd: None,
            total_cost_usd: None,
            session_id: None,
            duration_ms: 1,
        };
        let events = [entered("main"), error(), completed, interrupted()];
        assert_eq!(reports(root.path(), &events), []);
        let found = reports(root.path(), &[entered("main"), error(), interrupted()]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].1.contains("a request failed\n\nlost\n"),
            "{found:?}"
        );
    }
}
