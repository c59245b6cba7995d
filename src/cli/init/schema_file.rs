//! The schema of specs beside them, for editors.

use std::io::Read;
use std::path::Path;

use rustix::fs::OFlags;
use serde_json::{Map, Value};

use crate::build::spec::schema::schema_text;
use crate::cli::init::new_files::PlannedFile;
use crate::regular_file::open_regular_file;

pub(super) const SCHEMA_FILE: &str = ".orchestrator.schema.json";
/// The first field of a schema that `init` wrote: it may be replaced.
const MARK: &str = "written by orchestrator init; it is written again by a later version";
const MAX_LENGTH: u64 = 4 << 20;

/// What becomes of the schema.
pub(super) struct SchemaChange {
    pub(super) file: Option<PlannedFile>,
    /// For people.
    pub(super) line: String,
}

/// Writes the schema if there is none, or one that `init` made.
pub(super) fn schema_change(specs: &Path) -> SchemaChange {
    let path = specs.join(SCHEMA_FILE);
    let exists = path.symlink_metadata();
    let is_ours = exists.as_ref().is_ok_and(|found| found.is_file()) && is_marked(&path);
    if exists.is_ok() && !is_ours {
        return SchemaChange {
            file: None,
            line: format!("kept specs/{SCHEMA_FILE}, which init did not write"),
        };
    }
    SchemaChange {
        file: Some(PlannedFile {
            path,
            text: marked_schema(),
            replaces: is_ours,
        }),
        line: format!("wrote specs/{SCHEMA_FILE}, with which editors complete and check specs"),
    }
}

fn is_marked(path: &Path) -> bool {
    let mut text = String::new();
    let file = open_regular_file(path, OFlags::NOFOLLOW).ok();
    let read = file.and_then(|file| file.take(MAX_LENGTH).read_to_string(&mut text).ok());
    read.is_some() && text.contains(MARK)
}

/// The schema with the mark as its first field.
fn marked_schema() -> String {
    let text = schema_text();
    let Ok(Value::Object(fields)) = serde_json::from_str(&text) else {
        return text;
    };
    let mut marked = Map::from_iter([("$comment".to_owned(), Value::from(MARK))]);
    marked.extend(fields);
    format!("{:#}\n", Value::Object(marked))
}
