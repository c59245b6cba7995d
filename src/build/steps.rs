//! One function per phase: what is done, and its outcome.

use std::path::{Path, PathBuf};
use std::thread;

use crate::build::Run;
use crate::build::attempt_store::{keep_round, keep_taken_in};
use crate::build::attempts::first_cause;
use crate::build::baseline::run_baseline;
use crate::build::build_log::ContinuedRun;
use crate::build::checks::last_line::LastLine;
use crate::build::checks::problem::{CheckProblem, EvidenceProblem};
use crate::build::checks::report::{FailedCheck, headline_with_tests, report};
use crate::build::checks::runners::causes;
use crate::build::checks::{CANNOT_START, ToolResult};
use crate::build::context::Context;
use crate::build::generators::{WrittenFiles, answer_format};
use crate::build::kept_files::KEPT_NAMES;
use crate::build::progress::failure_digest;
use crate::build::protection;
use crate::build::protection::guard::ProtectedGuard;
use crate::build::protection::verified::RestoredFiles;
use crate::build::spec::inputs::WorkspaceInput;
use crate::build::spec::{CheckSpec, OnTimeout, Spec};
use crate::build::tested_files;
use crate::error::{Error, Result};
use crate::events::{Event, FailureCause, MAIN_AGENT};
use crate::process::Launcher;
use crate::snapshots::records::RunSnapshots;
use crate::state::phase::{Outcome, Phase};
use crate::state::reason::Reason;
use crate::state::run::RunState;
use crate::text::shorten::{cut_chars, cut_middle};
use crate::text::varying::compile_patterns;

/// Bytes of a stream in a line of the log.
const LOGGED_STREAM: usize = 64 << 10;
/// Causes of failed tests in a line of the log, and characters of the message of each.
const LOGGED_CAUSES: usize = 20;
const LOGGED_HEADLINE: usize = 300;
/// Bytes of `last_test_stderr`.
const KEPT_STDERR: usize = 64 << 10;

/// INIT: an empty workspace with the user's files in it, or the one of the run that this one continues; then the checks on
/// it.
pub(crate) fn prepare(run: &mut Run) -> Result<Outcome> {
    let context = &mut run.context;
    match context.facts(|facts| facts.continued().cloned()) {
        Some(continued) => take_over(context, &continued)?,
        None => fill(context)?,
    }
    run_baseline(run)?;
    if !run.context.is_already_green() {
        begin_preparing(run);
    }
    Ok(Outcome::Started)
}

fn fill(context: &mut Context) -> Result<()> {
    if !context.workspace.is_empty_but(&KEPT_NAMES)? {
        context
            .log
            .progress("emptying workspace/ for a fresh start")?;
        let left = context.workspace.clear(&KEPT_NAMES)?;
        if !left.is_empty() {
            let left = left
                .iter()
                .map(|name| name.escape_debug().to_string())
                .collect::<Vec<_>>()
                .join(", ");
            return Err(Error::io(
                "empty",
                &context.root.join("workspace"),
                std::io::Error::other(format!("still there: {left}")),
            ));
        }
    }
    if let Some(line) = context.inputs.left_out.clone() {
        context.log.progress(line)?;
    }
    protection::copy_in(context, &context.inputs.copy)?;
    protection::copy_in(context, &context.inputs.protect)?;
    // Removals and copies are on disk before the state says so: the save of the next one waits for it.
    let given = context.inputs.copy.iter().chain(&context.inputs.protect);
    let given: Vec<PathBuf> = given.map(|input| input.to.as_str().into()).collect();
    let workspace = context.open_workspace()?;
    context
        .saves
        .begin(move || workspace.settle(given.iter().map(PathBuf::as_path)))?;
    keep_taken_in(context)
}

/// The workspace as it was when the run began, also after a crash, with what the spec takes in now and did not before.
fn take_over(context: &mut Context, continued: &ContinuedRun) -> Result<()> {
    let tree = continued.tree()?;
    context
        .attempts
        .bring_back(&context.workspace, tree, &context.cancel)?;
    let before = RunSnapshots::of(&context.root, &continued.run_id);
    let known = context.attempts.taken_in_tree(&before);
    let is_new = |input: &&WorkspaceInput| {
        let path = Path::new(input.to.as_str());
        !known.contains_key(path) && !context.attempts.has(input.to.as_str())
    };
    let new: Vec<WorkspaceInput> = context.inputs.copy.iter().filter(is_new).cloned().collect();
    protection::copy_in(context, &new)?;
    protection::copy_in(context, &context.inputs.protect)?;
    let given = new.iter().chain(&context.inputs.protect);
    context
        .workspace
        .settle(given.map(|input| Path::new(input.to.as_str())))?;
    context
        .attempts
        .add_taken_in(&context.workspace, &new, &context.cancel)
}

/// GENERATING and PATCHING: an answer, and its files on disk.
pub(crate) fn write(run: &mut Run) -> Result<Outcome> {
    let context = &mut run.context;
    context.check_cancelled()?;
    let all = match context.state.phase == Phase::Generating && context.is_already_green() {
        true => WrittenFiles::default(),
        false => {
            begin_preparing(run);
            run.generator.write(&mut run.context)?
        }
    };
    let context = &mut run.context;
    let unchanged = changes_nothing(context, &all);
    let WrittenFiles {
        written,
        deleted,
        attempt_files,
        hashes,
    } = all.clone();
    context.state.attempt_files = attempt_files;
    context.log.record(Event::FilesApplied {
        agent_id: MAIN_AGENT.into(),
        written,
        deleted,
        hashes,
        unchanged,
    })?;
    let changed = all.written.iter().chain(&all.deleted);
    let mut notes = context
        .rules
        .notes_on(&context.workspace, changed)?
        .into_iter();
    notes.try_for_each(|note| context.log.note(note))?;
    Ok(Outcome::Written)
}

/// Sets the sandbox of the next check up, and compiles what reads an answer and a failure, beside saves and the model.
fn begin_preparing(run: &mut Run) {
    if run.preparing.is_some() {
        return;
    }
    let launcher = run.checks.launcher(first_visible(&run.context.spec));
    let prepare = move || {
        answer_format::compile_patterns();
        launcher.iter().for_each(Launcher::prepare);
        compile_patterns();
    };
    run.preparing = thread::Builder::new().spawn(prepare).ok();
}

/// The index of the check that every round begins with.
pub(crate) fn first_visible(spec: &Spec) -> usize {
    let mut checks = spec.checks.iter();
    checks.position(|check| !check.hidden).unwrap_or_default()
}

/// Whether an answer leaves the files as the last snapshot has them. That is compared and not the disk, where an answer may
/// be applied again after a crash.
fn changes_nothing(context: &Context, all: &WrittenFiles) -> bool {
    let attempts = &context.attempts;
    let is_same = |path: &String| attempts.has_content(path, all.hashes.get(path));
    all.written.iter().all(is_same) && !all.deleted.iter().any(|path| attempts.has(path))
}

/// One round of checks.
#[derive(Default)]
pub(crate) struct CheckRound {
    /// In the order in which they ran: the check's index and its result.
    results: Vec<(usize, ToolResult)>,
}

/// The report of a round.
pub(crate) struct RoundReport {
    /// For the model; empty if all checks passed.
    pub text: String,
    /// The headline of the first check that failed.
    pub first_failure: Option<String>,
}

impl CheckRound {
    pub(crate) fn all_passed(&self) -> bool {
        self.results.iter().all(|(_, result)| result.passed())
    }

    pub(crate) fn report(&self, context: &Context) -> RoundReport {
        let checks = &context.spec.checks;
        let failed: Vec<FailedCheck<'_>> = self
            .results
            .iter()
            .filter_map(|(index, result)| failed_check(&checks[*index], result))
            .collect();
        let passed: Vec<&str> = self
            .results
            .iter()
            .filter(|(index, result)| result.passed() && !checks[*index].hidden)
            .map(|(index, _)| checks[*index].name.as_str())
            .collect();
        let RestoredFiles { restored, removed } = &context.facts(|facts| facts.restored.clone());
        RoundReport {
            text: match failed.is_empty() {
                true => String::new(),
                false => report(&failed, &passed, restored, removed),
            },
            first_failure: failed.first().map(headline_with_tests),
        }
    }

    fn first_failed(&self) -> Option<&(usize, ToolResult)> {
        self.results.iter().find(|(_, result)| !result.passed())
    }
}

/// All visible checks, then, once they pass, the hidden ones.
pub(crate) fn run_checks(run: &mut Run) -> Result<CheckRound> {
    run.finish_preparing();
    protection::may_have_changed(&mut run.context);
    let mut round = CheckRound::default();
    let (hidden, visible): (Vec<usize>, Vec<usize>) =
        (0..run.checks.len()).partition(|index| run.context.spec.checks[*index].hidden);
    for index in visible {
        check(run, index, &mut round)?;
    }
    if round.all_passed() {
        for index in hidden {
            check(run, index, &mut round)?;
        }
    }
    protection::restore(&mut run.context)?;
    Ok(round)
}

/// TESTING: a round of checks, after which the workspace is kept.
pub(crate) fn test(run: &mut Run) -> Result<Outcome> {
    let round = run_checks(run)?;
    if !round.all_passed() {
        begin_preparing(run);
    }
    let context = &mut run.context;
    let walk = protection::whole_walk(context)?;
    let notes = context.rules.notes_on_all(&context.workspace, &walk)?;
    let mut notes = notes.into_iter();
    notes.try_for_each(|note| context.log.note(note))?;
    remember(run, &round);
    keep(&mut run.context, &round)?;
    let outcome = verdict(&run.context, &round)?;
    if outcome == Outcome::Passed {
        tested_files::record(&mut run.context)?;
    }
    Ok(outcome)
}

/// Keeps the workspace with the result of the round.
fn keep(context: &mut Context, round: &CheckRound) -> Result<()> {
    let results: Vec<&ToolResult> = round.results.iter().map(|(_, result)| result).collect();
    let cause =
        Some(first_cause(&context.state.last_test_output)).filter(|cause| !cause.is_empty());
    let checks = &context.spec.checks;
    let failure = failure_digest(
        round
            .results
            .iter()
            .map(|(index, result)| (&checks[*index], result)),
    );
    let walk = protection::whole_walk(context)?;
    keep_round(context, &results, cause, failure, &walk)
}

/// Runs a check; one that fails is run again as often as the spec says.
fn check(run: &mut Run, index: usize, round: &mut CheckRound) -> Result<()> {
    let check = run.context.spec.checks[index].clone();
    let mut failures = 0;
    loop {
        let result = check_once(run, index, &check)?;
        let step_number = round.results.len() as u32 + 1;
        let is_flaky = result.passed() && 0 < failures;
        let context = &mut run.context;
        context.log.record(output_event(
            context,
            &check,
            step_number,
            &result,
            is_flaky,
        ))?;
        for sentence in result.refused.iter().chain(&result.hints) {
            context
                .log
                .note(format!("check {}: {sentence}", check.name))?;
        }
        if is_flaky {
            let times = if failures == 1 {
                "once".into()
            } else {
                format!("{failures} times")
            };
            context.log.note(format!(
                "check {} is flaky: it failed {times}, then passed unchanged",
                check.name
            ))?;
        }
        let is_final =
            result.passed() || failures == check.rerun || result.exit_code == CANNOT_START;
        if is_final {
            round.results.push((index, result));
            return Ok(());
        }
        failures += 1;
        context.log.progress(format!(
            "check {} failed and is run again ({failures} of {})",
            check.name, check.rerun
        ))?;
    }
}

fn check_once(run: &mut Run, index: usize, check: &CheckSpec) -> Result<ToolResult> {
    let context = &mut run.context;
    context.check_cancelled()?;
    context.workspace.refuse_moved()?;
    protection::restore(context)?;
    protection::make_ready(context, index)?;
    context.rules.check_workspace(&context.workspace, index)?;
    context.log.record(Event::ToolInvocation {
        agent_id: MAIN_AGENT.into(),
        tool_name: check.name.clone(),
        detail: check.command.join(" "),
        timeout_s: Some(check.timeout.as_secs_f64()),
    })?;
    let mut result = if check.hidden {
        run_hidden(run, index, check)?
    } else {
        run_visible(run, index)?
    };
    compare_with_earlier_rounds(&run.context, check, &mut result);
    Ok(result)
}

/// A check that executes fewer tests than in an earlier round has failed, unless the spec sets a number.
fn compare_with_earlier_rounds(context: &Context, check: &CheckSpec, result: &mut ToolResult) {
    if !result.passed() || check.min_tests.is_some() || !context.rules.has_tests() {
        return;
    }
    let lost = context.facts(|facts| facts.rounds.lost(&check.name, result));
    if let Some(lost) = lost {
        result.problem = Some(CheckProblem::Unproven(lost));
    }
}

/// Runs a check and opens the workspace again, since the check may have replaced it. A check that changes protected files
/// has failed.
fn run_tool(run: &mut Run, index: usize) -> Result<ToolResult> {
    let guard = ProtectedGuard::begin(&mut run.context, index)?;
    let log = run.context.log.clone();
    let (lines, name) = (LastLine::default(), &run.context.spec.checks[index].name);
    let printed = |piece: &[u8]| {
        log.show(|| {
            Some(Event::CheckPrinted {
                agent_id: MAIN_AGENT.into(),
                tool_name: name.clone(),
                line: lines.add(piece)?,
            })
        });
    };
    let result = run.checks.run(index, &printed);
    let reopened = run.context.reopen_workspace();
    let mut result = result.and_then(|result| reopened.map(|()| result))?;
    guard.end(&mut run.context, &mut result)?;
    Ok(result)
}

/// Runs a visible check. One that empties the workspace has failed.
fn run_visible(run: &mut Run, index: usize) -> Result<ToolResult> {
    let was_empty = run.context.workspace.is_empty_but(&KEPT_NAMES)?;
    let mut result = run_tool(run, index)?;
    if result.passed() && !was_empty && run.context.workspace.is_empty_but(&KEPT_NAMES)? {
        result.problem = Some(CheckProblem::Unproven(EvidenceProblem::WorkspaceEmptied));
    }
    Ok(result)
}

/// Runs a hidden check. Its files are in the workspace only while it runs, and what it leaves there is undone.
fn run_hidden(run: &mut Run, index: usize, check: &CheckSpec) -> Result<ToolResult> {
    let context = &mut run.context;
    // What the store has is durable before the log relies on it.
    context.saves.wait()?;
    let tree = context
        .attempts
        .stash(&context.workspace, &context.cancel)?;
    let snapshot = context
        .attempts
        .remember(&context.workspace, &context.root)?;
    let files = context.inputs.hidden[index].clone();
    // A folder that holds other files, too, is not removed after a crash.
    let shared = snapshot.folders();
    let own = files
        .iter()
        .map(|input| input.to.as_str())
        .filter(|path| !shared.contains(Path::new(path)));
    context.log.record_synced(Event::HiddenFilesPlaced {
        agent_id: MAIN_AGENT.into(),
        tool_name: check.name.clone(),
        paths: own.map(str::to_owned).collect(),
        tree: Some(tree.to_string()),
    })?;
    let result = protection::copy_in(&run.context, &files).and_then(|()| run_tool(run, index));
    let context = &run.context;
    context.attempts.put_back(snapshot, &context.workspace)?;
    protection::may_have_changed(&mut run.context);
    run.context.log.record(Event::HiddenFilesRemoved {
        agent_id: MAIN_AGENT.into(),
        tool_name: check.name.clone(),
    })?;
    result
}

fn output_event(
    context: &Context,
    check: &CheckSpec,
    step_number: u32,
    result: &ToolResult,
    flaky: bool,
) -> Event {
    let keeps_names = context.rules.has_tests();
    let first_executed = keeps_names
        .then(|| context.facts(|facts| facts.rounds.first_executed(&check.name, result)));
    let skipped_names = keeps_names.then(|| result.names.skipped.iter().cloned().collect());
    Event::ScriptOutput {
        agent_id: MAIN_AGENT.into(),
        state_name: context.state.phase.name().into(),
        step_number,
        tool_name: check.name.clone(),
        hidden: check.hidden,
        passed: result.passed(),
        problem: result.problem.as_ref().map(CheckProblem::to_string),
        exit_code: result.exit_code,
        execution_time_ms: result.took.as_millis() as u64,
        tests: result.tests.clone(),
        flaky,
        first_executed: first_executed.unwrap_or_default(),
        skipped_names: skipped_names.unwrap_or_default(),
        causes: failure_causes(context, result),
        stdout: cut_middle(&result.stdout.text, LOGGED_STREAM),
        stdout_bytes: result.stdout.bytes,
        stderr: cut_middle(&result.stderr.text, LOGGED_STREAM),
        stderr_bytes: result.stderr.bytes,
        env_vars: result.variables.clone(),
    }
}

/// The first reasons of a failure, for the log.
fn failure_causes(context: &Context, result: &ToolResult) -> Vec<FailureCause> {
    if result.passed() {
        return Vec::new();
    }
    let causes = causes(&result.stdout.text, &result.stderr.text);
    let workspace = context.root.real_path().join("workspace");
    let first = causes.into_iter().take(LOGGED_CAUSES);
    first
        .map(|cause| FailureCause {
            message: cut_chars(cause.headline(), LOGGED_HEADLINE, "..."),
            places: cause.places_in(&workspace),
            tests: cause.tests,
        })
        .collect()
}

/// Saves the report for the next patch in the state.
fn remember(run: &mut Run, round: &CheckRound) {
    let RoundReport {
        text,
        first_failure,
    } = round.report(&run.context);
    run.first_failure = first_failure;
    let state = &mut run.context.state;
    state.test_passed = round.all_passed();
    state.last_test_output = text;
    let first = round.first_failed();
    state.last_test_exit_code = Some(first.map_or(0, |(_, result)| result.exit_code));
    state.last_test_stderr = first
        .map(|(_, result)| cut_middle(&result.stderr.text, KEPT_STDERR))
        .unwrap_or_default();
}

fn failed_check<'a>(check: &'a CheckSpec, result: &'a ToolResult) -> Option<FailedCheck<'a>> {
    let problem = result.problem.as_ref()?;
    Some(FailedCheck {
        name: &check.name,
        command: &check.command,
        hidden: check.hidden,
        problem,
        stdout: &result.stdout.text,
        stderr: &result.stderr.text,
        stdout_dropped: result.stdout.dropped,
        stderr_dropped: result.stderr.dropped,
        refused: &result.refused,
        tests: result.tests.as_ref(),
    })
}

fn verdict(context: &Context, round: &CheckRound) -> Result<Outcome> {
    if round.all_passed() {
        return Ok(Outcome::Passed);
    }
    let bound = context.history(|history| history.last_closed()?.bound.clone());
    if let Some(bound) = bound {
        return Err(Error::Failed(
            bound.reason,
            format!("{}; the checks fail", bound.message),
        ));
    }
    let timed_out = round.results.iter().find(|(_, result)| result.timed_out);
    match (timed_out, context.spec.on_timeout) {
        (Some((index, result)), OnTimeout::Fail) => {
            let name = &context.spec.checks[*index].name;
            let problem = result.problem.as_ref().map(CheckProblem::to_string);
            Err(Error::Failed(
                Reason::CheckTimeout,
                format!("check {name}: {}", problem.unwrap_or_default()),
            ))
        }
        _ => match context.facts(|facts| facts.progress.stuck(context.spec.stuck_after)) {
            // Without retries the run is over anyway, and for another reason.
            Some(stuck) if context.state.retries_left() > 0 => Err(Error::Failed(
                Reason::Stuck,
                format!("{stuck}: {}", first_cause(&context.state.last_test_output)),
            )),
            _ => Ok(Outcome::TestsFailed),
        },
    }
}

/// One line for a run that has no retries left; `first_failure` is the headline of the first failed check.
pub(crate) fn failure_line(state: &RunState, first_failure: Option<&str>) -> String {
    format!(
        "the checks still fail after {} of {} retries: {}",
        state.retry_count,
        state.max_retries,
        first_failure.unwrap_or("no report is left")
    )
}
