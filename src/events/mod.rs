//! The events of a run. The journal writes each as one line; the bus delivers it to observers.
//!
//! Names of variants and fields are those of the log (`logs/<run_id>.log`): they are a file format. Events are plain
//! data without behaviour.

pub(crate) mod bus;
mod field_types;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::field_types::tests_of_any_version;
pub(crate) use self::field_types::{
    Bound, BudgetLimits, FailureCause, FileMark, KeptRound, Objection, ReplacedRun, RequestPlace,
    TestTotals, TestedFile,
};
pub use self::field_types::{Charge, ConversationScope};
use crate::state::reason::Reason;

/// The only agent of a build.
pub(crate) const MAIN_AGENT: &str = "main";

/// The `agent_id` of events that belong to the run of a workflow and not to one of its agents.
pub(crate) const RUN_AGENT: &str = "run";

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Event {
    WorkflowStarted {
        workflow_id: String,
        scope_dir: String,
        debug_dir: Option<String>,
        /// The spec, or the start state of a workflow.
        spec_file: String,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        spec_hash: String,
        provider: String,
        model: String,
        resumed: bool,
        version: String,
        /// That of the spec; a resume uses it if it differs from the last start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_retries: Option<u32>,
        /// The run of another spec that this one replaces, if it left something to keep.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<ReplacedRun>,
        /// The run whose work this one continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<String>,
        /// The limits of the budget, that of the command line included.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<BudgetLimits>,
        /// Of a build: the options of the command line that a command which goes on needs as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        options: Vec<String>,
        /// Of a workflow: the first state of `main`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start_state: Option<String>,
        /// Of a workflow: the input of that state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// Of a workflow: the folder that it works in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
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
    /// Of a phase, `attempt` is 1 for the first round of a run, and `of` is the maximum; of a state, `visit` counts per
    /// agent.
    StateStarted {
        agent_id: String,
        state_name: String,
        state_type: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        visit: Option<u64>,
    },
    StateCompleted {
        agent_id: String,
        state_name: String,
        cost_usd: Option<f64>,
        total_cost_usd: Option<f64>,
        session_id: Option<String>,
        duration_ms: u64,
    },
    /// Of a workflow, `to_state` is null where the agent ends, and `metadata` has everything that follows from it.
    TransitionOccurred {
        agent_id: String,
        from_state: String,
        to_state: Option<String>,
        transition_type: String,
        metadata: Value,
    },
    /// A fork began an agent.
    AgentSpawned {
        parent_agent_id: String,
        new_agent_id: String,
        initial_state: String,
    },
    AgentTerminated {
        agent_id: String,
        result_payload: String,
    },
    /// The agent waits for something outside, at the state where it is.
    AgentPaused {
        agent_id: String,
        reason: Reason,
        message: String,
    },
    /// The agent cannot go on; a resume tries its state again, as a new visit.
    AgentFailed {
        agent_id: String,
        message: String,
    },
    /// A person answered the question of an agent.
    AgentAnswered {
        agent_id: String,
        text: String,
    },
    /// Text that a model or a script shows to the user.
    Print {
        agent_id: String,
        text: String,
    },
    /// A request is about to be sent; `worst` is its maximum cost.
    ModelRequested {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        provider: String,
        model: String,
        hash: String,
        worst: Charge,
        /// The line of the request that this one continues; `request` then holds only what is new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        objection: Option<Objection>,
        request: Value,
    },
    /// `claude` is about to be started; after a crash the session with this id is resumed.
    ClaudeInvocationStarted {
        agent_id: String,
        state_name: String,
        session_id: String,
        is_fork: bool,
        is_reminder: bool,
        reminder_attempt: u32,
    },
    /// The full request of a conversation, for observers only; not journaled.
    PromptSent {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        request: Value,
    },
    /// The same request is sent again.
    ModelRetried {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        attempt: u32,
    },
    /// The answer, or a permanent error.
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
    /// An answer was rejected and nothing of it written; `had_a_block` is whether it contained any file.
    AnswerRefused {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        fault: String,
        had_a_block: bool,
    },
    /// A piece of a stream as received. Journaled only with `--debug`.
    ModelStreamed {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        piece: String,
    },
    /// Text that was streamed, for a live view only; not journaled. `bytes` counts the input of tools and thinking, too.
    TextStreamed {
        agent_id: String,
        text: String,
        bytes: u64,
    },
    /// The files of a phase are on disk; `hashes` has the first 16 hex digits of the SHA-256 of each written file.
    FilesApplied {
        agent_id: String,
        written: Vec<String>,
        deleted: Vec<String>,
        #[serde(default)]
        hashes: BTreeMap<String, String>,
        /// Whether every file was as it is already.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unchanged: bool,
    },
    /// A conversation begins; `files` are those of the workspace, each with a digest of its content.
    ConversationOpened {
        agent_id: String,
        #[serde(flatten)]
        scope: ConversationScope,
        files: BTreeMap<String, String>,
    },
    /// A tool call is about to begin: number `call` of the answer at this place.
    ToolCalled {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        call: u32,
        tool_name: String,
        arguments: Value,
    },
    /// The result of a tool call; if it did not run, `output` has the reason.
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
        /// The files that changed since the last event that lists them; null if unknown.
        #[serde(default)]
        changed: Option<Vec<FileMark>>,
    },
    /// The environments were restarted, and the request at this place says so with the text `words`. `changed` are the
    /// files that differed on resume.
    EnvironmentsRestarted {
        agent_id: String,
        #[serde(flatten)]
        place: RequestPlace,
        #[serde(default)]
        words: String,
        #[serde(default)]
        changed: Option<Vec<FileMark>>,
    },
    /// A conversation is over: its last text, the commands that were still running, and the limit that ended it.
    ConversationClosed {
        agent_id: String,
        #[serde(flatten)]
        scope: ConversationScope,
        words: String,
        killed: Vec<String>,
        bound: Option<Bound>,
    },
    /// A check begins.
    ToolInvocation {
        agent_id: String,
        tool_name: String,
        detail: String,
        /// Seconds after which it is ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<f64>,
    },
    /// The last line that a running check printed, for a live view only; not journaled.
    CheckPrinted {
        agent_id: String,
        tool_name: String,
        line: String,
    },
    /// A check ended. The streams are shortened; `*_bytes` are their full sizes.
    ScriptOutput {
        agent_id: String,
        state_name: String,
        step_number: u32,
        tool_name: String,
        hidden: bool,
        passed: bool,
        /// Why it failed; null if it passed.
        problem: Option<String>,
        exit_code: i32,
        execution_time_ms: u64,
        /// Null if no runner reported test counts.
        #[serde(default, deserialize_with = "tests_of_any_version")]
        tests: Option<TestTotals>,
        /// It passed after a failure in the same round.
        #[serde(default)]
        flaky: bool,
        /// Names of tests that no earlier line of this check lists as executed; only if protected or hidden tests
        /// exist.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        first_executed: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped_names: Vec<String>,
        /// The first reasons of failed tests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        causes: Vec<FailureCause>,
        stdout: String,
        stdout_bytes: u64,
        stderr: String,
        stderr_bytes: u64,
        env_vars: Vec<String>,
    },
    /// The checks ran once before the first request.
    BaselineFinished {
        agent_id: String,
        passed: bool,
        /// What the first request has of it; empty if all checks passed.
        report: String,
    },
    /// A run continues another one, with its workspace; `report` is the one that the first request has.
    RunContinued {
        agent_id: String,
        continues: String,
        tree: String,
        report: String,
    },
    /// The workspace was kept as a snapshot of this run: after a round, or before something else replaced it.
    SnapshotKept {
        agent_id: String,
        number: u32,
        tree: String,
        /// What differs from the snapshot before.
        files: Vec<String>,
        /// What is named in it and not stored.
        unstored: Vec<String>,
        /// Why it was kept without a round.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        round: Option<KeptRound>,
    },
    /// A snapshot was brought back into the workspace; `from_run` is null if it is one of this run.
    SnapshotRestored {
        agent_id: String,
        number: u32,
        from_run: Option<String>,
    },
    /// Of earlier versions: the workspace of the replaced run was moved to that run's folder in `logs/`.
    WorkspaceKept {
        agent_id: String,
        kept: ReplacedRun,
    },
    /// All checks have passed on these files.
    WorkspaceTested {
        agent_id: String,
        files: BTreeMap<String, TestedFile>,
    },
    /// Protected files were restored, and foreign files removed from protected folders.
    ProtectedRestored {
        agent_id: String,
        restored: Vec<String>,
        removed: Vec<String>,
    },
    /// `apply` carried changes of the workspace to the user's own files, by their absolute paths.
    ChangesApplied {
        agent_id: String,
        written: Vec<String>,
        deleted: Vec<String>,
    },
    HiddenFilesPlaced {
        agent_id: String,
        tool_name: String,
        paths: Vec<String>,
        /// The id of the tree that the workspace had, which comes back after a crash; `None` in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<String>,
    },
    HiddenFilesRemoved {
        agent_id: String,
        tool_name: String,
    },
    /// The sandbox mode of programs from here on; anything less than full isolation is added to `notes`.
    SandboxFound {
        agent_id: String,
        mode: String,
        message: String,
        is_note: bool,
    },
    /// Something that the user should know; it is added to `notes`.
    NoteAdded {
        agent_id: String,
        note: String,
    },
    ProgressMessage {
        agent_id: String,
        message: String,
    },
    /// `charge` is set if a request was interrupted and may have cost something.
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
    /// An unreadable tail of the log was cut off; `dropped` is its beginning, escaped, and `kept_as` the file in
    /// `logs/` that has all of it.
    LogMended {
        agent_id: String,
        dropped_bytes: u64,
        dropped: String,
        #[serde(default)]
        kept_as: String,
    },
}
