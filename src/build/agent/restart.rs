//! What a resumed conversation is told: that its environments are gone, and which files are not as the log has them.
//!
//! The log has every file with which the phase began, by its content, and what each call changed, by size and time.
//! What tools write is made durable at the end of a phase only, so after a power cut the disk may hold less than the
//! model was told; a call that was under way may have left anything.

use crate::build::agent::changes::{self, WorkspaceListing};
use crate::build::agent::history::RecordedChanges;
use crate::build::context::Context;
use crate::error::Result;
use crate::events::FileMark;

const BEGIN: &str = "[the run was interrupted and goes on: the environments were restarted, so variables, working \
                     directories, views and background jobs are gone; ";
const UNCHANGED: &str = "the files are as they were";
const UNKNOWN: &str =
    "whether the files are as they were is not known, so look at them before you rely on them";
/// So many files that differ are named.
const MOST_NAMED: usize = 50;

/// What is told of a restart, and what it adds to what the log knows.
pub struct RestartNotice {
    pub text: String,
    pub changed: Option<Vec<FileMark>>,
}

/// Whether a text tells of a restart.
pub fn is_note(text: &str) -> bool {
    text.starts_with(BEGIN)
}

/// Returns the words that a recorded restart was told with.
pub fn recorded_notice(words: &str) -> String {
    if words.is_empty() {
        told(UNCHANGED)
    } else {
        words.to_owned()
    }
}

/// Compares the workspace with what the log knows of it.
pub fn find(context: &Context) -> Result<RestartNotice> {
    let Some((listing, differing)) = differing(context)? else {
        return Ok(RestartNotice {
            text: told(UNKNOWN),
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
                .map(|one| one.words.as_str())
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
        text: told(&tail),
        changed: changes::bounded(changed),
    })
}

fn told(tail: &str) -> String {
    format!("{BEGIN}{tail}]")
}

/// A file that is not as the log has it.
struct DifferingFile {
    mark: FileMark,
    words: String,
}

/// Returns the files that differ, or nothing where the log does not know enough.
fn differing(context: &Context) -> Result<Option<(WorkspaceListing, Vec<DifferingFile>)>> {
    let (phase, retry_count) = (context.state.phase, context.state.retry_count);
    let conversations = context.log_state.conversations();
    let (
        Some(opened),
        Some(RecordedChanges {
            marks,
            is_incomplete: false,
        }),
    ) = (
        conversations.files(phase, retry_count),
        conversations.changed(phase, retry_count),
    )
    else {
        return Ok(None);
    };
    let Some(listing) = changes::list(&context.workspace) else {
        return Ok(None);
    };
    let contents = changes::look(context)?;
    let mut differing = Vec::new();
    for (path, content) in opened.iter().filter(|(path, _)| !marks.contains_key(*path)) {
        if !changes::counts_as_one(path) && contents.get(path) != Some(content) {
            differing.push(differs(&listing, path, None));
        }
    }
    for (path, mark) in marks {
        if listing.mark(path) != *mark {
            differing.push(differs(&listing, path, mark.size));
        }
    }
    let is_known = |path: &&String| opened.contains_key(*path) || marks.contains_key(*path);
    for path in listing.files.keys().filter(|path| !is_known(path)) {
        let mark = listing.mark(path);
        let words = format!(
            "{} (new, {} bytes)",
            path.escape_debug(),
            mark.size.unwrap_or(0)
        );
        differing.push(DifferingFile { mark, words });
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
    let words = format!("{} ({how})", path.escape_debug());
    DifferingFile { mark, words }
}
