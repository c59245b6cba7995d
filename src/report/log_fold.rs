//! A report of the lines of a log, as a fold. Lines that cannot be read are skipped and counted; a last line without its end
//! is not read.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use serde::Deserialize;

use crate::conversation::usage::UsageLog;
use crate::events::Event;
use crate::html::units::milliseconds;
use crate::report::agents::Agents;
use crate::report::checks::{ExecutedTests, check_of, sum_of};
use crate::report::exchanges::Exchanges;
use crate::report::foreign::ForeignText;
use crate::report::model::{
    CostPoint, PhaseSpan, PrintedText, ReportAttempt, ReportError, ReportOutcome, ReportSandbox,
    ReportTransition, RunReport,
};
use crate::state::phase::Phase;

/// A line longer than any that this program writes.
const LINE_LIMIT: u64 = 512 << 20;
const OUTPUT: usize = 6_000;
const MESSAGE: usize = 4_000;
const MOST_NAMES: usize = 200;
const MOST_ROWS: usize = 2_000;
const MOST_NOTES: usize = 100;

/// What every line has.
#[derive(Deserialize)]
struct LineHead {
    ts: String,
    run_id: String,
}

/// A report that is being made.
struct ReportFold<'a> {
    foreign: &'a ForeignText<'a>,
    report: RunReport,
    usage: UsageLog,
    price_is_known: bool,
    exchanges: Exchanges,
    attempts: BTreeMap<u32, ReportAttempt>,
    agents: Agents,
    phase: Option<Phase>,
    attempt: u32,
    commands: BTreeMap<String, String>,
    executed: ExecutedTests,
    /// Index of the phase that each agent is in.
    open: BTreeMap<String, usize>,
    process_start: Option<String>,
    total_usd: f64,
}

/// Reads a log; an error of reading, or a log without any line of a run, is an error.
pub(crate) fn report_of_log(
    mut log: impl BufRead,
    foreign: &ForeignText<'_>,
) -> io::Result<RunReport> {
    let mut fold = ReportFold::new(foreign);
    let mut line = Vec::new();
    loop {
        line.clear();
        let count = Read::take(&mut log, LINE_LIMIT).read_until(b'\n', &mut line)?;
        if count == 0 || line.last() != Some(&b'\n') {
            break;
        }
        fold.apply_line(&line);
    }
    match fold.report.run_id.is_empty() {
        true => Err(io::Error::other("it has no line of a run")),
        false => Ok(fold.finish()),
    }
}

impl<'a> ReportFold<'a> {
    fn new(foreign: &'a ForeignText<'a>) -> ReportFold<'a> {
        ReportFold {
            foreign,
            report: RunReport::new(),
            usage: UsageLog::default(),
            price_is_known: true,
            exchanges: Exchanges::default(),
            attempts: BTreeMap::new(),
            agents: Agents::default(),
            phase: None,
            attempt: 1,
            commands: BTreeMap::new(),
            executed: ExecutedTests::default(),
            open: BTreeMap::new(),
            process_start: None,
            total_usd: 0.0,
        }
    }

    fn apply_line(&mut self, line: &[u8]) {
        let head = serde_json::from_slice::<LineHead>(line).ok();
        let head =
            head.filter(|head| self.report.run_id.is_empty() || head.run_id == self.report.run_id);
        let Some(head) = head else {
            self.report.skipped_lines += 1;
            return;
        };
        // An event of a newer version is not damage.
        let Ok(event) = serde_json::from_slice::<Event>(line) else {
            return;
        };
        let at = self.foreign.line(&head.ts);
        if self.report.run_id.is_empty() {
            self.report.run_id = self.foreign.line(&head.run_id);
            self.report.started_at.clone_from(&at);
        }
        self.usage.apply(&event);
        self.exchanges.apply(&at, &event, self.foreign);
        self.apply(&at, &event);
        self.report.updated_at = at;
    }

    fn apply(&mut self, at: &str, event: &Event) {
        match event {
            Event::WorkflowStarted { .. } => self.start(at, event),
            Event::WorkflowCompleted {
                outcome,
                reason,
                message,
                ..
            } => {
                let outcome = match outcome == Phase::Success.name() {
                    true => ReportOutcome::Success,
                    false => ReportOutcome::Failed,
                };
                self.end(at, outcome, reason, message);
            }
            Event::WorkflowPaused {
                reason, message, ..
            } => self.end(at, ReportOutcome::Paused, reason, message),
            Event::WorkflowInterrupted {
                reason, message, ..
            } => self.end(at, ReportOutcome::Interrupted, reason, message),
            Event::StateStarted { .. } => self.begin_state(at, event),
            Event::StateCompleted {
                agent_id,
                cost_usd,
                duration_ms,
                ..
            } => self.end_state(at, agent_id, *cost_usd, *duration_ms),
            Event::TransitionOccurred { .. } => self.transit(at, event),
            Event::ModelRequested { worst, .. } => self.price_is_known = worst.cost_usd.is_some(),
            Event::ModelAnswered {
                agent_id, cost_usd, ..
            } => self.add_cost(at, agent_id, *cost_usd),
            Event::FilesApplied { .. }
            | Event::ProtectedRestored { .. }
            | Event::SnapshotKept { .. } => self.apply_files(event),
            Event::ToolInvocation {
                tool_name, detail, ..
            } => {
                let command = self.foreign.block(detail, MESSAGE);
                self.commands.insert(tool_name.clone(), command);
            }
            Event::ScriptOutput { .. } => self.add_check(event),
            Event::BaselineFinished { passed, report, .. } => {
                let baseline = self.report.baseline.get_or_insert_default();
                baseline.passed = *passed;
                baseline.report = self.foreign.block(report, OUTPUT);
            }
            Event::AgentPaused { agent_id, .. } | Event::AgentFailed { agent_id, .. } => {
                self.break_off(at, agent_id);
                self.agents.apply(event, self.foreign);
            }
            Event::AgentSpawned { .. } | Event::AgentTerminated { .. } => {
                self.agents.apply(event, self.foreign);
            }
            Event::Print { agent_id, text } if self.report.prints.len() < MOST_ROWS => {
                self.report.prints.push(PrintedText {
                    agent_id: self.foreign.line(agent_id),
                    text: self.foreign.block(text, MESSAGE),
                });
            }
            _ => self.apply_note(at, event),
        }
    }

    fn start(&mut self, at: &str, event: &Event) {
        let Event::WorkflowStarted {
            spec_file,
            provider,
            model,
            version,
            max_retries,
            continues,
            budget,
            options,
            start_state,
            ..
        } = event
        else {
            return;
        };
        self.end_process(at);
        let report = &mut self.report;
        report.starts += 1;
        report.spec_file = self.foreign.line(spec_file);
        report.provider = self.foreign.line(provider);
        report.model = self.foreign.line(model);
        report.program = self.foreign.line(version);
        report.max_retries = *max_retries;
        report.budget = *budget;
        report.options = self.foreign.lines(options, MOST_NAMES);
        report.is_replay = options.iter().any(|option| option.starts_with("--replay"));
        let continues = continues.as_deref().map(|id| self.foreign.line(id));
        report.continues = continues.or(report.continues.take());
        if start_state.is_some() {
            report.kind = "workflow";
        }
        report.outcome = ReportOutcome::Unfinished;
        report.reason = None;
        report.message.clear();
        self.process_start = Some(at.to_owned());
    }

    /// Counts the time of a process, up to its end or, if that is not known, its last line.
    fn end_process(&mut self, at: &str) {
        let is_known = self.report.outcome != ReportOutcome::Unfinished;
        let end = match is_known {
            true => at.to_owned(),
            false => self.report.updated_at.clone(),
        };
        if let Some(start) = self.process_start.take() {
            let worked = milliseconds(&start, &end).unwrap_or_default();
            self.report.duration_ms = self.report.duration_ms.saturating_add(worked);
        }
        let open = std::mem::take(&mut self.open).into_values();
        let open = open.filter_map(|index| self.report.phases.get(index));
        let elapsed: u64 = open
            .filter_map(|span| milliseconds(&span.started_at, &end))
            .sum();
        self.add_time(elapsed);
    }

    /// Adds the time of a phase to its attempt.
    fn add_time(&mut self, milliseconds: u64) {
        if !self.report.is_workflow() && self.phase.is_some_and(|phase| phase != Phase::Init) {
            let attempt = self.current_attempt();
            attempt.duration_ms = attempt.duration_ms.saturating_add(milliseconds);
        }
    }

    fn end(&mut self, at: &str, outcome: ReportOutcome, reason: &str, message: &str) {
        self.report.outcome = outcome;
        self.report.reason = Some(self.foreign.line(reason));
        self.report.message = self.foreign.block(message, MESSAGE);
        self.end_process(at);
    }

    fn begin_state(&mut self, at: &str, event: &Event) {
        let Event::StateStarted {
            agent_id,
            state_name,
            attempt,
            visit,
            ..
        } = event
        else {
            return;
        };
        if !self.report.is_workflow() {
            self.begin_phase(at, Phase::of_name(state_name), *attempt);
        }
        let span = PhaseSpan {
            agent_id: self.foreign.line(agent_id),
            name: self.foreign.line(state_name),
            attempt: (!self.report.is_workflow()).then_some(self.attempt),
            visit: *visit,
            started_at: at.to_owned(),
            ..PhaseSpan::default()
        };
        if self.report.is_workflow() {
            self.agents.apply(event, self.foreign);
        }
        if self.report.phases.len() < MOST_ROWS {
            self.open.insert(agent_id.clone(), self.report.phases.len());
            self.report.phases.push(span);
        }
    }

    fn begin_phase(&mut self, at: &str, phase: Option<Phase>, attempt: Option<u32>) {
        self.attempt = match (attempt, phase) {
            (Some(attempt), _) => attempt,
            (None, Some(Phase::Patching)) => self.attempt.saturating_add(1),
            (None, _) => self.attempt,
        };
        self.phase = phase;
        let Some(phase) = phase else { return };
        if matches!(phase, Phase::Generating | Phase::Patching) {
            let attempt = self.current_attempt();
            attempt.phase = phase.name().to_owned();
            if attempt.started_at.is_empty() {
                attempt.started_at = at.to_owned();
            }
        } else if phase == Phase::Testing {
            let attempt = self.current_attempt();
            attempt.checks.clear();
            attempt.passed = None;
        }
    }

    fn current_attempt(&mut self) -> &mut ReportAttempt {
        let number = self.attempt;
        let attempt = self.attempts.entry(number).or_default();
        attempt.number = number;
        attempt
    }

    fn end_state(&mut self, at: &str, agent_id: &str, cost_usd: Option<f64>, duration_ms: u64) {
        let open = self.open.remove(agent_id);
        if let Some(span) = open.and_then(|index| self.report.phases.get_mut(index)) {
            span.ended_at = Some(at.to_owned());
            span.duration_ms = Some(duration_ms);
            // The cost of its answers is there already; null if the price is unknown.
            add_to(&mut span.cost_usd, cost_usd.map(|_| 0.0));
        }
        self.add_time(duration_ms);
        if !self.report.is_workflow() && self.phase.is_some_and(|phase| phase != Phase::Init) {
            add_to(&mut self.current_attempt().cost_usd, cost_usd.map(|_| 0.0));
        }
    }

    /// An agent leaves its state without completing it.
    fn break_off(&mut self, at: &str, agent_id: &str) {
        let open = self.open.remove(agent_id);
        if let Some(span) = open.and_then(|index| self.report.phases.get_mut(index)) {
            span.duration_ms = milliseconds(&span.started_at, at);
            span.ended_at = Some(at.to_owned());
        }
    }

    fn transit(&mut self, at: &str, event: &Event) {
        let Event::TransitionOccurred {
            agent_id,
            from_state,
            to_state,
            transition_type,
            metadata,
        } = event
        else {
            return;
        };
        let foreign = self.foreign;
        if !self.report.is_workflow() && Phase::of_name(from_state) == Some(Phase::Testing) {
            let attempt = self.current_attempt();
            attempt.passed = Some(to_state.as_deref() == Some(Phase::Success.name()));
            let cause = metadata["cause"].as_str();
            attempt.cause = cause.map(|cause| foreign.line(cause));
        }
        let workers = metadata["workers"].as_array().into_iter().flatten();
        let spawned = workers.filter_map(|worker| Some(foreign.line(worker["id"].as_str()?)));
        if self.report.transitions.len() < MOST_ROWS {
            self.report.transitions.push(ReportTransition {
                at: at.to_owned(),
                agent_id: foreign.line(agent_id),
                from_state: foreign.line(from_state),
                to_state: to_state.as_deref().map(|state| foreign.line(state)),
                transition_type: foreign.line(transition_type),
                reason: metadata["reason"]
                    .as_str()
                    .map(|reason| foreign.line(reason)),
                spawned: spawned.take(MOST_NAMES).collect(),
                joins: metadata["join"] == true,
            });
        }
    }

    /// Adds the cost of an answer to the run, and to what its agent is in.
    fn add_cost(&mut self, at: &str, agent_id: &str, cost_usd: Option<f64>) {
        let Some(cost) = cost_usd.filter(|cost| cost.is_finite()) else {
            return;
        };
        self.total_usd += cost;
        if self.report.costs.len() < MOST_ROWS {
            self.report.costs.push(CostPoint {
                at: at.to_owned(),
                total_usd: self.total_usd,
            });
        }
        let open = self.open.get(agent_id);
        if let Some(span) = open.and_then(|index| self.report.phases.get_mut(*index)) {
            add_to(&mut span.cost_usd, Some(cost));
        }
        match self.report.is_workflow() {
            true => add_to(
                &mut self.agents.agent(agent_id, self.foreign).cost_usd,
                Some(cost),
            ),
            false => add_to(&mut self.current_attempt().cost_usd, Some(cost)),
        }
    }

    fn apply_files(&mut self, event: &Event) {
        let foreign = self.foreign;
        match event {
            Event::FilesApplied {
                written, deleted, ..
            } => {
                let attempt = self.current_attempt();
                attempt.written = foreign.lines(written, MOST_NAMES);
                attempt.deleted = foreign.lines(deleted, MOST_NAMES);
            }
            Event::ProtectedRestored {
                restored, removed, ..
            } if self.phase != Some(Phase::Init) => {
                let names = foreign.lines(restored, MOST_NAMES).into_iter();
                let names = names.chain(foreign.lines(removed, MOST_NAMES));
                self.current_attempt().restored.extend(names);
            }
            Event::SnapshotKept {
                tree,
                round: Some(round),
                ..
            } => {
                let number = round.retry_count.saturating_add(1);
                if let Some(attempt) = self.attempts.get_mut(&number) {
                    attempt.tree = Some(tree.clone());
                }
            }
            _ => {}
        }
    }

    fn add_check(&mut self, event: &Event) {
        let Event::ScriptOutput {
            agent_id,
            state_name,
            tool_name,
            ..
        } = event
        else {
            return;
        };
        let Some(mut check) = check_of(event, self.foreign) else {
            return;
        };
        if self.report.is_workflow() {
            check.name = self.foreign.line(state_name);
            self.agents.add_script(agent_id, check, self.foreign);
            return;
        }
        let passed = self.executed.passed(event, &check);
        check.passed_names = self.foreign.lines(&passed, passed.len());
        check.command = self.commands.get(tool_name).cloned().unwrap_or_default();
        let checks = match Phase::of_name(state_name) {
            Some(Phase::Init) => &mut self.report.baseline.get_or_insert_default().checks,
            _ => &mut self.current_attempt().checks,
        };
        checks.retain(|known| known.name != check.name);
        checks.push(check);
    }

    fn apply_note(&mut self, at: &str, event: &Event) {
        let foreign = self.foreign;
        let report = &mut self.report;
        let mut note = |note: String| {
            if report.notes.len() < MOST_NOTES && !report.notes.contains(&note) {
                report.notes.push(note);
            }
        };
        match event {
            Event::NoteAdded { note: text, .. } => note(foreign.block(text, MESSAGE)),
            Event::SandboxFound {
                mode,
                message,
                is_note,
                ..
            } => {
                let message = foreign.block(message, MESSAGE);
                if *is_note {
                    note(message.clone());
                }
                report.sandbox = Some(ReportSandbox {
                    mode: foreign.line(mode),
                    message,
                });
            }
            Event::LogMended { dropped_bytes, .. } => note(format!(
                "an unreadable tail of the log was cut off ({dropped_bytes} bytes)"
            )),
            Event::ErrorOccurred {
                error_type,
                error_message,
                is_retryable,
                ..
            } if report.errors.len() < MOST_NOTES => report.errors.push(ReportError {
                at: at.to_owned(),
                error_type: foreign.line(error_type),
                message: foreign.block(error_message, MESSAGE),
                is_retryable: *is_retryable,
            }),
            _ => {}
        }
    }

    fn finish(mut self) -> RunReport {
        let at = self.report.updated_at.clone();
        if self.report.outcome == ReportOutcome::Unfinished {
            self.end_process(&at);
        }
        self.usage.end_process();
        let (exchanges, left_out) = self.exchanges.finish();
        let mut report = self.report;
        report.usage = self.usage.totals(self.price_is_known);
        report.attempts = self.attempts.into_values().collect();
        for attempt in &mut report.attempts {
            attempt.tests = sum_of(&attempt.checks);
            if attempt.passed == Some(false) {
                attempt.cause = attempt.first_cause();
            }
            let own = exchanges.iter();
            let own = own.filter(|known| known.attempt == Some(attempt.number));
            attempt.told = own.clone().next().map(|first| first.asked.clone());
            attempt.refused = own.filter_map(|known| known.refused.clone()).collect();
        }
        report.agents = self.agents.finish();
        (report.exchanges, report.exchanges_left_out) = (exchanges, left_out);
        report
    }
}

/// Adds to a cost that may not be known yet.
fn add_to(sum: &mut Option<f64>, cost: Option<f64>) {
    if let Some(cost) = cost {
        *sum = Some(sum.unwrap_or_default() + cost);
    }
}
