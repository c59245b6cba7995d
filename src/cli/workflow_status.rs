//! `status` of a workflow: the run, its agents and the results of those that have ended, in readable form.

use crate::cli::known_run::{KnownRun, RunStatus};
use crate::cli::status::{Row, usage_rows};
use crate::state::workflow::{AgentState, AgentStatus, WorkflowPhase, WorkflowState};
use crate::text::invisible::{escaped, printable};
use crate::text::quote::shell_word;
use crate::text::shorten::cut_chars;

/// How much of an input or a result is shown.
const SHOWN_CHARACTERS: usize = 200;
/// How many lines of an error are shown.
const SHOWN_LINES: usize = 12;
/// The folder of a run without `--project-dir`.
const DEFAULT_FOLDER: &str = "workspace";

/// What `status` prints of a workflow, beside its status and the command that goes on.
pub(super) fn workflow_rows(state: &WorkflowState, run: &KnownRun) -> Vec<Row> {
    let is_running = matches!(run.status, RunStatus::Running(_));
    let agents = state.agents.iter();
    let agents = agents.map(|agent| ("agent", agent_text(agent, is_running)));
    let results = state
        .results
        .iter()
        .map(|(id, payload)| ("result", format!("{}: {}", escaped(id), short(payload))));
    let rows = run_rows(state, run).into_iter().chain(agents);
    rows.chain(results).collect()
}

fn run_rows(state: &WorkflowState, run: &KnownRun) -> Vec<Row> {
    let folder = state.options.project_dir.as_deref();
    // A state that was saved while the run went on does not know how that ended.
    let word = match state.state {
        WorkflowPhase::Running => run.status.word(),
        phase => phase.name(),
    };
    let mut rows = vec![("state", word.to_owned())];
    rows.extend(state.reason.map(|reason| ("reason", reason.to_string())));
    rows.extend([
        ("run", state.run_id.clone()),
        ("workflow", escaped(&state.workflow)),
        ("folder", escaped(folder.unwrap_or(DEFAULT_FOLDER))),
    ]);
    rows.extend(state.input.as_deref().map(|input| ("input", short(input))));
    rows.extend(usage_rows(run));
    rows.extend([
        ("begun", state.created_at.clone()),
        ("updated", state.updated_at.clone()),
        ("log", format!("logs/{}.log", state.run_id)),
    ]);
    rows
}

/// An agent with its status and state, and below them what else there is to know, indented.
fn agent_text(agent: &AgentState, is_running: bool) -> String {
    let (id, current) = (escaped(&agent.id), escaped(&agent.current_state));
    let mut text = match agent.status {
        AgentStatus::Running if is_running => format!("{id}: running, at {current}"),
        AgentStatus::Running => format!("{id}: stopped at {current}"),
        AgentStatus::Waiting => format!("{id}: waiting for workers, then {current}"),
        AgentStatus::Asking => format!("{id}: asking, then {current}"),
        AgentStatus::Paused => format!("{id}: paused at {current}"),
        AgentStatus::Failed => format!("{id}: failed at {current}"),
    };
    for (name, value) in agent_details(agent) {
        text += &format!("\n  {name}: {}", value.replace('\n', "\n    "));
    }
    text
}

fn agent_details(agent: &AgentState) -> Vec<(&'static str, String)> {
    let stack = agent.stack.iter().map(|frame| escaped(&frame.return_state));
    let waits_for = agent.waits_for.iter().map(|id| escaped(id));
    let lists = [
        ("returns to", stack.collect::<Vec<_>>().join(", ")),
        ("waits for", waits_for.collect::<Vec<_>>().join(", ")),
        ("directory", escaped(&agent.cwd)),
    ];
    let mut details = Vec::from(lists);
    details.retain(|(_, value)| !value.is_empty() && value != ".");
    match (agent.status, &agent.error) {
        (AgentStatus::Asking, question) => {
            let question = question.as_deref().unwrap_or_default();
            details.push(("question", printable(question.trim())));
            let answer = shell_word(&format!("{}=TEXT", escaped(&agent.id)));
            details.push(("answer it with", format!("--answer {answer}")));
        }
        (_, Some(error)) => details.push(("error", few_lines(error))),
        (_, None) => {}
    }
    details
}

/// The first characters of a text, on one line.
fn short(text: &str) -> String {
    cut_chars(&escaped(text.trim()), SHOWN_CHARACTERS, "...")
}

/// The first lines of a text.
fn few_lines(text: &str) -> String {
    let plain = printable(text);
    let lines: Vec<&str> = plain.trim().lines().collect();
    let mut few = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    if SHOWN_LINES < lines.len() {
        few += &format!("\n... {} more lines", lines.len() - SHOWN_LINES);
    }
    few
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cli::known_run::SavedState;
    use crate::cli::run_facts::RunFacts;
    use crate::cli::status::row;
    use crate::state::lock_holder::LockHolder;
    use crate::state::reason::Reason;
    use crate::state::workflow::{NewWorkflow, StackFrame, WorkflowOptions};

    /// The rows of a run whose log is missing and that a process works on, or not.
    fn workflow_table(state: &WorkflowState, is_running: bool) -> String {
        let saved = SavedState::Workflow(Box::new(state.clone()));
        let run = KnownRun::new("r1".into(), Some(saved), true, RunFacts::default());
        let holder = is_running.then_some(LockHolder {
            pid: 7,
            since: None,
        });
        let rows = workflow_rows(state, &run.with_status(holder.as_ref()));
        rows.iter().map(|(name, value)| row(name, value)).collect()
    }

    fn state(input: Option<&str>, agents: Vec<AgentState>) -> WorkflowState {
        let new = NewWorkflow {
            run_id: "r1".into(),
            workflow: "flow/START.md".into(),
            input: input.map(str::to_owned),
            options: WorkflowOptions::default(),
            state_hashes: Default::default(),
        };
        let mut state = WorkflowState::new(new);
        state.created_at = "2026-01-01T00:00:00Z".into();
        state.updated_at.clone_from(&state.created_at);
        state.agents = agents;
        state
    }

    fn agent(id: &str, status: AgentStatus, error: Option<&str>) -> AgentState {
        AgentState {
            id: id.into(),
            current_state: "N.md".into(),
            cwd: ".".into(),
            status,
            error: error.map(str::to_owned),
            ..AgentState::default()
        }
    }

    fn frame(return_state: &str) -> StackFrame {
        StackFrame {
            return_state: return_state.into(),
            session_id: None,
            branch_from: None,
            cwd: ".".into(),
        }
    }

    #[test]
    fn a_run_that_waits_for_answers_shows_how_to_give_them() {
        let waiting = AgentState {
            waits_for: vec!["main_w1".into(), "main_w2".into()],
            ..agent("main", AgentStatus::Waiting, None)
        };
        let asking = AgentState {
            cwd: "sub".into(),
            stack: vec![frame("R.md"), frame("Z.md")],
            ..agent("main_w1", AgentStatus::Asking, Some("Which\none?"))
        };
        let failed = agent("main_w2", AgentStatus::Failed, Some("exit code 3"));
        let mut state = state(Some("a\nb"), vec![waiting, asking, failed]);
        state.state = WorkflowPhase::Paused;
        state.reason = Some(Reason::Asking);
        state.results.insert("main_w3".into(), "done".into());
        let expected = "\
state        PAUSED
reason       asking
run          r1
workflow     flow/START.md
folder       workspace
input        a\\nb
model calls  0
tokens       0 in, 0 out
cost         0.0000 USD
begun        2026-01-01T00:00:00Z
updated      2026-01-01T00:00:00Z
log          logs/r1.log
agent        main: waiting for workers, then N.md
               waits for: main_w1, main_w2
agent        main_w1: asking, then N.md
               returns to: R.md, Z.md
               directory: sub
               question: Which
                 one?
               answer it with: --answer main_w1=TEXT
agent        main_w2: failed at N.md
               error: exit code 3
result       main_w3: done
";
        assert_eq!(workflow_table(&state, false), expected);
    }

    #[test]
    fn a_new_run_has_neither_reason_nor_input() {
        let mut state = state(None, vec![agent("main", AgentStatus::Running, None)]);
        state.options.project_dir = Some("/srv/project".into());
        let text = workflow_table(&state, true);
        assert!(
            !text.contains("reason") && !text.contains("input "),
            "{text}"
        );
        assert!(text.contains("folder       /srv/project\n"), "{text}");
        assert!(
            text.ends_with("agent        main: running, at N.md\n"),
            "{text}"
        );
        let text = workflow_table(&state, false);
        assert!(
            text.ends_with("agent        main: stopped at N.md\n"),
            "{text}"
        );
        assert!(!text.to_lowercase().contains("running"), "{text}");
    }

    #[test]
    fn long_texts_are_cut_and_a_question_is_not() {
        let long = "line\n".repeat(1000);
        let agents = vec![
            agent("main", AgentStatus::Paused, Some(&long)),
            agent("main_w1", AgentStatus::Asking, Some(&long)),
        ];
        let mut state = state(Some(&long), agents);
        state.results.insert("main_w2".into(), long.clone());
        let text = workflow_table(&state, false);
        assert_eq!(text.matches("line\n").count(), 1000 + SHOWN_LINES);
        assert!(text.contains("... 988 more lines\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < 230));
    }

    proptest! {
        #[test]
        fn no_text_can_pass_for_a_row_or_reach_the_terminal(text in any::<String>(), hostile in "[\\x00-\\x1f\\x7f-\\u{9f}]{0,9}") {
            let text = format!("{hostile}{text}{hostile}\nstate SUCCESS");
            let statuses = [AgentStatus::Asking, AgentStatus::Failed, AgentStatus::Waiting];
            let agents = statuses.map(|status| AgentState {
                current_state: text.clone(),
                cwd: text.clone(),
                stack: vec![frame(&text)],
                waits_for: vec![text.clone()],
                ..agent(&text, status, Some(&text))
            });
            let mut state = state(Some(&text), agents.into());
            state.workflow.clone_from(&text);
            state.options.project_dir = Some(text.clone());
            state.results.insert(text.clone(), text.clone());
            let table = workflow_table(&state, false);
            prop_assert!(table.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", table);
            prop_assert_eq!(table.lines().filter(|line| line.starts_with("state")).count(), 1, "{}", table);
        }
    }
}
