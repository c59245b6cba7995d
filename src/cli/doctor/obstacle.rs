//! What `doctor` finds that prevents a run.

use crate::error::Error;

/// Something that prevents a run.
#[derive(Debug, Clone)]
pub(super) struct Obstacle {
    pub(super) message: String,
    pub(super) help: String,
}

impl Obstacle {
    /// An error with its help, which may be empty.
    pub(super) fn of(error: &Error) -> Obstacle {
        let text = error.to_string();
        let (message, help) = text.split_once("\nhelp: ").unwrap_or((&text, ""));
        Obstacle {
            message: message.to_owned(),
            help: help.to_owned(),
        }
    }
}
