//! What an interrupted `apply` still needs: its plan in `logs/` refers to objects.

use std::fs;
use std::io;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::snapshots::objects::ObjectId;
use crate::state::store::{LOGS, Root};

/// The plan of an `apply` in `logs/`; it exists only while the changes are made.
pub(crate) const APPLY_PLAN: &str = "apply.json";

/// The part of a plan that names objects.
#[derive(Debug, Deserialize)]
pub(super) struct PlannedObjects {
    pub tree: ObjectId,
    pub objects: Vec<ObjectId>,
}

impl PlannedObjects {
    /// What the unfinished plan of a root refers to, if it has one.
    pub(super) fn of(root: &Root) -> Result<Option<PlannedObjects>> {
        let path = root.join(LOGS).join(APPLY_PLAN);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| Error::io("read", &path, io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }
}

/// Refuses a command while an `apply` is unfinished.
pub(crate) fn refuse_unfinished_apply(root: &Root) -> Result<()> {
    match root.join(LOGS).join(APPLY_PLAN).symlink_metadata() {
        Ok(_) => Err(Error::Usage(
            "an apply was interrupted: `orchestrator apply` completes it".into(),
        )),
        Err(_) => Ok(()),
    }
}
