//! `diagram`: prints a workflow as a Mermaid flowchart. Its faults go to stderr and do not matter.

use std::path::Path;

use crate::cli::lint::print_to_stderr;
use crate::error::{Error, Result};
use crate::workflow::diagram::mermaid;
use crate::workflow::lint::{entry_finding, lint};
use crate::workflow::scope::WorkflowScope;

/// The diagram of the workflow at a path; an error only where it has no entry.
pub(super) fn main(path: &Path) -> Result<String> {
    let no_entry = |error| Error::Findings(vec![entry_finding(path, &error)]);
    let (scope, start) = WorkflowScope::open(path).map_err(no_entry)?;
    print_to_stderr(&lint(&scope, &start));
    Ok(mermaid(&scope, &start))
}
