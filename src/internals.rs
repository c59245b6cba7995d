//! What `tests/` and `benches/` use of the library; not an interface.
//!
//! Everything else is `pub(crate)`, so that the compiler finds dead code.

pub mod build {
    pub use crate::build::build_log::BuildLog;
    pub use crate::build::checks::problem::CheckProblem;
    pub use crate::build::checks::report::{FailedCheck, MAX_REPORT, report};
    pub use crate::build::checks::runners::{causes, summary};
    pub use crate::build::missing_transitions;
    pub use crate::build::spec::parse_spec;

    pub mod answer_format {
        pub use crate::build::generators::answer_format::{FileBlock, parse};
    }
}

pub mod cancel {
    pub use crate::cancel::{CancelToken, Signal};
}

pub mod cli {
    pub use crate::cli::workflow_sandbox::WorkflowAccess;
}

pub mod conversation {
    pub use crate::conversation::budget::Budget;
    pub use crate::conversation::event_log::Projection;
    pub use crate::conversation::log_state::LogState;
    pub use crate::conversation::replay::Replay;
    pub use crate::conversation::usage::UsageLog;
}

pub mod environments {
    pub use crate::environments::adhoc::messages::{HostLines, HostMessage, section};
    pub use crate::environments::adhoc::read_program;
    pub use crate::environments::bash::BashEnvironment;
    pub use crate::environments::bash::record::BashRecords;
    pub use crate::environments::editor::EditorEnvironment;
    pub use crate::environments::output::ChildOutput;
    pub use crate::environments::python::PythonEnvironment;
    pub use crate::environments::python::record::PythonRecords;
    pub use crate::environments::{Environment, Response, WaitLimit, WaitResult};
}

pub mod error {
    pub use crate::error::Error;
}

pub mod events {
    pub use crate::events::{Charge, ConversationScope, Event};
}

pub mod llm {
    pub use crate::llm::http::HttpPart;
    pub use crate::llm::sse::SseParser;
    pub use crate::llm::{Answer, LlmError};

    pub mod anthropic {
        pub use crate::llm::anthropic::read;
    }

    pub mod openai {
        pub use crate::llm::openai::read;
    }
}

pub mod process {
    pub use crate::process::capture::KEPT_AT_EACH_END;
    pub use crate::process::check_env::{CallerEnv, find_program};
    pub use crate::process::child::{ChildProcess, StopMode};
    pub use crate::process::wire::reencode;
    pub use crate::process::{Finished, Job, JobChannels, JobEnd, Launcher, OutputWatch};
    pub use crate::process::{adopt_orphans, run, run_watched};

    pub mod sandbox {
        pub use crate::process::sandbox::plan::{PolicyPlan, sandbox_policy};
        pub use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy, probe};
    }
}

pub mod report {
    use crate::report::foreign::ForeignText;
    use crate::report::log_fold::report_of_log;
    use crate::report::{junit_xml, markdown, page};
    use crate::secrets::Secrets;

    /// A log as HTML, Markdown and JUnit; `None` if it has no line of a run.
    pub fn render(log: &[u8]) -> Option<[String; 3]> {
        let secrets = Secrets::default();
        let report = report_of_log(log, &ForeignText::new(&secrets)).ok()?;
        Some([page(&report), markdown(&report), junit_xml(&report)])
    }
}

pub mod secrets {
    pub use crate::secrets::Secrets;
}

pub mod server {
    pub use crate::server::input::{Queue, QueueItem};
    pub use crate::server::protocol::{ServeAction, ServeReply};
}

pub mod snapshots {
    use std::path::Path;

    use crate::build::attempt_store::AttemptStore;
    use crate::cancel::CancelToken;
    use crate::error::{Error, Result};
    use crate::state::run::new_run_id;
    use crate::state::store::Root;
    use crate::workspace::Workspace;

    /// Takes snapshots of the workspace of a root, one after the other, as a run does.
    pub struct SnapshotTaker {
        attempts: AttemptStore,
        workspace: Workspace,
        cancel: CancelToken,
    }

    impl SnapshotTaker {
        pub fn open(root: &Path) -> Result<SnapshotTaker> {
            let root = Root::open(root)?;
            Ok(SnapshotTaker {
                attempts: AttemptStore::open(&root, &new_run_id())?,
                workspace: Workspace::open(root.handle(), "workspace", &root.join("workspace"))?,
                cancel: CancelToken::never().map_err(|error| Error::Bug(error.to_string()))?,
            })
        }

        /// Returns how many files differ from the last one.
        pub fn take(&mut self) -> Result<usize> {
            let taken = self.attempts.take(&self.workspace, &self.cancel)?;
            Ok(taken.changed.len())
        }
    }
}

pub mod state {
    pub use crate::state::journal::{Journal, JournalRepair};
    pub use crate::state::phase::Phase;
    pub use crate::state::reason::Reason;
    pub use crate::state::run::{ParsedState, RunState};
    pub use crate::state::workflow::WorkflowState;
}

pub mod text {
    pub use crate::text::invisible::{escaped, printable};
    pub use crate::text::shorten::cut_middle;
    pub use crate::text::terminal::rendered;
}

pub mod trees {
    use std::path::Path;

    use crate::build::protection::place_all;
    use crate::build::spec::inputs::Inputs;
    use crate::build::spec::{collect_inputs, read_spec};
    use crate::cancel::CancelToken;
    use crate::error::{Error, Result};
    use crate::state::store::Root;
    use crate::workspace::Workspace;

    /// Copies the protected files of a spec into the workspace of a root, as a run does.
    pub struct TreeCopy {
        inputs: Inputs,
        workspace: Workspace,
        cancel: CancelToken,
    }

    impl TreeCopy {
        pub fn open(root: &Path, spec: &Path) -> Result<TreeCopy> {
            let cancel = CancelToken::never().map_err(|error| Error::Bug(error.to_string()))?;
            let inputs = collect_inputs(&read_spec(spec, None, &[])?, root, &cancel)?;
            let root = Root::open(root)?;
            let workspace = Workspace::open(root.handle(), "workspace", &root.join("workspace"))?;
            Ok(TreeCopy {
                inputs,
                workspace,
                cancel,
            })
        }

        /// Copies them, durably.
        pub fn copy_in(&self) -> Result<()> {
            place_all(&self.workspace, &self.inputs.protect, &self.cancel)?;
            self.workspace.sync()
        }
    }
}

pub mod workflow {
    use std::path::Path;

    use serde_json::Value;

    use crate::source::finding::Finding;
    use crate::workflow::scope::WorkflowScope;
    use crate::workflow::{diagram, lint, state_file};

    pub use crate::workflow::workflow_log::WorkflowLog;

    /// Whether a markdown state can be used, and whether an error was found in it.
    pub fn read_markdown(bytes: &[u8]) -> (bool, bool) {
        let (state, findings) = state_file::read_markdown("A.md", bytes);
        (state.is_some(), findings.iter().any(Finding::is_error))
    }

    /// The findings of `lint` about a workflow.
    pub fn lint(path: &Path) -> Vec<Value> {
        let findings = lint::lint_path(path);
        findings.iter().map(Finding::to_json).collect()
    }

    /// The diagram of a workflow; `None` without a start.
    pub fn mermaid(path: &Path) -> Option<String> {
        let (scope, start) = WorkflowScope::open(path).ok()?;
        Some(diagram::mermaid(&scope, &start))
    }
}

pub mod workspace {
    pub use crate::workspace::safe_path::SafePath;
}
