//! What `doctor` finds that prevents a run.

/// Something that prevents a run.
#[derive(Debug, Clone)]
pub(super) struct Obstacle {
    pub(super) message: String,
    pub(super) help: String,
}
