//! The notice that a resumed conversation gets: its environments are gone, and these files are not as the log has them.
//!
//! The log has every file with which the conversation began, by its content, and what each call changed, by size and
//! time. What tools write is made durable at the end of a conversation only, so after a power cut the disk may hold less
//! than the model knows of; a call that was under way may have left anything.

use crate::conversation::agent::Agent;
use crate::conversation::history::RecordedChanges;
use crate::conversation::workspace_files::{self, WorkspaceListing};
use crate::error::Result;
use crate::events::FileMark;

const BEGIN: &str = "[the run was interrupted and goes on: the environments were restarted, so variables, working \
                     directories, views and background jobs are gone; ";
const UNCHANGED: &str = "the files are as they were";
const UNKNOWN: &str =
    "whether the files are as they were is not known, so look at them before you rely on them";
/// So many files that differ are named.
const MOST_NAMED: usize = 50;

/// The text of a notice, and the files that differ from what the log knows.
pub(crate) struct RestartNotice {
    pub text: String,
    pub changed: Option<Vec<FileMark>>,
}

/// The notice of a recorded restart; an older version did not record its text.
pub(crate) fn recorded_notice(recorded: &str) -> String {
    if recorded.is_empty() {
        notice(UNCHANGED)
    } else {
        recorded.to_owned()
    }
}

/// Compares the workspace with what the log knows of it.
pub(crate) fn find(agent: &Agent) -> Result<RestartNotice> {
    let Some((listing, differing)) = differing(agent)? else {
        return Ok(RestartNotice {
            text: notice(UNKNOWN),
            changed: None,
        });
    };
    let not_compared = match listing.as_one.join(", ") {
        names if names.is_empty() => String::new(),
        names => format!(" (not compared: {names})"),
    };
    let tail = match differing.len() {
        0 => format!("{UNCHANGED}{not_compared}"),
        count => {
            let mut names: Vec<&str> = differing
                .iter()
                .take(MOST_NAMED)
                .map(|one| one.description.as_str())
                .collect();
            let more = format!("{} more", count.saturating_sub(MOST_NAMED));
            names.extend((MOST_NAMED < count).then_some(more.as_str()));
            format!(
                "these files are not as they were, so look at them before you rely on them: {}{not_compared}",
                names.join(", ")
            )
        }
    };
    let changed = differing.into_iter().map(|one| one.mark).collect();
    Ok(RestartNotice {
        text: notice(&tail),
        changed: workspace_files::bounded(changed),
    })
}

fn notice(tail: &str) -> String {
    format!("{BEGIN}{tail}]")
}

/// A file that is not as the log has it.
struct DifferingFile {
    mark: FileMark,
    description: String,
}

/// The files that differ; `None` where the log does not know enough.
fn differing(agent: &Agent) -> Result<Option<(WorkspaceListing, Vec<DifferingFile>)>> {
    let known = agent.history(|history| {
        let opened = history.files(agent.scope)?.clone();
        let changed = history.changed(agent.scope)?.clone();
        Some((opened, changed))
    });
    let Some((
        opened,
        RecordedChanges {
            marks,
            is_incomplete: false,
        },
    )) = known
    else {
        return Ok(None);
    };
    let Some(directory) = &agent.directory else {
        return Ok(None);
    };
    let workspace = directory.open()?;
    let Some(listing) = workspace_files::list(&workspace) else {
        return Ok(None);
    };
    let contents = workspace_files::digests(&workspace)?;
    let mut differing = Vec::new();
    for (path, content) in opened.iter().filter(|(path, _)| !marks.contains_key(*path)) {
        if !workspace_files::counts_as_one(path) && contents.get(path) != Some(content) {
            differing.push(differs(&listing, path, None));
        }
    }
    for (path, mark) in &marks {
        if listing.mark(path) != *mark {
            differing.push(differs(&listing, path, mark.size));
        }
    }
    let is_known = |path: &&String| opened.contains_key(*path) || marks.contains_key(*path);
    for path in listing.files.keys().filter(|path| !is_known(path)) {
        let mark = listing.mark(path);
        let description = format!(
            "{} (new, {} bytes)",
            path.escape_debug(),
            mark.size.unwrap_or(0)
        );
        differing.push(DifferingFile { mark, description });
    }
    differing.sort_by(|a, b| a.mark.path.cmp(&b.mark.path));
    Ok(Some((listing, differing)))
}

fn differs(listing: &WorkspaceListing, path: &str, was: Option<u64>) -> DifferingFile {
    let mark = listing.mark(path);
    let how = match (was, mark.size) {
        (_, None) => "gone".into(),
        (Some(was), Some(now)) if was != now => format!("was {was} bytes, now {now} bytes"),
        (_, Some(now)) => format!("changed, now {now} bytes"),
    };
    let description = format!("{} ({how})", path.escape_debug());
    DifferingFile { mark, description }
}
