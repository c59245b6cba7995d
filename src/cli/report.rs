//! `report`: a run as HTML, Markdown, JSON or JUnit, made from its log. Takes no lock, changes nothing but the file it writes.

use std::io::{BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::cli::arguments::{ReportArguments, ReportFormat};
use crate::cli::env::CliEnv;
use crate::cli::known_run::{KnownRun, RunStatus, SavedState, logged_runs};
use crate::cli::log_file::log_file;
use crate::cli::output::pretty_json;
use crate::cli::run_config::secrets;
use crate::cli::run_names::named_run;
use crate::cli::status::next_command;
use crate::error::{Error, Result};
use crate::regular_file::open_regular_file;
use crate::report::changes::add_changes;
use crate::report::foreign::ForeignText;
use crate::report::log_fold::report_of_log;
use crate::report::model::{NextCommand, ReportOutcome, RunReport};
use crate::report::{junit_xml, markdown, page};
use crate::state::store::Root;
use crate::text::quote::shell_word;

const FILE_MODE: u32 = 0o644;

/// Writes the report, and returns what is printed: the path, or the report.
pub(super) fn main(env: &CliEnv, arguments: &ReportArguments) -> Result<String> {
    let root = Root::open(&env.root)?;
    let log = find_log(&root, arguments.run.as_deref())?;
    let secrets = secrets(env, |variable| env.text(variable));
    let foreign = ForeignText::new(&secrets);
    let failed = |error| Error::io("read", &log, error);
    let file = open_regular_file(&log, OFlags::empty()).map_err(failed)?;
    let reader = BufReader::with_capacity(1 << 16, file);
    let mut report = report_of_log(reader, &foreign).map_err(failed)?;
    // Of a log from elsewhere, the root has no snapshots.
    let is_of_root = log == log_file(&root, &report.run_id);
    add_changes(&mut report, is_of_root.then_some(&root), &foreign);
    report.next = next_commands(&root, &report, env);
    let text = rendered(&report, arguments.format)?;
    let path = match &arguments.output {
        Some(path) if path.as_os_str() == "-" => return Ok(text),
        Some(path) => path.clone(),
        None => log.with_extension(extension(arguments.format)),
    };
    write_whole(&path, &text).map_err(|error| Error::io("write", &path, error))?;
    Ok(format!("{}\n", path.display()))
}

fn rendered(report: &RunReport, format: ReportFormat) -> Result<String> {
    match format {
        ReportFormat::Html => Ok(page(report)),
        ReportFormat::Md => Ok(markdown(report)),
        ReportFormat::Junit => Ok(junit_xml(report)),
        ReportFormat::Json => pretty_json(report),
    }
}

fn extension(format: ReportFormat) -> &'static str {
    match format {
        ReportFormat::Html => "html",
        ReportFormat::Md => "md",
        ReportFormat::Json => "report.json",
        ReportFormat::Junit => "junit.xml",
    }
}

/// The log that is meant: a file, a run by its id, the run in the root, or the newest log.
fn find_log(root: &Root, run: Option<&str>) -> Result<PathBuf> {
    if let Some(run) = run {
        let is_path = run.contains('/') || run.ends_with(".log");
        if is_path && Path::new(run).exists() {
            return Ok(PathBuf::from(run));
        }
        return named_run(root, run).map(|id| log_file(root, &id));
    }
    let current = root.load().ok().and_then(SavedState::of);
    if let Some(state) = current {
        return Ok(log_file(root, state.run_id()));
    }
    let logs = logged_runs(root)?.into_iter().map(|id| log_file(root, &id));
    let written = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    logs.filter(|path| path.is_file())
        .max_by_key(written)
        .ok_or_else(|| {
            Error::Usage(format!(
                "there is no run in {}\nhelp: name a log: `orchestrator report FILE.log`",
                root.path.display()
            ))
        })
}

/// The commands that go on with the run, or with its spec.
fn next_commands(root: &Root, report: &RunReport, env: &CliEnv) -> Vec<NextCommand> {
    let command = |purpose: &str, command: String| NextCommand {
        purpose: purpose.to_owned(),
        command,
    };
    let state = root.load().ok().and_then(SavedState::of);
    let Some(state) = state.filter(|state| state.run_id() == report.run_id) else {
        let purpose = "Its state is not here, so it cannot be continued. A new run begins with";
        let is_over = report.outcome == ReportOutcome::Success;
        let begin = (!is_over).then(|| new_run(report)).flatten();
        return begin
            .map(|begin| command(purpose, begin))
            .into_iter()
            .collect();
    };
    let is_build = matches!(state, SavedState::Build(_));
    let run = KnownRun::current(root, state);
    if matches!(run.status, RunStatus::Running(_)) {
        let watch = "orchestrator watch".to_owned();
        return vec![command("The run is under way. Follow it with", watch)];
    }
    if let Some(next) = next_command(&run, env) {
        return vec![command("Go on with", next)];
    }
    match is_build && report.outcome == ReportOutcome::Success {
        true => vec![
            command("See what changed with", "orchestrator diff".to_owned()),
            command(
                "Carry changes of copied files back with",
                "orchestrator apply".to_owned(),
            ),
        ],
        false => Vec::new(),
    }
}

/// The command that begins a run like this one; `None` where the log does not name its spec.
fn new_run(report: &RunReport) -> Option<String> {
    let path = Path::new(&report.spec_file);
    let (option, path) = match report.is_workflow() {
        true => ("--workflow", path.parent()?),
        false => ("--spec", path),
    };
    let path = path.to_str().filter(|path| !path.is_empty())?;
    Some(format!("orchestrator run {option} {}", shell_word(path)))
}

/// Replaces a file whole. What is there and no regular file, such as a terminal or `/dev/null`, is written to.
pub(super) fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        let mut there = std::fs::File::options().write(true).open(path)?;
        return there.write_all(text.as_bytes());
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    let mode = std::fs::Permissions::from_mode(FILE_MODE);
    file.as_file().set_permissions(mode)?;
    file.persist(path)?;
    Ok(())
}
