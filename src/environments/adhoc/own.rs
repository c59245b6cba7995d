//! What the factory needs of one of the user's environments while it loads.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::environments::Environment;

/// How long the others wait for an environment that is loading.
pub(crate) const LOADING_PATIENCE: Duration = Duration::from_secs(10);

/// One of the user's environments.
pub(crate) trait OwnEnvironment: Environment {
    /// Waits until it is loaded or has failed, or until `wake`. Returns whether to offer it; one that is still loading is
    /// offered.
    fn is_offered(&mut self, deadline: Instant, wake: Option<BorrowedFd<'_>>) -> bool;
}
