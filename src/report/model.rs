//! The data of a report. Names of fields are those of the JSON format, see `docs/report.md`.

use serde::Serialize;

use crate::events::{BudgetLimits, FailureCause, TestTotals};
use crate::state::run::UsageTotals;

/// The version of the JSON format.
pub(crate) const REPORT_VERSION: u32 = 1;

/// What became of a run, as its log says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum ReportOutcome {
    Success,
    Failed,
    Paused,
    Interrupted,
    /// The log has no end of the last process: it is running, or was killed.
    #[default]
    Unfinished,
}

impl ReportOutcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            ReportOutcome::Success => "SUCCESS",
            ReportOutcome::Failed => "FAILED",
            ReportOutcome::Paused => "PAUSED",
            ReportOutcome::Interrupted => "INTERRUPTED",
            ReportOutcome::Unfinished => "UNFINISHED",
        }
    }
}

/// Everything that a report shows of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RunReport {
    pub version: u32,
    pub run_id: String,
    /// `build` or `workflow`.
    pub kind: &'static str,
    pub spec_file: String,
    pub provider: String,
    pub model: String,
    /// The version of the program that wrote the log last.
    pub program: String,
    pub outcome: ReportOutcome,
    pub reason: Option<String>,
    pub message: String,
    pub is_replay: bool,
    pub continues: Option<String>,
    pub started_at: String,
    pub updated_at: String,
    /// Time that processes worked on the run; pauses between them do not count.
    pub duration_ms: u64,
    /// How many processes worked on the run.
    pub starts: u32,
    pub max_retries: Option<u32>,
    pub budget: Option<BudgetLimits>,
    /// Options of the command line that a command which goes on needs as well.
    pub options: Vec<String>,
    pub usage: UsageTotals,
    pub sandbox: Option<ReportSandbox>,
    pub notes: Vec<String>,
    pub errors: Vec<ReportError>,
    /// Lines of the log that could not be read.
    pub skipped_lines: u64,
    pub next: Vec<NextCommand>,
    pub phases: Vec<PhaseSpan>,
    pub costs: Vec<CostPoint>,
    pub baseline: Option<ReportBaseline>,
    pub attempts: Vec<ReportAttempt>,
    pub agents: Vec<ReportAgent>,
    pub transitions: Vec<ReportTransition>,
    pub prints: Vec<PrintedText>,
    pub exchanges: Vec<ModelExchange>,
    /// Exchanges beyond the bound of a report, which are not listed.
    pub exchanges_left_out: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReportSandbox {
    pub mode: String,
    pub message: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReportError {
    pub at: String,
    pub error_type: String,
    pub message: String,
    pub is_retryable: bool,
}

/// A command that goes on from here, and what it does.
#[derive(Debug, Serialize)]
pub(crate) struct NextCommand {
    pub purpose: String,
    pub command: String,
}

/// A phase of a build, or a visit of a state of a workflow.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PhaseSpan {
    pub agent_id: String,
    pub name: String,
    pub attempt: Option<u32>,
    pub visit: Option<u64>,
    pub started_at: String,
    /// Null if its end is not in the log.
    pub ended_at: Option<String>,
    pub duration_ms: Option<u64>,
    pub cost_usd: Option<f64>,
}

/// The cost of all answers up to a time.
#[derive(Debug, Serialize)]
pub(crate) struct CostPoint {
    pub at: String,
    pub total_usd: f64,
}

/// The checks before the first request.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ReportBaseline {
    pub passed: bool,
    pub report: String,
    pub checks: Vec<ReportCheck>,
}

/// An attempt: the files of one phase, and the checks on them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ReportAttempt {
    pub number: u32,
    pub phase: String,
    pub started_at: String,
    pub written: Vec<String>,
    pub deleted: Vec<String>,
    /// Protected files that were restored, and foreign files that were removed from protected folders.
    pub restored: Vec<String>,
    pub changes: Vec<ChangedFile>,
    /// Why `changes` does not have all contents.
    pub changes_note: Option<String>,
    /// Null if it was not tested, or not to the end.
    pub passed: Option<bool>,
    /// Of all checks together.
    pub tests: Option<TestTotals>,
    pub checks: Vec<ReportCheck>,
    pub cause: Option<String>,
    pub cost_usd: Option<f64>,
    pub duration_ms: u64,
    /// The first request of this attempt.
    pub told: Option<String>,
    /// Why answers of this attempt were refused, which the next request says.
    pub refused: Vec<String>,
    #[serde(skip)]
    pub tree: Option<String>,
}

/// A file that an attempt changed.
#[derive(Debug, Serialize)]
pub(crate) struct ChangedFile {
    pub path: String,
    /// Null for binary contents.
    pub added: Option<u64>,
    pub removed: Option<u64>,
    /// A patch as of git, bounded.
    pub patch: String,
}

/// A check or a script that ran.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ReportCheck {
    pub name: String,
    pub command: String,
    pub hidden: bool,
    pub passed: bool,
    pub flaky: bool,
    pub problem: Option<String>,
    pub exit_code: i32,
    pub duration_ms: u64,
    pub tests: Option<TestTotals>,
    /// Empty if the log does not have all of them.
    pub passed_names: Vec<String>,
    pub skipped_names: Vec<String>,
    pub causes: Vec<FailureCause>,
    pub stdout: String,
    pub stdout_bytes: u64,
    pub stderr: String,
    pub stderr_bytes: u64,
}

/// An agent of a workflow.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ReportAgent {
    pub agent_id: String,
    pub parent: Option<String>,
    /// `ended`, `failed`, `paused` or `unfinished`.
    pub status: &'static str,
    /// The result, or why it failed or waits.
    pub result: String,
    pub visits: u64,
    pub cost_usd: Option<f64>,
    pub scripts: Vec<ReportCheck>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ReportTransition {
    pub at: String,
    pub agent_id: String,
    pub from_state: String,
    pub to_state: Option<String>,
    pub transition_type: String,
    pub reason: Option<String>,
    /// The agents that a fork began.
    pub spawned: Vec<String>,
    /// Whether `to_state` waits for these agents.
    pub joins: bool,
}

/// Text that a model or a script showed to the user.
#[derive(Debug, Serialize)]
pub(crate) struct PrintedText {
    pub agent_id: String,
    pub text: String,
}

/// A request to a model, its answer, and the tool calls of the answer.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ModelExchange {
    pub agent_id: String,
    /// Of a build, else empty.
    pub phase: String,
    pub attempt: Option<u32>,
    /// Of a workflow, else empty.
    pub state: String,
    pub visit: Option<u64>,
    pub turn: u32,
    pub at: String,
    pub model: String,
    /// What is new in the request.
    pub asked: String,
    /// Null if the log has no answer.
    pub answered: Option<String>,
    pub error: Option<String>,
    /// Why the answer was refused.
    pub refused: Option<String>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost_usd: Option<f64>,
    pub duration_ms: Option<u64>,
    pub tools: Vec<ReportToolCall>,
    /// Tool calls beyond the bound of a report, which are not listed.
    pub tools_left_out: u64,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ReportToolCall {
    pub call: u32,
    pub name: String,
    pub arguments: String,
    /// Null if the log has no result.
    pub output: Option<String>,
    pub ran: bool,
    pub is_error: bool,
    pub duration_ms: u64,
    pub changed: Vec<String>,
}

impl RunReport {
    /// A report of a run of which nothing is known yet.
    pub(crate) fn new() -> RunReport {
        RunReport {
            version: REPORT_VERSION,
            kind: "build",
            usage: UsageTotals::none(true),
            ..RunReport::default()
        }
    }

    /// The phase or state that was under way when the log ended.
    pub(crate) fn last_open(&self) -> Option<&PhaseSpan> {
        let mut spans = self.phases.iter().rev();
        spans.find(|span| span.ended_at.is_none())
    }

    /// The last attempt whose checks ran.
    pub(crate) fn last_tested(&self) -> Option<&ReportAttempt> {
        let mut attempts = self.attempts.iter().rev();
        attempts.find(|attempt| !attempt.checks.is_empty())
    }

    pub(crate) fn is_workflow(&self) -> bool {
        self.kind == "workflow"
    }
}

impl ReportAttempt {
    /// The first cause of a failure, with its place where that is known.
    pub(crate) fn first_cause(&self) -> Option<String> {
        let failed = self.checks.iter().filter(|check| !check.passed);
        let known = failed.clone().find_map(|check| check.causes.first());
        if let Some(FailureCause {
            message, places, ..
        }) = known
        {
            let place = places.first().map(|place| format!(" at {place}"));
            return Some(format!("{message}{}", place.unwrap_or_default()));
        }
        let problem = failed
            .clone()
            .find_map(|check| Some(format!("{}: {}", check.name, check.problem.as_ref()?)));
        self.cause.clone().or(problem)
    }

    /// `passed`, `failed` or `not tested to the end`.
    pub(crate) fn word(&self) -> &'static str {
        match self.passed {
            Some(true) => "passed",
            Some(false) => "failed",
            None => "not tested to the end",
        }
    }
}

impl ReportCheck {
    /// Why a test failed. A cause may name the test with more words than the list of tests does.
    pub(crate) fn cause_of(&self, test: &str) -> Option<&FailureCause> {
        let mut causes = self.causes.iter();
        causes.find(|cause| cause.tests.iter().any(|name| has_word(name, test)))
    }

    pub(crate) fn word(&self) -> &'static str {
        match (self.passed, self.flaky) {
            (true, false) => "passed",
            (true, true) => "passed, flaky",
            (false, _) => "failed",
        }
    }
}

/// Whether a text has another one that no letter or digit goes on.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Passed, failed and skipped tests, each `-` if they are not known.
pub(crate) fn counts(tests: Option<&TestTotals>) -> [String; 3] {
    let counts = tests.map(|tests| [tests.passed, tests.failed, tests.skipped]);
    let shown = counts.map(|counts| counts.map(|count| count.to_string()));
    shown.unwrap_or_else(|| ["-", "-", "-"].map(str::to_owned))
}
