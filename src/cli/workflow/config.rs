//! What the command line asks for: read and checked before anything is changed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::arguments::{RunArguments, WorkflowFlags};
use crate::cli::env::CliEnv;
use crate::cli::paths::{readable_paths, working_folder};
use crate::cli::run_config::{HostConfig, OutputSettings, RecordedRun, kept_path, refuse_colon};
use crate::error::{Error, Result};
use crate::llm::provider::Provider;
use crate::source::code;
use crate::source::finding::{Finding, FindingLevel};
use crate::state::store::{LOGS, Root, real_path};
use crate::state::workflow::WorkflowOptions;
use crate::workflow::lint::{entry_finding, lint};
use crate::workflow::scope::WorkflowScope;
use crate::workflow::workflow_log::WorkflowLog;

/// The settings of a command line.
pub(super) struct WorkflowConfig {
    pub(super) root: PathBuf,
    pub(super) scope: WorkflowScope,
    pub(super) start: String,
    /// The start state as `state.json` names it.
    pub(super) workflow: String,
    /// `--project-dir`, links resolved.
    pub(super) project_dir: Option<PathBuf>,
    pub(super) input: Option<String>,
    /// What is given here; a resume has the rest.
    pub(super) options: WorkflowOptions,
    /// `--no-resume` or `--replay`.
    pub(super) starts_over: bool,
    pub(super) replay: Option<RecordedRun<WorkflowLog>>,
    pub(super) answers: Vec<String>,
    pub(super) has_sandbox: bool,
    pub(super) network: bool,
    /// Absolute.
    pub(super) read: Vec<PathBuf>,
    /// The caller's variables of `--keep-env`.
    pub(super) kept_variables: Vec<(OsString, OsString)>,
    pub(super) warnings: Vec<Finding>,
    pub(super) host: HostConfig,
    pub(super) output: OutputSettings,
}

impl WorkflowConfig {
    /// Reads and checks everything that the command line names. Changes nothing.
    pub(super) fn read(
        arguments: &RunArguments,
        path: &Path,
        env: &CliEnv,
    ) -> Result<WorkflowConfig> {
        let flags = &arguments.workflow_flags;
        refuse_colon(&env.root)?;
        Root::open(&env.root)?;
        let options = options(arguments, flags, env)?;
        let project_dir = project_dir(arguments, flags, env)?;
        let (scope, start) = open_scope(&env.absolute(path), path)?;
        let findings = lint(&scope, &start);
        refuse_errors(&findings)?;
        let replay = RecordedRun::<WorkflowLog>::load(arguments.replay.as_deref(), env)?;
        Ok(WorkflowConfig {
            root: env.root.clone(),
            workflow: kept_path(&scope.path(&start), &env.root),
            project_dir,
            // A replay has the input of the recorded run, where none is given.
            input: flags.input.clone().or_else(|| {
                let recorded = replay.as_ref()?;
                recorded.facts.input().map(str::to_owned)
            }),
            options,
            starts_over: arguments.no_resume || replay.is_some(),
            replay,
            answers: flags.answer.clone(),
            has_sandbox: !arguments.no_sandbox,
            network: flags.network,
            read: readable_paths(&flags.read, env)?,
            kept_variables: kept_variables(flags, env),
            warnings: shown_warnings(findings, path),
            host: HostConfig::new(env),
            output: OutputSettings::new(arguments, env),
            scope,
            start,
        })
    }
}

fn open_scope(path: &Path, shown: &Path) -> Result<(WorkflowScope, String)> {
    WorkflowScope::open(path).map_err(|error| Error::Spec(entry_finding(shown, &error).to_string()))
}

/// What lint calls an error is refused.
fn refuse_errors(findings: &[Finding]) -> Result<()> {
    let errors = findings
        .iter()
        .filter(|finding| finding.level == FindingLevel::Error);
    let errors: Vec<Finding> = errors.cloned().collect();
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Error::Findings(errors)),
    }
}

/// The warnings of a run. What a start in the middle does not lead to is not worth one.
fn shown_warnings(mut findings: Vec<Finding>, path: &Path) -> Vec<Finding> {
    if !path.is_dir() {
        findings.retain(|finding| finding.code != code::UNREACHABLE);
    }
    findings
}

fn options(
    arguments: &RunArguments,
    flags: &WorkflowFlags,
    env: &CliEnv,
) -> Result<WorkflowOptions> {
    if let Some(name) = &arguments.provider {
        provider(name)?;
    }
    let project_dir = flags.project_dir.as_ref().map(|path| {
        let path = env.absolute(path);
        kept_path(&path.canonicalize().unwrap_or(path), &env.root)
    });
    Ok(WorkflowOptions {
        project_dir,
        budget: arguments.budget,
        price: flags.price.iter().map(|price| price.text.clone()).collect(),
        provider: arguments.provider.clone(),
        model: arguments.model.clone(),
        timeout: flags.timeout,
        jobs: flags.jobs,
    })
}

/// The provider of that name; a template answers no prompts.
pub(super) fn provider(name: &str) -> Result<Provider> {
    let mut known = Provider::ALL.into_iter();
    let found = known.find(|provider| provider.facts().name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Provider::ALL.iter().map(|one| one.facts().name).collect();
        Error::Usage(format!(
            "invalid --provider: expected one of {}, found {name:?}",
            names.join(", ")
        ))
    })
}

/// The folder of `--project-dir`, links resolved.
fn project_dir(
    arguments: &RunArguments,
    flags: &WorkflowFlags,
    env: &CliEnv,
) -> Result<Option<PathBuf>> {
    let Some(path) = &flags.project_dir else {
        return Ok(None);
    };
    let path = env.absolute(path);
    let real = working_folder(&path, "--project-dir", !arguments.no_sandbox, env)?;
    refuse_colon(&real)?;
    match real.starts_with(real_path(&env.root).join(LOGS)) {
        true => Err(Error::Usage(format!(
            "invalid --project-dir {}: it is in logs/ of the root",
            path.display()
        ))),
        false => Ok(Some(real)),
    }
}

/// The caller's variables of `--keep-env`; one that is not set is left out.
fn kept_variables(flags: &WorkflowFlags, env: &CliEnv) -> Vec<(OsString, OsString)> {
    let is_kept = |name: &OsString| flags.keep_env.iter().any(|kept| name == kept.as_str());
    env.variables().filter(|(name, _)| is_kept(name)).collect()
}
