//! `fleet report`: one page with all entries, and a report of each run that it links to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cli::arguments::{ReportArguments, ReportFormat};
use crate::cli::env::CliEnv;
use crate::cli::fleet::status::fleet_state;
use crate::cli::fleet::variables::MatrixAxis;
use crate::cli::report::{self, write_whole};
use crate::error::{Error, Result};
use crate::fleet::folder::FleetFolder;
use crate::fleet::plan::FleetPlan;
use crate::report::fleet::model::{
    CountedEntry, EntryState, EntrySummary, FleetReport, FleetSummary, SolvedRow,
};
use crate::report::fleet::page::fleet_page;
use crate::report::fleet::solved::solved_rows;

const PAGE_FILE: &str = "report.html";

/// Writes the page, and returns what is printed: its path, or the data.
pub(super) fn main(
    env: &CliEnv,
    directory: &Path,
    out: Option<&Path>,
    json: bool,
) -> Result<String> {
    let (folder, summary) = fleet_state(env, directory)?;
    let mut report = FleetReport {
        solved: solved(&folder, &summary)?,
        links: HashMap::new(),
        summary,
    };
    if json {
        let text = serde_json::to_string(&report)
            .map_err(|error| Error::Bug(format!("cannot serialize the report: {error}")))?;
        return Ok(text + "\n");
    }
    let path = out.map_or_else(|| folder.file(PAGE_FILE), |out| env.absolute(out));
    let page_folder = path.parent().unwrap_or(Path::new("/"));
    for entry in &report.summary.entries {
        if let Some(page) = run_page(env, &folder, entry)? {
            let link = relative_link(&page, page_folder);
            report.links.insert(entry.name.clone(), link);
        }
    }
    let page = fleet_page(&report);
    write_whole(&path, &page).map_err(|error| Error::io("write", &path, error))?;
    Ok(format!("{}\n", path.display()))
}

/// What was solved, for each value of each matrix.
fn solved(folder: &FleetFolder, summary: &FleetSummary) -> Result<Vec<SolvedRow>> {
    let plan = FleetPlan::load_existing(folder)?;
    let axes = plan.arguments.matrix.iter();
    let keys: Vec<String> = axes
        .filter_map(|axis| MatrixAxis::parse(axis).ok())
        .map(|axis| axis.key)
        .collect();
    let entries = summary.entries.iter();
    // One that was left out before it had an end was never tried.
    let is_counted =
        |entry: &&EntrySummary| entry.state != EntryState::LeftOut || entry.outcome.is_some();
    let entries = entries.filter(is_counted);
    let counted: Vec<CountedEntry> = entries
        .map(|entry| CountedEntry {
            spec: entry.spec.clone(),
            variables: entry.variables.clone(),
            is_solved: matches!(entry.state, EntryState::Over | EntryState::LeftOut)
                .then(|| entry.has_succeeded()),
        })
        .collect();
    Ok(solved_rows(&counted, &keys))
}

/// Writes the report of the last run of an entry if it is older than the log, and returns its path. An entry without a
/// log has none.
fn run_page(env: &CliEnv, folder: &FleetFolder, entry: &EntrySummary) -> Result<Option<PathBuf>> {
    let root = folder.root(&entry.name);
    let Some(run_id) = &entry.run_id else {
        return Ok(None);
    };
    let log = root.join("logs").join(format!("{run_id}.log"));
    let page = log.with_extension("html");
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let Some(written) = changed(&log) else {
        return Ok(None);
    };
    if changed(&page).is_none_or(|made| made < written) {
        let arguments = ReportArguments {
            run: Some(run_id.clone()),
            output: None,
            format: ReportFormat::Html,
        };
        report::main(&env.in_root(&root), &arguments)?;
    }
    Ok(Some(page))
}

/// The path of a page from a folder, as the address of a link. Outside of the folder it is absolute.
fn relative_link(path: &Path, folder: &Path) -> String {
    let shown = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
    let escaped = shown.bytes().map(|byte| match byte {
        b'/' | b'.' | b'_' | b'-' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    let escaped: String = escaped.collect();
    match shown.starts_with('/') {
        true => format!("file://{escaped}"),
        false => escaped,
    }
}
