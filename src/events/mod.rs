//! What happened, as facts. The journal writes each event down as one line; observers hear of it on the bus.
//!
//! The names are those of the log, so a reader of `logs/<run_id>.log` finds them here. Events carry plain data and
//! no behaviour; `bus.rs` delivers them.

pub mod bus;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// The one agent of a build.
pub const MAIN_AGENT: &str = "main";

/// Where in a run a model request stands. No two answers of a run share a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestPlace {
    pub phase: Phase,
    pub retry_count: u32,
    /// 0 is the phase's first request; reminders count on.
    pub turn: u32,
}

/// Tokens that a request may have used although its answer was never recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    pub tokens: u64,
    pub cost_usd: Option<f64>,
}

/// A bound that ended a conversation; one more round of checks decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub reason: Reason,
    pub message: String,
}

/// What the tests of a check came to. What failed without being executed (a fixture, an import) is in `failed` alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestTotals {
    pub executed: u32,
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
    #[serde(default)]
    pub failed_names: Vec<String>,
}

/// Logs of earlier versions have the number of executed tests alone.
fn tests_of_any_version<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<TestTotals>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum AnyVersion {
        Whole(TestTotals),
        Executed(u32),
    }
    Ok(
        Option::<AnyVersion>::deserialize(from)?.map(|tests| match tests {
            AnyVersion::Whole(tests) => tests,
            AnyVersion::Executed(executed) => TestTotals {
                executed,
                ..TestTotals::default()
            },
        }),
    )
}

/// A file of the workspace at one moment; one that is gone has neither size nor time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    pub path: String,
    pub size: Option<u64>,
    /// When its content was last changed: seconds since 1970, with nanoseconds.
    pub modified: Option<String>,
}

/// A run that another one takes the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedRun {
    pub run_id: String,
    pub spec_file: String,
}

/// A file as it was tested: what tells its content, and what tells that nobody has touched it since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedFile {
    pub content: String,
    pub stamp: String,
}

/// Everything that happens in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Event {
    WorkflowStarted {
        workflow_id: String,
        scope_dir: String,
        debug_dir: Option<String>,
        spec_file: String,
        spec_hash: String,
        provider: String,
        model: String,
        resumed: bool,
        version: String,
        /// What the spec says; a resume goes on with it when it differs from that of the last start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_retries: Option<u32>,
        /// The run of another spec that this one takes the place of, where it has left something to keep.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<ReplacedRun>,
    },
    WorkflowCompleted {
        workflow_id: String,
        total_cost_usd: Option<f64>,
        outcome: String,
        reason: String,
        message: String,
    },
    WorkflowPaused {
        workflow_id: String,
        total_cost_usd: Option<f64>,
        paused_agent_count: u32,
        reason: String,
        message: String,
    },
    WorkflowInterrupted {
        workflow_id: String,
        reason: String,
        message: String,
    },
    /// `attempt` is 1 for the first round of a run; `of` is how many there can be.
    StateStarted {
        agent_id: String,
        state_name: String,
        state_type: String,
        attempt: u32,
        of: u32,
    },
    StateCompleted {
        agent_id: String,
        state_name: String,
        cost_usd: Option<f64>,
        total_cost_usd: Option<f64>,
        session_id: Option<String>,
        duration_ms: u64,
    },
    TransitionOccurred {
        agent_id: String,
        from_state: Phase,
        to_state: Phase,
        transition_type: String,
        metadata: Value,
    },
    /// A request is about to be sent; `worst` is what it costs at the most.
    ModelRequested {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        provider: String,
        model: String,
        hash: String,
        worst: Charge,
        /// The line of the request that this one continues; `request` then holds what is new since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<u64>,
        request: Value,
    },
    /// `claude` is about to be started: the session's id is ours, and what is resumed after a crash.
    ClaudeInvocationStarted {
        agent_id: String,
        state_name: String,
        session_id: String,
        is_fork: bool,
        is_reminder: bool,
        reminder_attempt: u32,
    },
    /// All that a request in a conversation says. Told to listeners who want to show it, never journaled.
    PromptSent {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        request: Value,
    },
    /// The same request is sent once more.
    ModelRetried {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        attempt: u32,
    },
    /// What came back: `answer`, or `error` where it is a permanent one.
    ModelAnswered {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        hash: String,
        cost_usd: Option<f64>,
        duration_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// An answer was not used, and nothing of it was written: what was wrong with it, and whether it had any file.
    AnswerRefused {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        fault: String,
        had_a_block: bool,
    },
    /// A piece of a stream, as it came. Journaled only with `--debug`.
    ModelStreamed {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        piece: String,
    },
    /// The files of a phase are on disk; `hashes` has the first 16 digits of the SHA-256 of each that was written.
    FilesApplied {
        agent_id: String,
        written: Vec<String>,
        deleted: Vec<String>,
        #[serde(default)]
        hashes: BTreeMap<String, String>,
    },
    /// A conversation begins; `files` are those of the workspace, each with what tells its content.
    ConversationOpened {
        agent_id: String,
        phase: Phase,
        retry_count: u32,
        files: BTreeMap<String, String>,
    },
    /// A call of a tool is about to begin: the `call`th of the answer at its place.
    ToolCalled {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        call: u32,
        tool_name: String,
        arguments: Value,
    },
    /// What a call came to; one that did not run says why.
    ToolReturned {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        call: u32,
        tool_name: String,
        ran: bool,
        is_error: bool,
        output: String,
        screen: String,
        execution_time_ms: u64,
        /// The files that differ from what the log knew before; null where that is not known.
        #[serde(default)]
        changed: Option<Vec<FileMark>>,
    },
    /// The environments were started afresh, and the request at this place says so, in these words. `changed` as of a
    /// call: what differed when the run went on.
    EnvironmentsRestarted {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        #[serde(default)]
        words: String,
        #[serde(default)]
        changed: Option<Vec<FileMark>>,
    },
    /// A conversation is over: its last words, the commands that were still running, and the bound that ended it.
    ConversationClosed {
        agent_id: String,
        phase: Phase,
        retry_count: u32,
        words: String,
        killed: Vec<String>,
        bound: Option<Bound>,
    },
    /// A check begins.
    ToolInvocation {
        agent_id: String,
        tool_name: String,
        detail: String,
    },
    /// A check ended. The streams are bounded; `*_bytes` is how much there was.
    ScriptOutput {
        agent_id: String,
        state_name: String,
        step_number: u32,
        tool_name: String,
        hidden: bool,
        passed: bool,
        /// Why it failed, in words; null when it passed.
        problem: Option<String>,
        exit_code: i32,
        execution_time_ms: u64,
        /// Nothing where no runner said how many tests there were.
        #[serde(default, deserialize_with = "tests_of_any_version")]
        tests: Option<TestTotals>,
        /// It passed after it had failed in the same round.
        #[serde(default)]
        flaky: bool,
        /// Tests that no earlier line of this check has as executed, and those that were skipped, by name; only where
        /// protected or hidden tests exist.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        first_executed: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped_names: Vec<String>,
        stdout: String,
        stdout_bytes: u64,
        stderr: String,
        stderr_bytes: u64,
        env_vars: Vec<String>,
    },
    /// Protected files were put back, and what did not belong to them removed.
    /// What another run left in the workspace is in its folder of the logs.
    WorkspaceKept {
        agent_id: String,
        kept: ReplacedRun,
    },
    /// All checks have passed on these files.
    WorkspaceTested {
        agent_id: String,
        files: BTreeMap<String, TestedFile>,
    },
    ProtectedRestored {
        agent_id: String,
        restored: Vec<String>,
        removed: Vec<String>,
    },
    HiddenFilesPlaced {
        agent_id: String,
        tool_name: String,
        paths: Vec<String>,
    },
    HiddenFilesRemoved {
        agent_id: String,
        tool_name: String,
    },
    /// Behind which walls programs run from here on; where less than everything holds it ends up in `notes`.
    SandboxFound {
        agent_id: String,
        mode: String,
        message: String,
        is_note: bool,
    },
    /// Something the user should know; it ends up in `notes`.
    NoteAdded {
        agent_id: String,
        note: String,
    },
    ProgressMessage {
        agent_id: String,
        message: String,
    },
    /// `charge` is set where a request broke off and may have cost something.
    ErrorOccurred {
        agent_id: String,
        error_type: String,
        error_message: String,
        current_state: String,
        is_retryable: bool,
        retry_count: u32,
        max_retries: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        charge: Option<Charge>,
    },
    /// The tail of the log could not be read and was cut off; `dropped` shows its beginning, escaped, and `kept_as`
    /// names the file in `logs/` that has it whole.
    LogMended {
        agent_id: String,
        dropped_bytes: u64,
        dropped: String,
        #[serde(default)]
        kept_as: String,
    },
}

/// The kind of an event, for subscribing to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    WorkflowStarted,
    WorkflowCompleted,
    WorkflowPaused,
    WorkflowInterrupted,
    StateStarted,
    StateCompleted,
    TransitionOccurred,
    ModelRequested,
    ClaudeInvocationStarted,
    PromptSent,
    ModelRetried,
    ModelAnswered,
    AnswerRefused,
    ModelStreamed,
    FilesApplied,
    ConversationOpened,
    ToolCalled,
    ToolReturned,
    EnvironmentsRestarted,
    ConversationClosed,
    ToolInvocation,
    ScriptOutput,
    WorkspaceKept,
    WorkspaceTested,
    ProtectedRestored,
    HiddenFilesPlaced,
    HiddenFilesRemoved,
    SandboxFound,
    NoteAdded,
    ProgressMessage,
    ErrorOccurred,
    LogMended,
}

impl Event {
    /// Returns the kind of this event.
    pub fn kind(&self) -> EventKind {
        match self {
            Event::WorkflowStarted { .. } => EventKind::WorkflowStarted,
            Event::WorkflowCompleted { .. } => EventKind::WorkflowCompleted,
            Event::WorkflowPaused { .. } => EventKind::WorkflowPaused,
            Event::WorkflowInterrupted { .. } => EventKind::WorkflowInterrupted,
            Event::StateStarted { .. } => EventKind::StateStarted,
            Event::StateCompleted { .. } => EventKind::StateCompleted,
            Event::TransitionOccurred { .. } => EventKind::TransitionOccurred,
            Event::ModelRequested { .. } => EventKind::ModelRequested,
            Event::ClaudeInvocationStarted { .. } => EventKind::ClaudeInvocationStarted,
            Event::PromptSent { .. } => EventKind::PromptSent,
            Event::ModelRetried { .. } => EventKind::ModelRetried,
            Event::ModelAnswered { .. } => EventKind::ModelAnswered,
            Event::AnswerRefused { .. } => EventKind::AnswerRefused,
            Event::ModelStreamed { .. } => EventKind::ModelStreamed,
            Event::FilesApplied { .. } => EventKind::FilesApplied,
            Event::ConversationOpened { .. } => EventKind::ConversationOpened,
            Event::ToolCalled { .. } => EventKind::ToolCalled,
            Event::ToolReturned { .. } => EventKind::ToolReturned,
            Event::EnvironmentsRestarted { .. } => EventKind::EnvironmentsRestarted,
            Event::ConversationClosed { .. } => EventKind::ConversationClosed,
            Event::ToolInvocation { .. } => EventKind::ToolInvocation,
            Event::ScriptOutput { .. } => EventKind::ScriptOutput,
            Event::WorkspaceKept { .. } => EventKind::WorkspaceKept,
            Event::WorkspaceTested { .. } => EventKind::WorkspaceTested,
            Event::ProtectedRestored { .. } => EventKind::ProtectedRestored,
            Event::HiddenFilesPlaced { .. } => EventKind::HiddenFilesPlaced,
            Event::HiddenFilesRemoved { .. } => EventKind::HiddenFilesRemoved,
            Event::SandboxFound { .. } => EventKind::SandboxFound,
            Event::NoteAdded { .. } => EventKind::NoteAdded,
            Event::ProgressMessage { .. } => EventKind::ProgressMessage,
            Event::ErrorOccurred { .. } => EventKind::ErrorOccurred,
            Event::LogMended { .. } => EventKind::LogMended,
        }
    }
}
