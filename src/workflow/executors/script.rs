//! Script states: bash in the agent's directory, contained like a check, its output watched while it runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::{Error, Result};
use crate::events::Event;
use crate::process::{self, Finished, Job, JobEnd, OutputWatch};
use crate::regular_file::open_regular_file;
use crate::text::shorten::{cut_chars, cut_middle};
use crate::text::terminal::rendered;
use crate::workflow::agent_env::{AgentEnv, AgentRuntime};
use crate::workflow::executors::step::{
    ExecutionContext, StateExecutor, StepOutcome, StepResult, WorkflowStep, directories,
};
use crate::workflow::prints::PrintRecorder;
use crate::workflow::transition::{Mistake, read_transition};

/// The most that a script may print, and write to its output file.
const MAX_OUTPUT: usize = 10_000_000;
/// A larger input, or attribute, is not in a variable.
const MAX_VARIABLE: usize = 64 << 10;
/// Bytes of a stream in the log.
const LOGGED: usize = 64 << 10;
/// Characters of stderr in a message.
const SHOWN: usize = 300;
const INPUT: &str = "input";
const OUTPUT: &str = "output";

/// Runs scripts.
pub(super) struct ScriptExecutor;

/// What a script is started with, beside the variables of every program.
type InjectedVariables = BTreeMap<String, OsString>;

impl StateExecutor for ScriptExecutor {
    fn execute(
        &self,
        context: &ExecutionContext,
        step: &WorkflowStep,
        runtime: &mut AgentRuntime,
    ) -> Result<StepOutcome> {
        let file = &step.agent.state;
        let script = match context.scope.read(file) {
            Ok(script) => script,
            Err(error) => return Ok(StepOutcome::Failed(format!("cannot read {file}: {error}"))),
        };
        let env = runtime.env(&context.env, &step.agent.id)?;
        let path = prepare(env, step, &script)?;
        let injected = variables(context, step, env.exchange.path());
        let mut prints = PrintRecorder::new(step.log.clone());
        let job = job(context, step, env, &path, &injected);
        let finished = run(context, env, &job, &mut prints)?;
        let stdout = String::from_utf8_lossy(&finished.stdout.head).into_owned();
        let problem = problem(&finished, context.idle_timeout);
        record(step, &finished, &stdout, problem.as_deref(), &injected)?;
        if let Some(problem) = problem {
            let stderr = last_line(&finished);
            return Ok(StepOutcome::Failed(format!("{file}: {problem}{stderr}")));
        }
        prints.finish(&stdout)?;
        let concluded = conclude(context, step, env, &stdout);
        Ok(concluded.unwrap_or_else(|problem| StepOutcome::Failed(format!("{file}: {problem}"))))
    }
}

/// Empties the exchange directory and puts the script and its input there; returns the script's path.
fn prepare(env: &AgentEnv, step: &WorkflowStep, script: &[u8]) -> Result<PathBuf> {
    env.exchange.empty()?;
    let directory = env.exchange.path();
    let folder = directory.join("state");
    fs::create_dir(&folder).map_err(|error| Error::io("create", &folder, error))?;
    let path = folder.join(&step.agent.state);
    write(&path, script)?;
    if let Some(input) = &step.agent.input {
        write(&directory.join(INPUT), input.as_bytes())?;
    }
    Ok(path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a new file in an emptied directory of ours"
)]
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|error| Error::io("write", path, error))
}

/// The variables that only a script has.
fn variables(
    context: &ExecutionContext,
    step: &WorkflowStep,
    exchange: &Path,
) -> InjectedVariables {
    let agent = &step.agent;
    let mut all = InjectedVariables::new();
    let mut both = |name: &str, foreign: &str, value: OsString| {
        all.insert(format!("ORCHESTRATOR_{name}"), value.clone());
        all.insert(format!("RAYMOND_{foreign}"), value);
    };
    both("AGENT_ID", "AGENT_ID", agent.id.clone().into());
    both("RUN_ID", "WORKFLOW_ID", context.run_id.clone().into());
    both("STATE_FILE", "STATE_FILE", agent.state.clone().into());
    if let Some(input) = agent
        .input
        .as_ref()
        .filter(|input| input.len() <= MAX_VARIABLE)
    {
        let input = OsString::from(input.replace('\0', ""));
        both("INPUT", "INPUT", input.clone());
        both("INPUT", "RESULT", input);
    }
    if agent.input.is_some() {
        all.insert(
            "ORCHESTRATOR_INPUT_FILE".into(),
            exchange.join(INPUT).into(),
        );
    }
    all.insert(
        "ORCHESTRATOR_OUTPUT_FILE".into(),
        exchange.join(OUTPUT).into(),
    );
    let vars = agent.vars.iter();
    for (name, value) in vars.filter(|(_, value)| value.len() <= MAX_VARIABLE) {
        let name = format!("ORCHESTRATOR_VAR_{}", variable_name(name));
        all.insert(name, value.replace('\0', "").into());
    }
    all
}

/// The name of an attribute as a part of a variable's name.
fn variable_name(attribute: &str) -> String {
    let keep = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            c
        } else {
            '_'
        }
    };
    attribute.to_uppercase().chars().map(keep).collect()
}

fn job(
    context: &ExecutionContext,
    step: &WorkflowStep,
    env: &AgentEnv,
    path: &Path,
    injected: &InjectedVariables,
) -> Job {
    let mut variables = env.variables(&context.env);
    let added = injected.iter();
    variables.extend(added.map(|(name, value)| (name.into(), value.clone())));
    Job {
        command: vec!["bash".into(), path.into()],
        cwd: context.env.folder.join(&step.agent.cwd),
        env: variables.into_iter().collect(),
        timeout: Duration::MAX,
    }
}

/// Runs the script; its prints are recorded while it runs.
fn run(
    context: &ExecutionContext,
    env: &AgentEnv,
    job: &Job,
    prints: &mut PrintRecorder,
) -> Result<Finished> {
    let idle_timeout = context.idle_timeout;
    let mut decoder = Utf8Pieces::default();
    let mut told = Ok(());
    let watch = OutputWatch {
        idle_timeout: (!idle_timeout.is_zero()).then_some(idle_timeout),
        stdout_limit: MAX_OUTPUT,
        on_stdout: &mut |bytes| {
            if told.is_ok() {
                told = prints.piece(&decoder.decode(bytes));
            }
        },
    };
    let finished = process::run_watched(env.launcher(), job, watch, &context.cancel)?;
    told.map(|()| finished)
}

/// Decodes a stream piece by piece; a character that is cut in two is completed by the next piece.
#[derive(Default)]
struct Utf8Pieces {
    cut: Vec<u8>,
}

impl Utf8Pieces {
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        let whole = match str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => all.len(),
        };
        self.cut = all.split_off(whole);
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Why a script that has ended cannot be followed; `None` if it can.
fn problem(finished: &Finished, idle_timeout: Duration) -> Option<String> {
    Some(match &finished.ended {
        JobEnd::Exited(0) => return None,
        JobEnd::Exited(code) => format!("exit code {code}"),
        JobEnd::Signalled(number) => format!("ended by signal {number}"),
        JobEnd::TimedOut => "it took too long".into(),
        JobEnd::Idle => {
            let seconds = idle_timeout.as_secs_f64();
            format!("no output for {seconds} s (idle timeout; --timeout sets another)")
        }
        JobEnd::OutputLimit => format!("more than {MAX_OUTPUT} bytes of output"),
        JobEnd::CannotStart(reason) => format!("cannot start: {reason}"),
        JobEnd::SandboxFailed(failure) => format!("no sandbox: {failure}"),
        JobEnd::Limit(limit) => limit.clone(),
    })
}

/// The end of stderr, as the end of a message.
fn last_line(finished: &Finished) -> String {
    let stderr = rendered(&finished.stderr.joined());
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    last.map(|line| format!(": {}", cut_chars(line.trim(), SHOWN, "...")))
        .unwrap_or_default()
}

fn record(
    step: &WorkflowStep,
    finished: &Finished,
    stdout: &str,
    problem: Option<&str>,
    injected: &InjectedVariables,
) -> Result<()> {
    let stderr = finished.stderr.joined();
    let stderr = String::from_utf8_lossy(&stderr);
    let exit_code = match &finished.ended {
        JobEnd::Exited(code) => *code,
        JobEnd::Signalled(number) => 128 + number,
        JobEnd::TimedOut | JobEnd::Idle => 124,
        JobEnd::CannotStart(_) | JobEnd::SandboxFailed(_) => 127,
        JobEnd::OutputLimit | JobEnd::Limit(_) => 137,
    };
    step.log.record(Event::ScriptOutput {
        agent_id: step.agent.id.clone(),
        state_name: step.agent.state.clone(),
        step_number: u32::try_from(step.visit).unwrap_or(u32::MAX),
        tool_name: String::new(),
        hidden: false,
        passed: problem.is_none(),
        problem: problem.map(str::to_owned),
        exit_code,
        execution_time_ms: finished.took.as_millis() as u64,
        tests: None,
        flaky: false,
        first_executed: Vec::new(),
        causes: Vec::new(),
        skipped_names: Vec::new(),
        stdout: cut_middle(stdout, LOGGED),
        stdout_bytes: finished.stdout.total(),
        stderr: cut_middle(&stderr, LOGGED),
        stderr_bytes: finished.stderr.total(),
        env_vars: injected.keys().cloned().collect(),
    })
}

/// What is wrong with the output of a script that succeeded.
#[derive(Debug, thiserror::Error)]
enum OutputProblem {
    #[error(transparent)]
    Transition(#[from] Mistake),
    #[error("ORCHESTRATOR_OUTPUT_FILE is a link")]
    Link,
    #[error("ORCHESTRATOR_OUTPUT_FILE is not a regular file")]
    NotRegular,
    #[error("ORCHESTRATOR_OUTPUT_FILE has more than {MAX_OUTPUT} bytes")]
    TooLarge,
    #[error("cannot read ORCHESTRATOR_OUTPUT_FILE: {0}")]
    Unreadable(#[from] io::Error),
}

/// The transition of a script that succeeded, or what is wrong with it.
fn conclude(
    context: &ExecutionContext,
    step: &WorkflowStep,
    env: &AgentEnv,
    stdout: &str,
) -> std::result::Result<StepOutcome, OutputProblem> {
    let transition = read_transition(stdout, &context.scope)?;
    let output = read_output(&env.exchange.path().join(OUTPUT))?;
    Ok(StepOutcome::Moved(StepResult {
        directories: directories(context, step, &transition)?,
        transition: match output {
            Some(output) => transition.with_output(output),
            None => transition,
        },
        is_implicit: false,
        session: None,
        cost_usd: Some(0.0),
    }))
}

/// The content of a script's output file, if it wrote one.
fn read_output(path: &Path) -> std::result::Result<Option<String>, OutputProblem> {
    match fs::symlink_metadata(path) {
        Err(_) => return Ok(None),
        Ok(found) if found.is_symlink() => return Err(OutputProblem::Link),
        Ok(found) if !found.is_file() => return Err(OutputProblem::NotRegular),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    let file = open_regular_file(path, OFlags::NOFOLLOW)?;
    file.take(MAX_OUTPUT as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() <= MAX_OUTPUT {
        true => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        false => Err(OutputProblem::TooLarge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_cut_in_two_is_completed() {
        let mut pieces = Utf8Pieces::default();
        let text = "aé€🙂b";
        let decoded: String = text
            .as_bytes()
            .chunks(1)
            .map(|chunk| pieces.decode(chunk))
            .collect();
        assert_eq!(decoded, text);
        assert_eq!(Utf8Pieces::default().decode(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn attributes_become_names_of_variables() {
        for (attribute, name) in [("item", "ITEM"), ("myKey", "MYKEY"), ("a-b.c", "A_B_C")] {
            assert_eq!(variable_name(attribute), name);
        }
    }
}
